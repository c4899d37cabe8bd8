"""Puts the filled cells, and their intervals, into files that are read a few rows at a time; a program of its own."""

from __future__ import annotations

__all__ = ["main", "write_bounds", "write_texts"]

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mcflow.data.files import replacing
from mcflow.data.tables import read_table
from mcflow.errors import McflowError
from mcflow.typing import Array

#: Rows that are read together, at least; groups of them, at most; characters of a cell that are shown.
_GROUP_ROWS, _MOST_GROUPS, _WIDEST = 500, 200, 200


def write_texts(upload: Path, output: Path, target: Path) -> None:
    """Write every cell of a filled table as text, and beside it which cells were filled.

    Parameters
    ----------
    upload, output : Path
        The table with its holes, and filled.
    target : Path
        A Parquet file: columns t0, t1, … of text, f0, f1, … where a column has filled cells, and "filled", their
        number in each row.
    """
    names, holes = _holes(upload)
    filled = read_table(output)
    columns: dict[str, Any] = {}
    counts: Array = np.zeros(filled.table.num_rows, dtype=np.int32)
    for place, name in enumerate(names):
        typed = filled.table.column(name)
        new = holes.pop(place) & ~_nulls(typed)
        counts += new
        columns[f"t{place}"] = _texts(typed, None if filled.texts is None else filled.texts.column(name))
        if new.any():
            columns[f"f{place}"] = pa.array(new)
    columns["filled"] = pa.array(counts)
    _write(pa.table(columns), target)


def _holes(upload: Path) -> tuple[list[str], dict[int, Array]]:
    table = read_table(upload).table
    return table.column_names, {place: _nulls(cells) for place, cells in enumerate(table.columns)}


def _nulls(cells: pa.ChunkedArray) -> Array:
    nulls: Array = cells.is_null(nan_is_null=True).to_numpy()
    return nulls


def _texts(typed: pa.ChunkedArray, written: pa.ChunkedArray | None) -> pa.ChunkedArray:
    """Return a column as text: as the file has it, else as Arrow would write it; null where nothing is."""
    texts = written if written is not None else _as_text(typed)
    texts = pc.utf8_slice_codeunits(texts, 0, _WIDEST)
    return pc.if_else(pa.chunked_array([_nulls(typed)]), None, texts)


def _as_text(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    try:
        return cells.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.chunked_array([pa.array([None if v is None else str(v) for v in cells.to_pylist()], pa.string())])


def write_bounds(upload: Path, cells: Path, target: Path) -> None:
    """Write the ends of the filled cells' intervals as text.

    Parameters
    ----------
    upload : Path
        The table with its holes.
    cells : Path
        What `mcflow impute --interval` wrote as Parquet.
    target : Path
        A Parquet file: columns l0, h0, … for the columns that have intervals.
    """
    names = _names(upload, cells)
    with pq.ParquetFile(cells) as opened:
        there = set(opened.schema_arrow.names)
        columns: dict[str, Any] = {"row": pa.nulls(opened.metadata.num_rows, pa.bool_())}
        for place, name in enumerate(names):
            for letter, end in (("l", "low"), ("h", "high")):
                full = f"{name}.{end}"
                if full in there:
                    columns[f"{letter}{place}"] = _rounded(opened.read([full]).column(full))
        _write(pa.table(columns), target)


def _names(upload: Path, cells: Path) -> list[str]:
    """Return the names of the table's own columns, which come first in the file with the intervals."""
    count = len(json.loads((upload.parent / "schema.json").read_text(encoding="utf-8"))["columns"])
    names: list[str] = pq.read_schema(cells).names[:count]
    return names


def _rounded(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the ends of intervals as text; more than six digits of them say nothing."""
    if pa.types.is_floating(cells.type):
        values = [None if v is None else f"{v:.6g}" for v in cells.to_pylist()]
        return pa.chunked_array([pa.array(values, pa.string())])
    return _as_text(cells)


def _write(table: pa.Table, target: Path) -> None:
    rows = max(_GROUP_ROWS, -(-table.num_rows // _MOST_GROUPS))
    with replacing(target) as temporary:
        pq.write_table(table, temporary, row_group_size=rows, compression="zstd", write_statistics=False)


def main(wishes: dict[str, Any]) -> None:
    """Write texts.parquet or bounds.parquet.

    Parameters
    ----------
    wishes : dict
        "what", "texts" or "bounds", and the names of "upload" and "output".
    """
    upload, output = Path(wishes["upload"]), Path(wishes["output"])
    if wishes["what"] == "texts":
        write_texts(upload, output, Path("texts.parquet"))
    else:
        write_bounds(upload, Path("cells.parquet"), Path("bounds.parquet"))


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except (McflowError, OSError) as error:
        print(f"mcflow: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(3)
