"""The flow G, a RealNVP of affine couplings, and the latent network H, both with gradients written by hand."""

from __future__ import annotations

__all__ = ["AffineCoupling", "CouplingTape", "FlatModule", "LatentMapper", "NetworkBatch", "Pass", "RealNVP"]

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

Halves = tuple[Tensor, Tensor]

NEGATIVE_SLOPE = 0.01  #: Slope of LeakyReLU below zero.


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
            rows = fan_in if fan_in is not None and layer < 2 else self.sizes[layer // 2]
            bound = 1 / math.sqrt(max(rows, 1))
            drawn = torch.rand(weight.shape, generator=generator, dtype=torch.float64)
            weight.copy_((2 * drawn - 1) * bound)

    def forward(self, inputs: Tensor, weights: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """Map inputs (n_rows, n_inputs), with other weights if given; also return the activations for `backward`."""
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
        """Backpropagate the gradient (n_networks, n_rows, n_outputs) of the outputs to weights and inputs, as asked."""
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

    def __init__(self, n_kept: int, n_columns: int, n_layers: int) -> None:
        self.networks = NetworkBatch(2, [n_kept, *[n_columns] * (n_layers - 1), n_columns - n_kept])
        self.n_kept = n_kept

    def _coefficients(self, kept: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        outputs, hidden = self.networks.forward(kept)
        scale, shift = outputs.unbind(0)
        return scale.tanh_(), shift, hidden

    def forward(self, kept: Tensor, moved: Tensor) -> tuple[Tensor, CouplingTape]:
        """Map columns (n_rows, n_kept) and (n_rows, n_moved) towards the latent space; return the moved ones."""
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
        """Backpropagate through `forward` or `inverse` to the kept and the moved columns; `d_scale` is (n_rows, 1)."""
        d_moved = d_out * tape.factor
        if inverse:
            d_log, d_shift = torch.addcmul(d_scale, d_out, tape.source, value=-1), d_moved.neg()
        else:
            d_log, d_shift = torch.addcmul(d_scale, d_moved, tape.source), d_out
        d_outputs = torch.stack((torch.ops.aten.tanh_backward(d_log, tape.scale), d_shift))
        through = self.networks.backward(d_outputs, tape.hidden, weights=weights, inputs=True)
        assert through is not None
        return through.add_(d_kept), d_moved


class Pass(NamedTuple):
    """Result of one direction of the flow, with what its backward pass needs."""

    out: Tensor  # (n_rows, n_columns)
    log_det: Tensor  # (n_rows,)
    inverse: bool
    tapes: dict[int, CouplingTape]  # by the index of the coupling


class RealNVP(FlatModule):
    r"""RealNVP: an invertible map g from data to a standard normal latent space.

    .. math:: \log p_X(x) = \log N(g(x); 0, I) + \log \left|\det \partial g(x) / \partial x^T\right|

    All weights are in one vector, `theta`, so that an optimiser step is one kernel. First-order gradients are written
    by hand: training calls `run` and `run_back`; for all other callers each direction is a single autograd node.
    Columns pass through the couplings as two parts, kept and moved. They are reordered between two couplings only if
    the masks are not complements of each other.
    """

    masks: Tensor  # (n_couplings, n_columns) True where a coupling keeps a column

    def __init__(self, masks: Tensor, n_layers: int = 4, generator: torch.Generator | None = None) -> None:
        n_columns = masks.shape[1]
        couplings = [AffineCoupling(int(row.sum()), n_columns, n_layers) for row in masks]
        super().__init__([coupling.networks for coupling in couplings])
        self.couplings = couplings
        self.n_columns = n_columns
        self.register_buffer("masks", masks.to(torch.bool))
        self._route()
        if generator is not None:
            with torch.no_grad():
                for coupling in couplings:
                    coupling.networks.reset(generator, fan_in=n_columns)

    @property
    def theta(self) -> nn.Parameter:
        """All weights, the paper's θ."""
        return self.flat

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Recompute the column orders after a change of device."""
        super()._apply(fn, recurse)
        self._route()
        return self

    def _route(self) -> None:
        """Compute how columns are reordered before, between and after the couplings."""
        natural = torch.arange(self.n_columns, device=self.masks.device)
        orders = [natural, *(torch.cat((natural[m], natural[~m])) for m in self.masks), natural]
        self._onward = [_places(a, b) for a, b in itertools.pairwise(orders)]
        self._back = [_places(b, a) for a, b in itertools.pairwise(orders)]
        self._swap = [False, *(bool((a ^ b).all()) for a, b in itertools.pairwise(self.masks)), False]

    def _walk(self, x: Tensor, step: int, visit: Callable[[AffineCoupling, int, Halves], Halves]) -> Tensor:
        """Pass columns through all couplings, first to last (`step` 1) or last to first (`step` -1)."""
        routes, swaps = (self._onward if step > 0 else self._back)[::step], self._swap[::step]
        halves: Halves | None = None
        for k, places, swap in zip(range(len(self.couplings))[::step], routes, swaps, strict=False):
            if halves is not None and swap:
                halves = halves[1], halves[0]
            else:
                ordered = (x if halves is None else torch.cat(halves, 1)).index_select(1, places)
                n_kept = self.couplings[k].n_kept
                halves = ordered[:, :n_kept], ordered[:, n_kept:]
            halves = visit(self.couplings[k], k, halves)
        assert halves is not None
        return torch.cat(halves, 1).index_select(1, routes[-1])

    def run(self, x: Tensor, *, inverse: bool = False, keep: bool = True) -> Pass:
        """Map rows (n_rows, n_columns) in one direction outside autograd; `keep` what `run_back` needs."""
        tapes: dict[int, CouplingTape] = {}
        scales: list[Tensor] = []

        def visit(coupling: AffineCoupling, k: int, halves: Halves) -> Halves:
            moved, tape = (coupling.inverse if inverse else coupling.forward)(*halves)
            scales.append(tape.scale)
            if keep:
                tapes[k] = tape
            return halves[0], moved

        out = self._walk(x, -1 if inverse else 1, visit)
        log_det = torch.cat(scales, 1).sum(1)
        return Pass(out, -log_det if inverse else log_det, inverse, tapes)

    def run_back(self, way: Pass, d_out: Tensor, d_log_det: Tensor | float, *, weights: bool) -> Tensor:
        """Backpropagate gradients by a pass's results; with `weights`, write those by `theta` into `gradient`."""
        columns = d_log_det[:, None] if isinstance(d_log_det, Tensor) else d_out.new_full((1, 1), d_log_det)
        d_scale = -columns if way.inverse else columns

        def visit(coupling: AffineCoupling, k: int, halves: Halves) -> Halves:
            return coupling.backward(*halves, d_scale, way.tapes[k], inverse=way.inverse, weights=weights)

        return self._walk(d_out, 1 if way.inverse else -1, visit)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map rows (n_rows, n_columns) to the latent space; also return the log-determinants (n_rows,)."""
        out: tuple[Tensor, Tensor] = _Direction.apply(x, self.theta, self, False)  # type: ignore[no-untyped-call]
        return out

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Map latent points (n_rows, n_columns) to rows; also return the log-determinants (n_rows,)."""
        out: tuple[Tensor, Tensor] = _Direction.apply(z, self.theta, self, True)  # type: ignore[no-untyped-call]
        return out

    def log_prob(self, x: Tensor) -> Tensor:
        """Return the log-density (n_rows,) of rows (n_rows, n_columns)."""
        z, log_det = self.forward(x)
        return self.base_log_prob(z) + log_det

    def base_log_prob(self, z: Tensor) -> Tensor:
        """Return the log-density (n_rows,) of latent points under the standard normal distribution."""
        return -0.5 * z.square().sum(1) - 0.5 * self.n_columns * math.log(2 * math.pi)

    def sample(self, n_rows: int, generator: torch.Generator) -> Tensor:
        """Draw new rows (n_rows, n_columns)."""
        z = torch.randn(n_rows, self.n_columns, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            rows: Tensor = self.inverse(z.to(self.theta))[0]
        return rows


def _places(have: Tensor, want: Tensor) -> Tensor:
    """Return the positions of the columns `want` in the order `have`."""
    return torch.argsort(have)[want]


class _Direction(torch.autograd.Function):
    """One direction of the flow as a single autograd node."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, theta: Tensor, flow: RealNVP, inverse: bool) -> tuple[Tensor, Tensor]:
        ctx.flow = flow
        ctx.way = flow.run(x.detach(), inverse=inverse, keep=any(ctx.needs_input_grad[:2]))
        return ctx.way.out, ctx.way.log_det

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, d_log_det: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        weights = ctx.needs_input_grad[1]
        d_x = ctx.flow.run_back(ctx.way, d_out, d_log_det, weights=weights)
        return d_x, ctx.flow.gradient.clone() if weights else None, None, None


class LatentMapper(FlatModule):
    r"""The network H, :math:`\hat z = h_\phi(\dot z)`: linear layers as wide as the data, with LeakyReLU between."""

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
        """Map latent points outside autograd; return them and the activations that `run_back` needs."""
        outputs, hidden = self.network.forward(z)
        return outputs[0], hidden

    def run_back(self, d_out: Tensor, hidden: list[Tensor]) -> None:
        """Backpropagate a gradient (n_rows, n_columns) of the output into `gradient`, the gradient by `phi`."""
        self.network.backward(d_out[None], hidden, weights=True, inputs=False)

    def forward(self, z: Tensor) -> Tensor:
        """Map latent points (n_rows, n_columns) under autograd."""
        return self.network.forward(z, self.network.views(self.phi))[0][0]
