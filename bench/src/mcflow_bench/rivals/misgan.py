"""MisGAN: generators of rows and of masks, and an imputer that learns from both."""

from __future__ import annotations

__all__ = [
    "MisganGame",
    "MisganImputer",
    "MisganNetworks",
    "MisganRules",
    "gradient_penalty",
    "proposal",
    "table_networks",
    "weighted",
]

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

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
    set_learning_rate,
    split_validation,
    start_at,
    take_step,
)

#: Fraction of the observed places that is hidden from the imputer for the reconstruction term.
RECALL_SHARE = 0.2


@dataclass(frozen=True)
class MisganNetworks:
    """The six networks of MisGAN."""

    data_generator: nn.Module  # maps Gaussian noise of shape (n_rows, data_noise) to rows with values from 0 to 1
    mask_generator: nn.Module  # maps Gaussian noise of shape (n_rows, mask_noise) to masks, 1 where observed
    imputer: nn.Module  # maps rows with noise in their missing cells, and their masks, to rows from 0 to 1
    # A critic gives each row a number that must not depend on the other rows, which excludes batch normalisation.
    data_critic: nn.Module  # of masked rows
    mask_critic: nn.Module  # of masks
    imputer_critic: nn.Module  # of completed rows
    data_noise: int  # width of the noise of `data_generator`
    mask_noise: int  # width of the noise of `mask_generator`

    @property
    def generators(self) -> nn.ModuleList:
        """The two generators and the imputer."""
        return nn.ModuleList([self.data_generator, self.mask_generator, self.imputer])

    @property
    def critics(self) -> nn.ModuleList:
        """The critics of masked rows, of masks and of completed rows."""
        return nn.ModuleList([self.data_critic, self.mask_critic, self.imputer_critic])


def table_networks(
    mean: Tensor, share: Tensor, generator: torch.Generator, width: int = 128, noise: int = 32
) -> MisganNetworks:
    """Return fully connected networks for a table.

    Shapes: `mean` (n_places,), `share` (n_places,).

    Examples
    --------
    >>> import torch
    >>> networks = table_networks(torch.full((3,), 0.2), torch.full((3,), 0.8), torch.Generator().manual_seed(0))
    >>> networks.data_generator(torch.zeros(1, 32))
    tensor([[0.2000, 0.2000, 0.2000]], grad_fn=<SigmoidBackward0>)
    """
    size = len(mean)

    def generator_of(start: Tensor) -> nn.Module:
        return start_at(dense_network([noise, width, width, size], generator, output=nn.Sigmoid), start)

    def critic() -> nn.Module:
        return dense_network([size, width, width, 1], generator)

    return MisganNetworks(
        data_generator=generator_of(mean),
        mask_generator=generator_of(share),
        imputer=RowImputer(mean, width, generator),
        data_critic=critic(),
        mask_critic=critic(),
        imputer_critic=critic(),
        data_noise=noise,
        mask_noise=noise,
    )


def gradient_penalty(critic: nn.Module, real: Tensor, fake: Tensor, shares: Tensor) -> Tensor:
    r"""Return the gradient penalty of a critic between real and fake rows.

    .. math:: \operatorname{mean} (\lVert \nabla D(r + s (f - r)) \rVert_2 - 1)^2

    Shapes: `real`, `fake` (n_rows, ...), `shares` (n_rows,).
    """
    between = torch.lerp(real, fake, shares.view(-1, *[1] * (real.dim() - 1))).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    distance: Tensor = (slope.flatten(1).norm(dim=1) - 1).square().mean()
    return distance


def weighted(cells: Tensor, weight: float) -> Tensor:
    """Return the cells unchanged, with their gradient multiplied by `weight`."""
    return cells.detach() + weight * (cells - cells.detach())


def proposal(imputer: nn.Module, rows: Tensor, mask: Tensor, uniforms: Tensor) -> Tensor:
    """Return the imputer's output for rows with noise in their missing cells."""
    proposed: Tensor = imputer(torch.where(mask > 0, rows, uniforms), mask)
    return proposed


class MisganRules(Protocol):
    """The parameters that every imputer with these games has."""

    alpha: float
    beta: float
    tau: float
    penalty: float
    learning_rate: float


class MisganGame:
    """Generators, imputer and critics with their optimisers."""

    def __init__(
        self,
        networks: MisganNetworks,
        rules: MisganRules,
        generator: torch.Generator,
        *,
        penalised: float = 1.0,
        recall: float = 0.0,
    ) -> None:
        self.networks, self.rules, self.random = networks, rules, generator
        self._penalised, self._recall = penalised, recall
        self.optimisers = [
            torch.optim.Adam(players.parameters(), lr=rules.learning_rate, betas=(0.5, 0.9))
            for players in (networks.critics, networks.generators)
        ]

    def _made(self, rows: Tensor, mask: Tensor, imputes: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Return generated rows, generated masks, and the given rows, completed if the imputer takes part."""
        n, count = self.networks, len(rows)
        made = n.data_generator(torch.randn(count, n.data_noise, generator=self.random))
        masks = n.mask_generator(torch.randn(count, n.mask_noise, generator=self.random))
        if not imputes:
            return made, masks, rows
        proposed = proposal(n.imputer, rows, mask, torch.rand(rows.shape, generator=self.random))
        return made, masks, torch.where(mask > 0, rows, proposed)

    def _masked(self, rows: Tensor, mask: Tensor) -> Tensor:
        return rows * mask + self.rules.tau * (1 - mask)

    def critics_loss(self, rows: Tensor, mask: Tensor, imputes: bool = True) -> Tensor:
        """Return the sum of the critics' losses with penalties; without the imputer's critic unless it takes part."""
        with torch.no_grad():
            made, masks, completed = self._made(rows, mask, imputes)
        pairs = [(self._masked(rows, mask), self._masked(made, masks)), (mask, masks), (made, completed)]
        n_games, some = 3 if imputes else 2, math.ceil(self._penalised * len(rows))
        loss = torch.zeros(())
        for critic, (real, fake) in zip(self.networks.critics[:n_games], pairs[:n_games], strict=True):
            shares = torch.rand(some, generator=self.random)
            steep = gradient_penalty(critic, real[:some], fake[:some], shares)
            loss = loss + critic(fake).mean() - critic(real).mean() + self.rules.penalty * steep
        return loss

    def generators_loss(self, rows: Tensor, mask: Tensor, imputes: bool = True) -> Tensor:
        """Return a loss whose gradient is, for each generator, that of its own loss."""
        n = self.networks
        made, masks, completed = self._made(rows, mask, imputes)
        masks_game = -n.mask_critic(masks).mean()
        rows_game = -n.data_critic(self._masked(made, weighted(masks, self.rules.alpha))).mean()
        loss: Tensor = masks_game + rows_game
        if self._recall:
            loss = loss + self._recall * self._reconstruction(rows, mask)
        if imputes:
            real, fake = n.imputer_critic(weighted(made, self.rules.beta)).mean(), n.imputer_critic(completed).mean()
            loss = loss + real - fake
        return loss

    def _reconstruction(self, rows: Tensor, mask: Tensor) -> Tensor:
        """Return the squared error of observed places that are hidden from the imputer, channels together."""
        places = (len(mask), 1, *mask.shape[2:]) if mask.ndim > 2 else mask.shape
        shown = mask * (torch.rand(places, generator=self.random) >= RECALL_SHARE)
        proposed = proposal(self.networks.imputer, rows, shown, torch.rand(rows.shape, generator=self.random))
        hidden = mask - shown
        return ((proposed - rows).square() * hidden).sum() / hidden.sum().clamp(min=1)

    def move(self, player: int, loss: Tensor) -> float:
        """Take a step of the critics (0) or of the generators (1)."""
        return take_step(self.optimisers[player], loss)


@dataclass(kw_only=True, eq=False, repr=False)
class MisganImputer(DrawsMixin, NetworkBaseline):
    r"""Fill missing cells by an imputer whose rows a critic cannot tell from generated complete ones (MisGAN).

    Parameters
    ----------
    networks : callable, optional
        Returns new, initialised `MisganNetworks` for a number of places of a row. By default fully connected networks
        with initial weights from `random_state`.
    alpha : float, default=0.2
        Weight of the game of masked rows in the loss of the generator of masks.
    beta : float, default=0.1
        Weight of the game of completed rows in the loss of the generator of rows.
    tau : float, default=0.5
        Value of masked rows in their missing cells.
    penalty : float, default=10
        Weight of the gradient penalty of the critics.
    n_critic : int, default=3
        Steps of the critics for each step of the generators (published: 5).
    n_passes : int, default=8
        Passes with different noise that `transform` averages.
    held_out : float, default=0.05
        Fraction of the observed cells that is not trained on, to choose the imputer.
    max_epochs : int, default=500
        Maximum number of epochs, not counting those of the critics.
    max_steps : int, default=1500
        Maximum number of steps of the generators.
    batch_size : int, default=128
        Rows per step.
    learning_rate : float, default=5e-4
        Initial learning rate of Adam for all networks; it decays to zero along a cosine.
    **table : object
        Arguments of every baseline, among them `kinds`, `bounds` and `random_state`.

    Notes
    -----
    With masks m (1 where observed), :math:`f(x, m) = x \odot m + \tau (1 - m)`, a generator of rows x' and one of masks
    m', an imputer that maps (x, m) and noise to a completed row c, and a critic for each game:

    .. math::

        L_m &= D_m(m) - D_m(m') \\
        L_x &= D_x(f(x, m)) - D_x(f(x', m')) \\
        L_i &= D_i(x') - D_i(c)

    Critics maximise their own loss; the generator of masks minimises :math:`L_m + \alpha L_x`, that of rows
    :math:`L_x + \beta L_i`, and the imputer :math:`L_i`. All three games are played at every step. The imputer's
    weights are averaged, and the average with the lowest validation error is kept. `draw` makes one pass with new noise
    for each draw.

    No loss depends on the error of a cell, only on the distribution of rows, and on tables the method is little better
    than the column mean. It was made for images; `networks` may return convolutional networks as well.

    References
    ----------
    S. C.-X. Li, B. Jiang and B. Marlin, "MisGAN: Learning from Incomplete Data with Generative Adversarial
    Networks", ICLR 2019.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(200, 1)) * [1.0, 2.0, -1.0]
    >>> rows[::7, 1] = np.nan
    >>> filled = MisganImputer(max_steps=10, random_state=0).fit_transform(rows)
    >>> bool(np.isnan(filled).any())
    False
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        **NetworkBaseline.constraints,
        "alpha": Interval(float, 0),
        "beta": Interval(float, 0),
        "tau": Interval(float, 0, 1),
        "penalty": Interval(float, 0),
        "n_critic": Interval(int, 1),
        "n_passes": Interval(int, 1),
        "held_out": Interval(float, 0, 0.5),
    }
    networks: Callable[[int], MisganNetworks] | None = None
    alpha: float = 0.2
    beta: float = 0.1
    tau: float = 0.5
    penalty: float = 10.0
    n_critic: int = 3
    n_passes: int = 8
    held_out: float = 0.05
    max_epochs: int = 500
    max_steps: int = 1_500
    batch_size: int = 128
    learning_rate: float = 5e-4

    def _train(self, rows: Tensor, owner: Tensor, streams: Streams) -> nn.Module:
        mask, validation = split_validation(rows, owner, self.held_out, streams.order)
        rows = rows.nan_to_num()
        networks = self._build(rows, mask, streams.weights)
        game = MisganGame(networks, self, streams.order)
        keeper = BestAverage(
            networks.imputer, lambda imputer: validation.error(lambda *given: self._mean(imputer, *given)), 100
        )
        n_steps = count_steps(len(rows), self.batch_size, self.max_epochs, self.max_steps)
        feed = batches(len(rows), self.batch_size, streams.order)
        for step in range(n_steps):
            for optimiser in game.optimisers:
                set_learning_rate(optimiser, self.learning_rate, step / n_steps)
            for _ in range(self.n_critic):
                batch = next(feed)
                check_finite(game.move(0, game.critics_loss(rows[batch], mask[batch])), step)
            batch = next(feed)
            check_finite(game.move(1, game.generators_loss(rows[batch], mask[batch])), step)
            keeper.update()
        return keeper.best()

    def _build(self, rows: Tensor, mask: Tensor, generator: torch.Generator) -> MisganNetworks:
        if self.networks is not None:
            return self.networks(rows.shape[1])
        return table_networks(column_means(rows, mask), mask.mean(0), generator)

    def _mean(self, imputer: nn.Module, rows: Tensor, mask: Tensor, uniforms: Tensor) -> Tensor:
        """Return the mean of some passes whose noise is shifted evenly."""
        total = torch.zeros_like(rows)
        for k in range(self.n_passes):
            total += proposal(imputer, rows, mask, (uniforms + k / self.n_passes) % 1)
        return total / self.n_passes

    def _complete(self, rows: Tensor, uniforms: Tensor) -> Tensor:
        return self._mean(self.network_, rows.nan_to_num(), (~rows.isnan()).float(), uniforms)

    def _one_pass(self, rows: Tensor, uniforms: Tensor) -> Tensor:
        return proposal(self.network_, rows.nan_to_num(), (~rows.isnan()).float(), uniforms)

    def _draw_values(self, values: FloatArray, number: int, seed: int) -> FloatArray:
        return self._filled_by(lambda rows: self._completed_rows(rows, self._one_pass, seed), values)
