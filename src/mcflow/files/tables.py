"""Read CSV, Parquet and Excel files as Arrow tables, and write filled tables with every observed cell unchanged."""

from __future__ import annotations

__all__ = [
    "FORMATS",
    "TableFile",
    "as_fitted",
    "format_of",
    "marked",
    "read_table",
    "repeated",
    "type_as_fitted",
    "with_companions",
    "write_table",
]

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from mcflow.columns.schema import MissingValues, TableSchema, suspected_codes, warn_of_suspects, without_values
from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.files.atomic import replacing
from mcflow.files.csv.cells import observed
from mcflow.files.csv.reader import CsvSource, read_csv
from mcflow.files.csv.writer import encodable, write_csv
from mcflow.files.excel import ExcelSource, read_excel, write_excel
from mcflow.files.parquet import ParquetSource, read_parquet, write_parquet
from mcflow.files.streams import STREAM, open_compressed, open_decompressed, read_stream, readable, write_stream

_TEXT_ENDINGS = [kind + compression for kind in (".csv", ".tsv") for compression in ("", ".gz", ".zst")]
#: Formats of files by their ending.
FORMATS = dict.fromkeys(_TEXT_ENDINGS, "csv") | {".parquet": "parquet", ".pq": "parquet", ".xlsx": "excel"}


@dataclass(frozen=True)
class TableFile:
    """A table from a file."""

    table: pa.Table  # typed columns
    texts: pa.Table | None = None  # for CSV, every cell as it is written
    ending: str = ""  # ending of the file, a key of `FORMATS`; for standard input, the ending that fits its content
    csv: CsvSource = field(default_factory=CsvSource)  # for CSV, how the file is written
    parquet: ParquetSource = field(default_factory=ParquetSource)  # for Parquet, how the file is written
    excel: ExcelSource = field(default_factory=ExcelSource)  # for Excel, the workbook
    missing: MissingValues = field(default_factory=MissingValues)  # values that were taken as missing

    def without_texts(self) -> TableFile:
        """Drop the text of the cells, which takes twice the memory of the typed columns."""
        return replace(self, texts=None, csv=CsvSource())


def format_of(path: Path) -> str:
    """Return the format of a file, "csv", "parquet" or "excel", by its ending."""
    return "csv" if path == STREAM else FORMATS[_ending(path)]


def _ending(path: Path) -> str:
    """Return the ending of a file, which includes the one before .gz or .zst."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    last, both = "".join(suffixes[-1:]), "".join(suffixes)
    found = next((ending for ending in (both, last) if ending in FORMATS), None)
    if found is None:
        hint = did_you_mean(last, FORMATS) or did_you_mean(both, FORMATS)
        raise ParameterError(f"{path} ends in {path.suffix!r}, but has to end in one of {', '.join(FORMATS)}.{hint}")
    return found


def marked(path: Path, mark: int | str) -> Path:
    """Return the path with a number or a word before its ending."""
    stem = len(path.name) - len(_ending(path))
    return path.with_name(f"{path.name[:stem]}.{mark}{path.name[stem:]}")


def read_table(path: Path, *, missing: MissingValues | None = None, skip_rows: int = 0) -> TableFile:
    """Read a CSV, Parquet or Excel file by its ending; "-" reads standard input and detects the format.

    Cells with one of the `missing` values are null; the header of a CSV or Excel file follows `skip_rows` lines.
    """
    given = missing or MissingValues()
    if path == STREAM:
        data = read_stream()
        ending = ".parquet" if data.startswith(b"PAR1") else ".xlsx" if data.startswith(b"PK\3\4") else ".csv"
        return _declared(_read("standard input", data, ending, given, skip_rows), given)
    ending = _ending(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return _declared(_read(str(path), path.read_bytes(), ending, given, skip_rows), given)


def _read(name: str, data: bytes, ending: str, missing: MissingValues, skip_rows: int) -> TableFile:
    if skip_rows and FORMATS[ending] == "parquet":
        raise ParameterError("--skip-rows skips lines of CSV and Excel files; a Parquet file has none. Leave it out.")
    with readable(name, FORMATS[ending]):
        if FORMATS[ending] == "parquet":
            table, source = read_parquet(data)
            return TableFile(table, None, ending, parquet=source)
        if FORMATS[ending] == "excel":
            table, workbook = read_excel(data, name, missing=missing, skip_rows=skip_rows)
            return TableFile(table, None, ending, CsvSource(spellings=workbook.spellings), excel=workbook)
        with open_decompressed(io.BytesIO(data), ending) as opened:
            content = opened.read()
        read = read_csv(content, name, _separator(ending), missing=missing, skip_rows=skip_rows)
        pa.default_memory_pool().release_unused()  # type inference takes as much memory as the table
        return TableFile(read.table, read.texts, ending, read.source)


def _declared(source: TableFile, missing: MissingValues) -> TableFile:
    """Return a table with null in place of missing values, and with those of "auto" named by column."""
    missing.check(source.table.column_names)
    columns, found = [], dict(missing.by_column)
    for name, column in zip(source.table.column_names, source.table.columns, strict=True):
        values = missing.of_column(name)
        suspects = suspected_codes(column.combine_chunks()) if missing.auto and name not in missing.by_column else []
        if suspects:
            warn_of_suspects(name, suspects, taken=True)
            found[name] = tuple(suspect.value for suspect in suspects)
        columns.append(without_values(column, (*values, *found.get(name, ()))))
    table = pa.table(columns, schema=source.table.schema)
    return replace(source, table=table, missing=MissingValues(missing.everywhere, found))


def _separator(ending: str) -> str:
    return "\t" if ending.startswith(".tsv") else ","


def as_fitted(source: TableFile, schema: TableSchema) -> TableFile:
    """Convert columns to the types that they had when a model was fitted, where the cells allow it."""
    if source.texts is None:
        return source
    known = {str(column.name): column.dtype for column in schema.columns}
    columns = []
    for name, typed, text in zip(source.table.column_names, source.table.columns, source.texts.columns, strict=True):
        kind = type_as_fitted(typed.type, known.get(name, ""))
        as_text = pa.types.is_string(kind) and kind != typed.type
        columns.append((observed(text, source.missing.of_column(name)) if as_text else typed).cast(kind))
    return replace(source, table=pa.table(columns, names=source.table.column_names))


def type_as_fitted(found: pa.DataType, dtype: str) -> pa.DataType:
    """Return the type of a CSV column, given the inferred type and the type when a model was fitted."""
    if dtype.startswith(("double", "float", "halffloat")) and pa.types.is_integer(found):
        return pa.float64()
    return pa.string() if "string" in dtype else found


def repeated(source: TableFile, times: int) -> TableFile:
    """Return a table that is stacked below itself several times, with its cells unchanged."""
    table = pa.concat_tables([source.table] * times)
    if source.texts is None:
        return replace(source, table=table)
    csv = source.csv
    if csv.layout is not None:
        csv = replace(csv, layout=csv.layout.repeated(times, csv.dialect.newline.encode()))
    return replace(source, table=table, texts=pa.concat_tables([source.texts] * times), csv=csv)


def with_companions(source: TableFile, companions: Mapping[str, str]) -> TableFile:
    """Add empty columns that are written like other columns, given the name of that column for each new one."""
    table, csv = source.table, source.csv
    kinds = {new: table.schema.field(old).type for new, old in companions.items()}
    empty = {kind: pa.chunked_array([pa.nulls(table.num_rows, kind)]) for kind in set(kinds.values())}
    for new, kind in kinds.items():
        table = table.append_column(new, empty[kind])
    spellings = dict(csv.spellings) | {new: csv.spelling(old) for new, old in companions.items()}
    quoted = dict(csv.quoted) | {new: csv.quoted.get(old) for new, old in companions.items()}
    return replace(source, table=table, csv=replace(csv, spellings=spellings, quoted=quoted))


def write_table(path: Path, filled: pa.Table, source: TableFile) -> None:
    """Write a filled table atomically, with the observed cells of its source unchanged.

    The ending of `path` gives the format; "-" writes to standard output in the format of the source.
    """
    if filled.num_rows != source.table.num_rows:
        raise DataError(
            f"The filled table has {filled.num_rows} rows, and its source has {source.table.num_rows}. "
            "Give the source that was filled."
        )
    ending = _ending(path) if path != STREAM else source.ending.removesuffix(".gz").removesuffix(".zst") or ".csv"
    with encodable(path, source.csv.dialect.encoding):
        data = _content(filled, source, ending)
    if path == STREAM:
        write_stream(data)
    else:
        with replacing(path) as temporary, open_compressed(temporary, ending) as file:
            file.write(data)


def _content(filled: pa.Table, source: TableFile, ending: str) -> bytes | memoryview:
    if FORMATS[ending] == "parquet":
        return write_parquet(filled, source.table, source.parquet)
    if FORMATS[ending] == "excel":
        return write_excel(filled, source.table, source.excel)
    return write_csv(filled, source.table, source.texts, _csv_for(source, ending))


def _csv_for(source: TableFile, ending: str) -> CsvSource:
    """Return how to write a CSV file: like the source, unless the endings require another separator."""
    dialect, separator = source.csv.dialect, _separator(ending)
    if dialect.separator == separator or (source.texts is not None and separator == _separator(source.ending)):
        return source.csv
    if separator == "," and dialect.decimal == ",":
        separator = ";"
    return replace(source.csv, dialect=replace(dialect, separator=separator), layout=None)
