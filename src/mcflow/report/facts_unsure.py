"""Facts on what is not known: the widest intervals, and the levels that are least likely."""

from __future__ import annotations

__all__ = ["LEVEL", "unsure_facts"]

from dataclasses import dataclass
from typing import Any

import numpy as np

from mcflow.data.frames import read_frame
from mcflow.data.schema import LEVEL_KINDS, NUMBER_KINDS, Column
from mcflow.report.diagnostics_cells import place_in, take_rows
from mcflow.report.facts_tables import Limits, ReportTables, some_places
from mcflow.report.wording import cell_text, name_text
from mcflow.typing import Array, FloatArray

#: The level of the intervals.
LEVEL = 0.9
#: Cells that are listed, in all and of one column.
MOST_CELLS, MOST_OF_COLUMN = 20, 4
#: Rows that are looked at, at most; of a model that follows a chain for each, and cells of a row times rows.
MOST_ROWS, CHAIN_ROWS, MOST_ASKED = 1_000, 40, 400_000


def unsure_facts(tables: ReportTables, imputer: Any, limits: Limits) -> dict[str, Any] | None:
    """Find the filled cells that are known least.

    Parameters
    ----------
    tables : ReportTables
        The table and what filled it.
    imputer : object or None
        Fitted; with `interval`, and perhaps with `predict_proba`.
    limits : Limits
        How many columns to list.

    Returns
    -------
    dict or None
        None when the imputer states no intervals, or nothing was filled. Rows are counted from 1.
    """
    if tables.filled is None or not hasattr(imputer, "interval"):
        return None
    asked = {
        p: tables.compared.missing(p)
        for p in tables.holes
        if tables.schema.columns[p].in_model and tables.schema.columns[p].filled
    }
    holed = np.flatnonzero(np.any(list(asked.values()), axis=0)) if asked else np.empty(0, dtype=np.int64)
    if not len(holed):
        return None
    rows = holed[some_places(len(holed), _most_rows(imputer, tables))]
    sample = take_rows(tables.compared, rows)
    numbers = _numbers(tables, imputer, sample, rows, asked)
    levels = _levels(tables, imputer, sample, rows, asked)
    return {
        "level": LEVEL,
        "rows": len(rows),
        "holed_rows": len(holed),
        "sampled": tables.sampled,
        "numbers": _listed(numbers, tables),
        "levels": _listed(levels, tables),
        "columns": _by_column(numbers, limits),
    }


def _most_rows(imputer: Any, tables: ReportTables) -> int:
    chain = hasattr(getattr(imputer, "model_", None), "trace")
    return min(CHAIN_ROWS if chain else MOST_ROWS, max(20, MOST_ASKED // len(tables.schema.columns)))


@dataclass(frozen=True)
class _Doubts:
    """The missing cells of one column among the rows that are looked at."""

    position: int
    column: Column
    rows: Array
    codes: FloatArray
    doubt: FloatArray
    ends: tuple[FloatArray, FloatArray] | None = None

    def entry(self, k: int, tables: ReportTables) -> dict[str, Any]:
        """Return one of them in words, with its row in the whole table."""
        row = int(self.rows[k] if tables.rows is None else tables.rows[self.rows[k]])
        found: dict[str, Any] = {"row": row + 1, "column": name_text(self.column.name)}
        found["value"] = cell_text(float(self.codes[k]), self.column)
        if self.ends is None:
            return found | {"chance": round(1 - float(self.doubt[k]), 3)}
        low, high = (cell_text(float(end[k]), self.column) for end in self.ends)
        return found | {"low": low, "high": high, "width": round(float(self.doubt[k]), 3)}


def _numbers(tables: ReportTables, imputer: Any, sample: Any, rows: Array, asked: dict[int, Array]) -> list[_Doubts]:
    """Return the missing cells of numbers and dates with their intervals."""
    positions = [p for p in asked if tables.schema.columns[p].kind in NUMBER_KINDS and asked[p][rows].any()]
    if not positions:
        return []
    ends = [read_frame(end) for end in imputer.interval(sample, level=LEVEL)]
    found = []
    for p in positions:
        column, codes, here = tables.schema.columns[p], _filled_codes(tables, p), asked[p][rows]
        low, high = (end.column_codes(place_in(end, tables.schema, p), column, "missing")[here] for end in ends)
        width = (high - low) / _spread(codes[~asked[p]], column)
        found.append(_Doubts(p, column, rows[here], codes[rows[here]], width, (low, high)))
    return found


def _filled_codes(tables: ReportTables, position: int) -> FloatArray:
    assert tables.filled is not None
    place = place_in(tables.filled, tables.schema, position)
    return tables.filled.column_codes(place, tables.schema.columns[position], "missing")


def _spread(observed: FloatArray, column: Column) -> float:
    """Return how far apart the ends of the same level are among the observed cells of a column."""
    observed = observed[np.isfinite(observed)]
    low, high = np.quantile(observed, ((1 - LEVEL) / 2, (1 + LEVEL) / 2)) if len(observed) else (0.0, 0.0)
    return float(high - low) or (column.high - column.low) or 1.0


def _levels(tables: ReportTables, imputer: Any, sample: Any, rows: Array, asked: dict[int, Array]) -> list[_Doubts]:
    """Return the missing cells of levels with what speaks against the level that was filled in."""
    positions = [p for p in asked if tables.schema.columns[p].kind in LEVEL_KINDS and asked[p][rows].any()]
    if not positions or not hasattr(imputer, "predict_proba"):
        return []
    chances = imputer.predict_proba(sample)
    found = []
    for p in positions:
        column, codes = tables.schema.columns[p], _filled_codes(tables, p)
        here = np.flatnonzero(asked[p][rows] & ~np.isnan(codes[rows]))
        table = read_frame(chances[column.name])
        stated = np.column_stack([np.asarray(table.series(k), dtype=float) for k in range(len(table.names))])
        levels = codes[rows[here]]
        found.append(_Doubts(p, column, rows[here], levels, 1 - stated[here, levels.astype(np.int64)]))
    return found


def _listed(found: list[_Doubts], tables: ReportTables) -> list[dict[str, Any]]:
    """Return the cells that are known least, a few of each column."""
    chosen = []
    for one in found:
        doubt = np.nan_to_num(one.doubt, nan=-1.0, posinf=-1.0)
        worst = [k for k in np.argsort(-doubt, kind="stable")[:MOST_OF_COLUMN] if doubt[k] > 0]
        chosen += [(-float(doubt[k]), one.position, int(k), one) for k in worst]
    return [one.entry(k, tables) for _, _, k, one in sorted(chosen, key=lambda cell: cell[:3])[:MOST_CELLS]]


def _by_column(found: list[_Doubts], limits: Limits) -> list[dict[str, Any]]:
    """Return the median width of each column's intervals, the widest first."""
    widths = [
        {"name": name_text(one.column.name), "cells": len(one.doubt), "width": round(float(np.median(one.doubt)), 3)}
        for one in found
        if np.isfinite(np.median(one.doubt))
    ]
    return sorted(widths, key=lambda one: -float(one["width"]))[: limits.drawn]  # type: ignore[arg-type]
