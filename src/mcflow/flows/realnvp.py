"""RealNVP: a list of affine couplings over a standard normal, with exact density and inverse."""

from __future__ import annotations

__all__ = ["Pass", "RealNVP", "draw_masks"]

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mcflow.flows.coupling import AffineCoupling, CouplingTape
from mcflow.flows.networks import FlatModule

Halves = tuple[Tensor, Tensor]


class Pass(NamedTuple):
    """One way through the flow: where the rows went, the log-determinant, and what the way back needs."""

    out: Tensor
    log_det: Tensor
    inverse: bool
    tapes: dict[int, CouplingTape]


def draw_masks(n_couplings: int, n_columns: int, generator: torch.Generator) -> Tensor:
    """Draw which columns each coupling keeps.

    Parameters
    ----------
    n_couplings : int
        Rows of the result.
    n_columns : int
        Columns of the table.
    generator : torch.Generator
        Where the numbers come from.

    Returns
    -------
    Tensor of shape (n_couplings, n_columns)
        Boolean, True where a column is in D. Every even row is a fair coin a column, redrawn until both
        sides have a column; the row after it is its complement, so that every column is moved.

    Examples
    --------
    >>> masks = draw_masks(2, 5, torch.Generator().manual_seed(0))
    >>> bool((masks[0] ^ masks[1]).all())
    True
    """
    rows: list[Tensor] = []
    while len(rows) < n_couplings:
        mask = torch.rand(n_columns, generator=generator) < 0.5
        if n_columns == 1:
            mask = torch.zeros(1, dtype=torch.bool)
        if n_columns == 1 or 0 < int(mask.sum()) < n_columns:
            rows += [mask, ~mask]
    return torch.stack(rows[:n_couplings])


class RealNVP(FlatModule):
    r"""The flow G: an invertible map g from data to a standard normal latent space.

    .. math:: \log p_X(x) = \log N(g(x); 0, I) + \log \left|\det \partial g(x) / \partial x^T\right|

    Parameters
    ----------
    masks : Tensor of shape (n_couplings, n_columns)
        Boolean; a coupling keeps the columns where its row is True and moves the others.
    width : int, optional
        Hidden width of the networks s and t, by default the number of columns.
    n_layers : int, default=4
        Linear layers in each.
    generator : torch.Generator, optional
        Draws the weights; without it they stay zero and the flow is the identity.

    Notes
    -----
    All weights live in one vector, `theta`, so that an optimiser step is one kernel. Gradients are written by hand
    (first order): training calls `run` and `run_back`; for everybody else both directions are single autograd nodes.
    Columns travel as two halves, kept and moved; between couplings they are reordered only where the masks are not
    complements of each other.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> flow = RealNVP(draw_masks(6, 3, generator), generator=generator)
    >>> x = torch.rand(4, 3)
    >>> bool(torch.allclose(flow.inverse(flow(x)[0])[0], x, atol=1e-5))
    True
    """

    masks: Tensor

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
        """Draw all weights anew, each layer as `torch.nn.Linear` with the table's width as inputs would."""
        with torch.no_grad():
            for coupling in self.couplings:
                coupling.networks.reset(generator, fan_in=self.n_columns)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow a move to another device: the routes have to be there too."""
        super()._apply(fn, recurse)
        self._route()
        return self

    def _route(self) -> None:
        """Prepare how columns change places before, between and after the couplings."""
        natural = torch.arange(self.n_columns, device=self.masks.device)
        orders = [natural, *(torch.cat((natural[m], natural[~m])) for m in self.masks), natural]
        self._onward = [_places(a, b) for a, b in itertools.pairwise(orders)]
        self._back = [_places(b, a) for a, b in itertools.pairwise(orders)]
        self._swap = [
            k not in (0, len(self.couplings)) and bool((self.masks[k - 1] ^ self.masks[k]).all())
            for k in range(len(self.couplings) + 1)
        ]

    def _enter(self, x: Tensor, coupling: int) -> Halves:
        """Split columns in natural order into the halves of the first or the last coupling."""
        places = self._onward[0] if coupling == 0 else self._back[-1]
        ordered = x.index_select(1, places)
        n_kept = self.couplings[coupling].n_kept
        return ordered[:, :n_kept], ordered[:, n_kept:]

    def _change(self, halves: Halves, coupling: int, step: int) -> Halves:
        """Hand halves from one coupling to the next (`step` 1) or to the one before (`step` -1)."""
        route = coupling + (step > 0)
        if self._swap[route]:
            return halves[1], halves[0]
        places = (self._onward if step > 0 else self._back)[route]
        ordered = torch.cat(halves, 1).index_select(1, places)
        n_kept = self.couplings[coupling + step].n_kept
        return ordered[:, :n_kept], ordered[:, n_kept:]

    def _leave(self, halves: Halves, coupling: int) -> Tensor:
        """Put the halves of the last or the first coupling back into natural order."""
        places = self._back[0] if coupling == 0 else self._onward[-1]
        return torch.cat(halves, 1).index_select(1, places)

    def _walk(self, x: Tensor, step: int, visit: Callable[[AffineCoupling, int, Halves], Halves]) -> Tensor:
        """Carry columns through all couplings, first to last (`step` 1) or last to first (`step` -1)."""
        last = len(self.couplings) - 1
        path = range(last + 1) if step > 0 else range(last, -1, -1)
        halves = self._enter(x, path[0])
        for k in path:
            halves = visit(self.couplings[k], k, halves)
            if k != path[-1]:
                halves = self._change(halves, k, step)
        return self._leave(halves, path[-1])

    def run(self, x: Tensor, *, inverse: bool = False, keep: bool = True) -> Pass:
        """Run one direction outside autograd.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_columns)
            Rows, or latent points when `inverse`.
        inverse : bool, default=False
            From the latent space to the data.
        keep : bool, default=True
            Keep what `run_back` needs.

        Returns
        -------
        Pass
            Where the rows went, the log-determinant, and the way back.
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
        """Carry a loss's gradients back through a pass.

        Parameters
        ----------
        way : Pass
            From `run`, with what it kept.
        d_out : Tensor of shape (n_rows, n_columns)
            The loss's gradient by `way.out`.
        d_log_det : Tensor of shape (n_rows,) or float
            Its gradient by `way.log_det`; a number when it is the same for every row.
        weights : bool
            Also write the gradient by `theta` into `gradient`.

        Returns
        -------
        Tensor of shape (n_rows, n_columns)
            The gradient by what went in.
        """
        columns = d_log_det[:, None] if isinstance(d_log_det, Tensor) else d_out.new_full((1, 1), d_log_det)
        d_scale = -columns if way.inverse else columns

        def visit(coupling: AffineCoupling, k: int, halves: Halves) -> Halves:
            back = coupling.inverse_backward if way.inverse else coupling.forward_backward
            return back(*halves, d_scale, way.tapes[k], weights)

        return self._walk(d_out, 1 if way.inverse else -1, visit)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map rows to the latent space.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_columns)

        Returns
        -------
        z : Tensor of shape (n_rows, n_columns)
        log_det : Tensor of shape (n_rows,)
            The logarithm of the Jacobian's determinant.
        """
        out: tuple[Tensor, Tensor] = _Direction.apply(x, self.theta, self, False)  # type: ignore[no-untyped-call]
        return out

    def inverse(self, z: Tensor, *, frozen: bool = False) -> tuple[Tensor, Tensor]:
        """Map latent points to rows.

        Parameters
        ----------
        z : Tensor of shape (n_rows, n_columns)
        frozen : bool, default=False
            Let no gradient reach the weights.

        Returns
        -------
        x : Tensor of shape (n_rows, n_columns)
        log_det : Tensor of shape (n_rows,)
            Of the inverse map; the forward one's with its sign changed.
        """
        theta = self.theta.detach() if frozen else self.theta
        out: tuple[Tensor, Tensor] = _Direction.apply(z, theta, self, True)  # type: ignore[no-untyped-call]
        return out

    def log_prob(self, x: Tensor) -> Tensor:
        """Return each row's log-density.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_columns)

        Returns
        -------
        Tensor of shape (n_rows,)
        """
        z, log_det = self.forward(x)
        return self.base_log_prob(z) + log_det

    def base_log_prob(self, z: Tensor) -> Tensor:
        """Return the standard normal's log-density of latent points, of shape (n_rows,)."""
        return -0.5 * z.square().sum(1) - 0.5 * self.n_columns * math.log(2 * math.pi)

    def sample(self, n_rows: int, generator: torch.Generator) -> Tensor:
        """Draw new rows.

        Parameters
        ----------
        n_rows : int
        generator : torch.Generator
            On the CPU, so that a seed means the same on every device.

        Returns
        -------
        Tensor of shape (n_rows, n_columns)
        """
        z = torch.randn(n_rows, self.n_columns, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            rows: Tensor = self.inverse(z.to(self.theta))[0]
        return rows


def _places(have: Tensor, want: Tensor) -> Tensor:
    """Return where each wanted column stands in an order."""
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
