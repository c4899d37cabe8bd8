"""Callbacks of a training and its history, epoch by epoch."""

from __future__ import annotations

__all__ = ["ENDINGS", "Callback", "Epoch", "History"]

from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

AnyTrainer: TypeAlias = Any  # a trainer of any algorithm, with `epoch`, `history`, `config`, `capture` and `restore`

#: Reasons for the end of a training, in words.
ENDINGS = {
    "stable": "both losses are stable",
    "early_stopping": "validation error no longer improves",
    "max_epochs": "maximum number of epochs reached",
    "max_time": "time limit reached",
}

SMALL_GAIN = 0.01  # decrease of the error in the second half of a training below which more time would bring little


@dataclass(frozen=True)
class Epoch:
    """One pass over the rows."""

    epoch: int  #: Number of the epoch, from 1.
    flow_loss: float  #: Mean loss of G.
    latent_loss: float  #: Mean loss of H.
    stage: int  #: Number of restarts of G before it.
    seconds: float  #: Duration.
    #: Mean squared error on validation cells after the epoch, in squared standard deviations, if it was measured.
    validation_error: float | None = None


@dataclass
class History:
    """Epochs of a training and the reason for its end."""

    epochs: list[Epoch] = field(default_factory=list)  #: The epochs, in order.
    ending: str = ""  #: Empty during the training, then "stable", "early_stopping", "max_epochs" or "max_time".
    #: Accuracy of the finished model by column of the model: column, number of validation cells, and error relative to
    #: that of the mean or the most frequent category. Empty if it was not measured.
    column_errors: list[tuple[int, int, float]] = field(default_factory=list)

    def column(self, name: str) -> list[Any]:
        """Return one field of every epoch.

        Parameters
        ----------
        name : str
            A field of `Epoch`.

        Returns
        -------
        list
        """
        return [getattr(epoch, name) for epoch in self.epochs]

    @property
    def cut_short(self) -> str:
        """How good a training is that the time limit ended, and what more time would bring; otherwise empty."""
        errors = [(epoch.epoch, epoch.validation_error) for epoch in self.epochs if epoch.validation_error is not None]
        if self.ending != "max_time" or not errors:
            return ""
        best = min(error for _, error in errors)
        subject = "That of the network" if self.column_errors else "It"
        n_cells = sum(n for _, n, _ in self.column_errors)
        share = sum(n * error for _, n, error in self.column_errors) / n_cells if n_cells else best**0.5
        words = f"The time limit ended the training: the error on validation cells is {share:.0%} of the mean's. "
        half = [error for epoch, error in errors if epoch <= errors[-1][0] / 2]
        gain = 1 - (best / min(half)) ** 0.5 if half and min(half) > 0 else 1.0
        if gain < SMALL_GAIN:
            return words + f"{subject} hardly changed in the second half, so more time would bring little."
        change = f"fell by {gain:.0%} in the second half" if half else "was measured too early to compare"
        return words + f"{subject} {change}, so more time (max_time, --max-time) should lower it."

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, as JSON holds them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> History:
        """Undo `to_dict`."""
        errors = [tuple(one) for one in given.get("column_errors", ())]
        return cls([Epoch(**epoch) for epoch in given["epochs"]], given["ending"], errors)


class Callback:
    """Base class of callbacks, notified when training starts, after each epoch, and when it ends; override any."""

    def on_begin(self, trainer: AnyTrainer) -> None:
        """Handle the start of the training, also when it resumes."""

    def on_epoch_end(self, trainer: AnyTrainer) -> None:
        """Handle the end of an epoch, after its refill."""

    def on_part_end(self, trainer: AnyTrainer) -> None:
        """Handle progress within an epoch, every few seconds."""

    def on_end(self, trainer: AnyTrainer) -> None:
        """Handle the end of the training."""

    def on_fitted(self, history: History) -> None:
        """Handle the end of the fit, after all phases."""

    def on_phase(self, name: str) -> None:
        """Handle the start of a phase before or after the epochs, such as "calibrating"."""

    def close(self) -> None:
        """Release resources; also called when training was interrupted."""
