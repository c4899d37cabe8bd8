"""Convolutions over small patches of pixels: a network that fills holes, generators of images and masks, a critic."""

from __future__ import annotations

__all__ = ["HoleFiller", "ImageGenerator", "MaskGenerator", "PatchCritic", "convolution", "joined", "patches"]

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, pad, pixel_shuffle, pixel_unshuffle

#: Sides of a patch, whose pixels become channels: two cores are several times faster on those than on finer places.
PATCH = 4

#: Slope of the rectifiers below zero.
SLOPE = 0.2

#: Width of the normal noise that a generated mask has as a whole.
MASK_NOISE = 16

#: How soft generated masks are; 0 is a step.
TEMPERATURE = 0.3


def patches(images: Tensor) -> Tensor:
    """Return images cut into patches, zeros added below and on the right where the last ones are not whole.

    Parameters
    ----------
    images : Tensor of shape (n_images, channels, height, width)

    Returns
    -------
    Tensor of shape (n_images, 16 * channels, ceil(height / 4), ceil(width / 4))

    Examples
    --------
    >>> import torch
    >>> patches(torch.zeros(2, 3, 10, 8)).shape
    torch.Size([2, 48, 3, 2])
    """
    height, width = images.shape[-2:]
    return pixel_unshuffle(pad(images, (0, -width % PATCH, 0, -height % PATCH)), PATCH)


def joined(cut: Tensor, height: int, width: int) -> Tensor:
    """Undo `patches`.

    Parameters
    ----------
    cut : Tensor of shape (n_images, 16 * channels, ceil(height / 4), ceil(width / 4))
    height, width : int
        Of an image.

    Returns
    -------
    Tensor of shape (n_images, channels, height, width)

    Examples
    --------
    >>> import torch
    >>> images = torch.rand(2, 3, 10, 7)
    >>> bool((joined(patches(images), 10, 7) == images).all())
    True
    """
    return pixel_shuffle(cut, PATCH)[..., :height, :width]


def convolution(n_in: int, n_out: int, generator: torch.Generator, scale: float = 1.0) -> nn.Conv2d:
    """Return a convolution over 3 × 3 places whose first weights come from `generator` alone.

    Parameters
    ----------
    n_in, n_out : int
        Channels.
    generator : torch.Generator
        Draws the weights (He's rule); biases start at 0.
    scale : float, default=1
        Multiplies the first weights.

    Returns
    -------
    nn.Conv2d

    Examples
    --------
    >>> import torch
    >>> convolution(1, 4, torch.Generator().manual_seed(0))(torch.zeros(5, 1, 7, 7)).shape
    torch.Size([5, 4, 7, 7])
    """
    layer = nn.utils.skip_init(nn.Conv2d, n_in, n_out, 3, padding=1)
    return cast("nn.Conv2d", _seeded(layer, generator, scale))


def _linear(n_in: int, n_out: int, generator: torch.Generator) -> nn.Linear:
    return cast("nn.Linear", _seeded(nn.utils.skip_init(nn.Linear, n_in, n_out), generator, 1.0))


def _seeded(layer: nn.Module, generator: torch.Generator, scale: float) -> nn.Module:
    weight, bias = cast("Tensor", layer.weight), cast("Tensor", layer.bias)
    nn.init.kaiming_normal_(weight, SLOPE, generator=generator)
    nn.init.zeros_(bias)
    with torch.no_grad():
        weight.mul_(scale)
    return layer


def _bend(values: Tensor) -> Tensor:
    return leaky_relu(values, SLOPE)


class HoleFiller(nn.Module):
    """Residual convolutions that read images with noise in their holes, and their masks.

    Parameters
    ----------
    mean : Tensor of shape (channels, height, width)
        Near which the answers start.
    width, depth : int
        Channels and number of the residual layers.
    noise : float
        What noise from 0 to 1 in the holes is multiplied by.
    generator : torch.Generator
        Draws the first weights.
    """

    start: Tensor

    def __init__(self, mean: Tensor, width: int, depth: int, noise: float, generator: torch.Generator) -> None:
        super().__init__()
        n_inside, self.noise = PATCH**2 * len(mean), noise
        self.register_buffer("start", mean.logit(eps=0.01))
        self.enter = convolution(2 * n_inside, width, generator)
        self.middle = nn.ModuleList([convolution(width, width, generator, 0.5) for _ in range(depth)])
        self.leave = convolution(width, n_inside, generator, 0.1)

    def forward(self, pixels: Tensor, mask: Tensor) -> Tensor:
        """Return proposals for all pixels, from 0 to 1."""
        given = torch.cat([pixels * torch.where(mask > 0, 1.0, self.noise), mask], 1)
        features = _bend(self.enter(patches(given)))
        for layer in self.middle:
            features = features + _bend(layer(features))
        return torch.sigmoid(joined(self.leave(features), *pixels.shape[-2:]) + self.start)


class ImageGenerator(nn.Module):
    """A dense layer and convolutions that turn normal noise of shape (n_images, noise) into images.

    Parameters
    ----------
    mean : Tensor of shape (channels, height, width)
        Near which the images start.
    noise, width : int
        Numbers that an image is made of, and channels.
    generator : torch.Generator
        Draws the first weights.
    """

    start: Tensor

    def __init__(self, mean: Tensor, noise: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self._places = tuple(-(-side // PATCH) for side in mean.shape[1:])
        self.register_buffer("start", mean.logit(eps=0.01))
        self.enter = _linear(noise, width * self._places[0] * self._places[1], generator)
        self.middle = nn.ModuleList([convolution(width, width, generator, 0.5) for _ in range(2)])
        self.leave = convolution(width, PATCH**2 * len(mean), generator, 0.3)

    def forward(self, noise: Tensor) -> Tensor:
        """Return images with values from 0 to 1."""
        features = _bend(self.enter(noise)).view(len(noise), -1, *self._places)
        for layer in self.middle:
            features = features + _bend(layer(features))
        return torch.sigmoid(joined(self.leave(features), *self.start.shape[1:]) + self.start)


class MaskGenerator(nn.Module):
    r"""Masks with some noise for the mask as a whole, and some for each pixel.

    .. math:: m = \sigma((g(z) + \Phi^{-1}(p) + s e) / T)

    for noise z and e, the observed share p of the pixel, layers g and a number s that is learned. It starts with pixels
    that are missing on their own, :math:`g \approx 0` and s = 1; blocks need g.

    Parameters
    ----------
    share : Tensor of shape (channels, height, width)
        How much of each pixel is observed; `channels` is 1 for masks that all channels have in common.
    channels : int
        Of the masks that are made.
    width : int
        Channels of the layer inside.
    generator : torch.Generator
        Draws the first weights.

    Attributes
    ----------
    noise : int
        Numbers that a mask is made of.
    """

    start: Tensor

    def __init__(self, share: Tensor, channels: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self._places = tuple(-(-side // PATCH) for side in share.shape[1:])
        self._channels, self.noise = channels, MASK_NOISE + share.numel()
        self.register_buffer("start", torch.special.ndtri(share.clamp(0.01, 0.99)))
        self.enter = _linear(MASK_NOISE, width * self._places[0] * self._places[1], generator)
        self.leave = convolution(width, PATCH**2 * len(share), generator, 0.1)
        self.spread = nn.Parameter(torch.ones(()))

    def forward(self, noise: Tensor) -> Tensor:
        """Return masks from 0 (missing) to 1 (observed)."""
        of_mask, of_pixels = noise[:, :MASK_NOISE], noise[:, MASK_NOISE:].view(-1, *self.start.shape)
        features = _bend(self.enter(of_mask)).view(len(noise), -1, *self._places)
        level = joined(self.leave(features), *self.start.shape[1:]) + self.start
        mask = torch.sigmoid((level + self.spread * of_pixels) / TEMPERATURE)
        return mask.expand(-1, self._channels, -1, -1)


class PatchCritic(nn.Module):
    """Two convolutions and a dense layer that give an image a number.

    Parameters
    ----------
    shape : tuple of int
        Channels, height and width of an image.
    width : int
        Channels of the first convolution; the second has twice as many.
    generator : torch.Generator
        Draws the first weights.
    """

    def __init__(self, shape: tuple[int, int, int], width: int, generator: torch.Generator) -> None:
        super().__init__()
        channels, n_places = shape[0], -(-shape[1] // PATCH) * -(-shape[2] // PATCH)
        self.enter = convolution(PATCH**2 * channels, width, generator)
        self.middle = convolution(width, 2 * width, generator)
        self.leave = _linear(2 * width * n_places, 1, generator)

    def forward(self, images: Tensor) -> Tensor:
        """Return numbers of shape (n_images, 1)."""
        number: Tensor = self.leave(_bend(self.middle(_bend(self.enter(patches(images))))).flatten(1))
        return number
