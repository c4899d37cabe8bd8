"""Facts on the filled cells: how many, what is typical of them, and whether they are where they may be."""

from __future__ import annotations

__all__ = ["fill_facts"]

from dataclasses import dataclass
from typing import Any

import numpy as np

from mcflow.data.constraints import Constraints
from mcflow.data.frames import Frame
from mcflow.data.rules import Rule
from mcflow.data.schema import Column
from mcflow.report.diagnostics_cells import place_in
from mcflow.report.facts_tables import Limits, ReportTables
from mcflow.report.summary import typical_cell
from mcflow.report.wording import cell_text, clean, name_text
from mcflow.typing import BoolArray, FloatArray

#: Constraints and rules that are listed, at most, and values of a list of allowed ones.
MOST_STATED, MOST_VALUES = 60, 6
#: Round-off that a bound is not broken by, as a share of its size.
CLOSE = 1e-9


@dataclass(frozen=True)
class _Fill:
    """One column's cells after the fill."""

    column: Column
    holes: BoolArray
    filled: BoolArray
    codes: FloatArray | None

    def typical(self, where: BoolArray) -> Any:
        found = None if self.codes is None else typical_cell(self.codes[where], self.column)
        return found if found is None or isinstance(found, float) else clean(found, 40)


def fill_facts(tables: ReportTables, constraints: Constraints | None, limits: Limits) -> dict[str, Any] | None:
    """Look at every filled cell.

    Parameters
    ----------
    tables : ReportTables
        The table and what filled it.
    constraints : Constraints or None
        What cells may be.
    limits : Limits
        How many columns to name.

    Returns
    -------
    dict or None
        None when nothing was filled. "columns" by position; "constraints": how many filled cells are inside their
        column's limits, those that were set, and rules.
    """
    if tables.filled is None:
        return None
    places = {position: k for k, position in enumerate(tables.schema.coded)}
    columns: dict[str, Any] = {}
    checks: list[dict[str, Any]] = []
    n_filled = n_left = 0
    listed = set(sorted(tables.holes, key=lambda p: -int(tables.holes[p].sum()))[: limits.listed])
    for position in tables.holes:
        fill = _fill(tables, tables.filled, position)
        n_here = int(fill.filled.sum())
        n_filled, n_left = n_filled + n_here, n_left + int(fill.holes.sum()) - n_here
        if position in listed:
            seen, new = fill.typical(~fill.holes), fill.typical(fill.filled)
            columns[str(position)] = {"filled": n_here, "observed_typical": seen, "filled_typical": new}
        if constraints is not None and fill.codes is not None and n_here:
            checks.append(_checked(fill, constraints, places[position]))
    return {
        "rows": tables.compared.n_rows,
        "sampled": tables.sampled,
        "filled": n_filled,
        "left": n_left,
        "columns": columns,
        "constraints": None if constraints is None else _constraints(tables, tables.filled, constraints, checks),
    }


def _fill(tables: ReportTables, filled: Frame, position: int) -> _Fill:
    column = tables.schema.columns[position]
    holes = tables.compared.missing(position) if tables.sampled else tables.holes[position]
    if column.kind == "empty" and not _has(filled, tables, position):
        return _Fill(column, holes, np.zeros(len(holes), dtype=bool), None)
    place = place_in(filled, tables.schema, position)
    codes = filled.column_codes(place, column, "missing") if column.coded else None
    return _Fill(column, holes, holes & ~filled.missing(place), codes)


def _has(filled: Frame, tables: ReportTables, position: int) -> bool:
    """Tell whether a column without an observed value was kept."""
    if filled.container == "numpy":
        return len(filled.names) >= len(tables.schema.columns)
    return tables.schema.columns[position].name in filled.names


def _checked(fill: _Fill, constraints: Constraints, place: int) -> dict[str, Any]:
    """Count the filled cells of a column that are where they may be, and say where that is."""
    column, cells = fill.column, fill.codes[fill.filled] if fill.codes is not None else np.empty(0)
    low, high, options = constraints.low[place], constraints.high[place], constraints.allowed[place]
    slack = CLOSE * max(abs(low) if np.isfinite(low) else 0.0, abs(high) if np.isfinite(high) else 0.0)
    good = (cells >= low - slack) & (cells <= high + slack)
    if constraints.whole[place]:
        good &= cells == np.rint(cells)
    if options is not None:
        good &= np.isin(cells, options)
    stated = bool(low != column.low or high != column.high or options is not None)
    return {
        "name": name_text(column.name),
        "stated": stated and column.kind != "constant" and not column.levels,
        "words": _limit_words(column, float(low), float(high), options),
        "cells": len(cells),
        "met": int(good.sum()),
    }


def _limit_words(column: Column, low: float, high: float, options: FloatArray | None) -> str:
    if options is not None:
        shown = ", ".join(cell_text(float(code), column) for code in options[:MOST_VALUES])
        more = f" and {len(options) - MOST_VALUES} more" if len(options) > MOST_VALUES else ""
        return f"one of {shown}{more}"
    if np.isinf(low) and np.isinf(high):
        return "any value"
    if np.isinf(high):
        return f"at least {cell_text(low, column)}"
    if np.isinf(low):
        return f"at most {cell_text(high, column)}"
    return f"from {cell_text(low, column)} to {cell_text(high, column)}"


def _constraints(
    tables: ReportTables, filled: Frame, constraints: Constraints, checks: list[dict[str, Any]]
) -> dict[str, Any]:
    rules = [_rule(tables, filled, rule, constraints) for rule in constraints.rules[:MOST_STATED]]
    stated = [check for check in checks if check["stated"] or check["met"] < check["cells"]]
    return {
        "cells": sum(check["cells"] for check in checks),
        "met": sum(check["met"] for check in checks),
        "stated": stated[:MOST_STATED],
        "unlisted": len(stated[MOST_STATED:]) + len(constraints.rules[MOST_STATED:]),
        "rules": rules,
    }


def _rule(tables: ReportTables, filled: Frame, rule: Rule, constraints: Constraints) -> dict[str, Any]:
    """Count the rows in which a rule binds a filled cell, and those that keep it."""
    schema = tables.schema
    cells, holes = {}, np.zeros(tables.compared.n_rows, dtype=bool)
    for name in rule.columns:
        position = schema.coded[list(constraints.names).index(name)]
        column = schema.columns[position]
        place = place_in(filled, schema, position)
        cells[name] = filled.column_codes(place, column, "missing")
        holes |= tables.compared.missing(position)
    smaller, larger = (cells[side] if isinstance(side, str) else side for side in (rule.smaller, rule.larger))
    known = ~np.isnan(np.stack(list(cells.values()))).any(axis=0)
    kept = smaller < larger if rule.strict else smaller <= larger
    return {
        "rule": clean(rule, 120),
        "rows": int((holes & known).sum()),
        "met": int((holes & known & kept).sum()),
        "observed_rows": int((~holes & known).sum()),
        "observed_met": int((~holes & known & kept).sum()),
    }
