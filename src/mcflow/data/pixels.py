"""Images of any numeric type as pixels between 0 and 1, and back."""

from __future__ import annotations

__all__ = ["PixelCodec", "Pixels", "read_pixels"]

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mcflow.errors import DataError
from mcflow.typing import Array, BoolArray, Header

#: Types of whole numbers, with the range that stands for black and white.
WHOLE = {"uint8": (0.0, 255.0), "uint16": (0.0, 65535.0)}

#: Of shape (n_images, channels, height, width), between 0 and 1.
Pixels: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class PixelCodec:
    """How images of one size and type become pixels.

    Parameters
    ----------
    height, width, channels : int
        Of an image.
    dtype : str
        numpy's name of the type that goes out.
    low, high : float
        The values that become 0 and 1.
    flat : bool
        Whether images come without an axis for channels.

    Examples
    --------
    >>> images = np.array([[[0, 255], [51, 0]]], dtype=np.uint8)
    >>> codec, pixels, missing = read_pixels(images)
    >>> pixels.shape, bool(missing.any())
    ((1, 1, 2, 2), False)
    >>> codec.images(pixels).tolist()
    [[[0, 255], [51, 0]]]
    """

    height: int
    width: int
    channels: int
    dtype: str
    low: float
    high: float
    flat: bool

    @property
    def n_levels(self) -> int:
        """How many values a pixel may have; 0 if it is a float."""
        return int(self.high - self.low) + 1 if self.dtype in WHOLE else 0

    def images(self, pixels: Pixels) -> Array:
        """Return images for pixels of shape (n_images, channels, height, width); whole numbers are rounded."""
        values = pixels.transpose(0, 2, 3, 1).astype(np.float64) * (self.high - self.low) + self.low
        if self.dtype in WHOLE:
            values = np.clip(np.rint(values), self.low, self.high)
        images: Array = (values[..., 0] if self.flat else values).astype(self.dtype)
        return images

    def of(self, X: Any, mask: Any = None) -> tuple[Array, Pixels, BoolArray]:
        """Return new images as an array, their pixels and which are missing.

        Raises
        ------
        DataError
            When they are not of the size, or not within the range, of those that the codec was made for.
        """
        images = _as_images(X)
        missing = _missing(images, mask)
        shape = (*images.shape[1:], 1)[:3]
        if shape != (self.height, self.width, self.channels) or (images.ndim == 3) != self.flat:
            raise DataError(
                f"These images are of shape {images.shape[1:]}, but the fit had {self._shape()}. "
                "Crop or resize them to that."
            )
        if (images.dtype.name in WHOLE or self.dtype in WHOLE) and images.dtype.name != self.dtype:
            raise DataError(
                f"These images are of type {images.dtype.name}, but the fit had {self.dtype}, and whole numbers have "
                "another range than floats. Convert them first."
            )
        return images, self._pixels(images, missing), missing

    def _shape(self) -> tuple[int, ...]:
        return (self.height, self.width) if self.flat else (self.height, self.width, self.channels)

    def _pixels(self, images: Array, missing: BoolArray) -> Pixels:
        """Return pixels between 0 and 1, 0 where missing."""
        four = images[..., None] if self.flat else images
        scaled = (four.transpose(0, 3, 1, 2).astype(np.float32) - np.float32(self.low)) / np.float32(
            self.high - self.low
        )
        return np.ascontiguousarray(np.where(missing, np.float32(0), scaled))

    def to_dict(self) -> Header:
        """Return the codec as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def read_pixels(
    X: Any, mask: Any = None, value_range: tuple[float, float] | None = None
) -> tuple[PixelCodec, Pixels, BoolArray]:
    """Read images with holes.

    Parameters
    ----------
    X : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
        uint8, uint16 or floats; NaN is missing.
    mask : array-like of bool, optional
        True where a pixel is missing, of shape (n_images, height, width) or of that of X.
    value_range : tuple of float, optional
        What is black and what is white. For whole numbers that of their type; for floats 0 and 1 if all that is
        observed lies between, else the lowest and the highest value.

    Returns
    -------
    codec : PixelCodec
    pixels : ndarray of float32 of shape (n_images, channels, height, width)
        Zero where missing.
    missing : ndarray of bool of the same shape

    Raises
    ------
    DataError
        When there is nothing to read: another number of axes, infinite values, nothing observed.
    """
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
    if images.dtype.name not in WHOLE and not np.issubdtype(images.dtype, np.floating):
        raise DataError(
            f"Images are of type {images.dtype.name}, but have to be uint8, uint16 or floats. "
            "images.astype('uint8') converts whole numbers from 0 to 255."
        )
    return images


def _missing(images: Array, mask: Any) -> BoolArray:
    """Return which pixels are missing, of shape (n_images, channels, height, width)."""
    four = images if images.ndim == 4 else images[..., None]
    missing: BoolArray = np.isnan(four) if np.issubdtype(images.dtype, np.floating) else np.zeros(four.shape, bool)
    if mask is not None:
        given = np.asarray(mask)
        if given.dtype != bool or given.shape not in (images.shape, images.shape[:3]):
            raise DataError(
                f"mask is of shape {given.shape} and type {given.dtype.name}, but has to be of type bool and of shape "
                f"{images.shape[:3]}{f' or {images.shape}' if images.ndim == 4 else ''}, True where a pixel is missing."
            )
        missing = missing | (given if given.ndim == four.ndim else given[..., None])
    if np.isinf(np.where(missing, 0, four)).any():
        raise DataError("Images hold infinite values. Replace them by NaN, or mark them in mask=.")
    return np.ascontiguousarray(missing.transpose(0, 3, 1, 2))


def _range(images: Array, missing: BoolArray) -> tuple[float, float]:
    if images.dtype.name in WHOLE:
        return WHOLE[images.dtype.name]
    four = images if images.ndim == 4 else images[..., None]
    seen = four[~missing.transpose(0, 2, 3, 1)]
    low, high = float(seen.min()), float(seen.max())
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return (low, high) if low < high else (low - 0.5, high + 0.5)
