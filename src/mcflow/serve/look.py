"""Reads a file that was sent and says what its columns are; a program of its own, so that the server stays small."""

from __future__ import annotations

__all__ = ["check_size", "describe", "main"]

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.files import replacing
from mcflow.data.frames import read_frame
from mcflow.data.kinds import find_column
from mcflow.data.planning import Wishes, plan_table
from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.data.tables import TableFile, format_of, read_table
from mcflow.errors import DataError, McflowError

#: Rows and columns of the preview, and characters of a cell that are shown.
PREVIEW_ROWS, PREVIEW_COLUMNS, WIDEST = 20, 100, 80
#: Levels of a column that are listed.
_MOST_LEVELS = 8


def describe(source: TableFile, limits: dict[str, Any]) -> dict[str, Any]:
    """Say what is in a table.

    Parameters
    ----------
    source : TableFile
        The table.
    limits : dict
        "max_rows", "max_columns" and "max_cells".

    Returns
    -------
    dict
        Plain data: rows, missing cells, a dictionary for each column, the first rows as text, and under "problem" why
        the table cannot be filled as it is.

    Raises
    ------
    DataError
        When it is larger than allowed, or has no rows.
    """
    table = source.table
    check_size(table.num_rows, table.num_columns, limits)
    if not table.num_rows:
        raise DataError("The file has a header, but no rows. Give a file with at least one row.")
    columns, problem = _planned(table)
    return {
        "rows": table.num_rows,
        "missing": sum(_missing(table.column(place)) for place in range(table.num_columns)),
        "columns": [_described(column, table.column(place)) for place, column in enumerate(columns)],
        "preview": _preview(source),
        "problem": problem,
    }


def check_size(rows: int, columns: int, limits: dict[str, Any]) -> None:
    """Raise `DataError` when a table is larger than allowed.

    Parameters
    ----------
    rows, columns : int
        Of the table.
    limits : dict
        "max_rows", "max_columns" and "max_cells".
    """
    for what, found, limit in (
        ("rows", rows, limits["max_rows"]),
        ("columns", columns, limits["max_columns"]),
        ("cells", rows * columns, limits["max_cells"]),
    ):
        if found > limit:
            raise DataError(
                f"The file has {found:,} {what}, and this server takes {limit:,}. Send a part of it, or use "
                "`mcflow impute` on your own machine."
            )


def _planned(table: pa.Table) -> tuple[list[Column], str]:
    """Find the columns' kinds; a table that cannot be filled as it is may still be set right by its owner."""
    frame = read_frame(table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return list(plan_table(frame, Wishes())[0].columns), ""
        except DataError as error:
            arrays = [frame.arrow(place) for place in range(len(frame.names))]
            found = [find_column(name, cells, None, "fill") for name, cells in zip(frame.names, arrays, strict=True)]
            return found, str(error)


def _missing(cells: pa.ChunkedArray) -> int:
    return int(pc.sum(cells.is_null(nan_is_null=True)).as_py() or 0)


def _described(column: Column, cells: pa.ChunkedArray) -> dict[str, Any]:
    kind = column.base or column.kind
    shown = {
        "name": str(column.name),
        "dtype": column.dtype,
        "kind": column.kind,
        "missing": _missing(cells),
        "examples": _examples(column, cells),
        "range": None,
    }
    if column.kind != "empty" and kind not in LEVEL_KINDS and column.coded:
        ends = pc.min_max(cells)
        shown["range"] = [_short(ends["min"].as_py()), _short(ends["max"].as_py())]
    return shown


def _examples(column: Column, cells: pa.ChunkedArray) -> list[str]:
    """Return a few of a column's values: its levels, or the first cells that differ."""
    if column.kind in LEVEL_KINDS:
        return [_short(level) for level in column.levels[:_MOST_LEVELS]]
    if str(column.dtype).startswith(("list", "struct", "map")):
        return []
    head = cells.slice(0, 200).combine_chunks().drop_null()
    return [_short(value) for value in list(dict.fromkeys(head.to_pylist()))[:3]]


def _short(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _preview(source: TableFile) -> list[list[str | None]]:
    """Return the first rows as text; None is a hole."""
    typed = source.table.slice(0, PREVIEW_ROWS).select(range(min(source.table.num_columns, PREVIEW_COLUMNS)))
    columns = []
    for place, cells in enumerate(typed.columns):
        texts = cells.to_pylist() if source.texts is None else source.texts.column(place)[:PREVIEW_ROWS].to_pylist()
        holes = cells.is_null(nan_is_null=True).to_pylist()
        columns.append([None if hole else _short(text) for hole, text in zip(holes, texts, strict=True)])
    return [list(row) for row in zip(*columns, strict=True)]


def _check_before_reading(path: Path, limits: dict[str, Any]) -> None:
    """Refuse a Parquet file by what its footer says, before its pages are unpacked into memory."""
    if format_of(path) != "parquet":
        return
    import pyarrow.parquet as pq

    try:
        found = pq.read_metadata(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        why = str(error).rstrip(". \n")
        raise DataError(f"{path} cannot be read as Parquet: {why}. Check the file, or give another one.") from error
    check_size(found.num_rows, found.num_columns, limits)
    unpacked = sum(found.row_group(group).total_byte_size for group in range(found.num_row_groups))
    if unpacked > limits["max_bytes"]:
        raise DataError(
            f"The file unpacks to {unpacked:,} bytes, and this server takes {limits['max_bytes']:,}. Send a part of it."
        )


def main(wishes: dict[str, Any]) -> None:
    """Read the file and write schema.json.

    Parameters
    ----------
    wishes : dict
        "upload", the file, and the limits.
    """
    path = Path(wishes["upload"])
    _check_before_reading(path, wishes)
    found = describe(read_table(path), wishes)
    with replacing(Path("schema.json")) as temporary:
        temporary.write_text(json.dumps(found, allow_nan=False), encoding="utf-8")


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except (McflowError, OSError) as error:
        print(f"mcflow: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(3)
