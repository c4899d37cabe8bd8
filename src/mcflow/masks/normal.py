"""A multivariate normal learned by EM from rows with holes, and the missing cells given the observed ones under it."""

from __future__ import annotations

__all__ = ["MaskedRows", "NormalModel", "standardise"]

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from mcflow.config import Interval, check_parameter
from mcflow.errors import DataError
from mcflow.typing import BoolArray, FloatArray

#: Cells of the matrices of a block of rows, at most: 8 MiB each.
CELLS_AT_ONCE = 2**20

#: Eigenvalues of a correlation matrix below this share of the largest count as this share.
SMALLEST_SHARE = 1e-9

_LIMITS = {
    "max_steps": Interval(int, 1),
    "tolerance": Interval(float, 0),
    "shrinkage": Interval(float, 0, optional=True),
    "max_rows": Interval(int, 1, optional=True),
}


@dataclass(frozen=True)
class _Block:
    """Some rows, and which of their columns are missing.

    Parameters
    ----------
    rows : ndarray of shape (n_rows,)
        Where the rows are in their table.
    pattern : ndarray of shape (n_rows,)
        Which of the patterns each row has.
    holes : ndarray of shape (n_patterns, n_holes)
        The missing columns of each pattern. Those with fewer than the most are filled up with places from n_columns on,
        which stand for nothing.
    """

    rows: npt.NDArray[np.intp]
    pattern: npt.NDArray[np.intp]
    holes: npt.NDArray[np.intp]

    def parts(self, wide: FloatArray) -> FloatArray:
        """Return each pattern's part of a widened precision, of shape (n_patterns, n_holes, n_holes)."""
        return wide[self.holes[:, :, None], self.holes[:, None, :]]

    def total(self, matrices: FloatArray, n_columns: int) -> FloatArray:
        """Return the sum of the rows' matrices of shape (n_holes, n_holes), at their places in the full one."""
        counts = np.bincount(self.pattern, minlength=len(self.holes))
        places = self.holes[:, :, None] * 2 * n_columns + self.holes[:, None, :]
        weighted = matrices * counts[:, None, None]
        flat: FloatArray = np.bincount(places.ravel(), weighted.ravel(), 4 * n_columns**2).astype(np.float64)
        return flat.reshape(2 * n_columns, -1)[:n_columns, :n_columns]


class MaskedRows:
    """Rows with holes, in blocks of like missingness, so that a whole block is solved at once.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_columns)
        NaN where missing.

    Notes
    -----
    With a precision matrix P, the missing cells of a row that make x'Px least are

    .. math:: x_m = -P_{mm}^{-1} P_{mo} x_o .

    A factorisation is as large as a row has holes, and rows with the same holes share one.

    Examples
    --------
    >>> import numpy as np
    >>> rows = MaskedRows(np.array([[2.0, np.nan]]))
    >>> rows.fill(np.array([[1.0, -0.5], [-0.5, 1.0]]))
    array([[2., 1.]])
    """

    def __init__(self, rows: FloatArray) -> None:
        self.rows = rows
        self.blocks = tuple(_blocks(np.isnan(rows)))

    def fill(self, precision: FloatArray) -> FloatArray:
        """Return the rows with their holes filled, zero being the mean.

        Parameters
        ----------
        precision : ndarray of shape (n_columns, n_columns)
            P, positive definite.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
        """
        filled = np.empty_like(self.rows)
        for block, inverses in self.solved(precision):
            filled[block.rows] = self.filled_block(block, inverses, precision)
        return filled

    def solved(self, precision: FloatArray) -> Iterator[tuple[_Block, FloatArray]]:
        """Go through the blocks, each with the inverses of its patterns' parts of the precision."""
        wide = _with_units(precision)
        return ((block, _inverses(block.parts(wide))) for block in self.blocks)

    def filled_block(
        self, block: _Block, inverses: FloatArray, precision: FloatArray, mean: FloatArray | float = 0.0
    ) -> FloatArray:
        """Return the deviations from the mean of the filled rows of one block."""
        known = np.nan_to_num(self.rows[block.rows] - mean, copy=False)
        if not block.holes.shape[1]:
            return known
        holes = block.holes[block.pattern]
        pull = np.take_along_axis(_widened(known @ precision), holes, axis=1)
        wide = _widened(known)
        np.put_along_axis(wide, holes, -np.einsum("rij,rj->ri", inverses[block.pattern], pull), axis=1)
        return wide[:, : known.shape[1]]


def _widened(rows: FloatArray) -> FloatArray:
    """Return rows with as many zeros behind them, room for the places that stand for nothing."""
    return np.concatenate([rows, np.zeros_like(rows)], axis=1)


def _inverses(matrices: FloatArray) -> FloatArray:
    """Return the inverse of each matrix; torch is about twice as quick as numpy at many small ones."""
    inverses: FloatArray = torch.linalg.inv(torch.from_numpy(matrices)).numpy()
    return inverses


def _with_units(precision: FloatArray) -> FloatArray:
    """Return a precision of twice the size, in which the places that stand for nothing are left alone."""
    size = len(precision)
    wide = np.eye(2 * size)
    wide[:size, :size] = precision
    return wide


def _blocks(missing: BoolArray) -> Iterator[_Block]:
    """Cut rows into blocks of similar numbers of holes and of equal patterns where there are any."""
    n_rows, n_columns = missing.shape
    packed = np.packbits(missing, axis=1)
    _, first, pattern = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    pattern = pattern.reshape(-1)
    order = np.lexsort((pattern, missing.sum(axis=1)))
    step = max(1, CELLS_AT_ONCE // max(n_columns, 1) ** 2)
    for start in range(0, n_rows, step):
        rows = order[start : start + step]
        kinds, local = np.unique(pattern[rows], return_inverse=True)
        yield _Block(rows, local.reshape(-1), _holes(missing[first[kinds]]))


def _holes(patterns: BoolArray) -> npt.NDArray[np.intp]:
    """Return the missing columns of each pattern, filled up with places from n_columns on."""
    counts = patterns.sum(axis=1)
    place = np.arange(counts.max(initial=0))
    columns = np.argsort(~patterns, axis=1, kind="stable")[:, : len(place)]
    holes: npt.NDArray[np.intp] = np.where(place < counts[:, None], columns, patterns.shape[1] + place)
    return holes


def standardise(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the standard deviation of each column's observed cells.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_columns)
        NaN where missing.

    Returns
    -------
    tuple of ndarray of shape (n_columns,)
        Mean 0 where nothing is observed, and deviation 1 where nothing varies.

    Examples
    --------
    >>> import numpy as np
    >>> standardise(np.array([[1.0, 4.0], [3.0, np.nan]]))
    (array([2., 4.]), array([1., 1.]))
    """
    seen = ~np.isnan(rows)
    counts = np.maximum(seen.sum(axis=0), 1)
    mean = np.where(seen, rows, 0.0).sum(axis=0) / counts
    deviation = np.sqrt((np.where(seen, rows - mean, 0.0) ** 2).sum(axis=0) / counts)
    return mean, np.where(deviation > 0, deviation, 1.0)


@dataclass(frozen=True)
class NormalModel:
    r"""A multivariate normal, and what it says of missing cells.

    Parameters
    ----------
    mean : ndarray of shape (n_columns,)
    covariance : ndarray of shape (n_columns, n_columns)
    n_steps : int, default=0
        Steps of EM that led to it.

    Notes
    -----
    With the precision :math:`P = \Sigma^{-1}`, the missing cells m of a row given its observed cells o are normal with

    .. math:: \mu_m - P_{mm}^{-1} P_{mo} (x_o - \mu_o), \qquad P_{mm}^{-1}

    as mean and covariance. All is computed in units of each column's own standard deviation, so columns may be on any
    scales. A row's answers do not depend on the rows it comes with.

    References
    ----------
    A. P. Dempster, N. M. Laird and D. B. Rubin, "Maximum Likelihood from Incomplete Data via the EM Algorithm", JRSS B,
    1977. R. J. A. Little and D. B. Rubin, "Statistical Analysis with Missing Data", chapter 11.

    Examples
    --------
    >>> import numpy as np
    >>> model = NormalModel(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> model.conditional(np.array([[2.0, np.nan], [np.nan, np.nan]]))
    array([[2., 1.],
           [0., 0.]])
    """

    mean: FloatArray
    covariance: FloatArray
    n_steps: int = 0

    @classmethod
    def fit(
        cls,
        rows: FloatArray,
        *,
        max_steps: int = 100,
        tolerance: float = 1e-3,
        shrinkage: float | None = None,
        max_rows: int | None = None,
        seed: int = 0,
    ) -> NormalModel:
        r"""Learn mean and covariance by EM.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_columns)
            NaN where missing. Rows without an observed cell say nothing and are left out.
        max_steps : int, default=100
            Steps of EM, at most.
        tolerance : float, default=1e-3
            EM ends when no mean and no covariance moves by more than this, columns in units of their observed standard
            deviation.
        shrinkage : float, optional
            How many rows the belief that columns are unrelated counts for. It keeps the covariance regular with fewer
            rows than columns and with columns that determine each other. 0 gives plain maximum likelihood; the square
            of the number of columns over the number of rows when not given.
        max_rows : int, optional
            Learn from a random sample of this many rows when there are more.
        seed : int, default=0
            Decides the sample.

        Returns
        -------
        NormalModel

        Raises
        ------
        ParameterError
            When a setting is out of its range.
        DataError
            When a cell is infinite or rows are not a matrix.

        Notes
        -----
        The E-step is exact: holes take their conditional means, and the conditional covariances are added to the second
        moments. The M-step is the mode under an inverse Wishart prior around the observed variances: with n rows, d
        columns, the moments S and the shrinkage κ, the covariance is :math:`(n S + \kappa I) / (n + \kappa)` in units
        of standard deviations. κ = d²/n lies near what did best on hidden cells of samples of 30 to 500 rows of four
        tables: it matters with few rows and vanishes with many.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=(4000, 1)) * [1.0, 2.0] + rng.normal(size=(4000, 2))
        >>> rows[rng.random(rows.shape) < 0.2] = np.nan
        >>> NormalModel.fit(rows).covariance.round(1)
        array([[2., 2.],
               [2., 5.]])
        """
        _check(rows, max_steps=max_steps, tolerance=tolerance, shrinkage=shrinkage, max_rows=max_rows)
        mean, scale = standardise(rows)
        chosen = _sample((rows[~np.isnan(rows).all(axis=1)] - mean) / scale, max_rows, seed)
        location, covariance, n_steps = _run(chosen, max_steps, tolerance, shrinkage)
        return cls(mean + scale * location, covariance * np.outer(scale, scale), n_steps)

    @cached_property
    def _scale(self) -> FloatArray:
        variance = np.diag(self.covariance)
        return np.sqrt(np.where(variance > 0, variance, 1.0))

    @cached_property
    def _inverse(self) -> tuple[FloatArray, float]:
        """The precision in units of standard deviations, and the log-determinant of its inverse."""
        return _inverted(self.covariance / np.outer(self._scale, self._scale))

    def _masked(self, rows: FloatArray) -> MaskedRows:
        return MaskedRows((rows - self.mean) / self._scale)

    def conditional(self, rows: FloatArray) -> FloatArray:
        """Fill holes with their expectation given the observed cells of the row.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_columns)
            NaN where missing.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            Observed cells as they were.
        """
        filled = self._masked(rows).fill(self._inverse[0])
        return np.where(np.isnan(rows), self.mean + self._scale * filled, rows)

    def conditional_variance(self, rows: FloatArray) -> FloatArray:
        """Return the variance of each missing cell given the observed cells of the row.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_columns)
            NaN where missing.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            Zero where observed.
        """
        masked = self._masked(rows)
        variance = _widened(np.zeros_like(rows))
        for block, inverses in masked.solved(self._inverse[0]):
            found = np.diagonal(inverses, axis1=1, axis2=2)
            variance[block.rows[:, None], block.holes[block.pattern]] = found[block.pattern]
        return variance[:, : rows.shape[1]] * self._scale**2

    def draw(self, rows: FloatArray, normals: FloatArray) -> FloatArray:
        """Fill holes with a joint draw from their distribution given the observed cells of the row.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_columns)
            NaN where missing.
        normals : ndarray of shape (n_rows, n_columns)
            Standard normal numbers; a row's draw depends on its own alone.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            Observed cells as they were.
        """
        masked, precision = self._masked(rows), self._inverse[0]
        noise, wide = _widened(normals), _with_units(precision)
        for block in masked.blocks:
            # With P = LL', the cells L'⁻¹z have the covariance P⁻¹.
            factors = np.linalg.cholesky(block.parts(wide)).swapaxes(1, 2)
            places = block.rows[:, None], block.holes[block.pattern]
            noise[places] = np.linalg.solve(factors[block.pattern], noise[places][:, :, None])[:, :, 0]
        drawn = masked.fill(precision) + noise[:, : rows.shape[1]]
        return np.where(np.isnan(rows), self.mean + self._scale * drawn, rows)

    def log_likelihood(self, rows: FloatArray) -> FloatArray:
        """Return the log-density of the observed cells of each row.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_columns)
            NaN where missing.

        Returns
        -------
        ndarray of shape (n_rows,)
            Zero for a row without an observed cell.
        """
        masked, (precision, log_det) = self._masked(rows), self._inverse
        distance, log_dets = np.empty(len(rows)), np.full(len(rows), log_det)
        for block, inverses in masked.solved(precision):
            filled = masked.filled_block(block, inverses, precision)
            distance[block.rows] = np.einsum("ri,ij,rj->r", filled, precision, filled, optimize=True)
            log_dets[block.rows] -= np.linalg.slogdet(inverses)[1][block.pattern]
        observed = ~np.isnan(rows)
        units = np.where(observed, np.log(2 * np.pi * self._scale**2), 0.0).sum(axis=1)
        density: FloatArray = -0.5 * (units + log_dets + distance)
        return density


def _check(rows: FloatArray, **settings: float | None) -> None:
    for name, value in settings.items():
        check_parameter(name, value, _LIMITS[name])
    if rows.ndim != 2 or np.isinf(rows).any():
        raise DataError(
            f"A normal is learned from a matrix of finite numbers, NaN where missing, but the rows of shape "
            f"{rows.shape} are not one. Give two dimensions, and NaN in place of infinities."
        )


def _sample(rows: FloatArray, max_rows: int | None, seed: int) -> FloatArray:
    if max_rows is None or len(rows) <= max_rows:
        return rows
    return rows[np.sort(np.random.default_rng(seed).choice(len(rows), max_rows, replace=False))]


def _run(
    rows: FloatArray, max_steps: int, tolerance: float, shrinkage: float | None
) -> tuple[FloatArray, FloatArray, int]:
    """Return the mean and the covariance of standardised rows, and the steps that EM took."""
    n_columns = rows.shape[1]
    mean, covariance = np.zeros(n_columns), np.eye(n_columns)
    if not len(rows):
        return mean, covariance, 0
    masked = MaskedRows(rows)
    shrinkage = n_columns**2 / len(rows) if shrinkage is None else shrinkage
    moved, n_steps = np.inf, 0
    while moved > tolerance and n_steps < max_steps:
        new_mean, new_covariance = _step(masked, mean, covariance, shrinkage)
        moved = max(np.abs(new_mean - mean).max(initial=0), np.abs(new_covariance - covariance).max(initial=0))
        mean, covariance, n_steps = new_mean, new_covariance, n_steps + 1
    return mean, covariance, n_steps


def _step(
    masked: MaskedRows, mean: FloatArray, covariance: FloatArray, shrinkage: float
) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the covariance after one step of EM."""
    precision, _ = _inverted(covariance)
    n_rows, n_columns = masked.rows.shape
    first, second = np.zeros(n_columns), np.zeros((n_columns, n_columns))
    for block, inverses in masked.solved(precision):
        filled = masked.filled_block(block, inverses, precision, mean)
        first += filled.sum(axis=0)
        second += filled.T @ filled + block.total(inverses, n_columns)
    shift = first / n_rows
    moment = (second + second.T) / 2 - n_rows * np.outer(shift, shift)
    return mean + shift, (moment + shrinkage * np.eye(n_columns)) / (n_rows + shrinkage)


def _inverted(matrix: FloatArray) -> tuple[FloatArray, float]:
    """Return the inverse of a positive semi-definite matrix, made regular, and its log-determinant."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, SMALLEST_SHARE * values.max(initial=1.0))
    return (vectors / values) @ vectors.T, float(np.log(values).sum())
