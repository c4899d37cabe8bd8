"""Affine couplings, and the batched perceptrons with explicit gradients that they are built from."""

from __future__ import annotations

__all__ = ["AffineCoupling", "CouplingTape", "FlatModule", "NetworkBatch"]

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Slope of LeakyReLU below zero.
NEGATIVE_SLOPE = 0.01


class NetworkBatch:
    r"""Perceptrons of one shape that run as one batch; their weights are views of one flat vector.

    Each layer computes :math:`h_{l+1} = \mathrm{LeakyReLU}(h_l W_l + b_l)`; the last one is linear.

    At the widths of tables, launching a kernel costs more than its arithmetic. One `baddbmm` therefore serves all
    networks of the batch, and the backward pass is written by hand: autograd would record some ten nodes per layer.
    The flat vector lets an optimiser update everything in one kernel.
    """

    def __init__(self, n_networks: int, sizes: list[int]) -> None:
        self.n_networks = n_networks
        self.sizes = sizes
        self.shapes = [
            shape
            for rows, columns in itertools.pairwise(sizes)
            for shape in ((n_networks, rows, columns), (n_networks, 1, columns))
        ]
        self.n_weights = sum(math.prod(shape) for shape in self.shapes)
        self.weights: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self._transposed: list[Tensor] = []

    def __getstate__(self) -> dict[str, Any]:
        """Leave the views out of copies and pickles; the owner of the flat vector binds them again."""
        return self.__dict__ | {"weights": [], "gradients": [], "_transposed": []}

    def bind(self, flat: Tensor, gradient: Tensor) -> None:
        """Take views of a vector of weights and of the vector of their gradients, both of shape (n_weights,)."""
        self.weights = self.views(flat)
        self._transposed = [weight.mT for weight in self.weights[::2]]
        self.gradients = self.views(gradient)

    def views(self, flat: Tensor) -> list[Tensor]:
        """Return the weights and biases of the layers as views of a vector (n_weights,)."""
        parts = flat.split([math.prod(shape) for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def reset(self, generator: torch.Generator, fan_in: int | None = None) -> None:
        """Draw the weights as `torch.nn.Linear` does; `fan_in` replaces the inputs of the first layer."""
        for layer, weight in enumerate(self.weights):
            rows = self.sizes[layer // 2]
            rows = fan_in if fan_in is not None and layer < 2 else rows
            bound = 1 / math.sqrt(max(rows, 1))
            drawn = torch.rand(weight.shape, generator=generator, dtype=torch.float64)
            weight.copy_((2 * drawn - 1) * bound)

    def forward(self, inputs: Tensor, weights: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """Run the networks, with other weights if given; return outputs and the activations that `backward` needs.

        Shapes: `inputs` (n_rows, n_inputs), returns (n_networks, n_rows, n_outputs).
        """
        state = inputs.expand(self.n_networks, -1, -1)
        hidden = [state]
        weights = self.weights if weights is None else weights
        last = len(weights) - 2
        for layer in range(0, last, 2):
            state = torch.baddbmm(weights[layer + 1], state, weights[layer])
            functional.leaky_relu_(state, NEGATIVE_SLOPE)
            hidden.append(state)
        return torch.baddbmm(weights[last + 1], state, weights[last]), hidden

    def backward(self, gradient: Tensor, hidden: list[Tensor], *, weights: bool, inputs: bool) -> Tensor | None:
        """Backpropagate the gradient of the outputs to the weights and the inputs, as requested.

        Shapes: `gradient` (n_networks, n_rows, n_outputs), returns (n_rows, n_inputs).
        """
        for layer in range(len(hidden) - 1, -1, -1):
            read = hidden[layer]
            if weights:
                torch.bmm(read.mT, gradient, out=self.gradients[2 * layer])
                torch.sum(gradient, 1, keepdim=True, out=self.gradients[2 * layer + 1])
            if layer == 0 and not inputs:
                return None
            gradient = torch.bmm(gradient, self._transposed[layer])
            if layer > 0:
                gradient = torch.ops.aten.leaky_relu_backward(gradient, read, NEGATIVE_SLOPE, True)
        return gradient.sum(0) if self.n_networks > 1 else gradient[0]


class FlatModule(nn.Module):
    """A module whose networks take all their weights from one vector."""

    flat: nn.Parameter  # (n_weights,) all weights, zero until they are drawn
    gradient: Tensor  # (n_weights,) gradient by `flat`, written by backward passes

    def __init__(self, batches: Sequence[NetworkBatch]) -> None:
        super().__init__()
        self._batches = list(batches)
        self.flat = nn.Parameter(torch.zeros(sum(batch.n_weights for batch in self._batches)))
        self._bind()

    def _bind(self) -> None:
        """Give every batch of networks its views of the weights and gradients."""
        weights = self.flat.detach()
        self.gradient = torch.zeros_like(weights)
        sizes = [batch.n_weights for batch in self._batches]
        for batch, part, place in zip(self._batches, weights.split(sizes), self.gradient.split(sizes), strict=True):
            batch.bind(part, place)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Bind the views again after a change of device or type."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._bind()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Bind the views again after a copy or an unpickling."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._bind()


class CouplingTape(NamedTuple):
    """Results of a pass through a coupling that its backward pass needs."""

    source: Tensor
    scale: Tensor
    factor: Tensor
    hidden: list[Tensor]


class AffineCoupling:
    r"""Transform the columns outside D by an affine map whose coefficients depend on the columns in D.

    .. math:: y_D = x_D, \qquad y_{\lnot D} = x_{\lnot D} \odot \exp(s(x_D)) + t(x_D)

    s and t run as one batch of two networks, which have weights only for the columns they read and write.
    """

    def __init__(self, n_kept: int, n_moved: int, width: int, n_layers: int) -> None:
        self.networks = NetworkBatch(2, [n_kept, *[width] * (n_layers - 1), n_moved])
        self.n_kept = n_kept

    def _coefficients(self, kept: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        outputs, hidden = self.networks.forward(kept)
        scale, shift = outputs.unbind(0)
        return scale.tanh_(), shift, hidden

    def forward(self, kept: Tensor, moved: Tensor) -> tuple[Tensor, CouplingTape]:
        """Map towards the latent space.

        Shapes: `kept` (n_rows, n_kept), `moved` (n_rows, n_moved), returns (n_rows, n_moved).
        """
        scale, shift, hidden = self._coefficients(kept)
        factor = scale.exp()
        return torch.addcmul(shift, moved, factor), CouplingTape(moved, scale, factor, hidden)

    def inverse(self, kept: Tensor, moved: Tensor) -> tuple[Tensor, CouplingTape]:
        """Map towards the data; the tape holds the log-derivatives of `forward`, with their sign unchanged."""
        scale, shift, hidden = self._coefficients(kept)
        factor = scale.neg().exp_()
        source = (moved - shift).mul_(factor)
        return source, CouplingTape(source, scale, factor, hidden)

    def backward(
        self, d_kept: Tensor, d_out: Tensor, d_scale: Tensor, tape: CouplingTape, *, inverse: bool, weights: bool
    ) -> tuple[Tensor, Tensor]:
        """Backpropagate through `forward` or `inverse` to the kept and the moved columns.

        Shapes: `d_kept` (n_rows, n_kept), `d_out` (n_rows, n_moved), `d_scale` (n_rows, 1).
        """
        d_moved = d_out * tape.factor
        if inverse:
            d_log, d_shift = torch.addcmul(d_scale, d_out, tape.source, value=-1), d_moved.neg()
        else:
            d_log, d_shift = torch.addcmul(d_scale, d_moved, tape.source), d_out
        d_outputs = torch.stack((torch.ops.aten.tanh_backward(d_log, tape.scale), d_shift))
        through = self.networks.backward(d_outputs, tape.hidden, weights=weights, inputs=True)
        assert through is not None
        return through.add_(d_kept), d_moved
