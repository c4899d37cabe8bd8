"""What the adversarial imputers of images share: the loop, the clock, held-out images, progress and draws."""

from __future__ import annotations

__all__ = ["Game", "GameTraining", "ImageGameImputer", "hold_out_images", "image_uniforms"]

import abc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from mcflow.baselines.networks import FEW_ROWS, BestAverage, HeldOut, batches, check_finite
from mcflow.config import Interval, Options, check_parameter
from mcflow.data.pixels import PixelCodec, Pixels
from mcflow.imputers.image_base import ImageImputer
from mcflow.random import Streams, row_uniforms, seed_from
from mcflow.training.callbacks import Callback
from mcflow.training.history import Epoch, History
from mcflow.training.progress import ProgressDisplay
from mcflow.training.threads import one_thread_when_small
from mcflow.typing import Array, BoolArray, RandomState

#: Images that are held out, at most.
MOST_HELD = 2_000

#: Share of the observed pixels of held-out images that is hidden.
HIDDEN_SHARE = 0.2

Batch = tuple[Tensor, Tensor]


class Game(Protocol):
    """Networks that play against one another."""

    @property
    def filler(self) -> nn.Module:
        """The network that fills holes."""

    def step(self, feed: Callable[[], Batch], done: float) -> float:
        """Move every network, and return the loss of the one that fills.

        `feed` gives pixels and masks (1 where observed) of a batch, both of shape (n_batch, channels, height, width);
        `done` is the share of the training that is over.
        """


def hold_out_images(
    pixels: Tensor, mask: Tensor, share: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, HeldOut]:
    """Set some images aside, and hide some of their observed pixels.

    Parameters
    ----------
    pixels, mask : Tensor of shape (n_images, channels, height, width)
        `mask` is 1 where observed.
    share : float
        Share of the images to set aside, none when there are few.
    generator : torch.Generator
        Chooses them, and the pixels that are hidden in all channels together.

    Returns
    -------
    pixels, mask : Tensor
        What is left.
    HeldOut
        The images that were set aside.

    Examples
    --------
    >>> import torch
    >>> ones = torch.ones(100, 1, 4, 4)
    >>> left, _, held = hold_out_images(ones, ones, 0.1, torch.Generator().manual_seed(0))
    >>> len(left), len(held.rows)
    (90, 10)
    """
    n_images, _, height, width = pixels.shape
    count = min(MOST_HELD, int(share * n_images)) if n_images >= FEW_ROWS else 0
    order = torch.randperm(n_images, generator=generator)
    held, left = order[:count], order[count:].sort().values
    hides = torch.rand(count, 1, height, width, generator=generator) < HIDDEN_SHARE
    some, seen = pixels[held], mask[held]
    uniforms = torch.rand(some.shape, generator=generator)
    aside = HeldOut(some, seen * ~hides, seen * hides, uniforms)
    return (pixels[left], mask[left], aside) if count else (pixels, mask, aside)


def image_uniforms(pixels: Tensor, missing: Tensor, seed: int) -> Tensor:
    """Return uniform numbers, one a pixel and channel, that depend on the seed and on the image alone.

    Parameters
    ----------
    pixels, missing : Tensor of shape (n_images, channels, height, width)
        Values and where they are missing.
    seed : int
        The seed of the whole.

    Returns
    -------
    Tensor of the same shape

    Examples
    --------
    >>> import torch
    >>> pixels, missing = torch.rand(3, 1, 2, 2), torch.zeros(3, 1, 2, 2, dtype=torch.bool)
    >>> whole = image_uniforms(pixels, missing, 0)
    >>> bool((image_uniforms(pixels[1:2], missing[1:2], 0) == whole[1:2]).all())
    True
    """
    rows = pixels.masked_fill(missing, torch.nan).flatten(1).double().numpy()
    return torch.from_numpy(row_uniforms(rows, seed)).float().view(pixels.shape)


class GameTraining:
    """A game that is played until the passes over the images, or the time, are over.

    Parameters
    ----------
    game : Game
        What is played.
    score : callable
        Gives the error of the network that fills; its average of weights with the lowest is kept.
    max_epochs : int
        Passes over the images.
    max_time : float, optional
        Seconds.
    decay : float, default=0.999
        Share of the average that a step keeps.
    """

    def __init__(
        self,
        game: Game,
        score: Callable[[nn.Module], float],
        max_epochs: int,
        max_time: float | None = None,
        decay: float = 0.999,
    ) -> None:
        self.game, self.epoch, self.history = game, 0, History()
        self.settings = SimpleNamespace(train=SimpleNamespace(max_epochs=max_epochs))
        self._max_time = max_time or math.inf
        self._start = time.perf_counter()
        self._keeper = BestAverage(game.filler, score, every=200, decay=decay)

    def run(
        self, pixels: Tensor, mask: Tensor, batch_size: int, generator: torch.Generator, heard_by: Any
    ) -> nn.Module:
        """Play, and return the average of the filling network's weights that scored best."""
        endless = batches(len(pixels), batch_size, generator)

        def feed() -> Batch:
            batch = next(endless)
            return pixels[batch], mask[batch]

        per_epoch = math.ceil(len(pixels) / batch_size)
        heard_by.on_begin(self)
        try:
            while not self.history.ending:
                self._play_epoch(feed, per_epoch)
                heard_by.on_epoch_end(self)
            heard_by.on_end(self)
        finally:
            heard_by.close()
        return self._keeper.best()

    def _play_epoch(self, feed: Callable[[], Batch], per_epoch: int) -> None:
        begun, losses, max_epochs = time.perf_counter(), [], self.settings.train.max_epochs
        for step in range(per_epoch):
            spent = (time.perf_counter() - self._start) / self._max_time
            if spent >= 1:
                self.history.ending = "max_time"
                break
            number = self.epoch * per_epoch + step
            losses.append(self.game.step(feed, max(number / (per_epoch * max_epochs), spent)))
            check_finite(losses[-1], number)
            self._keeper.update()
        self.epoch += 1
        seconds = time.perf_counter() - begun
        self.history.epochs.append(Epoch(self.epoch, 0.0, float(np.mean(losses or [math.nan])), 0, seconds))
        if self.epoch >= max_epochs and not self.history.ending:
            self.history.ending = "max_epochs"


class ImageGameImputer(ImageImputer):
    """Base of the imputers of images that are trained by a game.

    A subclass makes the game in `_make_game`, and fills by what it leaves in `_complete`. Networks run on the CPU in
    float32.

    Attributes
    ----------
    network_ : nn.Module
        The network that fills.
    history_ : History
        Epochs with the mean loss of that network, and why training ended.
    """

    #: What the parameters that all of them have may be.
    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        "max_epochs": Interval(int, 1),
        "batch_size": Interval(int, 1),
        "learning_rate": Interval(float, 0, 1, low_open=True),
        "held_out": Interval(float, 0, 0.5),
    }
    #: Share that a step keeps of the average of weights.
    decay: ClassVar[float] = 0.999
    max_epochs: int
    max_time: float | None
    batch_size: int
    held_out: float
    random_state: RandomState
    verbose: bool
    seed_: int
    network_: nn.Module
    history_: History

    @abc.abstractmethod
    def _make_game(self, pixels: Tensor, mask: Tensor, streams: Streams) -> Game:
        """Return the game for images with masks (1 where observed)."""

    @abc.abstractmethod
    def _one_pass(self, network: nn.Module, pixels: Tensor, mask: Tensor, uniforms: Tensor) -> Tensor:
        """Return images without a hole, given uniform numbers of their shape; observed pixels may differ."""

    def _point(self, network: nn.Module, pixels: Tensor, mask: Tensor, uniforms: Tensor) -> Tensor:
        """Return what `transform` fills in, by default one pass."""
        return self._one_pass(network, pixels, mask, uniforms)

    def _fit_pixels(self, codec: PixelCodec, pixels: Tensor, missing: Tensor) -> None:
        seed = seed_from(self.random_state)
        streams = Streams(seed)
        left, mask, held = hold_out_images(pixels, (~missing).float(), self.held_out, streams.order)
        with one_thread_when_small(min(len(left), self.batch_size) * left[0].numel()):
            game = self._make_game(left, mask, streams)
            training = GameTraining(game, partial(self._error, held), self.max_epochs, self.max_time, self.decay)
            heard_by = ProgressDisplay() if self.verbose else Callback()
            network = training.run(left, mask, self.batch_size, streams.order, heard_by)
        self.seed_, self.network_, self.history_ = seed, network, training.history

    def _error(self, held: HeldOut, network: nn.Module) -> float:
        """Return a network's error on held-out images, 0 if there are none."""
        return held.error(partial(self._point, network)) if len(held.rows) else 0.0

    def _fill_pixels(self, pixels: Tensor, missing: Tensor) -> Tensor:
        return self._filled_by(self._point, pixels, missing, self.seed_)

    def _filled_by(
        self, fill: Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor], pixels: Tensor, missing: Tensor, seed: int
    ) -> Tensor:
        with torch.inference_mode():
            return fill(self.network_, pixels, (~missing).float(), image_uniforms(pixels, missing, seed))

    def draw(self, X: Any, m: int = 20, random_state: RandomState = None, *, mask: Any = None) -> Iterator[Array]:
        """Draw completed images, each by one pass with noise of its own.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
            Of the size and type of those at fit.
        m : int, default=20
            Times to fill them.
        random_state : int, Generator, RandomState or None
            Decides the noise. An image's draws depend on it and on the image alone.
        mask : array-like of bool, optional
            True where a pixel is missing.

        Returns
        -------
        iterator
            Of m arrays of the shape and type of X.

        Raises
        ------
        ParameterError
            When m is not a whole number of at least 1.
        DataError
            When images are of another size or type than at fit.
        """
        check_is_fitted(self)
        check_parameter("m", m, Interval(int, 1))
        read = self._read(X, mask)
        series = np.random.SeedSequence(seed_from(random_state)).generate_state(int(m), np.uint64)
        return (self._drawn(read, int(word >> np.uint64(1))) for word in series)

    def _drawn(self, read: tuple[Array, Pixels, BoolArray], seed: int) -> Array:
        return self._filled_read(read, lambda pixels, missing: self._filled_by(self._one_pass, pixels, missing, seed))
