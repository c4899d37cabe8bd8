"""Time an epoch of `preset="paper"` against a plain implementation, and check that both learn the same.

    python bench/speed/epoch.py [--rounds 5] [--dry]

The plain implementation has the structure of the authors' program, with autograd throughout. Uses the Letter table if
MCFLOW_DATA names a folder that has it, else random numbers of the same shape.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import harness
from harness import Table
from mcflow.columns.marginals import Marginals
from mcflow.fitting.distributed import one_thread_when_small
from mcflow.paper.algorithm import Trainer, gradients, seen_weights
from mcflow.paper.config import PaperConfig
from mcflow.paper.networks import LatentMapper, RealNVP
from mcflow.random import Streams


def perceptron(width: int, n_layers: int, last: nn.Module | None = None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(n_layers):
        layers += [nn.Linear(width, width), nn.LeakyReLU()]
    layers[-1:] = [last] if last is not None else []
    return nn.Sequential(*layers)


class PlainFlow(nn.Module):
    """RealNVP as the authors' program has it: every s and t its own `nn.Sequential`, masks multiplied in."""

    masks: Tensor

    def __init__(self, masks: Tensor, n_layers: int = 4) -> None:
        super().__init__()
        n_couplings, width = masks.shape
        self.register_buffer("masks", masks.float())
        self.scales = nn.ModuleList([perceptron(width, n_layers, nn.Tanh()) for _ in range(n_couplings)])
        self.shifts = nn.ModuleList([perceptron(width, n_layers) for _ in range(n_couplings)])
        self.prior = torch.distributions.MultivariateNormal(torch.zeros(width), torch.eye(width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log_det = x.new_zeros(len(x))
        for mask, scale_of, shift_of in zip(self.masks, self.scales, self.shifts, strict=True):
            kept = mask * x
            scale = scale_of(kept) * (1 - mask)
            shift = shift_of(kept) * (1 - mask)
            x = (1 - mask) * (x * torch.exp(scale) + shift) + kept
            log_det = log_det + scale.sum(1)
        return x, log_det

    def inverse(self, z: Tensor) -> Tensor:
        steps = list(zip(self.masks, self.scales, self.shifts, strict=True))
        for mask, scale_of, shift_of in reversed(steps):
            kept = mask * z
            scale = scale_of(kept) * (1 - mask)
            shift = shift_of(kept) * (1 - mask)
            z = kept + (1 - mask) * ((z - shift) * torch.exp(-scale))
        return z

    def log_prob(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = self(x)
        return z, self.prior.log_prob(z) + log_det


class PlainTrainer:
    """Concurrent updates of G and H by autograd and `torch.optim.Adam`, from the weights of a fast pair."""

    def __init__(self, flow: RealNVP, mapper: LatentMapper, learning_rate: float, likelihood_weight: float) -> None:
        self.flow = PlainFlow(flow.masks)
        self.mapper = perceptron(flow.n_columns, 5)
        self._copy(flow, mapper)
        self.flow_adam = torch.optim.Adam(self.flow.parameters(), lr=learning_rate)
        self.latent_adam = torch.optim.Adam(self.mapper.parameters(), lr=learning_rate)
        self.likelihood_weight = likelihood_weight

    @torch.no_grad()
    def _copy(self, flow: RealNVP, mapper: LatentMapper) -> None:
        for k, coupling in enumerate(flow.couplings):
            for which, networks in enumerate((self.flow.scales, self.flow.shifts)):
                layers = [layer for layer in networks[k].modules() if isinstance(layer, nn.Linear)]
                self._copy_coupling(layers, coupling.networks.weights, which, flow.masks[k])
        layers = [layer for layer in self.mapper.modules() if isinstance(layer, nn.Linear)]
        for layer, weight, bias in zip(layers, mapper.network.weights[::2], mapper.network.weights[1::2], strict=True):
            layer.weight.copy_(weight[0].T)
            layer.bias.copy_(bias[0, 0])

    @staticmethod
    def _copy_coupling(layers: list[nn.Linear], weights: list[Tensor], which: int, mask: Tensor) -> None:
        for layer, weight, bias in zip(layers, weights[::2], weights[1::2], strict=True):
            first, last = layer is layers[0], layer is layers[-1]
            rows = ~mask if last else torch.ones_like(mask)
            columns = mask if first else torch.ones_like(mask)
            layer.weight[rows.nonzero(), columns.nonzero().T] = weight[which].T
            layer.bias[rows] = bias[which, 0]

    def step(self, rows: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Update once; `seen` is each observed cell's weight in its row's mean squared error."""
        z, log_p = self.flow.log_prob(rows)
        flow_loss = -log_p.mean()
        x_hat = self.flow.inverse(self.mapper(z.detach()))
        _, log_p_hat = self.flow.log_prob(x_hat)
        squared = ((x_hat - rows).square() * seen).sum() / len(rows)
        latent_loss = squared - self.likelihood_weight * log_p_hat.mean()
        self.flow_adam.zero_grad()
        self.latent_adam.zero_grad()
        flow_loss.backward()
        gradients = torch.autograd.grad(latent_loss, list(self.mapper.parameters()))
        for parameter, gradient in zip(self.mapper.parameters(), gradients, strict=True):
            parameter.grad = gradient
        self.flow_adam.step()
        self.latent_adam.step()
        return flow_loss.detach(), latent_loss.detach()


def letter() -> tuple[Table, str]:
    """Return 16,000 rows of 16 columns with a fifth of the cells missing, and their source."""
    rng = np.random.default_rng(0)
    if harness.table_path("letter") is not None:
        values, name = harness.letter_table()[:16000], "Letter"
    else:
        values, name = rng.integers(0, 16, size=(16000, 16)).astype(float), "random numbers of Letter's shape"
    values[rng.random(values.shape) < 0.2] = np.nan
    return values, name


def pair(values: Table) -> tuple[Trainer, PlainTrainer]:
    config = PaperConfig()
    streams = Streams(0)
    scaled = (values - np.nanmin(values, axis=0)) / (np.nanmax(values, axis=0) - np.nanmin(values, axis=0))
    rows = Marginals.from_values(scaled).fill(scaled, streams.fill.random(scaled.shape))
    trainer = Trainer(config, torch.from_numpy(rows).float(), torch.from_numpy(np.isnan(values)), streams)
    return trainer, PlainTrainer(trainer.flow, trainer.mapper, config.learning_rate, config.likelihood_weight)


def agreement(values: Table, n_steps: int = 50) -> float:
    """Return the largest difference of a loss over the first steps, from the same weights on the same batches."""
    fast, plain = pair(values)
    weights = seen_weights(fast.missing)
    worst = 0.0
    for batch in torch.randperm(len(fast.rows), generator=fast.streams.order).split(128)[:n_steps]:
        rows, seen = fast.rows[batch], weights[batch]
        with torch.inference_mode():
            losses = gradients(fast.flow, fast.mapper, rows, seen, fast.config.likelihood_weight)
            fast.flow_adam.step(fast.flow.gradient)
            fast.latent_adam.step(fast.mapper.gradient)
        for ours, theirs in zip(losses, plain.step(rows, seen), strict=True):
            worst = max(worst, abs(float(ours) - float(theirs)))
    return worst


def fast_epoch(trainer: Trainer) -> float:
    start = time.perf_counter()
    trainer._learn()
    return time.perf_counter() - start


def plain_epoch(plain: PlainTrainer, trainer: Trainer) -> float:
    weights = seen_weights(trainer.missing)
    start = time.perf_counter()
    order = torch.randperm(len(trainer.rows), generator=trainer.streams.order)
    with one_thread_when_small(128 * trainer.rows.shape[1]):
        for batch in order.split(128):
            plain.step(trainer.rows[batch], weights[batch])
    return time.perf_counter() - start


def measure(options: argparse.Namespace) -> dict[str, Any]:
    values, name = letter()
    worst = agreement(values)
    trainer, plain = pair(values)
    fast_epoch(trainer)
    times = [(fast_epoch(trainer), plain_epoch(plain, trainer)) for _ in range(options.rounds)]
    return {
        "data": name,
        "rows": values.shape[0],
        "columns": values.shape[1],
        "fast_epoch_s": round(statistics.median(t[0] for t in times), 4),
        "plain_epoch_s": round(statistics.median(t[1] for t in times), 4),
        "times_faster": round(statistics.median(t[1] / t[0] for t in times), 2),
        "largest_loss_difference_50_steps": float(f"{worst:.2g}"),
        "rounds": options.rounds,
    }


if __name__ == "__main__":
    harness.main("epoch", __doc__, measure, rounds=5)
