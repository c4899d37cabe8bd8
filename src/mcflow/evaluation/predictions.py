"""Fit a method on a table with hidden cells, and predict these cells with intervals."""

from __future__ import annotations

__all__ = ["Predictions", "predict_hidden"]

import itertools
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcflow.evaluation.hidden_cells import MaskedTable
from mcflow.typing import FloatArray

#: Maximum number of draws from which an interval is estimated.
MAX_DRAWS = 60
#: Minimum number of draws from which an interval is estimated.
MIN_DRAWS = 15
#: Intervals are skipped if all draws would take more seconds than this.
MAX_DRAW_SECONDS = 15.0


@dataclass(frozen=True)
class Predictions:
    """Predictions of one method for the hidden cells."""

    filled: FloatArray  # (n_cells,) codes
    covered: FloatArray  # (n_cells,) 1 if the interval contains the truth, 0 if not, NaN without an interval
    seconds: float  # of the fit and the transform


def predict_hidden(imputer: Any, masked: MaskedTable, level: float, seed: int) -> Predictions:
    """Fit an imputer on the masked table, and predict the hidden cells with intervals of a level."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings on the columns were raised when the table was read
        start = time.perf_counter()
        imputer.fit(masked.table)
        filled = masked.cells_in(imputer.transform(masked.incomplete))
        seconds = time.perf_counter() - start
        low, high = _intervals(imputer, masked, level, seed)
    covered = np.where(np.isnan(low) | np.isnan(high), np.nan, (low <= masked.truth) & (masked.truth <= high))
    return Predictions(filled, covered, seconds)


def _intervals(imputer: Any, masked: MaskedTable, level: float, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return interval bounds, from `interval` or from order statistics of draws; NaN where there are none."""
    if hasattr(imputer, "interval"):
        low, high = imputer.interval(masked.incomplete, level)
        return masked.cells_in(low), masked.cells_in(high)
    nothing = np.full(len(masked.truth), np.nan)
    n_draws, rank = _draws_for(level)
    if not hasattr(imputer, "draw") or n_draws > MAX_DRAWS:
        return nothing, nothing
    draws = _within_time(imputer.draw(masked.incomplete, m=n_draws, random_state=seed), n_draws)
    if draws is None:
        return nothing, nothing
    ordered = np.sort([masked.cells_in(table) for table in draws], axis=0)
    ordered[:, masked.unordered] = np.nan
    return ordered[rank - 1], ordered[n_draws - rank]


def _draws_for(level: float) -> tuple[int, int]:
    """Return the number of draws, and the rank of the draw that is the lower bound.

    The k-th smallest and largest of m draws contain another draw of the same distribution with probability
    (m + 1 − 2k) / (m + 1).
    """
    rank = 1
    while round(2 * rank / (1 - level)) - 1 < MIN_DRAWS:
        rank += 1
    return round(2 * rank / (1 - level)) - 1, rank


def _within_time(tables: Iterator[Any], n_draws: int) -> Iterator[Any] | None:
    """Return the draws, or None if the time of the first shows that all would take too long."""
    start = time.perf_counter()
    first = next(tables)
    if (time.perf_counter() - start) * n_draws > MAX_DRAW_SECONDS:
        return None
    return itertools.chain([first], tables)
