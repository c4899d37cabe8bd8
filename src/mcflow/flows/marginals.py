"""Between a column's units and normal scores, by a probability for each of the column's points."""

from __future__ import annotations

__all__ = ["PointMarginals"]

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Normal scores end here on both sides, and the mass that is beyond.
FARTHEST, LEAST_TAIL = 6.0, 9.8659e-10

#: No density and no mass is counted as less, also outside the points.
LEAST_DENSITY = 1e-12

#: What stands for a length of zero where it divides, and for a square of zero under a root.
LEAST_LENGTH, LEAST_SQUARE = 1e-12, 1e-30

#: Share of an end's size by which round-off may carry a cell beyond it.
ROUND_OFF = 1e-5


class _Bin(NamedTuple):
    """The piece of its column's distribution that a cell is in, all of shape (n_rows, n_columns)."""

    start: Tensor  # where it begins, in units
    gap: Tensor  # how long it is; 1 for an atom
    left: Tensor  # heights of the density at both ends; an atom's mass twice
    right: Tensor
    below: Tensor  # mass before and after it
    above: Tensor


class PointMarginals(nn.Module):
    r"""The distribution of each cell alone, as a density with exact cumulative function and inverse.

    A column whose values are all points has an atom of mass :math:`p_k` at each. Any other has a sum of hats, each a
    triangle of area :math:`p_k` over the two pieces beside point k (over one at the ends), that is a density which
    runs straight between the heights

    .. math:: f_k = \frac{2 p_k}{x_{k+1} - x_{k-1}}, \qquad x_{-1} = x_0, \quad x_n = x_{n-1}

    Parameters
    ----------
    points : Tensor of shape (n_columns, n_points)
        In units, rising, the last repeated as padding.
    n_points : Tensor of shape (n_columns,)
        How many points are a column's own.
    discrete : Tensor of shape (n_columns,)
        Boolean, True where a column can be at its points only. A column with one point is so in any case.

    Notes
    -----
    The normal score of a cell is :math:`e = \Phi^{-1}(F(x))`. The cumulative function F is quadratic between points.
    Within an atom a uniform number v says where: :math:`F(k-) + v p_k`. Masses are counted from the nearer end, so
    that float32 holds for both tails. Scores end at ±6. A density or mass is at least 1e-12, which is also what a
    cell beyond the outermost points of a continuous column gets; a cell between atoms counts as the nearest.

    Examples
    --------
    >>> points = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 1.0]])
    >>> marginals = PointMarginals(points, torch.tensor([3, 2]), torch.tensor([False, True]))
    >>> p = torch.tensor([[[0.25, 0.5, 0.25], [0.3, 0.7, 0.0]]])
    >>> units = torch.tensor([[1.0, 1.0]])
    >>> marginals.log_density(units, p).exp().round(decimals=3)
    tensor([[0.5000, 0.7000]])
    >>> scores, log_slope = marginals.scores(units, p, torch.full((1, 2), 0.5))
    >>> marginals.units_at(scores, p)
    tensor([[1., 1.]])
    """

    points: Tensor
    n_points: Tensor
    discrete: Tensor
    gaps: Tensor
    steepness: Tensor
    edges: Tensor
    last: Tensor

    def __init__(self, points: Tensor, n_points: Tensor, discrete: Tensor) -> None:
        super().__init__()
        points = points.float()
        discrete = discrete.bool() | (n_points < 2)
        own = torch.arange(points.shape[1]) < n_points[:, None]
        gaps = functional.pad(points.diff(dim=1), (0, 1))
        widths = gaps + functional.pad(gaps, (1, -1))
        steepness = torch.where(widths > 0, 2 / widths.clamp(min=LEAST_LENGTH), 0.0)
        middles = points[:, :-1] / 2 + points[:, 1:] / 2
        self.register_buffer("points", points)
        self.register_buffer("n_points", n_points)
        self.register_buffer("discrete", discrete)
        here = discrete[:, None]
        self.register_buffer("gaps", torch.where(here, own.float(), gaps), persistent=False)
        self.register_buffer("steepness", torch.where(here, 1.0, steepness) * own, persistent=False)
        self.register_buffer("edges", torch.where(here, middles, points[:, 1:]).contiguous(), persistent=False)
        self.register_buffer("last", n_points - 1 - (~discrete).long(), persistent=False)

    def log_density(self, units: Tensor, p: Tensor) -> Tensor:
        """Return the log of each cell's density, or of its mass in a discrete column.

        Parameters
        ----------
        units : Tensor of shape (n_rows, n_columns)
            Where the cells are.
        p : Tensor of shape (n_rows, n_columns, n_points)
            Probabilities of the points; those of the padding are ignored.

        Returns
        -------
        Tensor of shape (n_rows, n_columns)
        """
        here = self._bin_of(units)
        left, right = self._ends(p * self.steepness, here)
        t = _share(units, _own(self.points, here), _own(self.gaps, here))
        return self._log_height(units, torch.lerp(left, right, t))

    def scores(self, units: Tensor, p: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        r"""Turn cells into normal scores.

        Parameters
        ----------
        units : Tensor of shape (n_rows, n_columns)
            Where the cells are.
        p : Tensor of shape (n_rows, n_columns, n_points)
            Probabilities of the points; those of the padding are ignored.
        uniforms : Tensor of shape (n_rows, n_columns)
            In [0, 1]: where in its mass the cell of a discrete column is. Others do not read it.

        Returns
        -------
        scores : Tensor of shape (n_rows, n_columns)
            Standard normal for a cell that follows p.
        log_slope : Tensor of shape (n_rows, n_columns)
            The log-density of the cell less that of its score, so that
            :math:`\log p(x) = \log p(e) + \sum_j (\log f_j(x_j) - \log N(e_j))` over any cells.
        """
        heights = p * self.steepness
        piece = self._piece(heights, *self._masses(heights), self._bin_of(units))
        t = torch.where(self.discrete, uniforms, _share(units, piece.start, piece.gap))
        s, rise = 1 - t, (piece.right - piece.left) / 2
        low = piece.below + piece.gap * t * (piece.left + rise * t)
        high = piece.above + piece.gap * s * (piece.right - rise * s)
        tail = torch.minimum(low, high).clamp(min=LEAST_TAIL)
        scores = torch.special.ndtri(tail) * torch.where(low < high, 1.0, -1.0)
        log_height = self._log_height(units, torch.lerp(piece.left, piece.right, t))
        return scores, log_height + 0.5 * (scores.square() + math.log(2 * math.pi))

    def units_at(self, scores: Tensor, p: Tensor) -> Tensor:
        """Turn normal scores into cells: undo `scores`.

        Parameters
        ----------
        scores : Tensor of shape (n_rows, n_columns)
            Any numbers; those beyond ±6 are taken as they are.
        p : Tensor of shape (n_rows, n_columns, n_points)
            Probabilities of the points; those of the padding are ignored.

        Returns
        -------
        Tensor of shape (n_rows, n_columns)
            In units; a point where the column is discrete.
        """
        tail, lower = torch.special.ndtr(-scores.abs()), scores <= 0
        heights = p * self.steepness
        below, above = self._masses(heights)
        from_here = functional.pad(above, (1, -1), value=1.0)
        reached = torch.where(lower[..., None], below <= tail[..., None], from_here > tail[..., None])
        here = (reached.sum(-1) - 1).clamp(min=0).minimum(self.last)
        piece = self._piece(heights, below, above, here)
        near = torch.where(lower, piece.left, piece.right)
        far = torch.where(lower, piece.right, piece.left)
        rest = (tail - torch.where(lower, piece.below, piece.above)).clamp(min=0)
        rest = rest / piece.gap.clamp(min=LEAST_LENGTH)
        root = (near.square() + 2 * (far - near) * rest).clamp(min=LEAST_SQUARE).sqrt()
        way = (2 * rest / (near + root)).clamp(0, 1)
        moved = piece.start + piece.gap * torch.where(lower, way, 1 - way)
        return torch.where(self.discrete, piece.start, moved)

    def _bin_of(self, units: Tensor) -> Tensor:
        """Return the number of the piece or atom that each cell is in."""
        found = torch.searchsorted(self.edges, units.mT.contiguous().to(self.edges.dtype), right=True)
        return found.mT.minimum(self.last)

    def _masses(self, heights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mass before and after each bin, of shape (n_rows, n_columns, n_points), each by its own sum."""
        right = torch.where(self.discrete[:, None], heights, functional.pad(heights, (-1, 1)))
        masses = self.gaps * (heights + right) / 2
        below = functional.pad(masses.cumsum(-1), (1, -1))
        above = functional.pad(masses.flip(-1).cumsum(-1), (1, -1)).flip(-1)
        return below, above

    def _piece(self, heights: Tensor, below: Tensor, above: Tensor, here: Tensor) -> _Bin:
        ends = self._ends(heights, here)
        return _Bin(_own(self.points, here), _own(self.gaps, here), *ends, _take(below, here), _take(above, here))

    def _ends(self, heights: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        """Return the density at both ends of each cell's bin; twice the mass of an atom."""
        left = _take(heights, here)
        after = (here + 1).clamp(max=heights.shape[-1] - 1)
        return left, torch.where(self.discrete, left, _take(heights, after))

    def _log_height(self, units: Tensor, height: Tensor) -> Tensor:
        first, last = self.points[:, 0], self.points[:, -1]
        room = ROUND_OFF * torch.maximum(first.abs(), last.abs())
        outside = (units < first - room) | (units > last + room)
        return height.masked_fill(outside & ~self.discrete, 0.0).clamp(min=LEAST_DENSITY).log()


def _share(units: Tensor, start: Tensor, gap: Tensor) -> Tensor:
    """Return how much of its piece lies below a cell."""
    return ((units - start) / gap.clamp(min=LEAST_LENGTH)).clamp(0, 1)


def _take(many: Tensor, here: Tensor) -> Tensor:
    """Return the entry at `here` of the last dimension, for every cell."""
    return many.gather(-1, here[..., None])[..., 0]


def _own(buffer: Tensor, here: Tensor) -> Tensor:
    """Return each cell's entry of a buffer of shape (n_columns, n_points)."""
    return buffer.gather(1, here.mT).mT
