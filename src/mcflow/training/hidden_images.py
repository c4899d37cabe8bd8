"""H of images learns to fill pixels that are hidden from it on purpose."""

from __future__ import annotations

__all__ = ["HiddenImageTrainer"]

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mcflow.config import Settings
from mcflow.flows.logistic import LEVELS, LogisticMixture
from mcflow.latent.image_mapper import ImageAnswer, ImageMapper
from mcflow.random import Streams
from mcflow.training.callbacks import Callback
from mcflow.training.held_out import HeldOutTrainer
from mcflow.training.holes import HoleMaker

#: Images in which pixels are held out, at most, and as a share of all; and those that are looked at together.
HELD_IMAGES, HELD_SHARE, IMAGES_AT_ONCE = 1024, 0.25, 128

#: Weights of the squared error and of the log-likelihood.
DIRECT_WEIGHT, LIKELIHOOD_WEIGHT = 20.0, 0.2

#: Hidden pixels below which an image counts less than others.
FEW_PIXELS = 8

#: The norm of a gradient is at most this.
LARGEST_GRADIENT = 10.0


class HiddenImageTrainer(HeldOutTrainer):
    """Train a mask-aware H on images with holes.

    At every step some observed pixels are hidden and learned: their mean, by the squared error, and their distribution,
    by its likelihood.

    Parameters
    ----------
    settings : Settings
        With every size as a number.
    mapper : ImageMapper
        H, trained in place.
    pixels : Tensor of shape (n_images, n_channels, height, width)
        Float32, between 0 and 1; anything where a pixel is missing.
    missing : Tensor of the same shape
        Boolean.
    streams : Streams
        Where every random number comes from.
    callbacks : sequence of Callback
        Told of the beginning, of every epoch and of the end.
    seconds : float, optional
        That it may take, 0 for no limit.

    Attributes
    ----------
    held : Tensor of shape (n_held_images, n_channels, height, width)
        Observed pixels of the first images that were never learned.
    """

    def __init__(
        self,
        settings: Settings,
        mapper: ImageMapper,
        pixels: Tensor,
        missing: Tensor,
        streams: Streams,
        *,
        callbacks: Sequence[Callback] = (),
        seconds: float | None = None,
    ) -> None:
        super().__init__(settings, mapper, len(pixels), streams, callbacks=callbacks, seconds=seconds)
        self.mapper, self.pixels, self.seen = mapper, pixels, ~missing
        self.holes = HoleMaker(missing)
        n_held = min(HELD_IMAGES, int(HELD_SHARE * len(pixels)) or len(pixels))
        self.held = self._held_of(self.seen[:n_held])

    def _held_of(self, seen: Tensor) -> Tensor:
        """Choose what is held out: shapes as they are, and a share of scattered pixels."""
        if self.holes.shaped:
            return self.holes(seen, self.streams.order)
        sizes = (len(seen), 1 if self.holes.joint else seen.shape[1], *seen.shape[2:])
        chances = torch.rand(sizes, generator=self.streams.order).to(seen.device)
        return (chances < self.settings.train.held_share) & seen

    def _shuffled(self) -> Tensor:
        return torch.randperm(self.n_rows, generator=self.streams.order)

    def _step(self, batch: Tensor) -> Tensor:
        batch = batch.to(self.pixels.device)
        pixels, seen = self.pixels[batch], self.seen[batch]
        kept = batch < len(self.held)
        if bool(kept.any()):
            seen[kept] &= ~self.held[batch[kept]]
        hidden = self.holes(seen, self.streams.order)
        shown = seen & ~hidden
        if not bool(hidden.any()):
            return torch.zeros(())
        answer = self.mapper(pixels, shown.float())
        return self._update(self._loss(answer, pixels, hidden), LARGEST_GRADIENT)

    @staticmethod
    def _loss(answer: ImageAnswer, pixels: Tensor, hidden: Tensor) -> Tensor:
        """Return the loss over hidden pixels, in which images count alike, however much of them is hidden."""
        truth, counts = pixels[hidden], hidden.flatten(1).sum(1)
        weights = (1 / counts.clamp(min=FEW_PIXELS)).to(truth.dtype).repeat_interleave(counts)
        weights = weights / weights.sum()
        missed = (answer.direct[hidden] - truth).square() @ weights
        levels = (truth * (LEVELS - 1)).round().to(torch.int64)
        likelihood = LogisticMixture(answer.parameters[hidden]).log_mass(levels) @ weights
        return DIRECT_WEIGHT * missed - LIKELIHOOD_WEIGHT * likelihood

    def _held_error(self) -> float | None:
        squares, count = 0.0, 0
        for answer, pixels, held in self.held_looks():
            squares += float((answer.direct[held].clamp(0, 1) - pixels[held]).square().sum())
            count += int(held.sum())
        return squares / count if count else None

    def held_looks(self) -> Iterator[tuple[ImageAnswer, Tensor, Tensor]]:
        """Ask H of the images with held-out pixels, some at a time; yield its answer, the truth and which pixels."""
        self.mapper.eval()
        with torch.inference_mode():
            for first in range(0, len(self.held), IMAGES_AT_ONCE):
                part = slice(first, min(first + IMAGES_AT_ONCE, len(self.held)))
                held, pixels = self.held[part], self.pixels[part]
                yield self.mapper(pixels, (self.seen[part] & ~held).float()), pixels, held
        self.mapper.train()
