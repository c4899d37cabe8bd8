"""Any table in, the same kind out: numpy, pandas, polars and pyarrow, with only the missing cells changed."""

from __future__ import annotations

__all__ = ["KINDS", "Frame", "build_frame", "convert", "read_frame"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from sklearn.utils.validation import check_array

from mcflow.errors import DataError, MissingExtraError
from mcflow.typing import Array, BoolArray, FloatArray

#: The kinds of table that can go in and come out.
KINDS = ("numpy", "pandas", "polars", "pyarrow")


@dataclass(frozen=True)
class Frame:
    """A table as it was given, with its columns of numbers read as float64.

    Parameters
    ----------
    native : object
        What the caller gave; never changed.
    kind : str
        One of `KINDS`.
    names : list
        Column names; positions for numpy.
    dtypes : list of str
        A word for each column's type.
    numeric : list of int
        Positions of the columns of numbers.
    values : ndarray of shape (n_rows, n_numeric)
        Those columns, NaN where missing.
    """

    native: Any
    kind: str
    names: list[Any]
    dtypes: list[str]
    numeric: list[int]
    values: FloatArray

    @property
    def named(self) -> bool:
        """Tell whether every column has a name in words."""
        return self.kind != "numpy" and all(isinstance(name, str) for name in self.names)

    def fill(self, values: FloatArray) -> Any:
        """Return the table with the missing cells of its columns of numbers replaced.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_numeric)
            What to put where a cell is missing; elsewhere it is not read. NaN leaves a cell missing.

        Returns
        -------
        object
            A new table of the same kind; integer columns get the nearest whole number.
        """
        missing = np.isnan(self.values)
        if self.kind == "numpy":
            return self._fill_array(values, missing)
        frame = nw.from_native(self.native, eager_only=True)
        changed = [
            _fill_series(frame[:, position], values[:, k], missing[:, k])
            for k, position in enumerate(self.numeric)
            if missing[:, k].any()
        ]
        return frame.with_columns(*changed).to_native() if changed else frame.clone().to_native()

    def _fill_array(self, values: FloatArray, missing: BoolArray) -> Array:
        filled: Array = np.array(self.native)
        for k, position in enumerate(self.numeric):
            holes = missing[:, k]
            filled[holes, position] = values[holes, k]
        return filled


def _fill_series(series: nw.Series[Any], values: FloatArray, missing: BoolArray) -> nw.Series[Any]:
    """Put values into a series where it is missing, in the series' own type."""
    backend = series.implementation
    if not _is_number(series.dtype):  # nothing but nulls, of whatever type
        return nw.new_series(series.name, values, nw.Float64, backend=backend)
    fill = np.where(missing, values, 0.0)
    if series.dtype.is_integer():
        fill = _whole(fill, series.dtype)
    fills = nw.new_series(series.name, fill, backend=backend).cast(series.dtype)
    seen = nw.new_series("seen", ~missing | np.isnan(values), nw.Boolean, backend=backend)
    return series.zip_with(seen, fills)


def _whole(values: FloatArray, dtype: Any) -> Array:
    """Round to whole numbers that the integer type can hold."""
    limits = np.iinfo(str(dtype).lower())
    rounded = np.rint(np.nan_to_num(values))
    # A float64 cannot hold every int64, so the top of the range is approached from below.
    high = np.nextafter(float(limits.max), 0.0) if limits.max > 2**53 else float(limits.max)
    return np.clip(rounded, float(limits.min), high).astype(limits.dtype)


def read_frame(given: Any, numeric: Sequence[int] | None = None) -> Frame:
    """Read a table.

    Parameters
    ----------
    given : array-like or data frame
        numpy, nested lists, pandas, polars or pyarrow.
    numeric : sequence of int, optional
        Positions that have to be numbers, known from an earlier table; found by type when not given.

    Returns
    -------
    Frame

    Raises
    ------
    DataError
        When there is no column of numbers, a column that has to be one is not, a name stands twice,
        or a number is infinite.
    """
    try:
        native = nw.from_native(given, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"Some column names stand more than once. Give each its own name. {error}") from error
    frame = _read_native(native, numeric) if isinstance(native, nw.DataFrame) else _read_array(given, numeric)
    _refuse_infinities(frame)
    return frame


def _read_array(given: Any, numeric: Sequence[int] | None) -> Frame:
    mixed = numeric is not None and isinstance(given, np.ndarray) and given.ndim == 2 and given.dtype == object
    if mixed and numeric is not None and len(numeric) < given.shape[1]:
        array, places = given, list(numeric)
    else:
        try:
            array = check_array(given, dtype="numeric", ensure_all_finite=False, estimator="the imputer")
        except ValueError as error:
            raise DataError(str(error)) from error
        places = list(range(array.shape[1]))
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    values = np.array(array[:, places], dtype=np.float64)
    return Frame(array, "numpy", list(range(array.shape[1])), [str(array.dtype)] * array.shape[1], places, values)


def _read_native(frame: nw.DataFrame[Any], numeric: Sequence[int] | None) -> Frame:
    names = list(frame.columns)
    dtypes = [frame[:, position].dtype for position in range(len(names))]
    if not len(frame):
        raise DataError("Found a table with 0 row(s), while a minimum of 1 is required. Give a table with rows.")
    places = [p for p, dtype in enumerate(dtypes) if _is_number(dtype)] if numeric is None else list(numeric)
    if not places:
        raise DataError(
            f"None of the {len(names)} columns holds numbers, so there is nothing to fill. "
            "Give a table with at least one integer or float column."
        )
    values = np.empty((len(frame), len(places)), dtype=np.float64)
    for k, position in enumerate(places):
        values[:, k] = _numbers(frame[:, position])
    kind = str(frame.implementation).lower()
    return Frame(frame.to_native(), kind, names, [str(dtype).lower() for dtype in dtypes], places, values)


def _is_number(dtype: Any) -> bool:
    return bool(dtype.is_float() or dtype.is_integer())


def _numbers(series: nw.Series[Any]) -> FloatArray:
    """Read a series as float64, NaN where missing."""
    if not _is_number(series.dtype) and not series.is_null().all():
        raise DataError(
            f"Column {series.name!r} held numbers at fit, and is of type {series.dtype} now. Convert it to numbers."
        )
    if not _is_number(series.dtype):
        return np.full(len(series), np.nan)
    missing = series.is_null().to_numpy().astype(bool)
    if missing.any():
        series = series.fill_null(0)
    values = np.array(series.to_numpy(), dtype=np.float64)
    values[missing] = np.nan
    return values


def _refuse_infinities(frame: Frame) -> None:
    counts = np.isinf(frame.values).sum(axis=0)
    if counts.any():
        found = ", ".join(f"{frame.names[p]!r} ({c})" for p, c in zip(frame.numeric, counts, strict=True) if c)
        raise DataError(
            f"The table holds infinite values (inf) in these columns, with their number: {found}. "
            "Only finite numbers and missing cells are allowed: replace infinities by NaN to have them filled."
        )


def convert(native: Any, kind: str) -> Any:
    """Return a data frame as another kind: "pandas", "polars" or "pyarrow"."""
    frame = nw.from_native(native, eager_only=True)
    if str(frame.implementation).lower() == kind:
        return native
    return {"pandas": frame.to_pandas, "polars": frame.to_polars, "pyarrow": frame.to_arrow}[kind]()


def build_frame(kind: str, columns: Mapping[Any, Array]) -> Any:
    """Build a new table of a kind from its columns.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    columns : mapping
        Arrays by name; numpy ignores the names.

    Returns
    -------
    object
        The table.

    Raises
    ------
    MissingExtraError
        When the library of that kind is not installed.
    """
    if kind == "numpy":
        return np.column_stack(list(columns.values()))
    try:
        return nw.from_dict(dict(columns), backend=kind).to_native()  # type: ignore[arg-type]
    except ImportError as error:
        raise MissingExtraError(f"A table of kind {kind!r} needs {kind}: pip install {kind}") from error
