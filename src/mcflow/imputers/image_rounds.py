"""The order in which the pixels of an image are drawn: coarse to fine."""

from __future__ import annotations

__all__ = ["FEW_ROUNDS", "MANY_ROUNDS", "rounds_of"]

from collections.abc import Sequence

import numpy as np

from mcflow.typing import BoolArray, FloatArray

#: Shares of the pixels that are known after each round.
FEW_ROUNDS = (1 / 4, 1 / 2, 1.0)
MANY_ROUNDS = (1 / 64, 1 / 32, 1 / 16, 3 / 32, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1.0)

#: The side of the tile in which the order repeats.
TILE = 8


def rounds_of(height: int, width: int, shares: Sequence[float] = MANY_ROUNDS) -> list[BoolArray]:
    """Return which pixels are drawn in each round.

    Parameters
    ----------
    height, width : int
        Of an image.
    shares : sequence of float
        Of the pixels that are known after each round, rising to 1.

    Returns
    -------
    list of ndarray of bool of shape (height, width)
        Each pixel is in one of them.

    Notes
    -----
    The order is that of Bayer's matrix, whose first pixels are as far apart as they can be: a round's pixels lie
    between those of the rounds before it, so that little is left that they could agree on without seeing one another.
    In the last half every pixel has all four neighbours.

    Examples
    --------
    >>> [int(places.sum()) for places in rounds_of(8, 8, (0.25, 0.5, 1.0))]
    [16, 16, 32]
    """
    tiles = (-(-height // TILE), -(-width // TILE))
    order = np.tile(_bayer(TILE), tiles)[:height, :width]
    starts = (0.0, *shares[:-1])
    return [(start <= order) & (order < end) for start, end in zip(starts, shares, strict=True)]


def _bayer(size: int) -> FloatArray:
    """Return Bayer's matrix of a size that is a power of two, as shares from 0 to below 1."""
    matrix = np.zeros((1, 1))
    while len(matrix) < size:
        matrix = np.block([[4 * matrix, 4 * matrix + 2], [4 * matrix + 3, 4 * matrix + 1]])
    return matrix / size**2
