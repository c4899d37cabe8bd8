"""A table as numbers, whatever its columns are, for mechanisms that look at values."""

from __future__ import annotations

__all__ = ["CodedTable", "read_coded"]

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.frames import Frame, read_frame
from mcflow.data.series import is_text, is_time, whole_counts
from mcflow.typing import Array, BoolArray, FloatArray


@dataclass(frozen=True)
class CodedTable:
    """A table as numbers: `codes` of shape (n_rows, n_columns), NaN where missing."""

    names: list[Any]
    codes: FloatArray

    @cached_property
    def seen(self) -> BoolArray:
        """Where cells are observed."""
        return ~np.isnan(self.codes)

    @cached_property
    def scores(self) -> FloatArray:
        """Return the codes with mean 0 and standard deviation 1 a column, 0 where missing."""
        scores = np.zeros_like(self.codes)
        for place, seen in enumerate(self.seen.T):
            if seen.any():
                scores[seen, place] = _standardise(self.codes[seen, place])
        return scores


def _standardise(values: FloatArray) -> FloatArray:
    finite = values[np.isfinite(values)]
    values = np.clip(values, finite.min(), finite.max()) if len(finite) else np.sign(values)
    if values.min() == values.max():
        return np.zeros_like(values)
    values = values / np.abs(values).max()  # first, as the squares of very large numbers are infinite
    centred = values - values.mean()
    scores: FloatArray = centred / centred.std()
    return scores


def read_coded(given: Any) -> CodedTable:
    """Read any table as numbers: levels and texts by their order, times by their place.

    Parameters
    ----------
    given : array-like or data frame
        numpy, pandas, polars or pyarrow.

    Returns
    -------
    CodedTable
    """
    frame = read_frame(given)
    codes = np.column_stack([_column_codes(frame, place) for place in range(len(frame.names))])
    return CodedTable(frame.names, codes)


def _column_codes(frame: Frame, position: int) -> FloatArray:
    array = frame.arrow(position)
    missing = frame.missing(position)
    codes = np.full(frame.n_rows, np.nan)
    if not missing.all():
        codes[~missing] = _mixed_codes(frame, position)[~missing] if array is None else _codes(array.drop_null())
    return codes


def _codes(array: pa.Array) -> FloatArray:
    """Read a column without missing cells: numbers and times as they are, others by their place in order."""
    kind = array.type
    if is_time(kind):
        counts, _ = whole_counts(array)
        codes: FloatArray = (counts - counts.min()).astype(np.float64)
        return codes
    if pa.types.is_dictionary(kind):
        # Without an order, the places of levels may depend on the order of rows or on other tables.
        return _floats(array.indices) if kind.ordered else _codes(array.dictionary_decode())
    if is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _floats(pc.rank(array, tiebreaker="dense"))
    try:
        return _floats(array)
    except pa.ArrowException:
        return _text_codes(array.to_pylist())


def _floats(array: pa.Array) -> FloatArray:
    if pa.types.is_time(array.type):
        array = array.cast(pa.int32() if pa.types.is_time32(array.type) else pa.int64())
    return np.array(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _mixed_codes(frame: Frame, position: int) -> FloatArray:
    series = frame.series(position)
    return _text_codes(series if isinstance(series, np.ndarray) else series.to_list())


def _text_codes(cells: Any) -> FloatArray:
    """Put cells that have no order of their own in that of their texts."""
    places: Array = np.unique([repr(cell) for cell in cells], return_inverse=True)[1]
    return places.astype(np.float64)
