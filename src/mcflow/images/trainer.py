"""Training on images: H predicts observed pixels that are hidden at random, and G learns their joint distribution."""

from __future__ import annotations

__all__ = ["ImageTrainer", "MaskGenerator", "fit_flow"]

import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mcflow.fitting.callbacks import Callback
from mcflow.fitting.trainer import ValidatedTrainer, cosine
from mcflow.images.config import ImageConfig
from mcflow.images.networks import GREY_LEVELS, ImageFlow, LogisticMixture, PixelPrediction, UNet, normal_scores
from mcflow.random import Streams

IMAGES_AT_ONCE = 128  #: Validation images that pass through H together.
MIN_PIXELS = 8  #: Images with fewer hidden pixels have a smaller weight in the loss.
MAX_NORM = 10.0  #: Gradient norm above which gradients of H are scaled down.
FLOW_WARM_UP = 0.1  #: Fraction of the training of G in which the learning rate rises.
MAX_FLOW_NORM = 1.0  #: Gradient norm above which gradients of G are scaled down.
#: Excess probability of a missing neighbour of a missing pixel, relative to its maximum, above which masks are shapes.
MIN_EXCESS = 0.2
MAX_IMAGES = 2048  #: Maximum number of images from which it is decided whether masks are shapes.
MIN_HIDDEN = 0.1  #: Smallest fraction of hidden pixels of an image.
MAX_HIDDEN = 0.3  #: Largest fraction of hidden pixels of most images.
MOSTLY_HIDDEN = 0.1  #: Probability with which more than `MAX_HIDDEN` of an image is hidden, up to all of it.


class MaskGenerator:
    """Choose observed pixels to hide.

    If the missing pixels of the images are scattered, pixels are hidden independently. If they form shapes, such as
    blocks or halves, an image gets the mask of another image, shifted at random and wrapped around the edges. Masks
    have the shape (n_images, n_channels, height, width).
    """

    def __init__(self, missing: Tensor) -> None:
        some = missing[:MAX_IMAGES].float()
        rate = float(some.mean())
        pairs = (some[..., 1:] * some[..., :-1]).sum() + (some[..., 1:, :] * some[..., :-1, :]).sum()
        singles = some[..., 1:].sum() + some[..., 1:, :].sum()
        excess = float(pairs / singles.clamp(min=1)) - rate
        self.shaped = 0 < rate < 1 and excess > MIN_EXCESS * (1 - rate)
        self.joint = bool((missing == missing[:, :1]).all())
        self.missing = missing

    def __call__(self, observed: Tensor, generator: torch.Generator) -> Tensor:
        """Return a mask, of the same shape, of the observed pixels to hide."""
        if self.shaped:
            return self._shifted(observed, generator) & observed
        many = torch.rand((len(observed), 1, 1, 1), generator=generator) < MOSTLY_HIDDEN
        shares = torch.rand((len(observed), 1, 1, 1), generator=generator)
        few = MIN_HIDDEN + (MAX_HIDDEN - MIN_HIDDEN) * shares
        shares = torch.where(many, MAX_HIDDEN + (1 - MAX_HIDDEN) * shares, few)
        return self.scattered(observed, shares, generator)

    def scattered(self, observed: Tensor, shares: Tensor | float, generator: torch.Generator) -> Tensor:
        """Return a mask of independent pixels with given probabilities; channels are hidden as they are missing."""
        sizes = (len(observed), 1 if self.joint else observed.shape[1], *observed.shape[2:])
        return (torch.rand(sizes, generator=generator) < shares).to(observed.device) & observed

    def _shifted(self, observed: Tensor, generator: torch.Generator) -> Tensor:
        """Return the masks of other images, each with its own random shift."""
        chosen = torch.randint(len(self.missing), (len(observed),), generator=generator)
        height, width = observed.shape[2:]
        down = torch.randint(height, (len(observed), 1, 1, 1), generator=generator)
        right = torch.randint(width, (len(observed), 1, 1, 1), generator=generator)
        rows = (torch.arange(height)[:, None] + down) % height
        columns = (torch.arange(width) + right) % width
        images = torch.arange(len(observed))[:, None, None, None]
        channels = torch.arange(observed.shape[1])[:, None, None]
        masks = self.missing[chosen.to(self.missing.device)].cpu()
        return masks[images, channels, rows, columns].to(observed.device)


class ImageTrainer(ValidatedTrainer):
    """Train a mask-aware H on incomplete images.

    At every step some observed pixels are hidden and predicted: their mean by the squared error, and their distribution
    by the likelihood. Pixels and masks have the shape (n_images, n_channels, height, width).
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
        observed = self.observed[:n_images]
        if self.masks.shaped:
            self.validation = self.masks(observed, streams.order)
        else:
            self.validation = self.masks.scattered(observed, config.validation_share, streams.order)

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


def fit_flow(
    trainer: ImageTrainer, flow: ImageFlow, n_steps: int, *, integers: bool, deadline: float | None = None
) -> None:
    """Train G by maximum likelihood on pixels that are hidden from the trained H, which does not change."""
    pixels, generator, rate = trainer.pixels, trainer.streams.order, trainer.config.flow_learning_rate
    start = time.perf_counter()
    optimiser = torch.optim.Adam(flow.parameters(), lr=rate)
    for step in range(n_steps):
        done = step / n_steps
        if deadline is not None:
            done = max(done, (time.perf_counter() - start) / max(deadline - start, 1e-9))
        if done >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, (1 + step) / (1 + FLOW_WARM_UP * n_steps)) * cosine(done)
        batch = torch.randint(len(pixels), (trainer.config.batch_size,), generator=generator).to(pixels.device)
        observed = trainer.observed[batch]
        hidden = trainer.masks(observed, generator)
        positions = torch.rand(int(hidden.sum()), generator=generator).to(pixels.device) if integers else None
        if not bool(hidden.any()):
            continue
        with torch.no_grad():
            predicted = trainer.network(pixels[batch], (observed & ~hidden).float())
            scores = normal_scores(predicted, pixels[batch], hidden, positions)
        loss = -flow.log_prob(scores, hidden, predicted.context).sum() / hidden.sum()
        if bool(torch.isfinite(loss)):
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(flow.parameters(), MAX_FLOW_NORM)
            optimiser.step()
