"""H of the default preset: it reads the cells that are there and the mask, and answers for those that are not."""

from __future__ import annotations

__all__ = ["TARGETS_AT_ONCE", "Answer", "MaskedMapper", "cross_entropy"]

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

#: Units beyond which a cell is as far out as any.
FAR = 8.0

#: A cell that is not shown is below every knot; infinity would not survive a product with zero.
NOWHERE = -1e38

#: Columns up to which a product with zeros and ones copies cells to their pieces faster than a look-up.
FEW_COLUMNS = 64

#: Beyond this the inverse hyperbolic sine is the same for all, so that squares are finite.
LARGEST = 1e18

#: Rows whose targets are best computed at a time: on the way they take several times the memory of the answer.
TARGETS_AT_ONCE = 1 << 16


class Answer(NamedTuple):
    """What H says of every cell, by each member.

    Parameters
    ----------
    context : Tensor of shape (n_members, n_rows, width)
        The row as H sees it.
    logits : Tensor of shape (n_members, n_rows, n_columns, n_points)
        Log-odds of the points of each column; those that a column does not have are far below all others.
    direct : Tensor of shape (n_members, n_rows, n_columns)
        A second estimate of the conditional mean, in units.
    """

    context: Tensor
    logits: Tensor
    direct: Tensor


class MaskedMapper(nn.Module):
    r"""A residual network on rows of which only some cells are shown.

    A cell x is read as the share of each piece between knots that lies below it, as its unit, nearly as its logarithm,
    and as a mark that it is there:

    .. math::

        e_k(x) = \mathrm{clip}\left(\frac{x - a_k}{a_{k+1} - a_k}, 0, 1\right), \qquad
        l(x) = \frac{\mathrm{arsinh}(a x + b) - m}{s}

    all times the mark, so a cell that is not shown is zero everywhere. Then follow blocks
    :math:`h \leftarrow h + W_2 \,\mathrm{gelu}(W_1 \,\mathrm{norm}(h))` and two heads.

    Parameters
    ----------
    knots : Tensor of shape (n_columns, n_knots)
        In units, rising; equal ones have nothing between them.
    points : Tensor of shape (n_columns, n_points)
        In units, rising, the last repeated as padding.
    n_points : Tensor of shape (n_columns,)
        How many points are a column's own.
    bends : Tensor of shape (n_columns, 4), optional
        The numbers a, b, m and s of each column; without them the logarithm is zero.
    n_members : int
        Networks side by side, each with its own weights.
    width, n_blocks : int
        Size of each.
    reads_mask : bool
        Whether the marks are among what it reads.
    generator : torch.Generator, optional
        Draws the weights; without it they stay zero.

    Notes
    -----
    An answer is a probability for each point. The target of a number between two points is shared by both so that its
    mean is right, hence the mean over the points estimates the conditional mean. A softmax over points learns faster
    than a squared error and gives the whole distribution.

    Examples
    --------
    >>> knots = torch.tensor([[0.0, 1.0], [0.0, 2.0]])
    >>> mapper = MaskedMapper(knots, knots, torch.tensor([2, 2]), generator=torch.Generator().manual_seed(0))
    >>> mapper(torch.zeros(1, 5, 2), torch.ones(1, 5, 2)).logits.shape
    torch.Size([1, 5, 2, 2])
    """

    start: Tensor
    bends: Tensor
    scale: Tensor
    owner: Tensor
    copier: Tensor
    points: Tensor
    padding: Tensor

    def __init__(
        self,
        knots: Tensor,
        points: Tensor,
        n_points: Tensor,
        bends: Tensor | None = None,
        *,
        n_members: int = 1,
        width: int = 64,
        n_blocks: int = 2,
        reads_mask: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_members, self.width, self.n_blocks = n_members, width, n_blocks
        self.n_columns, self.n_points = points.shape
        self.reads_mask = reads_mask
        gaps = knots.diff(dim=1)
        real = gaps > 0
        self.register_buffer("start", knots[:, :-1][real].float())
        self.register_buffer("scale", (1 / gaps[real]).float())
        self.register_buffer("owner", real.nonzero()[:, 0])
        few = self.n_columns if self.n_columns <= FEW_COLUMNS else 0
        copier = functional.one_hot(self.owner, self.n_columns).T[:few].float().contiguous()
        self.register_buffer("copier", copier, persistent=False)
        self.register_buffer("points", points.float())
        bends = torch.tensor([[0.0, 0.0, 0.0, 1.0]]).expand(len(points), -1) if bends is None else bends
        self.register_buffer("bends", bends.float().T.contiguous())
        beyond = torch.arange(self.n_points) >= n_points[:, None]
        self.register_buffer("padding", torch.where(beyond, -1e4, 0.0))
        self.weights = nn.ParameterList(self._layers(generator))

    def _layers(self, generator: torch.Generator | None) -> list[nn.Parameter]:
        """Return weights and biases of all layers: the first, two a block, and the two heads, which start at zero."""
        n_inputs = len(self.owner) + (3 if self.reads_mask else 2) * self.n_columns
        sizes = [(n_inputs, self.width), *[(self.width, self.width)] * (2 * self.n_blocks)]
        heads = [(self.width, self.n_columns * self.n_points), (self.width, self.n_columns)]
        layers = []
        for k, (n_in, n_out) in enumerate([*sizes, *heads]):
            weight = torch.zeros(self.n_members, n_in, n_out)
            if generator is not None and k < len(sizes):
                weight = (2 * torch.rand(weight.shape, generator=generator) - 1) / math.sqrt(n_in)
            layers += [nn.Parameter(weight), nn.Parameter(torch.zeros(self.n_members, 1, n_out))]
        return layers

    def start_at(self, shares: Tensor) -> None:
        """Let the answer to an empty row be the columns' own distribution, of shape (n_columns, n_points)."""
        with torch.no_grad():
            self.weights[-3].copy_(shares.clamp(min=1e-4).log().flatten())

    def encode(self, units: Tensor, shown: Tensor) -> Tensor:
        """Return what the first layer reads.

        Parameters
        ----------
        units : Tensor of shape (n_members, n_rows, n_columns)
            Any number where a cell is not shown.
        shown : Tensor of shape (n_members, n_rows, n_columns)
            1 or 0.

        Returns
        -------
        Tensor of shape (n_members, n_rows, n_inputs)
        """
        cells = units.masked_fill(shown == 0, NOWHERE)
        pieces = cells @ self.copier if len(self.copier) else cells.index_select(-1, self.owner)
        pieces = pieces.sub_(self.start).mul_(self.scale).clamp_(0, 1)
        slope, shift, centre, spread = self.bends
        logs = _asinh(units * slope + shift).sub_(centre).div_(spread).mul_(shown)
        parts = [pieces, units.clamp(-FAR, FAR) * shown, logs]
        return torch.cat([*parts, shown] if self.reads_mask else parts, -1)

    def forward(self, units: Tensor, shown: Tensor) -> Answer:
        """Answer for all cells of some rows; see `encode` for the parameters. One row for all members is enough."""
        state = self._linear(0, self.encode(units, shown))
        for k in range(2, 2 + 4 * self.n_blocks, 4):
            inner = functional.gelu(self._linear(k, self._norm(state)))
            state = self._linear(k + 2, inner, onto=state)
        context = self._norm(state)
        logits = self._linear(-4, context, self.padding.flatten())
        return Answer(context, logits.unflatten(-1, (self.n_columns, self.n_points)), self._linear(-2, context))

    def _linear(self, k: int, rows: Tensor, shift: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
        """Apply the layer at `k` of each member to its rows, of shape (n_members or 1, n_rows, n_in).

        What it gives is added to `onto`, which is overwritten where no gradient is wanted.
        """
        weight, bias = self.weights[k], self.weights[k + 1]
        if shift is not None:
            bias = bias + shift
        rows = rows.expand(self.n_members, -1, -1)
        if torch.is_grad_enabled():
            found = torch.baddbmm(bias, rows, weight)
            return found if onto is None else onto + found
        # Without gradients one product a member is faster than a batched one, which copies the bias first.
        if onto is not None:
            for member in range(self.n_members):
                onto[member].add_(bias[member]).addmm_(rows[member], weight[member])
            return onto
        found = rows.new_empty(*rows.shape[:2], weight.shape[2])
        for member in range(self.n_members):
            torch.addmm(bias[member], rows[member], weight[member], out=found[member])
        return found

    def _norm(self, state: Tensor) -> Tensor:
        return functional.layer_norm(state, (self.width,))

    def means(self, logits: Tensor) -> Tensor:
        """Return the mean over the points, one number a cell, in units."""
        return (logits.softmax(-1) * self.points).sum(-1)

    def targets(self, units: Tensor) -> tuple[Tensor, Tensor]:
        """Return, for every cell, the point at or below it and the share of the point above.

        Parameters
        ----------
        units : Tensor of shape (n_rows, n_columns)

        Returns
        -------
        tuple of Tensor of shape (n_rows, n_columns)
            Whole numbers below n_points - 1, and shares in [0, 1].
        """
        columns = units.mT.contiguous()
        last = (self.padding == 0).sum(1, keepdim=True) - 2
        below = torch.searchsorted(self.points, columns, right=True).sub_(1)
        below = below.clamp(min=0).minimum(last.clamp(min=0))
        low, high = (self.points.gather(1, (below + k).clamp(max=self.n_points - 1)) for k in (0, 1))
        share = (columns - low) / (high - low).clamp(min=1e-12)
        return below.mT.contiguous(), share.clamp(0, 1).mT.contiguous()


def _asinh(x: Tensor) -> Tensor:
    """Return the inverse hyperbolic sine by functions that use the machine's vectors, as torch's own does not."""
    size = x.abs().clamp_(max=LARGEST)
    square = size.square()
    return size.add_(square.div(square.add(1).sqrt_().add_(1))).log1p_().copysign_(x)


class _CrossEntropy(torch.autograd.Function):
    """Cross-entropy of cells whose target lies between two neighbouring points, with its gradient written out."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, below: Tensor, share: Tensor) -> Tensor:
        log_p = logits.log_softmax(-1)
        here = below[:, None]
        both = log_p.gather(1, torch.cat([here, (here + 1).clamp(max=logits.shape[1] - 1)], 1))
        ctx.save_for_backward(log_p, below, share)
        return -torch.lerp(both[:, 0], both[:, 1], share).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        log_p, below, share = ctx.saved_tensors
        d_logits = log_p.exp()
        here = below[:, None]
        d_logits.scatter_add_(1, here, (share - 1)[:, None])
        d_logits.scatter_add_(1, (here + 1).clamp(max=log_p.shape[1] - 1), -share[:, None])
        return d_logits.mul_(grad / len(log_p)), None, None


def cross_entropy(logits: Tensor, below: Tensor, share: Tensor) -> Tensor:
    r"""Return the mean of :math:`-(1 - t) \log p_k - t \log p_{k+1}` over cells.

    Parameters
    ----------
    logits : Tensor of shape (n_cells, n_points)
    below : Tensor of shape (n_cells,)
        The point k at or below each cell.
    share : Tensor of shape (n_cells,)
        The share t of the point above.

    Returns
    -------
    Tensor
        A single number.

    Examples
    --------
    >>> logits = torch.zeros(3, 4)
    >>> float(cross_entropy(logits, torch.tensor([0, 1, 2]), torch.tensor([0.0, 0.5, 1.0])).exp().round())
    4.0
    """
    loss: Tensor = _CrossEntropy.apply(logits, below, share)  # type: ignore[no-untyped-call]
    return loss
