"""CSV and Parquet files: read as Arrow tables, written with every observed cell as it stood."""

from __future__ import annotations

__all__ = ["FORMATS", "TableFile", "as_fitted", "format_of", "read_table", "write_table"]

import csv
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from mcflow.data.files import replacing
from mcflow.data.schema import TableSchema
from mcflow.errors import DataError, ParameterError, did_you_mean

#: File endings that can be read and written.
FORMATS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}

#: What stands for a missing cell in a CSV file: pandas' list, and the "?" of many older files.
MISSING_MARKS = frozenset(
    {
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
        *("NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?"),
    }
)

_WHOLE = r"^[+-]?\d+$"
_LEADING_ZERO = r"^[+-]?0\d"


@dataclass(frozen=True)
class TableFile:
    """A table from a file.

    Parameters
    ----------
    table : pyarrow.Table
        The columns, typed.
    texts : pyarrow.Table or None
        For CSV, every cell as it was written.
    """

    table: pa.Table
    texts: pa.Table | None = None


def format_of(path: Path) -> str:
    """Return "csv" or "parquet" by a file's ending.

    Raises
    ------
    ParameterError
        When the ending is another one.

    Examples
    --------
    >>> format_of(Path("rows.pq"))
    'parquet'
    """
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        hint = did_you_mean(path.suffix.lower(), FORMATS)
        raise ParameterError(f"{path} ends in {path.suffix!r}, but has to end in one of {', '.join(FORMATS)}.{hint}")
    return found


def read_table(path: Path) -> TableFile:
    """Read a CSV or Parquet file.

    Parameters
    ----------
    path : Path
        The file; its ending says the format.

    Returns
    -------
    TableFile

    Raises
    ------
    DataError
        When the file cannot be read as what its ending says.
    FileNotFoundError
        When there is no such file.
    """
    kind = format_of(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        return _read_csv(path) if kind == "csv" else TableFile(pq.read_table(path))
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as {kind}: {error}. Check the file, or give another one.") from error


def _read_csv(path: Path) -> TableFile:
    with path.open(newline="", encoding="utf-8-sig") as handle:
        header = next(csv.reader(handle), [])
    if not header:
        raise DataError(f"{path} is empty. Give a file with a header line and rows.")
    if len(set(header)) < len(header):
        twice = sorted({name for name in header if header.count(name) > 1})
        raise DataError(f"{path} names these columns more than once: {', '.join(twice)}. Give each its own name.")
    texts = pyarrow.csv.read_csv(
        path,
        # In a file of one column an empty line is a missing cell, not nothing.
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(header) > 1),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: pa.string() for name in header}, strings_can_be_null=False
        ),
    )
    typed = [_typed(texts.column(name)) for name in texts.column_names]
    return TableFile(pa.table(typed, names=texts.column_names), texts)


def _typed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Read a column of text as whole numbers or numbers when every cell allows it, else leave it as text."""
    trimmed = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(trimmed, value_set=pa.array(sorted(MISSING_MARKS)))
    cells = pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)
    seen = cells.drop_null()
    if not len(seen) or (pc.any(pc.match_substring_regex(seen, _LEADING_ZERO)).as_py() and _all_whole(seen)):
        return cells
    kinds = (pa.int64(), pa.float64()) if _all_whole(seen) else (pa.float64(),)
    for kind in kinds:
        try:
            return cells.cast(kind)
        except pa.ArrowInvalid:
            continue
    return cells


def _all_whole(seen: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.match_substring_regex(seen, _WHOLE)).as_py())


def as_fitted(source: TableFile, schema: TableSchema) -> TableFile:
    """Read columns of whole numbers as numbers where the table of the fit had fractions.

    Parameters
    ----------
    source : TableFile
        A new table.
    schema : TableSchema
        Of the fitted imputer.

    Returns
    -------
    TableFile
        A CSV file does not say its types, and a few rows may happen to hold whole numbers only.
    """
    if source.texts is None:
        return source
    table = source.table
    for column in schema.columns:
        place = table.schema.get_field_index(str(column.name))
        whole = place >= 0 and pa.types.is_integer(table.schema.field(place).type)
        if whole and column.dtype.startswith("float"):
            table = table.set_column(place, column.name, table.column(place).cast(pa.float64()))
    return TableFile(table, source.texts)


def write_table(path: Path, filled: pa.Table, source: TableFile) -> None:
    """Write a filled table; whole or not at all.

    Parameters
    ----------
    path : Path
        The file to make or to replace; its ending says the format.
    filled : pyarrow.Table
        The source's table without its holes.
    source : TableFile
        Where it came from: its observed cells are written as they stood there.
    """
    if format_of(path) == "csv":
        columns = [_texts(filled, name, source) for name in filled.column_names]
        with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle, lineterminator="\n")
            writer.writerow(filled.column_names)
            writer.writerows(zip(*columns, strict=True))
    else:
        with replacing(path) as temporary:
            pq.write_table(_with_schema(filled, source.table.schema), temporary, compression="zstd")


def _texts(filled: pa.Table, name: str, source: TableFile) -> list[str]:
    """Return a column's cells as text: those of the source where it had a value."""
    values = filled.column(name).to_pylist()
    fresh = ["" if value is None else str(value) for value in values]
    if source.texts is None or name not in source.texts.column_names:
        return fresh
    old = source.texts.column(name).to_pylist()
    if not _is_number(filled.schema.field(name).type):
        return [str(text) for text in old]
    missing = source.table.column(name).is_null().to_pylist()
    return [new if hole else text for new, text, hole in zip(fresh, old, missing, strict=True)]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _with_schema(filled: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give a filled table the types and metadata of its source, for the columns both have."""
    fields = [_field(filled.schema.field(name), schema) for name in filled.column_names]
    return filled.cast(pa.schema(fields, metadata=schema.metadata))


def _field(field: pa.Field, schema: pa.Schema) -> pa.Field:
    """Return the source's field, unless its type cannot hold the numbers that were filled in."""
    if field.name not in schema.names:
        return field
    source = schema.field(field.name)
    return field if _is_number(field.type) and not _is_number(source.type) else source
