"""When a factored density gives the draws of a small table, for which columns, and how."""

from __future__ import annotations

__all__ = ["FactoredCells"]

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from mcflow.data.codecs import TableCodec
from mcflow.data.constraints import fold
from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.masks.normal import NormalModel
from mcflow.random import cell_uniforms
from mcflow.training.factored import FactoredModel
from mcflow.typing import Array, BoolArray, FloatArray

#: Rows and columns of a table for which there is such a density, and levels of a column and of all columns together.
FEWEST_ROWS, MOST_COLUMNS, MOST_LEVELS, MOST_TOGETHER = 50, 12, 10, 30

#: Sweeps of a draw.
DRAW_SWEEPS = 25

#: Members of H by whose held-out cells it is judged, at most, and the logarithm of the largest odds of one cell.
JUDGES, LARGEST_ODDS = 3, 10.0

#: The probability of being the likelier one above which it is used, and below which a column is left out: held-out
#: cells have to speak against it clearly, as a mean of densities over few sweeps states a little less than there is.
LEAST_CHANCE, LEAST_COLUMN_CHANCE = 0.01, 0.001

#: Where the numbers of random draws begin: of the sweeps, after those of other draws, and of where sweeps start.
FIRST_SWEEP, FIRST_START = 3, 1 << 20


class FactoredCells:
    """A factored density of a table, where its sweeps start, and the columns whose cells are drawn from it.

    Parameters
    ----------
    model : FactoredModel
        Of codes.
    codec : TableCodec
        Of the normal.
    normal : NormalModel
        From which sweeps start.
    used : ndarray of bool of shape (n_columns,)
        The columns.
    """

    def __init__(self, model: FactoredModel, codec: TableCodec, normal: NormalModel, used: BoolArray) -> None:
        self.model, self.codec, self.normal, self.used = model, codec, normal, used

    @classmethod
    def fit(
        cls, values: FloatArray, codec: TableCodec, rng: np.random.Generator, deadline: float | None = None
    ) -> FactoredCells | None:
        """Learn the density of a table, if it is small and would be more than a multivariate normal.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.
        codec : TableCodec
            Of the normal from which it starts.
        rng : numpy Generator
            Draws cells and parameters.
        deadline : float, optional
            On the clock of `time.perf_counter`.

        Returns
        -------
        FactoredCells or None
        """
        sizes = _sizes(codec.columns)
        values = values[~np.isnan(values).all(axis=1)]
        if not _suits(len(values), sizes):
            return None
        normal = NormalModel.fit(codec.encode(values))
        start = _completed(values, codec, normal, rng.normal(size=(len(values), codec.n_places)))
        try:
            model = FactoredModel.fit(values, start, sizes, rng, deadline=deadline)
        except np.linalg.LinAlgError:  # columns that follow from one another; the normal is there for these
            return None
        return None if model is None else cls(model, codec, normal, np.ones(len(sizes), dtype=bool))

    def judge(
        self,
        values: FloatArray,
        held: BoolArray,
        stated: Sequence[FloatArray],
        plain: BoolArray,
        rng: np.random.Generator,
    ) -> bool:
        """Decide by held-out cells whether to use the density, and for which columns.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.
        held : ndarray of bool of shape (n_members, n_rows, n_columns)
            Cells that were held out, for each member of H.
        stated : sequence of ndarray of shape (n_held_cells,)
            Log-densities of their truth by what is drawn from otherwise, in the units of the codes, for each member.
        plain : ndarray of bool of shape (n_columns,)
            Columns that may be drawn from it: levels, and numbers that few cells share.
        rng : numpy Generator
            Draws cells and parameters.

        Returns
        -------
        bool
            Whether it is used at all.
        """
        ahead, columns = [], []
        for cells, others in zip(held[:JUDGES], stated, strict=False):
            hole = np.where(cells, np.nan, values)
            start = _completed(hole, self.codec, self.normal, rng.normal(size=(len(hole), self.codec.n_places)))
            found = self.model.judge(values, start, cells, rng)
            ahead.append(np.clip(found - others, -LARGEST_ODDS, LARGEST_ODDS))
            columns.append(cells.nonzero()[1])
        odds, of = np.concatenate(ahead), np.concatenate(columns)
        worse = [_chance(odds[of == k]) < LEAST_COLUMN_CHANCE for k in range(len(plain))]
        self.used = plain & ~np.array(worse)
        asked = self.used & np.isnan(values).any(axis=0)  # what is never missing need not be drawn
        return bool(asked.any()) and _chance(odds[asked[of]]) > LEAST_CHANCE

    def follow(self, values: FloatArray, seed: int) -> FactoredCells | None:
        """Return the same of other rows of the table."""
        rng = np.random.default_rng(seed)
        values = values[~np.isnan(values).all(axis=1)]
        normal = NormalModel.fit(self.codec.encode(values))
        start = _completed(values, self.codec, normal, rng.normal(size=(len(values), self.codec.n_places)))
        try:
            return FactoredCells(self.model.again(values, start, rng), self.codec, normal, self.used)
        except np.linalg.LinAlgError:
            return None

    def complete(
        self, values: FloatArray, hashes: Array, number: int, box: tuple[FloatArray, FloatArray]
    ) -> FloatArray:
        """Draw the missing cells of the columns that are drawn from the density.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.
        hashes : ndarray of shape (n_rows,)
            Decide the draw of each row.
        number : int
            Of the draw.
        box : tuple of ndarray of shape (n_columns,)
            Bounds of the codes.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            NaN stays in the other columns.
        """
        wanted = np.isnan(values) & self.used
        places = np.arange(self.codec.n_places)
        each = np.repeat(hashes, len(places)), np.tile(places + FIRST_START, len(hashes))
        normals = ndtri(cell_uniforms(*each, np.array([number]))).reshape(len(values), len(places))
        start = _completed(values, self.codec, self.normal, normals)
        drawn = self.model.draw(values, start, number, self._uniforms(values, hashes, number))
        numbers = wanted.nonzero()[1]
        found = values.copy()
        found[wanted] = fold(drawn[wanted], *(bound[numbers] for bound in box))
        return found

    def _uniforms(self, values: FloatArray, hashes: Array, number: int) -> Iterator[FloatArray]:
        missing = np.isnan(values)
        rows, columns = missing.nonzero()
        for sweep in range(DRAW_SWEEPS):
            uniforms = np.full(values.shape, 0.5)
            place = columns + (FIRST_SWEEP + sweep) * values.shape[1]
            uniforms[missing] = cell_uniforms(hashes[rows], place, np.array([number]))[0]
            yield uniforms

    def tensors(self) -> dict[str, Array]:
        """Return arrays by name, for a file; the normal and its codec are not among them."""
        return self.model.tensors() | {"factored.used": self.used}

    @classmethod
    def from_tensors(cls, arrays: dict[str, Array], codec: TableCodec, normal: NormalModel) -> FactoredCells | None:
        """Undo `tensors`; None when there is nothing."""
        model = FactoredModel.from_tensors(arrays)
        return None if model is None else cls(model, codec, normal, arrays["factored.used"].astype(bool))


def _sizes(columns: Sequence[Column]) -> tuple[int, ...]:
    return tuple(len(column.levels) if column.kind in LEVEL_KINDS else 0 for column in columns)


def _suits(n_rows: int, sizes: tuple[int, ...]) -> bool:
    small = n_rows >= FEWEST_ROWS and 2 <= len(sizes) <= MOST_COLUMNS
    return small and max(sizes) <= MOST_LEVELS and sum(sizes) <= MOST_TOGETHER and 1 not in sizes


def _completed(values: FloatArray, codec: TableCodec, normal: NormalModel, normals: FloatArray) -> FloatArray:
    """Return codes with a draw from the normal in every hole."""
    drawn = codec.decode(normal.draw(codec.encode(values), normals))
    return np.where(np.isnan(values), drawn, values)


def _chance(odds: FloatArray) -> float:
    """Return the probability that the mean of log-odds is above 0, one half without any."""
    return float(ndtr(odds.sum() / math.sqrt(max(float((odds**2).sum()), 1e-12))))
