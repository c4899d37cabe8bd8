"""Holes for images on purpose, like those that they have."""

from __future__ import annotations

__all__ = ["HoleMaker"]

import torch
from torch import Tensor

#: How much more often a missing pixel has a missing neighbour than others do, from which holes count as shapes.
SHAPED = 0.2

#: Shares of the pixels that are hidden: most often between the first two, else up to all.
FEW, SOME, RARELY = 0.1, 0.3, 0.1

#: Images by which holes are judged, at most.
JUDGES = 2048


class HoleMaker:
    """Choose observed pixels to hide.

    Where the holes of the images are scattered pixels, pixels are hidden one by one. Where they are shapes, such as
    blocks or halves, an image gets the holes of another one, moved by a random way around the edges.

    Parameters
    ----------
    missing : Tensor of bool of shape (n_images, n_channels, height, width)
        Holes of the images of a fit.

    Attributes
    ----------
    shaped : bool
        Whether holes are shapes.
    joint : bool
        Whether the channels of a pixel are missing together.

    Examples
    --------
    >>> blocks = torch.zeros(4, 1, 8, 8, dtype=torch.bool)
    >>> blocks[:, :, 2:6, 2:6] = True
    >>> HoleMaker(blocks).shaped
    True
    """

    def __init__(self, missing: Tensor) -> None:
        some = missing[:JUDGES].float()
        rate = float(some.mean())
        pairs = (some[..., 1:] * some[..., :-1]).sum() + (some[..., 1:, :] * some[..., :-1, :]).sum()
        singles = some[..., 1:].sum() + some[..., 1:, :].sum()
        excess = float(pairs / singles.clamp(min=1)) - rate
        self.shaped = 0 < rate < 1 and excess > SHAPED * (1 - rate)
        self.joint = bool((missing == missing[:, :1]).all())
        self.missing = missing

    def __call__(self, seen: Tensor, generator: torch.Generator) -> Tensor:
        """Return which of the seen pixels to hide, of the shape of `seen`."""
        if self.shaped:
            return self._copied(seen, generator) & seen
        sizes = (seen.shape[0], 1 if self.joint else seen.shape[1], *seen.shape[2:])
        many = torch.rand((len(seen), 1, 1, 1), generator=generator) < RARELY
        shares = torch.rand((len(seen), 1, 1, 1), generator=generator)
        shares = torch.where(many, SOME + (1 - SOME) * shares, FEW + (SOME - FEW) * shares)
        return (torch.rand(sizes, generator=generator) < shares).to(seen.device) & seen

    def _copied(self, seen: Tensor, generator: torch.Generator) -> Tensor:
        """Return the holes of other images, each moved by a way of its own."""
        chosen = torch.randint(len(self.missing), (len(seen),), generator=generator)
        height, width = seen.shape[2:]
        down = torch.randint(height, (len(seen), 1, 1, 1), generator=generator)
        right = torch.randint(width, (len(seen), 1, 1, 1), generator=generator)
        rows = (torch.arange(height)[:, None] + down) % height
        columns = (torch.arange(width) + right) % width
        images, channels = torch.arange(len(seen))[:, None, None, None], torch.arange(seen.shape[1])[:, None, None]
        holes = self.missing[chosen.to(self.missing.device)].cpu()
        return holes[images, channels, rows, columns].to(seen.device)
