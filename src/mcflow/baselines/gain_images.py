"""GainImageImputer: GAIN on the pixels of images."""

from __future__ import annotations

__all__ = ["GainImageImputer"]

from collections.abc import Callable, Mapping
from typing import ClassVar

from torch import Tensor, nn

from mcflow.baselines.gain import GainGame
from mcflow.baselines.image_games import Batch, ImageGameImputer
from mcflow.baselines.networks import column_means, set_rate
from mcflow.config import Interval, Options
from mcflow.random import Streams
from mcflow.typing import RandomState


class _FlatGame:
    """GAIN's game on images laid out as rows."""

    def __init__(self, game: GainGame) -> None:
        self.game = game

    @property
    def filler(self) -> nn.Module:
        return self.game.generator

    def step(self, feed: Callable[[], Batch], done: float) -> float:
        for optimiser in self.game.optimisers:
            set_rate(optimiser, self.game.rules.learning_rate, done)
        pixels, mask = (part.flatten(1) for part in feed())
        return self.game.step(pixels, mask, mask)


class GainImageImputer(ImageGameImputer):
    r"""Fill holes of images by a generator whose fills a discriminator cannot tell from observed pixels (GAIN).

    Parameters
    ----------
    hint_rate : float, default=0.9
        Share of the mask that the discriminator is told.
    alpha : float, default=100
        Weight of the squared error on observed pixels in the generator's loss.
    width : int, default=512
        Units of the two hidden layers of both networks; as many as an image has pixels when None, as published.
    held_out : float, default=0.05
        Share of the images, 2,000 at most, that is kept from training to choose the generator by; a fifth of their
        observed pixels is hidden for it.
    max_epochs : int, default=10
        Passes over the images, at most.
    max_time : float, optional
        Seconds after which training ends.
    batch_size : int, default=128
        Images a step.
    learning_rate : float, default=1e-3
        Adam's rate for both networks, at the start; it falls to nothing along a cosine.
    value_range : tuple of float, optional
        What is black and what is white, for images of floats.
    random_state : int, Generator, RandomState or None, default=None
        Decides everything that is random.
    verbose : bool, default=False
        Show progress.

    Attributes
    ----------
    network_ : GainGenerator
        The generator.
    history_ : History
        Epochs with the mean of the generator's loss, and why training ended.

    Notes
    -----
    The losses are those of `mcflow.baselines.gain.GainImputer` without its `dropout`, as published: squared error only
    on pixels that the generator sees, the others are learned from the discriminator and from what the layers share.
    Both networks are fully connected, with all channels of all pixels side by side. Played for long, the generator
    forgets holes and copies what it sees; the average of weights that did best on the held-out images is kept.

    `transform` takes one pass with noise that depends on the image alone, `draw` a pass with other noise each time;
    the noise is small, and so draws differ little.

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
