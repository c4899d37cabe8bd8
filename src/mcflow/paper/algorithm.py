"""The losses of the paper; Algorithm 1, which trains G and H and refills missing cells; Algorithm 2 for new rows."""

from __future__ import annotations

__all__ = [
    "Box",
    "FlatAdam",
    "Stage",
    "Trainer",
    "complete",
    "fold",
    "gradients",
    "is_refill_epoch",
    "is_stable",
    "log_density",
    "seen_weights",
    "stage_tensors",
    "stages_from",
]

import copy
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mcflow.errors import TrainingError
from mcflow.fitting.callbacks import Callback, Epoch, History
from mcflow.fitting.distributed import one_thread_when_small
from mcflow.fitting.initialisation import draw_masks
from mcflow.paper.config import PaperConfig
from mcflow.paper.networks import LatentMapper, RealNVP
from mcflow.random import Streams
from mcflow.typing import Array, FloatArray, Header

ROWS_AT_ONCE = 8192  #: Rows that pass through the networks together outside training.
MIN_EPOCHS_AFTER_RESTART = 2.0  #: Under a time limit, G restarts only if time for this many more epochs is left.


def seen_weights(missing: Tensor) -> Tensor:
    """Return the weights (n_rows, n_columns) of cells in the mean squared error over observed cells of their row."""
    seen = (~missing).float()
    return seen / seen.sum(1, keepdim=True).clamp_(min=1)


def gradients(
    flow: RealNVP, mapper: LatentMapper, rows: Tensor, weights: Tensor, likelihood_weight: float
) -> tuple[Tensor, Tensor]:
    r"""Return the losses of G and H on a batch; write their gradients into `flow.gradient` and `mapper.gradient`.

    .. math::

        L_G(\theta) &= -\frac1N \sum_i \log p_X(\dot x^{(i)}) \\
        L_H(\phi) &= \frac1N \sum_i \left[\mathrm{MSE}(\dot x^{(i)}_{\bar m}, \hat x^{(i)}_{\bar m})
                     - \lambda \log p_X(\hat x^{(i)})\right]

    The gradient of L_H passes through the inverse of G without changing θ. Algorithm 1 encodes :math:`\hat x` a second
    time for its density. As :math:`\hat x = g^{-1}(\hat z)`, that pass would return :math:`\hat z` and the negative
    log-determinant of the inverse, so both are taken from the inverse pass. `rows` and `weights` have the shape
    (n_rows, n_columns).
    """
    n_rows = len(rows)
    encoded = flow.run(rows)
    z = encoded.out
    z_hat, hidden = mapper.run(z)
    decoded = flow.run(z_hat, inverse=True)
    error = decoded.out - rows
    weighted = error * weights

    flow.run_back(encoded, z / n_rows, -1 / n_rows, weights=True)
    d_z_hat = flow.run_back(decoded, weighted * (2 / n_rows), likelihood_weight / n_rows, weights=False)
    d_z_hat.add_(z_hat, alpha=likelihood_weight / n_rows)
    mapper.run_back(d_z_hat, hidden)

    log_density = flow.base_log_prob(z_hat) - decoded.log_det
    flow_loss = -(flow.base_log_prob(z) + encoded.log_det).mean()
    return flow_loss, weighted.mul_(error).sum() / n_rows - likelihood_weight * log_density.mean()


class Box(NamedTuple):
    """Bounds (n_places,) of every place of a row; infinite where there is no bound."""

    low: Tensor
    high: Tensor

    @classmethod
    def unit(cls, n_places: int) -> Box:
        """Return the bounds 0 and 1 for every place."""
        return cls(torch.zeros(n_places), torch.ones(n_places))

    def to(self, device: torch.device) -> Box:
        """Return the bounds as float32 on a device."""
        return Box(self.low.to(device, torch.float32), self.high.to(device, torch.float32))


def fold(x: Tensor, box: Box) -> Tensor:
    """Reflect values (n_rows, n_places) outside the bounds back into them, so that no mass accumulates at a bound."""
    low, high = box
    span = high - low
    wave = low + span - (torch.remainder(x - low, 2 * span) - span).abs()
    mirrored = torch.where(x < low, 2 * low - x, 2 * high - x)
    folded = torch.where(span.isfinite(), wave, mirrored)
    folded = torch.where(span > 0, folded, low)
    outside = (x < low) | (x > high)
    return torch.where(outside, folded, x).maximum(low).minimum(high)


class Stage(NamedTuple):
    """The networks G and H at the time of a refill."""

    flow: RealNVP
    mapper: LatentMapper


def complete(stages: Sequence[Stage], rows: Tensor, missing: Tensor, box: Box | None = None) -> Tensor:
    r"""Fill the missing cells by every stage in turn (Algorithm 2).

    .. math:: \dot x \leftarrow \tilde x \odot \bar m + g^{-1}(h(g(\dot x))) \odot m

    A flow early in training maps some rows far outside the range of the data. The authors' program clips such values
    to the range, though their text does not say so; here they are reflected into it. All tables are of shape
    (n_rows, n_places).
    """
    bounds = (box or Box.unit(rows.shape[1])).to(rows.device)
    batches = zip(rows.split(ROWS_AT_ONCE), missing.split(ROWS_AT_ONCE), strict=True)
    with torch.inference_mode(), one_thread_when_small(rows.numel()):
        return torch.cat([_through(stages, r, m, bounds) for r, m in batches])


def _through(stages: Sequence[Stage], rows: Tensor, missing: Tensor, box: Box) -> Tensor:
    for stage in stages:
        z_hat, _ = stage.mapper.run(stage.flow.run(rows, keep=False).out)
        x_hat = stage.flow.run(z_hat, inverse=True, keep=False).out
        rows = torch.where(missing, fold(x_hat, box), rows)
    return rows


def log_density(flow: RealNVP, rows: Tensor) -> FloatArray:
    """Return the log-density (n_rows,) of rows (n_rows, n_places), in the precision of the flow."""
    with torch.inference_mode(), one_thread_when_small(rows.numel()):
        parts = [flow.log_prob(part.to(flow.theta)).cpu() for part in rows.split(ROWS_AT_ONCE)]
    return torch.cat(parts).double().numpy()


def stage_tensors(stages: Sequence[Stage]) -> dict[str, Array]:
    """Return the arrays of all stages by name, for a file."""
    tensors: dict[str, Tensor] = {}
    for k, stage in enumerate(stages):
        parts = {"masks": stage.flow.masks, "theta": stage.flow.theta, "phi": stage.mapper.phi}
        tensors |= {f"stage.{k}.{name}": tensor for name, tensor in parts.items()}
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def stages_from(arrays: dict[str, Array], config: PaperConfig, device: torch.device) -> list[Stage]:
    """Build stages from the arrays of `stage_tensors`."""
    stages = []
    n_stages = sum(name.startswith("stage.") and name.endswith(".theta") for name in arrays)
    for k in range(n_stages):
        parts = (arrays[f"stage.{k}.{name}"] for name in ("masks", "theta", "phi"))
        masks, theta, phi = (torch.from_numpy(part).to(device) for part in parts)
        mapper = LatentMapper(masks.shape[1], config.n_latent_layers).to(device)
        with torch.no_grad():
            mapper.phi.copy_(phi)
        stages.append(Stage(_flow_from(masks, theta, config), mapper))
    return stages


def _flow_from(masks: Tensor, theta: Tensor, config: PaperConfig) -> RealNVP:
    flow = RealNVP(masks.cpu(), n_layers=config.n_flow_layers).to(theta.device)
    with torch.no_grad():
        flow.theta.copy_(theta)
    return flow


def is_refill_epoch(epoch: int) -> bool:
    """Return whether missing cells are refilled and G restarts after this epoch: at every power of two."""
    return epoch > 0 and epoch & (epoch - 1) == 0


def is_stable(history: History, tolerance: float, window: int) -> bool:
    """Return whether both losses changed by at most `tolerance` of their range between the last two windows."""
    if tolerance <= 0 or not history.epochs:
        return False
    stage = history.epochs[-1].stage
    recent = [epoch for epoch in history.epochs if epoch.stage == stage]
    if len(recent) < 2 * window:
        return False
    for losses in (history.column("flow_loss"), history.column("latent_loss")):
        before = sum(losses[-2 * window : -window]) / window
        after = sum(losses[-window:]) / window
        if abs(after - before) > tolerance * (max(losses) - min(losses)):
            return False
    return True


class FlatAdam:
    r"""Adam (Kingma & Ba 2015) for a single vector of weights.

    .. math:: \theta \leftarrow \theta - \eta\, \hat m / (\sqrt{\hat v} + \epsilon)

    Its results equal those of `torch.optim.Adam` with default parameters, up to round-off. At the size of these
    networks the general optimiser spends ten times longer on bookkeeping than on arithmetic.
    """

    BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8

    def __init__(self, weights: Tensor, learning_rate: float) -> None:
        self.weights = weights
        self.learning_rate = learning_rate
        self.steps = 0
        self.mean = torch.zeros_like(weights)
        self.square = torch.zeros_like(weights)

    def step(self, gradient: Tensor) -> None:
        """Update the weights with a gradient of the same shape."""
        self.steps += 1
        self.mean.lerp_(gradient, 1 - self.BETA_1)
        self.square.mul_(self.BETA_2).addcmul_(gradient, gradient, value=1 - self.BETA_2)
        root = math.sqrt(1 - self.BETA_2**self.steps)
        spread = self.square.sqrt().div_(root).add_(self.EPSILON)
        self.weights.addcdiv_(self.mean, spread, value=-self.learning_rate / (1 - self.BETA_1**self.steps))


class Trainer:
    """Train G and H on rows (n_rows, n_columns) by Algorithm 1; keep a stage at every refill and at the end."""

    def __init__(
        self,
        config: PaperConfig,
        rows: Tensor,
        missing: Tensor,
        streams: Streams,
        *,
        callbacks: Sequence[Callback] = (),
        box: Box | None = None,
    ) -> None:
        self.config, self.rows, self.missing = config, rows, missing
        self.streams, self.callbacks, self.box = streams, callbacks, box
        self.history = History()
        self.stages: list[Stage] = []
        self.epoch = 0
        self._start = time.perf_counter()
        self._weights = seen_weights(missing)
        mapper = LatentMapper(rows.shape[1], config.n_latent_layers, streams.weights)
        self.mapper = mapper.to(rows.device)
        self.latent_adam = FlatAdam(self.mapper.phi.detach(), config.learning_rate)
        masks = draw_masks(config.n_couplings, rows.shape[1], streams.weights)
        self._initial_flow = RealNVP(masks, n_layers=config.n_flow_layers, generator=streams.weights)
        self._train_flow(copy.deepcopy(self._initial_flow))

    def _train_flow(self, flow: RealNVP) -> None:
        """Train this flow from now on, with a new optimiser."""
        self.flow = flow.to(self.rows.device)
        self.flow_adam = FlatAdam(self.flow.theta.detach(), self.config.learning_rate)

    def train(self) -> list[Stage]:
        """Train until both losses are stable or epochs or time are used up, even within an epoch; return the stages."""
        self._start = time.perf_counter()
        for callback in self.callbacks:
            callback.on_begin(self)
        while not self.history.ending:
            self._run_epoch()
            self._close_epoch()
            for callback in self.callbacks:
                callback.on_epoch_end(self)
        for callback in self.callbacks:
            callback.on_end(self)
        return self.stages

    def _run_epoch(self) -> None:
        start = time.perf_counter()
        self.epoch += 1
        flow_loss, latent_loss = self._learn()
        if not (math.isfinite(flow_loss) and math.isfinite(latent_loss)):
            raise TrainingError(
                f"The losses at epoch {self.epoch} are {flow_loss} (flow) and {latent_loss} (latent network). "
                "Lower learning_rate, and look for values far outside the rest of their column."
            )
        seconds = time.perf_counter() - start
        self.history.epochs.append(Epoch(self.epoch, flow_loss, latent_loss, len(self.stages), seconds))

    def _learn(self) -> tuple[float, float]:
        """Update θ and φ once per batch, within the time limit; return the mean losses of G and H."""
        config = self.config
        n_rows = len(self.rows)
        parts: list[Tensor] = []
        n_seen = 0
        n_cells = config.batch_size * self.rows.shape[1]
        with torch.inference_mode(), one_thread_when_small(n_cells):
            order = torch.randperm(n_rows, generator=self.streams.order).to(self.rows.device)
            for batch in order.split(config.batch_size):
                rows, weights = self.rows.index_select(0, batch), self._weights.index_select(0, batch)
                losses = gradients(self.flow, self.mapper, rows, weights, config.likelihood_weight)
                self.flow_adam.step(self.flow.gradient)
                self.latent_adam.step(self.mapper.gradient)
                parts.append(torch.stack(losses) * (len(batch) / n_rows))
                n_seen += len(batch)
                if self._time_left() <= 0:
                    break
            # Read once per epoch: on a GPU, reading a number waits for all kernels before it.
            flow_loss, latent_loss = (torch.stack(parts).cpu().double().sum(0) / (n_seen / n_rows)).tolist()
        return flow_loss, latent_loss

    def _time_left(self) -> float:
        limit = self.config.max_time
        return limit - (time.perf_counter() - self._start) if limit else math.inf

    def _close_epoch(self) -> None:
        """End the training if a stopping rule holds; otherwise refill and restart G if it is a refill epoch."""
        config = self.config
        has_time = self._time_left() >= MIN_EPOCHS_AFTER_RESTART * self.history.epochs[-1].seconds
        if self.epoch >= config.max_epochs:
            self.history.ending = "max_epochs"
        elif self._time_left() <= 0:
            self.history.ending = "max_time"
        elif is_stable(self.history, config.tolerance, config.window):
            self.history.ending = "stable"
        if self.history.ending:
            self._keep_stage()
        elif config.refills and is_refill_epoch(self.epoch) and has_time:
            stage = self._keep_stage()
            self.rows = complete([stage], self.rows, self.missing, self.box)
            self._train_flow(copy.deepcopy(self._initial_flow))

    def _keep_stage(self) -> Stage:
        self.stages.append(Stage(self.flow, copy.deepcopy(self.mapper)))
        return self.stages[-1]

    @property
    def at_milestone(self) -> bool:
        """Whether a checkpoint is due regardless of the time since the last one: after a refill."""
        return is_refill_epoch(self.epoch)

    def capture(self) -> tuple[Header, dict[str, Array]]:
        """Return the state of the training as a header and arrays."""
        tensors: dict[str, Tensor] = {
            "theta": self.flow.theta,
            "masks": self.flow.masks,
            "phi": self.mapper.phi,
            "filled": self.rows[self.missing],
            "order": self.streams.order.get_state(),
            "weights": self.streams.weights.get_state(),
        }
        for name, adam in (("flow", self.flow_adam), ("latent", self.latent_adam)):
            tensors |= {f"{name}.mean": adam.mean, f"{name}.square": adam.square}
        header: Header = {
            "epoch": self.epoch,
            "steps": [self.flow_adam.steps, self.latent_adam.steps],
            "history": self.history.to_dict(),
        }
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        return header, arrays | stage_tensors(self.stages)

    def restore(self, header: Header, arrays: dict[str, Array]) -> None:
        """Restore a captured state of a training with the same table and configuration."""
        device = self.rows.device
        self.stages = stages_from(arrays, self.config, device)
        tensors = {name: torch.from_numpy(a).to(device) for name, a in arrays.items() if not name.startswith("stage.")}
        self._train_flow(_flow_from(tensors["masks"], tensors["theta"], self.config))
        with torch.no_grad():
            self.mapper.phi.copy_(tensors["phi"])
            self.rows = self.rows.masked_scatter(self.missing, tensors["filled"])
        adams = (("flow", self.flow_adam), ("latent", self.latent_adam))
        for (name, adam), steps in zip(adams, header["steps"], strict=True):
            adam.steps = steps
            adam.mean.copy_(tensors[f"{name}.mean"])
            adam.square.copy_(tensors[f"{name}.square"])
        self.streams.order.set_state(tensors["order"].cpu())
        self.streams.weights.set_state(tensors["weights"].cpu())
        self.history = History.from_dict(header["history"])
        self.epoch = header["epoch"]
