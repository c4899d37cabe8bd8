"""What was missing and what was filled, as a plain dictionary."""

from __future__ import annotations

__all__ = ["summarise", "typical_cell"]

from typing import Any

import numpy as np

from mcflow.data.frames import Frame, read_frame
from mcflow.data.schema import LEVEL_KINDS, Column, TableSchema
from mcflow.data.series import cells_of
from mcflow.typing import FloatArray


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
        Totals and, under "columns", a dictionary a column: its name, kind and role, missing and filled cells, and what
        is typical of its observed and of its filled cells: the mean of numbers and times, the commonest level.
    """
    old, new = read_frame(before), read_frame(after)
    columns = [_column(old, new, position, column) for position, column in enumerate(schema.columns)]
    return {
        "rows": old.n_rows,
        "cells": old.n_rows * len(columns),
        "missing": sum(entry["missing"] for entry in columns),
        "filled": sum(entry["filled"] for entry in columns),
        "columns": columns,
    }


def _column(old: Frame, new: Frame, position: int, column: Column) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": str(column.name), "kind": column.kind, "role": column.role}
    holes = old.missing(position)
    entry |= {"missing": int(holes.sum()), "filled": 0}
    if column.name not in new.names:
        return entry
    place = new.names.index(column.name)
    done = holes & ~new.missing(place)
    entry["filled"] = int(done.sum())
    if column.coded:
        codes = new.column_codes(place, column, "missing")
        entry |= {
            "observed_typical": typical_cell(codes[~holes], column),
            "filled_typical": typical_cell(codes[done], column),
        }
    return entry


def typical_cell(codes: FloatArray, column: Column) -> Any:
    """Return the mean of numbers and times, or the commonest level, None of nothing.

    Examples
    --------
    >>> typical_cell(np.array([1.0, 2.0, np.nan]), Column("age", "double", "continuous"))
    1.5
    """
    codes = codes[~np.isnan(codes)]
    if not len(codes):
        return None
    if (column.base or column.kind) in LEVEL_KINDS:
        return column.levels[int(np.bincount(codes.astype(np.int64)).argmax())]
    mean = codes.mean(keepdims=True)
    if (column.base or column.kind) == "datetime":
        return str(cells_of(mean, column)[0].as_py())[:19]
    return float(mean[0])
