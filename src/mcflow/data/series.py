"""One column between its own type and the numbers that models work with."""

from __future__ import annotations

__all__ = [
    "arrow_array",
    "cells_of",
    "codes_of",
    "fill_native",
    "is_text",
    "is_time",
    "natural_type",
    "new_cells",
    "type_named",
    "whole_counts",
    "whole_numbers",
]

import re
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.errors import DataError
from mcflow.typing import Array, BoolArray, FloatArray

#: Nanoseconds in the units of Arrow's times.
NANOSECONDS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "day": 86_400_000_000_000}


def arrow_array(series: Any) -> pa.Array | None:
    """Return a column as one Arrow array, or None when its cells are of several types.

    Parameters
    ----------
    series : narwhals Series or ndarray of shape (n_rows,)
        NaN counts as missing.

    Returns
    -------
    pyarrow.Array or None
    """
    try:
        array = _as_arrow(series)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if str(array.type) == "string_view":  # which Arrow can hardly compute with
        array = array.cast(pa.large_string())
    if pa.types.is_floating(array.type) and pc.any(pc.is_nan(array)).as_py():
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
    return array


def _as_arrow(series: Any) -> Any:
    plain = isinstance(series, np.ndarray)
    try:
        return pa.array(series, from_pandas=True) if plain else series.to_arrow()
    except OverflowError:  # of objects, Arrow reads unsigned integers only when told to
        return pa.array(series if plain else series.to_list(), pa.uint64(), from_pandas=True)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type is one of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view")


def is_time(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type is one of dates, times with a date, or durations."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind))


def codes_of(array: pa.Array, column: Column, unseen: str = "error") -> FloatArray:
    """Read a column as numbers: itself, its level's place, or its time.

    Parameters
    ----------
    array : pyarrow.Array
        From `arrow_array`.
    column : Column
        What the column was at fit.
    unseen : {"error", "missing"}
        What to do with a level that the fit did not see.

    Returns
    -------
    ndarray of shape (n_rows,)
        Float64, NaN where missing.

    Raises
    ------
    DataError
        When the column is of another type now, or holds a level that was never seen.
    """
    kind = column.base or column.kind
    if pa.types.is_null(array.type) or array.null_count == len(array):
        return np.full(len(array), np.nan)
    try:
        if kind in LEVEL_KINDS:
            return _level_codes(array, column, unseen)
        return _time_codes(array, column) if kind == "datetime" else _number_codes(array)
    except pa.ArrowException as error:
        raise DataError(
            f"Column {column.name!r} held values of type {column.dtype} at fit, and is of type {array.type} now. "
            "Convert it to the type it had."
        ) from error


def _number_codes(array: pa.Array) -> FloatArray:
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise pa.ArrowInvalid("not numbers")
    return _floats(array.cast(pa.float64(), safe=False))


def _time_codes(array: pa.Array, column: Column) -> FloatArray:
    if not is_time(array.type) or _family(array.type) != _family(natural_type(column)):
        raise pa.ArrowInvalid("not times, or durations instead of times")
    counts, unit = whole_counts(array)
    step = _step(column)
    if unit >= step:
        codes = counts.astype(np.float64) * (unit // step)
    else:  # in whole numbers, as a float64 cannot hold all nanoseconds
        whole, rest = np.divmod(counts, step // unit)
        codes = whole + rest / (step // unit)
    codes[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return codes


def whole_counts(array: pa.Array) -> tuple[Array, int]:
    """Return whole numbers or times as integers, 0 where missing, and the nanoseconds that a time's 1 stands for."""
    if pa.types.is_integer(array.type):
        return array.fill_null(0).to_numpy(), 1
    plain = array.cast(pa.int32()) if pa.types.is_date32(array.type) else array.cast(pa.int64())
    return plain.fill_null(0).to_numpy().astype(np.int64), _unit(array.type)


def _unit(kind: pa.DataType) -> int:
    if pa.types.is_date(kind):
        return NANOSECONDS["day" if pa.types.is_date32(kind) else "ms"]
    return NANOSECONDS[kind.unit]


def _step(column: Column) -> int:
    return round(column.step * NANOSECONDS["us"])


def _floats(array: pa.Array) -> FloatArray:
    return np.array(array.to_numpy(zero_copy_only=False), dtype=np.float64)


def _level_codes(array: pa.Array, column: Column, unseen: str) -> FloatArray:
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    levels = pa.array(list(column.levels)).cast(plain.type)
    places = pc.index_in(plain, value_set=levels)
    new = pc.and_(plain.is_valid(), places.is_null())
    if unseen == "error" and pc.any(new).as_py():
        found = pc.unique(plain.filter(new)).to_pylist()
        raise DataError(
            f"Column {column.name!r} holds levels that the fit did not see: {_some(found)}. Fit on a table that has "
            "them, or set unseen='missing' to treat them as missing."
        )
    return _floats(places.cast(pa.float64()))


def _some(found: list[Any], most: int = 5) -> str:
    words = ", ".join(map(repr, found[:most]))
    return words + (f" and {len(found) - most} more" if len(found) > most else "")


def cells_of(codes: FloatArray, column: Column, kind: pa.DataType | None = None) -> pa.Array:
    """Turn codes back into cells of an Arrow type.

    Parameters
    ----------
    codes : ndarray of shape (n_cells,)
        Complete.
    column : Column
        What the column is.
    kind : pyarrow.DataType, optional
        The type to give; the natural one when not given.

    Returns
    -------
    pyarrow.Array
    """
    base = column.base or column.kind
    kind = kind or natural_type(column)
    if base in LEVEL_KINDS:
        return pa.array(list(column.levels)).take(pa.array(codes.astype(np.int64))).cast(kind)
    if base == "datetime":
        return _times(codes, column, kind)
    if pa.types.is_integer(kind):
        return pa.array(_with_ends(whole_numbers(codes, kind.to_pandas_dtype()), codes, column.levels, column))
    return pa.array(codes).cast(kind)


def _with_ends(counts: Array, codes: FloatArray, ends: tuple[Any, ...], column: Column) -> Array:
    """Put the exact smallest and largest value where the codes are theirs, if a float64 cannot hold them."""
    limits = np.iinfo(counts.dtype)
    if ends:
        low, high = (min(max(end, limits.min), limits.max) for end in ends)
        counts[codes == column.low], counts[codes == column.high] = low, high
    return counts


def _times(codes: FloatArray, column: Column, kind: pa.DataType) -> pa.Array:
    unit, step = _unit(kind), _step(column)
    if unit >= step:
        counts = whole_numbers(codes / (unit // step), np.int64)
    else:
        whole = np.floor(codes)
        parts = whole_numbers((codes - whole) * (step // unit), np.int64)
        counts = whole_numbers(whole, np.int64) * (step // unit) + parts
    counts = _with_ends(counts, codes, tuple(end // unit for end in column.levels), column)
    plain = pa.array(counts.astype(np.int32)) if pa.types.is_date32(kind) else pa.array(counts)
    return plain.cast(kind)


def natural_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a column's cells at fit, that of its levels where it has some."""
    if (column.base or column.kind) in LEVEL_KINDS:
        return pa.array(list(column.levels)).type
    return type_named(column.dtype) or pa.float64()


def type_named(word: str) -> pa.DataType | None:
    """Return the Arrow type of numbers or times that a word names, None for others.

    Examples
    --------
    >>> type_named("timestamp[us, tz=UTC]")
    TimestampType(timestamp[us, tz=UTC])
    """
    timed = re.fullmatch(r"timestamp\[(\w+)(?:, tz=(.+))?\]", word)
    if timed:
        return pa.timestamp(timed.group(1), timed.group(2))
    try:
        kind = pa.type_for_alias(word)
    except ValueError:
        return None
    return kind if pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_time(kind) else None


def whole_numbers(values: FloatArray, dtype: Any) -> Array:
    """Round to whole numbers that an integer type can hold."""
    limits = np.iinfo(dtype)
    # A float64 cannot hold every int64, so the top of the range is approached from below.
    high = np.nextafter(float(limits.max), 0.0) if limits.max > 2**53 else float(limits.max)
    return np.clip(np.rint(values), float(limits.min), high).astype(limits.dtype)


def new_cells(array: pa.Array, codes: FloatArray, column: Column) -> pa.Array:
    """Turn codes into cells of a column's type, of the natural one where the column is empty and of no such type.

    Parameters
    ----------
    array : pyarrow.Array
        The column, from `arrow_array`.
    codes : ndarray of shape (n_cells,)
        Complete.
    column : Column
        What the column is.

    Returns
    -------
    pyarrow.Array
    """
    return cells_of(codes, column, _plain(array.type) if _fits(array, column) else None)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _fits(array: pa.Array, column: Column) -> bool:
    """Tell whether a column's type can hold what it held at fit; one without an observed cell may be of any type."""
    kind = _plain(array.type)
    halves = pa.types.is_integer(kind) and not column.whole
    return array.null_count < len(array) or (_family(kind) == _family(natural_type(column)) and not halves)


def _family(kind: pa.DataType) -> str:
    """Return a word for the types whose cells can stand for each other."""
    families = {
        "boolean": pa.types.is_boolean(kind),
        "number": pa.types.is_integer(kind) or pa.types.is_floating(kind),
        "text": is_text(kind),
        "duration": pa.types.is_duration(kind),
        "time": is_time(kind),
    }
    return next((word for word, member in families.items() if member), "")


def fill_native(series: nw.Series[Any], holes: BoolArray, codes: FloatArray, column: Column) -> nw.Series[Any]:
    """Return a series with its missing cells replaced, in its own type.

    Parameters
    ----------
    series : narwhals Series
        The column as it was given.
    holes : ndarray of bool of shape (n_rows,)
        Cells to replace.
    codes : ndarray of shape (n_rows,)
        What to put there.
    column : Column
        What the column is.

    Returns
    -------
    narwhals Series
        New; all other cells have the same bits. Of another type only if it was empty and of one that cannot hold them.
    """
    array = arrow_array(series)
    assert array is not None
    cells = new_cells(array, codes[holes], column)
    fill = {"pandas": _fill_pandas, "polars": _fill_polars, "pyarrow": _fill_arrow}
    native = fill[str(series.implementation).lower()](series.to_native(), holes, cells, _fits(array, column))
    filled: nw.Series[Any] = nw.from_native(native, series_only=True).alias(series.name)
    return filled


def _fill_pandas(native: Any, holes: BoolArray, cells: pa.Array, fits: bool) -> Any:
    import pandas as pd

    dtype, places = native.dtype, np.flatnonzero(holes)
    if isinstance(dtype, pd.ArrowDtype):
        array = _fill_arrow(pa.chunked_array(pa.array(native.array)), holes, cells, fits)
        return pd.Series(pd.arrays.ArrowExtensionArray(array), index=native.index, name=native.name)
    filled = native.copy()
    if pd.api.types.is_object_dtype(dtype):
        filled.iloc[places] = np.array(cells.to_pylist(), dtype=object)
    elif fits:
        filled = _with_categories(filled, cells)
        filled.iloc[places] = cells.to_pandas().astype(filled.dtype).array
    else:
        filled = cells.to_pandas().set_axis(native.index)
    return filled


def _with_categories(native: Any, cells: pa.Array) -> Any:
    """Return a pandas Categorical with the categories that new cells need, any other Series as it is."""
    import pandas as pd

    if not isinstance(native.dtype, pd.CategoricalDtype):
        return native
    new = [level for level in cells.unique().to_pylist() if level not in native.dtype.categories]
    return native.cat.add_categories(new) if new else native


def _fill_polars(native: Any, holes: BoolArray, cells: pa.Array, fits: bool) -> Any:
    import polars as pl

    places = np.zeros(len(holes), dtype=np.int64)
    places[holes] = np.arange(len(cells))
    fresh = pl.Series(native.name, cells.take(pa.array(places)))
    if not fits:
        return fresh
    if isinstance(native.dtype, pl.Enum):
        texts = [*native.dtype.categories, *cells.unique().to_pylist()]
        native = native.cast(pl.Enum(list(dict.fromkeys(texts))))
    return native.zip_with(pl.Series(~holes), fresh.cast(native.dtype))


def _fill_arrow(native: Any, holes: BoolArray, cells: pa.Array, fits: bool) -> Any:
    if not fits:
        return pa.chunked_array([cells])
    kind, whole = native.type, native.combine_chunks()
    if pa.types.is_dictionary(kind):
        levels = cells.unique()
        indices = pc.index_in(cells, value_set=levels).cast(kind.index_type)
        cells = pa.DictionaryArray.from_arrays(indices, levels, ordered=kind.ordered)
    if str(kind) == "string_view":
        whole = whole.cast(cells.type)
    places = np.arange(len(holes))
    places[holes] = len(holes) + np.arange(len(cells))
    # To concatenate dictionaries is to add the levels that the first lacks, in the order that it has.
    filled = pa.concat_arrays([whole, cells]).take(pa.array(places))
    return pa.chunked_array([filled if filled.type == kind else filled.cast(kind)])
