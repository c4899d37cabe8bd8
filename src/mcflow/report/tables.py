"""Read the tables of a report or diagnostic, find their columns, and choose rows and columns to show."""

from __future__ import annotations

__all__ = [
    "Limits",
    "ReportTables",
    "evenly_spaced",
    "largest",
    "named_positions",
    "place_in",
    "read_tables",
    "sample_indices",
    "schema_of",
]

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mcflow.columns.frames import Frame, read_frame, take_rows
from mcflow.columns.planning import find_column
from mcflow.columns.schema import TableSchema
from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.typing import Array, BoolArray, FloatArray

#: Maximum number of rows that a report fills if no filled table is given.
MAX_FILLED_ROWS = 2_000
#: Maximum number of draws that a report reads.
MAX_DRAWS = 10


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


def place_in(completed: Frame, schema: TableSchema, position: int) -> int:
    """Return the position of a column in a completed table, which may lack empty columns and end with indicators."""
    name = schema.columns[position].name
    if completed.container != "numpy" and name in completed.names:
        return completed.names.index(name)
    if completed.container == "numpy" or not schema.named:  # by position, whatever names the output was given
        kept = [p for p, column in enumerate(schema.columns) if column.kind != "empty"]
        whole = len(completed.names) >= len(schema.columns)
        if whole or (len(completed.names) >= len(kept) and position in kept):
            return position if whole else kept.index(position)
    raise DataError(f"The completed table lacks column {name!r}. Give the result of transform or draw for this table.")


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


@dataclass(frozen=True)
class Limits:
    """Maximum size of a report; columns beyond a limit are only counted."""

    drawn: int = 40  # columns with a picture of their own
    listed: int = 400  # columns in the list of all columns
    mapped: int = 24  # columns in a map


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
        filled = None if after is None else read_frame(after)
        drawn = () if draws is None else tuple(read_tables(draws)[:MAX_DRAWS])
        filled = filled or (drawn[0] if drawn else None)
        sample, rows = table, None
        if filled is None and imputer is not None:
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
        place = place_in(self.filled, self.schema, position)
        return self.filled.column_codes(place, self.schema.columns[position], "missing")
