"""The flow G: affine couplings over a standard normal distribution, with exact density and inverse."""

from __future__ import annotations

__all__ = ["Pass", "RealNVP"]

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mcflow.paper.coupling import AffineCoupling, CouplingTape, FlatModule

Halves = tuple[Tensor, Tensor]


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

    def __init__(
        self, masks: Tensor, width: int | None = None, n_layers: int = 4, generator: torch.Generator | None = None
    ) -> None:
        n_columns = masks.shape[1]
        kept = [int(row.sum()) for row in masks]
        hidden = n_columns if width is None else width
        couplings = [AffineCoupling(k, n_columns - k, hidden, n_layers) for k in kept]
        super().__init__([coupling.networks for coupling in couplings])
        self.couplings = couplings
        self.n_columns = n_columns
        self.register_buffer("masks", masks.to(torch.bool))
        self._route()
        if generator is not None:
            self.reset(generator)

    @property
    def theta(self) -> nn.Parameter:
        """All weights, the paper's θ."""
        return self.flat

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights as `torch.nn.Linear` does, with the number of columns as the inputs of first layers."""
        with torch.no_grad():
            for coupling in self.couplings:
                coupling.networks.reset(generator, fan_in=self.n_columns)

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
        self._swap = [
            k not in (0, len(self.couplings)) and bool((self.masks[k - 1] ^ self.masks[k]).all())
            for k in range(len(self.couplings) + 1)
        ]

    def _enter(self, x: Tensor, coupling: int) -> Halves:
        """Split columns in natural order into the kept and moved columns of the first or the last coupling."""
        places = self._onward[0] if coupling == 0 else self._back[-1]
        ordered = x.index_select(1, places)
        n_kept = self.couplings[coupling].n_kept
        return ordered[:, :n_kept], ordered[:, n_kept:]

    def _change(self, halves: Halves, coupling: int, step: int) -> Halves:
        """Regroup columns for the next coupling (`step` 1) or the previous one (`step` -1)."""
        route = coupling + (step > 0)
        if self._swap[route]:
            return halves[1], halves[0]
        places = (self._onward if step > 0 else self._back)[route]
        ordered = torch.cat(halves, 1).index_select(1, places)
        n_kept = self.couplings[coupling + step].n_kept
        return ordered[:, :n_kept], ordered[:, n_kept:]

    def _leave(self, halves: Halves, coupling: int) -> Tensor:
        """Put the columns of the last or the first coupling back into natural order."""
        places = self._back[0] if coupling == 0 else self._onward[-1]
        return torch.cat(halves, 1).index_select(1, places)

    def _walk(self, x: Tensor, step: int, visit: Callable[[AffineCoupling, int, Halves], Halves]) -> Tensor:
        """Pass columns through all couplings, first to last (`step` 1) or last to first (`step` -1)."""
        last = len(self.couplings) - 1
        path = range(last + 1) if step > 0 else range(last, -1, -1)
        halves = self._enter(x, path[0])
        for k in path:
            halves = visit(self.couplings[k], k, halves)
            if k != path[-1]:
                halves = self._change(halves, k, step)
        return self._leave(halves, path[-1])

    def run(self, x: Tensor, *, inverse: bool = False, keep: bool = True) -> Pass:
        """Run one direction outside autograd; `keep` what `run_back` needs.

        Shapes: `x` (n_rows, n_columns).
        """
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
        """Backpropagate gradients by a pass's results; with `weights`, write those by `theta` into `gradient`.

        Shapes: `d_out` (n_rows, n_columns), `d_log_det` (n_rows,), returns (n_rows, n_columns).
        """
        columns = d_log_det[:, None] if isinstance(d_log_det, Tensor) else d_out.new_full((1, 1), d_log_det)
        d_scale = -columns if way.inverse else columns

        def visit(coupling: AffineCoupling, k: int, halves: Halves) -> Halves:
            return coupling.backward(*halves, d_scale, way.tapes[k], inverse=way.inverse, weights=weights)

        return self._walk(d_out, 1 if way.inverse else -1, visit)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map rows to the latent space.

        Shapes: `x` (n_rows, n_columns), returns (n_rows, n_columns), (n_rows,).
        """
        out: tuple[Tensor, Tensor] = _Direction.apply(x, self.theta, self, False)  # type: ignore[no-untyped-call]
        return out

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Map latent points to rows.

        Shapes: `z` (n_rows, n_columns), returns (n_rows, n_columns), (n_rows,).
        """
        out: tuple[Tensor, Tensor] = _Direction.apply(z, self.theta, self, True)  # type: ignore[no-untyped-call]
        return out

    def log_prob(self, x: Tensor) -> Tensor:
        """Return the log-density of rows.

        Shapes: `x` (n_rows, n_columns), returns (n_rows,).
        """
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
