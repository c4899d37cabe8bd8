"""Jobs that fill a table part by part: the shared settings, the parts that are done, and the output folder."""

from __future__ import annotations

__all__ = ["FillJob", "JobOptions", "StreamOutcome", "open_job", "run_job"]

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa

from mcflow.columns.frames import type_named
from mcflow.engines.background import prefetch
from mcflow.engines.scorer import Scorer
from mcflow.errors import OutputError
from mcflow.files import partitioned
from mcflow.files.atomic import holding, write_text
from mcflow.files.csv.reader import CsvProfile, CsvTable
from mcflow.files.partitioned import PART_ROWS, CsvPart, ParquetPart, TablePart

MANIFEST = "_mcflow.json"  #: Identifies the inputs of a result. Readers of Parquet folders ignore its underscore.
PROFILES = "_mcflow-csv.json"  #: Profiles of the CSV files, so that a resumed run does not survey them again.

Batch = tuple[pa.Table, bool]


@dataclass(frozen=True)
class FillJob:
    """Settings shared by all parts of a table that is filled; see `open_job`.

    A job can be pickled, and any process that has the model can fill any part. The file of a part does not depend on
    the process that writes it, and it is either complete or absent.
    """

    folder: Path  #: Output folder.
    given: pa.Schema  #: Schema of the source files.
    types: Mapping[str, pa.DataType]  #: Types of the partition columns (stored in folder names) that the model knows.
    made: pa.Schema  #: Schema of the filled rows.
    draws: int | None = None  #: Number of completed tables; None writes one filled table.
    seed: int = 0  #: Seed of the draws.

    def outputs(self, part: TablePart) -> list[Path]:
        """Return the output files of a part, one per draw."""
        if self.draws is None:
            return [self.folder / part.output]
        return [self.folder / f"draw={k}" / part.output for k in range(1, self.draws + 1)]

    def is_done(self, part: TablePart) -> bool:
        """Return whether all output files of a part exist."""
        return all(path.exists() for path in self.outputs(part))

    def do(self, part: TablePart, scorer: Scorer, listen: Callable[[int], None] = lambda done: None) -> None:
        """Fill and write a part; reading, filling and writing overlap."""
        paths = self.outputs(part)
        if isinstance(part, CsvPart):
            records = prefetch(self._completed_records(part, scorer), depth=1)
            partitioned.write_records(paths, part, _counted(records, listen))
        elif isinstance(part, ParquetPart):
            kept = pa.schema([self.made.field(name) for name in self._kept], self.made.metadata)
            if self.draws is None:
                partitioned.write_batches(paths[0], part, kept, _counted(prefetch(self._filled(part, scorer)), listen))
            else:
                partitioned.write_draws(paths, part, kept, _counted(prefetch(self._drawn(part, scorer)), listen))

    @property
    def _kept(self) -> list[str]:
        """Return the columns that are written: all but the partition columns."""
        return [name for name in self.given.names if name in self.made.names]

    def _rows(self, part: TablePart, scorer: Scorer) -> Iterator[Batch]:
        for batch, last in prefetch(partitioned.read_rows(part)):
            yield scorer.in_order(partitioned.with_keys(batch, part, self.types)), last

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

    def _completed_records(self, part: CsvPart, scorer: Scorer) -> Iterator[tuple[CsvTable, list[pa.Table]]]:
        for read in prefetch(partitioned.read_records(part), depth=1):
            table = scorer.in_order(partitioned.with_keys(read.table, part, self.types))
            if not table.num_rows:
                draws: Iterable[pa.Table] = [table] * (self.draws or 1)
            else:
                draws = [scorer.fill(table)] if self.draws is None else scorer.draw(table, self.draws, self.seed)
            yield read, [one.select(self._kept) for one in draws]


@dataclass(frozen=True)
class StreamOutcome:
    """Summary of a run that filled a table part by part."""

    parts: int  #: Number of parts of the result.
    found: int  #: Number of parts that an earlier run had completed.
    rows: int  #: Number of rows that this run filled.
    seconds: float  #: Duration of this run.


class JobOptions(TypedDict, total=False):
    """Options of a job that all engines share; see `impute_dataset`."""

    draws: int | None
    seed: int
    part_rows: int


def run_job(
    opened: AbstractContextManager[tuple[FillJob, list[TablePart]]],
    work: Callable[[FillJob, list[TablePart], Callable[[int], None]], None],
    listen: Callable[[int, int], None],
) -> StreamOutcome:
    """Run `work` on the parts of a job that are not done yet."""
    start = time.perf_counter()
    with opened as (job, parts):
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
    """Lock the output folder for a block, and yield the job and all of its parts, including those that are done.

    See `impute_dataset` for the parameters and the errors.
    """
    folder = Path(output)
    known = _load_profiles(folder / PROFILES, part_rows)
    table = partitioned.open_table(source, scorer.imputer.schema_, part_rows=part_rows, known=known)
    fitted = {str(column.name): column.dtype for column in scorer.imputer.schema_.columns}
    keys = partitioned.key_types(table.parts)
    types = {name: type_named(fitted[name]) or pa.string() for name in keys if name in fitted}
    fields = [*table.schema, *(pa.field(name, kind) for name, kind in types.items())]
    whole = pa.schema(fields, metadata=table.schema.metadata).empty_table()
    job = FillJob(folder, table.schema, types, scorer.schema(scorer.in_order(whole).schema), draws, seed)
    listed = [[file.relative_to(table.root).as_posix(), *_stamp(file)] for file in table.files]
    identity = {  # everything that determines the result
        "files": len(table.files),
        "sources": hashlib.sha256(json.dumps(listed).encode()).hexdigest(),
        "model": scorer.fingerprint(),
        "draws": draws,
        "seed": seed if draws is not None else None,
        "part_rows": part_rows,
    }
    with _claimed(folder, identity):
        if table.profiles and not known:
            paths = [(one, one.reader.text.path) for one in table.profiles]
            files = [[str(path), *_stamp(path), one.to_dict()] for one, path in paths]
            write_text(folder / PROFILES, json.dumps({"part_rows": part_rows, "files": files}) + "\n")
        yield job, list(table.parts)


def _load_profiles(path: Path, part_rows: int) -> dict[Path, CsvProfile]:
    """Load the profiles of an earlier run; return none if a CSV file has changed since."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):  # absent or incomplete
        return {}
    files = [(Path(name), stamp, given) for name, *stamp, given in found["files"]]
    changed = any(not file.is_file() or list(_stamp(file)) != age for file, age, _ in files)
    if changed or found["part_rows"] != part_rows:
        return {}
    return {file: CsvProfile.from_dict(file, given) for file, _, given in files}


def _stamp(file: Path) -> tuple[int, int]:
    """Return the size and the modification time of a file."""
    facts = file.stat()
    return facts.st_size, facts.st_mtime_ns


def _counted(batches: Iterable[Any], listen: Callable[[int], None]) -> Iterator[Any]:
    """Pass batches on and report the number of rows so far."""
    done = 0
    for batch in batches:
        yield batch
        done += (batch[0].table if isinstance(batch[0], CsvTable) else batch[0]).num_rows
        listen(done)


@contextlib.contextmanager
def _claimed(folder: Path, facts: dict[str, Any]) -> Iterator[None]:
    """Lock a folder, and check that it is empty or holds parts of the same result."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file, but the output has to be a folder. Give another name.")
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / MANIFEST
    with holding(folder / ".lock", str(folder)):
        if manifest.exists():
            if json.loads(manifest.read_text()) != facts:
                raise OutputError(
                    f"{folder} holds the result of another model, other source files or other options. Give another "
                    "folder, or delete this one."
                )
        elif any(partitioned.is_parquet(path) or partitioned.is_csv(path) for path in folder.rglob("*")):
            raise OutputError(f"{folder} holds tables that do not belong to this result. Give another folder.")
        else:
            write_text(manifest, json.dumps(facts, indent=1) + "\n")
        yield
