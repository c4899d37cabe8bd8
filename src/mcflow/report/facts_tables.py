"""The tables that a report is about: with holes, filled, and the rows that it looks at more closely."""

from __future__ import annotations

__all__ = ["Limits", "ReportTables", "some_places"]

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mcflow.data.frames import Frame, read_frame
from mcflow.data.schema import TableSchema
from mcflow.errors import DataError
from mcflow.report.diagnostics_cells import columns_of, take_rows
from mcflow.report.diagnostics_distributions import read_tables
from mcflow.typing import Array, BoolArray

#: Rows that are filled to show something where only a fit is reported on.
FILLED_ROWS = 2_000
#: Completed tables that are compared, at most.
MOST_TABLES = 10


@dataclass(frozen=True)
class Limits:
    """How much a report holds at most; what is beyond is counted.

    Parameters
    ----------
    drawn : int, default=40
        Columns with a picture of their own.
    listed : int, default=400
        Columns in the list of all columns.
    mapped : int, default=24
        Columns in a map.
    """

    drawn: int = 40
    listed: int = 400
    mapped: int = 24


@dataclass(frozen=True)
class ReportTables:
    """A table with holes and what filled it.

    Parameters
    ----------
    schema : TableSchema
        As the imputer learned it, or as the table looks.
    before : Frame
        With holes, all rows.
    compared : Frame
        The rows that were filled: all, or a sample where only a fit is reported on.
    filled : Frame or None
        Those rows without their holes.
    draws : list of Frame
        Several versions of them, where there are draws; else the filled one alone.
    rows : ndarray of int, optional
        Where those rows are in the whole table, if they are a sample.
    """

    schema: TableSchema
    before: Frame
    compared: Frame
    filled: Frame | None = None
    draws: tuple[Frame, ...] = ()
    rows: Array | None = None

    @property
    def sampled(self) -> bool:
        """Tell whether only some rows were filled."""
        return self.rows is not None

    @classmethod
    def read(cls, imputer: Any, before: Any, after: Any, draws: Any) -> ReportTables:
        """Read what a caller gave; without a filled table, fill a sample if there is an imputer."""
        table = read_frame(before)
        schema = columns_of(table, imputer)
        filled = None if after is None else read_frame(after)
        drawn = () if draws is None else tuple(read_tables(draws)[:MOST_TABLES])
        filled = filled or (drawn[0] if drawn else None)
        compared, rows = table, None
        if filled is None and imputer is not None:
            if table.n_rows > FILLED_ROWS:
                rows = some_places(table.n_rows, FILLED_ROWS)
                compared = read_frame(take_rows(table, rows))
            filled = read_frame(imputer.transform(compared.native))
        found = cls(schema, table, compared, filled, drawn or (() if filled is None else (filled,)), rows)
        for done in found.draws:
            _check_rows(done, compared)
        return found

    @cached_property
    def holes(self) -> dict[int, BoolArray]:
        """Where the columns with holes are missing, by position."""
        found = {p: self.before.missing(p) for p in range(len(self.schema.columns))}
        return {p: missing for p, missing in found.items() if missing.any()}


def _check_rows(done: Frame, compared: Frame) -> None:
    if done.n_rows != compared.n_rows:
        raise DataError(
            f"The filled table has {done.n_rows:,} rows and the one with holes has {compared.n_rows:,}. Give what "
            "transform or draw returned for this very table."
        )


def some_places(n: int, most: int) -> Array:
    """Return places among n in their order: all, or a sample that is always the same.

    Examples
    --------
    >>> some_places(3, 5).tolist(), len(some_places(100, 5))
    ([0, 1, 2], 5)
    """
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))
