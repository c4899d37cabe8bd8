"""A kept stage, and Algorithm 2: new rows go through every stage in turn."""

from __future__ import annotations

__all__ = ["Stage", "complete", "complete_through", "flow_from", "stage_tensors", "stages_from"]

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


def complete(stage: Stage, rows: Tensor, missing: Tensor) -> Tensor:
    r"""Fill the missing cells once: :math:`\dot x = \tilde x \odot \bar m + g^{-1}(h(g(\dot x))) \odot m`.

    Parameters
    ----------
    stage : Stage
        The networks.
    rows : Tensor of shape (n_rows, n_columns)
        Filled rows, scaled.
    missing : Tensor of shape (n_rows, n_columns)
        Boolean mask, True where missing.

    Returns
    -------
    Tensor of shape (n_rows, n_columns)
        New rows; observed cells as they were.

    Notes
    -----
    The answer is kept within the observed range of its column, [0, 1] in scaled units, as the authors' program does
    though their text does not say it: a young flow sends some rows far outside.
    """
    return complete_through([stage], rows, missing)


def complete_through(stages: Sequence[Stage], rows: Tensor, missing: Tensor) -> Tensor:
    """Fill the missing cells by every stage in turn, first to last; see `complete`."""
    with torch.inference_mode(), one_thread_when_small(rows.numel()):
        return torch.cat([_through(stages, r, m) for r, m in _batches(rows, missing)])


def _through(stages: Sequence[Stage], rows: Tensor, missing: Tensor) -> Tensor:
    for stage in stages:
        rows = _complete(stage, rows, missing)
    return rows


def _complete(stage: Stage, rows: Tensor, missing: Tensor) -> Tensor:
    z_hat, _ = stage.mapper.run(stage.flow.run(rows, keep=False).out)
    x_hat = stage.flow.run(z_hat, inverse=True, keep=False).out
    return torch.where(missing, x_hat.clamp_(0, 1), rows)


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
