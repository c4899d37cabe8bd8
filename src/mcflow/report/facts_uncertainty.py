"""Facts on uncertain cells: the widest intervals and the least probable categories."""

from __future__ import annotations

__all__ = ["LEVEL", "uncertainty_facts"]

from dataclasses import dataclass
from typing import Any

import numpy as np

from mcflow.columns.frames import read_frame, take_rows
from mcflow.columns.schema import CATEGORY_KINDS, NUMBER_KINDS, Column
from mcflow.evaluation.wording import cell_text, name_text
from mcflow.report.tables import Limits, ReportTables, place_in, sample_indices
from mcflow.typing import Array, FloatArray

#: Level of the intervals.
LEVEL = 0.9
#: Maximum number of listed cells.
MAX_CELLS = 20
#: Maximum number of listed cells of one column.
MAX_CELLS_PER_COLUMN = 4
#: Maximum number of rows whose intervals are computed.
MAX_ROWS = 1_000
#: The same for models that run a Markov chain for every row.
MAX_CHAIN_ROWS = 40
#: Maximum number of rows times columns.
MAX_TABLE_CELLS = 400_000


def uncertainty_facts(tables: ReportTables, imputer: Any, limits: Limits) -> dict[str, Any] | None:
    """Find the most uncertain filled cells."""
    if tables.filled is None or not hasattr(imputer, "interval"):
        return None
    columns = tables.schema.columns
    missing = {p: tables.sample.missing(p) for p in tables.missing if columns[p].in_model and columns[p].filled}
    incomplete = np.flatnonzero(np.any(list(missing.values()), axis=0)) if missing else np.empty(0, dtype=np.int64)
    if not len(incomplete):
        return None
    has_chain = hasattr(getattr(imputer, "model_", None), "trace")
    max_rows = min(MAX_CHAIN_ROWS if has_chain else MAX_ROWS, max(20, MAX_TABLE_CELLS // len(columns)))
    rows = incomplete[sample_indices(len(incomplete), max_rows)]
    sample = take_rows(tables.sample, rows)
    numbers = _numbers(tables, imputer, sample, rows, missing)
    categories = _categories(tables, imputer, sample, rows, missing)
    return {
        "level": LEVEL,
        "rows": len(rows),
        "incomplete_rows": len(incomplete),
        "sampled": tables.sampled,
        "numbers": _most_uncertain(numbers, tables),
        "categories": _most_uncertain(categories, tables),
        "columns": _by_column(numbers, limits),
    }


@dataclass(frozen=True)
class _UncertainCells:
    """The filled cells of one column with a measure of their uncertainty; arrays have shape (n_cells,)."""

    position: int
    column: Column
    rows: Array
    codes: FloatArray
    uncertainty: FloatArray  # relative width of the interval, or probability of other categories
    bounds: tuple[FloatArray, FloatArray] | None = None  # of the intervals

    def entry(self, k: int, tables: ReportTables) -> dict[str, Any]:
        """Return the texts of one cell, with its row number in the whole table."""
        row = int(self.rows[k] if tables.sample_rows is None else tables.sample_rows[self.rows[k]])
        found: dict[str, Any] = {"row": row + 1, "column": name_text(self.column.name)}
        found["value"] = cell_text(float(self.codes[k]), self.column)
        if self.bounds is None:
            return found | {"probability": round(1 - float(self.uncertainty[k]), 3)}
        low, high = (cell_text(float(end[k]), self.column) for end in self.bounds)
        return found | {"low": low, "high": high, "width": round(float(self.uncertainty[k]), 3)}


def _numbers(
    tables: ReportTables, imputer: Any, sample: Any, rows: Array, missing: dict[int, Array]
) -> list[_UncertainCells]:
    """Return the filled cells of numbers and dates with their intervals."""
    positions = [p for p in missing if tables.schema.columns[p].kind in NUMBER_KINDS and missing[p][rows].any()]
    if not positions:
        return []
    bounds = [read_frame(end) for end in imputer.interval(sample, level=LEVEL)]
    found = []
    for p in positions:
        column, codes, here = tables.schema.columns[p], tables.codes_after(p), missing[p][rows]
        low, high = (end.column_codes(place_in(end, tables.schema, p), column, "missing")[here] for end in bounds)
        width = (high - low) / _observed_width(codes[~missing[p]], column)
        found.append(_UncertainCells(p, column, rows[here], codes[rows[here]], width, (low, high)))
    return found


def _observed_width(observed: FloatArray, column: Column) -> float:
    """Return the width of the central interval of the same level among the observed cells."""
    observed = observed[np.isfinite(observed)]
    low, high = np.quantile(observed, ((1 - LEVEL) / 2, (1 + LEVEL) / 2)) if len(observed) else (0.0, 0.0)
    return float(high - low) or (column.high - column.low) or 1.0


def _categories(
    tables: ReportTables, imputer: Any, sample: Any, rows: Array, missing: dict[int, Array]
) -> list[_UncertainCells]:
    """Return the filled cells of categories with the predicted probability of all other categories."""
    positions = [p for p in missing if tables.schema.columns[p].kind in CATEGORY_KINDS and missing[p][rows].any()]
    if not positions or not hasattr(imputer, "predict_proba"):
        return []
    predicted = imputer.predict_proba(sample)
    found = []
    for p in positions:
        column, codes = tables.schema.columns[p], tables.codes_after(p)
        here = np.flatnonzero(missing[p][rows] & ~np.isnan(codes[rows]))
        table = read_frame(predicted[column.name])
        probabilities = np.column_stack([np.asarray(table.series(k), dtype=float) for k in range(len(table.names))])
        filled = codes[rows[here]]
        found.append(_UncertainCells(p, column, rows[here], filled, 1 - probabilities[here, filled.astype(np.int64)]))
    return found


def _most_uncertain(found: list[_UncertainCells], tables: ReportTables) -> list[dict[str, Any]]:
    """Return the most uncertain cells, a few of each column."""
    chosen = []
    for one in found:
        uncertainty = np.nan_to_num(one.uncertainty, nan=-1.0, posinf=-1.0)
        worst = [k for k in np.argsort(-uncertainty, kind="stable")[:MAX_CELLS_PER_COLUMN] if uncertainty[k] > 0]
        chosen += [(-float(uncertainty[k]), one.position, int(k), one) for k in worst]
    return [one.entry(k, tables) for _, _, k, one in sorted(chosen, key=lambda cell: cell[:3])[:MAX_CELLS]]


def _by_column(found: list[_UncertainCells], limits: Limits) -> list[dict[str, Any]]:
    """Return the median interval width of each column, the widest first."""
    medians = [(one, round(float(np.median(one.uncertainty)), 3)) for one in found]
    finite = sorted(((one, width) for one, width in medians if np.isfinite(width)), key=lambda pair: -pair[1])
    return [
        {"name": name_text(one.column.name), "cells": len(one.rows), "width": width}
        for one, width in finite[: limits.drawn]
    ]
