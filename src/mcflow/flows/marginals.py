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

#: Share of a point's size by which round-off may carry a cell away from it.
ROUND_OFF = 1e-5


class _Bin(NamedTuple):
    """The piece of its column's distribution that a cell is in, all of shape (n_rows, n_columns)."""

    atom: Tensor  # whether it is a single value
    start: Tensor  # where it begins, in units
    gap: Tensor  # how long it is; 1 for an atom
    left: Tensor  # heights of the density at both ends; an atom's mass twice
    right: Tensor
    below: Tensor  # mass before and after it
    above: Tensor


class PointMarginals(nn.Module):
    r"""The distribution of each cell alone, as a density with exact cumulative function and inverse.

    The probability :math:`p_k` of a point is an atom of mass :math:`a_k p_k` at the point itself and a hat, a triangle
    of area :math:`(1 - a_k) p_k` over the two pieces beside it (over one at the ends). The hats sum up to a density
    that runs straight between the heights

    .. math:: f_k = \frac{2 (1 - a_k) p_k}{x_{k+1} - x_{k-1}}, \qquad x_{-1} = x_0, \quad x_n = x_{n-1}

    Parameters
    ----------
    points : Tensor of shape (n_columns, n_points)
        In units, rising, the last repeated as padding.
    n_points : Tensor of shape (n_columns,)
        How many points are a column's own.
    atoms : Tensor of shape (n_columns,) or (n_columns, n_points)
        The shares :math:`a_k`: True or 1 for a column that can be at its points only, numbers between 0 and 1 for
        points that many cells share, and 0 elsewhere. A column with one point is an atom in any case.

    Notes
    -----
    The normal score of a cell is :math:`e = \Phi^{-1}(F(x))`. The cumulative function F is quadratic between points.
    Within an atom a uniform number v says where: :math:`F(k-) + v a_k p_k`. Masses are counted from the nearer end, so
    that float32 holds for both tails. Scores end at ±6. A density or mass is at least 1e-12, which is also what a
    cell beyond the outermost points of a column gets; in a column of nothing but atoms a cell counts as the nearest.

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
    atoms: Tensor
    gaps: Tensor
    steepness: Tensor
    middles: Tensor

    def __init__(self, points: Tensor, n_points: Tensor, atoms: Tensor) -> None:
        super().__init__()
        points = points.float().contiguous()
        own = torch.arange(points.shape[1], device=points.device) < n_points[:, None]
        atoms = (atoms[:, None] if atoms.ndim == 1 else atoms).float().expand(points.shape)
        atoms = torch.where(n_points[:, None] < 2, 1.0, atoms) * own
        gaps = functional.pad(points.diff(dim=1), (0, 1))
        widths = gaps + functional.pad(gaps, (1, -1))
        steepness = torch.where(widths > 0, 2 / widths.clamp(min=LEAST_LENGTH), 0.0)
        middles = points[:, :-1] / 2 + points[:, 1:] / 2
        self.register_buffer("points", points)
        self.register_buffer("n_points", n_points)
        self.register_buffer("atoms", atoms.contiguous())
        self.register_buffer("gaps", gaps, persistent=False)
        self.register_buffer("steepness", steepness * (1 - atoms) * own, persistent=False)
        self.register_buffer("middles", middles.contiguous(), persistent=False)

    @property
    def discrete(self) -> Tensor:
        """Tell which columns can be at their points only, of shape (n_columns,)."""
        return (self.steepness == 0).all(1)

    def log_density(self, units: Tensor, p: Tensor) -> Tensor:
        """Return the log of each cell's density, or of its mass at an atom.

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
        piece = self._piece(p, *self._masses(p), self._bin_of(units))
        t = _share(units, piece.start, piece.gap)
        return self._log_height(units, torch.lerp(piece.left, piece.right, t))

    def scores(self, units: Tensor, p: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        r"""Turn cells into normal scores.

        Parameters
        ----------
        units : Tensor of shape (n_rows, n_columns)
            Where the cells are.
        p : Tensor of shape (n_rows, n_columns, n_points)
            Probabilities of the points; those of the padding are ignored.
        uniforms : Tensor of shape (n_rows, n_columns)
            In [0, 1]: where in its mass a cell at an atom is. Others do not read it.

        Returns
        -------
        scores : Tensor of shape (n_rows, n_columns)
            Standard normal for a cell that follows p.
        log_slope : Tensor of shape (n_rows, n_columns)
            The log-density of the cell less that of its score, so that
            :math:`\log p(x) = \log p(e) + \sum_j (\log f_j(x_j) - \log N(e_j))` over any cells.
        """
        piece = self._piece(p, *self._masses(p), self._bin_of(units))
        t = torch.where(piece.atom, uniforms, _share(units, piece.start, piece.gap))
        s, rise = 1 - t, (piece.right - piece.left) / 2
        low = piece.below + piece.gap * t * (piece.left + rise * t)
        high = piece.above + piece.gap * s * (piece.right - rise * s)
        tail = torch.minimum(low, high).clamp(min=LEAST_TAIL)
        scores = torch.special.ndtri(tail) * torch.where(low < high, 1.0, -1.0)
        log_height = self._log_height(units, torch.lerp(piece.left, piece.right, t))
        return scores, log_height + 0.5 * (scores.square() + math.log(2 * math.pi))

    def at(self, columns: Tensor) -> PointMarginals:
        """Return the distributions of single cells, of shape (n_cells,), as those of one row with as many columns."""
        return PointMarginals(self.points[columns], self.n_points[columns], self.atoms[columns])

    def at_atoms(self, units: Tensor) -> Tensor:
        """Tell which cells are at an atom, of shape (n_rows, n_columns)."""
        return self._bin_of(units) % 2 == 0

    def means(self) -> Tensor:
        """Return the mean of each point's part of the distribution, of shape (n_columns, n_points)."""
        before = functional.pad(self.points, (1, -1))
        before[:, 0] = self.points[:, 0]
        after = functional.pad(self.points, (-1, 1))
        after[:, -1] = self.points[:, -1]
        return torch.lerp((before + self.points + after) / 3, self.points, self.atoms)

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
            In units.
        """
        return self.places_at(scores, p)[1]

    def places_at(self, scores: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return the number of the point of each score that is at an atom, -1 elsewhere, and what `units_at` gives."""
        tail, lower = torch.special.ndtr(-scores.abs()), scores <= 0
        below, above = self._masses(p)
        from_here = functional.pad(above, (1, -1), value=1.0)
        reached = torch.where(lower[..., None], below <= tail[..., None], from_here > tail[..., None])
        piece = self._piece(p, below, above, here := self._with_mass((reached.sum(-1) - 1).clamp(min=0)))
        near = torch.where(lower, piece.left, piece.right)
        far = torch.where(lower, piece.right, piece.left)
        rest = (tail - torch.where(lower, piece.below, piece.above)).clamp(min=0)
        rest = rest / piece.gap.clamp(min=LEAST_LENGTH)
        root = (near.square() + 2 * (far - near) * rest).clamp(min=LEAST_SQUARE).sqrt()
        way = (2 * rest / (near + root)).clamp(0, 1)
        moved = piece.start + piece.gap * torch.where(lower, way, 1 - way)
        return torch.where(piece.atom, here // 2, -1), torch.where(piece.atom, piece.start, moved)

    def _with_mass(self, here: Tensor) -> Tensor:
        """Return the nearest piece with a mass: what is after the last point has none, nor have atoms that are not."""
        last = 2 * self.n_points - 2
        here = here.minimum(last)
        point = here // 2
        gap = (2 * point + 1).minimum(last - 1).clamp(min=0)
        empty_atom = (here % 2 == 0) & (_own(self.atoms, point) == 0)
        here = torch.where(empty_atom, gap, here)
        return torch.where((here % 2 == 1) & self.discrete, here - 1, here)

    def _bin_of(self, units: Tensor) -> Tensor:
        """Return the number of each cell's piece: 2 k for the atom at point k, 2 k + 1 for what lies after it."""
        cells = units.mT.contiguous().to(self.points.dtype)
        last = self.n_points - 1
        nearest = torch.searchsorted(self.middles, cells, right=True).mT.minimum(last)
        gap = torch.searchsorted(self.points, cells, right=True).mT.sub(1).clamp(min=0).minimum((last - 1).clamp(min=0))
        point = _own(self.points, nearest)
        close = (units - point).abs() <= ROUND_OFF * point.abs().clamp(min=ROUND_OFF)
        atom = self.discrete | (close & (_own(self.atoms, nearest) > 0))
        return torch.where(atom, 2 * nearest, 2 * gap + 1)

    def _masses(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mass before and after each piece, of shape (n_rows, n_columns, 2 n_points), by two sums."""
        heights = p * self.steepness
        between = self.gaps * (heights + functional.pad(heights, (-1, 1))) / 2
        masses = torch.stack([p * self.atoms, between], -1).flatten(-2)
        below = functional.pad(masses.cumsum(-1), (1, -1))
        above = functional.pad(masses.flip(-1).cumsum(-1), (1, -1)).flip(-1)
        return below, above

    def _piece(self, p: Tensor, below: Tensor, above: Tensor, here: Tensor) -> _Bin:
        atom, point = here % 2 == 0, here // 2
        after = (point + 1).clamp(max=p.shape[-1] - 1)
        chance = _take(p, point)
        mass = chance * _own(self.atoms, point)
        left = torch.where(atom, mass, chance * _own(self.steepness, point))
        right = torch.where(atom, mass, _take(p, after) * _own(self.steepness, after))
        gap = torch.where(atom, 1.0, _own(self.gaps, point))
        return _Bin(atom, _own(self.points, point), gap, left, right, _take(below, here), _take(above, here))

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
    return many.expand(*here.shape, many.shape[-1]).gather(-1, here[..., None])[..., 0]


def _own(buffer: Tensor, here: Tensor) -> Tensor:
    """Return each cell's entry of a buffer of shape (n_columns, n_points)."""
    return buffer.gather(1, here.mT).mT
