"""Imputers of images without training: the mean of a pixel, and the nearest observed pixel."""

from __future__ import annotations

__all__ = ["MeanImageImputer", "NearestImageImputer"]

import torch
from torch import Tensor

from mcflow.images.nearest import fill_nearest
from mcflow.images.pixels import PixelCodec
from mcflow.imputers.image import ImageImputer
from mcflow.random import seed_from
from mcflow.typing import RandomState
from mcflow_bench.rivals.networks import column_means


class MeanImageImputer(ImageImputer):
    """Fill a pixel with the mean of its observed training values, or that of its channel if it has none.

    Parameters
    ----------
    value_range : tuple of float, optional
        The values of black and white, for images of floats.
    random_state : int, Generator, RandomState or None, default=None
        Not used; for compatibility with other imputers of images.

    Attributes
    ----------
    mean_ : Tensor of shape (channels, height, width)
        The means, in units of the range.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.array([[[1.0, np.nan]], [[0.0, 0.25]], [[np.nan, 0.75]]])
    >>> MeanImageImputer().fit_transform(images).tolist()
    [[[1.0, 0.5]], [[0.0, 0.25]], [[0.5, 0.75]]]
    """

    mean_: Tensor

    def __init__(self, *, value_range: tuple[float, float] | None = None, random_state: RandomState = None) -> None:
        self.value_range = value_range
        self.random_state = random_state

    def _fit_pixels(self, codec: PixelCodec, pixels: Tensor, missing: Tensor) -> None:
        seen = (~missing).float()
        mean, channels = column_means(pixels, seen), _channel_means(pixels, seen)
        self.mean_ = torch.where(seen.sum(0) > 0, mean, channels[:, None, None])

    def _fill_pixels(self, pixels: Tensor, missing: Tensor) -> Tensor:
        return torch.where(missing, self.mean_, pixels)


class NearestImageImputer(ImageImputer):
    """Fill a pixel with one of the nearest observed pixels of its image, chosen at random, as MCFlow's first fill does.

    Parameters
    ----------
    value_range : tuple of float, optional
        The values of black and white, for images of floats.
    random_state : int, Generator, RandomState or None, default=None
        Determines the choice among pixels that are equally near.

    Attributes
    ----------
    level_ : Tensor of shape (channels,)
        The mean of each channel, in units of the range, for images without an observed pixel.

    References
    ----------
    T. W. Richardson, W. Wu, L. Lin, B. Xu and E. A. Bernal, "MCFlow: Monte Carlo Flow Models for Data Imputation",
    CVPR 2020.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.array([[[0.5, np.nan, np.nan, 1.0]]])
    >>> NearestImageImputer(random_state=0).fit_transform(images).tolist()
    [[[0.5, 0.5, 1.0, 1.0]]]
    """

    level_: Tensor
    seed_: int

    def __init__(self, *, value_range: tuple[float, float] | None = None, random_state: RandomState = None) -> None:
        self.value_range = value_range
        self.random_state = random_state

    def _fit_pixels(self, codec: PixelCodec, pixels: Tensor, missing: Tensor) -> None:
        self.level_ = _channel_means(pixels, (~missing).float())
        self.seed_ = seed_from(self.random_state)

    def _fill_pixels(self, pixels: Tensor, missing: Tensor) -> Tensor:
        last = (0, 2, 3, 1)
        filled = fill_nearest(
            pixels.permute(last).numpy(), missing.permute(last).numpy(), self.seed_, empty=self.level_.numpy()
        )
        return torch.from_numpy(filled).permute(0, 3, 1, 2)


def _channel_means(pixels: Tensor, seen: Tensor) -> Tensor:
    """Return the mean of each channel over its observed pixels, one half if there are none."""
    channels = pixels.shape[1]
    return column_means(*(part.transpose(0, 1).reshape(channels, -1).T for part in (pixels, seen)))
