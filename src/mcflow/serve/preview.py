"""Preview of the filled table: its cells and intervals as text, in files.

This module runs as a program of its own to write the files, and the server reads a few rows of them at a time. Their
columns are `t0, t1, …` (cells as text), `f0, f1, …` (whether a cell was filled) and `filled` (number of filled cells of
a row) in texts.parquet, and `l0, h0, l1, …` (bounds of intervals) in bounds.parquet.
"""

from __future__ import annotations

__all__ = ["main", "next_filled", "read_rows", "read_summary", "write_bounds", "write_texts"]

import json
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mcflow.columns.schema import CATEGORY_KINDS, MissingValues
from mcflow.files.atomic import replacing, write_text
from mcflow.files.tables import read_table
from mcflow.serve.commands import run_program
from mcflow.typing import Array

_MIN_GROUP_ROWS = 500  #: Minimum number of rows per row group.
_MAX_GROUPS = 200  #: Maximum number of row groups.
_MAX_WIDTH = 200  #: Maximum number of characters of a cell.


def write_texts(upload: Path, output: Path, target: Path, **given: Any) -> None:
    """Write all cells as text, which were filled, and a summary; `given` are `na`, `skip_rows` and `kinds`."""
    lines = given.get("skip_rows", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit has shown them
        table = read_table(upload, missing=MissingValues.parse(given.get("na", ())), skip_rows=lines).table
        missing = {place: _nulls(cells) for place, cells in enumerate(table.columns)}
        names = table.column_names
        del table
        filled = read_table(output, skip_rows=lines)
    kinds, found = given.get("kinds", {}), []
    columns: dict[str, Any] = {}
    counts: Array = np.zeros(filled.table.num_rows, dtype=np.int32)
    for place, name in enumerate(names):
        typed = filled.table.column(name)
        missing_here = missing.pop(place)
        new = missing_here & ~_nulls(typed)
        counts += new
        found.append(_summary_of(name, typed, missing_here, new, kinds.get(name, "")))
        texts = _as_text(typed) if filled.texts is None else filled.texts.column(name)
        texts = pc.utf8_slice_codeunits(texts, 0, _MAX_WIDTH)
        columns[f"t{place}"] = pc.if_else(pa.chunked_array([_nulls(typed)]), None, texts)
        if new.any():
            columns[f"f{place}"] = pa.array(new)
    columns["filled"] = pa.array(counts)
    write_text(target.with_name("summary.json"), json.dumps(found))
    _write(pa.table(columns), target)


def _summary_of(name: str, cells: pa.ChunkedArray, missing: Array, filled: Array, kind: str) -> dict[str, Any]:
    """Return the counts of a column, and the typical observed and filled cell."""
    parts = {"before": cells.filter(pa.array(~missing)), "after": cells.filter(pa.array(filled))}
    typical = {key: _typical(part, kind) if filled.any() else "" for key, part in parts.items()}
    return {"name": name, "filled": int(filled.sum()), "left": int((missing & ~filled).sum()), **typical}


def _typical(cells: pa.ChunkedArray, kind: str) -> str:
    """Return the mean of numbers and times, or the most frequent value."""
    seen = cells.drop_null()
    if not len(seen):
        return ""
    number = pa.types.is_integer(seen.type) or pa.types.is_floating(seen.type)
    if number and kind not in CATEGORY_KINDS:
        return f"{pc.mean(seen.cast(pa.float64(), safe=False)).as_py():.5g}"
    if pa.types.is_date(seen.type) or pa.types.is_timestamp(seen.type):
        times = seen.cast(pa.timestamp("us")).cast(pa.int64())
        middle = pa.scalar(round(pc.mean(times).as_py()), pa.int64()).cast(pa.timestamp("us")).as_py()
        return str(middle.date() if pa.types.is_date(seen.type) else middle.replace(microsecond=0))
    counted = pc.value_counts(pc.utf8_slice_codeunits(_as_text(seen), 0, _MAX_WIDTH)).to_pylist()
    most = max(counted, key=lambda entry: entry["counts"])
    return f"{most['values']} ({most['counts'] / len(seen):.0%})"


def _nulls(cells: pa.ChunkedArray) -> Array:
    return np.asarray(cells.is_null(nan_is_null=True))


def _as_text(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as text, as Arrow writes it."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    try:
        return cells.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.chunked_array([pa.array([None if v is None else str(v) for v in cells.to_pylist()], pa.string())])


def write_bounds(upload: Path, cells: Path, target: Path) -> None:
    """Write the bounds of the intervals of filled cells as text."""
    # The columns of the table come first in the file with the intervals.
    count = len(json.loads((upload.parent / "schema.json").read_text(encoding="utf-8"))["columns"])
    names = pq.read_schema(cells).names[:count]
    with pq.ParquetFile(cells) as opened:
        known = set(opened.schema_arrow.names)
        columns: dict[str, Any] = {"row": pa.nulls(opened.metadata.num_rows, pa.bool_())}
        for place, name in enumerate(names):
            for letter, end in (("l", "low"), ("h", "high")):
                full = f"{name}.{end}"
                if full in known:
                    columns[f"{letter}{place}"] = _rounded(opened.read([full]).column(full))
        _write(pa.table(columns), target)


def _rounded(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return bounds as text, with six significant digits."""
    if pa.types.is_floating(cells.type):
        values = [None if v is None else f"{v:.6g}" for v in cells.to_pylist()]
        return pa.chunked_array([pa.array(values, pa.string())])
    return _as_text(cells)


def _write(table: pa.Table, target: Path) -> None:
    rows = max(_MIN_GROUP_ROWS, -(-table.num_rows // _MAX_GROUPS))
    with replacing(target) as temporary:
        pq.write_table(table, temporary, row_group_size=rows, compression="zstd", write_statistics=False)


def main(arguments: dict[str, Any]) -> None:
    """Write texts.parquet or bounds.parquet."""
    upload, output, what = (arguments.pop(name) for name in ("upload", "output", "what"))
    if what == "texts":
        write_texts(Path(upload), Path(output), Path("texts.parquet"), **arguments)
    else:
        write_bounds(Path(upload), Path("cells.parquet"), Path("bounds.parquet"))


def read_rows(folder: Path, start: int, count: int, places: range) -> dict[str, Any]:
    """Return some rows and columns of a filled table as `mcflow.serve.schemas.Rows`."""
    texts = _part(folder / "texts.parquet", start, count, [f"{letter}{k}" for k in places for letter in "tf"])
    if texts is None:
        return {"start": start, "column": places.start, "cells": [], "filled": []}
    known = [place for place in places if f"t{place}" in texts.column_names]
    cells = [list(row) for row in zip(*(texts.column(f"t{place}").to_pylist() for place in known), strict=True)]
    bounds = _part(folder / "bounds.parquet", start, count, [f"{letter}{k}" for k in places for letter in "lh"])
    filled = [entry for place in known for entry in _filled(texts, bounds, place, start)]
    return {"start": start, "column": places.start, "cells": cells, "filled": sorted(filled, key=lambda e: e[:2])}


def read_summary(folder: Path) -> list[dict[str, Any]]:
    """Return the summary by column that `write_texts` has written."""
    try:
        return list(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    except FileNotFoundError:  # the job has no filled table
        return []


def _filled(texts: pa.Table, bounds: pa.Table | None, place: int, start: int) -> Iterator[list[Any]]:
    """Yield row, column and bounds of the filled cells of a column."""
    if f"f{place}" not in texts.column_names:
        return
    ends: list[list[Any]] = [[], []]
    if bounds is not None and f"l{place}" in bounds.column_names:
        ends = [bounds.column(f"{letter}{place}").to_pylist() for letter in "lh"]
    for row in np.flatnonzero(texts.column(f"f{place}").to_numpy()).tolist():
        low, high = (end[row] if end else None for end in ends)
        yield [start + row, place, low, high]


def _part(path: Path, start: int, count: int, names: list[str]) -> pa.Table | None:
    """Read some rows from the row groups that hold them; return None if there are none."""
    opened = _opened(path)
    if opened is None:
        return None
    size = opened.metadata.row_group(0).num_rows if opened.num_row_groups else 1
    groups = [g for g in range(opened.num_row_groups) if g * size < start + count and (g + 1) * size > start]
    known = set(opened.schema_arrow.names)
    wanted = [name for name in names if name in known]
    if not groups or not wanted:
        return None
    return opened.read_row_groups(groups, columns=wanted).slice(start - groups[0] * size, count)


def _opened(path: Path) -> pq.ParquetFile | None:
    try:
        return _cached(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return None


@lru_cache(maxsize=8)
def _cached(path: Path, _: int) -> pq.ParquetFile:
    """Open a file and keep it open, since reading the footer of a wide table is slow."""
    return pq.ParquetFile(path)


def next_filled(folder: Path, row: int, column: int) -> dict[str, int] | None:
    """Return the filled cell after a cell, row by row."""
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
    names = [name for name in opened.schema_arrow.names if name.startswith("f") and name != "filled"]
    part = _part(folder / "texts.parquet", row, 1, names)
    return [] if part is None else sorted(int(name[1:]) for name in part.column_names if part.column(name)[0].as_py())


if __name__ == "__main__":
    run_program(main)
