"""Which of several estimates to trust, and how far, by cells that none of them has learned."""

from __future__ import annotations

__all__ = ["blend_weights"]

import numpy as np
from scipy.optimize import nnls

from mcflow.typing import Array, FloatArray

#: How many cells' worth of evidence the prior is for the weights of the whole table, and these for those of a column.
TABLE_CELLS, COLUMN_CELLS = 5.0, 20.0


def blend_weights(
    estimates: FloatArray, truth: FloatArray, columns: Array, n_columns: int, prior: FloatArray | None = None
) -> FloatArray:
    """Return the weights, none below zero and with sum 1, under which the estimates come nearest to the truth.

    Parameters
    ----------
    estimates : ndarray of shape (n_cells, n_estimates)
        In units that make columns comparable.
    truth : ndarray of shape (n_cells,)
        What was to be estimated.
    columns : ndarray of shape (n_cells,)
        Each cell's column.
    n_columns : int
        Of the table.
    prior : ndarray of shape (n_estimates,), optional
        The weights without any cell; even ones when not given.

    Returns
    -------
    ndarray of shape (n_columns, n_estimates)
        Those of a column with few cells are near those of the whole table, which are near the prior if it has few.

    Examples
    --------
    >>> truth = np.array([1.0, 2.0, 4.0, 5.0])
    >>> estimates = np.column_stack([truth, np.zeros(4)])
    >>> blend_weights(np.tile(estimates, (99, 1)), np.tile(truth, 99), np.zeros(396, int), 1).round(1)
    array([[1., 0.]])
    """
    n_estimates = estimates.shape[1]
    prior = np.full(n_estimates, 1 / n_estimates) if prior is None else prior
    shared = _nearest(estimates, truth, prior, TABLE_CELLS)
    weights = np.tile(shared, (n_columns, 1))
    for k in np.unique(columns):
        here = columns == k
        weights[k] = _nearest(estimates[here], truth[here], shared, COLUMN_CELLS)
    return weights


def _nearest(estimates: FloatArray, truth: FloatArray, prior: FloatArray, strength: float) -> FloatArray:
    """Solve the constrained least squares with `strength` times the squared distance from `prior` added."""
    n_estimates = len(prior)
    # A row of large equal numbers holds the sum at one.
    heavy = 1e4 * np.sqrt(max(float((estimates**2).sum()), 1.0))
    rows = [estimates, np.sqrt(strength) * np.eye(n_estimates), np.full((1, n_estimates), heavy)]
    sides = [truth, np.sqrt(strength) * prior, [heavy]]
    found, _ = nnls(np.vstack(rows), np.concatenate(sides))
    weights: FloatArray = found / found.sum()
    return weights
