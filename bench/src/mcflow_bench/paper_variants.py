"""Replacements of parts of `mcflow.paper`, for choices that the paper's text leaves open."""

from __future__ import annotations

__all__ = [
    "LateRefillTrainer",
    "NewFlowTrainer",
    "NewMapperTrainer",
    "SteadyTrainer",
    "WideCoupling",
    "clip",
    "half_masks",
]

import copy

import torch
from torch import Tensor

from mcflow.fitting.initialisation import draw_masks
from mcflow.paper.algorithm import Box, FlatAdam, Trainer
from mcflow.paper.networks import AffineCoupling, LatentMapper, NetworkBatch, RealNVP

#: Hidden width of the networks s and t in `WideCoupling`.
WIDTH = 64


class NewFlowTrainer(Trainer):
    """Draw new weights and masks at every restart of G, as the authors' program does."""

    def _train_flow(self, flow: RealNVP) -> None:
        if self.stages:
            masks = draw_masks(len(flow.masks), flow.n_columns, self.streams.weights)
            flow = RealNVP(masks, n_layers=self.config.n_flow_layers, generator=self.streams.weights)
        super()._train_flow(flow)


class SteadyTrainer(Trainer):
    """Train G on from its weights after a refill, with the same optimiser."""

    def _train_flow(self, flow: RealNVP) -> None:
        if not self.stages:
            super()._train_flow(flow)
            return
        # The training goes on with the flow of the stage, so the stage gets a copy.
        self.stages[-1] = self.stages[-1]._replace(flow=copy.deepcopy(self.flow))


class NewMapperTrainer(Trainer):
    """Restart H whenever G restarts, with a new optimiser and new weights."""

    def _train_flow(self, flow: RealNVP) -> None:
        super()._train_flow(flow)
        if self.stages:
            mapper = LatentMapper(self.rows.shape[1], self.config.n_latent_layers, self.streams.weights)
            self.mapper = mapper.to(self.rows.device)
            self.latent_adam = FlatAdam(self.mapper.phi.detach(), self.config.learning_rate)


class LateRefillTrainer(Trainer):
    """Refill for the first time at epoch 2."""

    def _close_epoch(self) -> None:
        if self.epoch > 1:
            super()._close_epoch()


class WideCoupling(AffineCoupling):
    """A coupling whose networks s and t are `WIDTH` wide instead of as wide as the table."""

    def __init__(self, n_kept: int, n_columns: int, n_layers: int) -> None:
        super().__init__(n_kept, n_columns, n_layers)
        self.networks = NetworkBatch(2, [n_kept, *[WIDTH] * (n_layers - 1), n_columns - n_kept])


def half_masks(n_couplings: int, n_columns: int, generator: torch.Generator) -> Tensor:
    """Draw masks (n_couplings, n_columns) that keep exactly half of the columns, each followed by its complement."""
    rows: list[Tensor] = []
    while len(rows) < n_couplings:
        mask = torch.randperm(n_columns, generator=generator) < n_columns // 2
        rows += [mask, ~mask]
    return torch.stack(rows[:n_couplings])


def clip(x: Tensor, box: Box) -> Tensor:
    """Clip values (n_rows, n_places) to the bounds instead of reflecting them."""
    return x.maximum(box.low).minimum(box.high)
