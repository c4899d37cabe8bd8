"""Tables in one or many files of any size: find the files, cut them into parts, read and write the parts in batches.

A part is a range of rows of one file: Parquet files are cut between row groups, CSV files between batches of records.
"""

from __future__ import annotations

__all__ = [
    "BATCH_ROWS",
    "NO_KEY",
    "PART_ROWS",
    "CsvPart",
    "ParquetPart",
    "PartitionedTable",
    "TablePart",
    "common_types",
    "csv_parts",
    "find_files",
    "is_csv",
    "is_parquet",
    "key_types",
    "open_table",
    "parquet_parts",
    "read_batches",
    "read_records",
    "read_rows",
    "with_keys",
    "write_batches",
    "write_draws",
    "write_records",
]

import contextlib
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from mcflow.columns.schema import MissingValues, TableSchema
from mcflow.config import BATCH_ROWS
from mcflow.errors import DataError
from mcflow.files.atomic import replacing
from mcflow.files.csv.inference import wider_type
from mcflow.files.csv.reader import CsvBatch, CsvProfile, CsvReader, CsvTable, profile_csv
from mcflow.files.csv.writer import encodable, write_csv
from mcflow.files.parquet import ParquetSource
from mcflow.files.streams import open_compressed, readable
from mcflow.files.tables import FORMATS, type_as_fitted

PART_ROWS = 2_000_000  # maximum number of rows of a part, unless a single row group or batch has more
_GROUP_ROWS = 1_048_576  # maximum number of rows of a Parquet row group that are held in memory before they are written
_ADVICE = "Check the file, or leave it out."  # in the message for a file that cannot be read
NO_KEY = "__HIVE_DEFAULT_PARTITION__"  # value in the name of a folder whose rows have no value for its partition key


@dataclass(frozen=True)
class TablePart:
    """Rows of a file that are filled and written together."""

    source: Path  # the file
    output: str  # path of the filled part, relative to the folder of the result
    n_rows: int
    keys: tuple[tuple[str, str], ...] = ()  # names and values of partition keys, as in the folder ``year=2024``


@dataclass(frozen=True)
class ParquetPart(TablePart):
    """Row groups of a Parquet file."""

    groups: tuple[int, ...] = ()  # indices of the row groups
    compression: str = "snappy"  # codec of the file


@dataclass(frozen=True, kw_only=True)
class CsvPart(TablePart):
    """Records of a CSV file."""

    reader: CsvReader
    batches: tuple[CsvBatch, ...]


@dataclass(frozen=True)
class PartitionedTable:
    """A table that consists of all rows of one or more files."""

    root: Path  # folder that contains all files
    files: tuple[Path, ...]
    parts: tuple[TablePart, ...]  # in the order of the rows
    schema: pa.Schema  # of the files, without partition keys; the types of CSV files may differ from it
    profiles: tuple[CsvProfile, ...] = ()  # of CSV files

    @property
    def n_rows(self) -> int:
        """Return the number of rows of all parts."""
        return sum(part.n_rows for part in self.parts)

    def rows(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield batches of all rows, with partition keys, and the index of the first row of each batch."""
        first, types = 0, key_types(self.parts)
        for part in self.parts:
            for batch, _ in read_rows(part):
                yield first, with_keys(batch, part, types)
                first += batch.num_rows


def open_table(
    source: str | Path,
    fitted: TableSchema | None = None,
    *,
    part_rows: int = PART_ROWS,
    known: Mapping[Path, CsvProfile] | None = None,
    missing: MissingValues | None = None,
) -> PartitionedTable:
    """Find the files of a table and cut them into parts.

    CSV files without a `known` profile are read once, as the type of a column depends on all of its cells. Their
    columns get the types of the `fitted` table, or else types that all files share. `missing` are values of CSV
    files that are missing, by default those of the fitted table.
    """
    if missing is None and fitted is not None:
        missing = MissingValues(by_column={c.name: c.missing_codes for c in fitted.columns if c.missing_codes})
    root, files = find_files(source)
    if not is_csv(files[0]):
        return PartitionedTable(root, tuple(files), tuple(parquet_parts(root, files, part_rows)), _common_schema(files))
    profiles = _profiles(files, known or {}, part_rows, missing)
    typed = common_types(profiles) if fitted is None else _fitted_types(profiles, fitted)
    parts = csv_parts(root, typed, part_rows)
    reader = parts[0].reader
    schema = pa.schema(list(zip(reader.names, reader.types, strict=True)))
    return PartitionedTable(root, tuple(files), tuple(parts), schema, tuple(profiles))


def read_rows(part: TablePart) -> Iterator[tuple[pa.Table, bool]]:
    """Yield batches of a part, and whether each one ends a row group."""
    if isinstance(part, CsvPart):
        for read in read_records(part):
            yield read.table, True
    elif isinstance(part, ParquetPart):
        yield from read_batches(part)


def is_parquet(path: Path) -> bool:
    """Return whether the ending of a file is one of Parquet files."""
    return FORMATS.get(path.suffix.lower()) == "parquet"


def is_csv(path: Path) -> bool:
    """Return whether the ending of a file is one of CSV files, compressed or not."""
    return path.name.lower().endswith(tuple(ending for ending, kind in FORMATS.items() if kind == "csv"))


def find_files(source: str | Path) -> tuple[Path, list[Path]]:
    """Return the Parquet or CSV files of a path, folder or glob pattern, and the folder that contains them."""
    path = Path(source)
    if path.is_file():
        return path.parent, [path]
    if path.is_dir():
        found = [file for file in path.rglob("*") if (is_parquet(file) or is_csv(file)) and file.is_file()]
        hidden = (".", "_")
        files = sorted(file for file in found if not any(p.startswith(hidden) for p in file.relative_to(path).parts))
    else:
        named = glob.glob(str(source), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        files = sorted(Path(name) for name in named if Path(name).is_file())
    if not files:
        raise FileNotFoundError(f"{source} is neither a Parquet file nor a CSV file, nor a folder or pattern with one.")
    csv, others = [file for file in files if is_csv(file)], [file for file in files if not is_csv(file)]
    if csv and others:
        raise DataError(
            f"{csv[0]} is a CSV file and {others[0]} is not, and a table is made of files of one format. Fill them "
            f'apart, with patterns such as "*{csv[0].suffix}" and "*{others[0].suffix}".'
        )
    return path if path.is_dir() else Path(os.path.commonpath([file.parent for file in files])), files


def _keys_of(root: Path, file: Path) -> tuple[tuple[str, str], ...]:
    """Return the names and values of the partition keys in the path of a file."""
    parts = (part.partition("=") for part in file.relative_to(root).parts[:-1])
    return tuple((unquote(name), unquote(value)) for name, sign, value in parts if sign)


def key_types(parts: Iterable[TablePart]) -> dict[str, pa.DataType]:
    """Return the types of partition keys: integers if all values of a key are, otherwise text."""
    values: dict[str, set[str]] = {}
    for part in parts:
        for name, value in part.keys:
            values.setdefault(name, set()).add(value)
    return {
        name: pa.int64() if all(re.fullmatch(r"-?\d{1,18}", value) for value in found - {NO_KEY}) else pa.string()
        for name, found in values.items()
    }


def with_keys(table: pa.Table, part: TablePart, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Add the partition keys of a part as columns, except those that the table has."""
    for name, value in part.keys:
        if name in types and name not in table.column_names:
            known = None if value == NO_KEY else value
            table = table.append_column(name, pa.array([known] * table.num_rows, pa.string()).cast(types[name]))
    return table


def _part_name(root: Path, file: Path, number: int, count: int) -> str:
    """Return the path of a part relative to the folder of the result; the file is cut into `count` parts."""
    below = file.relative_to(root)
    name = below if count == 1 else below.with_name(f"{below.stem}-{number:05d}{below.suffix}")
    return name.as_posix()


def _group(sizes: Iterable[int], part_rows: int) -> list[list[int]]:
    """Group the indices of consecutive pieces into parts of at most `part_rows` rows, or of a single larger piece."""
    groups: list[list[int]] = [[]]
    n_rows = 0
    for index, size in enumerate(sizes):
        n_rows += size
        if groups[-1] and n_rows > part_rows:
            groups.append([])
            n_rows = size
        groups[-1].append(index)
    return groups


def parquet_parts(root: Path, files: Iterable[Path], part_rows: int = PART_ROWS) -> list[ParquetPart]:
    """Cut Parquet files into parts of whole row groups."""
    parts = []
    for file in files:
        with readable(file, "Parquet", _ADVICE):
            metadata = pq.read_metadata(file)
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        found, codec = _group(sizes, part_rows), ParquetSource.of(metadata).compression
        for number, groups in enumerate(found):
            name, n_rows = _part_name(root, file, number, len(found)), sum(sizes[group] for group in groups)
            parts.append(ParquetPart(file, name, n_rows, _keys_of(root, file), tuple(groups), codec))
    return parts


def _common_schema(files: Sequence[Path]) -> pa.Schema:
    """Return the schema that all Parquet files must share."""
    first = pq.read_schema(files[0])
    for file in files[1:]:
        other = pq.read_schema(file)
        if not other.equals(first):
            ours, theirs = ({field.name: str(field.type) for field in schema} for schema in (first, other))
            name = next((name for name in [*ours, *theirs] if ours.get(name) != theirs.get(name)), None)
            why = f"{name!r} is {theirs.get(name, 'not there')} instead of {ours.get(name, 'not there')}"
            why = "the order of the columns" if name is None else why
            raise _other_columns(f"{file} has other columns or types than {files[0]}: {why}.")
    return first


def _other_columns(words: str) -> DataError:
    return DataError(f"{words} Fill files with the same columns together, and others apart.")


def read_batches(part: ParquetPart, batch_rows: int = BATCH_ROWS) -> Iterator[tuple[pa.Table, bool]]:
    """Yield batches of a part of a Parquet file, and whether each one ends a row group."""
    with readable(part.source, "Parquet", _ADVICE), pq.ParquetFile(part.source) as opened:
        if not part.groups:
            yield opened.schema_arrow.empty_table(), True
        for group in part.groups:
            left, held = opened.metadata.row_group(group).num_rows, 0
            for batch in opened.iter_batches(batch_rows, row_groups=[group]):
                left, held = left - batch.num_rows, held + batch.num_rows
                last = left == 0 or held + batch_rows > _GROUP_ROWS
                held = 0 if last else held
                yield pa.Table.from_batches([batch]), last


def write_batches(path: Path, part: ParquetPart, schema: pa.Schema, batches: Iterable[tuple[pa.Table, bool]]) -> None:
    """Write a filled part with the row groups of its source, atomically."""
    _write_parquet([path], part, schema, (([batch], last) for batch, last in batches))


def write_draws(
    paths: Sequence[Path], part: ParquetPart, schema: pa.Schema, batches: Iterable[Sequence[pa.Table]]
) -> None:
    """Write several filled versions of a part at the same time, atomically, with one row group per batch."""
    _write_parquet(paths, part, schema, ((versions, True) for versions in batches))


def _write_parquet(
    paths: Sequence[Path], part: ParquetPart, schema: pa.Schema, batches: Iterable[tuple[Sequence[pa.Table], bool]]
) -> None:
    """Write versions of a part; batches are held until one ends a row group."""
    with contextlib.ExitStack() as stack:
        opened = (pq.ParquetWriter(file, schema, compression=part.compression) for file in _replacing(paths, stack))
        writers = [stack.enter_context(writer) for writer in opened]
        group: list[Sequence[pa.Table]] = []
        for versions, last in batches:
            group.append(versions)
            if last:
                for writer, tables in zip(writers, zip(*group, strict=True), strict=True):
                    whole = pa.concat_tables(tables)
                    writer.write_table(whole, row_group_size=max(whole.num_rows, 1))
                group = []


def _replacing(paths: Sequence[Path], stack: contextlib.ExitStack) -> Iterator[Path]:
    """Yield a temporary path for each file to write, and make its folder."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield stack.enter_context(replacing(path))


def _profiles(
    files: Sequence[Path], known: Mapping[Path, CsvProfile], part_rows: int, missing: MissingValues | None
) -> list[CsvProfile]:
    """Profile CSV files, which must have the same columns."""
    found: list[CsvProfile] = []
    for file in files:
        default = "\t" if ".tsv" in file.suffixes else ","
        rows = min(BATCH_ROWS, part_rows)
        found.append(known[file] if file in known else profile_csv(file, default, batch_rows=rows, missing=missing))
        _check_names(found[0].reader, found[-1].reader)
    return found


def _check_names(first: CsvReader, other: CsvReader) -> None:
    if first.names == other.names:
        return
    new = [name for name in other.names if name not in first.names]
    gone = [name for name in first.names if name not in other.names]
    why = f"{new[0]!r} is new" if new else f"{gone[0]!r} is not there" if gone else "the order of the columns"
    raise _other_columns(f"{other.text.path} has other columns than {first.text.path}: {why}.")


def _fitted_types(profiles: Iterable[CsvProfile], schema: TableSchema) -> list[CsvProfile]:
    """Return profiles whose columns have the types of a fitted table, where the cells allow it."""
    known = {str(column.name): column.dtype for column in schema.columns}
    typed = []
    for profile in profiles:
        pairs = zip(profile.reader.names, profile.reader.types, strict=True)
        typed.append(_with_types(profile, [type_as_fitted(kind, known.get(name, "")) for name, kind in pairs]))
    return typed


def common_types(profiles: Sequence[CsvProfile]) -> list[CsvProfile]:
    """Return profiles whose columns have types that hold the cells of all files."""
    common = []
    for place in range(len(profiles[0].reader.names)):
        found = [profile.reader.types[place] for profile in profiles if profile.reader.seen[place]]
        common.append(reduce(wider_type, found) if found else pa.string())
    return [_with_types(profile, common) for profile in profiles]


def _with_types(profile: CsvProfile, types: Sequence[pa.DataType]) -> CsvProfile:
    return replace(profile, reader=replace(profile.reader, types=tuple(types)))


def csv_parts(root: Path, profiles: Iterable[CsvProfile], part_rows: int = PART_ROWS) -> list[CsvPart]:
    """Cut CSV files into parts of whole batches; a compressed file is a single part."""
    parts = []
    for profile in profiles:
        reader, file = profile.reader, profile.reader.text.path
        sizes = [batch.n_rows for batch in profile.batches]
        groups = _group(sizes, part_rows if reader.text.is_seekable else sum(sizes))
        for number, indices in enumerate(groups):
            some = tuple(profile.batches[index] for index in indices)
            name, n_rows = _part_name(root, file, number, len(groups)), sum(batch.n_rows for batch in some)
            parts.append(CsvPart(file, name, n_rows, _keys_of(root, file), reader=reader, batches=some))
    return parts


def read_records(part: CsvPart) -> Iterator[CsvTable]:
    """Yield the batches of a part of a CSV file."""
    reader = part.reader
    if not part.batches:
        yield reader.read(b"")
    pieces = reader.text.pieces([(batch.start, batch.stop) for batch in part.batches])
    for batch, piece in zip(part.batches, pieces, strict=True):
        read = reader.read(piece, batch.lines)
        if read.table.num_rows != batch.n_rows:
            raise DataError(f"{part.source} was changed after it was profiled. Start again.")
        yield read


def write_records(paths: Sequence[Path], part: CsvPart, batches: Iterable[tuple[CsvTable, Sequence[pa.Table]]]) -> None:
    """Write one or more filled versions of a part, atomically."""
    with contextlib.ExitStack() as stack:
        ending = part.source.suffix.lower()
        files = [stack.enter_context(open_compressed(file, ending)) for file in _replacing(paths, stack)]
        for number, (read, versions) in enumerate(batches):
            for file, filled in zip(files, versions, strict=True):
                with encodable(part.output, part.reader.text.encoding):
                    content = _content(filled, read)
                    header = _content(filled.slice(0, 0), part.reader.read(b""))
                file.write(content[len(header) :] if number else content)  # only the first batch keeps the header


def _content(filled: pa.Table, read: CsvTable) -> bytes:
    return write_csv(filled, read.table, read.texts, read.source)
