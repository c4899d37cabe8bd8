"""Which known cells are hidden: those that lie as the holes of other rows do."""

from __future__ import annotations

__all__ = ["PATTERNS", "choose_cells", "follows_holes"]

import numpy as np

from mcflow.typing import BoolArray

#: How hidden cells may lie: as the table's own holes where it has enough of them, always so, or anywhere.
PATTERNS = ("auto", "own", "random")

#: Rows with holes below which a table does not show how its holes lie.
FEWEST_DONORS = 10
#: Observed cells that stay in every column at least, and the share of them.
FEWEST_LEFT, SHARE_LEFT = 5, 0.5
#: The share of the rows that take over the holes of others, at most.
MOST_BORROWERS = 0.5


def follows_holes(missing: BoolArray, pattern: str) -> bool:
    """Tell whether hidden cells are to lie as the table's own holes do.

    Parameters
    ----------
    missing : ndarray of bool of shape (n_rows, n_columns)
        True where a cell is missing.
    pattern : str
        One of `PATTERNS`.

    Returns
    -------
    bool

    Examples
    --------
    >>> follows_holes(np.eye(20, dtype=bool), "auto"), follows_holes(np.zeros((20, 20), dtype=bool), "auto")
    (True, False)
    """
    enough = len(_donors(missing)) >= (FEWEST_DONORS if pattern == "auto" else 1)
    return pattern != "random" and enough


def choose_cells(missing: BoolArray, share: float, *, own: bool, rng: np.random.Generator) -> BoolArray:
    """Choose known cells to hide.

    Parameters
    ----------
    missing : ndarray of bool of shape (n_rows, n_columns)
        True where a cell is missing.
    share : float
        Of each column's known cells: at most so many where holes are followed, about so many elsewhere.
    own : bool
        Whether cells lie as the holes of other rows do.
    rng : Generator
        Decides which.

    Returns
    -------
    ndarray of bool of shape (n_rows, n_columns)
        True where a known cell is to go. Every column keeps at least half of its known cells, and no row loses its
        last one.

    Notes
    -----
    A row takes over the holes of another one, which is drawn from the rows that have any: what goes together in the
    table goes together here, and columns lose cells in proportion to those they lack. As many rows do so, at most half
    of them, as let the column of a typical hole lose its share; columns with more holes lose no more than that.

    Examples
    --------
    >>> missing = np.zeros((100, 3), dtype=bool)
    >>> missing[:20, :2] = True
    >>> chosen = choose_cells(missing, 0.2, own=True, rng=np.random.default_rng(0))
    >>> chosen.sum(axis=0).tolist(), bool((chosen & missing).any())
    ([16, 16, 0], False)
    """
    hidden = _borrowed(missing, share, rng) if own else (rng.random(missing.shape) < share) & ~missing
    hidden[(hidden | missing).all(axis=1)] = False
    return _without_too_many(hidden, missing, share if own else 1 - SHARE_LEFT, rng)


def _donors(missing: BoolArray) -> BoolArray:
    """Return the patterns of the rows that have a hole and something beside it."""
    return missing[missing.any(axis=1) & ~missing.all(axis=1)]


def _borrowed(missing: BoolArray, share: float, rng: np.random.Generator) -> BoolArray:
    donors = _donors(missing)
    n_rows = round(min(MOST_BORROWERS, share / _typical(donors)) * len(missing))
    rows = rng.choice(len(missing), n_rows, replace=False)
    hidden = np.zeros(missing.shape, dtype=bool)
    hidden[rows] = donors[rng.integers(len(donors), size=n_rows)] & ~missing[rows]
    return hidden


def _typical(donors: BoolArray) -> float:
    """Return how often the column of a typical hole is missing: the median over holes."""
    counts = np.sort(donors.sum(axis=0))
    place = np.searchsorted(np.cumsum(counts), counts.sum() / 2)
    return float(counts[place] / len(donors))


def _without_too_many(hidden: BoolArray, missing: BoolArray, share: float, rng: np.random.Generator) -> BoolArray:
    """Let some cells stay in columns that would lose too many; of those that go together, the same."""
    order = rng.permutation(len(hidden))
    known = (~missing).sum(axis=0)
    most = np.minimum(np.floor(share * known), np.maximum(known - FEWEST_LEFT, 0)).astype(np.int64)
    for column in np.flatnonzero(hidden.sum(axis=0) > most):
        rows = order[hidden[order, column]]
        hidden[rows[most[column] :], column] = False
    return hidden
