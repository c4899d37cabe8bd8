"""Random initial weights of networks and random masks of couplings."""

from __future__ import annotations

__all__ = ["draw_masks", "draw_weights"]

import math
from collections.abc import Collection

import torch
from torch import Tensor, nn


def draw_masks(n_couplings: int, n_columns: int, generator: torch.Generator) -> Tensor:
    """Draw the masks (n_couplings, n_columns) of the columns that each coupling keeps."""
    rows: list[Tensor] = []
    while len(rows) < n_couplings:
        mask = torch.rand(n_columns, generator=generator) < 0.5
        if n_columns == 1:
            mask = torch.zeros(1, dtype=torch.bool)
        if n_columns == 1 or 0 < int(mask.sum()) < n_columns:
            rows += [mask, ~mask]
    return torch.stack(rows[:n_couplings])


def draw_weights(network: nn.Module, generator: torch.Generator | None, zero: Collection[Tensor] = ()) -> None:
    """Initialise weights as torch's convolutions do, and biases and the weights in `zero` with zeros."""
    zeros = {id(weight) for weight in zero}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
            if generator is not None and parameter.ndim > 1 and id(parameter) not in zeros:
                bound = 1 / math.sqrt(max(parameter[0].numel(), 1))
                parameter.uniform_(-bound, bound, generator=generator)
