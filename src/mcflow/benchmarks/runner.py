"""Run cells, each in a process of its own, several at a time, with a limit on their time."""

from __future__ import annotations

__all__ = ["Listener", "Running", "run_cells"]

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from mcflow.benchmarks.machine import load_average, machine, mebibytes, thread_variables, versions
from mcflow.benchmarks.store import Row, Store
from mcflow.benchmarks.tasks import AnyCell

_PAUSE_SECONDS = 0.05


class Listener:
    """Hears what happens; every method may be left as it is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of what is held, also after a stop."""

    def on_start(self, running: Running) -> None:
        """Hear that a cell has begun."""

    def on_end(self, cell: AnyCell, row: Row) -> None:
        """Hear that a cell is over and its result kept."""

    def on_pause(self, running: list[Running]) -> None:
        """Hear, several times a second, what is being run."""


@dataclass
class Running:
    """A cell whose process has been started."""

    cell: AnyCell
    process: subprocess.Popen[bytes]
    work: Path
    deadline: float
    started: float
    load: float | None

    @property
    def seconds(self) -> float:
        """Return how long it has been running."""
        return time.monotonic() - self.started

    def stop(self) -> None:
        """End the process and all that it started."""
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()


@dataclass(frozen=True)
class _Ended:
    """How a process ended: its exit code, its peak memory in MiB, and whether the time was over."""

    code: int
    peak_mib: float | None
    late: bool


def run_cells(
    cells: Iterable[AnyCell],
    store: Store,
    work: Path,
    *,
    jobs: int = 1,
    threads: int = 1,
    time_limit: float = 3600.0,
    listener: Listener | None = None,
) -> None:
    """Run cells and keep each result as soon as it is there. A cell that fails is a result too.

    Parameters
    ----------
    cells : iterable of AnyCell
        In the order in which they are started.
    store : Store
        Where results go.
    work : Path
        A folder for passing files.
    jobs : int, default=1
        Cells at a time.
    threads : int, default=1
        Threads of each.
    time_limit : float, default=3600
        Seconds after which a cell is ended.
    listener : Listener, optional
        Hears of progress.

    Notes
    -----
    When this process is ended, by Ctrl-C or otherwise, its cells end too: a cell watches the pipe to its parent.
    """
    listener = listener or Listener()
    waiting, running = deque(cells), list[Running]()
    about = {"threads": threads, "jobs": jobs, "time_limit": time_limit, "versions": versions(), "machine": machine()}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(waiting.popleft(), store.folder, work, threads, time_limit))
                listener.on_start(running[-1])
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


def _start(cell: AnyCell, output: Path, work: Path, threads: int, time_limit: float) -> Running:
    folder = work / cell.task.key
    folder.mkdir(exist_ok=True)
    given = {
        "task": cell.task.settings,
        "path": str(cell.path.resolve()),
        "result": str((folder / "result.json").resolve()),
        "output": str(output.resolve()),
    }
    now = time.monotonic()
    with (folder / "output.txt").open("wb") as said:
        process = subprocess.Popen(  # noqa: S603 - a module of this very program
            [sys.executable, "-m", cell.task.program],
            stdin=subprocess.PIPE,
            stdout=said,
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
    return None if pid == 0 else _Ended(*_told(one, status, usage), late=False)


def _wait(one: Running) -> tuple[int, float | None]:
    """Wait for the end of a process that was stopped."""
    if not hasattr(os, "wait4"):
        return one.process.wait(), None
    try:
        _, status, usage = os.wait4(one.process.pid, 0)
    except ChildProcessError:
        return -signal.SIGKILL, None
    return _told(one, status, usage)


def _told(one: Running, status: int, usage: Any) -> tuple[int, float | None]:
    one.stop()  # what the process may have left behind
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
    # Scoring comes after the fill and may need more than a cheap method; a method that failed has told no peak.
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
        return {"status": "memory", "message": "killed by the system, most likely for want of memory"}
    return {"status": "crash", "message": " ".join([f"ended with code {ended.code}", *last])[:500]}
