"""Random number streams derived from one `random_state`, without global state."""

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
    """Return an integer seed below 2⁶³ for `random_state`."""
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
    """Independent generators spawned from one seed: for initial fills, weights and batch order.

    Torch generators live on the CPU, so that a seed gives the same numbers on every device.
    """

    def __init__(self, seed: int) -> None:
        fill, weights, order = np.random.SeedSequence(seed).spawn(3)
        self.fill = np.random.default_rng(fill)
        self.weights = _torch_generator(weights)
        self.order = _torch_generator(order)


def _torch_generator(sequence: np.random.SeedSequence) -> torch.Generator:
    import torch  # imported here: it takes seconds and hundreds of MiB that methods without it do not need

    seed = int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
    return torch.Generator(device="cpu").manual_seed(seed)


def _mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scramble 64-bit words with the finaliser of SplitMix64."""
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    mixed: npt.NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed


def hash_rows(values: FloatArray, seed: int) -> npt.NDArray[np.uint64]:
    """Hash each row of `values` (n_rows, n_columns) together with a seed; return (n_rows,)."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)
    bits = np.where(np.isnan(values), _CANONICAL_NAN, bits)
    start = _mix(np.array([seed % 2**64], dtype=np.uint64) + _GOLDEN)
    state = np.repeat(start, len(values))
    with np.errstate(over="ignore"):
        for column in range(values.shape[1]):
            state = _mix((state ^ bits[:, column]) + _GOLDEN)
    return state


def row_uniforms(values: FloatArray, seed: int) -> FloatArray:
    """Return a uniform number in [0, 1) per cell (n_rows, n_columns), which depends on the seed and the row only."""
    steps = np.arange(1, values.shape[1] + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        words = _mix(np.add(hash_rows(values, seed)[:, None], steps * _GOLDEN, dtype=np.uint64))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def cell_uniforms(
    hashes: npt.NDArray[np.uint64], columns: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
) -> FloatArray:
    """Return uniform numbers (n_numbers, n_cells) in (0, 1) of cells of hashed rows, by their `numbers` in a series."""
    with np.errstate(over="ignore"):
        cells = _mix(hashes + (columns.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
        series = _mix((numbers.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
        words = _mix(cells ^ series[:, None])
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def checked_ids(name: str, ids: Any, n_rows: int) -> FloatArray:
    """Check integer row identifiers of shape (n_rows,) and return them as float64, as `hash_rows` takes them."""
    numbers = np.asarray(ids)
    if numbers.shape != (n_rows,):
        raise ParameterError(f"{name} has the shape {numbers.shape}, but has to be ({n_rows},): one number for each.")
    if numbers.dtype.kind not in "iu":
        raise ParameterError(
            f"{name} has the type {numbers.dtype}, but has to hold whole numbers, such as range({n_rows})."
        )
    return numbers.astype(np.float64)
