"""Big tables in CSV files: the parts they are filled in, their batches of records, and the files they become."""

from __future__ import annotations

__all__ = ["CsvPart", "csv_parts", "profiles_of", "read_records", "types_of_fit", "types_of_model", "write_records"]

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from mcflow.data.csv_evidence import wider_type
from mcflow.data.csv_profile import CsvBatch, CsvLooks, CsvProfile, profile_csv
from mcflow.data.csv_reader import CsvTable
from mcflow.data.csv_writer import write_csv
from mcflow.data.files import replacing
from mcflow.data.parts import BATCH_ROWS, PART_ROWS, TablePart, keys_of, numbered_part
from mcflow.data.schema import TableSchema
from mcflow.data.tables import type_as_fitted
from mcflow.errors import DataError, OutputError


@dataclass(frozen=True, kw_only=True)
class CsvPart(TablePart):
    """Records of a CSV file.

    Parameters
    ----------
    looks : CsvLooks
        How the file is written and read.
    batches : tuple of CsvBatch
        The records.
    """

    looks: CsvLooks
    batches: tuple[CsvBatch, ...]


def profiles_of(
    files: Sequence[Path], known: Mapping[Path, CsvProfile], *, part_rows: int = PART_ROWS
) -> list[CsvProfile]:
    """Look through CSV files.

    Parameters
    ----------
    files : sequence of Path
        With the same columns.
    known : mapping of CsvProfile
        Of files that were looked through before.
    part_rows : int
        Rows after which a part ends; batches are no longer.

    Returns
    -------
    list of CsvProfile

    Raises
    ------
    DataError
        When a file cannot be read, or has other columns than the first.
    """
    found: list[CsvProfile] = []
    for file in files:
        default = "\t" if ".tsv" in file.suffixes else ","
        rows = min(BATCH_ROWS, part_rows)
        found.append(known[file] if file in known else profile_csv(file, default, batch_rows=rows))
        _check_names(found[0].looks, found[-1].looks)
    return found


def _check_names(first: CsvLooks, other: CsvLooks) -> None:
    if first.names == other.names:
        return
    new = [name for name in other.names if name not in first.names]
    gone = [name for name in first.names if name not in other.names]
    why = f"{new[0]!r} is new" if new else f"{gone[0]!r} is not there" if gone else "the order of the columns"
    raise DataError(
        f"{other.text.path} has other columns than {first.text.path}: {why}. Fill files with the same columns "
        "together, and others apart."
    )


def csv_parts(
    root: Path,
    profiles: Iterable[CsvProfile],
    types: Callable[[CsvLooks], tuple[pa.DataType, ...]],
    part_rows: int = PART_ROWS,
) -> list[CsvPart]:
    """Cut CSV files into parts of whole batches.

    Parameters
    ----------
    root : Path
        The folder that the files are in.
    profiles : iterable of CsvProfile
        From `profiles_of`.
    types : callable
        Says what the columns of a file are read as.
    part_rows : int
        Rows after which a part ends.

    Returns
    -------
    list of CsvPart
        In the order of the rows. A file that is one part keeps its name; the parts of others are numbered. A compressed
        file, and one in UTF-16, is one part, as reading cannot begin in the middle of it.
    """
    parts = []
    for profile in profiles:
        looks = replace(profile.looks, types=types(profile.looks))
        file, cuts = looks.text.path, _cut(profile, part_rows)
        keys = keys_of(root, file)
        for number, batches in enumerate(cuts):
            name, n_rows = numbered_part(root, file, number, len(cuts)), sum(batch.n_rows for batch in batches)
            parts.append(CsvPart(file, name, n_rows, keys, looks=looks, batches=tuple(batches)))
    return parts


def _cut(profile: CsvProfile, part_rows: int) -> list[list[CsvBatch]]:
    if not profile.looks.text.has_places:
        return [list(profile.batches)]
    cuts: list[list[CsvBatch]] = [[]]
    for batch in profile.batches:
        n_rows = sum(one.n_rows for one in cuts[-1])
        if cuts[-1] and n_rows + batch.n_rows > part_rows:
            cuts.append([batch])
        else:
            cuts[-1].append(batch)
    return cuts


def types_of_model(schema: TableSchema) -> Callable[[CsvLooks], tuple[pa.DataType, ...]]:
    """Return who says what the columns of a file are read as when a fitted model fills it.

    Parameters
    ----------
    schema : TableSchema
        Of the model.

    Returns
    -------
    callable
        Gives what all cells of the file have, or what they had at the fit where that is wider; see
        `mcflow.data.tables.as_fitted`.
    """
    known = {str(column.name): column.dtype for column in schema.columns}

    def types(looks: CsvLooks) -> tuple[pa.DataType, ...]:
        pairs = zip(looks.names, looks.types, strict=True)
        return tuple(type_as_fitted(kind, known.get(name, "")) for name, kind in pairs)

    return types


def types_of_fit(profiles: Sequence[CsvProfile]) -> Callable[[CsvLooks], tuple[pa.DataType, ...]]:
    """Return who says what the columns of files are read as when a model is fitted on all of them.

    Parameters
    ----------
    profiles : sequence of CsvProfile
        Of all files.

    Returns
    -------
    callable
        Gives the same types for every file: those that the cells of all files have.
    """
    looks = [profile.looks for profile in profiles]
    common = []
    for place in range(len(looks[0].names)):
        found = [one.types[place] for one in looks if one.seen[place]]
        common.append(reduce(wider_type, found) if found else pa.string())
    return lambda looks: tuple(common)


def read_records(part: CsvPart) -> Iterator[CsvTable]:
    """Read the records of a part.

    Parameters
    ----------
    part : CsvPart
        From `csv_parts`.

    Yields
    ------
    CsvTable
        A batch, as if it were a file with the header of its own. A part without records gives an empty one.

    Raises
    ------
    DataError
        When the file is not what it was.
    """
    looks = part.looks
    if not part.batches:
        yield looks.read(b"")
    pieces = looks.text.pieces([(batch.start, batch.stop) for batch in part.batches])
    for batch, piece in zip(part.batches, pieces, strict=True):
        read = looks.read(piece, batch.lines)
        if read.table.num_rows != batch.n_rows:
            raise DataError(f"{part.source} was written to since it was looked through. Start again.")
        yield read


def write_records(paths: Sequence[Path], part: CsvPart, batches: Iterable[tuple[CsvTable, Sequence[pa.Table]]]) -> None:
    """Write one or several completed versions of a part, whole or not at all.

    Parameters
    ----------
    paths : sequence of Path
        A file for each version; folders are made too.
    part : CsvPart
        Where the records came from.
    batches : iterable of (CsvTable, sequence of pyarrow.Table)
        Records as they were read, and filled in every version.

    Raises
    ------
    OutputError
        When a file cannot be written, or its encoding lacks a character of a filled cell.
    """
    with contextlib.ExitStack() as stack:
        files = []
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = stack.enter_context(replacing(path))
            files.append(stack.enter_context(_packing(temporary, part.source.suffix.lower())))
        begun = False
        for read, versions in batches:
            for file, filled in zip(files, versions, strict=True):
                whole = _written(part, filled, read)
                file.write(whole[len(_head(part, filled)) :] if begun else whole)
            begun = True


def _written(part: CsvPart, filled: pa.Table, read: CsvTable) -> bytes:
    try:
        return write_csv(filled, read.table, read.texts, read.source)
    except UnicodeEncodeError as error:
        lacking, encoding = error.object[error.start : error.end], part.looks.text.encoding
        raise OutputError(f"{part.output} cannot be written as {encoding}, which lacks {lacking!r}.") from error


def _head(part: CsvPart, filled: pa.Table) -> bytes:
    """Return the header as it is written, which only the first batch of a file keeps."""
    empty = part.looks.read(b"")
    return _written(part, filled.slice(0, 0), empty)


@contextlib.contextmanager
def _packing(path: Path, ending: str) -> Iterator[IO[bytes] | Any]:
    """Open a file to write, compressed as its ending says."""
    if ending == ".zst":
        with pa.output_stream(str(path), compression="zstd") as opened:
            yield opened
        return
    with path.open("wb") as opened:
        if ending == ".gz":
            packed = _Packed(opened)
            yield packed
            packed.end()
        else:
            yield opened


class _Packed:
    """A gzip file that is the same for the same content."""

    def __init__(self, opened: IO[bytes]) -> None:
        self.opened = opened
        self.packer = zlib.compressobj(6, zlib.DEFLATED, 31)

    def write(self, data: bytes) -> None:
        self.opened.write(self.packer.compress(data))

    def end(self) -> None:
        self.opened.write(self.packer.flush())
