"""Big tables in Parquet files: which files there are, the parts they are filled in, and their batches of rows."""

from __future__ import annotations

__all__ = [
    "BATCH_ROWS",
    "GROUP_ROWS",
    "NO_KEY",
    "PART_ROWS",
    "TablePart",
    "common_schema",
    "find_files",
    "is_parquet",
    "key_types",
    "parts_of",
    "read_batches",
    "with_keys",
    "write_batches",
    "write_draws",
]

import contextlib
import glob
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from mcflow.data.files import replacing
from mcflow.data.parquet_tables import ParquetSource
from mcflow.data.tables import FORMATS
from mcflow.errors import DataError

#: Rows that are read and filled together.
BATCH_ROWS = 65_536

#: Rows after which a file is cut into the next part, so that a run that was stopped has little to do again.
PART_ROWS = 2_000_000

#: Rows of a row group that are kept in memory until it is written; longer ones are cut.
GROUP_ROWS = 1_048_576

#: What a folder is called whose rows have no value for its key.
NO_KEY = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class TablePart:
    """Row groups of a file that are filled and written together.

    Parameters
    ----------
    source : Path
        The file.
    groups : tuple of int
        Numbers of its row groups.
    output : str
        Where to write it, below the folder of the result.
    n_rows : int
        Rows in it.
    keys : tuple of (str, str)
        Names and values that the folders of the file say, as in ``year=2024``.
    compression : str
        The codec of the file.
    """

    source: Path
    groups: tuple[int, ...]
    output: str
    n_rows: int
    keys: tuple[tuple[str, str], ...] = ()
    compression: str = "snappy"


def is_parquet(path: Path) -> bool:
    """Tell by its ending whether a file is Parquet.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_parquet(Path("a.pq")), is_parquet(Path("a.csv"))
    (True, False)
    """
    return FORMATS.get(path.suffix.lower()) == "parquet"


def find_files(source: str | Path) -> tuple[Path, list[Path]]:
    """Return the Parquet files that a name stands for.

    Parameters
    ----------
    source : path-like
        A file, a folder with files at any depth, or a pattern such as ``data/*.parquet``.

    Returns
    -------
    root : Path
        The folder that all of them are in.
    files : list of Path
        In the order of their names. Files and folders whose name begins with a dot or an underscore are left out, as
        readers of Parquet folders do.

    Raises
    ------
    FileNotFoundError
        When there is none.
    """
    path = Path(source)
    if path.is_file():
        return path.parent, [path]
    if path.is_dir():
        found = [file for file in path.rglob("*") if is_parquet(file) and file.is_file()]
        root, files = path, sorted(file for file in found if not _is_hidden(file.relative_to(path)))
    else:
        named = glob.glob(str(source), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        files = sorted(Path(name) for name in named if Path(name).is_file())
        root = _common(files)
    if not files:
        raise FileNotFoundError(
            f"{source} is neither a Parquet file, nor a folder or pattern with one. CSV files are filled one by one."
        )
    return root, files


def _common(files: list[Path]) -> Path:
    folders = [file.parent for file in files]
    while folders and any(not file.is_relative_to(folders[0]) for file in files):
        folders[0] = folders[0].parent
    return folders[0] if folders else Path()


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def parts_of(root: Path, files: Iterable[Path], part_rows: int = PART_ROWS) -> list[TablePart]:
    """Cut files into parts of whole row groups.

    Parameters
    ----------
    root : Path
        The folder that the files are in.
    files : iterable of Path
        From `find_files`.
    part_rows : int
        Rows after which a part ends.

    Returns
    -------
    list of TablePart
        In the order of the rows. A file that is one part keeps its name; the parts of others are numbered.

    Raises
    ------
    DataError
        When a file is no Parquet file.
    """
    return [part for file in files for part in _parts_of_file(root, file, part_rows)]


def _parts_of_file(root: Path, file: Path, part_rows: int) -> list[TablePart]:
    try:
        metadata = pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        why = str(error).rstrip(". \n")
        raise DataError(f"{file} cannot be read as Parquet: {why}. Check the file, or leave it out.") from error
    cuts: list[tuple[list[int], int]] = [([], 0)]
    for group in range(metadata.num_row_groups):
        groups, n_rows = cuts[-1]
        size = metadata.row_group(group).num_rows
        if groups and n_rows + size > part_rows:
            cuts.append(([group], size))
        else:
            cuts[-1] = ([*groups, group], n_rows + size)
    below, codec = file.relative_to(root), ParquetSource.of(metadata).compression
    keys = tuple((unquote(k), unquote(v)) for k, sign, v in (p.partition("=") for p in below.parts[:-1]) if sign)
    return [
        TablePart(file, tuple(groups), _name(below, number, len(cuts)), n_rows, keys, codec)
        for number, (groups, n_rows) in enumerate(cuts)
    ]


def _name(below: Path, number: int, count: int) -> str:
    name = below if count == 1 else below.with_name(f"{below.stem}-{number:05d}{below.suffix}")
    return name.as_posix()


def common_schema(files: Sequence[Path]) -> pa.Schema:
    """Return the schema that all files have.

    Parameters
    ----------
    files : sequence of Path
        At least one.

    Returns
    -------
    pyarrow.Schema

    Raises
    ------
    DataError
        When one has other columns or types than the first.
    """
    first = pq.read_schema(files[0])
    for file in files[1:]:
        other = pq.read_schema(file)
        if not other.equals(first):
            raise DataError(
                f"{file} has other columns or types than {files[0]}: {_difference(first, other)}. Fill files with the "
                "same columns together, and others apart."
            )
    return first


def _difference(first: pa.Schema, other: pa.Schema) -> str:
    ours, theirs = ({field.name: str(field.type) for field in schema} for schema in (first, other))
    for name in [*ours, *theirs]:
        if ours.get(name) != theirs.get(name):
            return f"{name!r} is {theirs.get(name, 'not there')} instead of {ours.get(name, 'not there')}"
    return "the order of the columns"


def key_types(parts: Iterable[TablePart]) -> dict[str, pa.DataType]:
    """Return the types of the columns that folders say: whole numbers where all of a column are, texts otherwise.

    Parameters
    ----------
    parts : iterable of TablePart
        All parts of a table.

    Returns
    -------
    dict
        By name.

    Examples
    --------
    >>> parts = [TablePart(Path("a"), (), "a", 0, (("year", value),)) for value in ("2024", NO_KEY)]
    >>> key_types(parts)
    {'year': DataType(int64)}
    """
    values: dict[str, set[str]] = {}
    for part in parts:
        for name, value in part.keys:
            values.setdefault(name, set()).add(value)
    return {
        name: pa.int64() if all(re.fullmatch(r"-?\d{1,18}", one) for one in found - {NO_KEY}) else pa.string()
        for name, found in values.items()
    }


def with_keys(table: pa.Table, part: TablePart, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Add the columns that the folders of a part say.

    Parameters
    ----------
    table : pyarrow.Table
        Rows of the part.
    part : TablePart
        Where they are from.
    types : mapping
        Columns to add, by name, and their types; those that the table has stay as they are.

    Returns
    -------
    pyarrow.Table
    """
    for name, value in part.keys:
        if name in types and name not in table.column_names:
            said = None if value == NO_KEY else value
            column = pa.array([said] * table.num_rows, pa.string()).cast(types[name])
            table = table.append_column(name, column)
    return table


def read_batches(part: TablePart, batch_rows: int = BATCH_ROWS) -> Iterator[tuple[pa.Table, bool]]:
    """Read the rows of a part.

    Parameters
    ----------
    part : TablePart
        From `parts_of`.
    batch_rows : int
        Rows a batch, at most.

    Yields
    ------
    batch : pyarrow.Table
        Rows in their order.
    last : bool
        Whether a row group of the result ends with it.
    """
    with pq.ParquetFile(part.source) as opened:
        if not part.groups:
            yield opened.schema_arrow.empty_table(), True
        for group in part.groups:
            left = opened.metadata.row_group(group).num_rows
            held = 0
            for batch in opened.iter_batches(batch_rows, row_groups=[group]):
                left, held = left - batch.num_rows, held + batch.num_rows
                last = left == 0 or held + batch_rows > GROUP_ROWS
                held = 0 if last else held
                yield pa.Table.from_batches([batch]), last


def write_batches(path: Path, part: TablePart, schema: pa.Schema, batches: Iterable[tuple[pa.Table, bool]]) -> int:
    """Write a part, whole or not at all.

    Parameters
    ----------
    path : Path
        The file to make; folders are made too.
    part : TablePart
        Where the rows came from, whose compression is kept.
    schema : pyarrow.Schema
        Of the batches.
    batches : iterable of (pyarrow.Table, bool)
        Filled rows, and whether a row group ends with them.

    Returns
    -------
    int
        Rows written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    n_rows, group = 0, []
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema, compression=part.compression) as writer:
        for batch, last in batches:
            group.append(batch)
            n_rows += batch.num_rows
            if last:
                whole = pa.concat_tables(group)
                writer.write_table(whole, row_group_size=max(whole.num_rows, 1))
                group = []
    return n_rows


def write_draws(
    paths: Sequence[Path], part: TablePart, schema: pa.Schema, batches: Iterable[Sequence[pa.Table]]
) -> None:
    """Write several completed versions of a part at the same time.

    Parameters
    ----------
    paths : sequence of Path
        A file for each version.
    part : TablePart
        Where the rows came from.
    schema : pyarrow.Schema
        Of the batches.
    batches : iterable of sequence of pyarrow.Table
        Batches of rows, each in every version. They become row groups, as whole ones of all versions would not fit in
        memory.
    """
    with contextlib.ExitStack() as stack:
        writers = []
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = stack.enter_context(replacing(path))
            writers.append(stack.enter_context(pq.ParquetWriter(temporary, schema, compression=part.compression)))
        for versions in batches:
            for writer, table in zip(writers, versions, strict=True):
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
