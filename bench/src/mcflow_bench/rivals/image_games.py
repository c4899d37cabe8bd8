"""Shared by the adversarial imputers of images: training loop, time limit, validation images, progress and draws."""

from __future__ import annotations

__all__ = ["Game", "GameTraining", "ImageGameImputer", "image_uniforms", "split_validation_images"]

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

from mcflow.config import Interval, Options, check_parameter
from mcflow.fitting.callbacks import Callback, Epoch, History
from mcflow.fitting.distributed import one_thread_when_small
from mcflow.fitting.progress import ProgressDisplay
from mcflow.images.pixels import PixelCodec, Pixels
from mcflow.imputers.image import ImageImputer
from mcflow.random import Streams, row_uniforms, seed_from
from mcflow.typing import Array, BoolArray, RandomState
from mcflow_bench.rivals.networks import FEW_ROWS, BestAverage, ValidationCells, batches, check_finite

#: Maximum number of validation images.
MAX_VALIDATION = 2_000

#: Fraction of the observed pixels of validation images that is hidden.
HIDDEN_SHARE = 0.2

Batch = tuple[Tensor, Tensor]


class Game(Protocol):
    """Networks that are trained against one another."""

    @property
    def filler(self) -> nn.Module:
        """The network that fills missing pixels."""

    def step(self, feed: Callable[[], Batch], done: float) -> float:
        """Update every network, and return the loss of the one that fills.

        `feed` returns pixels and masks (1 where observed) of a batch, both of shape (n_batch, channels, height, width);
        `done` is the fraction of the training that is over.
        """


def split_validation_images(
    pixels: Tensor, mask: Tensor, share: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, ValidationCells]:
    """Choose validation images and hide some of their observed pixels.

    Shapes: `pixels`, `mask` (n_images, channels, height, width).
    """
    n_images, _, height, width = pixels.shape
    count = min(MAX_VALIDATION, int(share * n_images)) if n_images >= FEW_ROWS else 0
    order = torch.randperm(n_images, generator=generator)
    chosen, left = order[:count], order[count:].sort().values
    hides = torch.rand(count, 1, height, width, generator=generator) < HIDDEN_SHARE
    some, seen = pixels[chosen], mask[chosen]
    uniforms = torch.rand(some.shape, generator=generator)
    validation = ValidationCells(some, seen * ~hides, seen * hides, uniforms)
    return (pixels[left], mask[left], validation) if count else (pixels, mask, validation)


def image_uniforms(pixels: Tensor, missing: Tensor, seed: int) -> Tensor:
    """Return uniform numbers per pixel and channel that depend on the seed and on the image alone.

    Shapes: `pixels`, `missing` (n_images, channels, height, width).
    """
    rows = pixels.masked_fill(missing, torch.nan).flatten(1).double().numpy()
    return torch.from_numpy(row_uniforms(rows, seed)).float().view(pixels.shape)


class GameTraining:
    """Training of a game until the maximum number of epochs or the time limit."""

    def __init__(
        self,
        game: Game,
        score: Callable[[nn.Module], float],
        max_epochs: int,
        max_time: float | None = None,
        decay: float = 0.999,
    ) -> None:
        self.game, self.epoch, self.history = game, 0, History()
        self.config = SimpleNamespace(max_epochs=max_epochs, max_time=max_time or 0.0)  # read by the progress display
        self._max_time = max_time or math.inf
        self._start = time.perf_counter()
        self._keeper = BestAverage(game.filler, score, every=200, decay=decay)

    def run(
        self, pixels: Tensor, mask: Tensor, batch_size: int, generator: torch.Generator, heard_by: Any
    ) -> nn.Module:
        """Train, and return the averaged filling network with the best validation score."""
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
        begun, losses, max_epochs = time.perf_counter(), [], self.config.max_epochs
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
    """Base class of the imputers of images that are trained by a game.

    A subclass makes the game in `_make_game` and fills in `_one_pass`. Networks run on the CPU in float32.
    """

    #: Constraints of the common parameters.
    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        "max_epochs": Interval(int, 1),
        "batch_size": Interval(int, 1),
        "learning_rate": Interval(float, 0, 1, low_open=True),
        "held_out": Interval(float, 0, 0.5),
    }
    #: Decay of the averaged weights per step.
    decay: ClassVar[float] = 0.999
    max_epochs: int
    max_time: float | None
    batch_size: int
    held_out: float
    random_state: RandomState
    verbose: bool
    seed_: int
    network_: nn.Module  # the network that fills
    history_: History  # epochs with the mean loss of that network, and the reason why training ended

    @abc.abstractmethod
    def _make_game(self, pixels: Tensor, mask: Tensor, streams: Streams) -> Game:
        """Return the game for images with masks (1 where observed)."""

    @abc.abstractmethod
    def _one_pass(self, network: nn.Module, pixels: Tensor, mask: Tensor, uniforms: Tensor) -> Tensor:
        """Return completed images, given uniform numbers of their shape; observed pixels may differ."""

    def _point(self, network: nn.Module, pixels: Tensor, mask: Tensor, uniforms: Tensor) -> Tensor:
        """Return the fill of `transform`, by default one pass."""
        return self._one_pass(network, pixels, mask, uniforms)

    def _fit_pixels(self, codec: PixelCodec, pixels: Tensor, missing: Tensor) -> None:
        seed = seed_from(self.random_state)
        streams = Streams(seed)
        left, mask, validation = split_validation_images(pixels, (~missing).float(), self.held_out, streams.order)
        with one_thread_when_small(min(len(left), self.batch_size) * left[0].numel()):
            game = self._make_game(left, mask, streams)
            training = GameTraining(game, partial(self._error, validation), self.max_epochs, self.max_time, self.decay)
            heard_by = ProgressDisplay() if self.verbose else Callback()
            network = training.run(left, mask, self.batch_size, streams.order, heard_by)
        self.seed_, self.network_, self.history_ = seed, network, training.history

    def _error(self, validation: ValidationCells, network: nn.Module) -> float:
        """Return a network's error on the validation images, 0 if there are none."""
        return validation.error(partial(self._point, network)) if len(validation.rows) else 0.0

    def _fill_pixels(self, pixels: Tensor, missing: Tensor) -> Tensor:
        return self._filled_by(self._point, pixels, missing, self.seed_)

    def _filled_by(
        self, fill: Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor], pixels: Tensor, missing: Tensor, seed: int
    ) -> Tensor:
        with torch.inference_mode():
            return fill(self.network_, pixels, (~missing).float(), image_uniforms(pixels, missing, seed))

    def draw(self, X: Any, m: int = 20, random_state: RandomState = None, *, mask: Any = None) -> Iterator[Array]:
        """Draw completed images, each by one pass with new noise.

        Shapes: `X` (n_images, height, width) or (n_images, height, width, channels).
        """
        check_is_fitted(self)
        check_parameter("m", m, Interval(int, 1))
        read = self._read(X, mask)
        series = np.random.SeedSequence(seed_from(random_state)).generate_state(int(m), np.uint64)
        return (self._drawn(read, int(word >> np.uint64(1))) for word in series)

    def _drawn(self, read: tuple[Array, Pixels, BoolArray], seed: int) -> Array:
        return self._filled(read, lambda pixels, missing: self._filled_by(self._one_pass, pixels, missing, seed))
