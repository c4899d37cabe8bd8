"""Fill Parquet files of any size on one machine: batch by batch, and on where an earlier run was stopped."""

from __future__ import annotations

__all__ = ["StreamOutcome", "impute_dataset"]

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from mcflow.data.files import replacing
from mcflow.data.locks import holding
from mcflow.data.parts import (
    TablePart,
    common_schema,
    find_files,
    key_types,
    parts_of,
    read_batches,
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

Batch = tuple[pa.Table, bool]


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


def impute_dataset(
    source: str | Path,
    output: str | Path,
    scorer: Scorer,
    *,
    draws: int | None = None,
    seed: int = 0,
    listen: Callable[[int, int], None] = lambda done, total: None,
) -> StreamOutcome:
    """Fill Parquet files, with memory for a few batches of rows.

    Parameters
    ----------
    source : path-like
        A file, a folder or a pattern; see `mcflow.data.parts.find_files`.
    output : path-like
        The folder of the result; the folders and names below it are those of the source. Files of more than two million
        rows are cut into several, numbered in order.
    scorer : Scorer
        The fitted model.
    draws : int, optional
        Multiple imputation: write this many tables, in folders ``draw=1``, ``draw=2`` and so on.
    seed : int, default=0
        Decides the draws.
    listen : callable, optional
        Called with the rows that are done and all rows, now and then.

    Returns
    -------
    StreamOutcome

    Raises
    ------
    DataError
        When files differ in their columns, or a file is damaged.
    OutputError
        When the folder holds something else.

    Notes
    -----
    Each file of the result is written under a passing name and renamed when it is whole. Run the same call again after
    a stop: what is there is not done again.
    """
    start, folder = time.perf_counter(), Path(output)
    root, files = find_files(source)
    parts = parts_of(root, files)
    given, types = common_schema(files), _key_types(parts, scorer)
    with _claimed(folder, _facts(scorer, root, files, draws, seed)):
        job = _Job(folder, scorer, given, types, draws, seed)
        waiting = [part for part in parts if not job.is_done(part)]
        total, rows = sum(part.n_rows for part in parts), 0
        before = total - sum(part.n_rows for part in waiting)
        for part in waiting:
            job.do(part, partial(_tell, listen, before + rows, total))
            rows += part.n_rows
    return StreamOutcome(len(parts), len(parts) - len(waiting), rows, time.perf_counter() - start)


def _tell(listen: Callable[[int, int], None], before: int, total: int, done: int) -> None:
    listen(before + done, total)


@dataclass(frozen=True)
class _Job:
    """What is the same for all parts."""

    folder: Path
    scorer: Scorer
    given: pa.Schema
    types: Mapping[str, pa.DataType]
    draws: int | None
    seed: int

    @cached_property
    def schema(self) -> pa.Schema:
        """What the model makes of the rows, with the columns of folders."""
        fields = [*self.given, *(pa.field(name, kind) for name, kind in self.types.items())]
        whole = pa.schema(fields, metadata=self.given.metadata)
        return self.scorer.schema(self._in_order(whole.empty_table()).schema)

    def _in_order(self, table: pa.Table) -> pa.Table:
        """Put columns into the order of the fit, where they are the same ones."""
        names = [str(column.name) for column in self.scorer.imputer.schema_.columns]
        return table.select(names) if sorted(names) == sorted(table.column_names) else table

    def _rows(self, part: TablePart) -> Iterator[Batch]:
        for batch, last in ahead(read_batches(part)):
            yield self._in_order(with_keys(batch, part, self.types)), last

    def outputs(self, part: TablePart) -> list[Path]:
        if self.draws is None:
            return [self.folder / part.output]
        return [self.folder / f"draw={k}" / part.output for k in range(1, self.draws + 1)]

    def is_done(self, part: TablePart) -> bool:
        return all(path.exists() for path in self.outputs(part))

    def do(self, part: TablePart, listen: Callable[[int], None]) -> None:
        """Fill a part; reading, filling and writing overlap."""
        made = self.schema
        kept = pa.schema([made.field(name) for name in self.given.names if name in made.names], made.metadata)
        paths = self.outputs(part)
        if self.draws is None:
            write_batches(paths[0], part, kept, _heard(ahead(self._filled(part, kept.names)), listen))
        else:
            write_draws(paths, part, kept, _heard(ahead(self._drawn(part, kept.names)), listen))

    def _filled(self, part: TablePart, names: list[str]) -> Iterator[Batch]:
        for table, last in self._rows(part):
            yield self.scorer.fill(table, self.schema).select(names), last

    def _drawn(self, part: TablePart, names: list[str]) -> Iterator[list[pa.Table]]:
        for table, _ in self._rows(part):
            drawn = self.scorer.draw(table, self.draws or 1, self.seed, schema=self.schema)
            yield [one.select(names) for one in drawn]


def _heard(batches: Iterable[Any], listen: Callable[[int], None]) -> Iterator[Any]:
    done = 0
    for batch in batches:
        yield batch
        done += batch[0].num_rows
        listen(done)


def _key_types(parts: list[TablePart], scorer: Scorer) -> dict[str, pa.DataType]:
    """Return the columns of folders that the model knows, with their types at the fit."""
    known = {str(column.name): column.dtype for column in scorer.imputer.schema_.columns}
    return {name: type_named(known[name]) or pa.string() for name in key_types(parts) if name in known}


def _facts(scorer: Scorer, root: Path, files: list[Path], draws: int | None, seed: int) -> dict[str, Any]:
    """Return everything that decides the result."""
    listed = [[file.relative_to(root).as_posix(), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
    known = json.dumps(listed).encode()
    return {
        "files": len(files),
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
        elif any(path.suffix == ".parquet" for path in folder.rglob("*")):
            raise OutputError(f"{folder} holds Parquet files that are no part of this result. Give another folder.")
        else:
            with replacing(manifest) as temporary:
                temporary.write_text(json.dumps(facts, indent=1) + "\n")
        yield
