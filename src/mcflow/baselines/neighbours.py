"""The average of the nearest rows."""

from __future__ import annotations

__all__ = ["NeighboursImputer", "squared_distances"]

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mcflow.baselines.base import CodedBaseline
from mcflow.config import Interval, Options
from mcflow.typing import Array, FloatArray

#: Distances that are held together.
DISTANCES_AT_ONCE = 2_000_000

#: Squared distances below this are one: they are round-off.
SAME = 1e-12

#: How far outside [0, 1] a scaled cell may lie; beyond, squares would drown the other cells in round-off.
REACH = 10.0


class NeighboursImputer(CodedBaseline):
    r"""Fill a cell with the average of the nearest rows that have it.

    Parameters
    ----------
    n_neighbors : int, default=10
        Rows to average, fewer where fewer have the cell.
    weights : {"uniform", "distance"}, default="uniform"
        Whether all of them count the same, or near ones for more, by 1 / distance.
    **table
        The arguments of `Baseline`: kinds, roles, bounds, allowed, rules, unseen, restore_integers, add_indicator,
        keep_empty_features, random_state.

    Attributes
    ----------
    donors_ : ndarray of shape (n_rows, n_places)
        The rows of the fit: numbers scaled to [0, 1], levels as zeros and ones, NaN where missing.

    Notes
    -----
    The distance of two rows is taken over the set P of places that both have, out of d, as scikit-learn's
    `KNNImputer` does:

    .. math:: \delta(x, y)^2 = \frac{d}{|P|} \sum_{p \in P} (x_p - y_p)^2.

    Two rows that share few places may be near by chance, and weights by distance may then rest on a single row: on
    cells hidden from the training rows of five tables, equal weights were clearly ahead on three and level on two. A
    row that shares no place with any donor of a cell gets the mean of the donors. Of rows that are equally far, the
    earlier one of the fit is taken. A scaled cell counts as at most ten ranges outside the range of the fit. All rows
    of the fit are donors, so filling n rows from m takes a time of n · m, in pieces of bounded memory.

    References
    ----------
    O. Troyanskaya, M. Cantor, G. Sherlock, P. Brown, T. Hastie, R. Tibshirani, D. Botstein and R. B. Altman, "Missing
    value estimation methods for DNA microarrays", Bioinformatics 17(6), 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines.neighbours import NeighboursImputer
    >>> rows = np.array([[0.0, 1.5], [0.1, 2.5], [9.5, 7.5], [0.05, np.nan]])
    >>> float(NeighboursImputer(n_neighbors=2).fit_transform(rows)[3, 1])
    2.0
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        "n_neighbors": Interval(int, 1),
        "weights": Options(("uniform", "distance")),
    }
    donors_: FloatArray

    def __init__(self, *, n_neighbors: int = 10, weights: str = "uniform", **table: Any) -> None:
        super().__init__(**table)
        self.n_neighbors = n_neighbors
        self.weights = weights

    def _fit_rows(self, rows: FloatArray, owner: Array) -> None:
        self.donors_ = rows

    def _fill_rows(self, rows: FloatArray) -> FloatArray:
        filled = rows.copy()
        rows = np.clip(rows, -REACH, 1 + REACH)
        holed = np.flatnonzero(np.isnan(rows).any(axis=1))
        size = max(1, DISTANCES_AT_ONCE // len(self.donors_))
        terms = _donor_terms(self.donors_)
        for start in range(0, len(holed), size):
            part = holed[start : start + size]
            filled[part] = self._fill_part(rows[part], terms)
        return filled

    def _fill_part(self, rows: FloatArray, terms: FloatArray) -> FloatArray:
        """Fill the rows of one piece, one column after the other."""
        keys = _sortable(_from_terms(rows, terms))
        filled = rows.copy()
        for place in self.codec_.places:
            holes = np.flatnonzero(np.isnan(rows[:, place.start]))
            givers = np.flatnonzero(~np.isnan(self.donors_[:, place.start]))
            if len(holes):
                filled[holes, place] = self._averages(keys[np.ix_(holes, givers)], place)
        return filled

    def _averages(self, keys: npt.NDArray[np.uint64], place: slice) -> FloatArray:
        """Return the weighted average of the nearest donors, of shape (n_holes, n_places of the column)."""
        k = min(self.n_neighbors, keys.shape[1])
        nearest = np.sort(np.partition(keys, k - 1, axis=1)[:, :k], axis=1)
        squared = (nearest >> np.uint64(32)).astype(np.uint32).view(np.float32).astype(np.float64)
        donors = (nearest & np.uint64(0xFFFFFFFF)).astype(np.int64)
        near = np.isfinite(squared)
        weights = near / np.sqrt(np.where(near, squared, 1)) if self.weights == "distance" else near.astype(np.float64)
        total = weights.sum(axis=1, keepdims=True)
        averages = np.einsum("hk,hkp->hp", weights, self.donors_[donors, place]) / np.where(total > 0, total, 1)
        means = np.nanmean(self.donors_[:, place], axis=0)
        filled: FloatArray = np.where(total > 0, averages, means)
        return filled


def squared_distances(rows: FloatArray, donors: FloatArray) -> FloatArray:
    """Return the squared distance of every row to every donor over the places that both have.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_places)
        NaN where missing.
    donors : ndarray of shape (n_donors, n_places)
        NaN where missing.

    Returns
    -------
    ndarray of shape (n_rows, n_donors)
        Scaled up by the share of places that were compared; infinite where there was none.

    Examples
    --------
    >>> import numpy as np
    >>> squared_distances(np.array([[0.0, np.nan, 1.0]]), np.array([[1.0, 5.0, np.nan], [np.nan, 2.0, np.nan]]))
    array([[ 3., inf]])
    """
    return _from_terms(rows, _donor_terms(donors))


def _donor_terms(donors: FloatArray) -> FloatArray:
    """Return for each donor which places it has, its values and their squares, side by side."""
    values = np.nan_to_num(donors)
    return np.hstack((~np.isnan(donors), values, values**2))


def _from_terms(rows: FloatArray, terms: FloatArray) -> FloatArray:
    """Return the squared distances by one product: the sum over shared places of x² - 2 x y + y²."""
    n_places = rows.shape[1]
    has, x = (~np.isnan(rows)).astype(np.float64), np.nan_to_num(rows)
    sums = np.hstack((x**2, -2 * x, has)) @ terms.T
    shared = has @ terms[:, :n_places].T
    return np.where(shared > 0, np.maximum(sums, 0) * (n_places / np.maximum(shared, 1)), np.inf)


def _sortable(squared: FloatArray) -> npt.NDArray[np.uint64]:
    """Return words that are in order of distance, then of the donor's number, which is their lower half.

    The bits of floats that are not negative are in the floats' order. Single precision makes equals of distances that
    differ by the round-off of a product, so that ties do not hang on the rows a row comes with.
    """
    near = np.maximum(squared, SAME).astype(np.float32).view(np.uint32).astype(np.uint64)
    return near << np.uint64(32) | np.arange(squared.shape[1], dtype=np.uint64)
