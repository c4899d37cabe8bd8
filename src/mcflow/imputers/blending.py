"""The point estimate of a number: H's two estimates, the column's mean and, for small tables, a normal, weighed."""

from __future__ import annotations

__all__ = ["Blend"]

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr

from mcflow.data.codecs import TableCodec
from mcflow.data.grids import TableGrid
from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.imputers.factored_cells import FactoredCells
from mcflow.masks.normal import NormalModel
from mcflow.training.blend import blend_weights
from mcflow.typing import Array, BoolArray, FloatArray

#: Rows and places up to which a multivariate normal joins the blend, and levels that it tells apart.
NORMAL_ROWS, NORMAL_PLACES, NORMAL_LEVELS = 20_000, 200, 64

#: Rows up to which it joins in any case and is drawn from; with more, the squared error has to fall by this share, as
#: filling becomes slower.
SMALL_ROWS, WORTH = 5_000, 0.05

#: Members whose held-out cells the normal is judged by, at most, and the work of a normal that is judged by one, rows
#: times the cube of places; one that takes more is left out.
NORMAL_JUDGES, NORMAL_WORK = 8, 2e8

#: The logarithm of the largest odds that a single cell may give for or against the normal.
LARGEST_ODDS = 10.0

#: Sets the random numbers of a factored density apart from others of the same seed.
FACTORED = 0x66616374

#: Weight of H's estimates below which it does not matter how they share it.
LEAST_WEIGHT = 1e-6


class Blend:
    """Weights of the estimates, by column, and what those beside H's need.

    Parameters
    ----------
    columns : sequence of Column
        Those that the networks see.
    grid : TableGrid
        Their units.

    Attributes
    ----------
    weights : ndarray of shape (n_columns, 4)
        Of the mean over the points, of H's direct estimate, of the column's mean and of the normal.
    means : ndarray of shape (n_columns,)
        In units.
    normal : NormalModel or None
        In the units of the codec.
    codec : TableCodec or None
        Of the normal.
    resampled : list of NormalModel
        The same of samples of the rows with replacement: how else it might have come out.
    votes : ndarray of shape (n_columns,)
        How often a cell is drawn from the normal.
    factored : FactoredCells or None
        What draws come from instead, where it was likelier.
    """

    def __init__(self, columns: Sequence[Column], grid: TableGrid) -> None:
        self.columns, self.grid = tuple(columns), grid
        self.weights = np.tile([1.0, 0.0, 0.0, 0.0], (len(self.columns), 1))
        self.means = np.zeros(len(self.columns))
        self.normal: NormalModel | None = None
        self.codec: TableCodec | None = None
        self.resampled: list[NormalModel] = []
        self.votes = np.zeros(len(self.columns))
        self.factored: FactoredCells | None = None

    def factor(self, values: FloatArray, seed: int, deadline: float | None = None) -> None:
        """Learn a factored density of a small table, to be judged in `fit`.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.
        seed : int
            Of its draws of cells and parameters.
        deadline : float, optional
            On the clock of `time.perf_counter`.
        """
        if len(values) <= SMALL_ROWS and self._normal_rows(values) is not None and self.codec is not None:
            rng = np.random.default_rng([seed, FACTORED])
            self.factored = FactoredCells.fit(values, self.codec, rng, deadline)

    def fit(
        self,
        values: FloatArray,
        rows: Array,
        held: BoolArray,
        estimates: Sequence[FloatArray],
        log_density: FloatArray,
        *,
        rng: np.random.Generator,
    ) -> FloatArray:
        """Weigh the estimates by cells that were held out, and decide how often draws come from the normal.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.
        rows : ndarray of shape (n_held_rows,)
            Rows with such cells.
        held : ndarray of bool of shape (n_members, n_held_rows, n_columns)
            Which of their cells, for each member of H.
        estimates : sequence of ndarray of shape (n_held_cells,)
            The mean over the points, the direct estimate, and the truth, in units.
        log_density : ndarray of shape (n_held_cells,)
            Of the truth in units, by H's distribution.
        rng : numpy Generator
            Draws samples of rows.

        Returns
        -------
        ndarray of shape (n_held_cells,)
            The blend's estimate of the held-out cells; NaN for those that it could not be judged by.
        """
        columns = held.nonzero()[2]
        numbers = ~np.isin(columns, [k for k, c in enumerate(self.columns) if c.kind in LEVEL_KINDS])
        *found, truth = estimates
        found.append(self.means[columns])
        if not numbers.any():
            return np.full(len(columns), np.nan)
        known = self._normal_rows(values)
        if known is not None:
            n_judges = int(np.clip(NORMAL_WORK / (len(rows) * known.shape[1] ** 3), 1, NORMAL_JUDGES))
            means, deviations = self._normal_answers(known[rows], held, n_judges)
            found.append(means)
        both = np.stack(found, axis=1)
        judged = numbers & ~np.isnan(both).any(axis=1)
        weights, error = self._weighed(both, truth, columns, judged)
        if known is not None and len(values) > SMALL_ROWS:
            others, without = self._weighed(both[:, :3], truth, columns, judged)
            if error > (1 - WORTH) * without:
                both, weights, known, judged, self.codec = both[:, :3], others, None, numbers, None
        self.weights[:, : both.shape[1]] = weights
        if known is not None:
            self.normal = NormalModel.fit(known)
            if len(values) <= SMALL_ROWS:
                samples = rng.integers(len(known), size=(min(n_judges, len(held)), len(known)))
                self.resampled = [NormalModel.fit(known[sample]) for sample in samples]
                self._vote(columns, truth - means, deviations, log_density)
                self._judge_factored(values, rows, held, (truth - means, deviations, log_density), rng)
        blended: FloatArray = np.where(judged, (both * self.weights[columns, : both.shape[1]]).sum(axis=1), np.nan)
        return blended

    def _weighed(
        self, estimates: FloatArray, truth: FloatArray, columns: Array, judged: BoolArray
    ) -> tuple[FloatArray, float]:
        """Return weights by column, and the squared error under them."""
        found, truth, columns = estimates[judged], truth[judged], columns[judged]
        # Half a vote each for H's two estimates, one for the normal, none for the mean.
        prior = np.array([0.5, 0.5, 0.0, 1.0][: found.shape[1]])
        weights = blend_weights(found, truth, columns, len(self.columns), prior / prior.sum())
        return weights, float((((found * weights[columns]).sum(axis=1) - truth) ** 2).mean())

    def follow(self, other: Blend, values: FloatArray, seed: int) -> None:
        """Take over another one's weights, and learn the normal of other rows of the same table."""
        self.weights, self.votes, self.codec = other.weights, other.votes, other.codec
        if other.normal is not None and self.codec is not None:
            self.normal = NormalModel.fit(self.codec.encode(values))
            self.resampled = [self.normal] if other.resampled else []
            self.factored = other.factored and other.factored.follow(values, seed)

    def _normal_rows(self, values: FloatArray) -> FloatArray | None:
        if len(values) > NORMAL_ROWS:
            return None
        codec = TableCodec.from_values(values, self.columns, max_places=NORMAL_LEVELS)
        if codec.n_places > NORMAL_PLACES or len(values) * codec.n_places**3 > NORMAL_WORK:
            return None
        self.codec = codec
        return codec.encode(values)

    def _normal_answers(self, rows: FloatArray, held: BoolArray, n_judges: int) -> tuple[FloatArray, FloatArray]:
        """Return mean and deviation, in units, by normals that did not see the held-out cells; NaN if not judged."""
        answers = []
        for k, cells in enumerate(held):
            assert self.codec is not None
            hole = np.where(self.codec.spread(cells), np.nan, rows)
            if k < n_judges:
                answers.append(self._stated(NormalModel.fit(hole), hole, cells))
            else:
                answers.append((np.full(int(cells.sum()), np.nan),) * 2)
        means, deviations = (np.concatenate(part) for part in zip(*answers, strict=True))
        return means, deviations

    def _stated(self, model: NormalModel, rows: FloatArray, wanted: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and deviation of some cells of numbers, in units, by a normal in the units of the codec."""
        assert self.codec is not None
        means = model.conditional(rows)
        beyond = np.where(np.isnan(rows), means + np.sqrt(model.conditional_variance(rows)), rows)
        centre, end = (self._in_units(part, wanted) for part in (means, beyond))
        return centre, end - centre

    def _in_units(self, rows: FloatArray, wanted: BoolArray) -> FloatArray:
        """Return some cells of rows in the units of the codec."""
        assert self.codec is not None
        return self.grid.units(self.codec.decode(rows))[wanted]

    def _vote(self, columns: Array, missed: FloatArray, deviations: FloatArray, log_density: FloatArray) -> None:
        """Decide how often draws come from the normal, by held-out cells and how far they are from its means.

        A column's share is the probability that the normal is the likelier of both, as its cells have it: all where the
        mean of the log-odds is well above zero, none where it is well below, one half where they cannot say. A column
        with values that many cells share is not asked, since a normal does not know of them.
        """
        plain = np.count_nonzero(self.grid.atoms, axis=1) == 0
        known = plain[columns] & (deviations > 0)
        squared = (missed[known] / deviations[known]) ** 2
        by_normal = -0.5 * (squared + math.log(2 * math.pi)) - np.log(deviations[known])
        ahead = np.clip(by_normal - log_density[known], -LARGEST_ODDS, LARGEST_ODDS)
        columns = columns[known]
        counts = np.bincount(columns, minlength=len(self.columns))
        totals = np.bincount(columns, ahead, len(self.columns))
        squares = np.bincount(columns, ahead**2, len(self.columns))
        votes = ndtr(totals / np.sqrt(np.maximum(squares, 1e-12)))
        votes = np.where(counts > 0, votes, ndtr(totals.sum() / np.sqrt(max(squares.sum(), 1e-12))))
        self.votes = np.where(plain, votes, 0.0)

    def _judge_factored(
        self,
        values: FloatArray,
        rows: Array,
        held: BoolArray,
        others: tuple[FloatArray, FloatArray, FloatArray],
        rng: np.random.Generator,
    ) -> None:
        """Keep the factored density if held-out cells are likelier under it than under what is drawn from otherwise."""
        if self.factored is None:
            return
        columns = held.nonzero()[2]
        missed, deviations, log_density = others
        known = deviations > 0
        votes = np.where(known, self.votes[columns], 0.0)
        safe = np.where(known, deviations, 1.0)
        by_normal = np.where(known, -0.5 * ((missed / safe) ** 2 + math.log(2 * math.pi)) - np.log(safe), -np.inf)
        with np.errstate(divide="ignore"):
            stated = np.logaddexp(np.log(votes) + by_normal, np.log1p(-votes) + log_density)
        of_levels = np.array([column.kind in LEVEL_KINDS for column in self.columns])
        stated -= np.where(of_levels, 0.0, np.log(self.grid.spread))[columns]
        ends = np.cumsum([cells.sum() for cells in held])[:-1]
        everywhere = np.zeros((len(held), *values.shape), dtype=bool)
        everywhere[:, rows] = held
        by_member = [_by_row(part, cells, rows) for part, cells in zip(np.split(stated, ends), held, strict=True)]
        plain = of_levels | (np.count_nonzero(self.grid.atoms, axis=1) == 0)
        if not self.factored.judge(values, everywhere, by_member, plain, rng):
            self.factored = None

    def units(
        self,
        values: FloatArray,
        wanted: BoolArray,
        means: Any,
        direct: Any,
        box: tuple[FloatArray, FloatArray],
        *,
        normal: bool = True,
    ) -> FloatArray:
        """Return the estimates of some cells, in units.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.
        wanted : ndarray of bool of shape (n_rows, n_columns)
            The cells.
        means, direct : ndarray of shape (n_cells,) or (n_members, n_cells)
            What H says of them.
        box : tuple of ndarray of shape (n_columns,)
            Bounds of the columns in units.
        normal : bool, default=True
            Whether the normal has its say.

        Returns
        -------
        ndarray of the shape of `means`
            Strictly inside the bounds where H's distribution is.
        """
        columns = wanted.nonzero()[1]
        low, high = (bound[columns] for bound in box)
        estimates = [means, np.clip(direct, low, high), self.means[columns]]
        weights = self.weights[columns]
        if normal and self.normal is not None and self.codec is not None:
            rows = self.normal.conditional(self.codec.encode(values))
            estimates.append(np.clip(self._in_units(rows, wanted), low, high))
        elif not normal:
            rest = weights[:, :3].sum(axis=1, keepdims=True)
            weights = np.where(rest > LEAST_WEIGHT, weights / np.maximum(rest, LEAST_WEIGHT), [1.0, 0.0, 0.0, 0.0])
        units = weights[:, 0] * estimates[0]
        for k, estimate in enumerate(estimates[1:], 1):
            units = units + weights[:, k] * estimate
        blended: FloatArray = np.where((low < units) & (units < high), units, means)  # nothing heaps up at a bound
        return blended

    def normal_units(self, values: FloatArray, wanted: BoolArray, number: int) -> tuple[FloatArray, FloatArray]:
        """Return mean and deviation of some cells of numbers by the normal of one sample of the rows, in units.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Codes, NaN where missing.
        wanted : ndarray of bool of shape (n_rows, n_columns)
            The cells.
        number : int
            Of the sample; after the last comes the first.

        Returns
        -------
        tuple of ndarray of shape (n_cells,)
        """
        assert self.codec is not None
        return self._stated(self.resampled[number % len(self.resampled)], self.codec.encode(values), wanted)

    def tensors(self) -> dict[str, Array]:
        """Return arrays by name, for a file."""
        arrays: dict[str, Array] = {"blend": self.weights, "means": self.means, "votes": self.votes}
        if self.normal is not None and self.codec is not None:
            every = [self.normal, *self.resampled]
            arrays |= {"normal.mean": np.stack([model.mean for model in every])}
            arrays |= {"normal.covariance": np.stack([model.covariance for model in every])}
            arrays |= self.codec.tensors()
            arrays |= self.factored.tensors() if self.factored is not None else {}
        return arrays

    @classmethod
    def from_tensors(cls, arrays: dict[str, Array], columns: Sequence[Column], grid: TableGrid) -> Blend:
        """Undo `tensors`."""
        blend = cls(columns, grid)
        blend.weights, blend.means, blend.votes = arrays["blend"], arrays["means"], arrays["votes"]
        if "normal.mean" in arrays:
            parts = zip(arrays["normal.mean"], arrays["normal.covariance"], strict=True)
            blend.normal, *blend.resampled = [NormalModel(*part) for part in parts]
            blend.codec = TableCodec.from_tensors(list(columns), arrays, max_places=NORMAL_LEVELS)
            blend.factored = FactoredCells.from_tensors(arrays, blend.codec, blend.normal)
        return blend


def _by_row(cells: FloatArray, held: BoolArray, rows: Array) -> FloatArray:
    """Return what is known of held-out cells, sorted by where their rows are in the table."""
    places, columns = held.nonzero()
    return cells[np.lexsort((columns, rows[places]))]
