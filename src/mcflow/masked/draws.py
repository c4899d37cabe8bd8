"""Draws and quantiles of missing cells: from donors, from the factored density, and from H's distributions."""

from __future__ import annotations

__all__ = ["CellDraws"]

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from scipy.special import ndtri

from mcflow.fitting.calibration import Calibration, masses_beyond
from mcflow.masked.donors import Donors
from mcflow.masked.encoding import MAX_SCORE
from mcflow.masked.predictor import Predictive, Predictor
from mcflow.random import cell_uniforms, hash_rows
from mcflow.typing import Array, BoolArray, FloatArray

DRAW_BYTES = 1 << 28  # bytes of drawn cells held at a time
MAX_TABLES = 32  # completed tables drawn at a time
FREQUENCY_DRAWS = 20  # draws that estimate the frequencies of drawn categories


class CellDraws:
    """Draw missing cells from their joint predictive distribution.

    A draw starts with a value for each cell from H's distribution, shifted to the blend's estimate. Then every cell is
    redrawn, column by column in random order, from donors: observed values in the leaf of a tree whose inputs are the
    other cells of the row, as they are at this point, and H's estimate of the cell. On small tables the factored
    density draws cells instead where validation cells favour it.
    """

    def __init__(
        self, predictor: Predictor, calibration: Calibration | None, donors: Callable[[], Donors | None], seed: int
    ) -> None:
        self.predictor, self.blend, self.grid = predictor, predictor.blend, predictor.grid
        self.calibration, self.seed = calibration, seed
        self._donors = donors

    def draws(self, values: FloatArray, m: int, seed: int, ids: FloatArray | None = None) -> Iterator[FloatArray]:
        """Yield m completed tables; `ids` (n_rows,) distinguishes equal rows."""
        hashes = hash_rows(values if ids is None else np.column_stack([values, ids]), seed)
        at_once = int(np.clip(DRAW_BYTES // (8 * max(int(np.isnan(values).sum()), 1)), 1, MAX_TABLES))
        for first in range(0, m, at_once):
            yield from self._numbered(values, hashes, np.arange(first, min(first + at_once, m)))

    def redraw(self, values: FloatArray, hashes: Array, number: int) -> FloatArray:
        """Return rows completed as in draw `number` of a series, with random numbers decided by `hashes`."""
        (table,) = self._numbered(values, hashes, np.array([number]))
        return table

    def _numbered(self, values: FloatArray, hashes: Array, numbers: Array) -> Iterator[FloatArray]:
        """Yield the draws of a series that have some numbers."""
        self._donors()  # grown here, before several threads ask for them
        drawn = self._drawn_cells
        yield from self.predictor.tables(values, lambda rows: drawn(values[rows], hashes[rows], numbers), len(numbers))

    def quantiles(self, values: FloatArray, probabilities: FloatArray) -> Iterator[FloatArray]:
        """Yield a completed table for each probability; cells of unordered categories stay missing."""
        scores = np.stack([self._score(q) for q in probabilities])
        yield from self.predictor.tables(values, lambda rows: self._quantile_cells(values[rows], scores), len(scores))

    def _score(self, probability: float) -> FloatArray:
        """Return the normal score (n_columns,) at which the quantile of each column is read."""
        upper, masses = masses_beyond(probability, self.calibration, len(self.predictor.columns))
        scores: FloatArray = -ndtri(masses) if upper else ndtri(masses)
        return np.clip(scores, -MAX_SCORE, MAX_SCORE)

    def _quantile_cells(self, values: FloatArray, scores: FloatArray) -> FloatArray:
        """Return quantiles (n_quantiles, n_cells) of the missing cells of some rows."""
        columns = np.isnan(values).nonzero()[1]
        found = self._at(self.predictor.predict(values), scores[:, columns])
        unordered = [k for k, column in enumerate(self.predictor.columns) if column.kind in ("boolean", "category")]
        found[:, np.isin(columns, unordered)] = np.nan
        return found

    def _at(self, cells: Predictive, scores: FloatArray) -> FloatArray:
        """Return the codes (n_scores, n_cells) of cells at normal scores."""
        with torch.inference_mode():
            at = torch.from_numpy(scores).to(cells.probabilities)
            return self.predictor.codes_at(cells.columns, *cells.at(at))

    def independent(self, values: FloatArray, cells: Predictive, normals: FloatArray) -> FloatArray:
        """Return tables (n_draws, n_rows, n_columns) with each cell at a normal score (n_draws, n_cells)."""
        scale = 1.0 if self.calibration is None else self.calibration.scale[cells.columns]
        tables = np.tile(values, (len(normals), 1, 1))
        tables[:, np.isnan(values)] = self._at(cells, np.clip(normals * scale, -MAX_SCORE, MAX_SCORE))
        return tables

    def _drawn_cells(self, values: FloatArray, hashes: Array, numbers: Array) -> FloatArray:
        """Return draws (n_numbers, n_cells) of the missing cells of some rows."""
        missing, donors = np.isnan(values), self._donors()
        rows, columns = missing.nonzero()
        normals = ndtri(cell_uniforms(hashes[rows], columns, numbers))
        tables = self.independent(values, self.predictor.predict(values), normals)
        answers = self.predictor.ask_all(values, ~missing, missing)
        factored, n_columns = self.blend.factored, values.shape[1]
        for table, number in zip(tables, numbers, strict=True):
            left = missing
            if factored is not None:
                drawn = factored.complete(values, hashes, int(number), self.predictor.box)
                table[missing & factored.used] = drawn[missing & factored.used]
                left = missing & ~factored.used
            if donors is None or not left.any():
                continue
            rng = np.random.default_rng([self.seed, int(number)])
            weights = donors.bootstrap_weights(self.seed, int(number))
            for sweep in range(self.blend.config.n_sweeps):
                uniforms = partial(self._uniforms, hashes, left, int(number), sweep)
                order = rng.permutation(n_columns)
                n_leaves = self.blend.config.donor_leaves
                donors.redraw(table, left, answers, order, uniforms=uniforms, weights=weights, n_leaves=n_leaves)
        return np.asarray(np.clip(tables[:, missing], *(bound[columns] for bound in self.predictor.box)))

    @staticmethod
    def _uniforms(hashes: Array, missing: BoolArray, number: int, sweep: int, column: int) -> FloatArray:
        """Return two random numbers (2, n_cells) for each missing cell of a column, for its tree and its donor."""
        own, n_columns = hashes[missing[:, column]], missing.shape[1]
        places = [column + (1 + 2 * sweep + k) * n_columns for k in range(2)]
        return np.stack([cell_uniforms(own, np.full(len(own), place), np.array([number]))[0] for place in places])

    def category_frequencies(self, values: FloatArray, column: int, predicted: FloatArray) -> FloatArray:
        """Return the frequencies (n_rows, n_categories) with which draws have each category of a column.

        They are estimated by `FREQUENCY_DRAWS` draws, to which the prediction is added as one more.
        """
        counts, hashes, rows = predicted.copy(), hash_rows(values, self.seed), np.arange(len(values))
        for number in range(FREQUENCY_DRAWS):
            counts[rows, self.redraw(values, hashes, number)[:, column].astype(np.int64)] += 1
        return counts / (FREQUENCY_DRAWS + 1)
