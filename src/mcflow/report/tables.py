"""Tables of a report or diagnostic: read them, choose rows and columns to show, and summarise their filled cells."""

from __future__ import annotations

__all__ = [
    "ReportTables",
    "binomial_band",
    "compare_cells",
    "evenly_spaced",
    "largest",
    "named_positions",
    "probabilities_in",
    "read_tables",
    "sample_indices",
    "schema_of",
    "summarise",
    "typical_cell",
]

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import binom

from mcflow.columns.frames import Frame, cells_of, read_frame, take_rows
from mcflow.columns.planning import find_column
from mcflow.columns.schema import CATEGORY_KINDS, Column, TableSchema
from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.evaluation.hidden_cells import codes_in, place_in
from mcflow.typing import Array, BoolArray, FloatArray

MAX_FILLED_ROWS = 2_000  #: Maximum number of rows that a report fills if no filled table is given.
MAX_DRAWS = 10  #: Maximum number of draws that a report reads.
MAX_DRAWN = 40  #: Maximum number of columns with a picture of their own.


def schema_of(table: Frame, imputer: Any = None) -> TableSchema:
    """Return the schema of an imputer, or infer one from the table."""
    known: TableSchema | None = getattr(imputer, "schema_", None)
    if known is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about identifiers, which are skipped here in any case
            found = [find_column(name, table.arrow(p), None, "fill") for p, name in enumerate(table.names)]
        return TableSchema(table.container, table.named, tuple(found), table.n_rows)
    if len(known.columns) != len(table.names):
        raise DataError(
            f"frame has {len(table.names)} columns, but the imputer was fitted on {len(known.columns)}. Give the "
            "columns that it was fitted on."
        )
    return known


def named_positions(table: Frame, columns: Any) -> list[int] | None:
    """Return the positions of columns given by name, or None if `columns` is None."""
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise ParameterError(f"columns is {columns!r}, but has to be a list of column names, such as [{columns!r}].")
    wanted = list(dict.fromkeys(columns))
    if not wanted:
        raise ParameterError("columns is empty. Name at least one column, or omit it to use all.")
    for name in wanted:
        if name not in table.names:
            words = [str(known) for known in table.names]
            raise ParameterError(f"columns names {name!r}, which the table does not have.{did_you_mean(name, words)}")
    return [table.names.index(name) for name in wanted]


def read_tables(completed: Any) -> list[Frame]:
    """Read one completed table, or a sequence or iterator of them."""
    if isinstance(completed, Iterator):
        completed = list(completed)
    if isinstance(completed, list | tuple) and not completed:
        raise DataError("completed holds no table. Give the result of transform, or one or more draws.")
    several = isinstance(completed, list | tuple) and all(len(getattr(one, "shape", ())) == 2 for one in completed)
    if several or (isinstance(completed, np.ndarray) and completed.ndim == 3):
        return [read_frame(one) for one in completed]
    return [read_frame(completed)]


def largest(items: Sequence[int], sizes: Sequence[float], max_items: int) -> list[int]:
    """Return the items with the largest sizes, in their original order."""
    order = sorted(range(len(items)), key=lambda place: -sizes[place])[:max_items]
    return [items[place] for place in sorted(order)]


def sample_indices(n: int, max_indices: int) -> Array:
    """Return sorted indices below n: all, or a random sample with a fixed seed."""
    if n <= max_indices:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, max_indices, replace=False))


def evenly_spaced(n: int, max_indices: int) -> Array:
    """Return indices below n: all, or evenly spaced ones."""
    if n <= max_indices:
        return np.arange(n)
    return np.linspace(0, n - 1, max_indices).round().astype(np.int64)


def probabilities_in(predicted: Any) -> FloatArray:
    """Return the table of one column that `predict_proba` gave as an array, (n_rows, n_categories)."""
    table = read_frame(predicted)
    return np.column_stack([np.asarray(table.series(p), dtype=float) for p in range(len(table.names))])


def binomial_band(n_cells: Any, share: Any) -> tuple[FloatArray, FloatArray]:
    """Return the central 95 % interval of the observed share among n cells, given the true share."""
    count = np.asarray(n_cells, dtype=np.float64)
    low, high = (binom.ppf(end, count, share) / count for end in (0.025, 0.975))
    return np.asarray(low), np.asarray(high)


@dataclass(frozen=True)
class ReportTables:
    """An incomplete table and its filled versions."""

    schema: TableSchema  # of the imputer, or inferred from the table
    before: Frame  # all rows, with missing cells
    sample: Frame  # the rows that were filled, with missing cells: all rows, or a sample
    filled: Frame | None = None  # the rows of `sample`, filled
    draws: tuple[Frame, ...] = ()  # draws of these rows; without draws, the filled table alone
    sample_rows: Array | None = None  # row numbers of `sample` in `before`; None for all rows

    @classmethod
    def read(cls, imputer: Any, before: Any, after: Any, draws: Any) -> ReportTables:
        """Read the given tables; without a filled table, fill a sample of the rows if there is an imputer."""
        table = read_frame(before)
        schema = schema_of(table, imputer)
        drawn = () if draws is None else tuple(read_tables(draws)[:MAX_DRAWS])
        sample, rows, filled = table, None, None
        if after is not None or drawn:
            filled = drawn[0] if after is None else read_frame(after)
        elif imputer is not None:
            if table.n_rows > MAX_FILLED_ROWS:
                rows = sample_indices(table.n_rows, MAX_FILLED_ROWS)
                sample = read_frame(take_rows(table, rows))
            filled = read_frame(imputer.transform(sample.native))
        found = cls(schema, table, sample, filled, drawn or (() if filled is None else (filled,)), rows)
        for done in found.draws:
            if done.n_rows != sample.n_rows:
                raise DataError(
                    f"The filled table has {done.n_rows:,} rows and the incomplete one has {sample.n_rows:,}. Give "
                    "the result of transform or draw for this table."
                )
        return found

    @property
    def sampled(self) -> bool:
        """Whether only a sample of the rows was filled."""
        return self.sample_rows is not None

    @cached_property
    def missing(self) -> dict[int, BoolArray]:
        """Masks of the missing cells, (n_rows,), by position of the columns that have any."""
        found = {p: self.before.missing(p, column) for p, column in enumerate(self.schema.columns)}
        return {p: missing for p, missing in found.items() if missing.any()}

    def codes_after(self, position: int) -> FloatArray:
        """Return the codes of a column in the filled table, (n_sample_rows,)."""
        assert self.filled is not None
        return codes_in(self.filled, self.schema, position)


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

    Raises
    ------
    DataError
        If the filled table lacks a column that has values.
    """
    old, new = read_frame(before), read_frame(after)
    columns = []
    for position, column in enumerate(schema.columns):
        missing, filled, codes = compare_cells(old, new, schema, position)
        entry: dict[str, Any] = {"name": str(column.name), "kind": column.kind, "role": column.role}
        entry |= {"missing": int(missing.sum()), "filled": int(filled.sum())}
        if codes is not None:
            entry["observed_typical"] = typical_cell(codes[~missing], column)
            entry["filled_typical"] = typical_cell(codes[filled], column)
        columns.append(entry)
    return {
        "rows": old.n_rows,
        "cells": old.n_rows * len(columns),
        "missing": sum(entry["missing"] for entry in columns),
        "filled": sum(entry["filled"] for entry in columns),
        "columns": columns,
    }


def compare_cells(
    old: Frame, new: Frame, schema: TableSchema, position: int
) -> tuple[BoolArray, BoolArray, FloatArray | None]:
    """Return masks of the missing and of the filled cells of a column, and its filled codes if any; each (n_rows,)."""
    column = schema.columns[position]
    missing = old.missing(position, column)
    try:
        place = place_in(new, schema, position)
    except DataError:
        if column.kind != "empty":
            raise
        return missing, np.zeros(len(missing), dtype=bool), None
    codes = new.column_codes(place, column, "missing") if column.coded else None
    return missing, missing & ~new.missing(place), codes


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
