"""GAIN: a generator that fills missing cells against a discriminator that detects them."""

from __future__ import annotations

__all__ = [
    "GainGame",
    "GainGenerator",
    "GainImputer",
    "GainRules",
    "discriminator_loss",
    "draw_hint",
    "generator_loss",
]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from mcflow.baselines.base import DrawsMixin
from mcflow.config import Interval, Options
from mcflow.random import Streams
from mcflow.typing import FloatArray
from mcflow_bench.rivals.networks import (
    BestAverage,
    NetworkBaseline,
    RowImputer,
    batches,
    check_finite,
    column_means,
    count_steps,
    dense_network,
    hide_columns,
    masked_mean,
    set_learning_rate,
    split_validation,
    take_step,
)

#: Width of the noise in missing cells.
NOISE = 0.01

#: Hint for a cell whose mask is not revealed.
UNKNOWN = 0.5


def draw_hint(mask: Tensor, hint_rate: float, generator: torch.Generator) -> Tensor:
    """Return the mask where the hint reveals it, and 0.5 elsewhere.

    Shapes: `mask` (n_rows, n_places), returns (n_rows, n_places).

    Examples
    --------
    >>> import torch
    >>> draw_hint(torch.tensor([[1.0, 0.0]]), 0.0, torch.Generator().manual_seed(0))
    tensor([[0.5000, 0.5000]])
    """
    revealed = torch.rand(mask.shape, generator=generator) < hint_rate
    return torch.where(revealed, mask, UNKNOWN)


def discriminator_loss(logits: Tensor, mask: Tensor, hint: Tensor) -> Tensor:
    r"""Return the mean cross-entropy :math:`-m \log D - (1 - m) \log(1 - D)` over the cells without a hint.

    Shapes: `logits` (n_rows, n_places), `mask`, `hint` (n_rows, n_places).
    """
    return masked_mean(binary_cross_entropy_with_logits(logits, mask, reduction="none"), hint == UNKNOWN)


def generator_loss(logits: Tensor, mask: Tensor, hint: Tensor) -> Tensor:
    r"""Return the mean of :math:`-\log D` over the missing cells without a hint.

    Shapes: `logits`, `mask`, `hint` (n_rows, n_places).
    """
    return masked_mean(-logsigmoid(logits), (1 - mask) * (hint == UNKNOWN))


class GainGenerator(nn.Module):
    """Three layers that read a row with noise in its missing cells, and its mask."""

    def __init__(self, mean: Tensor, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.imputer = RowImputer(mean, width, generator)

    def forward(self, rows: Tensor, mask: Tensor, uniforms: Tensor) -> Tensor:
        """Return proposals for all places."""
        proposal: Tensor = self.imputer(torch.where(mask > 0, rows, NOISE * uniforms), mask)
        return proposal


class GainRules(Protocol):
    """The parameters that every imputer with this game has."""

    hint_rate: float
    alpha: float
    width: int | None
    learning_rate: float


class GainGame:
    """Generator and discriminator with their optimisers.

    Shapes: `mean` (n_places,).
    """

    def __init__(self, rules: GainRules, mean: Tensor, streams: Streams) -> None:
        width = rules.width or len(mean)
        self.random, self.rules = streams.order, rules
        self.generator = GainGenerator(mean, width, streams.weights)
        self.discriminator = dense_network([2 * len(mean), width, width, len(mean)], streams.weights)
        self.optimisers = [
            torch.optim.Adam(network.parameters(), lr=rules.learning_rate, fused=True)
            for network in (self.discriminator, self.generator)
        ]

    def step(self, rows: Tensor, observed: Tensor, mask: Tensor) -> float:
        """Update the discriminator, then the generator; `mask` is the part of `observed` that both see."""
        hint = draw_hint(mask, self.rules.hint_rate, self.random)
        output = self.generator(rows, mask, torch.rand(rows.shape, generator=self.random))
        filled = torch.where(mask > 0, rows, output)
        logits = self.discriminator(torch.cat([filled.detach(), hint], 1))
        take_step(self.optimisers[0], discriminator_loss(logits, mask, hint))
        self.discriminator.requires_grad_(False)
        logits = self.discriminator(torch.cat([filled, hint], 1))
        squares = masked_mean((output - rows).square(), observed)
        loss = take_step(self.optimisers[1], generator_loss(logits, mask, hint) + self.rules.alpha * squares)
        self.discriminator.requires_grad_(True)
        return loss


@dataclass(kw_only=True, eq=False, repr=False)
class GainImputer(DrawsMixin, NetworkBaseline):
    r"""Fill missing cells by a generator whose fills a discriminator cannot tell from observed cells (GAIN).

    Parameters
    ----------
    hint_rate : float, default=0.9
        Fraction of the mask that is revealed to the discriminator.
    alpha : float, default=100
        Weight of the squared error on observed cells in the generator's loss.
    dropout : float, default=0.1
        Fraction of the observed cells that is hidden from both networks at every step, as if it were missing, but is
        still in the squared error. 0 is the published method.
    width : int, optional
        Units of the two hidden layers of both networks; by default as many as a row has places.
    held_out : float, default=0.05
        Fraction of the observed cells that is not trained on, to choose the generator.
    max_epochs : int, default=1000
        Maximum number of epochs.
    max_steps : int, default=10000
        Maximum number of steps.
    batch_size : int, default=128
        Rows per step.
    learning_rate : float, default=1e-3
        Initial learning rate of Adam for both networks; it decays to zero along a cosine.
    **table : object
        Arguments of every baseline, among them `kinds`, `bounds` and `random_state`.

    Notes
    -----
    The generator reads a row x with noise from U(0, 0.01) in its missing cells and the mask m (1 where observed), and
    proposes a row g. The discriminator reads the filled row and a hint h, which is m for a fraction of the cells and
    one half for the others, and predicts for those others the probability D that they are observed:

    .. math::

        L_D &= -\operatorname{mean}_{h = 1/2} [m \log D + (1 - m) \log (1 - D)] \\
        L_G &= -\operatorname{mean}_{h = 1/2,\, m = 0} \log D + \alpha \operatorname{mean}_{o = 1} (g - x)^2

    where o is 1 for all observed cells. The game does not converge by itself: the weights of the generator are
    averaged, the learning rates decay, and the average with the lowest validation error is kept. The generator is
    initialised at the column means. `transform` makes one pass with noise that depends on the row alone, `draw` a pass
    with new noise for each draw; the noise is small, so draws differ little and intervals made of them are far too
    narrow.

    As published, the squared error is only over cells that the generator sees, so that missing cells are learned from
    the discriminator alone; with `dropout` it is also over cells that the generator does not see.

    References
    ----------
    J. Yoon, J. Jordon and M. van der Schaar, "GAIN: Missing Data Imputation using Generative Adversarial Nets",
    ICML 2018.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(200, 1)) * [1.0, 2.0, -1.0]
    >>> rows[::7, 1] = np.nan
    >>> filled = GainImputer(max_epochs=50, random_state=0).fit_transform(rows)
    >>> bool(np.isnan(filled).any())
    False
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        **NetworkBaseline.constraints,
        "hint_rate": Interval(float, 0, 1),
        "alpha": Interval(float, 0),
        "dropout": Interval(float, 0, 1),
        "width": Interval(int, 1, optional=True),
        "held_out": Interval(float, 0, 0.5),
    }
    hint_rate: float = 0.9
    alpha: float = 100.0
    dropout: float = 0.1
    width: int | None = None
    held_out: float = 0.05
    max_epochs: int = 1000
    max_steps: int = 10_000
    batch_size: int = 128
    learning_rate: float = 1e-3

    def _train(self, rows: Tensor, owner: Tensor, streams: Streams) -> nn.Module:
        observed, validation = split_validation(rows, owner, self.held_out, streams.order)
        rows = rows.nan_to_num()
        game = GainGame(self, column_means(rows, observed), streams)
        keeper = BestAverage(game.generator, validation.error)
        n_steps = count_steps(len(rows), self.batch_size, self.max_epochs, self.max_steps)
        feed = batches(len(rows), self.batch_size, streams.order)
        for step in range(n_steps):
            for optimiser in game.optimisers:
                set_learning_rate(optimiser, self.learning_rate, step / n_steps)
            batch = next(feed)
            x, seen = rows[batch], observed[batch]
            kept = ~hide_columns(x, owner, self.dropout, streams.order)
            check_finite(game.step(x, seen, seen * kept), step)
            keeper.update()
        return keeper.best()

    def _complete(self, rows: Tensor, uniforms: Tensor) -> Tensor:
        proposal: Tensor = self.network_(rows.nan_to_num(), (~rows.isnan()).float(), uniforms)
        return proposal

    def _draw_values(self, values: FloatArray, number: int, seed: int) -> FloatArray:
        return self._filled_by(lambda rows: self._completed_rows(rows, self._complete, seed), values)
