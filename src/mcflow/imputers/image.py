"""MCFlowImageImputer, the imputer of images."""

from __future__ import annotations

__all__ = ["IMAGE_ALGORITHMS", "MCFlowImageImputer"]

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mcflow.config import Interval, Options, check_parameter
from mcflow.errors import ParameterError
from mcflow.images.config import ImageConfig
from mcflow.images.model import MaskedImageModel
from mcflow.images.nearest import fill_nearest
from mcflow.images.pixels import PixelCodec
from mcflow.imputers.image_base import IMAGES_AT_ONCE, ImageImputer
from mcflow.imputers.presets import (
    IMAGE_PRESETS,
    OVERRIDES,
    Config,
    choose_device,
    config_to_dict,
    fit_callbacks,
    fit_seed,
    resolve,
)
from mcflow.paper.config import PaperConfig
from mcflow.paper.image_model import PaperImageModel
from mcflow.random import Streams, checked_ids, hash_rows, seed_from
from mcflow.typing import Array, BoolArray, FloatArray, RandomState

STEPS = 65535  # number of steps to which pixels are rounded when images are hashed
N_SUMS = 4  # number of weighted sums of pixels by which images are hashed

#: Model of each configuration, and what it is built with besides the images.
IMAGE_ALGORITHMS: dict[type, tuple[Any, dict[str, Any]]] = {
    ImageConfig: (MaskedImageModel, {}),
    PaperConfig: (PaperImageModel, {"first_fill": fill_nearest}),
}


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
    max_time : float, optional
        Maximum time of the fit in seconds. The learning-rate schedule follows the clock, so that a short fit ends with
        a decayed learning rate too.
    batch_size : int, optional
        Images per step. Defaults to 16; for "paper" to 128; the paper has 512 for faces.
    learning_rate : float, optional
        Learning rate. Defaults to a maximum of 2e-3; for "paper" to 1e-4, and to 1e-3 above 60 % missing pixels.
    likelihood_weight, tolerance, n_couplings : float, float, int, optional
        For "paper": λ, the tolerance of early stopping and the number of couplings, as in `MCFlowImputer`.
    calibrate : bool, default=True
        Calibrate quantiles on validation pixels.
    checkpoint_dir : path-like, optional
        Folder for checkpoints. An interrupted fit resumes from there.
    device : str, default="auto"
        "cpu", "cuda", "cuda:1" or "mps"; "auto" chooses the fastest available one.
    random_state : int, Generator, RandomState or None, default=None
        Seed of all random numbers.
    verbose : bool or {"auto", "plain", "json", "none"}, default=False
        Show epochs, losses and the remaining time on standard error, as in `MCFlowImputer`.

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
        "preset": Options(tuple(IMAGE_PRESETS), types=(ImageConfig, PaperConfig)),
        "value_range": Options((None,), types=(tuple, list)),
    }
    model_: PaperImageModel | MaskedImageModel

    def __init__(
        self,
        *,
        preset: str | Config = "default",
        value_range: tuple[float, float] | None = None,
        max_epochs: int | None = None,
        max_time: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        likelihood_weight: float | None = None,
        tolerance: float | None = None,
        n_couplings: int | None = None,
        calibrate: bool = True,
        checkpoint_dir: str | Path | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: bool | str = False,
    ) -> None:
        self.preset = preset
        self.value_range = value_range
        self.max_epochs = max_epochs
        self.max_time = max_time
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.likelihood_weight = likelihood_weight
        self.tolerance = tolerance
        self.n_couplings = n_couplings
        self.calibrate = calibrate
        self.checkpoint_dir = checkpoint_dir
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _fit_pixels(self, codec: PixelCodec, pixels: Tensor, missing: Tensor) -> None:
        overrides = {name: getattr(self, name, None) for name in OVERRIDES}
        config = resolve(self.preset, IMAGE_PRESETS, **overrides)
        seed = fit_seed(self.random_state, self.checkpoint_dir)
        algorithm, parts = IMAGE_ALGORITHMS[type(config)]
        model = algorithm.prepare(codec, pixels, missing, seed, config, **parts)
        model.calibrates = self.calibrate
        inputs = {"seed": seed, "config": config_to_dict(model.config), "images": codec.to_dict()}
        incomplete = np.where(missing.numpy(), np.float32(np.nan), pixels.numpy())
        callbacks = fit_callbacks(self.verbose, self.checkpoint_dir, incomplete, inputs)
        model.fit(pixels, missing, Streams(seed), choose_device(self.device), callbacks)
        for callback in callbacks:
            callback.on_fitted(model.history)
        # Assigned at the end: a fit that fails leaves an earlier one as it was.
        self.model_, self.config_, self.seed_ = model, model.config, seed
        self.history_ = model.history
        self.n_epochs_ = len(self.history_.epochs)

    def _fill_pixels(self, pixels: Tensor, missing: Tensor) -> Tensor:
        return self.model_.fill(pixels, missing)

    def draw(
        self, X: Any, m: int = 20, random_state: RandomState = None, *, mask: Any = None, image_ids: Any = None
    ) -> Iterator[Array]:
        """Draw completed images from the distribution of the missing pixels given the observed ones.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
            Images of the size and type seen at fit; they may be new.
        m : int, default=20
            Number of draws.
        random_state : int, Generator, RandomState or None
            Seed of the draws. The draws of an image depend on the seed and on the image only.
        mask : array-like of bool, optional
            True where a pixel is missing.
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
        return self._draws((images, pixels, missing), _hashes(pixels, missing, seed, ids), int(m), seed)

    def _draws(
        self,
        read: tuple[Array, npt.NDArray[np.float32], BoolArray],
        hashes: npt.NDArray[np.uint64],
        m: int,
        seed: int,
    ) -> Iterator[Array]:
        images, pixels, missing = read
        parts = [slice(first, first + IMAGES_AT_ONCE) for first in range(0, len(images), IMAGES_AT_ONCE)]
        series = [
            self.model_.draws(torch.from_numpy(pixels[p]), torch.from_numpy(missing[p]), m, seed, hashes[p])
            for p in parts
        ]
        for _ in range(m):
            filled = images.copy()
            for part, drawn in zip(parts, series, strict=True):
                self._put(filled[part], missing[part], next(drawn))
            yield filled

    def quantile(self, X: Any, q: Any, *, mask: Any = None) -> Any:
        """Fill missing pixels with quantiles of their predictive distributions.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
            Images of the size and type seen at fit.
        q : float or sequence of float
            Probabilities from 0 to 1.
        mask : array-like of bool, optional
            True where a pixel is missing.

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
        for first in range(0, len(images), IMAGES_AT_ONCE):
            part = slice(first, first + IMAGES_AT_ONCE)
            answers = self.model_.quantiles(torch.from_numpy(pixels[part]), torch.from_numpy(missing[part]), asked)
            for filled, answer in zip(found, answers, strict=True):
                self._put(filled[part], missing[part], answer)
        return found if np.ndim(q) else found[0]

    def interval(self, X: Any, level: float = 0.9, *, mask: Any = None) -> tuple[Array, Array]:
        """Return prediction intervals of the missing pixels.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
            Images of the size and type seen at fit.
        level : float, default=0.9
            Probability of the interval, between 0 and 1.
        mask : array-like of bool, optional
            True where a pixel is missing.

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
        X : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
            Images of the size and type seen at fit. Missing pixels are filled first, as by `transform`.
        mask : array-like of bool, optional
            True where a pixel is missing.

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
