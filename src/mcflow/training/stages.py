"""A kept stage, and Algorithm 2: new rows go through every stage in turn."""

from __future__ import annotations

__all__ = ["Box", "Stage", "complete", "complete_through", "flow_from", "fold", "stage_tensors", "stages_from"]

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mcflow.config import Settings
from mcflow.flows.realnvp import RealNVP
from mcflow.latent.mapper import LatentMapper
from mcflow.training.threads import one_thread_when_small

#: Rows that go through the networks together when nothing is learned.
ROWS_AT_ONCE = 8192


class Stage(NamedTuple):
    """The networks G and H as they were when missing cells were refilled."""

    flow: RealNVP
    mapper: LatentMapper


class Box(NamedTuple):
    """The bounds of every place of a row, infinite where open; each of shape (n_places,)."""

    low: Tensor
    high: Tensor

    @classmethod
    def unit(cls, n_places: int) -> Box:
        """Return [0, 1] for every place: the observed range."""
        return cls(torch.zeros(n_places), torch.ones(n_places))

    def to(self, device: torch.device) -> Box:
        """Return the bounds on a device, in the networks' precision."""
        return Box(self.low.to(device, torch.float32), self.high.to(device, torch.float32))


def fold(x: Tensor, box: Box) -> Tensor:
    """Reflect what lies outside the bounds back into them, so that nothing heaps up at a bound.

    Parameters
    ----------
    x : Tensor of shape (n_rows, n_places)
    box : Box

    Returns
    -------
    Tensor of shape (n_rows, n_places)
        Values inside the bounds as they were.
    """
    low, high = box
    span = high - low
    wave = low + span - (torch.remainder(x - low, 2 * span) - span).abs()
    mirrored = torch.where(x < low, 2 * low - x, 2 * high - x)
    folded = torch.where(span.isfinite(), wave, mirrored)
    folded = torch.where(span > 0, folded, low)
    outside = (x < low) | (x > high)
    return torch.where(outside, folded, x).maximum(low).minimum(high)


def complete(stage: Stage, rows: Tensor, missing: Tensor, box: Box | None = None) -> Tensor:
    r"""Fill the missing cells once: :math:`\dot x = \tilde x \odot \bar m + g^{-1}(h(g(\dot x))) \odot m`.

    Parameters
    ----------
    stage : Stage
        The networks.
    rows : Tensor of shape (n_rows, n_places)
        Filled rows, in network units.
    missing : Tensor of shape (n_rows, n_places)
        Boolean mask, True where missing.
    box : Box, optional
        Bounds of the answer, by default the observed range.

    Returns
    -------
    Tensor of shape (n_rows, n_places)
        New rows; observed cells as they were.

    Notes
    -----
    A young flow sends some rows far outside the range of the data. The authors' program clips its answers to the
    range, though their text does not say so; here they are reflected into it.
    """
    return complete_through([stage], rows, missing, box)


def complete_through(stages: Sequence[Stage], rows: Tensor, missing: Tensor, box: Box | None = None) -> Tensor:
    """Fill the missing cells by every stage in turn, first to last; see `complete`."""
    bounds = (box or Box.unit(rows.shape[1])).to(rows.device)
    with torch.inference_mode(), one_thread_when_small(rows.numel()):
        return torch.cat([_through(stages, r, m, bounds) for r, m in _batches(rows, missing)])


def _through(stages: Sequence[Stage], rows: Tensor, missing: Tensor, box: Box) -> Tensor:
    for stage in stages:
        z_hat, _ = stage.mapper.run(stage.flow.run(rows, keep=False).out)
        x_hat = stage.flow.run(z_hat, inverse=True, keep=False).out
        rows = torch.where(missing, fold(x_hat, box), rows)
    return rows


def _batches(rows: Tensor, missing: Tensor) -> zip[tuple[Tensor, Tensor]]:
    return zip(rows.split(ROWS_AT_ONCE), missing.split(ROWS_AT_ONCE), strict=True)


def stage_tensors(stages: Sequence[Stage]) -> dict[str, Tensor]:
    """Return all tensors of the stages by name, for a file."""
    tensors: dict[str, Tensor] = {}
    for k, stage in enumerate(stages):
        parts = {"masks": stage.flow.masks, "theta": stage.flow.theta, "phi": stage.mapper.phi}
        tensors |= {f"stage.{k}.{name}": tensor for name, tensor in parts.items()}
    return tensors


def stages_from(tensors: dict[str, Tensor], n_stages: int, settings: Settings) -> list[Stage]:
    """Build stages from what `stage_tensors` returned, on the tensors' device."""
    stages = []
    for k in range(n_stages):
        masks, theta, phi = (tensors[f"stage.{k}.{name}"] for name in ("masks", "theta", "phi"))
        mapper = LatentMapper(masks.shape[1], settings.latent.n_layers).to(phi.device)
        with torch.no_grad():
            mapper.phi.copy_(phi)
        stages.append(Stage(flow_from(masks, theta, settings), mapper))
    return stages


def flow_from(masks: Tensor, theta: Tensor, settings: Settings) -> RealNVP:
    """Build the flow that has these masks and weights, on the weights' device."""
    flow = RealNVP(masks.cpu(), n_layers=settings.flow.n_layers).to(theta.device)
    with torch.no_grad():
        flow.theta.copy_(theta)
    return flow
