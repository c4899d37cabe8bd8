"""Initial fill of missing cells by draws from the empirical marginal distribution of each column."""

from __future__ import annotations

__all__ = ["Marginals"]

from typing import NamedTuple

import numpy as np

from mcflow.random import row_uniforms
from mcflow.typing import FloatArray


class Marginals(NamedTuple):
    """Empirical distribution of each column, stored as quantiles that are observed values, never interpolated."""

    quantiles: FloatArray  # (n_points, n_columns) observed values at evenly spaced ranks, in ascending order

    @classmethod
    def from_values(cls, values: FloatArray, max_points: int = 2048) -> Marginals:
        """Compute the quantiles of each column of `values` (n_rows, n_columns)."""
        ordered = np.sort(values, axis=0)
        counts = (~np.isnan(values)).sum(axis=0)
        n_points = int(min(max_points, counts.max(initial=1)))
        middle = (np.arange(n_points) + 0.5) / n_points
        ranks = (middle[:, None] * counts).astype(np.int64)
        return cls(np.take_along_axis(ordered, ranks, axis=0))

    def fill(self, values: FloatArray, uniforms: FloatArray) -> FloatArray:
        """Fill each missing cell with the quantile that its uniform number selects; all arrays (n_rows, n_columns)."""
        ranks = (uniforms * len(self.quantiles)).astype(np.int64)
        return np.where(np.isnan(values), np.take_along_axis(self.quantiles, ranks, axis=0), values)

    def fill_rows(self, values: FloatArray, seed: int) -> FloatArray:
        """Fill `values` (n_rows, n_columns) with draws that depend on the seed and the row only."""
        return self.fill(values, row_uniforms(values, seed))
