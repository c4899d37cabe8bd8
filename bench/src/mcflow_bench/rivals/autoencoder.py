"""AutoencoderImputer: an over-complete denoising auto-encoder."""

from __future__ import annotations

__all__ = ["AutoencoderImputer", "DenoisingAutoencoder"]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mcflow.config import Interval, Options
from mcflow.random import Streams
from mcflow_bench.rivals.networks import (
    NetworkBaseline,
    batches,
    check_finite,
    column_means,
    count_steps,
    dense_network,
    hide_columns,
    masked_mean,
    take_step,
)


class DenoisingAutoencoder(nn.Module):
    """Layers that widen by `theta` units three times and narrow again; missing cells enter as the column's mean."""

    mean: Tensor

    def __init__(self, mean: Tensor, theta: int, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        up = [len(mean) + k * theta for k in range(4)]
        self.layers = dense_network([*up, *up[-2::-1]], generator, hidden=nn.Tanh)

    def forward(self, rows: Tensor, seen: Tensor) -> Tensor:
        """Reconstruct rows from the places where `seen` is 1."""
        rebuilt: Tensor = self.layers((rows - self.mean) * seen) + self.mean
        return rebuilt


@dataclass(kw_only=True, eq=False, repr=False)
class AutoencoderImputer(NetworkBaseline):
    r"""Fill missing cells with an over-complete denoising auto-encoder (MIDA).

    Parameters
    ----------
    theta : int, default=7
        Units by which each of three hidden layers is wider than the previous one.
    dropout : float, default=0.5
        Fraction of the observed cells that is hidden from the network at every step.
    max_epochs : int, default=500
        Maximum number of epochs.
    max_steps : int, default=20000
        Maximum number of steps, which applies to tables of more than about 5,000 rows.
    batch_size : int, default=128
        Rows per step.
    learning_rate : float, default=0.01
        The highest learning rate of Adam; it rises to this and decays to zero (one cycle).
    **table : object
        Arguments of every baseline, among them `kinds`, `bounds` and `random_state`.

    Notes
    -----
    A row x with mask m (1 where observed) enters as its difference to the column means c, with zeros in its missing
    cells and in the cells that the corruption k hides. Layers of d, d + θ, d + 2θ and d + 3θ units and their mirror,
    with tanh between, reconstruct it, and the loss is over the observed cells:

    .. math:: L = \frac{\lVert m \odot (f((x - c) \odot m \odot k) + c - x) \rVert^2}{\lVert m \rVert_1}

    The places of a categorical column are hidden together. Differences from the publication: Adam with a one-cycle
    learning rate instead of gradient descent with Nesterov momentum; hidden cells enter as the mean, as missing ones
    do; cells that were filled by the mean are not in the loss.

    References
    ----------
    L. Gondara and K. Wang, "MIDA: Multiple Imputation Using Denoising Autoencoders", PAKDD 2018.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(200, 1)) * [1.0, 2.0, -1.0]
    >>> rows[::7, 1] = np.nan
    >>> filled = AutoencoderImputer(max_epochs=50, random_state=0).fit_transform(rows)
    >>> bool(np.abs(filled[:, 1] - 2 * rows[:, 0]).max() < 1)
    True
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        **NetworkBaseline.constraints,
        "theta": Interval(int, 0),
        "dropout": Interval(float, 0, 1),
    }
    theta: int = 7
    dropout: float = 0.5
    max_epochs: int = 500
    max_steps: int = 20_000
    batch_size: int = 128
    learning_rate: float = 0.01

    def _train(self, rows: Tensor, owner: Tensor, streams: Streams) -> nn.Module:
        seen, rows = (~rows.isnan()).float(), rows.nan_to_num()
        network = DenoisingAutoencoder(column_means(rows, seen), self.theta, streams.weights)
        n_steps = count_steps(len(rows), self.batch_size, self.max_epochs, self.max_steps)
        optimiser = torch.optim.Adam(network.parameters(), lr=self.learning_rate, fused=True)
        # One step more than are taken, since the cycle cannot be shorter than two.
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, self.learning_rate, n_steps + 1)
        feed = batches(len(rows), self.batch_size, streams.order)
        for step in range(n_steps):
            batch = next(feed)
            x, m = rows[batch], seen[batch]
            kept = ~hide_columns(x, owner, self.dropout, streams.order)
            loss = masked_mean((network(x, m * kept) - x).square(), m)
            check_finite(take_step(optimiser, loss), step)
            schedule.step()
        return network

    def _complete(self, rows: Tensor, uniforms: Tensor) -> Tensor:
        rebuilt: Tensor = self.network_(rows.nan_to_num(), (~rows.isnan()).float())
        return rebuilt
