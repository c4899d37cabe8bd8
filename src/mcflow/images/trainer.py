"""Training of H on images: predict observed pixels that are hidden at random."""

from __future__ import annotations

__all__ = ["ImageTrainer"]

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mcflow.fitting.callbacks import Callback
from mcflow.fitting.trainer import ValidatedTrainer
from mcflow.images.config import ImageConfig
from mcflow.images.flow import GREY_LEVELS, LogisticMixture
from mcflow.images.mask_generator import MaskGenerator
from mcflow.images.unet import PixelPrediction, UNet
from mcflow.random import Streams

#: Validation images that pass through H together.
IMAGES_AT_ONCE = 128

#: Images with fewer hidden pixels have a smaller weight in the loss.
MIN_PIXELS = 8

#: Gradient norm above which gradients are scaled down.
MAX_NORM = 10.0


class ImageTrainer(ValidatedTrainer):
    """Train a mask-aware H on incomplete images.

    At every step some observed pixels are hidden and predicted: their mean by the squared error, and their distribution
    by the likelihood.

    Shapes: `pixels`, `missing` (n_images, n_channels, height, width), `validation` (n_validation_images, n_channels,
    height, width).
    """

    config: ImageConfig
    network: UNet

    def __init__(
        self,
        config: ImageConfig,
        network: UNet,
        pixels: Tensor,
        missing: Tensor,
        streams: Streams,
        *,
        callbacks: Sequence[Callback] = (),
        seconds: float | None = None,
    ) -> None:
        super().__init__(config, network, len(pixels), streams, callbacks=callbacks, seconds=seconds)
        self.pixels, self.observed = pixels, ~missing
        self.masks = MaskGenerator(missing)
        n_images = min(config.validation_images, int(config.validation_images_share * len(pixels)) or len(pixels))
        self.validation = self._choose_validation(self.observed[:n_images])

    def _choose_validation(self, observed: Tensor) -> Tensor:
        """Return a mask of validation pixels: shapes like the missing ones, or a fraction of scattered pixels."""
        if self.masks.shaped:
            return self.masks(observed, self.streams.order)
        return self.masks.scattered(observed, self.config.validation_share, self.streams.order)

    def _shuffled(self) -> Tensor:
        return torch.randperm(self.n_rows, generator=self.streams.order)

    def _step(self, part: int, batch: Tensor) -> Tensor:
        batch = batch.to(self.pixels.device)
        pixels, observed = self.pixels[batch], self.observed[batch]
        with_validation = batch < len(self.validation)
        if bool(with_validation.any()):
            observed[with_validation] &= ~self.validation[batch[with_validation]]
        hidden = self.masks(observed, self.streams.order)
        if not bool(hidden.any()):
            return torch.zeros(())
        predicted = self.network(pixels, (observed & ~hidden).float())
        return self._update(part, self._loss(predicted, pixels, hidden), MAX_NORM)

    def _loss(self, predicted: PixelPrediction, pixels: Tensor, hidden: Tensor) -> Tensor:
        """Return the loss over hidden pixels; images have equal weights, however many of their pixels are hidden."""
        truth, counts = pixels[hidden], hidden.flatten(1).sum(1)
        weights = (1 / counts.clamp(min=MIN_PIXELS)).to(truth.dtype).repeat_interleave(counts)
        weights = weights / weights.sum()
        squares = (predicted.direct[hidden] - truth).square() @ weights
        levels = (truth * (GREY_LEVELS - 1)).round().to(torch.int64)
        likelihood = LogisticMixture(predicted.parameters[hidden]).log_mass(levels) @ weights
        return self.config.direct_weight * squares - self.config.likelihood_weight * likelihood

    def _validation_error(self) -> float | None:
        squares, count = 0.0, 0
        for predicted, pixels, mask in self.predict_validation():
            squares += float((predicted.direct[mask].clamp(0, 1) - pixels[mask]).square().sum())
            count += int(mask.sum())
        return squares / count if count else None

    def predict_validation(self) -> Iterator[tuple[PixelPrediction, Tensor, Tensor]]:
        """Yield H's predictions, the pixels and the validation mask of some images at a time."""
        self.network.eval()
        with torch.inference_mode():
            for first in range(0, len(self.validation), IMAGES_AT_ONCE):
                part = slice(first, min(first + IMAGES_AT_ONCE, len(self.validation)))
                mask, pixels = self.validation[part], self.pixels[part]
                yield self.network(pixels, (self.observed[part] & ~mask).float()), pixels, mask
        self.network.train()
