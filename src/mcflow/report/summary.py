"""What was missing and what was filled, as a plain dictionary."""

from __future__ import annotations

__all__ = ["summarise"]

from typing import Any

import numpy as np

from mcflow.data.frames import read_frame
from mcflow.data.schema import TableSchema


def summarise(schema: TableSchema, before: Any, after: Any) -> dict[str, Any]:
    """Compare a table with its filled version.

    Parameters
    ----------
    schema : TableSchema
        Of the fitted imputer.
    before, after : array-like or data frame
        The table and what `transform` made of it.

    Returns
    -------
    dict
        Totals and, under "columns", a dictionary a column: its name, role, missing and filled cells, and the means of
        its observed and of its filled cells.
    """
    old = read_frame(before, numeric=schema.numeric)
    kept = {name: k for k, name in enumerate(_numeric_names(after))}
    new = read_frame(after)
    columns = []
    for position, column in enumerate(schema.columns):
        entry: dict[str, Any] = {"name": str(column.name), "dtype": column.dtype, "role": column.role}
        if column.role == "passed":
            entry |= {"missing": _nulls(before, position), "filled": 0}
        else:
            values = old.values[:, schema.numeric.index(position)]
            filled = new.values[:, kept[column.name]] if column.name in kept else None
            entry |= _compare(values, filled)
        columns.append(entry)
    missing = sum(entry["missing"] for entry in columns)
    return {
        "rows": len(old.values),
        "cells": len(old.values) * len(columns),
        "missing": missing,
        "filled": sum(entry["filled"] for entry in columns),
        "columns": columns,
    }


def _compare(values: np.ndarray[Any, Any], filled: np.ndarray[Any, Any] | None) -> dict[str, Any]:
    holes = np.isnan(values)
    seen = values[~holes]
    entry: dict[str, Any] = {"missing": int(holes.sum()), "filled": 0}
    entry["observed_mean"] = float(seen.mean()) if len(seen) else None
    if filled is not None and holes.any():
        fills = filled[holes]
        entry |= {"filled": int((~np.isnan(fills)).sum()), "filled_mean": float(fills.mean())}
    return entry


def _numeric_names(table: Any) -> list[Any]:
    frame = read_frame(table)
    return [frame.names[position] for position in frame.numeric]


def _nulls(table: Any, position: int) -> int:
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True, pass_through=True)
    return int(frame[:, position].is_null().sum()) if isinstance(frame, nw.DataFrame) else 0
