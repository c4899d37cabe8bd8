"""Progress of a fit: a live display in terminals and notebooks, plain lines in logs, or JSON for other programs."""

from __future__ import annotations

__all__ = ["JsonProgress", "ProgressDisplay", "can_be_live", "progress_callbacks", "write_event"]

import json
import math
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO

from mcflow.fitting.callbacks import ENDINGS, Callback, History

if TYPE_CHECKING:
    from mcflow.fitting.callbacks import AnyTrainer
    from mcflow.fitting.trainer import ValidatedTrainer


def progress_callbacks(verbose: bool | str) -> list[Callback]:
    """Return the callbacks that show the progress of a fit.

    Examples
    --------
    >>> progress_callbacks(False), [type(one).__name__ for one in progress_callbacks("json")]
    ([], ['JsonProgress'])
    """
    if not verbose or verbose == "none":
        return []
    return [JsonProgress()] if verbose == "json" else [ProgressDisplay(live=None if verbose != "plain" else False)]


def can_be_live(console: Any) -> bool:
    """Return whether a console can update its output.

    Examples
    --------
    >>> import io
    >>> from rich.console import Console
    >>> can_be_live(Console(file=io.StringIO()))
    False
    """
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return bool(console.is_terminal and not console.is_dumb_terminal)


class _Clock:
    """Elapsed and remaining time of a fit, with the phases after the epochs; a time limit counts from the first phase.

    A trainer may have `seconds_after`, the time that the phases after the epochs are expected to take at most.
    """

    def __init__(self, trainer: AnyTrainer, opened: float | None = None) -> None:
        self.start = time.perf_counter()
        self.opened = self.start if opened is None else opened
        self.first = trainer.epoch
        self.after = float(getattr(trainer, "seconds_after", 0.0))
        self.limit = float(trainer.config.max_time or 0.0)
        self.ended: float | None = None

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def left(self, trainer: AnyTrainer, reached: float | None = None) -> float:
        """Return an upper bound of the seconds that remain; a time limit bounds all phases together."""
        reached = trainer.epoch if reached is None else reached
        rate = self.seconds / max(reached - self.first, 1e-3)
        return self._limited(max(rate * (trainer.config.max_epochs - reached), 0.0) + self.after)

    def left_after(self) -> float | None:
        """Return the same for a phase after the epochs, None if it is unknown."""
        if self.ended is None or not self.after:
            return None
        return self._limited(max(self.after - (time.perf_counter() - self.ended), 0.0))

    def _limited(self, seconds: float) -> float:
        if not self.limit:
            return seconds
        return min(seconds, max(self.limit - (time.perf_counter() - self.opened), 0.0))


class ProgressDisplay(Callback):
    """Show epoch, losses and the remaining time: live in terminals and notebooks, occasional lines elsewhere."""

    def __init__(self, console: Any = None, every_seconds: float = 10.0, live: bool | None = None) -> None:
        self._console = console
        self._every = every_seconds
        self._live = live
        self._bar: Any = None
        self._task: Any = None
        self._status: Any = None
        self._clock: _Clock | None = None
        self._opened: float | None = None
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
        console = self._open_console()
        self._clock = _Clock(trainer, self._opened)
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
        losses = f"{flow} {latest.latent_loss:.5f}"
        if self._bar is not None:
            self._bar.update(self._task, completed=trainer.epoch, losses=losses, left=self._left(trainer))
        elif self._due():
            total = trainer.config.max_epochs
            self._print(f"epoch {trainer.epoch}/{total}: {losses}, {self._left(trainer)}")

    def on_part_end(self, trainer: ValidatedTrainer) -> None:
        """Show the progress within a long epoch."""
        done = trainer.epoch + trainer.position / trainer.n_rows
        if self._bar is not None:
            self._bar.update(self._task, completed=done, left=self._left(trainer, done))
        elif self._due():
            self._print(f"epoch {done:.2f}/{trainer.config.max_epochs}: {self._left(trainer, done)}")

    def on_phase(self, name: str) -> None:
        """Show the name of a phase before or after the epochs."""
        self.close()
        self._opened = self._opened or time.perf_counter()
        console = self._open_console()
        left = self._clock.left_after() if self._clock else None
        name += f", {_in_words(left)}" if left else ""
        if self._live:
            self._status = console.status(name)
            self._status.start()
        else:
            self._print(f"{name} …")

    def on_end(self, trainer: AnyTrainer) -> None:
        """Close the display and show why the training ended."""
        self.close()
        seconds = self._clock.seconds if self._clock else 0.0
        if self._clock:
            self._clock.ended = time.perf_counter()
        why = ENDINGS[trainer.history.ending]
        self._print(f"trained {trainer.epoch} epoch{'s' * (trainer.epoch != 1)} in {seconds:.1f} s: {why}")

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

    def _due(self) -> bool:
        due = time.perf_counter() - self._last >= self._every
        self._last = time.perf_counter() if due else self._last
        return due

    def _left(self, trainer: AnyTrainer, reached: float | None = None) -> str:
        return _in_words(self._clock.left(trainer, reached) if self._clock else 0.0)

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


def _in_words(seconds: float) -> str:
    return f"at most {int(seconds // 60)}:{int(seconds % 60):02d} left"


class JsonProgress(Callback):
    """Write one JSON object per line for every event of a fit, for other programs.

    The events are "begin", "epoch", "part", "phase", "end" and, if the time limit ended the training, "cut_short".
    Numbers that are unknown or not finite are null.

    Examples
    --------
    >>> import sys
    >>> JsonProgress(sys.stdout).on_phase("calibrating")
    {"event": "phase", "name": "calibrating"}
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._clock: _Clock | None = None
        self._opened: float | None = None

    def on_begin(self, trainer: AnyTrainer) -> None:
        """Write the maximum number of epochs and the number of rows."""
        self._clock = _Clock(trainer, self._opened)
        rows = trainer.n_rows if hasattr(trainer, "n_rows") else len(getattr(trainer, "rows", ()))
        self._write("begin", epochs=trainer.config.max_epochs, rows=rows)

    def on_epoch_end(self, trainer: AnyTrainer) -> None:
        """Write the latest losses and the remaining time."""
        if not trainer.history.epochs:  # the training has just been restarted
            return
        latest = trainer.history.epochs[-1]
        self._write(
            "epoch",
            epoch=trainer.epoch,
            epochs=trainer.config.max_epochs,
            flow_loss=latest.flow_loss,
            latent_loss=latest.latent_loss,
            validation_error=latest.validation_error,
            stage=latest.stage,
            seconds=self._seconds(),
            seconds_left=self._left(trainer),
        )

    def on_part_end(self, trainer: ValidatedTrainer) -> None:
        """Write the progress within a long epoch."""
        done = trainer.epoch + trainer.position / trainer.n_rows
        share = done / trainer.config.max_epochs
        self._write("part", done=share, seconds=self._seconds(), seconds_left=self._left(trainer, done))

    def on_phase(self, name: str) -> None:
        """Write the name of a phase."""
        self._opened = self._opened or time.perf_counter()
        left = self._clock.left_after() if self._clock else None
        self._write("phase", name=name, **({} if left is None else {"seconds_left": left}))

    def on_end(self, trainer: AnyTrainer) -> None:
        """Write why the training ended."""
        history = trainer.history
        if self._clock:
            self._clock.ended = time.perf_counter()
        self._write("end", epochs=trainer.epoch, ending=ENDINGS[history.ending], seconds=self._seconds())

    def on_fitted(self, history: History) -> None:
        """Write how good a fit is that the time limit ended."""
        if history.cut_short:
            self._write("cut_short", quality=history.cut_short)

    def _seconds(self) -> float:
        return self._clock.seconds if self._clock else 0.0

    def _left(self, trainer: AnyTrainer, reached: float | None = None) -> float | None:
        return self._clock.left(trainer, reached) if self._clock else None

    def _write(self, event: str, **facts: Any) -> None:
        write_event(event, stream=self._stream, **facts)


def write_event(event: str, *, stream: TextIO | None = None, **facts: Any) -> None:
    """Write one event as a line of JSON.

    Examples
    --------
    >>> import sys
    >>> write_event("end", stream=sys.stdout, seconds=1.23456, left=float("nan"))
    {"event": "end", "seconds": 1.235, "left": null}
    """
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
