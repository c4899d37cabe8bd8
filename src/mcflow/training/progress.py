"""Progress of a fit: live on a terminal or in a notebook, plain lines in a log, or JSON for other programs."""

from __future__ import annotations

__all__ = ["JsonProgress", "ProgressDisplay", "can_be_live", "progress_listeners", "write_event"]

import json
import math
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO

from mcflow.training.callbacks import ENDINGS, Callback

if TYPE_CHECKING:
    from mcflow.training.callbacks import AnyTrainer
    from mcflow.training.held_out import HeldOutTrainer


def progress_listeners(verbose: bool | str) -> list[Callback]:
    """Return who shows the progress of a fit.

    Parameters
    ----------
    verbose : bool or str
        False or "none" for nobody; True or "auto" for a live display where there can be one and lines elsewhere;
        "plain" for lines; "json" for JSON.

    Returns
    -------
    list of Callback

    Examples
    --------
    >>> progress_listeners(False), [type(one).__name__ for one in progress_listeners("json")]
    ([], ['JsonProgress'])
    """
    if not verbose or verbose == "none":
        return []
    return [JsonProgress()] if verbose == "json" else [ProgressDisplay(live=None if verbose != "plain" else False)]


def can_be_live(console: Any) -> bool:
    """Tell whether what a console shows can be changed afterwards.

    Parameters
    ----------
    console : rich.console.Console
        A dumb terminal cannot, and a notebook only with ipywidgets.

    Returns
    -------
    bool

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
    """How long a fit has run, and how long it may still take."""

    def __init__(self, trainer: AnyTrainer) -> None:
        self.start = time.perf_counter()
        self.first = trainer.epoch

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def left(self, trainer: AnyTrainer, reached: float | None = None) -> float:
        """Return seconds at most, by the pace of the epochs so far and by the limit of time, if there is one."""
        reached = trainer.epoch if reached is None else reached
        rate = self.seconds / max(reached - self.first, 1e-3)
        train = trainer.settings.train
        by_epochs = max(rate * (train.max_epochs - reached), 0.0)
        limit = getattr(train, "max_time", 0.0)
        return min(by_epochs, max(limit - self.seconds, 0.0)) if limit else by_epochs


class ProgressDisplay(Callback):
    """Show epoch, losses and the time left: live on a terminal and in a notebook, a line now and then elsewhere.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to write, by default standard error.
    every_seconds : float, default=10
        How often to write a line where nothing can be shown live.
    live : bool, optional
        Whether to show a bar; by default where there can be one.

    Notes
    -----
    rich leaves colours out when NO_COLOR is set, and TERM=dumb gets lines.
    """

    def __init__(self, console: Any = None, every_seconds: float = 10.0, live: bool | None = None) -> None:
        self._console = console
        self._every = every_seconds
        self._live = live
        self._bar: Any = None
        self._task: Any = None
        self._status: Any = None
        self._clock: _Clock | None = None
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
        self._clock = _Clock(trainer)
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
        total = trainer.settings.train.max_epochs
        self._task = self._bar.add_task("fit", total=total, completed=trainer.epoch, losses="", left="")

    def on_epoch_end(self, trainer: AnyTrainer) -> None:
        """Show the newest losses."""
        if not trainer.history.epochs:  # a restart has just begun
            return
        latest = trainer.history.epochs[-1]
        flow = f"loss of G {latest.flow_loss:.3f}, of H" if latest.flow_loss else "loss"
        losses = f"{flow} {latest.latent_loss:.5f}"
        if self._bar is not None:
            self._bar.update(self._task, completed=trainer.epoch, losses=losses, left=self._left(trainer))
        elif self._due():
            total = trainer.settings.train.max_epochs
            self._print(f"epoch {trainer.epoch}/{total}: {losses}, {self._left(trainer)}")

    def on_part_end(self, trainer: HeldOutTrainer) -> None:
        """Show how far a long epoch is."""
        done = trainer.epoch + trainer.position / trainer.n_rows
        if self._bar is not None:
            self._bar.update(self._task, completed=done, left=self._left(trainer, done))
        elif self._due():
            self._print(f"epoch {done:.2f}/{trainer.settings.train.max_epochs}: {self._left(trainer, done)}")

    def on_phase(self, name: str) -> None:
        """Show what happens before or after the epochs."""
        self.close()
        console = self._open_console()
        if self._live:
            self._status = console.status(name)
            self._status.start()
        else:
            self._print(f"{name} …")

    def on_end(self, trainer: AnyTrainer) -> None:
        """Close the display and say how it ended."""
        self.close()
        seconds = self._clock.seconds if self._clock else 0.0
        why = ENDINGS[trainer.history.ending]
        self._print(f"trained {trainer.epoch} epochs in {seconds:.1f} s: {why}")

    def close(self) -> None:
        """Take the live display away, also when training was stopped."""
        for shown in (self._bar, self._status):
            if shown is not None:
                shown.stop()
        self._bar = self._status = None

    def _due(self) -> bool:
        due = time.perf_counter() - self._last >= self._every
        self._last = time.perf_counter() if due else self._last
        return due

    def _left(self, trainer: AnyTrainer, reached: float | None = None) -> str:
        seconds = self._clock.left(trainer, reached) if self._clock else 0.0
        return f"at most {int(seconds // 60)}:{int(seconds % 60):02d} left"

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


class JsonProgress(Callback):
    """Write one JSON object a line for every event of a fit, for programs that watch it.

    Parameters
    ----------
    stream : text file, optional
        Where to write, by default standard error.

    Notes
    -----
    The events are "begin", "epoch", "part", "phase" and "end"; numbers that are not known or not finite are null.

    Examples
    --------
    >>> import sys
    >>> JsonProgress(sys.stdout).on_phase("calibrating")
    {"event": "phase", "name": "calibrating"}
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._clock: _Clock | None = None

    def on_begin(self, trainer: AnyTrainer) -> None:
        """Write how many epochs there are at most, and how many rows."""
        self._clock = _Clock(trainer)
        rows = trainer.n_rows if hasattr(trainer, "n_rows") else len(getattr(trainer, "rows", ()))
        self._write("begin", epochs=trainer.settings.train.max_epochs, rows=rows)

    def on_epoch_end(self, trainer: AnyTrainer) -> None:
        """Write the newest losses and the time left."""
        if not trainer.history.epochs:  # a restart has just begun
            return
        latest = trainer.history.epochs[-1]
        self._write(
            "epoch",
            epoch=trainer.epoch,
            epochs=trainer.settings.train.max_epochs,
            flow_loss=latest.flow_loss,
            latent_loss=latest.latent_loss,
            held_error=latest.held_error,
            stage=latest.stage,
            seconds=self._seconds(),
            seconds_left=self._left(trainer),
        )

    def on_part_end(self, trainer: HeldOutTrainer) -> None:
        """Write how far a long epoch is."""
        done = trainer.epoch + trainer.position / trainer.n_rows
        share = done / trainer.settings.train.max_epochs
        self._write("part", done=share, seconds=self._seconds(), seconds_left=self._left(trainer, done))

    def on_phase(self, name: str) -> None:
        """Write what happens now."""
        self._write("phase", name=name)

    def on_end(self, trainer: AnyTrainer) -> None:
        """Write why it ended."""
        self._write("end", epochs=trainer.epoch, ending=ENDINGS[trainer.history.ending], seconds=self._seconds())

    def _seconds(self) -> float:
        return self._clock.seconds if self._clock else 0.0

    def _left(self, trainer: AnyTrainer, reached: float | None = None) -> float | None:
        return self._clock.left(trainer, reached) if self._clock else None

    def _write(self, event: str, **facts: Any) -> None:
        write_event(event, stream=self._stream, **facts)


def write_event(event: str, *, stream: TextIO | None = None, **facts: Any) -> None:
    """Write one event as a line of JSON.

    Parameters
    ----------
    event : str
        Its name.
    stream : text file, optional
        Where to write, by default standard error.
    **facts : object
        What belongs to it.

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
    """Return a number as JSON can hold it, with digits that mean something."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return round(value, 3) if abs(value) >= 1 else float(f"{value:.6g}")
