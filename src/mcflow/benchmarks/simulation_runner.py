"""Replications of simulated studies: several at a time, one file a study, and on from where it was."""

from __future__ import annotations

__all__ = ["SimulationOutcome", "SimulationStore", "run_simulation"]

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from mcflow.benchmarks.keys import cells_folder
from mcflow.benchmarks.machine import machine, versions
from mcflow.benchmarks.simulation import DESIGNS, Study, replicate
from mcflow.data.files import replacing
from mcflow.data.locks import holding

#: Lines of progress that a study gets.
_LINES = 10


@dataclass(frozen=True)
class SimulationOutcome:
    """What a run did: replications that were there before, those done now, and those that failed."""

    found: int
    done: int
    failed: int


class SimulationStore:
    """A folder with a file for each study.

    Parameters
    ----------
    folder : Path
        Made when it is not there.

    Notes
    -----
    A file is written anew with every replication, to a temporary name and then renamed, so it is whole at any moment.
    One that cannot be read is taken for none.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = SimulationStore(Path(folder))
    ...     store.write(Study("linear", "full"), {0: {"estimate": [1.0, 1.0, -0.5]}})
    ...     sorted(store.read(Study("linear", "full"))), len(store.rows())
    ([0], 1)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells = cells_folder(folder)

    @cached_property
    def _about(self) -> dict[str, Any]:
        return {"machine": machine(), "versions": versions()}

    def read(self, study: Study) -> dict[int, dict[str, Any]]:
        """Return the replications of a study by number."""
        row = _read(self.cells / f"{study.name}.json")
        if row is None or row["key"] != study.key:
            return {}
        return {int(number): found for number, found in row["replications"].items()}

    def write(self, study: Study, found: dict[int, dict[str, Any]]) -> None:
        """Keep the replications of a study, in place of earlier ones."""
        row = {
            "key": study.key,
            "study": asdict(study),
            "terms": list(DESIGNS[study.design].truth),
            **self._about,
        }
        lines = ",\n".join(f'  "{number}": {json.dumps(found[number], sort_keys=True)}' for number in sorted(found))
        text = json.dumps(row, indent=1, sort_keys=True, allow_nan=False)
        with replacing(self.cells / f"{study.name}.json") as temporary:
            temporary.write_text(f'{text[:-2]},\n "replications": {{\n{lines}\n }}\n}}\n')

    def rows(self) -> list[dict[str, Any]]:
        """Return all files that can be read, in the order of their names."""
        return [row for path in sorted(self.cells.glob("*.json")) if (row := _read(path)) is not None]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        row = json.loads(path.read_text())
    except (ValueError, OSError):
        return None
    return row if isinstance(row, dict) and {"key", "study", "replications"} <= row.keys() else None


def run_simulation(
    studies: Sequence[Study],
    replications: int,
    output: Path,
    *,
    jobs: int = 2,
    threads: int = 1,
    retry: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> SimulationOutcome:
    """Do the replications that are not in a folder yet.

    Parameters
    ----------
    studies : sequence of Study
        In the order in which they are done.
    replications : int
        Of each study, numbered from 0.
    output : Path
        Folder of the results.
    jobs : int, default=2
        Processes; with one, replications are done in this process.
    threads : int, default=1
        Of each process.
    retry : bool, default=False
        Do again what failed.
    say : callable, optional
        Takes lines of progress.

    Returns
    -------
    SimulationOutcome

    Raises
    ------
    OutputError
        When the folder cannot be written, or another run is at work there.
    """
    store = SimulationStore(output)
    before = done = failed = 0
    with holding(output / ".lock", str(output)), _mapping(jobs, threads) as mapping:
        for study in studies:
            known = store.read(study)
            found = {number: one for number, one in known.items() if not (retry and "error" in one)}
            left = [number for number in range(replications) if number not in found]
            before += replications - len(left)
            for line in _work(study, left, found, store, mapping):
                say(line)
            done += len(left)
            failed += sum("error" in found[number] for number in range(replications))
    return SimulationOutcome(before, done, failed)


_Mapping = Callable[[Callable[[int], dict[str, Any]], Iterable[int]], Iterable[dict[str, Any]]]


def _work(
    study: Study, left: list[int], found: dict[int, dict[str, Any]], store: SimulationStore, mapping: _Mapping
) -> Iterator[str]:
    """Do replications, keep each as soon as it is there, and give lines of progress."""
    start = time.monotonic()
    for count, (number, one) in enumerate(zip(left, mapping(partial(replicate, study), left), strict=True), 1):
        found[number] = one
        store.write(study, found)
        if "error" in one:
            yield f"{study.design}, {study.method}, replication {number}: {one['error']}"
        if count % max(len(left) // _LINES, 1) == 0 or count == len(left):
            each = (time.monotonic() - start) / count
            rest = each * (len(left) - count)
            yield f"{study.design}, {study.method}: {count}/{len(left)}, {each:.2f} s each, {rest:.0f} s left"


@contextmanager
def _mapping(jobs: int, threads: int) -> Iterator[_Mapping]:
    """Give a `map` that works in several processes, or in this one."""
    if jobs == 1:
        with _limited(threads):
            yield map
        return
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(threads,)
    )
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(threads: int) -> None:
    """Set up a process: few threads, no part in Ctrl-C, and an end with its parent."""
    _limited(threads).__enter__()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _limited(threads: int) -> Iterator[None]:
    """Keep numerical libraries to a number of threads."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):
            yield
    finally:
        torch.set_num_threads(before)
