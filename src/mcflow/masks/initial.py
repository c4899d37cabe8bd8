"""The first fill: a missing cell starts as a draw from its column's observed values."""

from __future__ import annotations

__all__ = ["Marginals"]

from dataclasses import dataclass

import numpy as np

from mcflow.random import row_uniforms
from mcflow.typing import FloatArray


@dataclass(frozen=True)
class Marginals:
    """The observed distribution of every column, kept as a few thousand of its quantiles.

    Parameters
    ----------
    quantiles : ndarray of shape (n_points, n_columns)
        Each column's observed values at evenly spaced ranks, in rising order.

    Notes
    -----
    Quantiles are observed values themselves, never between two, so a column of whole numbers stays one. Up to
    `max_points` observed values a column are kept exactly; the file of a model does not grow with the table.
    """

    quantiles: FloatArray

    @classmethod
    def from_values(cls, values: FloatArray, max_points: int = 2048) -> Marginals:
        """Read the marginals off a table.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            NaN where missing; every column has an observed value.
        max_points : int, default=2048
            Quantiles to keep a column, at most.

        Returns
        -------
        Marginals
        """
        ordered = np.sort(values, axis=0)
        counts = (~np.isnan(values)).sum(axis=0)
        n_points = int(min(max_points, counts.max(initial=1)))
        middle = (np.arange(n_points) + 0.5) / n_points
        ranks = (middle[:, None] * counts).astype(np.int64)
        return cls(np.take_along_axis(ordered, ranks, axis=0))

    def fill(self, values: FloatArray, uniforms: FloatArray) -> FloatArray:
        """Put a draw from its column into each missing cell.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            NaN where missing.
        uniforms : ndarray of shape (n_rows, n_columns)
            Numbers in [0, 1) that choose the draw.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            Complete; observed cells as they were.
        """
        ranks = (uniforms * len(self.quantiles)).astype(np.int64)
        return np.where(np.isnan(values), np.take_along_axis(self.quantiles, ranks, axis=0), values)

    def fill_rows(self, values: FloatArray, seed: int) -> FloatArray:
        """Fill new rows by draws that depend on the seed and on each row alone.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            NaN where missing.
        seed : int
            The model's seed.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            Complete; a row's draws are the same whatever rows it comes with.
        """
        return self.fill(values, row_uniforms(values, seed))
