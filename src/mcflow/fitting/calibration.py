"""Calibration of quantiles and draws, and weights of estimates, which are all fitted on validation cells."""

from __future__ import annotations

__all__ = ["Calibration", "blend_weights", "column_errors", "masses_beyond", "pool_weights", "prune_weights"]

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.special import ndtri

from mcflow.typing import Array, BoolArray, FloatArray

COLUMN_CELLS = 50.0  # strength, in cells, with which the scale of a column shrinks towards that of the table
TABLE_CELLS = 50.0  # strength, in cells, with which the scale of the table shrinks towards 1
WEIGHT_TABLE_CELLS = 20.0  # prior strength, in cells, of the weights of estimates in the whole table
WEIGHT_COLUMN_CELLS = 60.0  # strength, in cells, with which the weights of a column shrink towards those of the table
MIN_SHARE = 0.05  # weight below which an estimate is dropped
MOST_SQUARES = 0.95  # quantile at which squared differences between estimates are clipped for the prior
POOL_STEPS = 50  # steps of the EM algorithm for the weights of probabilities
MAX_SCORE = 4.0  # absolute normal score at which validation cells are clipped, so that no few cells dominate


@dataclass(frozen=True)
class Calibration:
    r"""Predicted probabilities of validation cells, by which quantiles and draws are corrected.

    The quantile at probability q is read at the probability t instead: the
    :math:`\lfloor q (n + 1) \rfloor`-th smallest of the predicted probabilities at or below the true values of n
    validation cells, or 0 if that rank is 0. For a new cell that is exchangeable with the validation cells,

    .. math:: P(x < Q(t)) \le q

    holds for any number of cells and any model (split conformal prediction), and likewise for the upper end. A column
    with too few cells for q uses the cells of all columns.
    """

    below: FloatArray  # (n_cells,) predicted probability at or below each true value, increasing within a column
    above: FloatArray  # (n_cells,) predicted probability at or above each true value, increasing within a column
    starts: Array  # (n_columns + 1,) index of the first cell of each column; cells are sorted by column
    scale: FloatArray  # (n_columns,) factor of the normal scores of draws

    @classmethod
    def from_scores(cls, below: FloatArray, above: FloatArray, columns: Array, n_columns: int) -> Calibration:
        """Return the calibration for the predicted probabilities (n_cells,) of validation cells."""
        starts = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=n_columns))])
        scale = _deviations(_normal_scores(below, above), columns, n_columns)
        rising = [masses[np.lexsort((masses, columns))] for masses in (below, above)]
        return cls(rising[0], rising[1], starts, scale)

    def tails(self, share: float) -> tuple[FloatArray, FloatArray]:
        """Return the tail probabilities (n_columns,) at which the lower and the upper quantile are read."""
        return self._tail(self.below, share), self._tail(self.above, share)

    def _tail(self, masses: FloatArray, share: float) -> FloatArray:
        counts = np.diff(self.starts)
        if not len(masses):
            return np.zeros(len(counts))
        places, overall = _rank(counts, share), int(_rank(np.array(len(masses)), share))
        shared = np.sort(masses)[overall - 1] if overall else 0.0
        own = masses[np.minimum(self.starts[:-1] + np.maximum(places - 1, 0), len(masses) - 1)]
        return np.where(places > 0, own, shared)

    def tensors(self) -> dict[str, Array]:
        """Return arrays by name, for a model file."""
        return {f"calibration.{name}": getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_tensors(cls, arrays: dict[str, Array]) -> Calibration | None:
        """Undo `tensors`; return None if there is no calibration."""
        if "calibration.below" not in arrays:
            return None
        return cls(**{name: arrays[f"calibration.{name}"] for name in cls.__dataclass_fields__})


def masses_beyond(probability: float, calibration: Calibration | None, n_columns: int) -> tuple[bool, FloatArray]:
    """Return whether a quantile is an upper one, and the tail probability (n_columns,) beyond it."""
    upper, share = bool(probability > 0.5), min(probability, 1 - probability)
    if calibration is None:
        return upper, np.full(n_columns, share)
    return upper, calibration.tails(share)[int(upper)]


def _rank(counts: Array, share: float) -> Array:
    """Return the conformal rank for each number of cells; the small constant absorbs round-off."""
    return np.floor((counts + 1) * share + 1e-9).astype(np.int64)


def _normal_scores(below: FloatArray, above: FloatArray) -> FloatArray:
    """Return the normal score of each true value, at quasi-random positions inside point masses."""
    before = 1 - above
    places = (0.5 + np.arange(len(below)) * (np.sqrt(5) - 1) / 2) % 1.0
    scores: FloatArray = ndtri(np.clip(before + places * (below - before), 1e-12, 1 - 1e-12))
    return np.clip(scores, -MAX_SCORE, MAX_SCORE)


def _deviations(scores: FloatArray, columns: Array, n_columns: int) -> FloatArray:
    """Return the root mean square score by column, shrunk towards that of the table, and that towards 1."""
    counts = np.bincount(columns, minlength=n_columns)
    squares = np.bincount(columns, weights=scores**2, minlength=n_columns)
    overall = (squares.sum() + TABLE_CELLS) / (len(scores) + TABLE_CELLS)
    return np.asarray(np.sqrt((squares + COLUMN_CELLS * overall) / (counts + COLUMN_CELLS)))


def column_errors(
    columns: Array, losses: FloatArray, reference: FloatArray, squared: BoolArray
) -> list[tuple[int, int, float]]:
    """Return column, number of cells and error relative to a reference, for `History.column_errors`.

    Shapes: `columns`, `losses` and `reference` (n_cells,); `squared` (n_columns,) marks columns with squared losses.
    """
    found = []
    for column in np.unique(columns):
        here = columns == column
        base = float(reference[here].mean())
        if base > 0:
            ratio = float(losses[here].mean()) / base
            found.append((int(column), int(here.sum()), round(ratio**0.5 if squared[column] else ratio, 4)))
    return found


def blend_weights(
    estimates: FloatArray, truth: FloatArray, columns: Array, n_columns: int, prior: FloatArray | None = None
) -> FloatArray:
    """Return non-negative weights with sum 1 that minimise the squared error of the weighted estimates.

    Shapes: `estimates` (n_cells, n_estimates), `truth` (n_cells,), `columns` (n_cells,), `prior` (n_estimates,),
    returns (n_columns, n_estimates).

    Examples
    --------
    >>> truth = np.array([1.0, 2.0, 4.0, 5.0])
    >>> estimates = np.column_stack([truth, np.zeros(4)])
    >>> blend_weights(np.tile(estimates, (99, 1)), np.tile(truth, 99), np.zeros(396, int), 1).round(1)
    array([[1., 0.]])
    """
    n_estimates = estimates.shape[1]
    prior = np.full(n_estimates, 1 / n_estimates) if prior is None else prior
    shared = _nearest(estimates, truth, prior, WEIGHT_TABLE_CELLS)
    weights = np.tile(shared, (n_columns, 1))
    for k in np.unique(columns):
        here = columns == k
        weights[k] = _nearest(estimates[here], truth[here], shared, WEIGHT_COLUMN_CELLS)
    return weights


def _nearest(estimates: FloatArray, truth: FloatArray, prior: FloatArray, n_cells: float) -> FloatArray:
    """Solve the constrained least squares, with a prior on the weights that is worth `n_cells` cells.

    A cell says as much about the weights as the estimates differ in it, so that the penalty is in proportion to that.
    """
    n_estimates = len(prior)
    squares = (estimates - (estimates @ prior)[:, None]) ** 2
    # A few huge estimates do not make the prior stronger.
    size = np.minimum(squares, np.quantile(squares, MOST_SQUARES)).mean() if len(estimates) else 1.0
    strength = n_cells * max(float(size), 1e-12)
    # A row of large equal numbers constrains the sum of the weights to one.
    heavy = 1e4 * np.sqrt(max(float((estimates**2).sum()), 1.0))
    rows = [estimates, np.sqrt(strength) * np.eye(n_estimates), np.full((1, n_estimates), heavy)]
    sides = [truth, np.sqrt(strength) * prior, [heavy]]
    found, _ = nnls(np.vstack(rows), np.concatenate(sides))
    weights: FloatArray = found / found.sum()
    return weights


def pool_weights(likelihoods: FloatArray) -> FloatArray:
    """Return weights of a mixture that maximise the likelihood of cells, by the EM algorithm.

    Shapes: `likelihoods` (n_cells, n_estimates), the probability of the true category by each estimate.
    """
    n_estimates = likelihoods.shape[1]
    prior = np.full(n_estimates, 1 / n_estimates)
    weights = prior
    for _ in range(POOL_STEPS):
        shares = likelihoods * weights
        shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
        weights = (shares.sum(axis=0) + WEIGHT_COLUMN_CELLS / 4 * prior) / (len(likelihoods) + WEIGHT_COLUMN_CELLS / 4)
    return weights


def prune_weights(weights: FloatArray, keep: int) -> FloatArray:
    """Drop small weights of estimates after the first `keep`, which cost time."""
    kept = np.where((np.arange(len(weights)) < keep) | (weights >= MIN_SHARE), weights, 0.0)
    total = kept.sum()
    return kept / total if total > 0 else weights
