"""Convolutional networks over patches of pixels: an imputer, generators of images and of masks, and a critic."""

from __future__ import annotations

__all__ = ["ImageFiller", "ImageGenerator", "MaskGenerator", "PatchCritic", "convolution", "joined", "patches"]

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, pad, pixel_shuffle, pixel_unshuffle

#: Side of a patch, whose pixels become channels, which is several times faster on a CPU.
PATCH = 4

#: Negative slope of the leaky ReLU.
SLOPE = 0.2

#: Width of the Gaussian noise for a generated mask as a whole.
MASK_NOISE = 16

#: Temperature of the sigmoid of generated masks; 0 would be a step.
TEMPERATURE = 0.3


def patches(images: Tensor) -> Tensor:
    """Return images as patches, with zeros added below and on the right if the last patches are incomplete.

    Shapes: `images` (n_images, channels, height, width), returns (n_images, 16 * channels, ceil(height / 4), ceil(width
    / 4)).

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

    Shapes: `cut` (n_images, 16 * channels, ceil(height / 4), ceil(width / 4)), returns (n_images, channels, height,
    width).

    Examples
    --------
    >>> import torch
    >>> images = torch.rand(2, 3, 10, 7)
    >>> bool((joined(patches(images), 10, 7) == images).all())
    True
    """
    return pixel_shuffle(cut, PATCH)[..., :height, :width]


def convolution(n_in: int, n_out: int, generator: torch.Generator, scale: float = 1.0) -> nn.Conv2d:
    """Return a 3 × 3 convolution whose initial weights come from `generator` alone.

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


def _rectified(values: Tensor) -> Tensor:
    return leaky_relu(values, SLOPE)


class ImageFiller(nn.Module):
    """Residual convolutions that read images with noise in their missing pixels, and their masks."""

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
        features = _rectified(self.enter(patches(given)))
        for layer in self.middle:
            features = features + _rectified(layer(features))
        return torch.sigmoid(joined(self.leave(features), *pixels.shape[-2:]) + self.start)


class ImageGenerator(nn.Module):
    """A dense layer and convolutions that map Gaussian noise of shape (n_images, noise) to images."""

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
        features = _rectified(self.enter(noise)).view(len(noise), -1, *self._places)
        for layer in self.middle:
            features = features + _rectified(layer(features))
        return torch.sigmoid(joined(self.leave(features), *self.start.shape[1:]) + self.start)


class MaskGenerator(nn.Module):
    r"""Generate masks from noise for the mask as a whole and noise for each pixel.

    .. math:: m = \sigma((g(z) + \Phi^{-1}(p) + s e) / T)

    for noise z and e, the observed fraction p of the pixel, layers g and a learned number s. Initially pixels are
    missing independently, :math:`g \approx 0` and s = 1; blocks need g.
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
        features = _rectified(self.enter(of_mask)).view(len(noise), -1, *self._places)
        shift = joined(self.leave(features), *self.start.shape[1:]) + self.start
        mask = torch.sigmoid((shift + self.spread * of_pixels) / TEMPERATURE)
        return mask.expand(-1, self._channels, -1, -1)


class PatchCritic(nn.Module):
    """Two convolutions and a dense layer that map an image to a number."""

    def __init__(self, shape: tuple[int, int, int], width: int, generator: torch.Generator) -> None:
        super().__init__()
        channels, n_places = shape[0], -(-shape[1] // PATCH) * -(-shape[2] // PATCH)
        self.enter = convolution(PATCH**2 * channels, width, generator)
        self.middle = convolution(width, 2 * width, generator)
        self.leave = _linear(2 * width * n_places, 1, generator)

    def forward(self, images: Tensor) -> Tensor:
        """Return numbers of shape (n_images, 1)."""
        number: Tensor = self.leave(_rectified(self.middle(_rectified(self.enter(patches(images))))).flatten(1))
        return number
