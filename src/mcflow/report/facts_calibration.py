"""Facts on calibration: how often intervals hold cells that were hidden from the fit."""

from __future__ import annotations

__all__ = ["calibration_facts"]

from typing import Any

import numpy as np

from mcflow.data.schema import NUMBER_KINDS
from mcflow.report.diagnostics_canvas import chance_band
from mcflow.report.facts_unsure import LEVEL
from mcflow.report.wording import name_text
from mcflow.training.calibration import Calibration
from mcflow.typing import Array, BoolArray, FloatArray

#: Levels at which coverage is measured.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
#: Cells that have to be held out for coverage to be stated, of the table and of a column; columns that are listed.
FEWEST_CELLS, MOST_COLUMNS = 20, 10


def calibration_facts(imputer: Any) -> dict[str, Any] | None:
    """Say how often intervals held cells that were hidden from the fit, as stated and after they were set right.

    Parameters
    ----------
    imputer : object or None
        Fitted.

    Returns
    -------
    dict or None
        None when no cells were held out. A truth is beyond an interval on one side at most, so that the share inside
        is one less the shares beyond either end. What sets intervals right is learned from these cells; it is measured
        on one half of them after it was learned from the other, and the other way round.
    """
    found: Calibration | None = getattr(getattr(imputer, "model_", None), "calibration", None)
    if not isinstance(found, Calibration):
        return None
    columns = [imputer.schema_.columns[p] for p in imputer.schema_.model]
    found = _ordered(found, np.array([column.kind in (*NUMBER_KINDS, "ordered") for column in columns]))
    if len(found.below) < FEWEST_CELLS:
        return None
    names = [name_text(column.name) for column in columns]
    halves = _halves(found)
    tails = [np.full(len(names), (1 - level) / 2) for level in LEVELS]
    stated = [_inside(found, tail, tail) for tail in tails]
    right = [_set_right(halves, level) for level in LEVELS]
    counts = np.diff(found.starts)
    low, high = chance_band(len(found.below), np.array(LEVELS))
    at = LEVELS.index(LEVEL)
    return {
        "cells": len(found.below),
        "levels": list(LEVELS),
        "stated": [_share(inside, counts) for inside in stated],
        "set_right": [_share(inside, counts) for inside in right],
        "chance": [np.round(low, 4).tolist(), np.round(high, 4).tolist()],
        "level": LEVEL,
        "columns": _columns(names, counts, stated[at], right[at]),
    }


def _ordered(found: Calibration, kept: BoolArray) -> Calibration:
    """Leave out the cells of columns whose levels have no order, and so no intervals."""
    counts = np.diff(found.starts)
    cells = np.repeat(kept, counts)
    starts = np.concatenate([[0], np.cumsum(np.where(kept, counts, 0))])
    return Calibration(found.below[cells], found.above[cells], starts, found.scale)


def _inside(found: Calibration, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return how many truths of each column are inside, for masses beyond the lower and the upper end."""
    counts = np.diff(found.starts)
    columns = np.repeat(np.arange(len(counts)), counts)
    out = np.bincount(columns, found.below < low[columns] - 1e-12, minlength=len(counts))
    out += np.bincount(columns, found.above < high[columns] - 1e-12, minlength=len(counts))
    inside: FloatArray = np.maximum(counts - out, 0)
    return inside


def _halves(found: Calibration) -> tuple[Calibration, Calibration]:
    """Part the cells of every column at random."""
    counts = np.diff(found.starts)
    columns = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(columns)) - found.starts[:-1][columns]
    chance = np.random.default_rng(0)
    firsts = []
    for _ in range(2):  # the two arrays are sorted apart, so that a place is not the same cell in both
        first = np.empty(len(columns), dtype=bool)
        first[np.lexsort((chance.random(len(columns)), columns))] = within % 2 == 0
        firsts.append(first)
    halves = []
    for below, above in (firsts, [~first for first in firsts]):
        starts = np.concatenate([[0], np.cumsum(np.bincount(columns[below], minlength=len(counts)))])
        halves.append(Calibration(found.below[below], found.above[above], starts, found.scale))
    return halves[0], halves[1]


def _set_right(halves: tuple[Calibration, Calibration], level: float) -> FloatArray:
    """Return how many truths of each column are inside intervals that the other half has set right."""
    first, second = halves
    share = (1 - level) / 2
    inside: FloatArray = _inside(first, *second.tails(share)) + _inside(second, *first.tails(share))
    return inside


def _share(inside: FloatArray, counts: Array) -> float:
    return round(float(inside.sum() / max(counts.sum(), 1)), 4)


def _columns(names: list[str], counts: Array, stated: FloatArray, right: FloatArray) -> list[dict[str, Any]]:
    """Return the columns whose coverage is farthest from the level, in standard errors."""
    some = np.flatnonzero(counts >= FEWEST_CELLS)
    error = np.abs(right[some] / counts[some] - LEVEL) * np.sqrt(counts[some])
    order = some[np.argsort(-error, kind="stable")][:MOST_COLUMNS]
    return [
        {
            "name": names[k],
            "cells": int(counts[k]),
            "stated": round(float(stated[k] / counts[k]), 3),
            "set_right": round(float(right[k] / counts[k]), 3),
        }
        for k in order
    ]
