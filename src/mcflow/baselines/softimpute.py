"""SoftImpute: a table completed by a matrix of low nuclear norm."""

from __future__ import annotations

__all__ = ["SoftImputer", "objective", "shrunk_map", "soft_impute"]

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mcflow.baselines.base import CodedBaseline
from mcflow.config import Interval
from mcflow.masks.normal import MaskedRows, standardise
from mcflow.random import seed_from
from mcflow.typing import Array, BoolArray, FloatArray

#: The path ends after this many penalties in a row that were not better than all before by at least `GAIN`.
PATIENCE, GAIN = 3, 1e-3

#: Rows that the penalty is chosen on, at most; as a share of the largest it is the same for more of them.
PATH_ROWS = 10_000


def shrunk_map(filled: FloatArray, penalty: float) -> FloatArray:
    r"""Return the matrix that shrinks the singular values of `filled` when multiplied from the right.

    Parameters
    ----------
    filled : ndarray of shape (n_rows, n_columns)
        Without holes.
    penalty : float
        λ, taken off every singular value.

    Returns
    -------
    ndarray of shape (n_columns, n_columns)
        :math:`A = V \operatorname{diag}((1 - \lambda / s_k)_+) V'`, symmetric.

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

    Parameters
    ----------
    masked : MaskedRows
        Centred rows.
    penalty : float
        λ.
    start : ndarray of shape (n_columns, n_columns)
        What `shrunk_map` gave for the penalty before; zeros to begin with.
    max_steps : int, default=100
        Steps, at most.
    tolerance : float, default=1e-2
        The steps end when the map moves by no more than this, by the Frobenius norm.

    Returns
    -------
    ndarray of shape (n_columns, n_columns)
        The map A with Z = FA, where F is X with its holes filled from Z.

    Notes
    -----
    The plain step fills the holes of F from FA. Here every row is taken to where such steps lead while A stands still,
    :math:`x_m = (I - A)_{mm}^{-1} A_{mo} x_o`, which is the ridge regression of the row on the right factors of Z, and
    then A is made anew. The sum never rises, and small penalties need far fewer steps.

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


def objective(rows: FloatArray, fitted: FloatArray, penalty: float) -> float:
    """Return what `soft_impute` makes least.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_columns)
        X, NaN where missing.
    fitted : ndarray of shape (n_rows, n_columns)
        Z.
    penalty : float
        λ.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> objective(np.array([[3.0, np.nan]]), np.array([[1.0, 0.0]]), 0.5)
    2.5
    """
    return float(np.nansum((rows - fitted) ** 2) / 2 + penalty * np.linalg.norm(fitted, "nuc"))


@dataclass(frozen=True)
class _Path:
    """Penalties as shares of the largest useful one, the errors on hidden cells, and the map of the best."""

    shares: FloatArray
    errors: FloatArray
    best: FloatArray

    @property
    def share(self) -> float:
        """The share that did best."""
        return float(self.shares[np.argmin(self.errors)])


class SoftImputer(CodedBaseline):
    r"""Fill holes by a matrix of low nuclear norm that agrees with the observed cells.

    Parameters
    ----------
    n_penalties : int, default=12
        Penalties to try, from the largest useful one downwards in even ratios.
    smallest : float, default=1e-3
        The last penalty, as a share of the largest.
    hidden_share : float, default=0.1
        Share of the observed cells that are hidden to choose the penalty by.
    max_steps : int, default=100
        Steps for one penalty, at most.
    tolerance : float, default=1e-2
        The steps end when the map of the rows moves by no more than this, by the Frobenius norm.
    max_rows : int, default=100_000
        Learn from a random sample of this many rows when there are more.
    **table : object
        As for every baseline: `kinds`, `roles`, `bounds`, `random_state` and the others.

    Attributes
    ----------
    map_ : ndarray of shape (n_places, n_places)
        The map of a filled standardised row to its fitted one.
    penalties_ : ndarray
        The penalties that were tried, as shares of the largest useful one.
    errors_ : ndarray
        Root mean squared error of each on the hidden cells, in units of the columns' ranges.
    penalty_ : float
        λ of the final fit.

    Notes
    -----
    With X the columns less their mean, in units of their standard deviation, Z makes

    .. math:: \tfrac12 \sum_{observed} (x_{ij} - z_{ij})^2 + \lambda \|Z\|_*

    least. λ goes from the largest singular value downwards, each fit starting from the one before; the path ends when
    the error on hidden cells no longer falls. At most 10,000 rows are used for that; the final fit has all cells. A new
    row is filled by the ridge regression on the right factors that the solution implies, so that a row of the fit gets
    its own fit again.

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

    def __init__(
        self,
        *,
        n_penalties: int = 12,
        smallest: float = 1e-3,
        hidden_share: float = 0.1,
        max_steps: int = 100,
        tolerance: float = 1e-2,
        max_rows: int = 100_000,
        **table: Any,
    ) -> None:
        super().__init__(**table)
        self.n_penalties = n_penalties
        self.smallest = smallest
        self.hidden_share = hidden_share
        self.max_steps = max_steps
        self.tolerance = tolerance
        self.max_rows = max_rows

    def _fit_rows(self, rows: FloatArray, owner: Array) -> None:
        """Learn from rows; places with the same owner are hidden together, as they are missing together."""
        rng = np.random.default_rng(seed_from(self.random_state))
        mean, scale = standardise(rows)
        if len(rows) > self.max_rows:
            rows = rows[np.sort(rng.choice(len(rows), self.max_rows, replace=False))]
        units = (rows - mean) / scale
        some = units[rng.permutation(len(units))[:PATH_ROWS]]
        hidden = rng.random((len(some), owner.max() + 1))[:, owner] < self.hidden_share
        path = self._walk(some, hidden, scale)
        penalty = path.share * _largest(units)
        found = soft_impute(MaskedRows(units), penalty, path.best, self.max_steps, self.tolerance)
        self.map_, self.penalty_, self.mean_, self.scale_ = found, penalty, mean, scale
        self.penalties_, self.errors_ = path.shares, path.errors

    def _walk(self, units: FloatArray, hidden: BoolArray, scale: FloatArray) -> _Path:
        """Fit the rows without their hidden cells by one penalty after the other, while that helps."""
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
    """Tell whether the last penalties brought no gain worth going on for."""
    return len(errors) > PATIENCE and min(errors[-PATIENCE:]) >= (1 - GAIN) * min(errors[:-PATIENCE])


def _largest(rows: FloatArray) -> float:
    """Return the penalty from which on all of the fit is zero: the largest singular value, holes being zero."""
    return float(np.linalg.norm(np.nan_to_num(rows), 2))
