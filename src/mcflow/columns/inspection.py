"""Describe every column of a table: kind, role, missing cells, and the reason for its kind."""

from __future__ import annotations

__all__ = ["column_facts", "inspect_columns", "possible_kinds", "value_range"]

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.columns.frames import Frame, cells_of, is_time, observed_cells, type_named
from mcflow.columns.planning import FEW_CELLS, MAX_CATEGORIES, USER_KINDS, ColumnSettings, find_columns, suspects_of
from mcflow.columns.schema import CATEGORY_KINDS, Column

#: Reasons that do not depend on the cells, by kind.
_REASONS = {"empty": "no observed cell", "boolean": "true or false", "identifier": "a different value in every row"}
#: What is done with a column that is not both used and filled, by role or kind.
_USES = dict.fromkeys(("ignore", "outcome", "identifier", "text", "other"), "left unchanged") | {
    "predictors_only": "used, not filled",
    "targets_only": "filled, not used",
    "empty": "not used",
    "constant": "filled with its value",
}


def inspect_columns(frame: Frame, settings: ColumnSettings | None = None) -> list[dict[str, Any]]:
    """Return the facts of all columns, without the warnings of a fit."""
    given = settings or ColumnSettings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        columns, arrays = find_columns(frame, given)
    return [column_facts(c, arrays[p], frame.n_rows, given=c.name in given.kinds) for p, c in enumerate(columns)]


def column_facts(column: Column, array: pa.Array | None, n_rows: int, *, given: bool = False) -> dict[str, Any]:
    """Return name, type, kind, role, use, missing cells and the reason for the kind of a column, as JSON values."""
    missing = column.missing if array is None else observed_cells(array, column).null_count
    use = _USES.get(column.role) or _USES.get(column.kind) or "used and filled"
    why = _reason(column, array, given=given)
    suspects = [] if array is None else suspects_of(array, column)
    if suspects:
        why += f"; may stand for missing cells: {', '.join(f'{s.value} ({s.count:,} cells)' for s in suspects)}"
    return {
        "name": str(column.name),
        "dtype": column.dtype,
        "kind": column.kind,
        "role": column.role,
        "use": use,
        "missing": missing,
        "share": missing / max(n_rows, 1),
        "why": why if use == "used and filled" else f"{use}: {why}",
        "suspects": [{"value": str(s.value), "count": s.count} for s in suspects],
    }


def _reason(column: Column, array: pa.Array | None, *, given: bool) -> str:
    if column.role in ("ignore", "outcome"):
        return "role given"
    if column.kind == "other":
        mixed = array is None or column.dtype == "mixed"
        return "cells of several types" if mixed else f"type {column.dtype} is not supported"
    words = _REASONS.get(column.kind) or _content(column, array)
    return f"kind given; {words}" if given else words


def _content(column: Column, array: pa.Array | None) -> str:
    seen = 0 if array is None else len(array) - array.null_count
    if column.kind == "text":
        return f"{pc.count_distinct(array).as_py():,} different texts in {seen:,} cells"
    if column.kind == "constant":
        value = column.categories[0] if column.base in CATEGORY_KINDS else value_range(column)[0]
        return f"one value only: {_short(value)}"
    if column.kind in CATEGORY_KINDS:
        return f"{len(column.categories):,} categories"
    low, high = map(_short, value_range(column))
    words = {"datetime": "", "integer": "whole numbers, "}.get(column.kind, "numbers, ") + f"{low} to {high}"
    if column.kind != "integer" or not isinstance(column.name, str) or seen <= FEW_CELLS:
        return words
    distinct = pc.count_distinct(array).as_py() == seen
    return words + ("; all different: ignore it if it identifies rows" if distinct else "")


def possible_kinds(column: Column, array: pa.Array) -> list[str]:
    """Return the kinds that users may choose for a column; others would be refused by the fit."""
    if column.kind == "other":
        return ["identifier", "text"]
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    kind = plain.type
    n_distinct = 0 if pa.types.is_null(kind) else pc.count_distinct(plain).as_py()
    number = (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and plain is array
    fits = {
        "continuous": number,
        "integer": number,
        "datetime": is_time(kind),
        "boolean": n_distinct <= 2 and not is_time(kind),
        "category": n_distinct <= MAX_CATEGORIES and not is_time(kind),
        "ordered": n_distinct <= MAX_CATEGORIES and not is_time(kind),
    }
    return [kind for kind in USER_KINDS if fits.get(kind, True)]


def value_range(column: Column) -> list[Any]:
    """Return the smallest and the largest value of a column of numbers or times."""
    return list(cells_of(np.array([column.low, column.high]), column, type_named(column.dtype)).to_pylist())


def _short(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:39] + "…"
