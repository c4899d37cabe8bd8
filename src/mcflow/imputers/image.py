"""MCFlowImageImputer: both presets for images under the contract of the table imputer."""

from __future__ import annotations

__all__ = ["MCFlowImageImputer"]

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mcflow.config import IMAGE_PRESETS, OVERRIDES, Interval, Options, Settings, check_parameter, resolve
from mcflow.data.pixels import PixelCodec
from mcflow.errors import ParameterError
from mcflow.imputers.fitting import choose_device, fit_seed, listeners
from mcflow.imputers.flow_images import FlowImageModel
from mcflow.imputers.image_base import IMAGES_AT_ONCE, ImageImputer
from mcflow.imputers.masked_images import MaskedImageModel
from mcflow.random import Streams, checked_ids, hash_rows, seed_from
from mcflow.typing import Array, BoolArray, FloatArray, RandomState

#: Steps of the range by which pixels are told apart when images are hashed, and sums by which that is done.
STEPS, N_SUMS = 65535, 4


class MCFlowImageImputer(ImageImputer):
    """Fill the missing pixels of images with a normalizing flow and a network in its latent space.

    Parameters
    ----------
    preset : {"default", "paper"} or Settings, default="default"
        "default" is convolutional and learns to fill pixels that are hidden on purpose; "paper" is the fully connected
        method of the MCFlow paper on flattened pixels, for small images.
    value_range : tuple of float, optional
        The values of black and white of images of floats. 0 and 1 if all that is observed lies between, else the lowest
        and the highest observed value. Whole numbers have that of their type.
    max_epochs : int, optional
        Passes over the images, at most (default: as many as fit their number; paper: 500).
    max_time : float, optional
        Seconds that a fit may take. The rate of learning follows the clock, so that a short fit is a finished one.
    batch_size : int, optional
        Images a step (default: 16; paper: 128, and 512 for colour images of 32 × 32 or more).
    learning_rate : float, optional
        Adam's rate (default: 2e-3 at its highest; paper: 1e-4, and 1e-3 above 60 % missing).
    likelihood_weight, tolerance, n_couplings : float, float, int, optional
        With "paper", its λ, when losses count as stable, and the couplings of its flow, as in `MCFlowImputer`.
    calibrate : bool, default=True
        Set quantiles right by pixels that were held out of the fit.
    checkpoint_dir : path-like, optional
        Folder in which the fit keeps its state. A fit that was stopped goes on from there.
    device : str, default="auto"
        "cpu", "cuda", "cuda:1", "mps", or "auto" for the fastest at hand.
    random_state : int, Generator, RandomState or None, default=None
        Decides everything.
    verbose : bool or {"auto", "plain", "json", "none"}, default=False
        Show epochs, losses and the time left on standard error, as `MCFlowImputer` does.

    Attributes
    ----------
    history_ : History
        Losses of every epoch.
    n_epochs_ : int
        Epochs trained.
    stages_ : list
        The networks G and H.
    settings_ : Settings
        The preset with its overrides, and sizes as numbers.
    codec_ : PixelCodec
        Size, type and range of the images.

    Notes
    -----
    With "default", H is a U-net that reads the pixels that are there and their mask, and learns pixels that are hidden
    from it: where holes are scattered pixels, scattered ones; where they are shapes, the holes of other images. It
    answers with an estimate of the conditional mean, which `transform` fills in, and with a distribution for every
    pixel. G is a flow at several scales over the normal scores of any pixels given what H says of them. `draw` goes
    from coarse to fine: the pixels of a round are drawn together by G, and then shown to H for the next round.

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

    constraints: ClassVar[Mapping[str, Interval | Options]] = {"value_range": Options((None,), types=(tuple, list))}
    model_: FlowImageModel | MaskedImageModel

    def __init__(
        self,
        *,
        preset: str | Settings = "default",
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
        given = {name: getattr(self, name, None) for name in OVERRIDES}
        settings = resolve(self.preset, IMAGE_PRESETS, **given)
        seed = fit_seed(self.random_state, self.checkpoint_dir)
        kind: type[FlowImageModel] | type[MaskedImageModel]
        kind = MaskedImageModel if settings.latent.masked else FlowImageModel
        model = kind.prepare(codec, pixels, missing, seed, settings)
        model.calibrates = self.calibrate
        said = {"seed": seed, "settings": model.settings.to_dict(), "images": codec.to_dict()}
        holed = np.where(missing.numpy(), np.float32(np.nan), pixels.numpy())
        callbacks = listeners(self.verbose, self.checkpoint_dir, holed, said)
        model.fit(pixels, missing, Streams(seed), choose_device(self.device), callbacks)
        # Assigned at the end: a fit that fails leaves an earlier one as it was.
        self.model_, self.settings_, self.seed_ = model, model.settings, seed
        self.history_, self.stages_ = model.history, model.stages
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
            Of the size and type of those at fit; they may be new.
        m : int, default=20
            How often.
        random_state : int, Generator, RandomState or None
            Decides the draws. An image's draws depend on it and on the image alone.
        mask : array-like of bool, optional
            True where a pixel is missing.
        image_ids : array-like of shape (n_images,), optional
            A whole number for each image that goes with it. Images that are equal pixel by pixel get equal draws
            without it.

        Returns
        -------
        iterator
            Of m arrays of the shape and type of X, in which only missing pixels differ. They are made when they are
            asked for.
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
        """Fill the holes with quantiles of what they may be.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
            Of the size and type of those at fit.
        q : float or sequence of float
            Probabilities from 0 to 1.
        mask : array-like of bool, optional
            True where a pixel is missing.

        Returns
        -------
        ndarray or list of ndarray
            Of the shape and type of X, one for each probability.
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
        """Return bounds between which missing pixels lie with a probability.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
            Of the size and type of those at fit.
        level : float, default=0.9
            The probability, between 0 and 1.
        mask : array-like of bool, optional
            True where a pixel is missing.

        Returns
        -------
        low, high : ndarray of the shape and type of X
            Observed pixels are as they are in both.
        """
        if isinstance(level, bool) or not 0 < level < 1:
            raise ParameterError(f"level is {level!r}, but has to be a number between 0 and 1.")
        low, high = self.quantile(X, [(1 - level) / 2, (1 + level) / 2], mask=mask)
        return low, high

    def score_samples(self, X: Any, *, mask: Any = None) -> FloatArray:
        """Return each image's log-density by the flow, in the units of the images.

        Parameters
        ----------
        X : array-like of shape (n_images, height, width) or (n_images, height, width, channels)
            Of the size and type of those at fit. Holes are filled first, as `transform` does.
        mask : array-like of bool, optional
            True where a pixel is missing.

        Returns
        -------
        ndarray of shape (n_images,)
            With "default", the sum over the rounds in which an image is drawn, each given those before it. A whole
            number counts as the middle of a cell of width one.
        """
        check_is_fitted(self)
        _, pixels, _ = self.codec_.of(self.transform(X, mask=mask))
        return self.model_.log_density(torch.from_numpy(pixels))

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw new images.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        random_state : int, Generator, RandomState or None
            Decides the draws.

        Returns
        -------
        ndarray of the size and type of the images of the fit
        """
        check_is_fitted(self)
        check_parameter("n_samples", n_samples, Interval(int, 1))
        return self.codec_.images(self.model_.sample(int(n_samples), seed_from(random_state)).numpy())

    def save(self, path: str | Path) -> None:
        """Write the fitted imputer to one file, tensors and a JSON header; `mcflow.load` reads it.

        Parameters
        ----------
        path : path-like
            The file to make or to replace.
        """
        from mcflow.imputers.persistence import save

        save(self, path)


def _hashes(
    pixels: npt.NDArray[np.float32], missing: BoolArray, seed: int, ids: FloatArray | None
) -> npt.NDArray[np.uint64]:
    """Return a word for each image that depends on the seed, its pixels and its number alone."""
    flat = pixels.reshape(len(pixels), -1)
    packed = np.packbits(missing.reshape(len(missing), -1), axis=1).astype(np.float64)
    steps = np.rint(flat * STEPS).astype(np.int64)
    weights = np.random.default_rng(0).integers(1, 2**20, size=(flat.shape[1], N_SUMS))
    sums = (steps @ weights).astype(np.float64)  # whole numbers: the same in whatever order they are added
    parts = [sums, packed] if ids is None else [sums, packed, ids[:, None]]
    return hash_rows(np.concatenate(parts, axis=1), seed)
