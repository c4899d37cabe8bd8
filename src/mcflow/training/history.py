"""What happened in a fit, epoch by epoch."""

from __future__ import annotations

__all__ = ["Epoch", "History"]

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Epoch:
    """One pass over the rows.

    Parameters
    ----------
    epoch : int
        Its number, from 1.
    flow_loss, latent_loss : float
        Means of G's and H's loss over the rows.
    stage : int
        Which restart of G it belongs to, from 0.
    seconds : float
        How long it took.
    held_error : float, optional
        Mean squared error on held-out cells after it, in squared spreads of their columns, where it was measured.
    """

    epoch: int
    flow_loss: float
    latent_loss: float
    stage: int
    seconds: float
    held_error: float | None = None


@dataclass
class History:
    """All epochs of a fit, in order, and why it ended.

    Parameters
    ----------
    epochs : list of Epoch
    ending : str
        Empty while the fit goes on, then "stable", "held_out", "max_epochs" or "max_time".
    """

    epochs: list[Epoch] = field(default_factory=list)
    ending: str = ""

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

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, as JSON holds them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> History:
        """Undo `to_dict`."""
        return cls([Epoch(**epoch) for epoch in given["epochs"]], given["ending"])
