"""The default preset for images: fit, fill, draws and quantiles, from pixels to pixels."""

from __future__ import annotations

__all__ = ["MaskedImageModel", "bayer_rounds"]

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from torch import Tensor, nn

from mcflow.fitting.calibration import Calibration, masses_beyond
from mcflow.fitting.callbacks import Callback, History
from mcflow.fitting.trainer import closing_all, notify_phase
from mcflow.images.config import ImageConfig
from mcflow.images.networks import GREY_LEVELS, ImageFlow, LogisticMixture, PixelPrediction, UNet, normal_scores
from mcflow.images.pixels import PixelCodec
from mcflow.images.trainer import ImageTrainer, fit_flow
from mcflow.random import Streams, cell_uniforms
from mcflow.typing import Array, BoolArray, FloatArray, Header

PIXELS_AT_ONCE = 100_000  #: Pixels of the images that pass through the networks together.
FEW_ROUNDS = (1 / 4, 1 / 2, 1.0)  #: Fractions of known pixels after each round, where few pixels are missing.
#: Fractions of known pixels after each round, where many pixels or shapes are missing.
MANY_ROUNDS = (1 / 64, 1 / 32, 1 / 16, 3 / 32, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1.0)
TILE = 8  #: Side of the tile in which the order of pixels repeats.


def bayer_rounds(height: int, width: int, shares: Sequence[float] = MANY_ROUNDS) -> list[BoolArray]:
    """Return masks (height, width) of the pixels that are drawn in each round, from coarse to fine."""
    # In the order of a Bayer matrix, the pixels of a round are far apart and depend little on each other.
    matrix = np.zeros((1, 1))
    while len(matrix) < TILE:
        matrix = np.block([[4 * matrix, 4 * matrix + 2], [4 * matrix + 3, 4 * matrix + 1]])
    order = np.tile(matrix / TILE**2, (-(-height // TILE), -(-width // TILE)))[:height, :width]
    starts = (0.0, *shares[:-1])
    return [(start <= order) & (order < end) for start, end in zip(starts, shares, strict=True)]


class MaskedImageModel:
    """A mask-aware U-net H, and a flow G over the normal scores of the pixels that H is not shown.

    Images and their masks have the shape (n_images, channels, height, width).
    """

    def __init__(self, config: ImageConfig, codec: PixelCodec, seed: int = 0) -> None:
        self.config, self.codec, self.seed = config, codec, seed
        self.history = History(ending="nothing to learn")
        self.calibrates = True
        self.calibration: Calibration | None = None
        self.rounds: Sequence[float] = MANY_ROUNDS
        self.start = time.perf_counter()

    @classmethod
    def prepare(
        cls, codec: PixelCodec, pixels: Tensor, missing: Tensor, seed: int, config: ImageConfig
    ) -> MaskedImageModel:
        """Return an unfitted model for images."""
        return cls(config.for_images(len(pixels), (codec.height, codec.width)), codec, seed)

    def _build(self, generator: torch.Generator | None = None) -> tuple[UNet, ImageFlow]:
        """Return H and G; without a generator their weights are zero."""
        config, channels = self.config, self.codec.channels
        n_scales = max(0, min(3, int(math.log2(min(self.codec.height, self.codec.width)))))
        sizes = {"n_scales": max(1, n_scales), "n_blocks": config.n_blocks, "n_components": config.n_components}
        network = UNet(channels, config.width, generator=generator, **sizes)
        return network, ImageFlow(channels, config.width, n_scales=min(2, n_scales), generator=generator)

    def fit(
        self,
        pixels: Tensor,
        missing: Tensor,
        streams: Streams,
        device: torch.device,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Train on incomplete images."""
        pixels, missing = pixels.to(device), missing.to(device)
        network, flow = self._build(streams.weights)
        network.to(device)
        flow.to(device)
        config = self.config
        left = max(self.start + config.max_time - time.perf_counter(), 0.1)
        seconds = (1 - config.flow_time_share) * left if config.max_time else 0.0
        trainer = ImageTrainer(config, network, pixels, missing, streams, callbacks=callbacks, seconds=seconds)
        with closing_all(callbacks):
            trainer.train()
            network.eval()
            if self.calibrates:
                notify_phase(callbacks, "calibrating")
                self.calibration = self._calibrate(trainer)
            n_steps = int(config.flow_steps_share * config.max_epochs * math.ceil(len(pixels) / config.batch_size))
            notify_phase(callbacks, "fitting the density")
            n_steps = min(max(n_steps, 1), config.max_flow_steps)
            deadline = self.start + config.max_time if config.max_time else None
            fit_flow(trainer, flow, n_steps, integers=self.codec.n_levels > 0, deadline=deadline)
        many = trainer.masks.shaped or float(missing.float().mean()) > config.few_rounds_share
        self.rounds = MANY_ROUNDS if many else FEW_ROUNDS
        self.history, self.network, self.flow = trainer.history, network, flow.eval()

    def _calibrate(self, trainer: ImageTrainer) -> Calibration:
        """Compare the predicted distributions of validation pixels with their values."""
        below, above, channels = [], [], []
        for predicted, pixels, mask in trainer.predict_validation():
            mixture = LogisticMixture(predicted.parameters[mask])
            levels = (pixels[mask] * (GREY_LEVELS - 1)).round().to(torch.int64)
            below.append(mixture.mass_below(levels + 1).cpu().numpy())
            above.append(1 - mixture.mass_below(levels).cpu().numpy())
            channels.append(mask.nonzero()[:, 1].cpu().numpy())
        low, high, columns = (np.concatenate(x)[: self.config.calibration_pixels] for x in (below, above, channels))
        return Calibration.from_scores(low.astype(float), high.astype(float), columns, self.codec.channels)

    def _parts(self, n_images: int) -> Iterator[slice]:
        """Yield slices of images that pass through the networks together."""
        size = max(1, PIXELS_AT_ONCE // (self.codec.height * self.codec.width))
        for first in range(0, n_images, size):
            yield slice(first, min(first + size, n_images))

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device

    def _predict(self, pixels: Tensor, missing: Tensor) -> PixelPrediction:
        shown = (~missing).to(self._device, torch.float32)
        with torch.inference_mode():
            predicted: PixelPrediction = self.network(pixels.to(self._device), shown)
        return predicted

    def fill(self, pixels: Tensor, missing: Tensor) -> Tensor:
        """Complete images with estimates of the conditional mean."""
        filled = pixels.clone()
        for part in self._parts(len(pixels)):
            direct = self._predict(pixels[part], missing[part]).direct
            filled[part] = torch.where(missing[part], direct.clamp(0, 1).cpu(), pixels[part])
        return filled

    def draws(
        self, pixels: Tensor, missing: Tensor, m: int, seed: int, hashes: npt.NDArray[np.uint64]
    ) -> Iterator[Tensor]:
        """Yield m times completed images; a draw of an image depends only on the image, its hash and the number."""
        for number in range(m):
            drawn = pixels.clone()
            for part in self._parts(len(pixels)):
                normals = _cell_normals(missing[part], hashes[part], number)
                drawn[part] = self._draw(pixels[part], ~missing[part], normals, self.rounds)
            yield drawn

    def _draw(self, pixels: Tensor, shown: Tensor, normals: Tensor, rounds: Sequence[float]) -> Tensor:
        """Draw the pixels that are not shown in rounds from coarse to fine; each round is shown to the next one."""
        device = self._device
        pixels, shown, normals = pixels.to(device), shown.to(device), normals.to(device)
        for places in bayer_rounds(self.codec.height, self.codec.width, rounds):
            now = torch.from_numpy(places).to(device) & ~shown
            if not bool(now.any()):
                continue
            with torch.inference_mode():
                predicted = self.network(pixels, shown.float())
                scores = self.flow.inverse(normals, now, predicted.context)[now]
                p = torch.special.ndtr(scores).clamp(1e-6, 1 - 1e-6)
                levels, positions = LogisticMixture(predicted.parameters[now]).quantiles(p)
            pixels = pixels.clone()
            pixels[now] = self._values(levels, positions)
            shown = shown | now
        return pixels.cpu()

    def _values(self, levels: Tensor, positions: Tensor) -> Tensor:
        """Return pixels at positions in levels; 8-bit integers are at their levels."""
        if self.codec.n_levels == GREY_LEVELS:
            return levels.to(torch.float32) / (GREY_LEVELS - 1)
        return ((levels + positions - 0.5) / (GREY_LEVELS - 1)).clamp(0, 1).to(torch.float32)

    def quantiles(self, pixels: Tensor, missing: Tensor, q: Sequence[float]) -> list[Tensor]:
        """Return images with missing pixels filled by quantiles, for each probability."""
        found = [pixels.clone() for _ in q]
        for part in self._parts(len(pixels)):
            mask, channels = missing[part], missing[part].nonzero()[:, 1]
            predicted = self._predict(pixels[part], mask)
            mixture = LogisticMixture(predicted.parameters[mask.to(self._device)])
            for probability, images in zip(q, found, strict=True):
                images[part][mask] = self._quantile(mixture, channels, probability)
        return found

    def _quantile(self, mixture: LogisticMixture, channels: Tensor, probability: float) -> Tensor:
        """Return a calibrated quantile (n_pixels,) of pixels in the given channels."""
        upper, masses = masses_beyond(probability, self.calibration, self.codec.channels)
        mass = torch.from_numpy(masses.astype(np.float32))[channels].to(mixture.centres)
        levels, positions = mixture.quantiles((1 - mass if upper else mass).clamp(0, 1 - 1e-7))
        end = torch.full_like(positions, float(upper))
        return torch.where(mass > 0, self._values(levels, positions), end).cpu()

    def log_density(self, pixels: Tensor) -> FloatArray:
        """Return the log-density (n_images,) of complete images in the units of the images."""
        parts = [self._log_density(pixels[part].to(self._device)) for part in self._parts(len(pixels))]
        n_numbers = self.codec.height * self.codec.width * self.codec.channels
        cell = (self.codec.high - self.codec.low) / (GREY_LEVELS - 1)
        return np.concatenate(parts) - n_numbers * math.log(cell)

    def _log_density(self, pixels: Tensor) -> FloatArray:
        """Return the sum of the log-densities of all rounds, each given the earlier ones."""
        shown = torch.zeros_like(pixels, dtype=torch.bool)
        total = torch.zeros(len(pixels), dtype=torch.float64)
        for places in bayer_rounds(self.codec.height, self.codec.width, MANY_ROUNDS):
            now = torch.from_numpy(places).to(pixels.device) & ~shown
            with torch.inference_mode():
                predicted = self.network(pixels, shown.float())
                scores = normal_scores(predicted, pixels, now)
                levels = (pixels[now] * (GREY_LEVELS - 1)).round().to(torch.int64)
                masses = torch.zeros_like(pixels)
                masses[now] = LogisticMixture(predicted.parameters[now]).log_mass(levels)
                joint = self.flow.log_prob(scores, now, predicted.context)
                independent = (-0.5 * (scores.square() + math.log(2 * math.pi)) * now).flatten(1).sum(1)
                total += (masses.flatten(1).sum(1) + joint - independent).cpu().double()
            shown = shown | now
        return total.numpy()

    def sample(self, n_images: int, seed: int) -> Tensor:
        """Draw new images."""
        shape = (n_images, self.codec.channels, self.codec.height, self.codec.width)
        normals = torch.randn(shape, generator=torch.Generator().manual_seed(seed % 2**63))
        pixels, shown = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
        parts = self._parts(n_images)
        return torch.cat([self._draw(pixels[part], shown[part], normals[part], MANY_ROUNDS) for part in parts])

    def tensors(self) -> dict[str, Array]:
        """Return everything learned as arrays by name."""
        arrays: dict[str, Array] = {"thorough": np.array(self.rounds is MANY_ROUNDS)}
        arrays |= self.calibration.tensors() if self.calibration is not None else {}
        networks = nn.ModuleDict({"network": self.network, "flow": self.flow})
        arrays |= {name: t.detach().cpu().contiguous().numpy() for name, t in networks.state_dict().items()}
        return arrays

    @classmethod
    def from_tensors(
        cls, arrays: dict[str, Array], codec: PixelCodec, config: ImageConfig, header: Header, device: torch.device
    ) -> MaskedImageModel:
        """Undo `tensors`."""
        model = cls(config, codec, header["seed"])
        model.network, model.flow = model._build()
        networks = nn.ModuleDict({"network": model.network, "flow": model.flow})
        own = {name: torch.from_numpy(a) for name, a in arrays.items() if name.startswith(("network.", "flow."))}
        networks.load_state_dict(own)
        networks.to(device).eval()
        model.rounds = MANY_ROUNDS if arrays["thorough"] else FEW_ROUNDS
        model.calibration = Calibration.from_tensors(arrays)
        return model


def _cell_normals(missing: Tensor, hashes: npt.NDArray[np.uint64], number: int) -> Tensor:
    """Return standard normal numbers of the shape of `missing`, zero where a pixel is observed."""
    cells = missing.flatten(1).nonzero().numpy()
    uniforms = cell_uniforms(hashes[cells[:, 0]], cells[:, 1], np.array([number]))
    normals = torch.zeros(missing.shape)
    normals[missing] = torch.from_numpy(ndtri(uniforms[0])).to(normals.dtype)
    return normals
