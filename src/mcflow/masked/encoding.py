"""Encoding of columns for H: units, knots of the inputs, points of the outputs and the distributions over them."""

from __future__ import annotations

__all__ = ["MAX_SCORE", "PointMarginals", "TableGrid"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mcflow.columns.schema import CATEGORY_KINDS, Column
from mcflow.typing import Array, FloatArray

MAX_PLACES = 256  # maximum number of points of a categorical column; the rarest categories share the last one
TRIM = 0.005  # fraction of the cells at each end that is clipped before mean and standard deviation are computed
ASINH_QUANTILE = 0.1  # quantile of the absolute values that becomes the unit of the asinh
MIN_ASINH_UNIT = 1e-9  # lower bound of that unit, relative to the largest absolute value
MIN_ASINH_SPREAD = 1e-6  # lower bound of the standard deviation of the asinh-transformed values
NEIGHBOUR_SHARE = 0.02  # relative frequency from which a value gets knots at its neighbours
POINT_SHARE = 0.033  # relative frequency from which a value is a point mass; such a value is always a point
TAILS = (0.001, 0.005, 0.01, 0.99, 0.995, 0.999)  # further quantiles used as points, for the tails of skewed columns
MAX_SCORE = 6.0  # largest absolute normal score
MIN_TAIL = 9.8659e-10  # probability beyond the largest score
MIN_DENSITY = 1e-12  # lower bound of a density or mass, also outside the points
MIN_LENGTH = 1e-12  # replaces a length of zero in a divisor
ROUND_OFF = 1e-5  # relative distance at which a cell still counts as being at a point
# arrays of every grid
NAMES = ("centre", "spread", "asinh_params", "knots", "points", "codes", "point_masses", "n_knots", "n_points")
CATEGORY_NAMES = ("places", "answers", "shares")  # arrays of each categorical column


@dataclass(frozen=True)
class TableGrid:
    """Units, knots and points of every column.

    Knots and points are observed values: all distinct ones of a column with few, otherwise quantiles. Units are
    computed in float64, so that their means agree with those of the codes at any scale.
    """

    # (n_columns,) the unit of a number is (code - centre) / spread, that of a category the index of its point
    centre: FloatArray
    spread: FloatArray
    # (n_columns, 4) parameters a, b, m, s of the transform (asinh(a u + b) - m) / s of a unit u, close to the logarithm
    # of large numbers, so that a ratio of columns becomes a difference; (0, 0, 0, 1) for categories
    asinh_params: FloatArray
    knots: FloatArray  # (n_columns, n_knots) in units, increasing, padded with the last one
    points: FloatArray  # (n_columns, n_points) in units, increasing, padded with the last one
    # (n_columns, n_points) the points as codes, exactly as they were read; the index for categories
    codes: FloatArray
    # (n_columns, n_points) fraction of each point's probability that is a point mass: 1 where all distinct values are
    # points, 0 where few cells share a value
    point_masses: FloatArray
    n_knots: Array  # (n_columns,) number of knots without padding
    n_points: Array  # (n_columns,) number of points without padding
    places: tuple[Array | None, ...]  # per categorical column, the point of every category
    answers: tuple[Array | None, ...]  # and the category of every point, the most frequent one where several share it
    shares: tuple[FloatArray | None, ...]  # and the relative frequency of every category at its point

    @classmethod
    def from_values(cls, values: FloatArray, columns: Sequence[Column], n_knots: int, n_points: int) -> TableGrid:
        """Choose the grid for a table of codes (n_rows, n_columns)."""
        centre, spread = np.zeros(len(columns)), np.ones(len(columns))
        asinh_params = np.tile([0.0, 0.0, 0.0, 1.0], (len(columns), 1))
        categories: list[tuple[Array, Array, FloatArray] | None] = [None] * len(columns)
        knots: list[FloatArray] = []
        points: list[FloatArray] = []
        codes: list[FloatArray] = []
        point_masses: list[FloatArray] = []
        for k, column in enumerate(columns):
            seen = np.sort(values[~np.isnan(values[:, k]), k])
            if column.kind in CATEGORY_KINDS:
                categories[k] = here = _category_places(seen, len(column.categories))
                knots.append(np.arange(float(len(here[1]))))
                points.append(knots[-1])
                codes.append(knots[-1])
                point_masses.append(np.ones(len(codes[-1])))
                continue
            centre[k], spread[k] = _centre_and_spread(seen)
            asinh_params[k] = _asinh_params(seen, centre[k], spread[k])
            units = (seen - centre[k]) / spread[k]
            knots.append(_with_neighbours(units, _some_of(units, n_knots)) if n_knots > 1 else units[:1])
            codes.append(_some_of(seen, n_points, TAILS))
            point_masses.append(_point_mass_shares(seen, codes[-1]))
            points.append((codes[-1] - centre[k]) / spread[k])
        padded_knots, own_knots = _padded(knots)
        padded_points, own_points = _padded(points)
        all_codes, all_masses = _padded(codes)[0], _padded(point_masses, mode="constant")[0]
        by_name = (tuple(found and found[part] for found in categories) for part in range(3))
        points_of = (padded_knots, padded_points, all_codes, all_masses, own_knots, own_points)
        return cls(centre, spread, asinh_params, *points_of, *by_name)

    def units(self, values: FloatArray) -> FloatArray:
        """Convert codes to units; NaN stays NaN."""
        units: FloatArray = (values - self.centre) / self.spread
        for k, places in enumerate(self.places):
            if places is not None:
                seen = ~np.isnan(values[:, k])
                units[seen, k] = places[values[seen, k].astype(np.int64)]
        return units

    def codes_of(self, units: FloatArray) -> FloatArray:
        """Convert units to codes."""
        codes: FloatArray = units * self.spread + self.centre
        for k, answers in enumerate(self.answers):
            if answers is not None:
                codes[:, k] = answers[units[:, k].astype(np.int64)]
        return codes

    @property
    def n_categories(self) -> dict[int, int]:
        """Number of categories of each categorical column."""
        return {k: len(places) for k, places in enumerate(self.places) if places is not None}

    def marginals(self, device: torch.device) -> PointMarginals:
        """Return the marginal distributions of the columns over their points."""
        points, n_points = torch.from_numpy(self.points), torch.from_numpy(self.n_points)
        return PointMarginals(points, n_points, torch.from_numpy(self.point_masses)).to(device)

    def tensors(self) -> dict[str, Array]:
        """Return arrays by name, for a model file."""
        arrays: dict[str, Array] = {f"grid.{name}": getattr(self, name) for name in NAMES}
        for name in CATEGORY_NAMES:
            found = getattr(self, name)
            arrays |= {f"grid.{name}.{k}": array for k, array in enumerate(found) if array is not None}
        return arrays

    @classmethod
    def from_tensors(cls, arrays: dict[str, Array]) -> TableGrid:
        """Undo `tensors`."""
        parts = {name: arrays[f"grid.{name}"] for name in NAMES}
        categories = {
            name: tuple(arrays.get(f"grid.{name}.{k}") for k in range(len(parts["centre"]))) for name in CATEGORY_NAMES
        }
        return cls(**parts, **categories)  # type: ignore[arg-type]


def _centre_and_spread(seen: FloatArray) -> tuple[float, float]:
    """Return mean and standard deviation of the clipped cells, or of all cells where the clipped ones are equal."""
    scale = max(abs(seen[0]), abs(seen[-1]))  # squares of very large or small numbers would not be numbers
    small = seen / scale
    inner = np.clip(small, *np.quantile(small, [TRIM, 1 - TRIM]))
    if inner.std() <= 1e-9 * max(abs(inner[0]), abs(inner[-1])):
        inner = small
    return float(inner.mean() * scale), float(inner.std() * scale)


def _asinh_params(seen: FloatArray, centre: float, spread: float) -> FloatArray:
    """Return the asinh parameters of a column, with a unit that most absolute values exceed."""
    sizes = np.abs(seen[seen != 0])
    small = max(np.quantile(sizes, ASINH_QUANTILE), MIN_ASINH_UNIT * sizes.max())
    read = np.arcsinh(seen / small)
    return np.array([spread / small, centre / small, read.mean(), max(read.std(), MIN_ASINH_SPREAD)])


def _some_of(seen: FloatArray, most: int, others: tuple[float, ...] = ()) -> FloatArray:
    """Return the distinct values when they are few, else evenly spaced and other quantiles that are observed values."""
    distinct = np.unique(seen)
    if len(distinct) <= most:
        return distinct
    return np.unique(np.quantile(seen, [*np.linspace(0, 1, most), *others], method="nearest"))


def _point_mass_shares(seen: FloatArray, points: FloatArray) -> FloatArray:
    """Return the fraction of each point's cells at exactly its value; a cell between two points belongs to both."""
    distinct, counts = np.unique(seen, return_counts=True)
    if len(distinct) == len(points):
        return np.ones(len(points))
    above = np.clip(np.searchsorted(points, distinct, side="right"), 1, len(points) - 1)
    share = (distinct - points[above - 1]) / (points[above] - points[above - 1])
    near = np.bincount(above, counts * share, len(points)) + np.bincount(above - 1, counts * (1 - share), len(points))
    exact = counts[np.searchsorted(distinct, points)]
    point_masses: FloatArray = np.where(exact >= POINT_SHARE * len(seen), exact / np.maximum(near, 1e-12), 0.0)
    return np.minimum(point_masses, 1.0)


def _with_neighbours(seen: FloatArray, knots: FloatArray) -> FloatArray:
    """Add the neighbours of frequent values to the knots, so that H can tell the value from those near it."""
    distinct, counts = np.unique(seen, return_counts=True)
    if len(distinct) == len(knots):
        return knots
    frequent = np.flatnonzero(counts >= NEIGHBOUR_SHARE * len(seen))
    near = np.concatenate([frequent - 1, frequent, frequent + 1])
    return np.union1d(knots, distinct[near[(near >= 0) & (near < len(distinct))]])


def _category_places(seen: FloatArray, n_categories: int) -> tuple[Array, Array, FloatArray]:
    """Return the point of each category, the category of each point, and each category's frequency at its point."""
    if n_categories <= MAX_PLACES:
        return np.arange(n_categories), np.arange(n_categories), np.ones(n_categories)
    counts = np.bincount(seen.astype(np.int64), minlength=n_categories).astype(np.float64)
    answers = np.argsort(-counts, kind="stable")[:MAX_PLACES]
    places = np.full(n_categories, MAX_PLACES - 1)
    places[answers] = np.arange(MAX_PLACES)
    counts += 1e-9  # categories that were not observed share the rest evenly
    return places, answers, counts / np.bincount(places, weights=counts)[places]


def _padded(lists: list[FloatArray], mode: Literal["edge", "constant"] = "edge") -> tuple[FloatArray, Array]:
    longest = max((len(values) for values in lists), default=0)
    padded = np.array([np.pad(values, (0, longest - len(values)), mode=mode) for values in lists])
    return padded.reshape(len(lists), longest), np.array([len(values) for values in lists], dtype=np.int64)


class _Part(NamedTuple):
    """The part of its column's distribution that contains a cell, each of shape (n_rows, n_columns)."""

    point_mass: Tensor  # whether the part is a point mass
    start: Tensor  # its lower end, in units
    gap: Tensor  # its length; 1 for a point mass
    left: Tensor  # density at the lower end; the mass of a point mass
    right: Tensor  # density at the upper end; the mass of a point mass
    below: Tensor  # probability below the part
    above: Tensor  # probability above the part


class PointMarginals(nn.Module):
    r"""Marginal distributions of cells: densities over the points of their columns, with exact CDF and inverse.

    The probability :math:`p_k` of a point is split into a point mass :math:`a_k p_k` at the point itself and a triangle
    of area :math:`(1 - a_k) p_k` over the two intervals beside it (one at the ends). The triangles add up to a density
    that is linear between points, with the heights

    .. math:: f_k = \frac{2 (1 - a_k) p_k}{x_{k+1} - x_{k-1}}, \qquad x_{-1} = x_0, \quad x_n = x_{n-1}

    The normal score of a cell is :math:`e = \Phi^{-1}(F(x))`; the cumulative distribution function F is quadratic
    between points. Within a point mass, a uniform number v selects the score: :math:`F(k-) + v a_k p_k`. Probabilities
    are accumulated from the nearer end, so that float32 is accurate in both tails. Scores are clipped to ±6. Densities
    and masses are at least 1e-12, also outside the outermost points. In a column with point masses only, a cell counts
    as being at the nearest one.
    """

    points: Tensor  # (n_columns, n_points) in units, increasing, padded with the last one
    n_points: Tensor  # (n_columns,) number of points without padding
    # (n_columns,) or (n_columns, n_points) the fractions :math:`a_k`: True or 1 for a column whose cells are always at
    # its points, between 0 and 1 for points that many cells share, 0 elsewhere. A single point is always a point mass.
    point_masses: Tensor
    gaps: Tensor
    steepness: Tensor
    middles: Tensor

    def __init__(self, points: Tensor, n_points: Tensor, point_masses: Tensor) -> None:
        super().__init__()
        points = points.float().contiguous()
        own = torch.arange(points.shape[1], device=points.device) < n_points[:, None]
        point_masses = (point_masses[:, None] if point_masses.ndim == 1 else point_masses).float().expand(points.shape)
        point_masses = torch.where(n_points[:, None] < 2, 1.0, point_masses) * own
        gaps = functional.pad(points.diff(dim=1), (0, 1))
        widths = gaps + functional.pad(gaps, (1, -1))
        steepness = torch.where(widths > 0, 2 / widths.clamp(min=MIN_LENGTH), 0.0)
        middles = points[:, :-1] / 2 + points[:, 1:] / 2
        self.register_buffer("points", points)
        self.register_buffer("n_points", n_points)
        self.register_buffer("point_masses", point_masses.contiguous())
        self.register_buffer("gaps", gaps, persistent=False)
        self.register_buffer("steepness", steepness * (1 - point_masses) * own, persistent=False)
        self.register_buffer("middles", middles.contiguous(), persistent=False)

    @property
    def discrete(self) -> Tensor:
        """Whether the cells of each column are always at its points, of shape (n_columns,)."""
        return (self.steepness == 0).all(1)

    def log_density(self, units: Tensor, p: Tensor) -> Tensor:
        """Return the log-density of each cell, or its log-probability at a point mass.

        Shapes: `units` (n_rows, n_columns), `p` (n_rows, n_columns, n_points), returns (n_rows, n_columns).
        """
        part = self._part(p, *self._masses(p), self._part_of(units))
        t = _share(units, part.start, part.gap)
        return self._log_height(units, torch.lerp(part.left, part.right, t))

    def scores(self, units: Tensor, p: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Return the normal scores of cells, and the log-derivative of the inverse map.

        Shapes: `units` (n_rows, n_columns), `p` (n_rows, n_columns, n_points), `uniforms` (n_rows, n_columns),
        returns (n_rows, n_columns), (n_rows, n_columns).
        """
        part = self._part(p, *self._masses(p), self._part_of(units))
        t = torch.where(part.point_mass, uniforms, _share(units, part.start, part.gap))
        s, rise = 1 - t, (part.right - part.left) / 2
        low = part.below + part.gap * t * (part.left + rise * t)
        high = part.above + part.gap * s * (part.right - rise * s)
        tail = torch.minimum(low, high).clamp(min=MIN_TAIL)
        scores = torch.special.ndtri(tail) * torch.where(low < high, 1.0, -1.0)
        log_height = self._log_height(units, torch.lerp(part.left, part.right, t))
        return scores, log_height + 0.5 * (scores.square() + math.log(2 * math.pi))

    def at(self, columns: Tensor) -> PointMarginals:
        """Return the distributions of single cells, of shape (n_cells,), as those of one row with as many columns."""
        return PointMarginals(self.points[columns], self.n_points[columns], self.point_masses[columns])

    def at_point_masses(self, units: Tensor) -> Tensor:
        """Return which cells are at a point mass, of shape (n_rows, n_columns)."""
        return self._part_of(units) % 2 == 0

    def means(self) -> Tensor:
        """Return the mean of each point's part of the distribution, of shape (n_columns, n_points)."""
        before = functional.pad(self.points, (1, -1))
        before[:, 0] = self.points[:, 0]
        after = functional.pad(self.points, (-1, 1))
        after[:, -1] = self.points[:, -1]
        return torch.lerp((before + self.points + after) / 3, self.points, self.point_masses)

    def places_at(self, scores: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return the index of each score's point if it is at a point mass, else -1, and its units, as of `scores`."""
        tail, lower = torch.special.ndtr(-scores.abs()), scores <= 0
        below, above = self._masses(p)
        from_here = functional.pad(above, (1, -1), value=1.0)
        reached = torch.where(lower[..., None], below <= tail[..., None], from_here > tail[..., None])
        part = self._part(p, below, above, here := self._with_mass((reached.sum(-1) - 1).clamp(min=0)))
        near = torch.where(lower, part.left, part.right)
        far = torch.where(lower, part.right, part.left)
        rest = (tail - torch.where(lower, part.below, part.above)).clamp(min=0)
        rest = rest / part.gap.clamp(min=MIN_LENGTH)
        root = (near.square() + 2 * (far - near) * rest).clamp(min=1e-30).sqrt()
        way = (2 * rest / (near + root)).clamp(0, 1)
        moved = part.start + part.gap * torch.where(lower, way, 1 - way)
        return torch.where(part.point_mass, here // 2, -1), torch.where(part.point_mass, part.start, moved)

    def _with_mass(self, here: Tensor) -> Tensor:
        """Replace parts without probability by the nearest part that has some."""
        last = 2 * self.n_points - 2
        here = here.minimum(last)
        point = here // 2
        gap = (2 * point + 1).minimum(last - 1).clamp(min=0)
        empty_mass = (here % 2 == 0) & (_own(self.point_masses, point) == 0)
        here = torch.where(empty_mass, gap, here)
        return torch.where((here % 2 == 1) & self.discrete, here - 1, here)

    def _part_of(self, units: Tensor) -> Tensor:
        """Return the index of each cell's part: 2 k for the point mass at point k, 2 k + 1 for the gap after it."""
        cells = units.mT.contiguous().to(self.points.dtype)
        last = self.n_points - 1
        nearest = torch.searchsorted(self.middles, cells, right=True).mT.minimum(last)
        gap = torch.searchsorted(self.points, cells, right=True).mT.sub(1).clamp(min=0).minimum((last - 1).clamp(min=0))
        point = _own(self.points, nearest)
        close = (units - point).abs() <= ROUND_OFF * point.abs().clamp(min=ROUND_OFF)
        point_mass = self.discrete | (close & (_own(self.point_masses, nearest) > 0))
        return torch.where(point_mass, 2 * nearest, 2 * gap + 1)

    def _masses(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probability below and above each part, of shape (n_rows, n_columns, 2 n_points)."""
        heights = p * self.steepness
        between = self.gaps * (heights + functional.pad(heights, (-1, 1))) / 2
        masses = torch.stack([p * self.point_masses, between], -1).flatten(-2)
        below = functional.pad(masses.cumsum(-1), (1, -1))
        above = functional.pad(masses.flip(-1).cumsum(-1), (1, -1)).flip(-1)
        return below, above

    def _part(self, p: Tensor, below: Tensor, above: Tensor, here: Tensor) -> _Part:
        point_mass, point = here % 2 == 0, here // 2
        after = (point + 1).clamp(max=p.shape[-1] - 1)
        probability = _take(p, point)
        mass = probability * _own(self.point_masses, point)
        left = torch.where(point_mass, mass, probability * _own(self.steepness, point))
        right = torch.where(point_mass, mass, _take(p, after) * _own(self.steepness, after))
        gap = torch.where(point_mass, 1.0, _own(self.gaps, point))
        return _Part(point_mass, _own(self.points, point), gap, left, right, _take(below, here), _take(above, here))

    def _log_height(self, units: Tensor, height: Tensor) -> Tensor:
        first, last = self.points[:, 0], self.points[:, -1]
        room = ROUND_OFF * torch.maximum(first.abs(), last.abs())
        outside = (units < first - room) | (units > last + room)
        return height.masked_fill(outside & ~self.discrete, 0.0).clamp(min=MIN_DENSITY).log()


def _share(units: Tensor, start: Tensor, gap: Tensor) -> Tensor:
    """Return the fraction of its part that lies below a cell."""
    return ((units - start) / gap.clamp(min=MIN_LENGTH)).clamp(0, 1)


def _take(many: Tensor, here: Tensor) -> Tensor:
    """Return the entry of each cell at index `here` of the last dimension."""
    return many.expand(*here.shape, many.shape[-1]).gather(-1, here[..., None])[..., 0]


def _own(buffer: Tensor, here: Tensor) -> Tensor:
    """Return the entry of each cell at index `here` of a buffer (n_columns, n_points)."""
    return buffer.gather(1, here.mT).mT
