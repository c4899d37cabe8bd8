"""SoftImpute: complete a table by a matrix of low nuclear norm."""

from __future__ import annotations

__all__ = ["SoftImputer", "shrunk_map", "soft_impute"]

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mcflow.baselines.base import CodedBaseline
from mcflow.columns.gaussian import MaskedRows, column_moments
from mcflow.config import Interval
from mcflow.random import seed_from
from mcflow.typing import Array, BoolArray, FloatArray

#: Penalties without improvement after which the path ends.
PATIENCE = 3
#: Smallest relative improvement.
GAIN = 1e-3

#: Maximum number of rows that the penalty is chosen on, as a fraction of the largest useful one.
PATH_ROWS = 10_000


def shrunk_map(filled: FloatArray, penalty: float) -> FloatArray:
    r"""Return the matrix that shrinks the singular values of `filled` when multiplied from the right.

    Shapes: `filled` (n_rows, n_columns), returns (n_columns, n_columns).

    Examples
    --------
    >>> import numpy as np
    >>> shrunk_map(np.diag([4.0, 1.0]), 2.0)
    array([[0.5, 0. ],
           [0. , 0. ]])
    """
    if len(filled) < filled.shape[1]:
        _, values, right = np.linalg.svd(filled, full_matrices=False)
        vectors = right.T
    else:
        squares, vectors = np.linalg.eigh(filled.T @ filled)
        values = np.sqrt(np.maximum(squares, 0))
    kept = values > penalty
    vectors, values = vectors[:, kept], values[kept]
    shrunk: FloatArray = (vectors * (1 - penalty / values)) @ vectors.T
    return shrunk


def soft_impute(
    masked: MaskedRows, penalty: float, start: FloatArray, max_steps: int = 100, tolerance: float = 1e-2
) -> FloatArray:
    r"""Complete rows by the matrix Z that makes :math:`½ \|X - Z\|²_{observed} + \lambda \|Z\|_*` least.

    The plain step fills the missing cells of F from FA. Here every row moves to the limit of such steps for a fixed A,
    :math:`x_m = (I - A)_{mm}^{-1} A_{mo} x_o`, which is the ridge regression of the row on the right factors of Z, and
    then A is updated. The objective never increases, and small penalties need far fewer steps.

    Shapes: `start` (n_columns, n_columns), returns (n_columns, n_columns).

    Examples
    --------
    >>> import numpy as np
    >>> rows = MaskedRows(np.array([[3.0, 6.0], [2.0, 4.0], [1.0, np.nan]]))
    >>> rows.fill(np.eye(2) - soft_impute(rows, 0.01, np.zeros((2, 2)), tolerance=1e-9))[2].round(1)
    array([1., 2.])
    """
    shrunk = start
    for _ in range(max_steps):
        before = shrunk
        shrunk = shrunk_map(masked.fill(np.eye(len(before)) - before), penalty)
        if np.linalg.norm(shrunk - before) <= tolerance:
            break
    return shrunk


@dataclass(frozen=True)
class _Path:
    """Penalties as fractions of the largest useful one, their errors on hidden cells, and the map of the best."""

    shares: FloatArray
    errors: FloatArray
    best: FloatArray

    @property
    def share(self) -> float:
        """The penalty with the lowest error."""
        return float(self.shares[np.argmin(self.errors)])


@dataclass(kw_only=True, eq=False, repr=False)
class SoftImputer(CodedBaseline):
    r"""Fill missing cells by a matrix of low nuclear norm that agrees with the observed cells.

    Parameters
    ----------
    n_penalties : int, default=12
        Penalties to try, from the largest useful one downwards in even ratios.
    smallest : float, default=1e-3
        The last penalty, as a fraction of the largest.
    hidden_share : float, default=0.1
        Fraction of the observed cells that are hidden to choose the penalty.
    max_steps : int, default=100
        Maximum number of steps for one penalty.
    tolerance : float, default=1e-2
        The steps end when the map of the rows changes by at most this, in the Frobenius norm.
    max_rows : int, default=100_000
        Learn from a random sample of this many rows when there are more.
    **table : object
        As for every baseline: `kinds`, `roles`, `bounds`, `random_state` and the others.

    Attributes
    ----------
    map_ : ndarray of shape (n_places, n_places)
        The map of a filled standardised row to its fitted row.
    penalties_ : ndarray
        The penalties that were tried, as fractions of the largest useful one.
    errors_ : ndarray
        Root mean squared error of each on the hidden cells, in units of the columns' ranges.
    penalty_ : float
        λ of the final fit.

    Notes
    -----
    With X the columns less their mean, in units of their standard deviation, Z makes

    .. math:: \tfrac12 \sum_{observed} (x_{ij} - z_{ij})^2 + \lambda \|Z\|_*

    least. λ decreases from the largest singular value, each fit starting from the previous one; the path ends when the
    error on hidden cells no longer decreases. At most 10,000 rows are used for that; the final fit uses all cells. A
    new row is filled by the ridge regression on the right factors that the solution implies, so that a training row
    gets its own fit again.

    References
    ----------
    R. Mazumder, T. Hastie and R. Tibshirani, "Spectral Regularization Algorithms for Learning Large Incomplete
    Matrices", JMLR, 2010. T. Hastie, R. Mazumder, J. D. Lee and R. Zadeh, "Matrix Completion and Low-Rank SVD via Fast
    Alternating Least Squares", JMLR, 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines import make
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(300, 1)) * [1.0, 2.0, -1.0]
    >>> imputer = make("softimpute", random_state=0).fit(rows)
    >>> imputer.transform(np.array([[0.5, np.nan, -0.5]])).round(1)
    array([[ 0.5,  1. , -0.5]])
    """

    constraints: ClassVar = {
        "n_penalties": Interval(int, 1),
        "smallest": Interval(float, 0, 1, low_open=True),
        "hidden_share": Interval(float, 0, 0.5, low_open=True),
        "max_steps": Interval(int, 1),
        "tolerance": Interval(float, 0),
        "max_rows": Interval(int, 1),
    }
    n_penalties: int = 12
    smallest: float = 1e-3
    hidden_share: float = 0.1
    max_steps: int = 100
    tolerance: float = 1e-2
    max_rows: int = 100_000

    def _fit_rows(self, rows: FloatArray, owner: Array) -> None:
        """Fit the map; places with the same owner are hidden together, since they are missing together."""
        rng = np.random.default_rng(seed_from(self.random_state))
        mean, scale = column_moments(rows)
        if len(rows) > self.max_rows:
            rows = rows[np.sort(rng.choice(len(rows), self.max_rows, replace=False))]
        units = (rows - mean) / scale
        some = units[rng.permutation(len(units))[:PATH_ROWS]]
        hidden = rng.random((len(some), owner.max() + 1))[:, owner] < self.hidden_share
        path = self._fit_path(some, hidden, scale)
        penalty = path.share * _largest(units)
        found = soft_impute(MaskedRows(units), penalty, path.best, self.max_steps, self.tolerance)
        self.map_, self.penalty_, self.mean_, self.scale_ = found, penalty, mean, scale
        self.penalties_, self.errors_ = path.shares, path.errors

    def _fit_path(self, units: FloatArray, hidden: BoolArray, scale: FloatArray) -> _Path:
        """Fit the rows without their hidden cells with decreasing penalties, as long as the error decreases."""
        masked = MaskedRows(np.where(hidden, np.nan, units))
        largest = _largest(masked.rows)
        shares = np.geomspace(1, self.smallest, self.n_penalties)
        found = best = np.zeros((len(scale), len(scale)))
        errors: list[float] = []
        for share in shares:
            found = soft_impute(masked, share * largest, found, self.max_steps, self.tolerance)
            guess = masked.fill(np.eye(len(found)) - found)
            wrong = (np.where(hidden, guess - units, np.nan) * scale)[hidden & ~np.isnan(units)]
            errors.append(float(np.sqrt((wrong**2).sum() / max(len(wrong), 1))))
            best = found if errors[-1] < min(errors[:-1], default=np.inf) else best
            if _is_over(errors):
                break
        return _Path(shares[: len(errors)], np.array(errors), best)

    def _fill_rows(self, rows: FloatArray) -> FloatArray:
        units = MaskedRows((rows - self.mean_) / self.scale_)
        filled: FloatArray = self.mean_ + self.scale_ * units.fill(np.eye(len(self.map_)) - self.map_)
        return filled


def _is_over(errors: list[float]) -> bool:
    """Return whether the last penalties brought no improvement."""
    return len(errors) > PATIENCE and min(errors[-PATIENCE:]) >= (1 - GAIN) * min(errors[:-PATIENCE])


def _largest(rows: FloatArray) -> float:
    """Return the smallest penalty with a zero fit: the largest singular value with zeros for missing cells."""
    return float(np.linalg.norm(np.nan_to_num(rows), 2))
