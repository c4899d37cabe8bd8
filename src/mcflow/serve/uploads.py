"""Uploaded files: safe names, formats, checks of compressed content, and inspection before the fit."""

from __future__ import annotations

__all__ = ["describe", "ending_of", "main", "plain_name", "refuse_bad_content", "save_upload"]

import gzip
import json
import shutil
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mcflow.columns.frames import read_frame
from mcflow.columns.inspection import column_facts, possible_kinds
from mcflow.columns.planning import ColumnSettings, find_columns, plan_table
from mcflow.columns.schema import CATEGORY_KINDS, Column, MissingValues
from mcflow.errors import DataError
from mcflow.files.atomic import write_text
from mcflow.files.parquet import decoded_size
from mcflow.files.streams import readable
from mcflow.files.tables import FORMATS, TableFile, format_of, read_table
from mcflow.serve.commands import run_program
from mcflow.serve.limits import size_in_words

_CHUNK = 1 << 20  #: Bytes that are copied or decompressed at a time.
_MAX_NAME = 120  #: Maximum number of characters of a file name.
_PREVIEW_ROWS = 20  #: Number of rows of the preview.
_PREVIEW_COLUMNS = 100  #: Maximum number of columns of the preview.
_MAX_WIDTH = 80  #: Maximum number of characters of a cell.
_MAX_CATEGORIES = 8  #: Maximum number of categories that are listed for a column.


def plain_name(given: str | None) -> str:
    """Return the file name of a client without folders and unsafe characters."""
    last = (given or "").replace("\\", "/").rpartition("/")[2]
    kept = "".join(sign for sign in last if sign.isprintable() and sign not in '<>:"|?*').strip(" .")
    return kept[-_MAX_NAME:]


def ending_of(name: str) -> str:
    """Return the extension of a file name, which determines the format."""
    try:
        format_of(Path(name or "file"))
    except ValueError as error:
        raise DataError(str(error)) from error
    lower = name.lower()
    return max((ending for ending in FORMATS if lower.endswith(ending)), key=len)


def save_upload(source: IO[bytes], target: Path) -> int:
    """Write an upload to a file, and return its size."""
    with target.open("wb") as file:
        shutil.copyfileobj(source, file, _CHUNK)
    return target.stat().st_size


def refuse_bad_content(path: Path, name: str, most: int) -> None:
    """Raise `DataError` if a file is empty, damaged or decompresses to more than `most` bytes."""
    if not path.stat().st_size:
        raise DataError(f"{name} is empty. Give a file with a header line and rows.")
    if path.suffix not in (".gz", ".zst"):
        return
    total = 0  # of chunks that are discarded, so that a decompression bomb takes neither memory nor disk
    try:
        with gzip.open(path) if path.suffix == ".gz" else pa.input_stream(str(path), compression="zstd") as stream:
            while piece := stream.read(_CHUNK):
                total += len(piece)
                if total > most:
                    raise DataError(
                        f"{name} decompresses to more than {size_in_words(most)}, the limit of this server. Send a "
                        "part of it."
                    )
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise DataError(f"{name} cannot be decompressed: {error}. Check the file, or send it uncompressed.") from error


def describe(source: TableFile, limits: dict[str, Any]) -> dict[str, Any]:
    """Return the rows, missing cells, columns and first rows of a table."""
    table = source.table
    _check_size(table.num_rows, table.num_columns, limits)
    if not table.num_rows:
        raise DataError("The file has a header but no rows. Give a file with at least one row.")
    columns, problem = _planned(table)
    return {
        "rows": table.num_rows,
        "missing": sum(_missing(table.column(place)) for place in range(table.num_columns)),
        "columns": [_described(column, table.column(place), source) for place, column in enumerate(columns)],
        "preview": _preview(source),
        "problem": problem,
    }


def _check_size(rows: int, columns: int, limits: dict[str, Any]) -> None:
    for what, found in {"rows": rows, "columns": columns, "cells": rows * columns}.items():
        limit = limits[f"max_{what}"]
        if found > limit:
            raise DataError(
                f"The file has {found:,} {what}, and this server accepts {limit:,}. Send a part of it, or use "
                "`mcflow impute` on your own machine."
            )


def _planned(table: pa.Table) -> tuple[list[Column], str]:
    """Detect the columns, and return why the table cannot be filled; the user may correct the kinds of columns."""
    frame = read_frame(table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return list(plan_table(frame, ColumnSettings())[0].columns), ""
        except DataError as error:
            return find_columns(frame, ColumnSettings())[0], str(error)


def _missing(cells: pa.ChunkedArray) -> int:
    return int(pc.sum(cells.is_null(nan_is_null=True)).as_py() or 0)


def _described(column: Column, cells: pa.ChunkedArray, source: TableFile) -> dict[str, Any]:
    kind = column.base or column.kind
    facts = column_facts(column, cells.combine_chunks(), len(cells))
    if column.name in source.missing.by_column:  # what it holds was decided
        facts["suspects"] = []
    shown = {
        **{name: facts[name] for name in ("name", "dtype", "kind", "why", "suspects")},
        "taken": [str(value) for value in source.missing.by_column.get(column.name, ())],
        "kinds": possible_kinds(column, cells.combine_chunks()),
        "missing": _missing(cells),
        "examples": _examples(column, cells),
        "range": None,
    }
    if column.kind != "empty" and kind not in CATEGORY_KINDS and column.coded:
        ends = pc.min_max(cells)
        shown["range"] = [_short(ends["min"].as_py()), _short(ends["max"].as_py())]
    return shown


def _examples(column: Column, cells: pa.ChunkedArray) -> list[str]:
    """Return a few values of a column: its categories, or the first distinct cells."""
    if column.kind in CATEGORY_KINDS:
        return [_short(category) for category in column.categories[:_MAX_CATEGORIES]]
    if str(column.dtype).startswith(("list", "struct", "map")):
        return []
    head = cells.slice(0, 200).combine_chunks().drop_null()
    return [_short(value) for value in list(dict.fromkeys(head.to_pylist()))[:3]]


def _short(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_WIDTH else text[: _MAX_WIDTH - 1] + "…"


def _preview(source: TableFile) -> list[list[str | None]]:
    """Return the first rows as text; None is a missing cell."""
    typed = source.table.slice(0, _PREVIEW_ROWS).select(range(min(source.table.num_columns, _PREVIEW_COLUMNS)))
    columns = []
    for place, cells in enumerate(typed.columns):
        texts = cells.to_pylist() if source.texts is None else source.texts.column(place)[:_PREVIEW_ROWS].to_pylist()
        missing = cells.is_null(nan_is_null=True).to_pylist()
        columns.append([None if empty else _short(text) for empty, text in zip(missing, texts, strict=True)])
    return [list(row) for row in zip(*columns, strict=True)]


def _check_before_reading(path: Path, limits: dict[str, Any]) -> None:
    """Reject a Parquet or Excel file whose content takes more memory than allowed, before it is read."""
    unpacked, most = 0, limits["max_bytes"]
    if format_of(path) == "parquet":
        with readable(path, "Parquet"):
            found = pq.read_metadata(path)
            _check_size(found.num_rows, found.num_columns, limits)
            unpacked = decoded_size(path, most)
    elif format_of(path) == "excel" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as book:
            unpacked = sum(part.file_size for part in book.infolist())
    if unpacked > most:
        raise DataError(
            f"The file decompresses to more than {most:,} bytes, which is what this server accepts. Send a part of it."
        )


def main(arguments: dict[str, Any]) -> None:
    """Read the file and write schema.json, in a process of its own, which leaves the memory of the server free."""
    path = Path(arguments["upload"])
    _check_before_reading(path, arguments)
    missing = MissingValues.parse(arguments.get("na", ()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page shows what was found
        source = read_table(path, missing=missing, skip_rows=arguments.get("skip_rows", 0))
    found = describe(source, arguments)
    write_text(Path("schema.json"), json.dumps(found, allow_nan=False))


if __name__ == "__main__":
    run_program(main)
