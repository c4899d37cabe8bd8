"""The latent network H: from a row's place in the latent space to the likeliest place that fits what is seen."""

from __future__ import annotations

__all__ = ["LatentMapper"]

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mcflow.flows.networks import FlatModule, NetworkBatch


class LatentMapper(FlatModule):
    r"""The network H, :math:`\hat z = h_\phi(\dot z)`: linear layers of the data's width, LeakyReLU between.

    Parameters
    ----------
    n_columns : int
        Width of the table and of every layer.
    n_layers : int, default=5
        Linear layers.
    generator : torch.Generator, optional
        Draws the weights; without it they stay zero.

    Examples
    --------
    >>> mapper = LatentMapper(3, generator=torch.Generator().manual_seed(0))
    >>> mapper(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, n_columns: int, n_layers: int = 5, generator: torch.Generator | None = None) -> None:
        self.network = NetworkBatch(1, [n_columns] * (n_layers + 1))
        super().__init__([self.network])
        if generator is not None:
            with torch.no_grad():
                self.network.reset(generator)

    @property
    def phi(self) -> nn.Parameter:
        """All weights, the paper's φ."""
        return self.flat

    def run(self, z: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Map latent points outside autograd; the second result is what `run_back` needs."""
        outputs, hidden = self.network.forward(z)
        return outputs[0], hidden

    def run_back(self, d_out: Tensor, hidden: list[Tensor], *, weights: bool, inputs: bool) -> Tensor | None:
        """Carry a loss's gradient back; write the gradient by `phi` into `gradient` when `weights`."""
        return self.network.backward(d_out[None], hidden, weights=weights, inputs=inputs)

    def forward(self, z: Tensor) -> Tensor:
        """Map latent points.

        Parameters
        ----------
        z : Tensor of shape (n_rows, n_columns)

        Returns
        -------
        Tensor of shape (n_rows, n_columns)
        """
        out: Tensor = _Map.apply(z, self.phi, self)  # type: ignore[no-untyped-call]
        return out


class _Map(torch.autograd.Function):
    """H as a single autograd node."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, phi: Tensor, mapper: LatentMapper) -> Tensor:
        outputs, ctx.hidden = mapper.run(z.detach())
        ctx.mapper = mapper
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        inputs, weights = ctx.needs_input_grad[:2]
        d_z = ctx.mapper.run_back(d_out, ctx.hidden, weights=weights, inputs=inputs)
        return d_z, ctx.mapper.gradient.clone() if weights else None, None
