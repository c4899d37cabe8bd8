"""GainImageImputer: GAIN on the pixels of images."""

from __future__ import annotations

__all__ = ["GainImageImputer"]

from collections.abc import Callable, Mapping
from typing import ClassVar

from torch import Tensor, nn

from mcflow.config import Interval, Options
from mcflow.random import Streams
from mcflow.typing import RandomState
from mcflow_bench.rivals.gain import GainGame
from mcflow_bench.rivals.image_games import Batch, ImageGameImputer
from mcflow_bench.rivals.networks import column_means, set_learning_rate


class _FlatGame:
    """GAIN's game on images laid out as rows."""

    def __init__(self, game: GainGame) -> None:
        self.game = game

    @property
    def filler(self) -> nn.Module:
        return self.game.generator

    def step(self, feed: Callable[[], Batch], done: float) -> float:
        for optimiser in self.game.optimisers:
            set_learning_rate(optimiser, self.game.rules.learning_rate, done)
        pixels, mask = (part.flatten(1) for part in feed())
        return self.game.step(pixels, mask, mask)


class GainImageImputer(ImageGameImputer):
    r"""Fill missing pixels by a generator whose fills a discriminator cannot tell from observed pixels (GAIN).

    Parameters
    ----------
    hint_rate : float, default=0.9
        Fraction of the mask that is revealed to the discriminator.
    alpha : float, default=100
        Weight of the squared error on observed pixels in the generator's loss.
    width : int, default=512
        Units of the two hidden layers of both networks; if None, as many as an image has pixels, as published.
    held_out : float, default=0.05
        Fraction of the images, at most 2,000, that is not trained on, to choose the generator; a fifth of their
        observed pixels is hidden for that.
    max_epochs : int, default=10
        Maximum number of epochs.
    max_time : float, optional
        Maximum training time in seconds.
    batch_size : int, default=128
        Images per step.
    learning_rate : float, default=1e-3
        Initial learning rate of Adam for both networks; it decays to zero along a cosine.
    value_range : tuple of float, optional
        The values of black and white, for images of floats.
    random_state : int, Generator, RandomState or None, default=None
        Seed of all random numbers.
    verbose : bool, default=False
        Show progress.

    Attributes
    ----------
    network_ : GainGenerator
        The generator.
    history_ : History
        Epochs with the mean loss of the generator, and the reason why training ended.

    Notes
    -----
    The losses are those of `GainImputer` without its `dropout`, as published: the squared error is only over pixels
    that the generator sees, the others are learned from the discriminator and from shared layers. Both networks are
    fully connected over all channels of all pixels. In long training the generator forgets missing pixels and copies
    its input; the averaged weights with the lowest validation error are kept.

    `transform` makes one pass with noise that depends on the image alone, `draw` a pass with new noise for each draw;
    the noise is small, so draws differ little.

    References
    ----------
    J. Yoon, J. Jordon and M. van der Schaar, "GAIN: Missing Data Imputation using Generative Adversarial Nets",
    ICML 2018.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> images = np.repeat(rng.random((100, 1, 1)), 6, axis=1) * np.ones(6)
    >>> missing = rng.random(images.shape) < 0.3
    >>> filled = GainImageImputer(max_epochs=2, width=32, random_state=0).fit_transform(images, mask=missing)
    >>> filled.shape, bool((filled == images)[~missing].all())
    ((100, 6, 6), True)
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        **ImageGameImputer.constraints,
        "hint_rate": Interval(float, 0, 1),
        "alpha": Interval(float, 0),
        "width": Interval(int, 1, optional=True),
    }

    def __init__(
        self,
        *,
        hint_rate: float = 0.9,
        alpha: float = 100.0,
        width: int | None = 512,
        held_out: float = 0.05,
        max_epochs: int = 10,
        max_time: float | None = None,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        value_range: tuple[float, float] | None = None,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.hint_rate = hint_rate
        self.alpha = alpha
        self.width = width
        self.held_out = held_out
        self.max_epochs = max_epochs
        self.max_time = max_time
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.value_range = value_range
        self.random_state = random_state
        self.verbose = verbose

    def _make_game(self, pixels: Tensor, mask: Tensor, streams: Streams) -> _FlatGame:
        return _FlatGame(GainGame(self, column_means(pixels, mask).flatten(), streams))

    def _one_pass(self, network: nn.Module, pixels: Tensor, mask: Tensor, uniforms: Tensor) -> Tensor:
        proposed: Tensor = network(pixels.flatten(1), mask.flatten(1), uniforms.flatten(1))
        return proposed.view(pixels.shape)
