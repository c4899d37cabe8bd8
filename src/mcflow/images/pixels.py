"""Conversion of images of any numeric type to pixels between 0 and 1, and back."""

from __future__ import annotations

__all__ = ["PixelCodec", "Pixels", "missing_values", "read_pixels"]

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mcflow.errors import DataError
from mcflow.typing import Array, BoolArray

INTEGER_RANGES = {"uint8": (0.0, 255.0), "uint16": (0.0, 65535.0)}  #: Integer types with their black and white.

Pixels: TypeAlias = npt.NDArray[np.float32]  #: Pixels between 0 and 1, of shape (n_images, channels, height, width).


@dataclass(frozen=True)
class PixelCodec:
    """Convert images of one size and type to pixels and back."""

    height: int
    width: int
    channels: int
    dtype: str  # numpy's name of the type of the images
    low: float  # value that becomes 0
    high: float  # value that becomes 1
    flat: bool  # whether images have no axis for channels

    @property
    def n_levels(self) -> int:
        """Number of values that a pixel may have; 0 for floats."""
        return int(self.high - self.low) + 1 if self.dtype in INTEGER_RANGES else 0

    def images(self, pixels: Pixels) -> Array:
        """Return the images of pixels (n_images, channels, height, width), rounded if they are integers."""
        values = pixels.transpose(0, 2, 3, 1).astype(np.float64) * (self.high - self.low) + self.low
        if self.dtype in INTEGER_RANGES:
            values = np.clip(np.rint(values), self.low, self.high)
        return (values[..., 0] if self.flat else values).astype(self.dtype)

    def of(self, X: Any, mask: Any = None) -> tuple[Array, Pixels, BoolArray]:
        """Check new images; return them as an array, with their pixels and the mask of the missing ones."""
        images = _as_images(X)
        missing = _missing(images, mask)
        fitted = (self.height, self.width) if self.flat else (self.height, self.width, self.channels)
        if images.shape[1:] != fitted:
            raise DataError(
                f"These images are of shape {images.shape[1:]}, but the fit had {fitted}. Crop or resize them to that."
            )
        if (images.dtype.name in INTEGER_RANGES or self.dtype in INTEGER_RANGES) and images.dtype.name != self.dtype:
            raise DataError(
                f"These images are of type {images.dtype.name}, but the fit had {self.dtype}, and integers have "
                "another range than floats. Convert them first."
            )
        return images, self._pixels(images, missing), missing

    def _pixels(self, images: Array, missing: BoolArray) -> Pixels:
        """Return pixels between 0 and 1, with 0 where they are missing."""
        low, span = np.float32(self.low), np.float32(self.high - self.low)
        scaled = (_with_channels(images).transpose(0, 3, 1, 2).astype(np.float32) - low) / span
        return np.ascontiguousarray(np.where(missing, np.float32(0), scaled))


def read_pixels(
    X: Any, mask: Any = None, value_range: tuple[float, float] | None = None
) -> tuple[PixelCodec, Pixels, BoolArray]:
    """Return the codec of images, their pixels (n_images, channels, height, width) and the mask of the missing ones."""
    images = _as_images(X)
    missing = _missing(images, mask)
    if missing.all():
        raise DataError("No pixel of these images is observed. Give images of which at least some pixels are known.")
    low, high = value_range or _range(images, missing)
    height, width, channels = (*images.shape[1:], 1)[:3]
    codec = PixelCodec(height, width, channels, images.dtype.name, float(low), float(high), images.ndim == 3)
    return codec, codec._pixels(images, missing), missing


def _as_images(X: Any) -> Array:
    images = np.asarray(X)
    if images.ndim not in (3, 4):
        raise DataError(
            f"Images have to be of shape (n_images, height, width) or (n_images, height, width, channels), but this is "
            f"of shape {images.shape}. One image is images[None]."
        )
    if 0 in images.shape:
        raise DataError(f"There is no pixel in an array of shape {images.shape}.")
    if images.dtype.name not in INTEGER_RANGES and not np.issubdtype(images.dtype, np.floating):
        raise DataError(
            f"Images are of type {images.dtype.name}, but have to be uint8, uint16 or floats. "
            "images.astype('uint8') converts integers from 0 to 255."
        )
    return images


def _with_channels(images: Array) -> Array:
    """Return images with an axis for channels, (n_images, height, width, channels)."""
    return images if images.ndim == 4 else images[..., None]


def _missing(images: Array, mask: Any) -> BoolArray:
    """Return the mask (n_images, channels, height, width) of the missing pixels."""
    four = _with_channels(images)
    missing = np.broadcast_to(missing_values(images, mask, "mask"), four.shape)
    if np.isinf(np.where(missing, 0, four)).any():
        raise DataError("Images hold infinite values. Replace them by NaN, or mark them in mask=.")
    return missing.transpose(0, 3, 1, 2).copy()


def missing_values(images: Array, mask: Any, name: str) -> BoolArray:
    """Return which values (n_images, height, width, channels) are missing; 1 channel if the mask holds for all."""
    missing: BoolArray = np.zeros((*images.shape[:3], 1), dtype=bool)
    if mask is not None:
        given = np.asarray(mask)
        if given.dtype != bool or given.shape not in (images.shape, images.shape[:3]):
            raise DataError(
                f"{name} is of shape {given.shape} and type {given.dtype.name}, but has to be of type bool and shape "
                f"{images.shape[:3]}{f' or {images.shape}' if images.ndim == 4 else ''}, True where a pixel is missing."
            )
        missing = _with_channels(given)
    if np.issubdtype(images.dtype, np.floating):
        missing = missing | np.isnan(_with_channels(images))
    return missing


def _range(images: Array, missing: BoolArray) -> tuple[float, float]:
    if images.dtype.name in INTEGER_RANGES:
        return INTEGER_RANGES[images.dtype.name]
    seen = _with_channels(images)[~missing.transpose(0, 2, 3, 1)]
    low, high = float(seen.min()), float(seen.max())
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return (low, high) if low < high else (low - 0.5, high + 0.5)
