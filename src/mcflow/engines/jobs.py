"""A table to fill in parts: what is the same for all of them, which are done, and a folder that only one run holds."""

from __future__ import annotations

__all__ = ["FillJob", "StreamOutcome", "open_job", "run_job"]

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mcflow.data.big_tables import BigTable, open_table, read_rows
from mcflow.data.csv_parts import CsvPart, read_records, write_records
from mcflow.data.csv_profile import CsvProfile
from mcflow.data.csv_reader import CsvTable
from mcflow.data.files import replacing
from mcflow.data.locks import holding
from mcflow.data.parts import (
    PART_ROWS,
    ParquetPart,
    TablePart,
    is_csv,
    is_parquet,
    key_types,
    with_keys,
    write_batches,
    write_draws,
)
from mcflow.data.series import type_named
from mcflow.engines.pipeline import ahead
from mcflow.engines.scorer import Scorer
from mcflow.errors import OutputError

#: Says what the folder of a result was made from; readers of Parquet folders pass over it.
MANIFEST = "_mcflow.json"

#: What was found out of CSV files when they were looked through.
PROFILES = "_mcflow-csv.json"

Batch = tuple[pa.Table, bool]


@dataclass(frozen=True)
class FillJob:
    """What is the same for all parts of a table; any worker with the model can do any part.

    Parameters
    ----------
    folder : Path
        Of the result.
    given : pyarrow.Schema
        Of the files.
    types : mapping
        Columns that folders say and that the model knows, by name, and their types.
    made : pyarrow.Schema
        What the model makes of the rows.
    draws : int, optional
        How many completed tables to write instead of one.
    seed : int
        Decides the draws.

    Notes
    -----
    It can be sent to other processes. A part's file is the same whoever makes it, and it is whole or not there.
    """

    folder: Path
    given: pa.Schema
    types: Mapping[str, pa.DataType]
    made: pa.Schema
    draws: int | None = None
    seed: int = 0

    def outputs(self, part: TablePart) -> list[Path]:
        """Return the files that a part becomes.

        Parameters
        ----------
        part : TablePart
            Of the table.

        Returns
        -------
        list of Path
            One, or one for each draw.
        """
        if self.draws is None:
            return [self.folder / part.output]
        return [self.folder / f"draw={k}" / part.output for k in range(1, self.draws + 1)]

    def is_done(self, part: TablePart) -> bool:
        """Tell whether the files of a part are there.

        Parameters
        ----------
        part : TablePart
            Of the table.

        Returns
        -------
        bool
        """
        return all(path.exists() for path in self.outputs(part))

    def do(self, part: TablePart, scorer: Scorer, listen: Callable[[int], None] = lambda done: None) -> None:
        """Fill a part; reading, filling and writing overlap.

        Parameters
        ----------
        part : TablePart
            Of the table.
        scorer : Scorer
            The model that the job was opened with.
        listen : callable, optional
            Called with the rows of the part that are done, now and then.
        """
        paths = self.outputs(part)
        if isinstance(part, CsvPart):
            write_records(paths, part, _heard(ahead(self._completed(part, scorer), depth=1), listen))
        elif isinstance(part, ParquetPart):
            kept = pa.schema([self.made.field(name) for name in self._kept], self.made.metadata)
            if self.draws is None:
                write_batches(paths[0], part, kept, _heard(ahead(self._filled(part, scorer)), listen))
            else:
                write_draws(paths, part, kept, _heard(ahead(self._drawn(part, scorer)), listen))

    @property
    def _kept(self) -> list[str]:
        """Return the columns that are written: not those that only folders say."""
        return [name for name in self.given.names if name in self.made.names]

    def _rows(self, part: TablePart, scorer: Scorer) -> Iterator[Batch]:
        for batch, last in ahead(read_rows(part)):
            yield scorer.in_order(with_keys(batch, part, self.types)), last

    def _filled(self, part: TablePart, scorer: Scorer) -> Iterator[Batch]:
        for table, last in self._rows(part, scorer):
            filled = scorer.fill(table, self.made) if table.num_rows else self.made.empty_table()
            yield filled.select(self._kept), last

    def _drawn(self, part: TablePart, scorer: Scorer) -> Iterator[list[pa.Table]]:
        n_draws = self.draws or 1
        for table, _ in self._rows(part, scorer):
            drawn = scorer.draw(table, n_draws, self.seed, schema=self.made)
            empty = [self.made.empty_table()] * n_draws
            yield [one.select(self._kept) for one in (drawn if table.num_rows else empty)]

    def _completed(self, part: CsvPart, scorer: Scorer) -> Iterator[tuple[CsvTable, list[pa.Table]]]:
        for read in ahead(read_records(part), depth=1):
            table = scorer.in_order(with_keys(read.table, part, self.types))
            if not table.num_rows:
                draws: Iterable[pa.Table] = [table] * (self.draws or 1)
            else:
                draws = [scorer.fill(table)] if self.draws is None else scorer.draw(table, self.draws, self.seed)
            yield read, [one.select(self._kept) for one in draws]


@dataclass(frozen=True)
class StreamOutcome:
    """What was done.

    Parameters
    ----------
    parts, found : int
        Files of the result, and how many of them were there from an earlier run.
    rows : int
        Rows that were filled now.
    seconds : float
        How long that took.
    """

    parts: int
    found: int
    rows: int
    seconds: float


def run_job(
    source: str | Path,
    output: str | Path,
    scorer: Scorer,
    work: Callable[[FillJob, list[TablePart], Callable[[int], None]], None],
    *,
    draws: int | None,
    seed: int,
    part_rows: int,
    listen: Callable[[int, int], None],
) -> StreamOutcome:
    """Have all parts done that are not there yet.

    Parameters
    ----------
    source, output, scorer, draws, seed, part_rows
        As for `open_job`.
    work : callable
        Does parts, if there are any to do; called with the job, these parts, and what is to be told of the rows of
        them that are done.
    listen : callable
        Called with the rows that are done, those of earlier runs too, and all rows.

    Returns
    -------
    StreamOutcome
    """
    start = time.perf_counter()
    with open_job(source, output, scorer, draws=draws, seed=seed, part_rows=part_rows) as (job, parts):
        waiting = [part for part in parts if not job.is_done(part)]
        total, rows = (sum(part.n_rows for part in some) for some in (parts, waiting))
        if waiting:
            work(job, waiting, lambda done: listen(total - rows + done, total))
    return StreamOutcome(len(parts), len(parts) - len(waiting), rows, time.perf_counter() - start)


@contextlib.contextmanager
def open_job(
    source: str | Path,
    output: str | Path,
    scorer: Scorer,
    *,
    draws: int | None = None,
    seed: int = 0,
    part_rows: int = PART_ROWS,
) -> Iterator[tuple[FillJob, list[TablePart]]]:
    """Hold the folder of a result, and say what is to be done.

    Parameters
    ----------
    source : path-like
        A file, a folder or a pattern; see `mcflow.data.parts.find_files`.
    output : path-like
        The folder of the result.
    scorer : Scorer
        The fitted model.
    draws : int, optional
        How many completed tables to write instead of one.
    seed : int, default=0
        Decides the draws.
    part_rows : int
        Rows after which a part ends.

    Yields
    ------
    job : FillJob
    parts : list of TablePart
        All parts in the order of the rows; some may be done.

    Raises
    ------
    DataError
        When files differ in their columns, or a file is damaged.
    OutputError
        When the folder holds something else, or another run holds it.
    """
    folder = Path(output)
    known = _load_profiles(folder / PROFILES, part_rows)
    table = open_table(source, scorer.imputer.schema_, part_rows=part_rows, known=known)
    types = _key_types(table.parts, scorer)
    job = FillJob(folder, table.schema, types, _made(table.schema, types, scorer), draws, seed)
    with _claimed(folder, _facts(scorer, table, draws, seed) | {"part_rows": part_rows}):
        if table.profiles and not known:
            _save_profiles(folder / PROFILES, table.profiles, part_rows)
        yield job, list(table.parts)


def _made(given: pa.Schema, types: Mapping[str, pa.DataType], scorer: Scorer) -> pa.Schema:
    """Return what the model makes of the rows, with the columns of folders."""
    fields = [*given, *(pa.field(name, kind) for name, kind in types.items())]
    whole = pa.schema(fields, metadata=given.metadata)
    return scorer.schema(scorer.in_order(whole.empty_table()).schema)


def _save_profiles(path: Path, profiles: Sequence[CsvProfile], part_rows: int) -> None:
    """Keep what was found out of CSV files for a run that goes on after a stop."""
    files = [[str(one.looks.text.path), *_age(one.looks.text.path), one.to_dict()] for one in profiles]
    with replacing(path) as temporary:
        temporary.write_text(json.dumps({"part_rows": part_rows, "files": files}) + "\n")


def _load_profiles(path: Path, part_rows: int) -> dict[Path, CsvProfile]:
    """Return what an earlier run found out of CSV files that are as they were; nothing if one is not."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):  # not there, or torn
        return {}
    files = [(Path(name), age, given) for name, *age, given in found["files"]]
    if found["part_rows"] != part_rows or any(not file.is_file() or list(_age(file)) != age for file, age, _ in files):
        return {}
    return {file: CsvProfile.from_dict(file, given) for file, _, given in files}


def _age(file: Path) -> tuple[int, int]:
    """Return what tells a file from one that was written to since."""
    facts = file.stat()
    return facts.st_size, facts.st_mtime_ns


def _heard(batches: Iterable[Any], listen: Callable[[int], None]) -> Iterator[Any]:
    done = 0
    for batch in batches:
        yield batch
        done += (batch[0].table if isinstance(batch[0], CsvTable) else batch[0]).num_rows
        listen(done)


def _key_types(parts: Sequence[TablePart], scorer: Scorer) -> dict[str, pa.DataType]:
    """Return the columns of folders that the model knows, with their types at the fit."""
    known = {str(column.name): column.dtype for column in scorer.imputer.schema_.columns}
    return {name: type_named(known[name]) or pa.string() for name in key_types(parts) if name in known}


def _facts(scorer: Scorer, table: BigTable, draws: int | None, seed: int) -> dict[str, Any]:
    """Return everything that decides the result, but for the parts."""
    listed = [[file.relative_to(table.root).as_posix(), *_age(file)] for file in table.files]
    known = json.dumps(listed).encode()
    return {
        "files": len(table.files),
        "sources": hashlib.sha256(known).hexdigest(),
        "model": scorer.fingerprint(),
        "draws": draws,
        "seed": seed if draws is not None else None,
    }


@contextlib.contextmanager
def _claimed(folder: Path, facts: dict[str, Any]) -> Iterator[None]:
    """Hold a folder for one run, and see that it is empty or holds parts of the same result."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file, and a folder is needed for the result. Give another name.")
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / MANIFEST
    with holding(folder / ".lock", str(folder)):
        if manifest.exists():
            if json.loads(manifest.read_text()) != facts:
                raise OutputError(
                    f"{folder} holds the result of another model, of other files or other flags. Give another folder, "
                    "or remove it."
                )
        elif any(is_parquet(path) or is_csv(path) for path in folder.rglob("*")):
            raise OutputError(f"{folder} holds tables that are no part of this result. Give another folder.")
        else:
            with replacing(manifest) as temporary:
                temporary.write_text(json.dumps(facts, indent=1) + "\n")
        yield
