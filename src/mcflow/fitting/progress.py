"""Progress of a fit: a live display in terminals and notebooks, plain lines in logs, or JSON for other programs."""

from __future__ import annotations

__all__ = ["JsonProgress", "ProgressDisplay", "can_be_live", "progress_callbacks", "write_event"]

import json
import math
import sys
import time
from importlib.util import find_spec
from typing import Any, TextIO

from mcflow.fitting.callbacks import ENDINGS, AnyTrainer, Callback, History


def progress_callbacks(verbose: bool | str) -> list[Callback]:
    """Return the callbacks that show the progress of a fit."""
    if not verbose or verbose == "none":
        return []
    return [JsonProgress()] if verbose == "json" else [ProgressDisplay(live=None if verbose != "plain" else False)]


def can_be_live(console: Any) -> bool:
    """Return whether a console can update its output."""
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return bool(console.is_terminal and not console.is_dumb_terminal)


class _TimedCallback(Callback):
    """Measure the elapsed and the remaining time of a fit; a time limit counts from the first phase."""

    _opened = 0.0  # start of the first phase
    _start = _end = 0.0  # start and end of the epochs
    _first_epoch = 0
    _after = 0.0  # maximum time that the phases after the epochs are expected to take, `seconds_after` of the trainer
    _limit = 0.0

    def on_begin(self, trainer: AnyTrainer) -> None:
        """Start the clock."""
        self._start = time.perf_counter()
        self._opened = self._opened or self._start
        self._first_epoch = trainer.epoch
        self._after = float(getattr(trainer, "seconds_after", 0.0))
        self._limit = float(trainer.config.max_time or 0.0)

    def _seconds(self) -> float:
        return time.perf_counter() - self._start

    def _seconds_left(self, trainer: AnyTrainer, reached: float) -> float:
        """Return an upper bound of the seconds that remain when some epochs are done."""
        rate = self._seconds() / max(reached - self._first_epoch, 1e-3)
        return self._limited(max(rate * (trainer.config.max_epochs - reached), 0.0) + self._after)

    def _seconds_left_in_phases(self) -> float | None:
        """Return the same at the start of a phase, None if it is unknown."""
        self._opened = self._opened or time.perf_counter()
        if not self._end or not self._after:
            return None
        return self._limited(max(self._after - (time.perf_counter() - self._end), 0.0))

    def _limited(self, seconds: float) -> float:
        if not self._limit:
            return seconds
        return min(seconds, max(self._limit - (time.perf_counter() - self._opened), 0.0))


class ProgressDisplay(_TimedCallback):
    """Show epoch, losses and the remaining time: live in terminals and notebooks, occasional lines elsewhere."""

    def __init__(self, console: Any = None, every_seconds: float = 10.0, live: bool | None = None) -> None:
        self._console, self._every, self._live = console, every_seconds, live
        self._bar: Any = None
        self._task: Any = None
        self._status: Any = None
        self._last = 0.0

    def _open_console(self) -> Any:
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=sys.stderr)
        if self._live is None:
            self._live = can_be_live(self._console)
        return self._console

    def on_begin(self, trainer: AnyTrainer) -> None:
        """Open the display."""
        self.close()
        super().on_begin(trainer)
        console = self._open_console()
        self._last = time.perf_counter()
        if self._live:
            self._open_bar(trainer, console)

    def _open_bar(self, trainer: AnyTrainer, console: Any) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[losses]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
        )
        self._bar.start()
        total = trainer.config.max_epochs
        self._task = self._bar.add_task("fit", total=total, completed=trainer.epoch, losses="", left="")

    def on_epoch_end(self, trainer: AnyTrainer) -> None:
        """Show the latest losses."""
        if not trainer.history.epochs:  # the training has just been restarted
            return
        latest = trainer.history.epochs[-1]
        flow = f"loss of G {latest.flow_loss:.3f}, of H" if latest.flow_loss else "loss"
        self._show(trainer, trainer.epoch, f"{trainer.epoch}", losses=f"{flow} {latest.latent_loss:.5f}")

    def on_part_end(self, trainer: AnyTrainer) -> None:
        """Show the progress within a long epoch."""
        done = trainer.epoch + trainer.position / trainer.n_rows
        self._show(trainer, done, f"{done:.2f}")

    def _show(self, trainer: AnyTrainer, done: float, words: str, **losses: str) -> None:
        """Update the bar, or print a line if one is due."""
        left = _in_words(self._seconds_left(trainer, done))
        if self._bar is not None:
            self._bar.update(self._task, completed=done, left=left, **losses)
        elif time.perf_counter() - self._last >= self._every:
            self._last = time.perf_counter()
            self._print(f"epoch {words}/{trainer.config.max_epochs}: {', '.join([*losses.values(), left])}")

    def on_phase(self, name: str) -> None:
        """Show the name of a phase before or after the epochs."""
        self.close()
        console = self._open_console()
        left = self._seconds_left_in_phases()
        name += f", {_in_words(left)}" if left else ""
        if self._live:
            self._status = console.status(name)
            self._status.start()
        else:
            self._print(f"{name} …")

    def on_end(self, trainer: AnyTrainer) -> None:
        """Close the display and show why the training ended."""
        self.close()
        self._end = time.perf_counter()
        why = ENDINGS[trainer.history.ending]
        self._print(f"trained {trainer.epoch} epoch{'s' * (trainer.epoch != 1)} in {self._seconds():.1f} s: {why}")

    def on_fitted(self, history: History) -> None:
        """Say how good a fit is that the time limit ended."""
        self.close()
        if history.cut_short:
            self._open_console()
            self._print(history.cut_short)

    def close(self) -> None:
        """Remove the live display, also when training was interrupted."""
        for shown in (self._bar, self._status):
            if shown is not None:
                shown.stop()
        self._bar = self._status = None

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


def _in_words(seconds: float) -> str:
    return f"at most {int(seconds // 60)}:{int(seconds % 60):02d} left"


class JsonProgress(_TimedCallback):
    """Write one JSON object per line for every event of a fit, for other programs.

    The events are "begin", "epoch", "part", "phase", "end" and, if the time limit ended the training, "cut_short".
    Numbers that are unknown or not finite are null.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def on_begin(self, trainer: AnyTrainer) -> None:
        """Write the maximum number of epochs and the number of rows."""
        super().on_begin(trainer)
        rows = trainer.n_rows if hasattr(trainer, "n_rows") else len(getattr(trainer, "rows", ()))
        self._write("begin", epochs=trainer.config.max_epochs, rows=rows)

    def on_epoch_end(self, trainer: AnyTrainer) -> None:
        """Write the latest losses and the remaining time."""
        if not trainer.history.epochs:  # the training has just been restarted
            return
        latest = trainer.history.epochs[-1]
        facts = {name: getattr(latest, name) for name in ("flow_loss", "latent_loss", "validation_error", "stage")}
        epochs, left = trainer.config.max_epochs, self._seconds_left(trainer, trainer.epoch)
        self._write("epoch", epoch=trainer.epoch, epochs=epochs, **facts, seconds=self._seconds(), seconds_left=left)

    def on_part_end(self, trainer: AnyTrainer) -> None:
        """Write the progress within a long epoch."""
        done = trainer.epoch + trainer.position / trainer.n_rows
        share, left = done / trainer.config.max_epochs, self._seconds_left(trainer, done)
        self._write("part", done=share, seconds=self._seconds(), seconds_left=left)

    def on_phase(self, name: str) -> None:
        """Write the name of a phase."""
        left = self._seconds_left_in_phases()
        self._write("phase", name=name, **({} if left is None else {"seconds_left": left}))

    def on_end(self, trainer: AnyTrainer) -> None:
        """Write why the training ended."""
        self._end = time.perf_counter()
        self._write("end", epochs=trainer.epoch, ending=ENDINGS[trainer.history.ending], seconds=self._seconds())

    def on_fitted(self, history: History) -> None:
        """Write how good a fit is that the time limit ended."""
        if history.cut_short:
            self._write("cut_short", quality=history.cut_short)

    def _write(self, event: str, **facts: Any) -> None:
        write_event(event, stream=self._stream, **facts)


def write_event(event: str, *, stream: TextIO | None = None, **facts: Any) -> None:
    """Write one event as a line of JSON."""
    target = stream or sys.stderr
    target.write(json.dumps({"event": event} | {name: _plain(value) for name, value in facts.items()}) + "\n")
    target.flush()


def _plain(value: Any) -> Any:
    """Return a number as JSON can represent it, rounded to meaningful digits."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return round(value, 3) if abs(value) >= 1 else float(f"{value:.6g}")
