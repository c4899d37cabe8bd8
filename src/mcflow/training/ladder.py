"""Quantiles between the states of a chain: values at a height of a ladder, and heights of values."""

from __future__ import annotations

__all__ = ["height_of", "rung"]

import numpy as np

from mcflow.typing import FloatArray


def rung(ladder: FloatArray, height: FloatArray) -> FloatArray:
    """Return the value of each cell at a height of its ladder.

    Parameters
    ----------
    ladder : ndarray of shape (n_rungs, n_cells)
        Rising along the first axis.
    height : ndarray of shape (n_cells,)
        From 0 to n_rungs - 1; between two rungs on the line that joins them.

    Returns
    -------
    ndarray of shape (n_cells,)

    Examples
    --------
    >>> rung(np.array([[0.0], [1.0], [3.0]]), np.array([1.5])).tolist()
    [2.0]
    """
    lower = np.clip(np.floor(height), 0, len(ladder) - 2).astype(np.int64)
    below, above = (np.take_along_axis(ladder, (lower + k)[None], axis=0)[0] for k in (0, 1))
    value: FloatArray = below + (height - lower) * (above - below)
    return value


def height_of(ladder: FloatArray, values: FloatArray) -> FloatArray:
    """Undo `rung`: 0 for values below the ladder, the number of rungs less 1 above it.

    Parameters
    ----------
    ladder : ndarray of shape (n_rungs, n_cells)
        Rising along the first axis.
    values : ndarray of shape (n_cells,)

    Returns
    -------
    ndarray of shape (n_cells,)

    Examples
    --------
    >>> height_of(np.array([[0.0], [1.0], [3.0]]), np.array([2.0])).tolist()
    [1.5]
    """
    lower = np.clip((ladder <= values).sum(axis=0) - 1, 0, len(ladder) - 2)
    below, above = (np.take_along_axis(ladder, (lower + k)[None], axis=0)[0] for k in (0, 1))
    share = (values - below) / np.where(above > below, above - below, 1.0)
    height: FloatArray = lower + np.clip(share, 0.0, 1.0)
    return height
