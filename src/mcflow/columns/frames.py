"""Read numpy, pandas, polars and pyarrow tables as codes, and return filled tables of the same kind."""

from __future__ import annotations

__all__ = [
    "CONTAINERS",
    "Frame",
    "add_columns",
    "build_frame",
    "cells_of",
    "codes_of",
    "convert",
    "fill_native",
    "is_text",
    "is_time",
    "observed_cells",
    "read_frame",
    "read_where",
    "select",
    "take_rows",
    "type_named",
    "whole_columns",
    "whole_counts",
]

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.utils.validation import check_array

from mcflow.columns.numerals import read_truth
from mcflow.columns.schema import CATEGORY_KINDS, Column, TableSchema, numbers_in, without_values, without_words
from mcflow.errors import DataError, MissingExtraError, ParameterError, did_you_mean
from mcflow.typing import Array, BoolArray, FloatArray

CONTAINERS = ("numpy", "pandas", "polars", "pyarrow")  # supported kinds of table

#: Nanoseconds per unit of Arrow's temporal types.
NANOSECONDS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "day": 86_400_000_000_000}


@dataclass(frozen=True)
class Frame:
    """A table as the caller gave it, with access to its columns."""

    native: Any  # the caller's object; never modified
    container: str  # one of `CONTAINERS`
    names: list[Any]  # column names; positions for numpy
    n_rows: int

    @property
    def named(self) -> bool:
        """Tell whether every column name is a string."""
        return self.container != "numpy" and all(isinstance(name, str) for name in self.names)

    @cached_property
    def _frame(self) -> nw.DataFrame[Any]:
        return nw.from_native(self.native, eager_only=True)

    @cached_property
    def _floats(self) -> FloatArray | None:
        """The table as one array when all its columns are numpy float64, else None."""
        if self.container == "pandas":
            plain = type(self.native).__name__ == "DataFrame" and all(kind == np.float64 for kind in self.native.dtypes)
            return self.native.to_numpy() if plain else None
        plain = self.container == "numpy" and self.native.dtype == np.float64
        return self.native if plain else None

    def series(self, position: int) -> Any:
        """Return a column: a narwhals Series, or an array for numpy."""
        if self.container == "pyarrow":
            return self._frame.get_column(self.names[position])  # narwhals is slow by position
        return self.native[:, position] if self.container == "numpy" else self._frame[:, position]

    def arrow(self, position: int) -> pa.Array | None:
        """Return a column as an Arrow array, or None when its cells have mixed types."""
        return _arrow_array(self.series(position))

    def missing(self, position: int, column: Column | None = None) -> BoolArray:
        """Return the mask of a column's missing cells, (n_rows,); `column` tells which values are missing too."""
        if self._floats is not None:
            cells = self._floats[:, position]
            return np.isnan(cells if column is None else _without_codes(cells, column))
        array = self.arrow(position)
        if array is not None:
            array = array if column is None else observed_cells(array, column)
            return np.array(array.is_null().to_numpy(zero_copy_only=False), dtype=bool)
        series = self.series(position)
        cells = series if isinstance(series, np.ndarray) else series.to_list()
        return np.array([_is_missing(cell) for cell in cells], dtype=bool)

    def codes(self, schema: TableSchema, unseen: str = "error") -> FloatArray:
        """Return the codes of a schema's coded columns, (n_rows, n_coded)."""
        values = np.empty((self.n_rows, len(schema.coded)), dtype=np.float64)
        for k, position in enumerate(schema.coded):
            values[:, k] = self.column_codes(position, schema.columns[position], unseen)
        counts = np.isinf(values).sum(axis=0)
        if counts.any():
            names = [self.names[p] for p in schema.coded]
            found = ", ".join(f"{name!r} ({count})" for name, count in zip(names, counts, strict=True) if count)
            raise DataError(
                f"The table holds infinite values (inf) in these columns, with their counts: {found}. "
                "Only finite numbers and missing cells are allowed: replace infinities by NaN to have them filled."
            )
        return values

    def column_codes(self, position: int, column: Column, unseen: str = "error") -> FloatArray:
        """Return the codes of one column, (n_rows,)."""
        kind = column.base or column.kind
        plain = self.container == "numpy" and self.native.dtype.kind in "fiu"
        numbers = self.native if plain else self._floats
        if numbers is not None and (kind in ("continuous", "integer") or (plain and kind == "datetime")):
            return _without_codes(numbers[:, position].astype(np.float64), column)
        array = self.arrow(position)
        if array is None:
            raise DataError(f"Column {column.name!r} holds cells of mixed types. Convert it to one type.")
        return codes_of(array, column, unseen)

    def table_like(self, columns: Mapping[Any, Array]) -> Any:
        """Build a new table of the same kind, with the same index for pandas."""
        table = build_frame(self.container, {name: pa.array(values) for name, values in columns.items()})
        if self.container == "pandas":
            table.index = self.native.index
        return table

    def fill(self, schema: TableSchema, before: FloatArray, after: FloatArray) -> Any:
        """Return the table with missing cells replaced by decoded codes `after`; both codes are (n_rows, n_coded)."""
        missing = np.isnan(before) & ~np.isnan(after)
        if self._floats is not None and all(
            (schema.columns[p].base or schema.columns[p].kind) in ("continuous", "integer") for p in schema.coded
        ):
            return self._filled_floats(missing, after, list(schema.coded))
        for k, p in enumerate(schema.coded):
            if missing[:, k].any():  # an unseen category has no code, but its cell is observed and is kept
                missing[:, k] &= self.missing(p, schema.columns[p])
        changed = [(k, p) for k, p in enumerate(schema.coded) if missing[:, k].any()]
        if self.container == "numpy":
            filled: Array = np.array(self.native)
            for k, p in changed:
                cells = _new_cells(self.arrow(p), after[missing[:, k], k], schema.columns[p])
                filled[missing[:, k], p] = cells.to_pylist() if filled.dtype == object else cells.to_numpy(False)
            return filled
        series = [fill_native(self.series(p), missing[:, k], after[:, k], schema.columns[p]) for k, p in changed]
        native = (self._frame.with_columns(*series) if series else self._frame.clone()).to_native()
        if self.container != "pyarrow":
            return native
        given = self.native.schema
        fields = [field.with_type(kind) for field, kind in zip(given, native.schema.types, strict=True)]
        return pa.Table.from_arrays(native.columns, schema=pa.schema(fields, given.metadata))

    def _filled_floats(self, missing: BoolArray, after: FloatArray, positions: list[int]) -> Any:
        """Fill the missing cells of a table of numpy float64 columns."""
        assert self._floats is not None
        filled = np.array(self._floats)
        filled[:, positions] = np.where(missing, after, filled[:, positions])
        if self.container == "numpy":
            return filled
        table = type(self.native)(filled, index=self.native.index, columns=self.native.columns, copy=False)
        table.attrs = dict(self.native.attrs)
        return table


def _without_codes(values: FloatArray, column: Column) -> FloatArray:
    """Return numbers with NaN in place of the codes that are missing in a column, (n_rows,)."""
    codes = numbers_in(column.missing_codes)
    return np.where(np.isin(values, codes), np.nan, values) if codes else values


def _is_missing(cell: Any) -> bool:
    """Tell whether a cell of a column of mixed types is None, NaN, or pandas' NA or NaT."""
    names = ("NoneType", "NAType", "NaTType")
    return type(cell).__name__ in names or (isinstance(cell, float) and math.isnan(cell))


def read_frame(given: Any) -> Frame:
    """Read a data frame or an array-like of two dimensions."""
    try:
        native = nw.from_native(given, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"Some column names occur more than once. Give each column its own name. {error}") from error
    if not isinstance(native, nw.DataFrame):
        return _read_array(given)
    if not len(native) or not native.columns:
        raise DataError(
            f"Found a table with {len(native)} row(s) and {len(native.columns)} column(s), while a minimum of 1 of "
            "each is required. Give a table with rows and columns."
        )
    nameless = [position for position, name in enumerate(native.columns) if _is_missing(name)]
    if nameless:
        raise DataError(
            f"Column {nameless[0]} has the label {native.columns[nameless[0]]}, which is a missing value. "
            "Rename it, for example with X.columns = [...]."
        )
    return Frame(native.to_native(), str(native.implementation).lower(), list(native.columns), len(native))


def _read_array(given: Any) -> Frame:
    # Object arrays are not converted: scikit-learn would read True, "1" and 1 as the same number.
    kept = isinstance(given, np.ndarray) and given.dtype == object
    try:
        array = check_array(given, dtype=None if kept else "numeric", ensure_all_finite=False, estimator="the imputer")
    except ValueError as error:
        raise DataError(str(error)) from error
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    return Frame(array, "numpy", list(range(array.shape[1])), len(array))


def read_where(where: Any, frame: Frame) -> BoolArray:
    """Return which cells may be filled (n_rows, n_columns), given booleans: an array, or a frame with some columns."""
    native = nw.from_native(where, eager_only=True, pass_through=True)
    if not isinstance(native, nw.DataFrame):
        given: Array = np.asarray(where)
        if given.dtype != bool or given.shape != (frame.n_rows, len(frame.names)):
            raise ParameterError(
                f"where is an array of {given.dtype} of shape {given.shape}, but has to hold booleans of the shape of "
                f"the table, {(frame.n_rows, len(frame.names))}, such as X.isna()."
            )
        return given
    found = np.zeros((frame.n_rows, len(frame.names)), dtype=bool)
    for position, name in enumerate(native.columns):
        column = native[:, position].to_numpy()
        if name not in frame.names:
            hint = did_you_mean(name, map(str, frame.names))
            raise ParameterError(f"where has the column {name!r}, which the table lacks.{hint}")
        if column.dtype != bool or len(column) != frame.n_rows:
            raise ParameterError(
                f"where has {len(column):,} cells of {column.dtype} in the column {name!r}, but has to have "
                f"{frame.n_rows:,} booleans without missing values, such as X.isna()."
            )
        found[:, frame.names.index(name)] = column
    return found


def convert(native: Any, container: str) -> Any:
    """Convert a data frame to another kind: "pandas", "polars" or "pyarrow"."""
    frame = nw.from_native(native, eager_only=True)
    if str(frame.implementation).lower() == container:
        return native
    if container == "polars":
        return _to_polars(frame)
    return frame.to_pandas() if container == "pandas" else frame.to_arrow()


def _to_polars(frame: nw.DataFrame[Any]) -> Any:
    """Convert to polars, column by column when some hold objects, because polars reads only some of those."""
    import polars as pl

    if not any(dtype == nw.Object for dtype in frame.schema.values()):
        return frame.to_polars()
    columns = []
    for series in frame.iter_columns():
        cells = _arrow_array(series) if series.dtype == nw.Object else series.to_polars()
        column = pl.Series(series.to_list(), dtype=pl.Object) if cells is None else pl.Series(cells)
        columns.append(column.alias(str(series.name)))
    return pl.DataFrame(columns)


def select(native: Any, positions: list[int]) -> Any:
    """Select columns of a data frame by position."""
    return nw.from_native(native, eager_only=True)[:, positions].to_native()


def take_rows(table: Frame, rows: Array) -> Any:
    """Select rows by position and return a table of the same kind."""
    if table.container == "numpy":
        return table.native[rows]
    return nw.from_native(table.native, eager_only=True)[rows.tolist(), :].to_native()


def add_columns(native: Any, columns: Mapping[Any, Array]) -> Any:
    """Add numeric columns to a data frame; an existing column is replaced and keeps its type."""
    frame = nw.from_native(native, eager_only=True)
    added = [nw.new_series(name, values, backend=frame.implementation) for name, values in columns.items()]
    known = set(frame.columns)
    if str(frame.implementation).lower() == "pandas":
        types = {name: native[name].dtype for name in columns if name in known}
        return frame.with_columns(*added).to_native().astype(types)
    typed = [series.cast(frame[series.name].dtype) if series.name in known else series for series in added]
    return frame.with_columns(*typed).to_native()


def whole_columns(native: Any, names: list[Any]) -> Any:
    """Convert the named float columns of a data frame to nullable integers."""
    frame = nw.from_native(native, eager_only=True)
    floats = [name for name in names if name in frame.columns and frame[name].dtype.is_float()]
    if str(frame.implementation).lower() == "pandas":
        return native.astype(dict.fromkeys(floats, "Int64"))
    return frame.with_columns(*(frame[name].fill_nan(None).cast(nw.Int64) for name in floats)).to_native()


def build_frame(container: str, columns: Mapping[Any, pa.Array]) -> Any:
    """Build a new table of the given kind from its columns."""
    arrays = [array.to_numpy(zero_copy_only=False) for array in columns.values()]
    if container == "numpy":
        return np.column_stack(arrays)
    table = pa.table([*columns.values()], names=[str(name) for name in columns])
    try:
        native = convert(table, container)
    except ImportError as error:
        raise MissingExtraError(f"A table of kind {container!r} needs {container}: pip install {container}") from error
    if container == "pandas":
        native.columns = list(columns)
    return native


def _arrow_array(series: Any) -> pa.Array | None:
    """Return a column as one Arrow array with NaN as null, or None when its cells have mixed types."""
    try:
        array = _as_arrow(series)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if str(array.type) == "string_view":  # few Arrow functions support this type
        array = array.cast(pa.large_string())
    if pa.types.is_floating(array.type) and pc.any(pc.is_nan(array)).as_py():
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
    return array


def _as_arrow(series: Any) -> Any:
    plain = isinstance(series, np.ndarray)
    try:
        return pa.array(series, from_pandas=True) if plain else series.to_arrow()
    except OverflowError:  # Arrow infers int64 for objects, so large unsigned integers need an explicit type
        return pa.array(series if plain else series.to_list(), pa.uint64(), from_pandas=True)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view")


def is_time(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type holds dates, timestamps or durations."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind))


def codes_of(array: pa.Array, column: Column, unseen: str = "error") -> FloatArray:
    """Encode a column as float64 codes (n_rows,): the number, the index of the category, or the time in steps."""
    kind = column.base or column.kind
    array = observed_cells(array, column)
    if pa.types.is_null(array.type) or array.null_count == len(array):
        return np.full(len(array), np.nan)
    try:
        if kind in CATEGORY_KINDS:
            return _category_codes(array, column, unseen)
        if column.format is not None and is_text(array.type):
            return _text_codes(array, column, unseen)
        if kind == "datetime":
            return _time_codes(array, column)
        if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
            raise pa.ArrowInvalid("not numbers")
        return _floats(array.cast(pa.float64(), safe=False))
    except pa.ArrowException as error:
        raise DataError(
            f"Column {column.name!r} had the type {column.dtype} at fit, and has the type {array.type} now. "
            "Convert it to the type it had at fit."
        ) from error


def observed_cells(array: pa.Array, column: Column) -> pa.Array:
    """Return an array with null in the cells that are missing in a column: its codes, and words in text."""
    array = without_values(array, column.missing_codes, column.format)
    if not is_text(array.type):
        return array
    return without_words(array, numeric=column.format is not None or _has_truth_words(column))


def _has_truth_words(column: Column) -> bool:
    """Tell whether a column of text holds words for true and false, in spellings that vary."""
    words = [word for word in column.categories if isinstance(word, str)]
    return (column.base or column.kind) == "boolean" and len(words) == 2 and read_truth(pa.array(words)).null_count == 0


def _text_codes(array: pa.Array, column: Column, unseen: str) -> FloatArray:
    """Read numbers in text."""
    assert column.format is not None
    numbers = column.format.read(pc.utf8_trim_whitespace(array))
    other = pc.and_(array.is_valid(), numbers.is_null())
    if unseen == "error" and pc.any(other).as_py():
        found = pc.unique(array.filter(other)).to_pylist()
        raise DataError(
            f"Column {column.name!r} holds numbers, and also other text: {_some(found)}. Correct these cells, or name "
            "them in missing_values= (--na) to treat them as missing."
        )
    return _floats(numbers)


def _time_codes(array: pa.Array, column: Column) -> FloatArray:
    if not is_time(array.type) or _family(array.type) != _family(_natural_type(column)):
        raise pa.ArrowInvalid("not times, or durations instead of times")
    counts, unit = whole_counts(array)
    step = _step(column)
    if unit >= step:
        codes = counts.astype(np.float64) * (unit // step)
    else:  # with integers, because float64 cannot represent all nanoseconds
        whole, rest = np.divmod(counts, step // unit)
        codes = whole + rest / (step // unit)
    codes[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return codes


def whole_counts(array: pa.Array) -> tuple[Array, int]:
    """Return integers or times as integer counts, 0 where missing, and the nanoseconds per count of a time."""
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


def _category_codes(array: pa.Array, column: Column, unseen: str) -> FloatArray:
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    categories = pa.array(list(column.categories)).cast(plain.type)
    if is_text(plain.type) and _has_truth_words(column):
        indices = read_truth(plain).cast(pa.int32())
    else:
        indices = pc.index_in(plain, value_set=categories)
    new = pc.and_(plain.is_valid(), indices.is_null())
    if unseen == "error" and pc.any(new).as_py():
        found = pc.unique(plain.filter(new)).to_pylist()
        raise DataError(
            f"Column {column.name!r} holds categories that the fit did not see: {_some(found)}. Fit on a table that "
            "has them, or set unseen='missing' to treat them as missing."
        )
    return _floats(indices.cast(pa.float64()))


def _some(found: list[Any], most: int = 5) -> str:
    words = ", ".join(map(repr, found[:most]))
    return words + (f" and {len(found) - most} more" if len(found) > most else "")


def cells_of(codes: FloatArray, column: Column, kind: pa.DataType | None = None) -> pa.Array:
    """Decode codes (n_cells,) into cells of an Arrow type, by default the type of the column at fit."""
    base = column.base or column.kind
    kind = kind or _natural_type(column)
    if base in CATEGORY_KINDS:
        return pa.array(list(column.categories)).take(pa.array(codes.astype(np.int64))).cast(kind)
    if base == "datetime":
        return _times(codes, column, kind)
    if is_text(kind) and column.format is not None:
        return column.format.write(pa.array(codes)).cast(kind)
    if pa.types.is_integer(kind):
        return pa.array(_with_ends(_whole_numbers(codes, kind.to_pandas_dtype()), codes, column.categories, column))
    return pa.array(codes).cast(kind)


def _with_ends(counts: Array, codes: FloatArray, ends: tuple[Any, ...], column: Column) -> Array:
    """Replace decoded minima and maxima by their exact values where float64 cannot represent them."""
    limits = np.iinfo(counts.dtype)
    if ends:
        low, high = (min(max(end, limits.min), limits.max) for end in ends)
        counts[codes == column.low], counts[codes == column.high] = low, high
    return counts


def _times(codes: FloatArray, column: Column, kind: pa.DataType) -> pa.Array:
    unit, step = _unit(kind), _step(column)
    if unit >= step:
        counts = _whole_numbers(codes / (unit // step), np.int64)
    else:
        whole = np.floor(codes)
        parts = _whole_numbers((codes - whole) * (step // unit), np.int64)
        counts = _whole_numbers(whole, np.int64) * (step // unit) + parts
    counts = _with_ends(counts, codes, tuple(end // unit for end in column.categories), column)
    plain = pa.array(counts.astype(np.int32)) if pa.types.is_date32(kind) else pa.array(counts)
    return plain.cast(kind)


def _natural_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a column's cells at fit; for a categorical column, that of its categories."""
    if (column.base or column.kind) in CATEGORY_KINDS:
        return pa.array(list(column.categories)).type
    return type_named(column.dtype) or (pa.float64() if column.format is None else pa.string())


def type_named(word: str) -> pa.DataType | None:
    """Return the numeric or temporal Arrow type with the given name, or None for any other type."""
    timed = re.fullmatch(r"timestamp\[(\w+)(?:, tz=(.+))?\]", word)
    if timed:
        return pa.timestamp(timed.group(1), timed.group(2))
    try:
        kind = pa.type_for_alias(word)
    except ValueError:
        return None
    return kind if pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_time(kind) else None


def _whole_numbers(values: FloatArray, dtype: Any) -> Array:
    """Round to integers, clipped to the range of an integer type."""
    limits = np.iinfo(dtype)
    # The largest int64 is not a float64, so the limit is the next float64 below it.
    high = np.nextafter(float(limits.max), 0.0) if limits.max > 2**53 else float(limits.max)
    return np.clip(np.rint(values), float(limits.min), high).astype(limits.dtype)


def _new_cells(array: pa.Array, codes: FloatArray, column: Column) -> pa.Array:
    """Decode codes (n_cells,) into the type of `array`, or into the type at fit when `array` cannot hold them."""
    return cells_of(codes, column, _plain(array.type) if _fits(array, column) else None)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _fits(array: pa.Array, column: Column) -> bool:
    """Tell whether a column's type can hold the values of the fit; only a column without observed cells may not."""
    kind = _plain(array.type)
    fractional = pa.types.is_integer(kind) and not column.whole
    return array.null_count < len(array) or (_family(kind) == _family(_natural_type(column)) and not fractional)


def _family(kind: pa.DataType) -> str:
    """Return the name of the group of interchangeable types that a type belongs to."""
    families = {
        "boolean": pa.types.is_boolean(kind),
        "number": pa.types.is_integer(kind) or pa.types.is_floating(kind),
        "text": is_text(kind),
        "duration": pa.types.is_duration(kind),
        "time": is_time(kind),
    }
    return next((word for word, member in families.items() if member), "")


def fill_native(series: nw.Series[Any], missing: BoolArray, codes: FloatArray, column: Column) -> nw.Series[Any]:
    """Return a series of the same type with `missing` cells (n_rows,) replaced by decoded `codes` (n_rows,)."""
    array = _arrow_array(series)
    assert array is not None
    cells = _new_cells(array, codes[missing], column)
    fill = {"pandas": _fill_pandas, "polars": _fill_polars, "pyarrow": _fill_arrow}
    native = fill[str(series.implementation).lower()](series.to_native(), missing, cells, _fits(array, column))
    filled: nw.Series[Any] = nw.from_native(native, series_only=True).alias(series.name)
    return filled


def _fill_pandas(native: Any, missing: BoolArray, cells: pa.Array, fits: bool) -> Any:
    import pandas as pd

    dtype, rows = native.dtype, np.flatnonzero(missing)
    if isinstance(dtype, pd.ArrowDtype):
        array = _fill_arrow(pa.chunked_array(pa.array(native.array)), missing, cells, fits)
        return pd.Series(pd.arrays.ArrowExtensionArray(array), index=native.index, name=native.name)
    filled = native.copy()
    if pd.api.types.is_object_dtype(dtype):
        filled.iloc[rows] = np.array(cells.to_pylist(), dtype=object)
    elif fits:
        if isinstance(dtype, pd.CategoricalDtype):
            new = [category for category in cells.unique().to_pylist() if category not in dtype.categories]
            filled = filled.cat.add_categories(new) if new else filled
        filled.iloc[rows] = cells.to_pandas().astype(filled.dtype).array
    else:
        filled = _spread(cells, missing).to_pandas().set_axis(native.index)
    return filled


def _spread(cells: pa.Array, missing: BoolArray) -> pa.Array:
    """Return new cells at the places of a mask (n_rows,), null elsewhere."""
    return cells.take(pa.array(np.cumsum(missing) - 1, mask=~missing))


def _fill_polars(native: Any, missing: BoolArray, cells: pa.Array, fits: bool) -> Any:
    import polars as pl

    filled = pl.Series(native.name, _spread(cells, missing))
    if not fits:
        return filled
    if isinstance(native.dtype, pl.Enum):
        texts = [*native.dtype.categories, *cells.unique().to_pylist()]
        native = native.cast(pl.Enum(list(dict.fromkeys(texts))))
    return native.zip_with(pl.Series(~missing), filled.cast(native.dtype))


def _fill_arrow(native: Any, missing: BoolArray, cells: pa.Array, fits: bool) -> Any:
    if not fits:
        return pa.chunked_array([_spread(cells, missing)])
    kind, whole = native.type, native.combine_chunks()
    if pa.types.is_dictionary(kind):
        categories = cells.unique()
        indices = pc.index_in(cells, value_set=categories).cast(kind.index_type)
        cells = pa.DictionaryArray.from_arrays(indices, categories, ordered=kind.ordered)
    if str(kind) == "string_view":
        whole = whole.cast(cells.type)
    positions = np.arange(len(missing))
    positions[missing] = len(missing) + np.arange(len(cells))
    # Concatenation keeps the order of the first dictionary and appends the categories that it lacks.
    filled = pa.concat_arrays([whole, cells]).take(pa.array(positions))
    return pa.chunked_array([filled if filled.type == kind else filled.cast(kind)])
