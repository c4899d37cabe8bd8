"""Imputers of images: arrays of any numeric type, masks, value ranges and folders of pictures."""

from __future__ import annotations

__all__ = ["IMAGE_ALGORITHMS", "ImageImputer", "MCFlowImageImputer"]

import abc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mcflow.config import Interval, Options, check_parameter, check_parameters
from mcflow.errors import ParameterError, TrainingError
from mcflow.images.config import ImageConfig
from mcflow.images.folders import read_image_folder
from mcflow.images.model import MaskedImageModel
from mcflow.images.nearest import fill_nearest
from mcflow.images.pixels import PixelCodec, Pixels, read_pixels
from mcflow.imputers import presets
from mcflow.imputers.presets import Config
from mcflow.paper.config import PaperConfig
from mcflow.paper.image_model import PaperImageModel
from mcflow.random import Streams, checked_ids, hash_rows, seed_from
from mcflow.typing import Array, BoolArray, FloatArray, RandomState

IMAGES_AT_ONCE = 1024  #: Number of images that are filled together.
STEPS = 65535  #: Number of steps to which pixels are rounded when images are hashed.
N_SUMS = 4  #: Number of weighted sums of pixels by which images are hashed.

#: Model of each configuration, and what it is built with besides the images.
IMAGE_ALGORITHMS: dict[type, tuple[Any, dict[str, Any]]] = {
    ImageConfig: (MaskedImageModel, {}),
    PaperConfig: (PaperImageModel, {"first_fill": fill_nearest}),
}


class ImageImputer(TransformerMixin, BaseEstimator, abc.ABC):  # type: ignore[misc]
    """Base class of all image imputers.

    A subclass implements `_fit_pixels` and `_fill_pixels`. Both take float32 tensors of shape
    (n_images, channels, height, width) with values between 0 and 1, zero where missing, and masks of the same shape.

    Attributes
    ----------
    codec_ : PixelCodec
        Size, type and value range of the images.
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {}  #: Constraints on the parameters of the subclass.
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
        X, mask
            As for `fit`, with images of the size and type seen there.

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
        return self._filled(self._read(X, mask), self._fill_pixels)

    def _read(self, X: Any, mask: Any) -> tuple[Array, Pixels, BoolArray]:
        """Read images like those of the fit."""
        return self.codec_.of(*_opened(X, mask))

    def _filled(self, read: tuple[Array, Pixels, BoolArray], fill: Callable[[Tensor, Tensor], Tensor]) -> Array:
        """Return images, as `_read` returns them, filled by `fill` in parts."""
        images, pixels, missing = read
        filled = images.copy()
        for part in _parts(images):
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


def _parts(images: Array) -> list[slice]:
    """Return slices of the images that are filled together."""
    return [slice(first, first + IMAGES_AT_ONCE) for first in range(0, len(images), IMAGES_AT_ONCE)]


@dataclass(kw_only=True, eq=False, repr=False)
class MCFlowImageImputer(ImageImputer):
    """Fill missing pixels of images with neural networks, with draws, intervals and densities.

    Parameters
    ----------
    preset : {"default", "paper"}, ImageConfig or PaperConfig, default="default"
        Algorithm and hyper-parameters. "default" is convolutional and trained to predict hidden pixels; "paper" is the
        fully connected method of the MCFlow paper on flattened pixels, for small images.
    value_range : tuple of float, optional
        Values of black and white of float images. Defaults to 0 and 1 if all observed values are between them, else to
        the smallest and largest observed value. Integer images use the range of their type.
    max_epochs : int, optional
        Maximum number of epochs. Defaults to a number that depends on the number of images; 500 for "paper".
    batch_size : int, optional
        Images per step. Defaults to 16; for "paper" to 128; the paper has 512 for faces.
    learning_rate : float, optional
        Learning rate. Defaults to a maximum of 2e-3; for "paper" to 1e-4, and to 1e-3 above 60 % missing pixels.
    likelihood_weight, tolerance, n_couplings : float, float, int, optional
        For "paper": λ, the tolerance of early stopping and the number of couplings, as in `MCFlowImputer`.
    calibrate : bool, default=True
        Calibrate quantiles on validation pixels.
    max_time, checkpoint_dir, device, random_state, verbose
        As for `MCFlowImputer`.

    Attributes
    ----------
    history_ : History
        Losses of every epoch.
    n_epochs_ : int
        Number of epochs.
    config_ : ImageConfig or PaperConfig
        Configuration of the fit, with all sizes chosen.
    codec_ : PixelCodec
        Size, type and value range of the images.

    Notes
    -----
    With "default", H is a U-Net that reads the observed pixels and their mask, and is trained to predict hidden pixels:
    scattered ones if missing pixels are scattered, otherwise those that are missing in other images. It predicts the
    conditional mean, which `transform` fills in, and a distribution for every pixel. G is a multi-scale flow over the
    normal scores of any pixels, given the predictions of H. `draw` proceeds from coarse to fine: G draws the pixels of
    a round jointly, and H reads them in the next round.

    References
    ----------
    T. W. Richardson, W. Wu, L. Lin, B. Xu and E. A. Bernal, "MCFlow: Monte Carlo Flow Models for Data
    Imputation", CVPR 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow import MCFlowImageImputer
    >>> rng = np.random.default_rng(0)
    >>> images = np.add.outer(np.arange(20), np.add.outer(np.arange(8), np.arange(8))).astype(np.uint8)
    >>> missing = rng.random(images.shape) < 0.3
    >>> filled = MCFlowImageImputer(max_epochs=2, random_state=0).fit_transform(images, mask=missing)
    >>> filled.dtype, bool((filled[~missing] == images[~missing]).all())
    (dtype('uint8'), True)
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        "preset": Options(tuple(presets.IMAGE_PRESETS), types=(ImageConfig, PaperConfig)),
        "value_range": Options((None,), types=(tuple, list)),
    }
    preset: str | Config = "default"
    value_range: tuple[float, float] | None = None
    max_epochs: int | None = None
    max_time: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    likelihood_weight: float | None = None
    tolerance: float | None = None
    n_couplings: int | None = None
    calibrate: bool = True
    checkpoint_dir: str | Path | None = None
    device: str = "auto"
    random_state: RandomState = None
    verbose: bool | str = False
    model_: PaperImageModel | MaskedImageModel = field(init=False)

    def _fit_pixels(self, codec: PixelCodec, pixels: Tensor, missing: Tensor) -> None:
        overrides = {name: getattr(self, name, None) for name in presets.OVERRIDES}
        config = presets.resolve(self.preset, presets.IMAGE_PRESETS, **overrides)
        seed = presets.fit_seed(self.random_state, self.checkpoint_dir)
        algorithm, parts = IMAGE_ALGORITHMS[type(config)]
        model = algorithm.prepare(codec, pixels, missing, seed, config, **parts)
        model.calibrates = self.calibrate
        inputs = {"seed": seed, "config": presets.config_to_dict(model.config), "images": asdict(codec)}
        incomplete = np.where(missing.numpy(), np.float32(np.nan), pixels.numpy())
        callbacks = presets.fit_callbacks(self.verbose, self.checkpoint_dir, incomplete, inputs)
        model.fit(pixels, missing, Streams(seed), presets.choose_device(self.device), callbacks)
        for callback in callbacks:
            callback.on_fitted(model.history)
        # Assigned at the end: a fit that fails leaves an earlier one as it was.
        presets.set_model(self, model, seed)

    def _fill_pixels(self, pixels: Tensor, missing: Tensor) -> Tensor:
        return self.model_.fill(pixels, missing)

    def draw(
        self, X: Any, m: int = 20, random_state: RandomState = None, *, mask: Any = None, image_ids: Any = None
    ) -> Iterator[Array]:
        """Draw completed images from the distribution of the missing pixels given the observed ones.

        Parameters
        ----------
        X, mask
            As for `transform`; the images may be new.
        m : int, default=20
            Number of draws.
        random_state : int, Generator, RandomState or None
            Seed of the draws. The draws of an image depend on the seed and on the image only.
        image_ids : array-like of shape (n_images,), optional
            An integer that identifies each image. Without it, equal images get equal draws.

        Returns
        -------
        iterator
            m arrays of the shape and type of X, generated one at a time. Only missing pixels differ.
        """
        check_is_fitted(self)
        check_parameter("m", m, Interval(int, 1))
        images, pixels, missing = self._read(X, mask)
        ids = None if image_ids is None else checked_ids("image_ids", image_ids, len(images))
        seed = seed_from(random_state)
        hashes = _hashes(pixels, missing, seed, ids)
        series = [
            (p, self.model_.draws(torch.from_numpy(pixels[p]), torch.from_numpy(missing[p]), int(m), seed, hashes[p]))
            for p in _parts(images)
        ]

        def draw_all() -> Array:
            filled = images.copy()
            for part, drawn in series:
                self._put(filled[part], missing[part], next(drawn))
            return filled

        return (draw_all() for _ in range(int(m)))

    def quantile(self, X: Any, q: Any, *, mask: Any = None) -> Any:
        """Fill missing pixels with quantiles of their predictive distributions.

        Parameters
        ----------
        X, mask
            As for `transform`.
        q : float or sequence of float
            Probabilities from 0 to 1.

        Returns
        -------
        ndarray or list of ndarray
            One array of the shape and type of X per probability.
        """
        check_is_fitted(self)
        asked = [float(one) for one in np.atleast_1d(q)]
        if any(not 0 <= one <= 1 for one in asked):
            raise ParameterError(f"q is {q!r}, but has to be between 0 and 1.")
        images, pixels, missing = self._read(X, mask)
        found = [images.copy() for _ in asked]
        for part in _parts(images):
            answers = self.model_.quantiles(torch.from_numpy(pixels[part]), torch.from_numpy(missing[part]), asked)
            for filled, answer in zip(found, answers, strict=True):
                self._put(filled[part], missing[part], answer)
        return found if np.ndim(q) else found[0]

    def interval(self, X: Any, level: float = 0.9, *, mask: Any = None) -> tuple[Array, Array]:
        """Return prediction intervals of the missing pixels.

        Parameters
        ----------
        X, mask
            As for `transform`.
        level : float, default=0.9
            Probability of the interval, between 0 and 1.

        Returns
        -------
        low, high : ndarray of the shape and type of X
            Observed pixels are the same in both.
        """
        if isinstance(level, bool) or not 0 < level < 1:
            raise ParameterError(f"level is {level!r}, but has to be a number between 0 and 1.")
        low, high = self.quantile(X, [(1 - level) / 2, (1 + level) / 2], mask=mask)
        return low, high

    def score_samples(self, X: Any, *, mask: Any = None) -> FloatArray:
        """Return the log-density of each image under the flow, in the units of the images.

        Parameters
        ----------
        X, mask
            As for `transform`. Missing pixels are filled first.

        Returns
        -------
        ndarray of shape (n_images,)
            With "default", the sum over the rounds in which an image is drawn, each given the previous ones. Integer
            pixels are treated as midpoints of intervals of length one.
        """
        check_is_fitted(self)
        _, pixels, _ = self.codec_.of(self.transform(X, mask=mask))
        return self.model_.log_density(torch.from_numpy(pixels))

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw new images.

        Parameters
        ----------
        n_samples, random_state
            As for `MCFlowImputer.sample`.

        Returns
        -------
        ndarray of the size and type of the images of the fit
        """
        check_is_fitted(self)
        check_parameter("n_samples", n_samples, Interval(int, 1))
        return self.codec_.images(self.model_.sample(int(n_samples), seed_from(random_state)).numpy())

    def save(self, path: str | Path) -> None:
        """Save the fitted imputer to a file, as `MCFlowImputer.save` does."""
        from mcflow.imputers.persistence import save

        save(self, path)


def _hashes(
    pixels: npt.NDArray[np.float32], missing: BoolArray, seed: int, ids: FloatArray | None
) -> npt.NDArray[np.uint64]:
    """Return a hash for each image that depends only on the seed, its pixels, its mask and its identifier."""
    flat = pixels.reshape(len(pixels), -1)
    packed = np.packbits(missing.reshape(len(missing), -1), axis=1).astype(np.float64)
    steps = np.rint(flat * STEPS).astype(np.int64)
    weights = np.random.default_rng(0).integers(1, 2**20, size=(flat.shape[1], N_SUMS))
    sums = (steps @ weights).astype(np.float64)  # integers, so that the order of the summation does not matter
    parts = [sums, packed] if ids is None else [sums, packed, ids[:, None]]
    return hash_rows(np.concatenate(parts, axis=1), seed)
