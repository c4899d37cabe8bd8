"""Algorithm 1: G and H learn in turn while the holes are refilled."""

from __future__ import annotations

__all__ = ["Trainer"]

import copy
import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from mcflow.config import Settings
from mcflow.errors import TrainingError
from mcflow.flows.realnvp import RealNVP, draw_masks
from mcflow.latent.mapper import LatentMapper
from mcflow.random import Streams
from mcflow.training.adam import FlatAdam
from mcflow.training.callbacks import Callback
from mcflow.training.history import Epoch, History
from mcflow.training.objectives import gradients, seen_weights
from mcflow.training.schedule import is_refill_epoch, is_stable
from mcflow.training.stages import Box, Stage, complete, flow_from, stage_tensors, stages_from
from mcflow.training.threads import one_thread_when_small
from mcflow.typing import Array, Header

#: Epochs for which there has to be time left, where time is limited, for G to start anew.
WORTH_A_START = 2.0


class Trainer:
    """Train G and H on a table with holes, and keep a stage at every power of two.

    Parameters
    ----------
    settings : Settings
        The preset with its overrides.
    rows : Tensor of shape (n_rows, n_columns)
        Float32, scaled, holes filled by a first guess.
    missing : Tensor of shape (n_rows, n_columns)
        Boolean mask, True where missing.
    streams : Streams
        Where every random number comes from.
    callbacks : sequence of Callback
        Told of the beginning, of every epoch and of the end.
    box : Box, optional
        Bounds of refilled cells, by default the observed range.

    Attributes
    ----------
    stages : list of Stage
        What Algorithm 2 needs.
    history : History
        Losses, epoch by epoch.
    """

    def __init__(
        self,
        settings: Settings,
        rows: Tensor,
        missing: Tensor,
        streams: Streams,
        *,
        callbacks: Sequence[Callback] = (),
        box: Box | None = None,
    ) -> None:
        self.settings = settings
        self.rows = rows
        self.missing = missing
        self.streams = streams
        self.callbacks = callbacks
        self.box = box
        self.history = History()
        self.stages: list[Stage] = []
        self.epoch = 0
        self._start = time.perf_counter()
        self._weights = seen_weights(missing)
        mapper = LatentMapper(rows.shape[1], settings.latent.n_layers, streams.weights)
        self.mapper = mapper.to(rows.device)
        self.latent_adam = FlatAdam(self.mapper.phi.detach(), settings.train.learning_rate)
        masks = draw_masks(settings.flow.n_couplings, rows.shape[1], streams.weights)
        self._first_flow = RealNVP(masks, n_layers=settings.flow.n_layers, generator=streams.weights)
        self.restart_flow()

    def restart_flow(self) -> None:
        """Start G anew, from the weights it began with and with a fresh optimiser."""
        self.use_flow(copy.deepcopy(self._first_flow))

    def use_flow(self, flow: RealNVP) -> None:
        """Train this flow from now on, with a fresh optimiser."""
        self.flow = flow.to(self.rows.device)
        self.flow_adam = FlatAdam(self.flow.theta.detach(), self.settings.train.learning_rate)

    def train(self) -> list[Stage]:
        """Run until both losses are stable, or the epochs or the time are used up.

        Returns
        -------
        list of Stage
            One for every refill, the last one trained longest.

        Raises
        ------
        TrainingError
            When a loss is no longer a number.

        Notes
        -----
        When the time is up, an epoch ends after the batch it is at. G does not start anew when there is no time left
        for it to learn.
        """
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
        """Update θ and φ once for every batch while there is time; return both mean losses."""
        config = self.settings.train
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
            # Read once an epoch: on a graphics card every look at a number waits for it.
            flow_loss, latent_loss = (torch.stack(parts).cpu().double().sum(0) / (n_seen / n_rows)).tolist()
        return flow_loss, latent_loss

    def _time_left(self) -> float:
        limit = self.settings.train.max_time
        return limit - (time.perf_counter() - self._start) if limit else math.inf

    def _close_epoch(self) -> None:
        """Refill, keep and restart when it is time, and find out whether this was the last epoch."""
        config = self.settings.train
        if self.epoch >= config.max_epochs:
            self.history.ending = "max_epochs"
        elif self._time_left() <= 0:
            self.history.ending = "max_time"
        elif is_stable(self.history, config.tolerance, config.window):
            self.history.ending = "stable"
        if self.history.ending:
            self._keep_stage()
        elif config.refills and is_refill_epoch(self.epoch) and self._is_worth_a_start():
            stage = self._keep_stage()
            self.rows = complete(stage, self.rows, self.missing, self.box)
            self.restart_flow()

    def _is_worth_a_start(self) -> bool:
        return self._time_left() >= WORTH_A_START * self.history.epochs[-1].seconds

    def _keep_stage(self) -> Stage:
        self.stages.append(Stage(self.flow, copy.deepcopy(self.mapper)))
        return self.stages[-1]

    @property
    def at_milestone(self) -> bool:
        """Tell whether the last epoch ended with a refill."""
        return is_refill_epoch(self.epoch)

    def capture(self) -> tuple[Header, dict[str, Array]]:
        """Return the whole state of the fit as a header and arrays."""
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
        tensors |= stage_tensors(self.stages)
        header: Header = {
            "epoch": self.epoch,
            "n_stages": len(self.stages),
            "steps": [self.flow_adam.steps, self.latent_adam.steps],
            "history": self.history.to_dict(),
        }
        return header, {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}

    def restore(self, header: Header, arrays: dict[str, Array]) -> None:
        """Take up a captured state of a fit of the same table and settings."""
        tensors = {name: torch.from_numpy(array).to(self.rows.device) for name, array in arrays.items()}
        self.stages = stages_from(tensors, header["n_stages"], self.settings)
        self.use_flow(flow_from(tensors["masks"], tensors["theta"], self.settings))
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
