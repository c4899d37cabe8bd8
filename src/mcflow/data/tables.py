"""Tables in files, CSV and Parquet: read as Arrow tables, written with every observed cell as it stood."""

from __future__ import annotations

__all__ = [
    "FORMATS",
    "MISSING_MARKS",
    "TableFile",
    "as_fitted",
    "format_of",
    "numbered",
    "read_table",
    "repeated",
    "type_as_fitted",
    "with_twins",
    "write_table",
]

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from mcflow.data.cells import MISSING_MARKS, observed
from mcflow.data.csv_layout import CsvLayout
from mcflow.data.csv_reader import CsvSource, read_csv
from mcflow.data.csv_writer import write_csv
from mcflow.data.files import replacing
from mcflow.data.parquet_tables import ParquetSource, read_parquet, write_parquet
from mcflow.data.schema import TableSchema
from mcflow.data.streams import STREAM, compress, decompress, read_stream, write_stream
from mcflow.errors import DataError, OutputError, ParameterError, did_you_mean

_TEXT_ENDINGS = [kind + packed for kind in (".csv", ".tsv") for packed in ("", ".gz", ".zst")]

#: File endings that can be read and written.
FORMATS = dict.fromkeys(_TEXT_ENDINGS, "csv") | {".parquet": "parquet", ".pq": "parquet"}

_PARQUET_MAGIC = b"PAR1"
#: How the names of types begin that hold fractions.
_FRACTIONS = ("double", "float", "halffloat")


@dataclass(frozen=True)
class TableFile:
    """A table from a file.

    Parameters
    ----------
    table : pyarrow.Table
        The columns, typed.
    texts : pyarrow.Table or None
        For CSV, every cell as it was written.
    ending : str, default=""
        One of `FORMATS`, the ending of the file; of standard input, what would fit.
    csv : CsvSource
        For CSV, what the file looked like.
    parquet : ParquetSource
        For Parquet, what the file looked like.
    """

    table: pa.Table
    texts: pa.Table | None = None
    ending: str = ""
    csv: CsvSource = field(default_factory=CsvSource)
    parquet: ParquetSource = field(default_factory=ParquetSource)

    def without_texts(self) -> TableFile:
        """Return the typed columns alone, for files that are not written as text; the text takes twice their memory."""
        return replace(self, texts=None, csv=CsvSource())


def format_of(path: Path) -> str:
    """Return "csv" or "parquet" by a file's ending.

    Parameters
    ----------
    path : Path
        The file. "-" stands for standard input or output, and is taken for CSV.

    Returns
    -------
    str

    Raises
    ------
    ParameterError
        When the ending is another one.

    Examples
    --------
    >>> format_of(Path("rows.pq")), format_of(Path("rows.csv.gz"))
    ('parquet', 'csv')
    """
    return "csv" if path == STREAM else FORMATS[_ending(path)]


def _ending(path: Path) -> str:
    """Return a file's ending, with what comes before .gz or .zst."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    last, both = "".join(suffixes[-1:]), "".join(suffixes)
    found = next((ending for ending in (both, last) if ending in FORMATS), None)
    if found is None:
        hint = did_you_mean(last, FORMATS) or did_you_mean(both, FORMATS)
        raise ParameterError(f"{path} ends in {path.suffix!r}, but has to end in one of {', '.join(FORMATS)}.{hint}")
    return found


def numbered(path: Path, number: int) -> Path:
    """Return the name of one of several files that stand for one.

    Parameters
    ----------
    path : Path
        With an ending of `FORMATS`.
    number : int
        Which of them.

    Returns
    -------
    Path

    Raises
    ------
    ParameterError
        When the ending is another one.

    Examples
    --------
    >>> print(numbered(Path("rows.csv.gz"), 2))
    rows.2.csv.gz
    """
    place = len(path.name) - len(_ending(path))
    return path.with_name(f"{path.name[:place]}.{number}{path.name[place:]}")


def read_table(path: Path) -> TableFile:
    """Read a CSV or Parquet file.

    Parameters
    ----------
    path : Path
        The file; its ending says the format. "-" reads standard input, where the first bytes say it.

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
    if path == STREAM:
        data = read_stream()
        return _read("standard input", data, ".parquet" if data.startswith(_PARQUET_MAGIC) else ".csv")
    ending = _ending(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return _read(str(path), path.read_bytes(), ending)


def _read(name: str, data: bytes, ending: str) -> TableFile:
    kind = FORMATS[ending]
    try:
        if kind == "parquet":
            table, source = read_parquet(data)
            return TableFile(table, None, ending, parquet=source)
        read = read_csv(decompress(data, ending), name, _separator(ending))
        pa.default_memory_pool().release_unused()  # what finding the types took, as much as the table itself
        return TableFile(read.table, read.texts, ending, read.source)
    except DataError:
        raise
    except (ValueError, OSError, pa.ArrowException) as error:
        why = str(error).rstrip(". \n")
        raise DataError(f"{name} cannot be read as {kind}: {why}. Check the file, or give another one.") from error


def _separator(ending: str) -> str:
    return "\t" if ending.startswith(".tsv") else ","


def as_fitted(source: TableFile, schema: TableSchema) -> TableFile:
    """Read columns with the types that they had in the table of the fit, where the cells allow it.

    Parameters
    ----------
    source : TableFile
        A new table.
    schema : TableSchema
        Of the fitted imputer.

    Returns
    -------
    TableFile
        A CSV file does not say its types. A few rows may happen to hold whole numbers only where the fit had
        fractions, or nothing but numbers where it had words.
    """
    if source.texts is None:
        return source
    known = {str(column.name): column.dtype for column in schema.columns}
    names = source.table.column_names
    columns = [
        _as_typed(typed, text, known.get(name, ""))
        for name, typed, text in zip(names, source.table.columns, source.texts.columns, strict=True)
    ]
    return replace(source, table=pa.table(columns, names=names))


def _as_typed(typed: pa.ChunkedArray, text: pa.ChunkedArray, dtype: str) -> pa.ChunkedArray:
    kind = type_as_fitted(typed.type, dtype)
    if kind == typed.type:
        return typed
    return observed(text) if pa.types.is_string(kind) else typed.cast(kind)


def type_as_fitted(found: pa.DataType, dtype: str) -> pa.DataType:
    """Return the type to read the cells of a CSV column with.

    Parameters
    ----------
    found : pyarrow.DataType
        What all its cells have.
    dtype : str
        The type of the column at the fit, in words.

    Returns
    -------
    pyarrow.DataType
        Fractions for whole numbers, or text for anything, where the fit had those.

    Examples
    --------
    >>> type_as_fitted(pa.int64(), "double")
    DataType(double)
    """
    if dtype.startswith(_FRACTIONS) and pa.types.is_integer(found):
        return pa.float64()
    return pa.string() if "string" in dtype else found


def repeated(source: TableFile, times: int) -> TableFile:
    """Return a table with all its rows several times, one whole after the other, and their cells as they stood.

    Parameters
    ----------
    source : TableFile
        The rows once.
    times : int
        How often they are to be there.

    Returns
    -------
    TableFile
        Its file would hold the header once and the lines of the source after each other.
    """
    table = pa.concat_tables([source.table] * times)
    if source.texts is None:
        return replace(source, table=table)
    csv = source.csv
    if csv.layout is not None:
        csv = replace(csv, layout=_repeated(csv.layout, times, csv.dialect.newline.encode()))
    return replace(source, table=table, texts=pa.concat_tables([source.texts] * times), csv=csv)


def _repeated(layout: CsvLayout, times: int, newline: bytes) -> CsvLayout:
    text, head = layout.text, int(layout.starts[1]) if len(layout.starts) > 1 else len(layout.text)
    lines = text[head:]
    between = b"" if lines.endswith(b"\n" if b"\n" in text else b"\r") else newline
    shifts = np.arange(times) * (len(lines) + len(between))
    starts = (layout.starts[1:] + shifts[:, None]).ravel()
    ends = (layout.ends[1:] + shifts[:, None, None]).reshape(-1, layout.n_columns)
    return CsvLayout(
        text[:head] + between.join([lines] * times),
        np.concatenate([layout.starts[:1], starts]),
        np.concatenate([layout.ends[:1], ends]),
    )


def with_twins(source: TableFile, twins: Mapping[str, str]) -> TableFile:
    """Return a table with room for new columns that are to be written as others are.

    Parameters
    ----------
    source : TableFile
        Without them.
    twins : mapping of str to str
        For the name of each new column, that of the one whose type, date format, decimal mark and quotes it takes.

    Returns
    -------
    TableFile
        To write a table with the new columns by. They are empty, and in the text of a CSV file they are not there yet.
    """
    table, csv = source.table, source.csv
    kinds = {new: table.schema.field(old).type for new, old in twins.items()}
    empty = {kind: pa.chunked_array([pa.nulls(table.num_rows, kind)]) for kind in set(kinds.values())}
    for new, kind in kinds.items():
        table = table.append_column(new, empty[kind])
    spellings = dict(csv.spellings) | {new: csv.spelling(old) for new, old in twins.items()}
    quoted = dict(csv.quoted) | {new: csv.quoted.get(old) for new, old in twins.items()}
    return replace(source, table=table, csv=replace(csv, spellings=spellings, quoted=quoted))


def write_table(path: Path, filled: pa.Table, source: TableFile) -> None:
    """Write a filled table; whole or not at all.

    Parameters
    ----------
    path : Path
        The file to make or to replace; its ending says the format. "-" writes to standard output, in the format of
        the source.
    filled : pyarrow.Table
        The source's table without its holes.
    source : TableFile
        Where it came from: its observed cells are written as they stood there.

    Raises
    ------
    DataError
        When the table has not the rows of its source.
    OutputError
        When the file cannot be written.
    """
    if filled.num_rows != source.table.num_rows:
        raise DataError(
            f"The filled table has {filled.num_rows} rows, and its source has {source.table.num_rows}. "
            "Give the source that was filled."
        )
    ending = _unpacked(source.ending) if path == STREAM else _ending(path)
    try:
        data = _content(filled, source, ending)
    except UnicodeEncodeError as error:
        lacking, encoding = error.object[error.start : error.end], source.csv.dialect.encoding
        raise OutputError(f"{path} cannot be written as {encoding}, which lacks {lacking!r}.") from error
    if path == STREAM:
        write_stream(data)
    else:
        with replacing(path) as temporary:
            temporary.write_bytes(data)


def _unpacked(ending: str) -> str:
    return ending.removesuffix(".gz").removesuffix(".zst") or ".csv"


def _content(filled: pa.Table, source: TableFile, ending: str) -> bytes | memoryview:
    if FORMATS[ending] == "parquet":
        return write_parquet(filled, source.table, source.parquet)
    return compress(write_csv(filled, source.table, source.texts, _csv_for(source, ending)), ending)


def _csv_for(source: TableFile, ending: str) -> CsvSource:
    """Return what a CSV file has to look like: as the source, unless the endings ask for another separator."""
    dialect, separator = source.csv.dialect, _separator(ending)
    if dialect.separator == separator or (source.texts is not None and separator == _separator(source.ending)):
        return source.csv
    if separator == "," and dialect.decimal == ",":
        separator = ";"
    return replace(source.csv, dialect=replace(dialect, separator=separator), layout=None)
