"""Tables that do not fit in memory, in Parquet or CSV files: their columns, their parts and their rows."""

from __future__ import annotations

__all__ = ["BigTable", "open_table", "read_rows"]

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from mcflow.data.csv_parts import CsvPart, csv_parts, profiles_of, read_records, types_of_fit, types_of_model
from mcflow.data.csv_profile import CsvProfile
from mcflow.data.parts import (
    PART_ROWS,
    ParquetPart,
    TablePart,
    common_schema,
    find_files,
    is_csv,
    key_types,
    parts_of,
    read_batches,
    with_keys,
)
from mcflow.data.schema import TableSchema


@dataclass(frozen=True)
class BigTable:
    """Files that are one table.

    Parameters
    ----------
    root : Path
        The folder that all of them are in.
    files : tuple of Path
        In their order.
    parts : tuple of TablePart
        In the order of the rows.
    schema : pyarrow.Schema
        Of the files, without the columns that folders say. CSV files may differ from it in their types.
    profiles : tuple of CsvProfile
        What was found out of CSV files.
    """

    root: Path
    files: tuple[Path, ...]
    parts: tuple[TablePart, ...]
    schema: pa.Schema
    profiles: tuple[CsvProfile, ...] = ()

    @property
    def n_rows(self) -> int:
        """Return the rows of all parts."""
        return sum(part.n_rows for part in self.parts)

    def rows(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield batches of all rows, with the columns of folders.

        Yields
        ------
        first : int
            The place of the batch's first row in the whole table.
        batch : pyarrow.Table
        """
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
) -> BigTable:
    r"""Find the files of a table and cut them into parts.

    Parameters
    ----------
    source : path-like
        A file, a folder or a pattern; see `mcflow.data.parts.find_files`.
    fitted : TableSchema, optional
        Of the model that is to fill the table: the cells of CSV files are read as at the fit where that is wider.
        Without it all CSV files are read with the same types.
    part_rows : int
        Rows after which a part ends.
    known : mapping of CsvProfile, optional
        Of CSV files that were looked through before.

    Returns
    -------
    BigTable

    Raises
    ------
    FileNotFoundError
        When there is no file.
    DataError
        When a file cannot be read, or files do not go together.

    Notes
    -----
    CSV files are looked through once, from beginning to end: whether a column holds whole numbers, say, is decided by
    all of its cells.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rows.csv"
    >>> _ = path.write_text("a,b\n1,x\n2.5,y\n")
    >>> table = open_table(path)
    >>> table.n_rows, [str(kind) for kind in table.schema.types]
    (2, ['double', 'string'])
    """
    root, files = find_files(source)
    if not is_csv(files[0]):
        return BigTable(root, tuple(files), tuple(parts_of(root, files, part_rows)), common_schema(files))
    profiles = profiles_of(files, known or {}, part_rows=part_rows)
    types = types_of_fit(profiles) if fitted is None else types_of_model(fitted)
    parts = csv_parts(root, profiles, types, part_rows)
    looks = parts[0].looks
    schema = pa.schema(list(zip(looks.names, looks.types, strict=True)))
    return BigTable(root, tuple(files), tuple(parts), schema, tuple(profiles))


def read_rows(part: TablePart) -> Iterator[tuple[pa.Table, bool]]:
    """Read the rows of a part.

    Parameters
    ----------
    part : TablePart
        Of a `BigTable`.

    Yields
    ------
    batch : pyarrow.Table
        Rows in their order.
    last : bool
        Whether a row group of a Parquet file ends with it.
    """
    if isinstance(part, CsvPart):
        for read in read_records(part):
            yield read.table, True
    elif isinstance(part, ParquetPart):
        yield from read_batches(part)
