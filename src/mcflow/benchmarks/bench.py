"""From a suite to results on disk: do what is missing, then write the report."""

from __future__ import annotations

__all__ = ["Outcome", "check_methods", "run_missing", "run_suite"]

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mcflow.benchmarks.display import Progress
from mcflow.benchmarks.methods import IMAGES, WRONG_METHOD
from mcflow.benchmarks.runner import Listener, run_cells
from mcflow.benchmarks.store import Store
from mcflow.benchmarks.suite import Suite
from mcflow.benchmarks.tasks import AnyCell
from mcflow.data.catalog import locate
from mcflow.data.downloads import checksum
from mcflow.errors import ParameterError


@dataclass(frozen=True)
class Outcome:
    """What a run did: cells that were there before, cells done now, and cells of the suite that failed."""

    found: int
    done: int
    failed: int


def run_suite(
    suite: Suite,
    output: Path,
    *,
    data: Path | None = None,
    jobs: int = 1,
    threads: int = 1,
    retry: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Run the cells of a suite whose results are not in a folder yet.

    Parameters
    ----------
    suite : Suite
        What to measure.
    output : Path
        Folder of the results.
    data : Path, optional
        Folder of tables, by default the one that MCFLOW_DATA names; tables that are not there are downloaded.
    jobs : int, default=1
        Cells at a time.
    threads : int, default=1
        Threads of each.
    retry : bool, default=False
        Do cells again that failed.
    quiet : bool, default=False
        Show no progress.

    Returns
    -------
    Outcome

    Raises
    ------
    ParameterError
        When the suite names what there is not.
    OutputError
        When the folder cannot be written or another benchmark is at work there.
    """
    cells = suite.cells(partial(_file, data))
    return run_missing(cells, output, time_limit=suite.time_limit, jobs=jobs, threads=threads, retry=retry, quiet=quiet)


def run_missing(
    cells: Sequence[AnyCell],
    output: Path,
    *,
    time_limit: float,
    images: bool = False,
    jobs: int = 1,
    threads: int = 1,
    retry: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Run cells whose results are not in a folder yet.

    Parameters
    ----------
    cells : sequence of AnyCell
        All that are asked for.
    output : Path
        Folder of the results.
    time_limit : float
        Seconds that a cell may take.
    images : bool, default=False
        Methods are those of images.
    jobs, threads, retry, quiet
        As for `run_suite`.

    Returns
    -------
    Outcome

    Raises
    ------
    ParameterError
        When there is no such method or parameter.
    OutputError
        When the folder cannot be written or another benchmark is at work there.
    """
    store = Store(output)
    with store.locked() as work:
        known = store.finished(retry=retry)
        left = [cell for cell in cells if cell.task.key not in known]
        check_methods([cell.task.settings["method"] for cell in left], images=images)
        display: Listener = Listener() if quiet else Progress(left, store.rows(), jobs)
        with display:
            run_cells(left, store, work, jobs=jobs, threads=threads, time_limit=time_limit, listener=display)
    rows = store.finished()
    failed = sum(rows[cell.task.key]["status"] != "done" for cell in cells if cell.task.key in rows)
    return Outcome(len(cells) - len(left), len(left), failed)


def check_methods(methods: Sequence[str], *, images: bool = False) -> None:
    """Raise `ParameterError` for a method or parameter that does not exist, before hours are spent.

    In another process, because this one has to stay small: a process starts with the peak memory of its parent.

    Parameters
    ----------
    methods : sequence of str
        As `MethodSpec` writes them.
    images : bool, default=False
        They fill images, not tables.

    Raises
    ------
    ParameterError
        For the first that does not exist.
    """
    if not methods:
        return
    words = [IMAGES, *methods] if images else methods
    command = [sys.executable, "-m", "mcflow.benchmarks.methods", *dict.fromkeys(words)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this very program
    if found.returncode == WRONG_METHOD:
        raise ParameterError(found.stdout.strip())


def _file(data: Path | None, name: str) -> tuple[Path, str]:
    path = locate(name, data)
    return path, checksum(path)
