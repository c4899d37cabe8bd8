"""What listens to a fit: the events that a fit tells of, and those who hear them."""

from __future__ import annotations

__all__ = ["ENDINGS", "Callback", "closing_all", "tell_phase"]

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

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

    def on_phase(self, name: str) -> None:
        """Hear that something before or after the epochs begins, such as "calibrating"."""

    def close(self) -> None:
        """Let go of what is held, also when training was stopped."""


@contextlib.contextmanager
def closing_all(callbacks: Sequence[Callback]) -> Iterator[None]:
    """Close all listeners at the end of the block, however it ends.

    Parameters
    ----------
    callbacks : sequence of Callback
        Those who hear of the fit.
    """
    try:
        yield
    finally:
        for callback in callbacks:
            callback.close()


def tell_phase(callbacks: Sequence[Callback], name: str) -> None:
    """Tell all listeners what a fit does now.

    Parameters
    ----------
    callbacks : sequence of Callback
        Those who hear of the fit.
    name : str
        What begins, in words.
    """
    for callback in callbacks:
        callback.on_phase(name)
