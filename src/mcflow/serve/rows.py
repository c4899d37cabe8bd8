"""A few rows of a filled table at a time, out of files that are never read whole."""

from __future__ import annotations

__all__ = ["next_filled", "read_rows"]

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def read_rows(folder: Path, start: int, count: int, places: range) -> dict[str, Any]:
    """Return a part of a filled table.

    Parameters
    ----------
    folder : Path
        Of the job, with what `mcflow.serve.view` made.
    start, count : int
        First row and number of rows; those that there are not are left out.
    places : range
        The columns.

    Returns
    -------
    dict
        "start"; "columns", the first of them; "cells", a list a row with the cells as text; "filled", a list for each
        filled cell: its row and column, and the ends of its interval where there is one.
    """
    texts = _part(folder / "texts.parquet", start, count, _named("tf", places))
    if texts is None:
        return {"start": start, "column": places.start, "cells": [], "filled": []}
    there = [place for place in places if f"t{place}" in texts.column_names]
    cells = [list(row) for row in zip(*(texts.column(f"t{place}").to_pylist() for place in there), strict=True)]
    bounds = _part(folder / "bounds.parquet", start, count, _named("lh", places))
    filled = [entry for place in there for entry in _filled(texts, bounds, place, start)]
    return {"start": start, "column": places.start, "cells": cells, "filled": sorted(filled, key=lambda e: e[:2])}


def _named(letters: str, places: range) -> list[str]:
    return [f"{letter}{place}" for place in places for letter in letters]


def _filled(texts: pa.Table, bounds: pa.Table | None, place: int, start: int) -> Iterator[list[Any]]:
    if f"f{place}" not in texts.column_names:
        return
    ends: list[list[Any]] = [[], []]
    if bounds is not None and f"l{place}" in bounds.column_names:
        ends = [bounds.column(f"{letter}{place}").to_pylist() for letter in "lh"]
    for row in np.flatnonzero(texts.column(f"f{place}").to_numpy()).tolist():
        low, high = (end[row] if end else None for end in ends)
        yield [start + row, place, low, high]


def _part(path: Path, start: int, count: int, names: list[str]) -> pa.Table | None:
    """Read the row groups that hold some rows, and cut the rows out; None when there is no such file."""
    opened = _opened(path)
    if opened is None:
        return None
    group_rows = opened.metadata.row_group(0).num_rows if opened.num_row_groups else 1
    groups = [
        g for g in range(opened.num_row_groups) if g * group_rows < start + count and (g + 1) * group_rows > start
    ]
    known = set(opened.schema_arrow.names)
    wanted = [name for name in names if name in known]
    if not groups or not wanted:
        return None
    return opened.read_row_groups(groups, columns=wanted).slice(start - groups[0] * group_rows, count)


def _opened(path: Path) -> pq.ParquetFile | None:
    try:
        return _kept(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return None


@lru_cache(maxsize=8)
def _kept(path: Path, _: int) -> pq.ParquetFile:
    """Open a file and keep it open: footers of wide tables take a while to read."""
    return pq.ParquetFile(path)


def next_filled(folder: Path, row: int, column: int) -> dict[str, int] | None:
    """Find the filled cell after a cell, in the order of reading.

    Parameters
    ----------
    folder : Path
        Of the job.
    row, column : int
        The cell to begin after; -1 as the column begins with the row's first.

    Returns
    -------
    dict or None
        "row" and "column"; None when there is none below.
    """
    opened = _opened(folder / "texts.parquet")
    if opened is None:
        return None
    counts = opened.read(["filled"]).column(0).to_numpy()
    same = _filled_in(folder, opened, row) if 0 <= row < len(counts) and counts[row] else []
    here = [place for place in same if place > column]
    if here:
        return {"row": row, "column": here[0]}
    below = np.flatnonzero(counts[max(row + 1, 0) :])
    if not len(below):
        return None
    found = max(row + 1, 0) + int(below[0])
    return {"row": found, "column": _filled_in(folder, opened, found)[0]}


def _filled_in(folder: Path, opened: pq.ParquetFile, row: int) -> list[int]:
    """Return the places of a row's filled cells."""
    names = [name for name in opened.schema_arrow.names if name.startswith("f") and name != "filled"]
    part = _part(folder / "texts.parquet", row, 1, names)
    return [] if part is None else sorted(int(name[1:]) for name in part.column_names if part.column(name)[0].as_py())
