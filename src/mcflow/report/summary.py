"""Summarise the missing and filled cells of a table as a dictionary."""

from __future__ import annotations

__all__ = ["summarise", "typical_cell"]

from typing import Any

import numpy as np

from mcflow.columns.frames import Frame, cells_of, read_frame
from mcflow.columns.schema import CATEGORY_KINDS, Column, TableSchema
from mcflow.typing import FloatArray


def summarise(schema: TableSchema, before: Any, after: Any) -> dict[str, Any]:
    """Compare a table with its filled version.

    Parameters
    ----------
    schema : TableSchema
        Schema of the fitted imputer.
    before, after : array-like or data frame
        The table and the result of `transform`.

    Returns
    -------
    dict
        Totals and, under "columns", one dictionary per column with its name, kind and role, the numbers of missing and
        filled cells, and the typical observed and filled cell: the mean of numbers and times, or the most frequent
        category.
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
    missing = old.missing(position, column)
    entry |= {"missing": int(missing.sum()), "filled": 0}
    if column.name not in new.names:
        return entry
    place = new.names.index(column.name)
    done = missing & ~new.missing(place)
    entry["filled"] = int(done.sum())
    if column.coded:
        codes = new.column_codes(place, column, "missing")
        entry |= {
            "observed_typical": typical_cell(codes[~missing], column),
            "filled_typical": typical_cell(codes[done], column),
        }
    return entry


def typical_cell(codes: FloatArray, column: Column) -> Any:
    """Return the mean of numbers and times, or the most frequent category; None if all codes are NaN."""
    codes = codes[~np.isnan(codes)]
    if not len(codes):
        return None
    if (column.base or column.kind) in CATEGORY_KINDS:
        return column.categories[int(np.bincount(codes.astype(np.int64)).argmax())]
    mean = codes.mean(keepdims=True)
    if (column.base or column.kind) == "datetime":
        return str(cells_of(mean, column)[0].as_py())[:19]
    return float(mean[0])
