"""MisGANImageImputer: MisGAN with convolutions, for images."""

from __future__ import annotations

__all__ = ["MisGANImageImputer", "image_networks"]

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from mcflow.config import Interval, Options
from mcflow.random import Streams
from mcflow.typing import RandomState
from mcflow_bench.rivals.image_games import Batch, ImageGameImputer
from mcflow_bench.rivals.image_networks import ImageFiller, ImageGenerator, MaskGenerator, PatchCritic
from mcflow_bench.rivals.misgan import MisganGame, MisganNetworks, proposal
from mcflow_bench.rivals.networks import column_means, set_learning_rate

#: Width of the noise of a generated image.
DATA_NOISE = 64

#: Channels of the networks of masks.
MASK_WIDTH = 16

#: Fraction of a batch that the gradient penalty is computed on, since it is the most expensive part.
PENALISED = 0.5


def image_networks(
    pixels: Tensor, mask: Tensor, generator: torch.Generator, width: int = 32, noise: float = 0.1
) -> MisganNetworks:
    """Return convolutional networks for images.

    Shapes: `pixels`, `mask` (n_images, channels, height, width).
    """
    mean, share, shape = column_means(pixels, mask), mask.mean(0), (*pixels.shape[1:],)
    together = bool((mask == mask[:, :1]).all())
    masks = MaskGenerator(share[:1] if together else share, len(share), MASK_WIDTH, generator)
    return MisganNetworks(
        data_generator=ImageGenerator(mean, DATA_NOISE, 2 * width, generator),
        mask_generator=masks,
        imputer=ImageFiller(mean, 2 * width, 3, noise, generator),
        data_critic=PatchCritic(shape, width, generator),
        mask_critic=PatchCritic(shape, MASK_WIDTH, generator),
        imputer_critic=PatchCritic(shape, width, generator),
        data_noise=DATA_NOISE,
        mask_noise=masks.noise,
    )


class _ImageGame:
    """MisGAN's games with the learning rates of one training."""

    def __init__(self, game: MisganGame, rules: MisGANImageImputer) -> None:
        self.game, self.rules = game, rules

    @property
    def filler(self) -> nn.Module:
        return self.game.networks.imputer

    def step(self, feed: Callable[[], Batch], done: float) -> float:
        critics, generators = self.game.optimisers
        set_learning_rate(critics, self.rules.critic_rate, done)
        set_learning_rate(generators, self.rules.learning_rate, done)
        imputes = done >= self.rules.warm_up
        for _ in range(self.rules.n_critic):
            self.game.move(0, self.game.critics_loss(*feed(), imputes))
        return self.game.move(1, self.game.generators_loss(*feed(), imputes))


class MisGANImageImputer(ImageGameImputer):
    r"""Fill missing pixels by an imputer whose images a critic cannot tell from generated ones (MisGAN).

    Parameters
    ----------
    alpha : float, default=0.2
        Weight of the game of masked images in the loss of the generator of masks.
    beta : float, default=0.1
        Weight of the game of completed images in the loss of the generator of images.
    tau : float, default=0
        Value of masked images in their missing pixels.
    penalty : float, default=10
        Weight of the gradient penalty of the critics.
    n_critic : int, default=2
        Steps of the critics for each step of the generators (published: 5, with equal learning rates).
    n_draws : int, default=1
        Passes with different noise that `transform` averages. One, as published, gives sharp images; the mean of
        several has a lower squared error and is softer.
    noise : float, default=0.1
        Width of the noise in missing pixels (published: 1).
    recall : float, default=100
        Weight, in the imputer's loss, of the squared error of observed pixels that are hidden from it for that
        (published: 0, where the imputer learns from its critic alone).
    width : int, default=32
        Channels of the critics; imputer and generator of images have twice as many.
    warm_up : float, default=0.4
        Fraction of the training in which only the games of masks and of masked images are played, so that the imputer
        learns from generated images of good quality.
    held_out : float, default=0.05
        Fraction of the images, at most 2,000, that is not trained on, to choose the imputer; a fifth of their
        observed pixels is hidden for that.
    max_epochs : int, default=4
        Maximum number of epochs, not counting those of the critics.
    max_time : float, optional
        Maximum training time in seconds.
    batch_size : int, default=64
        Images per step.
    learning_rate, critic_rate : float, default=5e-4 and 1e-3
        Initial learning rates of Adam for generators and critics; they decay to zero along a cosine.
    value_range : tuple of float, optional
        The values of black and white, for images of floats.
    random_state : int, Generator, RandomState or None, default=None
        Seed of all random numbers.
    verbose : bool, default=False
        Show progress.

    Attributes
    ----------
    network_ : ImageFiller
        The imputer.
    history_ : History
        Epochs with the mean loss of the generators, and the reason why training ended.

    Notes
    -----
    The games are those of `mcflow_bench.rivals.misgan.MisganImputer`: with
    :math:`f(x, m) = x \odot m + \tau (1 - m)`, images x and masks m (1 where observed), generated ones x' and m', and
    completed images c,

    .. math::

        L_m &= D_m(m) - D_m(m') \\
        L_x &= D_x(f(x, m)) - D_x(f(x', m')) \\
        L_i &= D_i(x') - D_i(c)

    Critics maximise their loss, with a gradient penalty; the generator of masks minimises :math:`L_m + \alpha L_x`,
    that of images :math:`L_x + \beta L_i`, the imputer :math:`L_i`, to which `recall` adds the squared error of a fifth
    of the observed pixels, hidden from it for that. Without that term no loss depends on the error of a pixel, and the
    imputer needs hundreds of epochs; with it, as in GAIN, a few are enough.

    All networks are convolutional over patches of 4 × 4 pixels. To train in minutes on two cores, critics have the
    higher learning rate and fewer steps (Heusel et al. 2017), the gradient penalty is computed on half of each batch,
    and the imputer is the average of the weights with the lowest validation error. The generator of masks has noise for
    each pixel besides that for the mask as a whole, since pixels that are missing independently cannot be generated
    from a few numbers.

    References
    ----------
    S. C.-X. Li, B. Jiang and B. Marlin, "MisGAN: Learning from Incomplete Data with Generative Adversarial
    Networks", ICLR 2019.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> images = np.repeat(rng.random((100, 1, 1)), 6, axis=1) * np.ones(6)
    >>> missing = rng.random(images.shape) < 0.3
    >>> filled = MisGANImageImputer(max_epochs=1, width=8, random_state=0).fit_transform(images, mask=missing)
    >>> filled.shape, bool((filled == images)[~missing].all())
    ((100, 6, 6), True)
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        **ImageGameImputer.constraints,
        "alpha": Interval(float, 0),
        "beta": Interval(float, 0),
        "tau": Interval(float, 0, 1),
        "penalty": Interval(float, 0),
        "n_critic": Interval(int, 1),
        "n_draws": Interval(int, 1),
        "noise": Interval(float, 0, 1),
        "recall": Interval(float, 0),
        "width": Interval(int, 1),
        "warm_up": Interval(float, 0, 1),
        "critic_rate": Interval(float, 0, 1, low_open=True),
    }
    decay = 0.995

    def __init__(
        self,
        *,
        alpha: float = 0.2,
        beta: float = 0.1,
        tau: float = 0.0,
        penalty: float = 10.0,
        n_critic: int = 2,
        n_draws: int = 1,
        noise: float = 0.1,
        recall: float = 100.0,
        width: int = 32,
        warm_up: float = 0.4,
        held_out: float = 0.05,
        max_epochs: int = 4,
        max_time: float | None = None,
        batch_size: int = 64,
        learning_rate: float = 5e-4,
        critic_rate: float = 1e-3,
        value_range: tuple[float, float] | None = None,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.tau = tau
        self.penalty = penalty
        self.n_critic = n_critic
        self.n_draws = n_draws
        self.noise = noise
        self.recall = recall
        self.width = width
        self.warm_up = warm_up
        self.held_out = held_out
        self.max_epochs = max_epochs
        self.max_time = max_time
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.critic_rate = critic_rate
        self.value_range = value_range
        self.random_state = random_state
        self.verbose = verbose

    def _make_game(self, pixels: Tensor, mask: Tensor, streams: Streams) -> _ImageGame:
        networks = image_networks(pixels, mask, streams.weights, self.width, self.noise)
        return _ImageGame(MisganGame(networks, self, streams.order, penalised=PENALISED, recall=self.recall), self)

    def _one_pass(self, network: nn.Module, pixels: Tensor, mask: Tensor, uniforms: Tensor) -> Tensor:
        return proposal(network, pixels, mask, uniforms)

    def _point(self, network: nn.Module, pixels: Tensor, mask: Tensor, uniforms: Tensor) -> Tensor:
        """Return the mean of some passes whose noise is shifted evenly."""
        total = torch.zeros_like(pixels)
        for k in range(self.n_draws):
            total += proposal(network, pixels, mask, (uniforms + k / self.n_draws) % 1)
        return total / self.n_draws
