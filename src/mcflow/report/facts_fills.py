"""Facts on filled cells: their number, typical values, and whether they satisfy the constraints."""

from __future__ import annotations

__all__ = ["fill_facts"]

from dataclasses import dataclass
from typing import Any

import numpy as np

from mcflow.columns.constraints import Constraints, Rule
from mcflow.columns.frames import Frame
from mcflow.columns.schema import Column
from mcflow.evaluation.wording import cell_text, clean, name_text
from mcflow.report.summary import typical_cell
from mcflow.report.tables import Limits, ReportTables, place_in
from mcflow.typing import BoolArray, FloatArray

#: Maximum number of listed limits, and of listed rules.
MAX_LISTED = 60
#: Maximum number of listed values of a set of allowed values.
MAX_VALUES = 6
#: Relative tolerance for rounding errors at a bound.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class _Fill:
    """One column after imputation; arrays have shape (n_rows,)."""

    column: Column
    missing: BoolArray
    filled: BoolArray
    codes: FloatArray | None  # None for columns without codes

    def typical(self, where: BoolArray) -> Any:
        found = None if self.codes is None else typical_cell(self.codes[where], self.column)
        return found if found is None or isinstance(found, float) else clean(found, 40)


def fill_facts(tables: ReportTables, constraints: Constraints | None, limits: Limits) -> dict[str, Any] | None:
    """Count the filled cells and check their constraints."""
    if tables.filled is None:
        return None
    places = {position: k for k, position in enumerate(tables.schema.coded)}
    columns: dict[str, Any] = {}
    checks: list[dict[str, Any]] = []
    n_filled = n_left = 0
    listed = set(sorted(tables.missing, key=lambda p: -int(tables.missing[p].sum()))[: limits.listed])
    for position in tables.missing:
        fill = _fill(tables, tables.filled, position)
        n_here = int(fill.filled.sum())
        n_filled, n_left = n_filled + n_here, n_left + int(fill.missing.sum()) - n_here
        if position in listed:
            seen, new = fill.typical(~fill.missing), fill.typical(fill.filled)
            columns[str(position)] = {"filled": n_here, "observed_typical": seen, "filled_typical": new}
        if constraints is not None and fill.codes is not None and n_here:
            checks.append(_checked(fill, constraints, places[position]))
    return {
        "rows": tables.sample.n_rows,
        "sampled": tables.sampled,
        "filled": n_filled,
        "left": n_left,
        "columns": columns,
        "constraints": None if constraints is None else _constraints(tables, constraints, checks),
    }


def _fill(tables: ReportTables, filled: Frame, position: int) -> _Fill:
    column = tables.schema.columns[position]
    missing = tables.sample.missing(position) if tables.sampled else tables.missing[position]
    if column.kind == "empty" and not _has_column(filled, tables, position):
        return _Fill(column, missing, np.zeros(len(missing), dtype=bool), None)
    place = place_in(filled, tables.schema, position)
    codes = filled.column_codes(place, column, "missing") if column.coded else None
    return _Fill(column, missing, missing & ~filled.missing(place), codes)


def _has_column(filled: Frame, tables: ReportTables, position: int) -> bool:
    """Tell whether a column without observed values is in the filled table."""
    if filled.container == "numpy":
        return len(filled.names) >= len(tables.schema.columns)
    return tables.schema.columns[position].name in filled.names


def _checked(fill: _Fill, constraints: Constraints, place: int) -> dict[str, Any]:
    """Count the filled cells of a column within its limits, and describe these limits."""
    column, cells = fill.column, fill.codes[fill.filled] if fill.codes is not None else np.empty(0)
    low, high, options = constraints.low[place], constraints.high[place], constraints.allowed[place]
    slack = TOLERANCE * max(abs(low) if np.isfinite(low) else 0.0, abs(high) if np.isfinite(high) else 0.0)
    good = (cells >= low - slack) & (cells <= high + slack)
    if constraints.whole[place]:
        good &= cells == np.rint(cells)
    if options is not None:
        good &= np.isin(cells, options)
    stated = bool(low != column.low or high != column.high or options is not None)
    return {
        "name": name_text(column.name),
        "stated": stated and column.kind != "constant" and not column.categories,
        "words": _limit_text(column, float(low), float(high), options),
        "cells": len(cells),
        "met": int(good.sum()),
    }


def _limit_text(column: Column, low: float, high: float, options: FloatArray | None) -> str:
    if options is not None:
        shown = ", ".join(cell_text(float(code), column) for code in options[:MAX_VALUES])
        more = f" and {len(options) - MAX_VALUES} more" if len(options) > MAX_VALUES else ""
        return f"one of {shown}{more}"
    if np.isinf(low) and np.isinf(high):
        return "any value"
    if np.isinf(high):
        return f"at least {cell_text(low, column)}"
    if np.isinf(low):
        return f"at most {cell_text(high, column)}"
    return f"from {cell_text(low, column)} to {cell_text(high, column)}"


def _constraints(tables: ReportTables, constraints: Constraints, checks: list[dict[str, Any]]) -> dict[str, Any]:
    rules = [_rule(tables, rule, constraints) for rule in constraints.rules[:MAX_LISTED]]
    stated = [check for check in checks if check["stated"] or check["met"] < check["cells"]]
    return {
        "cells": sum(check["cells"] for check in checks),
        "met": sum(check["met"] for check in checks),
        "stated": stated[:MAX_LISTED],
        "unlisted": len(stated[MAX_LISTED:]) + len(constraints.rules[MAX_LISTED:]),
        "rules": rules,
    }


def _rule(tables: ReportTables, rule: Rule, constraints: Constraints) -> dict[str, Any]:
    """Count the rows with a filled cell in a rule, and those that satisfy the rule."""
    schema = tables.schema
    cells, missing = {}, np.zeros(tables.sample.n_rows, dtype=bool)
    for name in rule.columns:
        position = schema.coded[list(constraints.names).index(name)]
        cells[name] = tables.codes_after(position)
        missing |= tables.sample.missing(position)
    smaller, larger = (cells[side] if isinstance(side, str) else side for side in (rule.smaller, rule.larger))
    known = ~np.isnan(np.stack(list(cells.values()))).any(axis=0)
    kept = smaller < larger if rule.strict else smaller <= larger
    return {
        "rule": clean(rule, 120),
        "rows": int((missing & known).sum()),
        "met": int((missing & known & kept).sum()),
        "observed_rows": int((~missing & known).sum()),
        "observed_met": int((~missing & known & kept).sum()),
    }
