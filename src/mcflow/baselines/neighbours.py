"""Imputation by the average of the nearest rows."""

from __future__ import annotations

__all__ = ["NeighboursImputer"]

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mcflow.baselines.base import CodedBaseline
from mcflow.config import Interval, Options
from mcflow.typing import Array, FloatArray

MAX_DISTANCES = 2_000_000  #: Maximum number of distances in memory.
MIN_SQUARED_DISTANCE = 1e-12  #: Smaller squared distances are round-off and are set to this value.
MAX_EXCESS = 10.0  #: Scaled cells are clipped to this distance from [0, 1]; larger squares would hide the other cells.


@dataclass(kw_only=True, eq=False, repr=False)
class NeighboursImputer(CodedBaseline):
    r"""Imputer by the average of the nearest rows in which the cell is observed.

    The other parameters are those of `Baseline`.

    Parameters
    ----------
    n_neighbors : int, default=10
        Number of rows to average, or all rows with the cell observed if there are fewer.
    weights : {"uniform", "distance"}, default="uniform"
        Equal weights, or weights of 1 / distance.

    Attributes
    ----------
    donors_ : ndarray of shape (n_rows, n_places)
        The encoded rows of the fit, NaN where missing.

    Notes
    -----
    The distance between two rows is computed over the set P of the d encoded features that are observed in both, as in
    scikit-learn's `KNNImputer`:

    .. math:: \delta(x, y)^2 = \frac{d}{|P|} \sum_{p \in P} (x_p - y_p)^2.

    Two rows with few common features may be near by chance, and distance weights may then rely on a single row. A row
    without common features with any donor of a cell gets the mean of the donors. Ties are resolved in favour of the
    earlier row of the fit. Numbers are clipped to ten ranges beyond the range of the fit. All rows of the fit are
    donors, so filling n rows from m takes O(n · m) time, with bounded memory.

    References
    ----------
    O. Troyanskaya, M. Cantor, G. Sherlock, P. Brown, T. Hastie, R. Tibshirani, D. Botstein and R. B. Altman, "Missing
    value estimation methods for DNA microarrays", Bioinformatics 17(6), 2001.

    Examples
    --------
    >>> from mcflow.baselines.neighbours import NeighboursImputer
    >>> rows = np.array([[0.0, 1.5], [0.1, 2.5], [9.5, 7.5], [0.05, np.nan]])
    >>> float(NeighboursImputer(n_neighbors=2).fit_transform(rows)[3, 1])
    2.0
    """

    constraints: ClassVar = {"n_neighbors": Interval(int, 1), "weights": Options(("uniform", "distance"))}
    n_neighbors: int = 10
    weights: str = "uniform"

    def _fit_rows(self, rows: FloatArray, owner: Array) -> None:
        self.donors_ = rows

    def _fill_rows(self, rows: FloatArray) -> FloatArray:
        filled = rows.copy()
        rows = np.clip(rows, -MAX_EXCESS, 1 + MAX_EXCESS)
        incomplete = np.flatnonzero(np.isnan(rows).any(axis=1))
        size = max(1, MAX_DISTANCES // len(self.donors_))
        terms = _donor_terms(self.donors_)
        for start in range(0, len(incomplete), size):
            part = incomplete[start : start + size]
            keys = _sortable(_squared_distances(rows[part], terms))
            for place in self.codec_.places:
                missing = np.flatnonzero(np.isnan(rows[part, place.start]))
                donors = np.flatnonzero(~np.isnan(self.donors_[:, place.start]))
                if len(missing):
                    filled[part[missing], place] = self._averages(keys[np.ix_(missing, donors)], place)
        return filled

    def _averages(self, keys: npt.NDArray[np.uint64], place: slice) -> FloatArray:
        """Return the weighted averages of the nearest donors, (n_missing, places of the column)."""
        k = min(self.n_neighbors, keys.shape[1])
        nearest = np.sort(np.partition(keys, k - 1, axis=1)[:, :k], axis=1)
        squared = (nearest >> np.uint64(32)).astype(np.uint32).view(np.float32).astype(np.float64)
        donors = (nearest & np.uint64(0xFFFFFFFF)).astype(np.int64)
        near = np.isfinite(squared)
        weights = near / np.sqrt(np.where(near, squared, 1)) if self.weights == "distance" else near.astype(np.float64)
        total = weights.sum(axis=1, keepdims=True)
        averages = np.einsum("hk,hkp->hp", weights, self.donors_[donors, place]) / np.where(total > 0, total, 1)
        means = np.nanmean(self.donors_[:, place], axis=0)
        return np.asarray(np.where(total > 0, averages, means))


def _donor_terms(donors: FloatArray) -> FloatArray:
    """Concatenate the observed mask, the values and the squares of donors, (n_donors, 3 * n_places)."""
    values = np.nan_to_num(donors)
    return np.hstack((~np.isnan(donors), values, values**2))


def _squared_distances(rows: FloatArray, terms: FloatArray) -> FloatArray:
    """Return the squared distances (n_rows, n_donors) by one product: the sum of x² - 2 x y + y² over shared places."""
    n_places = rows.shape[1]
    has, x = (~np.isnan(rows)).astype(np.float64), np.nan_to_num(rows)
    sums = np.hstack((x**2, -2 * x, has)) @ terms.T
    shared = has @ terms[:, :n_places].T
    return np.where(shared > 0, np.maximum(sums, 0) * (n_places / np.maximum(shared, 1)), np.inf)


def _sortable(squared: FloatArray) -> npt.NDArray[np.uint64]:
    """Return integers that sort by distance, with the index of the donor in the lower 32 bits to resolve ties."""
    # Bit patterns of non-negative floats sort like the floats; single precision ignores round-off of the distances.
    near = np.maximum(squared, MIN_SQUARED_DISTANCE).astype(np.float32).view(np.uint32).astype(np.uint64)
    return near << np.uint64(32) | np.arange(squared.shape[1], dtype=np.uint64)
