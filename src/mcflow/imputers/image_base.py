"""What every imputer of images shares: arrays of any numeric type, masks, ranges, and observed pixels left alone."""

from __future__ import annotations

__all__ = ["ImageImputer"]

import abc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mcflow.config import Interval, Options, check_parameter
from mcflow.data.image_folders import read_image_folder
from mcflow.data.pixels import PixelCodec, Pixels, read_pixels
from mcflow.typing import Array, BoolArray

#: Images that are filled together.
IMAGES_AT_ONCE = 1024


class ImageImputer(TransformerMixin, BaseEstimator, abc.ABC):  # type: ignore[misc]
    """Base of all imputers of images.

    A subclass learns in `_fit_pixels` and fills in `_fill_pixels`; both get float32 tensors of shape
    (n_images, channels, height, width), values between 0 and 1 and zero where missing, and a mask of the same shape.

    Attributes
    ----------
    codec_ : PixelCodec
        Size, type and range of the images.
    """

    #: What the subclass's own parameters may be.
    constraints: ClassVar[Mapping[str, Interval | Options]] = {}
    codec_: PixelCodec

    @abc.abstractmethod
    def _fit_pixels(self, codec: PixelCodec, pixels: Tensor, missing: Tensor) -> None:
        """Learn from pixels with holes; assign what is learned at the end, so that a failed fit changes nothing."""

    @abc.abstractmethod
    def _fill_pixels(self, pixels: Tensor, missing: Tensor) -> Tensor:
        """Return the same pixels without a hole. An image's answer may not depend on those it comes with."""

    def fit(self, X: Any, y: Any = None, *, mask: Any = None) -> Self:
        """Learn from images with holes.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width) or (n_images, height, width, channels), or path-like
            uint8, uint16 or floats; NaN is missing. Or a folder of pictures.
        y : None
            Not used; scikit-learn's convention.
        mask : array-like of bool or path-like, optional
            True where a pixel is missing: of shape (n_images, height, width), or of that of X. Or a folder of pictures
            with the same names, white where a pixel is missing.

        Returns
        -------
        self

        Raises
        ------
        DataError
            When the images cannot be learned from: another number of axes, nothing observed, infinite values.
        ParameterError
            When a parameter is out of range.
        """
        for name, value in self.get_params(deep=False).items():
            check_parameter(name, value, self.constraints.get(name))
        codec, pixels, missing = read_pixels(*_opened(X, mask), getattr(self, "value_range", None))
        self._fit_pixels(codec, torch.from_numpy(pixels), torch.from_numpy(missing))
        self.codec_ = codec
        return self

    def fit_transform(self, X: Any, y: Any = None, *, mask: Any = None) -> Array:
        """Learn from images with holes, and fill these.

        Parameters
        ----------
        X, y, mask
            As for `fit`.

        Returns
        -------
        ndarray of the shape and type of X
        """
        return self.fit(X, y, mask=mask).transform(X, mask=mask)

    def transform(self, X: Any, *, mask: Any = None) -> Array:
        """Fill the holes of images. Never refits.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
            Of the size and type of those at fit.
        mask : array-like of bool, optional
            True where a pixel is missing.

        Returns
        -------
        ndarray of the shape and type of X
            Only missing pixels differ; an image's answer does not depend on those it comes with.

        Raises
        ------
        DataError
            When images are of another size or type than at fit.
        """
        check_is_fitted(self)
        return self._filled(X, mask, self._fill_pixels)

    def _read(self, X: Any, mask: Any) -> tuple[Array, Pixels, BoolArray]:
        """Read images like those of the fit."""
        return self.codec_.of(*_opened(X, mask))

    def _filled(self, X: Any, mask: Any, fill: Callable[[Tensor, Tensor], Tensor]) -> Array:
        """Return the images with their holes filled by `fill`."""
        return self._filled_read(self._read(X, mask), fill)

    def _filled_read(self, read: tuple[Array, Pixels, BoolArray], fill: Callable[[Tensor, Tensor], Tensor]) -> Array:
        """Return images that are read with their holes filled by `fill`, some at a time."""
        images, pixels, missing = read
        filled = images.copy()
        for first in range(0, len(images), IMAGES_AT_ONCE):
            part = slice(first, first + IMAGES_AT_ONCE)
            if missing[part].any():
                found = fill(torch.from_numpy(pixels[part]), torch.from_numpy(missing[part]))
                self._put(filled[part], missing[part], found)
        return filled

    def _put(self, images: Array, missing: Array, pixels: Tensor) -> None:
        """Write filled pixels where images have holes, and nowhere else."""
        found = self.codec_.images(pixels.detach().cpu().numpy())
        holes = missing.transpose(0, 2, 3, 1)
        holes = holes[..., 0] if self.codec_.flat else holes
        np.copyto(images, found.astype(images.dtype), where=holes)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32", "uint8"]
        return tags


def _opened(X: Any, mask: Any) -> tuple[Any, Any]:
    """Return images and a mask as they were given, read from folders where these were named."""
    if not isinstance(X, str | Path):
        return X, mask
    named = isinstance(mask, str | Path)
    images, found, _ = read_image_folder(X, mask if named else None)
    return images, found if mask is None or named else np.asarray(mask) | found
