"""Run the cells of a suite that have no result yet, each in a process of its own, with a time limit and progress."""

from __future__ import annotations

__all__ = ["Listener", "Progress", "Running", "run_cells", "run_suite"]

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from mcflow.errors import ParameterError
from mcflow_bench.data.catalog import frame_source, table_source
from mcflow_bench.machine import load_average, machine, mebibytes, thread_variables, versions
from mcflow_bench.preflight import check_methods, prepare_images
from mcflow_bench.store import Outcome, Row, Store
from mcflow_bench.suites import Cell, EnergySuite, ImageSuite, Suite

_PAUSE_SECONDS = 0.05


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
        Folder of results.
    data : Path, optional
        Folder with the data sets; by default MCFLOW_DATA. Other public data sets are downloaded.
    jobs : int, default=1
        Number of cells that run at the same time.
    threads : int, default=1
        Threads of each.
    retry : bool, default=False
        Measure failed cells again.
    quiet : bool, default=False
        Show no progress.

    Returns
    -------
    Outcome
    """
    cells = suite.cells(_finder(suite, data, threads, quiet))
    store = Store(output)
    with store.locked() as work:
        known = store.finished(retry=retry)
        left = [cell for cell in cells if cell.task.key not in known]
        if left:
            check_methods([cell.task.settings["method"] for cell in left], left[0].task.kind)
        display: Listener = Listener() if quiet else Progress(left, store.rows(), jobs)
        with display:
            run_cells(left, store, work, jobs=jobs, threads=threads, time_limit=suite.time_limit, listener=display)
    rows = store.finished()
    failed = sum(rows[cell.task.key]["status"] != "done" for cell in cells if cell.task.key in rows)
    return Outcome(len(cells) - len(left), len(left), failed)


def _finder(suite: Suite, data: Path | None, threads: int, quiet: bool) -> Callable[[str], tuple[Path, str]]:
    """Return a function that gives the path and the checksum of a data set of the suite."""
    if isinstance(suite, EnergySuite):
        return partial(frame_source, folder=data)
    if not isinstance(suite, ImageSuite):
        return partial(table_source, folder=data)
    suite.check()
    if not quiet:
        names = ", ".join(suite.all_data)
        sys.stderr.write(f"Reading {names}. Digits are judged by a LeNet, trained once, which takes some minutes.\n")
    facts = prepare_images(suite.all_data, data, threads=threads)
    for name, found in facts.items():
        for part, asked, there in (("train", suite.n_train, found.n_train), ("test", suite.n_test, found.n_test)):
            if asked is not None and asked > there:
                raise ParameterError(f"n_{part} is {asked:,}, but {name} has {there:,} such images. Ask for fewer.")
    return lambda name: (Path(facts[name].folder), facts[name].sha256)


class Listener:
    """Notified of what a run does; every method may be left as it is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release resources, also after an interruption."""

    def on_end(self, cell: Cell, row: Row) -> None:
        """Handle the end of a cell, after its result was stored."""

    def on_pause(self, running: list[Running]) -> None:
        """Handle the running cells, several times a second."""


@dataclass
class Running:
    """A cell whose process has been started."""

    cell: Cell
    process: subprocess.Popen[bytes]
    work: Path
    deadline: float
    started: float
    load: float | None

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.started

    def stop(self) -> None:
        """Kill the process and its children."""
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()


@dataclass(frozen=True)
class _Ended:
    """Exit code and peak memory in MiB of a process, and whether it exceeded the time limit."""

    code: int
    peak_mib: float | None
    late: bool


def run_cells(
    cells: Iterable[Cell],
    store: Store,
    work: Path,
    *,
    jobs: int = 1,
    threads: int = 1,
    time_limit: float = 3600.0,
    listener: Listener | None = None,
) -> None:
    """Run cells and store each result as soon as it is there. A failure is stored as a result too.

    When this process ends, by Ctrl-C or otherwise, its cells end too: a cell watches the pipe to its parent.
    """
    listener = listener or Listener()
    waiting, running = deque(cells), list[Running]()
    about = {"threads": threads, "jobs": jobs, "time_limit": time_limit, "versions": versions(), "machine": machine()}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(waiting.popleft(), store.folder, work, threads, time_limit))
            for one in list(running):
                if (ended := _ended(one)) is not None:
                    running.remove(one)
                    row = _row(one, ended) | about
                    store.add(one.cell.task, row)
                    listener.on_end(one.cell, row)
            listener.on_pause(running)
            time.sleep(_PAUSE_SECONDS)
    finally:
        for one in running:
            one.stop()
            _wait(one)


def _start(cell: Cell, output: Path, work: Path, threads: int, time_limit: float) -> Running:
    folder = work / cell.task.key
    folder.mkdir(exist_ok=True)
    given = {
        "task": cell.task.settings,
        "path": str(cell.path.resolve()),
        "result": str((folder / "result.json").resolve()),
        "output": str(output.resolve()),
    }
    now = time.monotonic()
    with (folder / "output.txt").open("wb") as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", "mcflow_bench.cells"],
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env=os.environ | thread_variables(threads),
            start_new_session=True,
        )
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(given).encode() + b"\n")
            process.stdin.flush()
    return Running(cell, process, folder, now + time_limit, now, load_average())


def _ended(one: Running) -> _Ended | None:
    """Return how a process ended, None while it runs."""
    if time.monotonic() > one.deadline:
        one.stop()
        code, peak = _wait(one)
        return _Ended(code, peak, late=True)
    if not hasattr(os, "wait4"):
        code_now = one.process.poll()
        return None if code_now is None else _Ended(code_now, None, late=False)
    pid, status, usage = os.wait4(one.process.pid, os.WNOHANG)
    return None if pid == 0 else _Ended(*_collected(one, status, usage), late=False)


def _wait(one: Running) -> tuple[int, float | None]:
    """Wait for the end of a process that was killed."""
    if not hasattr(os, "wait4"):
        return one.process.wait(), None
    try:
        _, status, usage = os.wait4(one.process.pid, 0)
    except ChildProcessError:
        return -signal.SIGKILL, None
    return _collected(one, status, usage)


def _collected(one: Running, status: int, usage: Any) -> tuple[int, float | None]:
    """Clean up after a process; return its exit code and its peak memory."""
    one.stop()  # children that the process may have left
    one.process.returncode = os.waitstatus_to_exitcode(status)
    if one.process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            one.process.stdin.close()
    return one.process.returncode, mebibytes(usage.ru_maxrss)


def _row(one: Running, ended: _Ended) -> Row:
    result = _result(one.work / "result.json") or _failure(one, ended)
    if ended.late and result["status"] == "done":
        result["message"] = "draws were not scored within the time limit"
    elif ended.code and result["status"] == "done":
        result["message"] = f"ended with code {ended.code} after the fill was scored"
    process = None if ended.peak_mib is None else round(ended.peak_mib, 1)
    # Scoring comes after the fill and may need more memory than a cheap method; a failed cell reports no peak itself.
    return (
        {"peak_mib": process}
        | result
        | {
            "task": one.cell.task.settings,
            "label": one.cell.label,
            "note": one.cell.note,
            "asked_folds": one.cell.asked_folds,
            "process_mib": process,
            "seconds": round(one.seconds, 3),
            "load": [one.load, load_average()],
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )


def _result(path: Path) -> Row | None:
    try:
        found: Row = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found


def _failure(one: Running, ended: _Ended) -> Row:
    if ended.late:
        return {"status": "timeout", "message": f"not done after {one.deadline - one.started:g} s"}
    last = (one.work / "output.txt").read_text(errors="replace").strip().splitlines()[-1:]
    if ended.code == -signal.SIGKILL:
        return {"status": "memory", "message": "killed by the system, most likely for lack of memory"}
    return {"status": "crash", "message": " ".join([f"ended with code {ended.code}", *last])[:500]}


class Progress(Listener):
    """Show what is done, failed and running, and estimate the rest: live on a terminal, plain lines elsewhere."""

    def __init__(self, cells: Iterable[Cell], known: Iterable[Row], jobs: int, console: Any = None) -> None:
        from rich.console import Console

        self._console = console or Console(file=sys.stderr)
        self._left = {cell.task.key: cell for cell in cells}
        self._total = len(self._left)
        self._jobs = jobs
        self._done = self._failed = 0
        self._rows = [row for row in known if row.get("seconds") is not None]
        self._live: Any = None
        self._shown = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def on_end(self, cell: Cell, row: Row) -> None:
        """Count a cell and print its line."""
        self._left.pop(cell.task.key, None)
        good = row["status"] == "done"
        self._done, self._failed = self._done + good, self._failed + (not good)
        self._rows.append(row)
        number = self._done + self._failed
        text = f"[{number}/{self._total}] {cell.task.words}: {_outcome(row)}, {_clock(self.seconds_left([]))} left"
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def on_pause(self, running: list[Running]) -> None:
        """Refresh the live table twice a second."""
        if self._live is not None and time.monotonic() - self._shown > 0.5:
            self._shown = time.monotonic()
            self._live.update(self._table(running), refresh=True)

    def _table(self, running: list[Running]) -> Any:
        from rich.table import Table
        from rich.text import Text

        left = self._total - self._done - self._failed
        head = f"{self._done} done, {self._failed} failed, {left} left"
        head += f", about {_clock(self.seconds_left(running))}" if self._rows else ""
        table = Table(title=head, title_justify="left", show_header=False, box=None)
        for one in running:
            table.add_row(Text(one.cell.task.words), Text(_clock(one.seconds)))
        return table

    def seconds_left(self, running: list[Running]) -> float:
        """Estimate the remaining seconds from finished cells of the same method, on the same data if there are any."""
        total = sum(self._guess(cell) for cell in self._left.values())
        spent = sum(min(one.seconds, self._guess(one.cell)) for one in running)
        return max(total - spent, 0.0) / self._jobs

    def _guess(self, cell: Cell) -> float:
        method = [row for row in self._rows if row.get("label") == cell.label]
        kind = cell.task.kind
        same = [row for row in method if row["task"].get(kind) == getattr(cell.task, kind)]
        chosen = same or method or self._rows
        return fmean(row["seconds"] for row in chosen) if chosen else 0.0


def _outcome(row: Row) -> str:
    if row["status"] != "done":
        return f"{row['status']}: {row['message']}"
    name, score = ("RMSE", "rmse") if "rmse" in row["scores"] else ("energy distance", "energy")
    return f"{name} {row['scores'][score]['value']:.4f}, {row['seconds']:.1f} s, {row['peak_mib'] or 0:.0f} MiB"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
