"""Progress of a benchmark: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

__all__ = ["Progress"]

import sys
import time
from collections.abc import Iterable
from statistics import fmean
from typing import Any, Self

from mcflow.benchmarks.runner import Listener, Running
from mcflow.benchmarks.store import Row
from mcflow.benchmarks.tasks import AnyCell


class Progress(Listener):
    """Say what is done, what failed, what runs and how long the rest may take.

    Parameters
    ----------
    cells : iterable of AnyCell
        What is left to do.
    known : iterable of dict
        Results from before, from which times are estimated.
    jobs : int
        Cells at a time.
    console : rich.console.Console, optional
        Where to write, by default standard error.
    """

    def __init__(self, cells: Iterable[AnyCell], known: Iterable[Row], jobs: int, console: Any = None) -> None:
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

    def on_end(self, cell: AnyCell, row: Row) -> None:
        """Count a cell and print its line."""
        self._left.pop(cell.task.key, None)
        good = row["status"] == "done"
        self._done, self._failed = self._done + good, self._failed + (not good)
        self._rows.append(row)
        number = self._done + self._failed
        text = f"[{number}/{self._total}] {cell.task.words}: {_outcome(row)}, {_clock(self.seconds_left([]))} left"
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def on_pause(self, running: list[Running]) -> None:
        """Show the live table anew, twice a second."""
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
        """Estimate the rest from finished cells of the same method, on the same data where there are some.

        Parameters
        ----------
        running : list of Running
            Their time so far is taken off.

        Returns
        -------
        float
        """
        total = sum(self._guess(cell) for cell in self._left.values())
        spent = sum(min(one.seconds, self._guess(one.cell)) for one in running)
        return max(total - spent, 0.0) / self._jobs

    def _guess(self, cell: AnyCell) -> float:
        method = [row for row in self._rows if row.get("label") == cell.label]
        subject = cell.task.subject
        same = [row for row in method if row["task"].get(subject) == getattr(cell.task, subject)]
        chosen = same or method or self._rows
        return fmean(row["seconds"] for row in chosen) if chosen else 0.0


def _outcome(row: Row) -> str:
    if row["status"] != "done":
        return f"{row['status']}: {row['message']}"
    return f"RMSE {row['scores']['rmse']['value']:.4f}, {row['seconds']:.1f} s, {row['peak_mib'] or 0:.0f} MiB"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
