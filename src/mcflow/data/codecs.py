"""From codes to the network's units and back: numbers on [0, 1], levels as a few noisy bits."""

from __future__ import annotations

__all__ = ["KnotScale", "LevelCode", "TableCodec", "check_ranges"]

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.errors import DataError
from mcflow.typing import Array, BoolArray, FloatArray

#: Levels up to which each has a place of its own; above, levels are written in binary.
MAX_PLACES = 16

#: Width of the uniform noise that turns a level's zeros and ones into a density, at most.
NOISE = 0.1

#: Distances from rows to levels that are held together.
DISTANCES_AT_ONCE = 1_000_000


@dataclass(frozen=True)
class KnotScale:
    """A rising map of numbers to [0, 1], straight between knots and beyond them.

    Parameters
    ----------
    x, u : ndarray of shape (n_knots,)
        Rising, at least two each.

    Examples
    --------
    >>> import numpy as np
    >>> scale = KnotScale.over_range(np.array([2.0, np.nan, 6.0]))
    >>> float(scale.encode(np.array([3.0]))[0]), float(scale.decode(np.array([0.25]))[0])
    (0.25, 3.0)
    """

    x: FloatArray
    u: FloatArray

    @classmethod
    def over_range(cls, values: FloatArray) -> KnotScale:
        """Map the observed minimum to 0 and the maximum to 1, as the paper does."""
        return cls(np.array([np.nanmin(values), np.nanmax(values)]), np.array([0.0, 1.0]))

    @classmethod
    def by_rank(cls, values: FloatArray, n_knots: int = 64) -> KnotScale:
        """Map observed values to their ranks: tails, outliers and heaps of one value take no more than their share.

        Parameters
        ----------
        values : ndarray of shape (n_rows,)
            NaN where missing.
        n_knots : int, default=64
            Knots at even ranks; they are observed values. In the first and the last piece more follow, each at half
            the rank, so that an outlier does not stretch the piece of all that lie beside it.
        """
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
        """Map by rank when a column is hard, that is when its middle fills little of its range, else over its range."""
        low, early, late, high = np.nanquantile(values, [0, 0.05, 0.95, 1])
        return cls.by_rank(values) if late - early < 0.25 * (high - low) else cls.over_range(values)

    def encode(self, values: FloatArray) -> FloatArray:
        """Map numbers to the unit scale; NaN stays NaN."""
        return _piecewise(values, self.x, self.u)

    def decode(self, scaled: FloatArray) -> FloatArray:
        """Undo `encode`."""
        return _piecewise(scaled, self.u, self.x)

    def log_slope(self, values: FloatArray) -> FloatArray:
        """Return the logarithm of the map's slope at each number."""
        piece = _pieces(values, self.x)
        slopes: FloatArray = np.log(np.diff(self.u)) - np.log(np.diff(self.x))
        return slopes[piece]


def _pieces(values: FloatArray, knots: FloatArray) -> Array:
    return np.clip(np.searchsorted(knots, values, "right") - 1, 0, len(knots) - 2)


def _piecewise(values: FloatArray, start: FloatArray, end: FloatArray) -> FloatArray:
    if len(start) == 2:
        straight: FloatArray = (values - start[0]) / (start[1] - start[0]) * (end[1] - end[0]) + end[0]
        return straight
    piece = _pieces(values, start)
    share = (values - start[piece]) / (start[piece + 1] - start[piece])
    mapped = end[piece] + share * (end[piece + 1] - end[piece])
    # Round-off must not carry a value past a knot: the next piece may be a million times as steep.
    floor = np.where(values >= start[0], end[piece], -np.inf)
    ceiling = np.where(values <= start[-1], end[piece + 1], np.inf)
    inside: FloatArray = np.clip(mapped, floor, ceiling)
    return inside


@dataclass(frozen=True)
class LevelCode:
    """A word of zeros and ones for each level.

    Parameters
    ----------
    n_levels : int
        Two levels and ordered ones take a single place, a few a place each, many as many as their number has bits.
    ordered : bool
        Whether the levels lie on a line.
    max_places : int
        Levels up to which each has a place of its own.
    """

    n_levels: int
    ordered: bool = False
    max_places: int = MAX_PLACES

    @cached_property
    def words(self) -> FloatArray:
        """The words, of shape (n_levels, n_places)."""
        count = self.n_levels
        if self.ordered or count == 2:
            return np.linspace(0, 1, count)[:, None]
        if count <= self.max_places:
            return np.eye(count)
        bits = 1 << np.arange(math.ceil(math.log2(count)))
        return ((np.arange(count)[:, None] & bits) > 0).astype(np.float64)

    @cached_property
    def noise(self) -> float:
        """Width of the noise: half the way from one word to the next where levels share a place, at most `NOISE`."""
        return min(NOISE, 0.5 / self.n_levels) if self.ordered else NOISE

    def encode(self, codes: FloatArray, noise: FloatArray | None = None) -> FloatArray:
        """Write codes as words.

        Parameters
        ----------
        codes : ndarray of shape (n_rows,)
            NaN gives a word of NaN.
        noise : ndarray of shape (n_rows, n_places), optional
            Uniform numbers for the noise; the middle when not given.

        Returns
        -------
        ndarray of shape (n_rows, n_places)
        """
        missing = np.isnan(codes)
        words = self.words[np.where(missing, 0, codes).astype(np.int64)]
        words = words * (1 - self.noise) + self.noise * (0.5 if noise is None else noise)
        words[missing] = np.nan
        return words

    def decode(self, words: FloatArray) -> FloatArray:
        """Return the code of the level whose word is nearest."""
        sharp = (words - self.noise / 2) / (1 - self.noise)
        norms = (self.words**2).sum(axis=1)
        parts = np.array_split(sharp, max(1, math.ceil(len(sharp) * self.n_levels / DISTANCES_AT_ONCE)))
        nearest = [np.argmin(norms - 2 * part @ self.words.T, axis=1) for part in parts]
        return np.concatenate(nearest).astype(np.float64)


class TableCodec:
    """The codes of all columns of a model, to and from the units of its networks.

    Parameters
    ----------
    columns : sequence of Column
        Those that the networks see.
    scales : sequence of KnotScale or None
        A scale for each column of numbers, None for columns of levels.
    max_places : int
        Levels up to which each has a place of its own.

    Attributes
    ----------
    owner : ndarray of shape (n_places,)
        Which column each of the networks' places belongs to.
    """

    def __init__(
        self, columns: Sequence[Column], scales: Sequence[KnotScale | None], max_places: int = MAX_PLACES
    ) -> None:
        self.columns = tuple(columns)
        self.scales = tuple(scales)
        self.coders = tuple(
            scale or LevelCode(len(column.levels), column.kind == "ordered", max_places)
            for column, scale in zip(columns, scales, strict=True)
        )
        sizes = [1 if isinstance(coder, KnotScale) else coder.words.shape[1] for coder in self.coders]
        ends = np.cumsum([0, *sizes])
        self.places = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self.owner = np.repeat(np.arange(len(sizes)), sizes)

    @classmethod
    def from_values(
        cls, values: FloatArray, columns: Sequence[Column], scaling: str = "range", max_places: int = MAX_PLACES
    ) -> TableCodec:
        """Fit the scales to observed values.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing; every column varies.
        columns : sequence of Column
            Theirs.
        scaling : {"range", "auto"}
            "range" is the paper's; "auto" maps hard columns by rank.
        max_places : int
            Levels up to which each has a place of its own.

        Returns
        -------
        TableCodec

        Raises
        ------
        DataError
            When a column spans more than a float64 can hold.
        """
        check_ranges(columns)
        scales: list[KnotScale | None] = []
        for k, column in enumerate(columns):
            if column.kind in LEVEL_KINDS:
                scales.append(None)
                continue
            scales.append((KnotScale.fitting if scaling == "auto" else KnotScale.over_range)(values[:, k]))
        return cls(columns, scales, max_places)

    @property
    def n_places(self) -> int:
        """Width of the networks."""
        return len(self.owner)

    def spread(self, cells: BoolArray) -> BoolArray:
        """Turn a mask over columns into one over the networks' places."""
        return cells[:, self.owner]

    def encode(self, values: FloatArray, rng: np.random.Generator | None = None) -> FloatArray:
        """Turn codes into network units.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes; NaN stays NaN.
        rng : numpy Generator, optional
            Draws the noise of levels; they stand in the middle of it when not given.

        Returns
        -------
        ndarray of shape (n_rows, n_places)
        """
        encoded = np.empty((len(values), self.n_places))
        for k, (coder, place) in enumerate(zip(self.coders, self.places, strict=True)):
            if isinstance(coder, KnotScale):
                encoded[:, place.start] = coder.encode(values[:, k])
            else:
                shape = (len(values), coder.words.shape[1])
                encoded[:, place] = coder.encode(values[:, k], None if rng is None else rng.random(shape))
        return encoded

    def decode(self, encoded: FloatArray) -> FloatArray:
        """Turn network units into codes: numbers by their scale, levels by the nearest word."""
        values = np.empty((len(encoded), len(self.columns)))
        for k, (coder, place) in enumerate(zip(self.coders, self.places, strict=True)):
            part = encoded[:, place]
            values[:, k] = coder.decode(part[:, 0] if isinstance(coder, KnotScale) else part)
        return values

    def log_slope(self, values: FloatArray) -> FloatArray:
        """Return, for each row, the logarithm of the volume that one unit of its numbers takes in network units."""
        total = np.zeros(len(values))
        for k, coder in enumerate(self.coders):
            if isinstance(coder, KnotScale):
                total += coder.log_slope(values[:, k])
        return total

    def box(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Turn bounds of codes into bounds of network units.

        Parameters
        ----------
        low, high : ndarray of shape (n_columns,)
            Infinite where open; levels are bound to [0, 1] whatever is given.

        Returns
        -------
        tuple of ndarray of shape (n_places,)
        """
        bounds = np.tile(np.array([[0.0], [1.0]]), self.n_places)
        for k, (coder, place) in enumerate(zip(self.coders, self.places, strict=True)):
            if isinstance(coder, KnotScale):
                ends = np.array([low[k], high[k]])
                finite = np.isfinite(ends)
                with np.errstate(over="ignore"):  # a bound that far out is open
                    ends[finite] = coder.encode(ends[finite])
                bounds[:, place.start] = ends
        return bounds[0], bounds[1]

    def tensors(self) -> dict[str, Array]:
        """Return the scales as arrays by name, for a file."""
        named = {f"scale.{k}": scale for k, scale in enumerate(self.scales) if scale is not None}
        return {name: np.stack((scale.x, scale.u)) for name, scale in named.items()}

    @classmethod
    def from_tensors(
        cls, columns: Sequence[Column], arrays: dict[str, Array], max_places: int = MAX_PLACES
    ) -> TableCodec:
        """Undo `tensors`."""
        found = [arrays.get(f"scale.{k}") for k in range(len(columns))]
        scales = [None if array is None else KnotScale(array[0], array[1]) for array in found]
        return cls(columns, scales, max_places)


def check_ranges(columns: Sequence[Column]) -> None:
    """Raise `DataError` when a column of numbers spans more than a float64 can hold.

    Parameters
    ----------
    columns : sequence of Column
        With their observed ranges.
    """
    for column in columns:
        if column.kind not in LEVEL_KINDS and not np.isfinite(column.high - column.low):
            raise DataError(
                f"Column {column.name!r} runs from {column.low:g} to {column.high:g}, a range that no float64 can "
                "hold. Divide the column by a constant first."
            )
