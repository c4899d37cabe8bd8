"""Encoding of codes for networks and linear models: numbers scaled to [0, 1], categories as noisy binary vectors."""

from __future__ import annotations

__all__ = ["KnotScale", "CategoryCode", "TableCodec", "check_ranges"]

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mcflow.columns.schema import CATEGORY_KINDS, Column
from mcflow.errors import DataError
from mcflow.typing import Array, BoolArray, FloatArray

MAX_ONE_HOT = 16  # maximum number of categories for one-hot encoding; columns with more are encoded in binary
NOISE = 0.1  # maximum width of the uniform noise that turns encoded categories into a density
MAX_NUMBER = 1e300  # largest absolute value of a number, far enough below the end of float64 for sums over a table
MAX_DISTANCES = 1_000_000  # maximum number of distances between rows and categories in memory


@dataclass(frozen=True)
class KnotScale:
    """Increasing piecewise linear map from numbers to [0, 1], extended linearly beyond the outermost knots."""

    x: FloatArray  # (n_knots,) knots in ascending order, at least two
    u: FloatArray  # (n_knots,) their values in [0, 1], ascending

    @classmethod
    def over_range(cls, values: FloatArray) -> KnotScale:
        """Map the observed minimum to 0 and the maximum to 1, as in the paper."""
        return cls(np.array([np.nanmin(values), np.nanmax(values)]), np.array([0.0, 1.0]))

    @classmethod
    def by_rank(cls, values: FloatArray, n_knots: int = 64) -> KnotScale:
        """Map observed values (n_rows,) to their ranks, so that tails, outliers and ties take only their share."""
        seen = np.sort(values[~np.isnan(values)])
        last = len(seen) - 1
        outer = 2 ** np.arange(math.ceil(math.log2(max(last / (n_knots - 1), 1))))
        ranks = np.concatenate([np.linspace(0, last, n_knots).round().astype(np.int64), outer, last - outer])
        x = np.unique(seen[ranks])
        below, upto = np.searchsorted(seen, x, "left"), np.searchsorted(seen, x, "right")
        rank = (below + upto) / 2
        return cls(x, (rank - rank[0]) / (rank[-1] - rank[0]))

    @classmethod
    def fitting(cls, values: FloatArray) -> KnotScale:
        """Map by rank if the central 90 % of the values cover little of the range, else linearly over the range."""
        low, early, late, high = np.nanquantile(values, [0, 0.05, 0.95, 1])
        return cls.by_rank(values) if late - early < 0.25 * (high - low) else cls.over_range(values)

    def encode(self, values: FloatArray) -> FloatArray:
        """Map numbers to the unit interval; NaN stays NaN."""
        return _piecewise(values, self.x, self.u)

    def decode(self, scaled: FloatArray) -> FloatArray:
        """Invert `encode`."""
        return _piecewise(scaled, self.u, self.x)

    def log_slope(self, values: FloatArray) -> FloatArray:
        """Return the logarithm of the slope of the map at each number."""
        slopes: FloatArray = np.log(np.diff(self.u)) - np.log(np.diff(self.x))
        return slopes[_pieces(values, self.x)]


def _pieces(values: FloatArray, knots: FloatArray) -> Array:
    return np.clip(np.searchsorted(knots, values, "right") - 1, 0, len(knots) - 2)


def _piecewise(values: FloatArray, start: FloatArray, end: FloatArray) -> FloatArray:
    if len(start) == 2:
        return np.asarray((values - start[0]) / (start[1] - start[0]) * (end[1] - end[0]) + end[0])
    piece = _pieces(values, start)
    share = (values - start[piece]) / (start[piece + 1] - start[piece])
    mapped = end[piece] + share * (end[piece + 1] - end[piece])
    # Round-off must not move a value past a knot: the next piece may be a million times steeper.
    floor = np.where(values >= start[0], end[piece], -np.inf)
    ceiling = np.where(values <= start[-1], end[piece + 1], np.inf)
    return np.asarray(np.clip(mapped, floor, ceiling))


@dataclass(frozen=True)
class CategoryCode:
    """Codewords of the categories of a column: one number if two or ordered, one-hot if few, otherwise binary."""

    n_categories: int
    ordered: bool = False  # whether the categories are ordered
    max_one_hot: int = MAX_ONE_HOT  # maximum number of categories for one-hot encoding

    @cached_property
    def codewords(self) -> FloatArray:
        """Codewords of the categories, (n_categories, n_places)."""
        count = self.n_categories
        if self.ordered or count == 2:
            return np.linspace(0, 1, count)[:, None]
        if count <= self.max_one_hot:
            return np.eye(count)
        bits = 1 << np.arange(math.ceil(math.log2(count)))
        return ((np.arange(count)[:, None] & bits) > 0).astype(np.float64)

    @cached_property
    def noise(self) -> float:
        """Width of the noise: at most `NOISE`, and at most half the distance between ordered categories."""
        return min(NOISE, 0.5 / self.n_categories) if self.ordered else NOISE

    def encode(self, codes: FloatArray, noise: FloatArray | None = None) -> FloatArray:
        """Encode codes (n_rows,) as codewords with noise in [0, 1], by default its mean; return (n_rows, n_places)."""
        missing = np.isnan(codes)
        encoded = self.codewords[np.where(missing, 0, codes).astype(np.int64)]
        encoded = encoded * (1 - self.noise) + self.noise * (0.5 if noise is None else noise)
        encoded[missing] = np.nan
        return encoded

    def decode(self, encoded: FloatArray) -> FloatArray:
        """Return the codes of the nearest codewords, (n_rows,)."""
        sharp = (encoded - self.noise / 2) / (1 - self.noise)
        norms = (self.codewords**2).sum(axis=1)
        parts = np.array_split(sharp, max(1, math.ceil(len(sharp) * self.n_categories / MAX_DISTANCES)))
        nearest = [np.argmin(norms - 2 * part @ self.codewords.T, axis=1) for part in parts]
        return np.concatenate(nearest).astype(np.float64)


class TableCodec:
    """Encoding of all columns of a model: a number takes one place of the encoded row, a category one or more."""

    def __init__(
        self, columns: Sequence[Column], scales: Sequence[KnotScale | None], max_one_hot: int = MAX_ONE_HOT
    ) -> None:
        self.columns = tuple(columns)
        self.scales = tuple(scales)
        self.coders = tuple(
            scale or CategoryCode(len(column.categories), column.kind == "ordered", max_one_hot)
            for column, scale in zip(columns, scales, strict=True)
        )
        sizes = [1 if isinstance(coder, KnotScale) else coder.codewords.shape[1] for coder in self.coders]
        ends = np.cumsum([0, *sizes])
        self.places = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self.owner = np.repeat(np.arange(len(sizes)), sizes)  # (n_places,) column of each place

    @classmethod
    def from_values(
        cls, values: FloatArray, columns: Sequence[Column], scaling: str = "range", max_one_hot: int = MAX_ONE_HOT
    ) -> TableCodec:
        """Fit the scales to the observed `values` (n_rows, n_columns)."""
        check_ranges(columns)
        fit = KnotScale.fitting if scaling == "auto" else KnotScale.over_range
        scales = [None if c.kind in CATEGORY_KINDS else fit(values[:, k]) for k, c in enumerate(columns)]
        return cls(columns, scales, max_one_hot)

    @property
    def n_places(self) -> int:
        """Width of an encoded row."""
        return len(self.owner)

    def spread(self, cells: BoolArray) -> BoolArray:
        """Expand a mask over columns to one over places."""
        return cells[:, self.owner]

    def encode(self, values: FloatArray, rng: np.random.Generator | None = None) -> FloatArray:
        """Encode codes (n_rows, n_columns), with random noise for categories if `rng` is given; (n_rows, n_places)."""
        encoded = np.empty((len(values), self.n_places))
        for k, (coder, place) in enumerate(zip(self.coders, self.places, strict=True)):
            if isinstance(coder, KnotScale):
                encoded[:, place.start] = coder.encode(values[:, k])
            else:
                shape = (len(values), coder.codewords.shape[1])
                encoded[:, place] = coder.encode(values[:, k], None if rng is None else rng.random(shape))
        return encoded

    def decode(self, encoded: FloatArray) -> FloatArray:
        """Decode rows (n_rows, n_places) into codes (n_rows, n_columns), categories by the nearest codeword."""
        values = np.empty((len(encoded), len(self.columns)))
        for k, (coder, place) in enumerate(zip(self.coders, self.places, strict=True)):
            part = encoded[:, place]
            values[:, k] = coder.decode(part[:, 0] if isinstance(coder, KnotScale) else part)
        return values

    def log_slope(self, values: FloatArray) -> FloatArray:
        """Return the log-determinant of the encoding of the numeric columns for each row, (n_rows,)."""
        total = np.zeros(len(values))
        for k, coder in enumerate(self.coders):
            if isinstance(coder, KnotScale):
                total += coder.log_slope(values[:, k])
        return total

    def box(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Encode bounds of codes (n_columns,) as bounds of places (n_places,)."""
        bounds = np.tile(np.array([[0.0], [1.0]]), self.n_places)
        for k, (coder, place) in enumerate(zip(self.coders, self.places, strict=True)):
            if isinstance(coder, KnotScale):
                ends = np.array([low[k], high[k]])
                finite = np.isfinite(ends)
                with np.errstate(over="ignore"):  # a bound beyond the range of float64 is no bound
                    ends[finite] = coder.encode(ends[finite])
                bounds[:, place.start] = ends
        return bounds[0], bounds[1]

    def tensors(self) -> dict[str, Array]:
        """Return the scales as named arrays for a model file."""
        return {f"scale.{k}": np.stack((s.x, s.u)) for k, s in enumerate(self.scales) if s is not None}

    @classmethod
    def from_tensors(
        cls, columns: Sequence[Column], arrays: dict[str, Array], max_one_hot: int = MAX_ONE_HOT
    ) -> TableCodec:
        """Build a codec from the result of `tensors`."""
        found = [arrays.get(f"scale.{k}") for k in range(len(columns))]
        scales = [None if array is None else KnotScale(array[0], array[1]) for array in found]
        return cls(columns, scales, max_one_hot)


def check_ranges(columns: Sequence[Column]) -> None:
    """Raise `DataError` when the range of a numeric column overflows float64."""
    for column in columns:
        if column.kind not in CATEGORY_KINDS and max(abs(column.low), abs(column.high)) > MAX_NUMBER:
            raise DataError(
                f"Column {column.name!r} ranges from {column.low:g} to {column.high:g}, and sums of such numbers "
                f"overflow float64. Numbers may have at most {MAX_NUMBER:g}. Divide the column by a constant first."
            )
