"""Big tables in files: which files there are, the parts they are filled in, and the batches of those of Parquet."""

from __future__ import annotations

__all__ = [
    "BATCH_ROWS",
    "GROUP_ROWS",
    "NO_KEY",
    "PART_ROWS",
    "ParquetPart",
    "TablePart",
    "common_schema",
    "find_files",
    "is_csv",
    "is_parquet",
    "key_types",
    "keys_of",
    "numbered_part",
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

from mcflow.config import BATCH_ROWS
from mcflow.data.files import replacing
from mcflow.data.parquet_tables import ParquetSource
from mcflow.data.tables import FORMATS
from mcflow.errors import DataError

#: Rows after which a file is cut into the next part, so that a run that was stopped has little to do again.
PART_ROWS = 2_000_000

#: Rows of a row group that are kept in memory until it is written; longer ones are cut.
GROUP_ROWS = 1_048_576

#: What a folder is called whose rows have no value for its key.
NO_KEY = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class TablePart:
    """Rows of a file that are filled and written together.

    Parameters
    ----------
    source : Path
        The file.
    output : str
        Where to write it, below the folder of the result.
    n_rows : int
        Rows in it.
    keys : tuple of (str, str)
        Names and values that the folders of the file say, as in ``year=2024``.
    """

    source: Path
    output: str
    n_rows: int
    keys: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ParquetPart(TablePart):
    """Row groups of a Parquet file.

    Parameters
    ----------
    groups : tuple of int
        Numbers of the row groups.
    compression : str
        The codec of the file.
    """

    groups: tuple[int, ...] = ()
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


def is_csv(path: Path) -> bool:
    """Tell by its ending whether a file is CSV, compressed or not.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_csv(Path("a.csv.gz")), is_csv(Path("a.pq"))
    (True, False)
    """
    return path.name.lower().endswith(tuple(ending for ending, kind in FORMATS.items() if kind == "csv"))


def find_files(source: str | Path) -> tuple[Path, list[Path]]:
    """Return the Parquet or CSV files that a name stands for.

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
    DataError
        When there are files of both formats.
    """
    path = Path(source)
    if path.is_file():
        return path.parent, [path]
    if path.is_dir():
        found = [file for file in path.rglob("*") if (is_parquet(file) or is_csv(file)) and file.is_file()]
        root, files = path, sorted(file for file in found if not _is_hidden(file.relative_to(path)))
    else:
        named = glob.glob(str(source), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        files = sorted(Path(name) for name in named if Path(name).is_file())
        root = _common(files)
    if not files:
        raise FileNotFoundError(f"{source} is neither a Parquet file nor a CSV file, nor a folder or pattern with one.")
    _refuse_both(files)
    return root, files


def _refuse_both(files: list[Path]) -> None:
    csv = [file for file in files if is_csv(file)]
    if csv and len(csv) < len(files):
        other = next(file for file in files if not is_csv(file))
        raise DataError(
            f"{csv[0]} is a CSV file and {other} is not, and a table is made of files of one format. Fill them apart, "
            f'with patterns such as "*{csv[0].suffix}" and "*{other.suffix}".'
        )


def _common(files: list[Path]) -> Path:
    folders = [file.parent for file in files]
    while folders and any(not file.is_relative_to(folders[0]) for file in files):
        folders[0] = folders[0].parent
    return folders[0] if folders else Path()


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def parts_of(root: Path, files: Iterable[Path], part_rows: int = PART_ROWS) -> list[ParquetPart]:
    """Cut Parquet files into parts of whole row groups.

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
    list of ParquetPart
        In the order of the rows. A file that is one part keeps its name; the parts of others are numbered.

    Raises
    ------
    DataError
        When a file is no Parquet file.
    """
    return [part for file in files for part in _parts_of_file(root, file, part_rows)]


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Raise `DataError` when a block cannot read a file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        why = str(error).rstrip(". \n")
        raise DataError(f"{file} cannot be read as Parquet: {why}. Check the file, or leave it out.") from error


def _parts_of_file(root: Path, file: Path, part_rows: int) -> list[ParquetPart]:
    with _readable(file):
        metadata = pq.read_metadata(file)
    cuts: list[tuple[list[int], int]] = [([], 0)]
    for group in range(metadata.num_row_groups):
        groups, n_rows = cuts[-1]
        size = metadata.row_group(group).num_rows
        if groups and n_rows + size > part_rows:
            cuts.append(([group], size))
        else:
            cuts[-1] = ([*groups, group], n_rows + size)
    codec, keys = ParquetSource.of(metadata).compression, keys_of(root, file)
    return [
        ParquetPart(file, numbered_part(root, file, number, len(cuts)), n_rows, keys, tuple(groups), codec)
        for number, (groups, n_rows) in enumerate(cuts)
    ]


def keys_of(root: Path, file: Path) -> tuple[tuple[str, str], ...]:
    """Return the names and values that the folders of a file say.

    Parameters
    ----------
    root, file : Path
        From `find_files`.

    Returns
    -------
    tuple of (str, str)

    Examples
    --------
    >>> keys_of(Path("in"), Path("in/year=2024/a.csv"))
    (('year', '2024'),)
    """
    parts = (part.partition("=") for part in file.relative_to(root).parts[:-1])
    return tuple((unquote(name), unquote(value)) for name, sign, value in parts if sign)


def numbered_part(root: Path, file: Path, number: int, count: int) -> str:
    """Return where a part of a file is written, below the folder of the result.

    Parameters
    ----------
    root, file : Path
        From `find_files`.
    number, count : int
        Of the part, and of all parts of the file; the only part keeps the name.

    Returns
    -------
    str

    Examples
    --------
    >>> numbered_part(Path("in"), Path("in/b/rows.csv"), 2, 9)
    'b/rows-00002.csv'
    """
    below = file.relative_to(root)
    name = below if count == 1 else below.with_name(f"{below.stem}-{number:05d}{below.suffix}")
    return name.as_posix()


def common_schema(files: Sequence[Path]) -> pa.Schema:
    """Return the schema that all Parquet files have.

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
    >>> parts = [TablePart(Path("a"), "a", 0, (("year", value),)) for value in ("2024", NO_KEY)]
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


def read_batches(part: ParquetPart, batch_rows: int = BATCH_ROWS) -> Iterator[tuple[pa.Table, bool]]:
    """Read the rows of a part of a Parquet file.

    Parameters
    ----------
    part : ParquetPart
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
    with _readable(part.source), pq.ParquetFile(part.source) as opened:
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


def write_batches(path: Path, part: ParquetPart, schema: pa.Schema, batches: Iterable[tuple[pa.Table, bool]]) -> int:
    """Write a part, whole or not at all.

    Parameters
    ----------
    path : Path
        The file to make; folders are made too.
    part : ParquetPart
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
    paths: Sequence[Path], part: ParquetPart, schema: pa.Schema, batches: Iterable[Sequence[pa.Table]]
) -> None:
    """Write several completed versions of a part at the same time.

    Parameters
    ----------
    paths : sequence of Path
        A file for each version.
    part : ParquetPart
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
