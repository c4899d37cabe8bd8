"""Small multilayer perceptrons that run as one batch, with their gradients written out."""

from __future__ import annotations

__all__ = ["SLOPE", "FlatModule", "NetworkBatch", "draw_weights"]

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

SLOPE = 0.01


class NetworkBatch:
    r"""Networks of one shape, side by side, whose weights are views of one flat vector.

    Each layer computes :math:`h_{l+1} = \mathrm{LeakyReLU}(h_l W_l + b_l)`; the last one is linear.

    Parameters
    ----------
    n_networks : int
        How many networks run side by side on the same inputs.
    sizes : list of int
        Inputs, hidden widths and outputs; `len(sizes) - 1` linear layers.

    Notes
    -----
    At the widths of tables a kernel's launch costs more than its arithmetic. One `baddbmm` therefore serves all
    networks of the batch, and the backward pass is written by hand: autograd would record some ten nodes a layer.
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
        """Leave the views out of copies and pickles: whoever owns the flat vector binds them again."""
        return self.__dict__ | {"weights": [], "gradients": [], "_transposed": []}

    def bind(self, flat: Tensor, gradient: Tensor) -> None:
        """Take the weights, and the place of their gradients, from flat vectors of `n_weights` numbers."""
        self.weights = self._views(flat)
        self._transposed = [weight.mT for weight in self.weights[::2]]
        self.gradients = self._views(gradient)

    def _views(self, flat: Tensor) -> list[Tensor]:
        parts = flat.split([math.prod(shape) for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def reset(self, generator: torch.Generator, fan_in: int | None = None) -> None:
        """Draw the weights as `torch.nn.Linear` does, uniform within one over the root of the inputs.

        Parameters
        ----------
        generator : torch.Generator
            Where the numbers come from, on the CPU.
        fan_in : int, optional
            Inputs to count for the first layer, by default those it has.
        """
        for layer, weight in enumerate(self.weights):
            rows = self.sizes[layer // 2]
            rows = fan_in if fan_in is not None and layer < 2 else rows
            bound = 1 / math.sqrt(max(rows, 1))
            drawn = torch.rand(weight.shape, generator=generator, dtype=torch.float64)
            weight.copy_((2 * drawn - 1) * bound)

    def forward(self, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Run the networks.

        Parameters
        ----------
        inputs : Tensor of shape (n_rows, n_inputs)
            Read by every network.

        Returns
        -------
        outputs : Tensor of shape (n_networks, n_rows, n_outputs)
        hidden : list of Tensor
            What each layer read, for `backward`.
        """
        state = inputs.expand(self.n_networks, -1, -1)
        hidden = [state]
        last = len(self.weights) - 2
        for layer in range(0, last, 2):
            state = torch.baddbmm(self.weights[layer + 1], state, self.weights[layer])
            functional.leaky_relu_(state, SLOPE)
            hidden.append(state)
        return torch.baddbmm(self.weights[last + 1], state, self.weights[last]), hidden

    def backward(self, gradient: Tensor, hidden: list[Tensor], *, weights: bool, inputs: bool) -> Tensor | None:
        """Carry the outputs' gradient back.

        Parameters
        ----------
        gradient : Tensor of shape (n_networks, n_rows, n_outputs)
        hidden : list of Tensor
            From `forward`.
        weights : bool
            Write the weights' gradients into the bound vector.
        inputs : bool
            Return the inputs' gradient.

        Returns
        -------
        Tensor of shape (n_rows, n_inputs) or None
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
                gradient = torch.ops.aten.leaky_relu_backward(gradient, read, SLOPE, True)
        return gradient.sum(0) if self.n_networks > 1 else gradient[0]


class FlatModule(nn.Module):
    """A module whose networks take all their weights from one vector.

    Parameters
    ----------
    batches : sequence of NetworkBatch
        The networks, in the order in which their weights stand in the vector.

    Attributes
    ----------
    flat : Parameter of shape (n_weights,)
        All weights, zero until they are drawn.
    gradient : Tensor of shape (n_weights,)
        Where a backward pass leaves the gradient by `flat`.
    """

    flat: nn.Parameter
    gradient: Tensor

    def __init__(self, batches: Sequence[NetworkBatch]) -> None:
        super().__init__()
        self._batches = list(batches)
        self.flat = nn.Parameter(torch.zeros(sum(batch.n_weights for batch in self._batches)))
        self._bind()

    def _bind(self) -> None:
        """Take the views of weights and gradients."""
        weights = self.flat.detach()
        self.gradient = torch.zeros_like(weights)
        sizes = [batch.n_weights for batch in self._batches]
        for batch, part, place in zip(self._batches, weights.split(sizes), self.gradient.split(sizes), strict=True):
            batch.bind(part, place)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow a move to another device or type: the views have to be taken again."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._bind()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the views again after a copy or an unpickling."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._bind()


def draw_weights(network: nn.Module, generator: torch.Generator | None, zero: Collection[Tensor] = ()) -> None:
    """Draw weights as torch's convolutions do; offsets, and weights that shall be zero, start at zero.

    Parameters
    ----------
    network : nn.Module
        Changed in place.
    generator : torch.Generator or None
        Without one all is zero.
    zero : collection of Tensor
        Weights that start at zero, so that what they are the last layer of does nothing at first.

    Examples
    --------
    >>> layer = nn.Conv2d(1, 2, 3)
    >>> draw_weights(layer, torch.Generator().manual_seed(0))
    >>> bool((layer.weight.abs() <= 1 / 3).all()), bool((layer.bias == 0).all())
    (True, True)
    """
    zeros = {id(weight) for weight in zero}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
            if generator is not None and parameter.ndim > 1 and id(parameter) not in zeros:
                bound = 1 / math.sqrt(max(parameter[0].numel(), 1))
                parameter.uniform_(-bound, bound, generator=generator)
