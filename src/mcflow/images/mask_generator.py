"""Random masks for training on images, like the masks that the images have."""

from __future__ import annotations

__all__ = ["MaskGenerator"]

import torch
from torch import Tensor

#: Excess probability of a missing neighbour of a missing pixel, relative to its maximum, above which masks are shapes.
MIN_EXCESS = 0.2

#: Maximum number of images from which this is decided.
MAX_IMAGES = 2048

#: Smallest fraction of hidden pixels of an image.
MIN_HIDDEN = 0.1

#: Largest fraction of hidden pixels of most images.
MAX_HIDDEN = 0.3

#: Probability with which more than `MAX_HIDDEN` of an image is hidden, up to all of it.
MOSTLY_HIDDEN = 0.1


class MaskGenerator:
    """Choose observed pixels to hide.

    If the missing pixels of the images are scattered, pixels are hidden independently. If they form shapes, such as
    blocks or halves, an image gets the mask of another image, shifted at random and wrapped around the edges.

    Shapes: `missing` (n_images, n_channels, height, width).

    Examples
    --------
    >>> blocks = torch.zeros(4, 1, 8, 8, dtype=torch.bool)
    >>> blocks[:, :, 2:6, 2:6] = True
    >>> MaskGenerator(blocks).shaped
    True
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
