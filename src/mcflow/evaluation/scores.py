"""Losses of hidden cells, and whether differences between methods are more than noise."""

from __future__ import annotations

__all__ = ["ENOUGH_CELLS", "CellLosses", "Difference", "beyond_noise", "compare", "losses_of"]

from dataclasses import dataclass

import numpy as np
from scipy import stats

from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.typing import Array, BoolArray, FloatArray

#: Hidden cells of a column below which nothing is said of it.
ENOUGH_CELLS = 20
#: The share of false finds among what is called more than noise, at most on average.
FALSE_FINDS = 0.05
_MICROSECONDS_A_DAY = 86_400_000_000


def losses_of(column: Column, truth: FloatArray, filled: FloatArray) -> FloatArray:
    """Return how far filled cells are from the truth.

    Parameters
    ----------
    column : Column
        Whose cells they are.
    truth, filled : ndarray of shape (n_cells,)
        Codes.

    Returns
    -------
    ndarray of shape (n_cells,)
        Squared errors of numbers in the column's units, of times in days; 1 for a wrong level, 0 for a right one. NaN
        where nothing was filled in.

    Examples
    --------
    >>> column = Column("smokes", "string", "category", levels=("no", "yes"))
    >>> losses_of(column, np.array([0.0, 1.0]), np.array([0.0, 0.0])).tolist()
    [0.0, 1.0]
    """
    if column.kind in LEVEL_KINDS:
        return np.where(np.isnan(filled), np.nan, filled != truth)
    unit = column.step / _MICROSECONDS_A_DAY if column.kind == "datetime" else 1.0
    with np.errstate(over="ignore"):
        squared: FloatArray = ((filled - truth) * unit) ** 2
    return squared


@dataclass(frozen=True)
class CellLosses:
    """The losses of all methods on the hidden cells, of all repeats.

    Parameters
    ----------
    rows, columns : ndarray of shape (n_cells,)
        Where each cell is: the row's number and the column's position.
    losses : dict of ndarray of shape (n_cells,)
        By method.
    inside : dict of ndarray of shape (n_cells,)
        By method, 1 where an interval holds the truth, 0 where it does not, NaN where there is none.
    """

    rows: Array
    columns: Array
    losses: dict[str, FloatArray]
    inside: dict[str, FloatArray]

    def at(self, position: int) -> CellLosses:
        """Return the cells of one column."""
        return self.where(self.columns == position)

    def where(self, here: BoolArray) -> CellLosses:
        """Return some of the cells."""
        return CellLosses(
            self.rows[here],
            self.columns[here],
            {name: loss[here] for name, loss in self.losses.items()},
            {name: inside[here] for name, inside in self.inside.items()},
        )

    def relative_to(self, reference: str) -> CellLosses:
        """Return the losses as shares of what a method loses on average in the same column; NaN where that is 0."""
        whole = np.full(len(self.columns), np.nan)
        for position in np.unique(self.columns):
            here = self.columns == position
            typical = self.losses[reference][here].mean()
            whole[here] = typical if typical > 0 else np.nan
        shares = {name: loss / whole for name, loss in self.losses.items()}
        return CellLosses(self.rows, self.columns, shares, self.inside)


@dataclass(frozen=True)
class Difference:
    """By how much one method loses more than another, cell by cell.

    Parameters
    ----------
    mean : float
        Above 0 when the first is worse.
    error : float
        Its standard error; cells of one row count as one.
    p_value : float
        How likely so large a difference would be if there were none; 1 where it cannot be said.
    """

    mean: float
    error: float
    p_value: float


def compare(cells: CellLosses, first: str, second: str) -> Difference:
    """Compare two methods on the same cells.

    Parameters
    ----------
    cells : CellLosses
        Of a column, or of the whole table as shares.
    first, second : str
        Methods.

    Returns
    -------
    Difference

    Examples
    --------
    >>> rows = np.arange(30)
    >>> cells = CellLosses(rows, rows * 0, {"a": 1.0 + rows % 2, "b": 0.5 * (rows % 3)}, {})
    >>> difference = compare(cells, "a", "b")
    >>> difference.mean, difference.p_value < 0.01
    (1.0, True)
    """
    apart = cells.losses[first] - cells.losses[second]
    known = np.isfinite(apart)
    apart, rows = apart[known], np.unique(cells.rows[known], return_inverse=True)[1]
    n_rows = int(rows.max()) + 1 if len(rows) else 0
    if n_rows < 2:
        return Difference(float("nan"), float("nan"), 1.0)
    mean = float(apart.mean())
    by_row = np.bincount(rows, weights=apart - mean)
    error = float(np.sqrt((by_row**2).sum() * n_rows / (n_rows - 1)) / len(apart))
    if error == 0:
        return Difference(mean, error, 1.0 if mean == 0 else 0.0)
    return Difference(mean, error, float(2 * stats.t.sf(abs(mean) / error, n_rows - 1)))


def beyond_noise(p_values: Array, share: float = FALSE_FINDS) -> BoolArray:
    r"""Tell which of several comparisons show more than noise.

    Parameters
    ----------
    p_values : ndarray of shape (n_comparisons,)
        One for each.
    share : float, default=0.05
        Of false finds among the finds, at most on average.

    Returns
    -------
    ndarray of bool of shape (n_comparisons,)

    Notes
    -----
    With :math:`p_{(1)} \le \dots \le p_{(n)}`, those up to the largest k for which
    :math:`p_{(k)} \le k \alpha / n` [1]_.

    References
    ----------
    .. [1] Y. Benjamini and Y. Hochberg, "Controlling the False Discovery Rate", JRSS B, 1995.

    Examples
    --------
    >>> beyond_noise(np.array([0.001, 0.04, 0.9])).tolist()
    [True, False, False]
    """
    order = np.sort(p_values)
    below = np.flatnonzero(order <= share * np.arange(1, len(order) + 1) / max(len(order), 1))
    found: BoolArray = p_values <= (order[below[-1]] if len(below) else -1.0)
    return found
