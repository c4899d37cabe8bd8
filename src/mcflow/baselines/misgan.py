"""MisganImputer: generators of rows and of masks, and an imputer that learns from both."""

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
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from mcflow.baselines.networks import (
    BestAverage,
    NetworkBaseline,
    RowImputer,
    batches,
    check_finite,
    column_means,
    count_steps,
    dense_network,
    hold_out,
    set_rate,
    start_at,
    take_step,
)
from mcflow.config import Interval, Options
from mcflow.imputers.draws import DrawsMixin
from mcflow.random import Streams
from mcflow.typing import FloatArray

#: Share of the observed places that is hidden from the imputer, where it is to recall them.
RECALL_SHARE = 0.2


@dataclass(frozen=True)
class MisganNetworks:
    """The six networks of MisGAN.

    Parameters
    ----------
    data_generator : nn.Module
        Turns normal noise of shape (n_rows, data_noise) into rows with values from 0 to 1.
    mask_generator : nn.Module
        Turns normal noise of shape (n_rows, mask_noise) into masks from 0 (missing) to 1 (observed).
    imputer : nn.Module
        Called with rows that hold noise in their holes, and with their masks; gives rows with values from 0 to 1.
    data_critic, mask_critic, imputer_critic : nn.Module
        Give a number a row for masked rows, masks and completed rows. A row's number must not depend on the other
        rows, so there is no place for batch normalization.
    data_noise, mask_noise : int
        Widths of the noise.
    """

    data_generator: nn.Module
    mask_generator: nn.Module
    imputer: nn.Module
    data_critic: nn.Module
    mask_critic: nn.Module
    imputer_critic: nn.Module
    data_noise: int
    mask_noise: int

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

    Parameters
    ----------
    mean : Tensor of shape (n_places,)
        Near which the generator of rows and the imputer start.
    share : Tensor of shape (n_places,)
        How much of each place is observed; the generator of masks starts there.
    generator : torch.Generator
        Draws the first weights.
    width : int, default=128
        Units of the two hidden layers of each network.
    noise : int, default=32
        Width of the noise of both generators.

    Returns
    -------
    MisganNetworks

    Examples
    --------
    >>> import torch
    >>> networks = table_networks(torch.full((3,), 0.2), torch.full((3,), 0.8), torch.Generator().manual_seed(0))
    >>> networks.data_generator(torch.zeros(1, 32))
    tensor([[0.2000, 0.2000, 0.2000]], grad_fn=<SigmoidBackward0>)
    """
    size = len(mean)

    def generates(start: Tensor) -> nn.Module:
        return start_at(dense_network([noise, width, width, size], generator, output=nn.Sigmoid), start)

    def judges() -> nn.Module:
        return dense_network([size, width, width, 1], generator)

    return MisganNetworks(
        data_generator=generates(mean),
        mask_generator=generates(share),
        imputer=RowImputer(mean, width, generator),
        data_critic=judges(),
        mask_critic=judges(),
        imputer_critic=judges(),
        data_noise=noise,
        mask_noise=noise,
    )


def gradient_penalty(critic: nn.Module, real: Tensor, fake: Tensor, shares: Tensor) -> Tensor:
    r"""Return how far a critic's slope is from 1 between real and fake rows.

    .. math:: \operatorname{mean} (\lVert \nabla D(r + s (f - r)) \rVert_2 - 1)^2

    Parameters
    ----------
    critic : nn.Module
        D, a number a row.
    real, fake : Tensor of shape (n_rows, ...)
        The ends r and f, without gradients.
    shares : Tensor of shape (n_rows,)
        The s, from 0 to 1.

    Returns
    -------
    Tensor
        A single number, with gradients to the critic's weights.
    """
    between = torch.lerp(real, fake, shares.view(-1, *[1] * (real.dim() - 1))).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    distance: Tensor = (slope.flatten(1).norm(dim=1) - 1).square().mean()
    return distance


def weighted(cells: Tensor, weight: float) -> Tensor:
    """Return the cells as they are, with the gradient that goes back through them multiplied by `weight`."""
    return cells.detach() + weight * (cells - cells.detach())


def proposal(imputer: nn.Module, rows: Tensor, mask: Tensor, uniforms: Tensor) -> Tensor:
    """Return what the imputer makes of rows with noise in their holes."""
    proposed: Tensor = imputer(torch.where(mask > 0, rows, uniforms), mask)
    return proposed


class MisganRules(Protocol):
    """The settings of the games, as every imputer that plays them has them."""

    alpha: float
    beta: float
    tau: float
    penalty: float
    learning_rate: float


class MisganGame:
    """Generators, imputer and critics with their optimisers.

    Parameters
    ----------
    networks : MisganNetworks
        Who plays.
    rules : MisganRules
        Settings.
    generator : torch.Generator
        Draws all noise.
    penalised : float, default=1
        Share of a batch that the gradient penalty is taken from.
    recall : float, default=0
        Weight of the squared error of hidden observed places in the imputer's loss.
    """

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
        """Return new rows, new masks, and the given rows, completed if the imputer plays."""
        n, count = self.networks, len(rows)
        made = n.data_generator(torch.randn(count, n.data_noise, generator=self.random))
        holes = n.mask_generator(torch.randn(count, n.mask_noise, generator=self.random))
        if not imputes:
            return made, holes, rows
        proposed = proposal(n.imputer, rows, mask, torch.rand(rows.shape, generator=self.random))
        return made, holes, torch.where(mask > 0, rows, proposed)

    def _masked(self, rows: Tensor, mask: Tensor) -> Tensor:
        return rows * mask + self.rules.tau * (1 - mask)

    def critics_loss(self, rows: Tensor, mask: Tensor, imputes: bool = True) -> Tensor:
        """Return the sum of the critics' losses, penalties included; without the imputer's unless it plays."""
        with torch.no_grad():
            made, holes, completed = self._made(rows, mask, imputes)
        pairs = [(self._masked(rows, mask), self._masked(made, holes)), (mask, holes), (made, completed)]
        n_games, some = 3 if imputes else 2, math.ceil(self._penalised * len(rows))
        loss = torch.zeros(())
        for critic, (real, fake) in zip(self.networks.critics[:n_games], pairs[:n_games], strict=True):
            shares = torch.rand(some, generator=self.random)
            steep = gradient_penalty(critic, real[:some], fake[:some], shares)
            loss = loss + critic(fake).mean() - critic(real).mean() + self.rules.penalty * steep
        return loss

    def generators_loss(self, rows: Tensor, mask: Tensor, imputes: bool = True) -> Tensor:
        """Return one number whose gradient is, for each generator, that of its own loss."""
        n = self.networks
        made, holes, completed = self._made(rows, mask, imputes)
        masks_game = -n.mask_critic(holes).mean()
        rows_game = -n.data_critic(self._masked(made, weighted(holes, self.rules.alpha))).mean()
        loss: Tensor = masks_game + rows_game
        if self._recall:
            loss = loss + self._recall * self._recalled(rows, mask)
        if imputes:
            real, fake = n.imputer_critic(weighted(made, self.rules.beta)).mean(), n.imputer_critic(completed).mean()
            loss = loss + real - fake
        return loss

    def _recalled(self, rows: Tensor, mask: Tensor) -> Tensor:
        """Return the squared error of observed places that are hidden from the imputer, a pixel with its channels."""
        places = (len(mask), 1, *mask.shape[2:]) if mask.ndim > 2 else mask.shape
        shown = mask * (torch.rand(places, generator=self.random) >= RECALL_SHARE)
        proposed = proposal(self.networks.imputer, rows, shown, torch.rand(rows.shape, generator=self.random))
        hidden = mask - shown
        return ((proposed - rows).square() * hidden).sum() / hidden.sum().clamp(min=1)

    def move(self, player: int, loss: Tensor) -> float:
        """Take a step of the critics (0) or of the generators (1)."""
        return take_step(self.optimisers[player], loss)


class MisganImputer(DrawsMixin, NetworkBaseline):
    r"""Fill holes by an imputer whose rows a critic cannot tell from generated complete ones (MisGAN).

    Parameters
    ----------
    networks : callable, optional
        Called with the number of places of a row, gives new `MisganNetworks`. Their first weights are as it makes them.
        Fully connected networks for tables when None, with weights from `random_state`.
    alpha : float, default=0.2
        Weight of the game of masked rows in the loss of the generator of masks.
    beta : float, default=0.1
        Weight of the game of completed rows in the loss of the generator of rows.
    tau : float, default=0.5
        What masked rows hold in their holes.
    penalty : float, default=10
        Weight of the gradient penalty of the critics.
    n_critic : int, default=3
        Steps of the critics for each step of the generators (published: 5).
    n_passes : int, default=8
        Passes with different noise that `transform` takes the mean of.
    held_out : float, default=0.05
        Share of the observed cells that is kept from training, to choose the imputer by.
    max_epochs : int, default=500
        Passes over the rows, at most; the critics' are not counted.
    max_steps : int, default=1500
        Steps of the generators, at most.
    batch_size : int, default=128
        Rows a step.
    learning_rate : float, default=5e-4
        Adam's rate for all networks, at the start; it falls to nothing along a cosine.
    **table : object
        Arguments of every baseline, among them `kinds`, `bounds` and `random_state`.

    Notes
    -----
    With masks m (1 where observed), :math:`f(x, m) = x \odot m + \tau (1 - m)`, a generator of rows x' and one of masks
    m', an imputer that turns (x, m) and noise into a completed row c, and a critic for each game:

    .. math::

        L_m &= D_m(m) - D_m(m') \\
        L_x &= D_x(f(x, m)) - D_x(f(x', m')) \\
        L_i &= D_i(x') - D_i(c)

    Critics raise their own loss; the generator of masks lowers :math:`L_m + \alpha L_x`, that of rows
    :math:`L_x + \beta L_i`, and the imputer :math:`L_i`. All three games are played at every step. The imputer's
    weights are averaged, and the average that did best on the held-out cells is kept. `draw` takes one pass with
    other noise each time.

    No loss looks at the error of a cell, only at whether rows look like rows, and on tables the method is little ahead
    of the column mean. It was made for images; `networks` takes convolutions as well.

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

    def __init__(
        self,
        *,
        networks: Callable[[int], MisganNetworks] | None = None,
        alpha: float = 0.2,
        beta: float = 0.1,
        tau: float = 0.5,
        penalty: float = 10.0,
        n_critic: int = 3,
        n_passes: int = 8,
        held_out: float = 0.05,
        max_epochs: int = 500,
        max_steps: int = 1_500,
        batch_size: int = 128,
        learning_rate: float = 5e-4,
        **table: Any,
    ) -> None:
        super().__init__(**table)
        self.networks = networks
        self.alpha = alpha
        self.beta = beta
        self.tau = tau
        self.penalty = penalty
        self.n_critic = n_critic
        self.n_passes = n_passes
        self.held_out = held_out
        self.max_epochs = max_epochs
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate

    def _train(self, rows: Tensor, owner: Tensor, streams: Streams) -> nn.Module:
        mask, held = hold_out(rows, owner, self.held_out, streams.order)
        rows = rows.nan_to_num()
        networks = self._build(rows, mask, streams.weights)
        game = MisganGame(networks, self, streams.order)
        keeper = BestAverage(
            networks.imputer, lambda imputer: held.error(lambda *given: self._mean(imputer, *given)), 100
        )
        n_steps = count_steps(len(rows), self.batch_size, self.max_epochs, self.max_steps)
        feed = batches(len(rows), self.batch_size, streams.order)
        for step in range(n_steps):
            for optimiser in game.optimisers:
                set_rate(optimiser, self.learning_rate, step / n_steps)
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
        """Return the mean of some passes, their noise moved on evenly from one to the next."""
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
