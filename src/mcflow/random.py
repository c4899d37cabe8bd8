"""One `random_state` becomes every stream of random numbers; nothing global is read or set."""

from __future__ import annotations

__all__ = ["Streams", "cell_uniforms", "checked_ids", "hash_rows", "row_uniforms", "seed_from"]

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mcflow.errors import ParameterError
from mcflow.typing import FloatArray, RandomState

if TYPE_CHECKING:
    import torch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_CANONICAL_NAN = np.uint64(0x7FF8000000000000)


def seed_from(random_state: RandomState) -> int:
    """Return a whole number below 2⁶³ that stands for `random_state`.

    Parameters
    ----------
    random_state : int, numpy Generator, numpy RandomState or None
        None takes fresh entropy from the system; generators are advanced by one draw.

    Returns
    -------
    int
        The seed from which every stream is spawned.

    Examples
    --------
    >>> seed_from(7)
    7
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> np.uint64(1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63 - 1))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state)
    raise ParameterError(
        f"random_state is {random_state!r}, but has to be a whole number of at least 0, "
        "a numpy Generator or RandomState, or None."
    )


class Streams:
    """Independent generators spawned from one seed, one for each use.

    Parameters
    ----------
    seed : int
        What `seed_from` returned.

    Notes
    -----
    Generators live on the CPU whatever the device, so that a seed means the same everywhere.
    """

    def __init__(self, seed: int) -> None:
        fill, weights, order = np.random.SeedSequence(seed).spawn(3)
        self.fill = np.random.default_rng(fill)
        self.weights = _torch_generator(weights)
        self.order = _torch_generator(order)


def _torch_generator(sequence: np.random.SeedSequence) -> torch.Generator:
    import torch  # takes seconds, and hundreds of MiB that a method without it should not be charged with

    seed = int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
    return torch.Generator(device="cpu").manual_seed(seed)


def _mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scramble 64-bit words (the finaliser of SplitMix64)."""
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    mixed: npt.NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed


def hash_rows(values: FloatArray, seed: int) -> npt.NDArray[np.uint64]:
    """Hash each row of a table together with a seed.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        Float64; every NaN counts as the same value, and so do 0.0 and -0.0.
    seed : int
        Changes every hash.

    Returns
    -------
    ndarray of shape (n_rows,)
        One 64-bit word a row, a function of the seed and the row's own cells alone.
    """
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)
    bits = np.where(np.isnan(values), _CANONICAL_NAN, bits)
    start = _mix(np.array([seed % 2**64], dtype=np.uint64) + _GOLDEN)
    state = np.repeat(start, len(values))
    with np.errstate(over="ignore"):
        for column in range(values.shape[1]):
            state = _mix((state ^ bits[:, column]) + _GOLDEN)
    return state


def row_uniforms(values: FloatArray, seed: int) -> FloatArray:
    """Return uniform numbers in [0, 1), one a cell, that depend on the seed and on the row alone.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        The rows, NaN where a cell is missing.
    seed : int
        The seed of the whole.

    Returns
    -------
    ndarray of shape (n_rows, n_columns)
        Float64. Equal rows get equal numbers; the order of rows does not matter.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1.0, np.nan], [2.0, 3.0]])
    >>> bool((row_uniforms(rows, 0)[::-1] == row_uniforms(rows[::-1], 0)).all())
    True
    """
    steps = np.arange(1, values.shape[1] + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        words = _mix(np.add(hash_rows(values, seed)[:, None], steps * _GOLDEN, dtype=np.uint64))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def cell_uniforms(
    hashes: npt.NDArray[np.uint64], columns: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
) -> FloatArray:
    """Return uniform numbers for chosen cells of hashed rows, several of each.

    Parameters
    ----------
    hashes : ndarray of shape (n_cells,)
        Of each cell's row, by `hash_rows`.
    columns : ndarray of shape (n_cells,)
        Each cell's column, or anything else that tells cells of a row apart; at least 0.
    numbers : ndarray of shape (n_numbers,)
        Of the series, at least 0: draws, or steps.

    Returns
    -------
    ndarray of shape (n_numbers, n_cells)
        Float64, inside (0, 1).

    Examples
    --------
    >>> hashes = hash_rows(np.array([[1.0, np.nan]]), 0)
    >>> first = cell_uniforms(hashes, np.array([1]), np.arange(3))
    >>> bool((cell_uniforms(hashes, np.array([1]), np.array([2])) == first[2:]).all())
    True
    """
    with np.errstate(over="ignore"):
        cells = _mix(hashes + (columns.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
        series = _mix((numbers.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
        words = _mix(cells ^ series[:, None])
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def checked_ids(name: str, ids: Any, n_rows: int) -> FloatArray:
    """Return whole numbers that tell rows apart, as `hash_rows` takes them.

    Parameters
    ----------
    name : str
        Of the argument, for messages.
    ids : array-like of shape (n_rows,)
        Whole numbers.
    n_rows : int
        How many there have to be.

    Returns
    -------
    ndarray of shape (n_rows,)

    Raises
    ------
    ParameterError
        When there are more or fewer, or they are no whole numbers.

    Examples
    --------
    >>> checked_ids("row_ids", [3, 1], 2)
    array([3., 1.])
    """
    numbers = np.asarray(ids)
    if numbers.shape != (n_rows,):
        raise ParameterError(f"{name} has the shape {numbers.shape}, but {n_rows} are needed. Give a number for each.")
    if numbers.dtype.kind not in "iu":
        raise ParameterError(
            f"{name} is of type {numbers.dtype}, but has to hold whole numbers, such as range({n_rows})."
        )
    return numbers.astype(np.float64)
