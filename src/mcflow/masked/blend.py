"""Blend of the estimates of a missing cell, with weights by column that are fitted on validation cells."""

from __future__ import annotations

__all__ = ["ESTIMATES", "RUNGS", "Blend"]

from collections.abc import Mapping, Sequence

import numpy as np

from mcflow.columns.codecs import TableCodec
from mcflow.columns.factored import FactoredCells
from mcflow.columns.gaussian import GaussianModel
from mcflow.columns.schema import CATEGORY_KINDS, Column
from mcflow.fitting.calibration import blend_weights, pool_weights, prune_weights
from mcflow.masked.config import MaskedConfig
from mcflow.masked.encoding import TableGrid
from mcflow.typing import Array, BoolArray, FloatArray

#: Rungs of the ladder of trees, in the order of their weights in a model file.
RUNGS = ("observed", "completed", "again", "chained")
#: Estimates of a number: the mean over the points and H's direct estimate, the column mean, the Gaussian, and trees.
ESTIMATES = ("mean", "direct", "column", "gaussian", *RUNGS)
#: Estimates of the probabilities of categories.
POOLED = ("mean", *RUNGS)

GAUSSIAN_PLACES = 200  # encoded width up to which a multivariate Gaussian joins the blend
GAUSSIAN_CATEGORIES = 64  # categories per column that the Gaussian distinguishes
GAUSSIAN_WORK = 2e8  # cost limit of a Gaussian: rows times the cube of the encoded width
FACTORED_STREAM = 0x66616374  # separates the random numbers of the factored density from others of the same seed


class Blend:
    """Weights of the estimates by column, fitted on validation cells, and the models beside H and the trees.

    `weights` (n_columns, n_estimates) are those of numbers, `pooled` (n_columns, n_rungs + 1) those of the
    probabilities of categories.
    """

    def __init__(self, columns: Sequence[Column], grid: TableGrid, config: MaskedConfig) -> None:
        self.columns, self.grid, self.config = tuple(columns), grid, config
        self.weights = np.tile(np.eye(len(ESTIMATES))[0], (len(self.columns), 1))
        self.pooled = np.tile(np.eye(len(POOLED))[0], (len(self.columns), 1))
        self.means = np.zeros(len(self.columns))
        self.gaussian: GaussianModel | None = None
        self.codec: TableCodec | None = None
        self.factored: FactoredCells | None = None

    def fit_factored(self, values: FloatArray, seed: int, deadline: float | None = None) -> None:
        """Fit the factored density of a small table (n_rows, n_columns); `choose_factored` decides on its use."""
        suits = (self._plain | ~np.isnan(values).any(axis=0)).all() and len(values) <= self.config.small_rows
        if suits and self.config.factored and self._gaussian_rows(values) is not None and self.codec is not None:
            rng = np.random.default_rng([seed, FACTORED_STREAM])
            self.factored = FactoredCells.fit(values, self.codec, rng, deadline)

    def fit(
        self,
        values: FloatArray,
        rows: Array,
        groups: Sequence[Sequence[BoolArray]],
        estimates: Mapping[str, FloatArray],
        truth: FloatArray,
    ) -> FloatArray:
        """Fit the weights of numbers on validation cells; return the blend.

        Shapes: `values` (n_rows, n_columns), `rows` (n_validation_rows,), `groups` by track (n_validation_rows,
        n_columns), cells that are hidden together; each of `estimates` and `truth` (n_cells,), in the order of
        `stack(groups).any(1).nonzero()`; returns (n_cells,).
        """
        validation = np.stack([np.any(of_track, axis=0) for of_track in groups])
        columns = validation.nonzero()[2]
        numbers = ~np.isin(columns, [k for k, c in enumerate(self.columns) if c.kind in CATEGORY_KINDS])
        if not numbers.any():
            self.factored = None  # without a Gaussian, it can be neither judged nor saved
            return np.full(len(columns), np.nan)
        found = dict(estimates) | {"column": self.means[columns]}
        known = self._gaussian_rows(values)
        if known is not None:
            by_track = [self._gaussian_of_validation(known[rows], of_track) for of_track in groups]
            found["gaussian"] = np.concatenate(by_track)
        weights, error = self.fit_weights(found, truth, columns, numbers)
        if known is not None and len(values) > self.config.small_rows:
            rest = {name: estimate for name, estimate in found.items() if name != "gaussian"}
            others, without = self.fit_weights(rest, truth, columns, numbers)
            if error > (1 - self.config.gaussian_min_gain) * without:
                weights, found, known, self.codec = others, rest, None, None
        self.weights = weights
        if known is not None:
            self.gaussian = GaussianModel.fit(known)
        return np.where(numbers, self.blended(found, columns), np.nan)

    def fit_pool(self, estimates: Mapping[str, Mapping[int, FloatArray]], truth: Mapping[int, Array]) -> None:
        """Fit the weights of the probabilities of categories; `truth` has the points of the validation cells."""
        for k, points in truth.items():
            names = [name for name in POOLED if name in estimates]
            likelihoods = np.stack([estimates[name][k][np.arange(len(points)), points] for name in names], axis=1)
            self.pooled[k] = 0.0
            self.pooled[k, [POOLED.index(name) for name in names]] = prune_weights(pool_weights(likelihoods), keep=1)

    def blended(self, estimates: Mapping[str, FloatArray], columns: Array) -> FloatArray:
        """Return the weighted sum of estimates (..., n_cells) of cells of some columns (n_cells,)."""
        total: FloatArray = np.zeros(len(columns))
        for k, name in enumerate(ESTIMATES):
            if name in estimates:
                # Estimates that a column does without may be missing.
                weights = self.weights[columns, k]
                total = total + np.where(weights > 0, weights * estimates[name], 0.0)
        return total

    def pool(self, estimates: Mapping[str, FloatArray], column: int) -> FloatArray:
        """Return the weighted mean of the probabilities (n_cells, n_points) of a categorical column."""
        weights = self.pooled[column]
        parts = [weights[k] * estimates[name] for k, name in enumerate(POOLED) if name in estimates and weights[k] > 0]
        total = np.sum(parts, axis=0)
        found: FloatArray = total / total.sum(axis=1, keepdims=True)
        return found

    def needs(self, rung: str, column: int) -> bool:
        """Return whether a column uses the estimates of a rung."""
        if self.columns[column].kind in CATEGORY_KINDS:
            return bool(self.pooled[column, POOLED.index(rung)] > 0)
        return bool(self.weights[column, ESTIMATES.index(rung)] > 0)

    def fit_weights(
        self, estimates: Mapping[str, FloatArray], truth: FloatArray, columns: Array, numbers: BoolArray
    ) -> tuple[FloatArray, float]:
        """Return the best weights (n_columns, n_estimates) of estimates (n_cells,), and their mean squared error."""
        names = [name for name in ESTIMATES if name in estimates]
        found, truth, columns = (
            np.stack([estimates[name][numbers] for name in names], 1),
            truth[numbers],
            columns[numbers],
        )
        # Prior weights: half as much for each of H's estimates as for others, none for the column mean.
        prior = np.array([{"mean": 0.5, "direct": 0.5, "column": 0.0}.get(name, 1.0) for name in names])
        own = blend_weights(found, truth, columns, len(self.columns), prior / prior.sum())
        keep = sum(name not in RUNGS for name in names)
        weights = np.zeros((len(self.columns), len(ESTIMATES)))
        weights[:, [ESTIMATES.index(name) for name in names]] = np.stack([prune_weights(row, keep) for row in own])
        error = float((((found * own[columns]).sum(axis=1) - truth) ** 2).mean())
        return weights, error

    def refit_on(self, other: Blend, values: FloatArray, seed: int) -> None:
        """Take the weights of another blend, and refit its Gaussian and factored density on resampled rows."""
        self.weights, self.pooled, self.codec = other.weights, other.pooled, other.codec
        if other.gaussian is not None and self.codec is not None:
            self.gaussian = GaussianModel.fit(self.codec.encode(values))
            self.factored = other.factored and other.factored.refit_on(values, seed)

    def _gaussian_rows(self, values: FloatArray) -> FloatArray | None:
        """Return rows encoded for the Gaussian, None if it would be too expensive or is not wanted."""
        if not self.config.gaussian or len(values) > self.config.gaussian_max_rows:
            return None
        codec = TableCodec.from_values(values, self.columns, max_one_hot=GAUSSIAN_CATEGORIES)
        if codec.n_places > GAUSSIAN_PLACES or len(values) * codec.n_places**3 > GAUSSIAN_WORK:
            return None
        self.codec = codec
        return codec.encode(values)

    def _gaussian_of_validation(self, rows: FloatArray, groups: Sequence[BoolArray]) -> FloatArray:
        """Return estimates (n_cells,) in units by a Gaussian fitted without any of the validation cells."""
        assert self.codec is not None
        validation = np.any(groups, axis=0)
        model = GaussianModel.fit(np.where(self.codec.spread(validation), np.nan, rows))
        found = np.full(validation.shape, np.nan)
        for cells in groups:
            incomplete = np.where(self.codec.spread(cells), np.nan, rows)
            found[cells] = self._in_units(model.conditional(incomplete), cells)
        return found[validation]

    def _in_units(self, rows: FloatArray, wanted: BoolArray) -> FloatArray:
        """Return some cells of encoded rows in units."""
        assert self.codec is not None
        return self.grid.units(self.codec.decode(rows))[wanted]

    def choose_factored(
        self, values: FloatArray, rows: Array, validation: BoolArray, log_density: FloatArray, rng: np.random.Generator
    ) -> None:
        """Keep the factored density if validation cells are clearly more probable under it than by H.

        Shapes: `values` (n_rows, n_columns), `rows` (n_validation_rows,), `validation` (n_tracks, n_validation_rows,
        n_columns), `log_density` (n_cells,) in units by H's distributions, centred on the blend.
        """
        if self.factored is None:
            return
        numbers = [column.kind not in CATEGORY_KINDS for column in self.columns]
        by_others = log_density - np.where(numbers, np.log(self.grid.spread), 0.0)[validation.nonzero()[2]]
        ends = np.cumsum([cells.sum() for cells in validation])[:-1]
        everywhere = np.zeros((len(validation), *values.shape), dtype=bool)
        everywhere[:, rows] = validation
        by_track = [
            _by_row(part, cells, rows) for part, cells in zip(np.split(by_others, ends), validation, strict=True)
        ]
        if not self.factored.choose(values, everywhere, by_track, self._plain, rng):
            self.factored = None

    @property
    def _plain(self) -> BoolArray:
        """Which columns (n_columns,) the factored density suits: categories, and numbers without point masses."""
        of_categories = np.array([column.kind in CATEGORY_KINDS for column in self.columns], dtype=bool)
        return of_categories | ~self.grid.point_masses.any(axis=1)

    def gaussian_estimates(self, values: FloatArray, wanted: BoolArray) -> dict[str, FloatArray]:
        """Return the Gaussian's estimates of some cells in units by their name, none if there is no Gaussian."""
        if self.gaussian is None or self.codec is None:
            return {}
        return {"gaussian": self._in_units(self.gaussian.conditional(self.codec.encode(values)), wanted)}

    def tensors(self) -> dict[str, Array]:
        """Return arrays by name, for a model file."""
        arrays: dict[str, Array] = {"blend": self.weights, "pooled": self.pooled, "means": self.means}
        if self.gaussian is not None and self.codec is not None:
            arrays |= {"gaussian.mean": self.gaussian.mean[None], "gaussian.covariance": self.gaussian.covariance[None]}
            arrays |= self.codec.tensors()
            arrays |= self.factored.tensors() if self.factored is not None else {}
        return arrays

    @classmethod
    def from_tensors(
        cls, arrays: dict[str, Array], columns: Sequence[Column], grid: TableGrid, config: MaskedConfig
    ) -> Blend:
        """Undo `tensors`; files of earlier formats have fewer estimates, and more Gaussians."""
        blend = cls(columns, grid, config)
        blend.weights = _padded(arrays["blend"], len(ESTIMATES))
        blend.pooled = _padded(arrays.get("pooled", blend.pooled), len(POOLED))
        blend.means = arrays["means"]
        if "gaussian.mean" in arrays:
            blend.gaussian = GaussianModel(arrays["gaussian.mean"][0], arrays["gaussian.covariance"][0])
            blend.codec = TableCodec.from_tensors(list(columns), arrays, max_one_hot=GAUSSIAN_CATEGORIES)
            blend.factored = FactoredCells.from_tensors(arrays, blend.codec, blend.gaussian)
        return blend


def _padded(weights: Array, n_estimates: int) -> Array:
    """Return weights with those of estimates that an earlier format did not have, which are 0."""
    return np.pad(weights, ((0, 0), (0, n_estimates - weights.shape[1])))


def _by_row(cells: FloatArray, validation: BoolArray, rows: Array) -> FloatArray:
    """Return values of validation cells sorted by the position of their rows in the table."""
    places, columns = validation.nonzero()
    return cells[np.lexsort((columns, rows[places]))]
