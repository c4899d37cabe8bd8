"""The paper's method on images: a fully connected flow over flattened pixels."""

from __future__ import annotations

__all__ = ["FlowImageModel"]

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mcflow.config import Settings
from mcflow.data.pixels import PixelCodec
from mcflow.imputers.flow_image_draws import FlowImageDraws, likely_steps
from mcflow.masks.nearest import fill_nearest
from mcflow.random import Streams, hash_rows
from mcflow.training import Box, Callback, History, Stage, Trainer, closing_all, complete_through, tell_phase
from mcflow.training.calibration import Calibration
from mcflow.training.flow_density import FlowDensity
from mcflow.training.sizes import fitting_images
from mcflow.training.stages import ROWS_AT_ONCE, fold, stage_tensors, stages_from
from mcflow.training.threads import one_thread_when_small
from mcflow.typing import Array, FloatArray, Header

#: Share of the observed pixels that is hidden to set quantiles right, and how many of them are enough.
HIDDEN_SHARE, ENOUGH_PIXELS = 0.2, 1_500

#: Images that this takes, at least and at most.
FEWEST_IMAGES, MOST_IMAGES = 8, 400

#: Images by which the steps of chains are set.
IMAGES_FOR_STEPS = 256

#: Of a limit of time, what is left to the steps of chains and to the calibration.
DRAWS_SHARE = 0.1

#: Seconds that training gets in any case.
LEAST_TIME = 1e-3


class FlowImageModel:
    """Flow and latent network of the paper over all pixels of an image at once.

    Parameters
    ----------
    settings : Settings
        The preset with its overrides, for this size of images.
    codec : PixelCodec
        Size and range of the images.
    level : ndarray of shape (channels,)
        The mean of what was observed, for images with nothing observed.
    seed : int
        The seed of the fit.

    Attributes
    ----------
    history : History
        Losses, epoch by epoch.
    stages : list of Stage
        The networks kept at every refill.
    steps : ndarray of shape (n_numbers,)
        How far chains move each pixel.
    calibrates : bool
        Whether a fit hides some pixels at its end, to set the quantiles right.
    calibration : Calibration or None
        What those pixels said.

    Notes
    -----
    Missing pixels start as one of the nearest observed ones. At every epoch that is a power of two they are refilled
    with :math:`g^{-1}(h(g(x)))`, both networks are kept, and G starts anew; new images go through all that were kept.
    Answers outside [0, 1] are reflected into it. Pixels are not dequantised: the paper does not say so.

    With N numbers an image has, G has some 36 N² weights and H 5 N²: 25 million for a digit of MNIST, 390 million for
    a colour image of 32 × 32, in every stage that is kept.

    References
    ----------
    T. W. Richardson, W. Wu, L. Lin, B. Xu and E. A. Bernal, "MCFlow: Monte Carlo Flow Models for Data
    Imputation", CVPR 2020.

    Examples
    --------
    >>> from mcflow.config import resolve
    >>> codec = PixelCodec(4, 4, 1, "float32", 0.0, 1.0, True)
    >>> pixels = torch.linspace(0, 1, 16).reshape(1, 1, 4, 4).repeat(20, 1, 1, 1)
    >>> missing = torch.zeros(20, 1, 4, 4, dtype=torch.bool)
    >>> missing[::2, :, 1, 1] = True
    >>> model = FlowImageModel.prepare(codec, pixels, missing, 0, resolve("paper", max_epochs=2))
    >>> model.fit(pixels, missing, Streams(0), torch.device("cpu"))
    >>> model.fill(pixels, missing).shape
    torch.Size([20, 1, 4, 4])
    """

    def __init__(self, settings: Settings, codec: PixelCodec, level: FloatArray, seed: int) -> None:
        self.settings = settings
        self.codec = codec
        self.level = level
        self.seed = seed
        self.history = History(ending="nothing to learn")
        self.stages: list[Stage] = []
        self.steps = np.ones(codec.channels * codec.height * codec.width)
        self.calibrates = True
        self.calibration: Calibration | None = None

    @classmethod
    def prepare(
        cls, codec: PixelCodec, pixels: Tensor, missing: Tensor, seed: int, settings: Settings
    ) -> FlowImageModel:
        """Return a model for images, not fitted yet.

        Parameters
        ----------
        codec : PixelCodec
            Size and range of the images.
        pixels : Tensor of shape (n_images, channels, height, width)
            Float32 between 0 and 1.
        missing : Tensor of bool of the same shape
            True where missing.
        seed : int
            Of the fit.
        settings : Settings
            The preset with its overrides; see `fitting_images` for what of it follows the images.

        Returns
        -------
        FlowImageModel
        """
        seen = (~missing).double()
        level = (pixels * seen).sum((0, 2, 3)) / seen.sum((0, 2, 3)).clamp_(min=1)
        share = float(missing.double().mean())
        return cls(fitting_images(settings, pixels[0].numel(), share), codec, level.numpy(), seed)

    def fit(
        self,
        pixels: Tensor,
        missing: Tensor,
        streams: Streams,
        device: torch.device,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Learn from images with holes.

        Parameters
        ----------
        pixels : Tensor of shape (n_images, channels, height, width)
            Float32 between 0 and 1.
        missing : Tensor of bool of the same shape
            True where missing.
        streams : Streams
            Where every random number comes from.
        device : torch.device
            Where to compute.
        callbacks : sequence of Callback
            Told of the progress.
        """
        end = time.perf_counter() + self.settings.train.max_time if self.settings.train.max_time else math.inf
        rows, marks = self._first(pixels, missing).to(device), missing.flatten(1).to(device)
        trainer = Trainer(self._within(end), rows, marks, streams, callbacks=callbacks)
        with closing_all(callbacks):
            self.stages = trainer.train()
            self.history = trainer.history
            tell_phase(callbacks, "calibrating")
            self._learn_draws(pixels, missing, trainer.rows, end)

    def _within(self, end: float) -> Settings:
        """Return settings whose time ends early enough for all that comes after training."""
        train = self.settings.train
        if end == math.inf:
            return self.settings
        left = end - time.perf_counter() - (DRAWS_SHARE * train.max_time if self.calibrates else 0)
        return replace(self.settings, train=replace(train, max_time=max(left, LEAST_TIME)))

    def _learn_draws(self, pixels: Tensor, missing: Tensor, rows: Tensor, end: float) -> None:
        """Set the steps of chains, and hide some pixels to see how far their quantiles are off."""
        rng = np.random.default_rng([self.seed, 1])
        order = torch.from_numpy(rng.permutation(len(pixels)))
        some = rows[order[:IMAGES_FOR_STEPS].to(rows.device)].cpu().double().numpy()
        start = time.perf_counter()
        self.steps = likely_steps(FlowDensity(self.stages[-1].flow), some)
        seconds = (time.perf_counter() - start) / len(some)
        self.calibration = None
        if not self.calibrates:
            return
        observed = float((~missing).sum()) / len(pixels)
        n_images = math.ceil(ENOUGH_PIXELS / (HIDDEN_SHARE * max(observed, 1)))
        n_images = min(max(n_images, FEWEST_IMAGES), MOST_IMAGES, len(pixels))
        if end < math.inf:
            n_images = min(n_images, int((end - time.perf_counter()) / (FlowImageDraws.n_slopes * seconds)))
        if n_images > 0:
            self.calibration = self._calibrate(pixels[order[:n_images]], missing[order[:n_images]], rng)

    def _calibrate(self, pixels: Tensor, missing: Tensor, rng: np.random.Generator) -> Calibration | None:
        shape = (len(pixels), 1, self.codec.height, self.codec.width)
        hidden = torch.from_numpy(rng.random(shape) < HIDDEN_SHARE) & ~missing
        some = hidden.flatten(1).any(1)
        if not some.any():
            return None
        pixels, hidden, holes = pixels[some], hidden[some], (missing | hidden)[some]
        parts = self._first(pixels, holes).double(), holes.flatten(1), pixels.flatten(1).double(), hidden.flatten(1)
        return self._draws().calibration(*(part.numpy() for part in parts))

    def _first(self, pixels: Tensor, missing: Tensor) -> Tensor:
        """Fill holes with one of the nearest observed pixels, and flatten images."""
        images, holes = (part.permute(0, 2, 3, 1).numpy() for part in (pixels, missing))
        filled = torch.from_numpy(fill_nearest(images, holes, self.seed, empty=self.level))
        return filled.permute(0, 3, 1, 2).flatten(1)

    def fill(self, pixels: Tensor, missing: Tensor) -> Tensor:
        """Complete new images.

        Parameters
        ----------
        pixels : Tensor of shape (n_images, channels, height, width)
            Float32 between 0 and 1.
        missing : Tensor of bool of the same shape
            True where missing.

        Returns
        -------
        Tensor of the same shape
            Observed pixels as they were.
        """
        holed = missing.flatten(1).any(1)
        rows, marks = self._first(pixels[holed], missing[holed]), missing[holed].flatten(1)
        device = self.stages[0].flow.theta.device
        done = complete_through(self.stages, rows.to(device), marks.to(device)).cpu()
        return _put(pixels, holed, done)

    def _draws(self) -> FlowImageDraws:
        return FlowImageDraws(self.stages, self.steps, self.seed)

    def draws(
        self, pixels: Tensor, missing: Tensor, m: int, seed: int, hashes: npt.NDArray[np.uint64]
    ) -> Iterator[Tensor]:
        """Draw completed images by a chain whose law is the last flow's, given the observed pixels.

        Parameters
        ----------
        pixels, missing
            As for `fill`.
        m : int
            How often. Each time is made when it is asked for.
        seed : int
            Together with an image's hash and the number of the draw it decides the draw.
        hashes : ndarray of shape (n_images,)
            Of the images.

        Yields
        ------
        Tensor of shape (n_images, channels, height, width)
            See `FlowImageDraws` for what the draws are.
        """
        holed = missing.flatten(1).any(1)
        if not holed.any():
            yield from (pixels.clone() for _ in range(m))
            return
        own = hash_rows(_as_numbers(hashes[holed.numpy()]), seed)
        first, marks = self._first(pixels[holed], missing[holed]).double(), missing[holed].flatten(1)
        for rows in self._draws().draws(first.numpy(), marks.numpy(), m, own):
            yield _put(pixels, holed, torch.from_numpy(rows).float())

    def quantiles(self, pixels: Tensor, missing: Tensor, q: Sequence[float]) -> list[Tensor]:
        """Fill holes with quantiles of what they may be.

        Parameters
        ----------
        pixels, missing
            As for `fill`.
        q : sequence of float
            Probabilities, in [0, 1].

        Returns
        -------
        list of Tensor of the shape of pixels
            For each probability; read off the states of each image's chain, at masses that the calibration moves.
        """
        holed = missing.flatten(1).any(1)
        if not holed.any():
            return [pixels.clone() for _ in q]
        first, marks = self._first(pixels[holed], missing[holed]).double(), missing[holed].flatten(1)
        found = self._draws().quantiles(first.numpy(), marks.numpy(), q, self.calibration)
        return [_put(pixels, holed, torch.from_numpy(rows).float()) for rows in found]

    def log_density(self, pixels: Tensor) -> FloatArray:
        """Return each complete image's log-density by the last flow, in the units of the images.

        Parameters
        ----------
        pixels : Tensor of shape (n_images, channels, height, width)

        Returns
        -------
        ndarray of shape (n_images,)
        """
        flow = self.stages[-1].flow
        rows = pixels.flatten(1)
        with torch.inference_mode(), one_thread_when_small(rows.numel()):
            parts = [flow.log_prob(part.to(flow.theta)).cpu() for part in rows.split(ROWS_AT_ONCE)]
        network: FloatArray = torch.cat(parts).numpy().astype(np.float64)
        return network - rows.shape[1] * math.log(self.codec.high - self.codec.low)

    def sample(self, n: int, seed: int) -> Tensor:
        """Draw new images from the last flow.

        Parameters
        ----------
        n : int
            How many.
        seed : int
            Decides them.

        Returns
        -------
        Tensor of shape (n, channels, height, width)
            Values outside [0, 1] reflected into it.
        """
        drawn = self.stages[-1].flow.sample(n, torch.Generator().manual_seed(seed)).cpu()
        inside = fold(drawn, Box.unit(drawn.shape[1]))
        return inside.reshape(n, self.codec.channels, self.codec.height, self.codec.width)

    def tensors(self) -> dict[str, Array]:
        """Return what was learned as arrays by name, for a file."""
        tensors = {name: tensor.detach().cpu().numpy() for name, tensor in stage_tensors(self.stages).items()}
        tensors |= self.calibration.tensors() if self.calibration is not None else {}
        return tensors | {"level": self.level, "steps": self.steps}

    @classmethod
    def from_tensors(
        cls, arrays: dict[str, Array], codec: PixelCodec, settings: Settings, header: Header, device: torch.device
    ) -> FlowImageModel:
        """Undo `tensors`; the header holds the seed and n_stages."""
        model = cls(settings, codec, arrays["level"], header["seed"])
        stages = {name: torch.from_numpy(a).to(device) for name, a in arrays.items() if name.startswith("stage.")}
        model.stages = stages_from(stages, header["n_stages"], settings)
        model.steps = arrays["steps"]
        model.calibration = Calibration.from_tensors(arrays)
        return model


def _put(pixels: Tensor, holed: Tensor, rows: Tensor) -> Tensor:
    """Return the images with flattened ones in place of those that had holes."""
    filled = pixels.clone()
    filled[holed] = rows.reshape(-1, *pixels.shape[1:]).to(pixels.dtype)
    return filled


def _as_numbers(hashes: npt.NDArray[np.uint64]) -> FloatArray:
    """Write 64-bit words as two numbers each, without loss."""
    halves = np.stack([hashes >> np.uint64(32), hashes & np.uint64(0xFFFFFFFF)], axis=1)
    return halves.astype(np.float64)
