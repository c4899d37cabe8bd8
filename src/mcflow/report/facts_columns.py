"""Facts on all columns: what was done with each, and its accuracy on validation cells."""

from __future__ import annotations

__all__ = ["accuracy_facts", "inspection_facts"]

from typing import Any

from mcflow.columns.inspection import column_facts
from mcflow.evaluation.wording import clean, name_text
from mcflow.report.tables import Limits, ReportTables

#: Validation cells that a column needs for its error to be reported.
MIN_CELLS = 20


def inspection_facts(tables: ReportTables, imputer: Any, limits: Limits) -> dict[str, Any]:
    """Return the kind, role, missing share and reason of every column, and the names of those that are not used."""
    given = getattr(imputer, "kinds", None) or {}
    columns = []
    for position, column in enumerate(tables.schema.columns[: limits.listed]):
        array = tables.before.arrow(position)
        found = column_facts(column, array, tables.before.n_rows, given=column.name in given)
        columns.append(found | {"name": name_text(column.name), "why": clean(found["why"], 120)})
    excluded = [name_text(c.name) for c in tables.schema.columns if not (c.in_model or c.kind == "constant")]
    return {"columns": columns, "unlisted": len(tables.schema.columns) - len(columns), "excluded": excluded}


def accuracy_facts(imputer: Any, calibration: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the error relative to the mean's, and the coverage of intervals, by column on validation cells."""
    schema, history = getattr(imputer, "schema_", None), getattr(imputer, "history_", None)
    if schema is None:
        return []
    errors = {int(k): (cells, relative) for k, cells, relative in getattr(history, "column_errors", ())}
    covered = {one["position"]: one for one in (calibration or {}).get("by_column", ())}
    found = []
    for k, position in enumerate(schema.model):
        column = schema.columns[position]
        cells, relative = errors.get(k, (0, None))
        if column.filled and column.missing and (cells >= MIN_CELLS or k in covered):
            found.append(
                {
                    "name": name_text(column.name),
                    "kind": column.kind,
                    "cells": int(cells) or covered[k]["cells"],
                    "relative": relative if cells >= MIN_CELLS else None,
                    "coverage": covered[k]["calibrated"] if k in covered else None,
                }
            )
    return found
