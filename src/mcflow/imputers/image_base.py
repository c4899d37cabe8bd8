"""Base class of image imputers: arrays of any numeric type, masks, value ranges and folders of pictures."""

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

from mcflow.config import Interval, Options, check_parameters
from mcflow.errors import TrainingError
from mcflow.images.folders import read_image_folder
from mcflow.images.pixels import PixelCodec, Pixels, read_pixels
from mcflow.typing import Array, BoolArray

#: Number of images that are filled together.
IMAGES_AT_ONCE = 1024


class ImageImputer(TransformerMixin, BaseEstimator, abc.ABC):  # type: ignore[misc]
    """Base class of all image imputers.

    A subclass implements `_fit_pixels` and `_fill_pixels`. Both take float32 tensors of shape
    (n_images, channels, height, width) with values between 0 and 1, zero where missing, and masks of the same shape.

    Attributes
    ----------
    codec_ : PixelCodec
        Size, type and value range of the images.
    """

    #: Constraints on the parameters of the subclass.
    constraints: ClassVar[Mapping[str, Interval | Options]] = {}
    codec_: PixelCodec

    @abc.abstractmethod
    def _fit_pixels(self, codec: PixelCodec, pixels: Tensor, missing: Tensor) -> None:
        """Fit to pixels with missing ones; assign results at the end, so that a failed fit changes nothing."""

    @abc.abstractmethod
    def _fill_pixels(self, pixels: Tensor, missing: Tensor) -> Tensor:
        """Return the completed pixels; the result for an image may not depend on other images."""

    def fit(self, X: Any, y: Any = None, *, mask: Any = None) -> Self:
        """Fit the imputer to images with missing pixels.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width) or (n_images, height, width, channels), or path-like
            Images of type uint8, uint16 or float, where NaN is missing, or a folder of pictures.
        y : None
            Ignored, present for API consistency.
        mask : array-like of bool or path-like, optional
            True where a pixel is missing, of shape (n_images, height, width) or of the shape of X; or a folder of
            pictures with the same names, white where a pixel is missing.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If the images have the wrong number of axes, no observed pixels or infinite values.
        ParameterError
            If a parameter is out of range.
        """
        check_parameters(self)
        codec, pixels, missing = read_pixels(*_opened(X, mask), getattr(self, "value_range", None))
        self._fit_pixels(codec, torch.from_numpy(pixels), torch.from_numpy(missing))
        self.codec_ = codec
        return self

    def fit_transform(self, X: Any, y: Any = None, *, mask: Any = None) -> Array:
        """Fit the imputer to images with missing pixels, and fill them.

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
        """Fill the missing pixels of images, without refitting.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
            Images of the size and type seen at fit.
        mask : array-like of bool, optional
            True where a pixel is missing.

        Returns
        -------
        ndarray of the shape and type of X
            Only missing pixels change; the result for an image does not depend on the other images.

        Raises
        ------
        DataError
            If images have another size or type than at fit.
        """
        check_is_fitted(self)
        return self._filled(X, mask, self._fill_pixels)

    def _read(self, X: Any, mask: Any) -> tuple[Array, Pixels, BoolArray]:
        """Read images like those of the fit."""
        return self.codec_.of(*_opened(X, mask))

    def _filled(self, X: Any, mask: Any, fill: Callable[[Tensor, Tensor], Tensor]) -> Array:
        """Return the images with missing pixels filled by `fill`."""
        return self._filled_read(self._read(X, mask), fill)

    def _filled_read(self, read: tuple[Array, Pixels, BoolArray], fill: Callable[[Tensor, Tensor], Tensor]) -> Array:
        """Return images that are already read, filled by `fill` in parts."""
        images, pixels, missing = read
        filled = images.copy()
        for first in range(0, len(images), IMAGES_AT_ONCE):
            part = slice(first, first + IMAGES_AT_ONCE)
            if missing[part].any():
                found = fill(torch.from_numpy(pixels[part]), torch.from_numpy(missing[part]))
                self._put(filled[part], missing[part], found)
        return filled

    def _put(self, images: Array, missing: Array, pixels: Tensor) -> None:
        """Write filled pixels to the missing ones of images, in place."""
        values = pixels.detach().cpu().numpy()
        if not np.isfinite(values[missing]).all():  # which integer images would show as black
            raise TrainingError(
                "The model gives no finite value for some missing pixels. Its weights are damaged or its training "
                "diverged: fit it again, or load another file."
            )
        found = self.codec_.images(np.where(missing, values, 0))
        where = missing.transpose(0, 2, 3, 1)
        where = where[..., 0] if self.codec_.flat else where
        np.copyto(images, found.astype(images.dtype), where=where)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32", "uint8"]
        return tags


def _opened(X: Any, mask: Any) -> tuple[Any, Any]:
    """Return images and mask, read from folders if paths were given."""
    if not isinstance(X, str | Path):
        return X, mask
    named = isinstance(mask, str | Path)
    images, found, _ = read_image_folder(X, mask if named else None)
    return images, found if mask is None or named else np.asarray(mask) | found
