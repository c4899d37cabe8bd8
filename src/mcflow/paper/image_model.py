"""The paper's method on images: a fully connected flow over flattened pixels."""

from __future__ import annotations

__all__ = ["ImageFormat", "PaperImageModel", "conditional_steps"]

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mcflow.fitting.calibration import Calibration, masses_beyond
from mcflow.fitting.callbacks import Callback, History
from mcflow.fitting.trainer import closing_all, notify_phase
from mcflow.paper.algorithm import Box, Stage, Trainer, complete, fold, log_density, stage_tensors, stages_from
from mcflow.paper.chain import N_LEAPFROG, Chain, ConditionalSampler, FlowDensity, in_float64
from mcflow.paper.config import PaperConfig
from mcflow.random import Streams, hash_rows
from mcflow.typing import Array, FloatArray, Header

MIN_CALIBRATION_IMAGES = 8  #: Minimum number of images for the calibration.
IMAGES_FOR_STEPS = 256  #: Images from which the step sizes of chains are computed.
IMAGES_TOGETHER = 64  #: Images whose chains run together.
MIN_STEP = 1e-3  #: Smallest initial step size of a pixel.
MAX_STEP = 0.5  #: Largest initial step size of a pixel.


#: First fill of missing pixels, called with images and masks (n_images, height, width, channels), a seed, and `empty`,
#: the values (channels,) of images without an observed pixel.
FirstFill: TypeAlias = Callable[..., Array]


class ImageFormat(Protocol):
    """Size of images, and the values that are scaled to 0 and 1."""

    height: int
    width: int
    channels: int
    low: float
    high: float


class PaperImageModel:
    """Flow G and latent network H over all pixels of an image.

    Missing pixels start from `first_fill`. At every epoch that is a power of two they are refilled with
    :math:`g^{-1}(h(g(x)))`, both networks are kept as a stage, and G restarts; new images pass through all stages.
    Results outside [0, 1] are reflected into it. Pixels are not dequantised, as the paper does not mention it.

    For images of N numbers, G has about 36 N² weights and H 5 N² in every stage: 25 million for a digit of MNIST,
    390 million for a colour image of 32 × 32 pixels.

    Images and their masks have the shape (n_images, channels, height, width); `means` (channels,) are those of the
    observed pixels.
    """

    def __init__(
        self, config: PaperConfig, codec: ImageFormat, means: FloatArray, seed: int, first_fill: FirstFill
    ) -> None:
        self.config, self.codec, self.seed = config, codec, seed
        self.means, self.first_fill = means, first_fill
        self.history = History(ending="nothing to learn")
        self.stages: list[Stage] = []
        self.steps = np.ones(codec.channels * codec.height * codec.width)
        self.calibrates = True
        self.calibration: Calibration | None = None

    @classmethod
    def prepare(
        cls,
        codec: ImageFormat,
        pixels: Tensor,
        missing: Tensor,
        seed: int,
        config: PaperConfig,
        *,
        first_fill: FirstFill,
    ) -> PaperImageModel:
        """Return an unfitted model for images."""
        seen = (~missing).double()
        means = (pixels * seen).sum((0, 2, 3)) / seen.sum((0, 2, 3)).clamp_(min=1)
        share = float(missing.double().mean())
        return cls(config.for_images(pixels[0].numel(), share), codec, means.numpy(), seed, first_fill)

    def fit(
        self,
        pixels: Tensor,
        missing: Tensor,
        streams: Streams,
        device: torch.device,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Train on incomplete images."""
        end = time.perf_counter() + self.config.max_time if self.config.max_time else math.inf
        rows, marks = self._fill_first(pixels, missing).to(device), missing.flatten(1).to(device)
        config = self.config
        if config.max_time:
            reserved = config.calibration_time_share * config.max_time if self.calibrates else 0
            config = replace(config, max_time=max(end - time.perf_counter() - reserved, 1e-3))
        trainer = Trainer(config, rows, marks, streams, callbacks=callbacks)
        with closing_all(callbacks):
            self.stages = trainer.train()
            self.history = trainer.history
            notify_phase(callbacks, "calibrating" if self.calibrates else "measuring the steps of the chains")
            self._fit_chains(pixels, missing, trainer.rows, end)

    def _fit_chains(self, pixels: Tensor, missing: Tensor, rows: Tensor, end: float) -> None:
        """Set the step sizes of chains, and calibrate quantiles on as many images as the time allows."""
        config, rng = self.config, np.random.default_rng([self.seed, 1])
        order = torch.from_numpy(rng.permutation(len(pixels)))
        some = rows[order[:IMAGES_FOR_STEPS].to(rows.device)].cpu().double().numpy()
        start = time.perf_counter()
        self.steps = conditional_steps(FlowDensity(self.stages[-1].flow), some)
        seconds = (time.perf_counter() - start) / len(some)
        self.calibration = None
        if not self.calibrates:
            return
        observed = float((~missing).sum()) / len(pixels)
        n_images = math.ceil(config.calibration_cells / (config.hidden_share * max(observed, 1)))
        n_images = min(max(n_images, MIN_CALIBRATION_IMAGES), config.calibration_rows, len(pixels))
        if end < math.inf:
            n_gradients = (N_LEAPFROG + 1) * (config.burn_in + config.n_states * config.state_thinning)
            n_images = min(n_images, int((end - time.perf_counter()) / (n_gradients * seconds)))
        if n_images > 0:
            self.calibration = self._calibrate(pixels[order[:n_images]], missing[order[:n_images]], rng)

    def _calibrate(self, pixels: Tensor, missing: Tensor, rng: np.random.Generator) -> Calibration | None:
        """Hide observed pixels, and compare their states with the true values."""
        shape = (len(pixels), 1, self.codec.height, self.codec.width)
        hidden = torch.from_numpy(rng.random(shape) < self.config.hidden_share) & ~missing
        some = hidden.flatten(1).any(1)
        if not some.any():
            return None
        pixels, hidden, missing = pixels[some], hidden[some], (missing | hidden)[some]
        sampler = self._sampler(pixels, missing)
        truth, scored = pixels.flatten(1).double().numpy(), hidden.flatten(1).numpy()
        below, above = sampler.tail_masses(np.arange(len(pixels)), truth, scored)
        return Calibration.from_scores(below, above, np.zeros(len(below), dtype=np.int64), 1)

    def _fill_first(self, pixels: Tensor, missing: Tensor) -> Tensor:
        """Return flattened images (n_images, n_numbers) with missing pixels at their first fill."""
        images, mask = (part.permute(0, 2, 3, 1).numpy() for part in (pixels, missing))
        filled = torch.from_numpy(self.first_fill(images, mask, self.seed, empty=self.means))
        return filled.permute(0, 3, 1, 2).flatten(1)

    def fill(self, pixels: Tensor, missing: Tensor) -> Tensor:
        """Complete images."""
        incomplete = missing.flatten(1).any(1)
        rows, marks = self._fill_first(pixels[incomplete], missing[incomplete]), missing[incomplete].flatten(1)
        device = self.stages[0].flow.theta.device
        done = complete(self.stages, rows.to(device), marks.to(device)).cpu()
        return _put(pixels, incomplete, done)

    def _sampler(
        self, pixels: Tensor, missing: Tensor, hashes: npt.NDArray[np.uint64] | None = None
    ) -> ConditionalSampler:
        """Return the sampler of incomplete images, whose chains depend on `hashes` (n_images,) or on the images.

        As an image has hundreds of missing pixels, all moves of its chain are Hamiltonian moves of all of them. Each
        move takes eight passes through the flow, so that there are few moves. Draws therefore stay near the filled
        image: a chain does not travel between shapes that would fit the observed pixels equally well.
        """
        first, marks = self._fill_first(pixels, missing).double(), missing.flatten(1).numpy()
        words = hash_rows(np.where(marks, np.nan, first.numpy()), self.seed) if hashes is None else hashes
        density, n_numbers = FlowDensity(self.stages[-1].flow), first.shape[1]
        start = self._complete_exactly(first, torch.from_numpy(marks), density.flow.theta.device)
        how: dict[str, Any] = {"steps": self.steps, "box": Box.unit(n_numbers), "burn_in": self.config.burn_in}
        return ConditionalSampler(
            self.config,
            lambda rows: Chain(density, start[rows], marks[rows], hashes=words[rows], moves=("glide",), **how),
            lambda chain: chain.rows,
            low=np.zeros(n_numbers),
            high=np.ones(n_numbers),
            discrete=np.zeros(n_numbers, dtype=bool),
            rows_together=IMAGES_TOGETHER,
        )

    def _complete_exactly(self, rows: Tensor, missing: Tensor, device: torch.device) -> FloatArray:
        """Complete flattened images in float64; each stage is converted only while it is used, as stages are large."""
        rows, missing = rows.to(device), missing.to(device)
        for stage in self.stages:
            rows = complete([Stage(in_float64(stage.flow), in_float64(stage.mapper))], rows, missing)
        return rows.cpu().numpy()

    def draws(
        self, pixels: Tensor, missing: Tensor, m: int, seed: int, hashes: npt.NDArray[np.uint64]
    ) -> Iterator[Tensor]:
        """Yield m times completed images, drawn by chains from the conditional density of the last flow."""
        incomplete = missing.flatten(1).any(1)
        if not incomplete.any():
            yield from (pixels.clone() for _ in range(m))
            return
        words = hashes[incomplete.numpy()]
        halves = np.stack([words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)], axis=1)  # without loss as floats
        own = hash_rows(halves.astype(np.float64), seed)
        sampler = self._sampler(pixels[incomplete], missing[incomplete], own)
        for rows in sampler.draws(np.arange(len(own)), m):
            yield _put(pixels, incomplete, torch.from_numpy(rows).float())

    def quantiles(self, pixels: Tensor, missing: Tensor, q: Sequence[float]) -> list[Tensor]:
        """Return images with missing pixels filled by quantiles, for each probability."""
        found = [pixels.clone() for _ in q]
        incomplete = missing.flatten(1).any(1)
        if incomplete.any():
            n_numbers = pixels[0].numel()
            masses = [masses_beyond(probability, self.calibration, 1) for probability in q]
            wide = [(upper, np.repeat(mass, n_numbers)) for upper, mass in masses]
            sampler = self._sampler(pixels[incomplete], missing[incomplete])
            cells = sampler.quantiles(np.arange(int(incomplete.sum())), wide)
            for images, values in zip(found, cells, strict=True):
                images[missing] = torch.from_numpy(values).to(images.dtype)
        return found

    def log_density(self, pixels: Tensor) -> FloatArray:
        """Return the log-density (n_images,) of complete images under the last flow, in the units of the images."""
        density = log_density(self.stages[-1].flow, pixels.flatten(1))
        return density - pixels[0].numel() * math.log(self.codec.high - self.codec.low)

    def sample(self, n: int, seed: int) -> Tensor:
        """Draw new images from the last flow."""
        drawn = self.stages[-1].flow.sample(n, torch.Generator().manual_seed(seed)).cpu()
        inside = fold(drawn, Box.unit(drawn.shape[1]))
        return inside.reshape(n, self.codec.channels, self.codec.height, self.codec.width)

    def tensors(self) -> dict[str, Array]:
        """Return everything learned as arrays by name."""
        tensors = stage_tensors(self.stages)
        tensors |= self.calibration.tensors() if self.calibration is not None else {}
        return tensors | {"level": self.means, "steps": self.steps}

    @classmethod
    def from_tensors(
        cls,
        arrays: dict[str, Array],
        codec: ImageFormat,
        config: PaperConfig,
        header: Header,
        device: torch.device,
        *,
        first_fill: FirstFill,
    ) -> PaperImageModel:
        """Undo `tensors`."""
        model = cls(config, codec, arrays["level"], header["seed"], first_fill)
        model.stages = stages_from(arrays, config, device)
        model.steps = arrays["steps"]
        model.calibration = Calibration.from_tensors(arrays)
        return model


def conditional_steps(density: FlowDensity, rows: FloatArray) -> FloatArray:
    """Return step sizes (n_places,): estimates of standard deviations of places given all others, from some rows."""
    squares = np.square(density.slope(rows)[1]).mean(axis=0)
    return np.asarray(np.clip(1 / np.sqrt(np.maximum(squares, 1e-12)), MIN_STEP, MAX_STEP))


def _put(pixels: Tensor, incomplete: Tensor, rows: Tensor) -> Tensor:
    """Return the images with the incomplete ones replaced by flattened images."""
    filled = pixels.clone()
    filled[incomplete] = rows.reshape(-1, *pixels.shape[1:]).to(pixels.dtype)
    return filled
