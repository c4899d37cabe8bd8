"""The fitted model of the default preset for images: pixels in, pixels out."""

from __future__ import annotations

__all__ = ["ImageStage", "MaskedImageModel"]

import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from torch import Tensor

from mcflow.config import Settings
from mcflow.data.pixels import PixelCodec
from mcflow.flows.image_flow import ImageFlow
from mcflow.flows.logistic import LEVELS, LogisticMixture
from mcflow.imputers.image_rounds import FEW_ROUNDS, MANY_ROUNDS, rounds_of
from mcflow.latent.image_mapper import ImageMapper
from mcflow.random import Streams, cell_uniforms
from mcflow.training.calibration import Calibration, masses_beyond
from mcflow.training.callbacks import Callback, closing_all, tell_phase
from mcflow.training.hidden_images import HiddenImageTrainer
from mcflow.training.history import History
from mcflow.training.image_density import fit_image_density, image_scores
from mcflow.training.image_sizes import fitting_image_networks
from mcflow.typing import Array, FloatArray, Header

#: The share of the time that H has when there is a limit; G has the rest.
LATENT_SHARE = 0.8

#: Steps of G, as a share of those of H, and at most.
FLOW_SHARE, MOST_STEPS = 0.15, 2_000

#: Pixels' worth of images that go through the networks together.
PIXELS_AT_ONCE = 100_000

#: Share of missing pixels up to which scattered holes are drawn in few rounds.
FEW_MISSING = 0.6

#: Held-out pixels by which quantiles are set right, at most.
MOST_JUDGES = 50_000


class ImageStage(NamedTuple):
    """The networks G and H of the default preset for images."""

    flow: ImageFlow
    mapper: ImageMapper


class MaskedImageModel:
    """A mask-aware U-net H and a flow G over the scores of what it is not shown.

    Parameters
    ----------
    settings : Settings
        With every size as a number.
    codec : PixelCodec
        Size and range of the images.
    seed : int
        The seed of the fit.

    Attributes
    ----------
    history : History
        Losses, epoch by epoch.
    stages : list of ImageStage
        G and H.
    calibration : Calibration or None
        What held-out pixels said of stated quantiles, by channel.
    thorough : bool
        Whether images are drawn in many rounds.
    """

    def __init__(self, settings: Settings, codec: PixelCodec, seed: int = 0) -> None:
        self.settings, self.codec, self.seed = settings, codec, seed
        self.history = History(ending="nothing to learn")
        self.stages: list[ImageStage] = []
        self.calibrates = True
        self.calibration: Calibration | None = None
        self.thorough = True
        self.start = time.perf_counter()

    @classmethod
    def prepare(
        cls, codec: PixelCodec, pixels: Tensor, missing: Tensor, seed: int, settings: Settings
    ) -> MaskedImageModel:
        """Return a model for images, not fitted yet."""
        return cls(fitting_image_networks(settings, len(pixels), (codec.height, codec.width)), codec, seed)

    def _networks(self, generator: torch.Generator | None = None) -> ImageStage:
        """Make G and H; without a generator their weights are zero."""
        latent, channels = self.settings.latent, self.codec.channels
        n_scales = max(0, min(3, int(math.log2(min(self.codec.height, self.codec.width)))))
        mapper = ImageMapper(
            channels, latent.width, n_scales=max(1, n_scales), n_blocks=latent.n_blocks, generator=generator
        )
        flow = ImageFlow(channels, latent.width, n_scales=min(2, n_scales), generator=generator)
        return ImageStage(flow, mapper)

    def fit(
        self,
        pixels: Tensor,
        missing: Tensor,
        streams: Streams,
        device: torch.device,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Learn from images with holes."""
        pixels, missing = pixels.to(device), missing.to(device)
        stage = self._networks(streams.weights)
        flow, mapper = stage.flow.to(device), stage.mapper.to(device)
        train = self.settings.train
        seconds = LATENT_SHARE * max(self.start + train.max_time - time.perf_counter(), 0.1) if train.max_time else 0.0
        trainer = HiddenImageTrainer(
            self.settings, mapper, pixels, missing, streams, callbacks=callbacks, seconds=seconds
        )
        with closing_all(callbacks):
            trainer.train()
            mapper.eval()
            tell_phase(callbacks, "calibrating")
            self.calibration = self._judged(trainer) if self.calibrates else None
            n_steps = int(FLOW_SHARE * train.max_epochs * math.ceil(len(pixels) / train.batch_size))
            tell_phase(callbacks, "fitting the density")
            fit_image_density(
                mapper,
                flow,
                pixels,
                missing,
                holes=trainer.holes,
                streams=streams,
                n_steps=min(max(n_steps, 1), MOST_STEPS),
                batch_size=train.batch_size,
                whole=self.codec.n_levels > 0,
                deadline=self.start + train.max_time if train.max_time else None,
            )
        flow.eval()
        self.thorough = trainer.holes.shaped or float(missing.float().mean()) > FEW_MISSING
        self.history, self.stages = trainer.history, [ImageStage(flow, mapper)]

    def _judged(self, trainer: HiddenImageTrainer) -> Calibration:
        """Learn from held-out pixels what was stated of them."""
        below, above, channels = [], [], []
        for answer, pixels, held in trainer.held_looks():
            mixture = LogisticMixture(answer.parameters[held])
            levels = (pixels[held] * (LEVELS - 1)).round().to(torch.int64)
            below.append(mixture.below(levels + 1).cpu().numpy())
            above.append(1 - mixture.below(levels).cpu().numpy())
            channels.append(held.nonzero()[:, 1].cpu().numpy())
        parts = [np.concatenate(part)[:MOST_JUDGES] for part in (below, above, channels)]
        return Calibration.from_scores(
            parts[0].astype(np.float64), parts[1].astype(np.float64), parts[2], self.codec.channels
        )

    def _parts(self, n_images: int) -> Iterator[slice]:
        """Yield images that go through the networks together."""
        size = max(1, PIXELS_AT_ONCE // (self.codec.height * self.codec.width))
        for first in range(0, n_images, size):
            yield slice(first, min(first + size, n_images))

    @property
    def _device(self) -> torch.device:
        return next(self.stages[0].mapper.parameters()).device

    def fill(self, pixels: Tensor, missing: Tensor) -> Tensor:
        """Complete new images with estimates of the conditional mean."""
        filled = pixels.clone()
        with torch.inference_mode():
            for part in self._parts(len(pixels)):
                shown = (~missing[part]).to(self._device, torch.float32)
                answer = self.stages[0].mapper(pixels[part].to(self._device), shown)
                filled[part] = torch.where(missing[part], answer.direct.clamp(0, 1).cpu(), pixels[part])
        return filled

    def draws(
        self, pixels: Tensor, missing: Tensor, m: int, seed: int, hashes: npt.NDArray[np.uint64]
    ) -> Iterator[Tensor]:
        """Yield completed images; one's draw depends on the seed's hash, the number of the draw and itself alone."""
        for number in range(m):
            drawn = pixels.clone()
            for part in self._parts(len(pixels)):
                drawn[part] = self._drawn(pixels[part], missing[part], hashes[part], number)
            yield drawn

    def _drawn(self, pixels: Tensor, missing: Tensor, hashes: npt.NDArray[np.uint64], number: int) -> Tensor:
        holes = missing.flatten(1).nonzero().numpy()
        uniforms = cell_uniforms(hashes[holes[:, 0]], holes[:, 1], np.array([number]))
        normals = torch.zeros_like(pixels)
        normals[missing] = torch.from_numpy(ndtri(uniforms[0])).to(normals.dtype)
        return self._rounds(pixels, ~missing, normals, MANY_ROUNDS if self.thorough else FEW_ROUNDS)

    def _rounds(self, pixels: Tensor, shown: Tensor, normals: Tensor, known: Sequence[float]) -> Tensor:
        """Draw what is not shown, round by round, coarse to fine; each round is shown to the next."""
        stage, device = self.stages[0], self._device
        pixels, shown, normals = pixels.to(device), shown.to(device), normals.to(device)
        for places in rounds_of(self.codec.height, self.codec.width, known):
            now = torch.from_numpy(places).to(device) & ~shown
            if not bool(now.any()):
                continue
            with torch.inference_mode():
                answer = stage.mapper(pixels, shown.float())
                scores = stage.flow.inverse(normals, now, answer.context)[now]
                shares = torch.special.ndtr(scores).clamp(1e-6, 1 - 1e-6)
                levels, inside = LogisticMixture(answer.parameters[now]).values(shares)
            pixels = pixels.clone()
            pixels[now] = self._values(levels, inside)
            shown = shown | now
        return pixels.cpu()

    def _values(self, levels: Tensor, inside: Tensor) -> Tensor:
        """Return pixels for levels and the places in them; whole numbers are their levels."""
        if self.codec.n_levels == LEVELS:
            return levels.to(torch.float32) / (LEVELS - 1)
        return ((levels + inside - 0.5) / (LEVELS - 1)).clamp(0, 1).to(torch.float32)

    def quantiles(self, pixels: Tensor, missing: Tensor, q: Sequence[float]) -> list[Tensor]:
        """Return images whose holes hold quantiles of what they may be, one for each probability."""
        found = [pixels.clone() for _ in q]
        with torch.inference_mode():
            for part in self._parts(len(pixels)):
                holes = missing[part]
                shown = (~holes).to(self._device, torch.float32)
                answer = self.stages[0].mapper(pixels[part].to(self._device), shown)
                mixture = LogisticMixture(answer.parameters[holes.to(self._device)])
                for probability, images in zip(q, found, strict=True):
                    images[part][holes] = self._quantile(mixture, holes.nonzero()[:, 1], probability)
        return found

    def _quantile(self, mixture: LogisticMixture, channels: Tensor, probability: float) -> Tensor:
        upper, masses = masses_beyond(probability, self.calibration, self.codec.channels)
        mass = torch.from_numpy(masses.astype(np.float32))[channels].to(mixture.centres)
        levels, inside = mixture.values((1 - mass if upper else mass).clamp(0, 1 - 1e-7))
        end = torch.full_like(inside, float(upper))
        values = self._values(levels, inside)
        return torch.where(mass > 0, values, end).cpu()

    def log_density(self, pixels: Tensor) -> FloatArray:
        """Return each complete image's log-density in the units of the images."""
        parts = [self._log_density(pixels[part].to(self._device)) for part in self._parts(len(pixels))]
        numbers = self.codec.height * self.codec.width * self.codec.channels
        cell = (self.codec.high - self.codec.low) / (LEVELS - 1)
        return np.concatenate(parts) - numbers * math.log(cell)

    def _log_density(self, pixels: Tensor) -> FloatArray:
        """Add up the log-densities of the rounds, each given those before it."""
        stage = self.stages[0]
        shown = torch.zeros_like(pixels, dtype=torch.bool)
        total = torch.zeros(len(pixels), dtype=torch.float64)
        for places in rounds_of(self.codec.height, self.codec.width, MANY_ROUNDS):
            now = torch.from_numpy(places).to(pixels.device) & ~shown
            with torch.inference_mode():
                answer = stage.mapper(pixels, shown.float())
                scores = image_scores(answer, pixels, now)
                levels = (pixels[now] * (LEVELS - 1)).round().to(torch.int64)
                masses = torch.zeros_like(pixels)
                masses[now] = LogisticMixture(answer.parameters[now]).log_mass(levels)
                together = stage.flow.log_prob(scores, now, answer.context)
                alone = (-0.5 * (scores.square() + math.log(2 * math.pi)) * now).flatten(1).sum(1)
                total += (masses.flatten(1).sum(1) + together - alone).cpu().double()
            shown = shown | now
        density: FloatArray = total.numpy()
        return density

    def sample(self, n_images: int, seed: int) -> Tensor:
        """Draw new images."""
        shape = (n_images, self.codec.channels, self.codec.height, self.codec.width)
        normals = torch.randn(shape, generator=torch.Generator().manual_seed(seed % 2**63))
        empty = torch.zeros(shape)
        return torch.cat(
            [self._rounds(empty[p], empty[p].bool(), normals[p], MANY_ROUNDS) for p in self._parts(n_images)]
        )

    def tensors(self) -> dict[str, Array]:
        """Return what was learned as arrays by name, for a file."""
        arrays: dict[str, Array] = {"thorough": np.array(self.thorough)}
        arrays |= self.calibration.tensors() if self.calibration is not None else {}
        for stage in self.stages:
            for name, network in zip(stage._fields, stage, strict=True):
                arrays |= {
                    f"{name}.{key}": t.detach().cpu().contiguous().numpy() for key, t in network.state_dict().items()
                }
        return arrays

    @classmethod
    def from_tensors(
        cls, arrays: dict[str, Array], codec: PixelCodec, settings: Settings, header: Header, device: torch.device
    ) -> MaskedImageModel:
        """Undo `tensors`."""
        model = cls(settings, codec, header["seed"])
        stage = model._networks()
        for name, network in zip(stage._fields, stage, strict=True):
            own = {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}
            network.load_state_dict({key: torch.from_numpy(array) for key, array in own.items()})
            network.to(device).eval()
        model.stages, model.thorough = [stage], bool(arrays["thorough"])
        model.calibration = Calibration.from_tensors(arrays)
        return model
