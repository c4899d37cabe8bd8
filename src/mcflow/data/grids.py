"""What a network reads a column by and answers with: knots between its values, and points that it may be at."""

from __future__ import annotations

__all__ = ["TableGrid"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.typing import Array, FloatArray

#: Places of a column of levels; the rarest of more levels share the last one.
MAX_PLACES = 256

#: Share of the cells at each end that is drawn in before the spread of a column is taken.
TRIM = 0.005


#: Share of the cells that are small in the second reading of a column, how small beside the largest a small one may be,
#: and the least spread of the reading.
SMALL, SMALLEST, LEAST_SPREAD = 0.1, 1e-9, 1e-6

#: Share of a column's cells with one value from which that value is an atom.
ATOM_SHARE = 0.02

#: Share of a column's cells with one value from which a cell may be at exactly that value; among even quantiles such a
#: value is always a point.
POINT_SHARE = 0.033

#: Quantiles that are points beside the even ones: the tails of long-tailed columns are wide.
TAILS = (0.001, 0.005, 0.01, 0.99, 0.995, 0.999)

#: The arrays that every grid has, and those that each column of levels has.
NAMES = ("centre", "spread", "bends", "knots", "points", "codes", "atoms", "n_knots", "n_points")
LEVEL_NAMES = ("places", "answers", "shares")


@dataclass(frozen=True)
class TableGrid:
    """Units, knots and points of every column.

    Parameters
    ----------
    centre, spread : ndarray of shape (n_columns,)
        A number's unit is (code - centre) / spread; a level's is its place among the points.
    bends : ndarray of shape (n_columns, 4)
        Numbers a, b, m and s of a second reading of a unit u, (arsinh(a u + b) - m) / s: nearly the logarithm of a
        large number, so that a ratio of two columns is a difference. All zero but s for levels.
    knots : ndarray of shape (n_columns, n_knots)
        In units, rising, the last repeated where a column has fewer.
    points : ndarray of shape (n_columns, n_points)
        Values that a cell may be at, in units, likewise.
    codes : ndarray of shape (n_columns, n_points)
        The same as codes, to the last bit as they were read; the place for levels.
    atoms : ndarray of shape (n_columns, n_points)
        The share of each point's cells that are at exactly this value: 1 where all distinct values are points, 0 where
        few cells share a value.
    n_knots, n_points : ndarray of shape (n_columns,)
        How many of them are the column's own.
    places : tuple of (ndarray or None)
        For each column of levels, the place of every level among the points.
    answers : tuple of (ndarray or None)
        And the level at each point: the commonest one where several share it.
    shares : tuple of (ndarray or None)
        And the share of each level in what is seen at its place.

    Notes
    -----
    Knots and points are observed values: all of them where a column has few, otherwise quantiles. Means of units are
    within round-off of means of codes whatever the scale, since the units are taken in float64.
    """

    centre: FloatArray
    spread: FloatArray
    bends: FloatArray
    knots: FloatArray
    points: FloatArray
    codes: FloatArray
    atoms: FloatArray
    n_knots: Array
    n_points: Array
    places: tuple[Array | None, ...]
    answers: tuple[Array | None, ...]
    shares: tuple[FloatArray | None, ...]

    @classmethod
    def from_values(cls, values: FloatArray, columns: Sequence[Column], n_knots: int, n_points: int) -> TableGrid:
        """Read the grid off a table.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing; every column varies.
        columns : sequence of Column
            Theirs.
        n_knots, n_points : int
            Of each column, at most; levels have a place each up to `MAX_PLACES`.

        Returns
        -------
        TableGrid
        """
        centre, spread = np.zeros(len(columns)), np.ones(len(columns))
        bends = np.tile([0.0, 0.0, 0.0, 1.0], (len(columns), 1))
        levels: list[tuple[Array, Array, FloatArray] | None] = [None] * len(columns)
        knots: list[FloatArray] = []
        points: list[FloatArray] = []
        codes: list[FloatArray] = []
        atoms: list[FloatArray] = []
        for k, column in enumerate(columns):
            seen = np.sort(values[~np.isnan(values[:, k]), k])
            if column.kind in LEVEL_KINDS:
                levels[k] = here = _level_places(seen, len(column.levels))
                knots.append(np.arange(float(len(here[1]))))
                points.append(knots[-1])
                codes.append(knots[-1])
                atoms.append(np.ones(len(codes[-1])))
                continue
            centre[k], spread[k] = _centre_and_spread(seen)
            bends[k] = _bend(seen, centre[k], spread[k])
            units = (seen - centre[k]) / spread[k]
            knots.append(_with_atoms(units, _some_of(units, n_knots)) if n_knots > 1 else units[:1])
            codes.append(_some_of(seen, n_points, TAILS))
            atoms.append(_atom_shares(seen, codes[-1]))
            points.append((codes[-1] - centre[k]) / spread[k])
        padded_knots, own_knots = _padded(knots)
        padded_points, own_points = _padded(points)
        all_codes, all_atoms = _padded(codes)[0], _padded(atoms, mode="constant")[0]
        by_name = (tuple(found and found[part] for found in levels) for part in range(3))
        points_of = (padded_knots, padded_points, all_codes, all_atoms, own_knots, own_points)
        return cls(centre, spread, bends, *points_of, *by_name)

    @property
    def discrete(self) -> Array:
        """Tell which columns can be at their points only, of shape (n_columns,)."""
        found: Array = (self.atoms == 1).sum(axis=1) == self.n_points
        return found

    def units(self, values: FloatArray) -> FloatArray:
        """Turn codes into units; NaN stays NaN."""
        units: FloatArray = (values - self.centre) / self.spread
        for k, places in enumerate(self.places):
            if places is not None:
                seen = ~np.isnan(values[:, k])
                units[seen, k] = places[values[seen, k].astype(np.int64)]
        return units

    def numbers(self, units: FloatArray) -> FloatArray:
        """Turn units of numbers back into codes; columns of levels come out as they are."""
        codes: FloatArray = units * self.spread + self.centre
        return codes

    def tensors(self) -> dict[str, Array]:
        """Return arrays by name, for a file."""
        arrays: dict[str, Array] = {f"grid.{name}": getattr(self, name) for name in NAMES}
        for name in LEVEL_NAMES:
            found = getattr(self, name)
            arrays |= {f"grid.{name}.{k}": array for k, array in enumerate(found) if array is not None}
        return arrays

    @classmethod
    def from_tensors(cls, arrays: dict[str, Array]) -> TableGrid:
        """Undo `tensors`."""
        parts = {name: arrays[f"grid.{name}"] for name in NAMES}
        levels = {
            name: tuple(arrays.get(f"grid.{name}.{k}") for k in range(len(parts["centre"]))) for name in LEVEL_NAMES
        }
        return cls(**parts, **levels)  # type: ignore[arg-type]


def _centre_and_spread(seen: FloatArray) -> tuple[float, float]:
    """Return mean and standard deviation without the outermost cells, or with them where all others are equal."""
    scale = max(abs(seen[0]), abs(seen[-1]))  # squares of very large or small numbers would not be numbers
    small = seen / scale
    inner = np.clip(small, *np.quantile(small, [TRIM, 1 - TRIM]))
    if inner.std() <= 1e-9 * max(abs(inner[0]), abs(inner[-1])):
        inner = small
    return float(inner.mean() * scale), float(inner.std() * scale)


def _bend(seen: FloatArray, centre: float, spread: float) -> FloatArray:
    """Return the numbers of a column's second reading; most of its values are large beside the unit of the arsinh."""
    sizes = np.abs(seen[seen != 0])
    small = max(np.quantile(sizes, SMALL), SMALLEST * sizes.max())
    read = np.arcsinh(seen / small)
    return np.array([spread / small, centre / small, read.mean(), max(read.std(), LEAST_SPREAD)])


def _some_of(seen: FloatArray, most: int, others: tuple[float, ...] = ()) -> FloatArray:
    """Return the distinct values when they are few, else even quantiles and some others that are values themselves."""
    distinct = np.unique(seen)
    if len(distinct) <= most:
        return distinct
    return np.unique(np.quantile(seen, [*np.linspace(0, 1, most), *others], method="nearest"))


def _atom_shares(seen: FloatArray, points: FloatArray) -> FloatArray:
    """Return which share of each point's cells is at exactly its value; a cell between two points belongs to both."""
    distinct, counts = np.unique(seen, return_counts=True)
    if len(distinct) == len(points):
        return np.ones(len(points))
    above = np.clip(np.searchsorted(points, distinct, side="right"), 1, len(points) - 1)
    share = (distinct - points[above - 1]) / (points[above] - points[above - 1])
    near = np.bincount(above, counts * share, len(points)) + np.bincount(above - 1, counts * (1 - share), len(points))
    exact = counts[np.searchsorted(distinct, points)]
    atoms: FloatArray = np.where(exact >= POINT_SHARE * len(seen), exact / np.maximum(near, 1e-12), 0.0)
    return np.minimum(atoms, 1.0)


def _with_atoms(seen: FloatArray, knots: FloatArray) -> FloatArray:
    """Add the neighbours of values that many cells share, so that the value itself stands apart from those near it."""
    distinct, counts = np.unique(seen, return_counts=True)
    if len(distinct) == len(knots):
        return knots
    atoms = np.flatnonzero(counts >= ATOM_SHARE * len(seen))
    near = np.concatenate([atoms - 1, atoms, atoms + 1])
    return np.union1d(knots, distinct[near[(near >= 0) & (near < len(distinct))]])


def _level_places(seen: FloatArray, n_levels: int) -> tuple[Array, Array, FloatArray]:
    """Return each level's place, each place's level, and each level's share of its place."""
    if n_levels <= MAX_PLACES:
        return np.arange(n_levels), np.arange(n_levels), np.ones(n_levels)
    counts = np.bincount(seen.astype(np.int64), minlength=n_levels).astype(np.float64)
    answers = np.argsort(-counts, kind="stable")[:MAX_PLACES]
    places = np.full(n_levels, MAX_PLACES - 1)
    places[answers] = np.arange(MAX_PLACES)
    counts += 1e-9  # levels that were not seen share evenly what is left
    return places, answers, counts / np.bincount(places, weights=counts)[places]


def _padded(lists: list[FloatArray], mode: Literal["edge", "constant"] = "edge") -> tuple[FloatArray, Array]:
    longest = max((len(values) for values in lists), default=0)
    padded = np.array([np.pad(values, (0, longest - len(values)), mode=mode) for values in lists])
    return padded.reshape(len(lists), longest), np.array([len(values) for values in lists], dtype=np.int64)
