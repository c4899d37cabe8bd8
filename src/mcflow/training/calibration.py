"""How far stated probabilities have to move to be right, by cells whose truth was hidden."""

from __future__ import annotations

__all__ = ["Calibration", "masses_beyond"]

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from mcflow.typing import Array, FloatArray

#: Cells' worth of evidence for a column's own correction of draws, and for that of the table.
COLUMN_CELLS, TABLE_CELLS = 50.0, 50.0

#: Normal scores beyond this count as this, so that a few cells do not decide alone.
FARTHEST = 4.0


@dataclass(frozen=True)
class Calibration:
    r"""What hidden truths said of the distributions that were stated for them.

    Parameters
    ----------
    below, above : ndarray of shape (n_cells,)
        The mass that was stated at or below each hidden truth, and at or above it; rising within a column.
    starts : ndarray of shape (n_columns + 1,)
        Where each column's cells begin; those of both arrays are sorted by column.
    scale : ndarray of shape (n_columns,)
        Of the normal scores of draws: a score e becomes scale · e.

    Notes
    -----
    A stated quantile is moved so far that, of n hidden truths and one more, at most the share q lies below it: the
    mass t at which it is read is the :math:`\lfloor q (n + 1) \rfloor`-th smallest of the masses at or below the
    truths, and 0 if that is none. For truths that are exchangeable with the new one,

    .. math:: P(x < Q(t)) \le q

    holds for any number of cells and any model (split conformal prediction [1]_), and for the upper end likewise. A
    column with too few cells for q is judged by the cells of all columns.

    References
    ----------
    .. [1] Vovk, V., Gammerman, A., & Shafer, G. (2005). Algorithmic Learning in a Random World. Springer.

    Examples
    --------
    >>> stated = np.linspace(0.1, 0.9, 99)  # truths are never in the outer tenths: the model is too cautious
    >>> found = Calibration.from_scores(stated, 1 - stated, np.zeros(99, dtype=int), 1)
    >>> low, high = found.tails(0.05)
    >>> low.round(2), high.round(2)
    (array([0.13]), array([0.13]))
    """

    below: FloatArray
    above: FloatArray
    starts: Array
    scale: FloatArray

    @classmethod
    def from_scores(cls, below: FloatArray, above: FloatArray, columns: Array, n_columns: int) -> Calibration:
        """Learn from hidden cells.

        Parameters
        ----------
        below, above : ndarray of shape (n_cells,)
            The mass that was stated at or below each truth, and at or above it.
        columns : ndarray of shape (n_cells,)
            Each cell's column.
        n_columns : int
            Of the table.

        Returns
        -------
        Calibration
        """
        starts = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=n_columns))])
        scale = _deviations(_normal_scores(below, above), columns, n_columns)
        rising = [masses[np.lexsort((masses, columns))] for masses in (below, above)]
        return cls(rising[0], rising[1], starts, scale)

    def tails(self, share: float) -> tuple[FloatArray, FloatArray]:
        """Return the masses at which the lower and the upper quantile are to be read.

        Parameters
        ----------
        share : float
            Of truths that may lie beyond, from 0 to 0.5.

        Returns
        -------
        low, high : ndarray of shape (n_columns,)
            Mass below the lower quantile, and above the upper one; 0 for the end of the range.
        """
        return self._tail(self.below, share), self._tail(self.above, share)

    def _tail(self, masses: FloatArray, share: float) -> FloatArray:
        counts = np.diff(self.starts)
        if not len(masses):
            return np.zeros(len(counts))
        places = _rank(counts, share)
        pooled = np.sort(masses)
        overall = int(_rank(np.array([len(pooled)]), share)[0])
        shared = pooled[overall - 1] if overall else 0.0
        own = masses[np.minimum(self.starts[:-1] + np.maximum(places - 1, 0), len(masses) - 1)]
        found: FloatArray = np.where(places > 0, own, shared)
        return found

    def tensors(self) -> dict[str, Array]:
        """Return arrays by name, for a file."""
        return {f"calibration.{name}": getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_tensors(cls, arrays: dict[str, Array]) -> Calibration | None:
        """Undo `tensors`; None when there is nothing."""
        if "calibration.below" not in arrays:
            return None
        return cls(**{name: arrays[f"calibration.{name}"] for name in cls.__dataclass_fields__})


def masses_beyond(probability: float, calibration: Calibration | None, n_columns: int) -> tuple[bool, FloatArray]:
    """Return how a quantile is read: whether from above, and the mass beyond it in every column.

    Parameters
    ----------
    probability : float
        Of the quantile.
    calibration : Calibration or None
        What moves it, if anything.
    n_columns : int
        Of the table.

    Returns
    -------
    upper : bool
        True for probabilities above one half.
    masses : ndarray of shape (n_columns,)

    Examples
    --------
    >>> upper, masses = masses_beyond(0.95, None, 2)
    >>> upper, masses.round(2)
    (True, array([0.05, 0.05]))
    """
    upper, share = bool(probability > 0.5), min(probability, 1 - probability)
    if calibration is None:
        return upper, np.full(n_columns, share)
    return upper, calibration.tails(share)[int(upper)]


def _rank(counts: Array, share: float) -> Array:
    """Return how many of each count of truths and one more make up a share; a little more is round-off."""
    return np.floor((counts + 1) * share + 1e-9).astype(np.int64)


def _normal_scores(below: FloatArray, above: FloatArray) -> FloatArray:
    """Return the normal score of each truth, at a place of a lattice inside the mass of an atom."""
    before = 1 - above
    places = (0.5 + np.arange(len(below)) * (np.sqrt(5) - 1) / 2) % 1.0
    scores: FloatArray = ndtri(np.clip(before + places * (below - before), 1e-12, 1 - 1e-12))
    return np.clip(scores, -FARTHEST, FARTHEST)


def _deviations(scores: FloatArray, columns: Array, n_columns: int) -> FloatArray:
    """Return the deviation from 0 by column, drawn towards that of all, and this one towards 1."""
    counts = np.bincount(columns, minlength=n_columns)
    squares = np.bincount(columns, weights=scores**2, minlength=n_columns)
    overall = (squares.sum() + TABLE_CELLS) / (len(scores) + TABLE_CELLS)
    deviations: FloatArray = np.sqrt((squares + COLUMN_CELLS * overall) / (counts + COLUMN_CELLS))
    return deviations
