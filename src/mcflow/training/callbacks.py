"""What listens to a fit: progress on the terminal, and whatever else a caller brings."""

from __future__ import annotations

__all__ = ["Callback", "ProgressDisplay"]

import sys
import time
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from mcflow.training.held_out import HeldOutTrainer
    from mcflow.training.loop import Trainer

    AnyTrainer: TypeAlias = Trainer | HeldOutTrainer


#: Why a fit ended, in words.
ENDINGS = {
    "stable": "both losses are stable",
    "held_out": "held-out cells get no better",
    "max_epochs": "all epochs are done",
    "max_time": "the time is up",
}


class Callback:
    """Base of all listeners; every method may be left as it is."""

    def on_begin(self, trainer: AnyTrainer) -> None:
        """Hear that training is about to begin, or to go on."""

    def on_epoch_end(self, trainer: AnyTrainer) -> None:
        """Hear that an epoch is over, its refill included."""

    def on_part_end(self, trainer: HeldOutTrainer) -> None:
        """Hear, every few seconds, that a part of an epoch is over."""

    def on_end(self, trainer: AnyTrainer) -> None:
        """Hear that training is over."""

    def close(self) -> None:
        """Let go of what is held, also when training was stopped."""


class ProgressDisplay(Callback):
    """Show epoch, both losses and the time left: live on a terminal, a line now and then elsewhere.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to write, by default standard error.
    every_seconds : float, default=10
        How often to write a line when the output is not a terminal.
    """

    def __init__(self, console: Any = None, every_seconds: float = 10.0) -> None:
        self._console = console
        self._every = every_seconds
        self._bar: Any = None
        self._task: Any = None
        self._start = self._last = 0.0
        self._first = 0

    def on_begin(self, trainer: AnyTrainer) -> None:
        """Open the display."""
        from rich.console import Console

        self._console = self._console or Console(file=sys.stderr)
        self._start = self._last = time.perf_counter()
        self._first = trainer.epoch
        if self._console.is_terminal:
            self._open(trainer)

    def _open(self, trainer: AnyTrainer) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[losses]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
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
        elif time.perf_counter() - self._last >= self._every:
            self._last = time.perf_counter()
            total = trainer.settings.train.max_epochs
            self._print(f"epoch {trainer.epoch}/{total}: {losses}, {self._left(trainer)}")

    def on_part_end(self, trainer: HeldOutTrainer) -> None:
        """Show how far a long epoch is."""
        done = trainer.epoch + trainer.position / trainer.n_rows
        if self._bar is not None:
            self._bar.update(self._task, completed=done, left=self._left(trainer, done))
        elif time.perf_counter() - self._last >= self._every:
            self._last = time.perf_counter()
            self._print(f"epoch {done:.2f}/{trainer.settings.train.max_epochs}: {self._left(trainer, done)}")

    def on_end(self, trainer: AnyTrainer) -> None:
        """Close the display and say how it ended."""
        self.close()
        seconds = time.perf_counter() - self._start
        why = ENDINGS[trainer.history.ending]
        self._print(f"trained {trainer.epoch} epochs in {seconds:.1f} s: {why}")

    def close(self) -> None:
        """Take the live display away, also when training was stopped."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _left(self, trainer: AnyTrainer, reached: float | None = None) -> str:
        reached = trainer.epoch if reached is None else reached
        rate = (time.perf_counter() - self._start) / max(reached - self._first, 1e-3)
        seconds = rate * (trainer.settings.train.max_epochs - reached)
        return f"at most {int(seconds // 60)}:{int(seconds % 60):02d} left"

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)
