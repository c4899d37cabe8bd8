"""Any table in, the same kind out: numpy, pandas, polars and pyarrow, with only the missing cells changed."""

from __future__ import annotations

__all__ = [
    "CONTAINERS",
    "Frame",
    "add_columns",
    "build_frame",
    "convert",
    "read_frame",
    "select",
    "take_rows",
    "whole_columns",
]

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
from sklearn.utils.validation import check_array

from mcflow.data.schema import NUMBER_KINDS, Column, TableSchema
from mcflow.data.series import arrow_array, codes_of, fill_native, new_cells
from mcflow.errors import DataError, MissingExtraError
from mcflow.typing import Array, BoolArray, FloatArray

#: The kinds of table that can go in and come out.
CONTAINERS = ("numpy", "pandas", "polars", "pyarrow")


@dataclass(frozen=True)
class Frame:
    """A table as it was given.

    Parameters
    ----------
    native : object
        What the caller gave; never changed.
    container : str
        One of `CONTAINERS`.
    names : list
        Column names; positions for numpy.
    n_rows : int
        Its rows.
    """

    native: Any
    container: str
    names: list[Any]
    n_rows: int

    @property
    def named(self) -> bool:
        """Tell whether every column has a name in words."""
        return self.container != "numpy" and all(isinstance(name, str) for name in self.names)

    @cached_property
    def _frame(self) -> nw.DataFrame[Any]:
        return nw.from_native(self.native, eager_only=True)

    @cached_property
    def _floats(self) -> FloatArray | None:
        """The whole table as one array where it is nothing but float64 numbers of numpy, which needs no types."""
        if self.container == "pandas":
            plain = type(self.native).__name__ == "DataFrame" and all(kind == np.float64 for kind in self.native.dtypes)
            return self.native.to_numpy() if plain else None
        plain = self.container == "numpy" and self.native.dtype == np.float64
        return self.native if plain else None

    def series(self, position: int) -> Any:
        """Return a column: a narwhals Series, or an array for numpy."""
        if self.container == "pyarrow":  # by name: by position, narwhals lists all names for every column
            return self._frame.get_column(self.names[position])
        return self.native[:, position] if self.container == "numpy" else self._frame[:, position]

    def arrow(self, position: int) -> pa.Array | None:
        """Return a column as an Arrow array, None when its cells are of several types."""
        return arrow_array(self.series(position))

    def missing(self, position: int) -> BoolArray:
        """Return where a column is missing, of shape (n_rows,)."""
        if self._floats is not None:
            return np.isnan(self._floats[:, position])
        array = self.arrow(position)
        if array is not None:
            return np.array(array.is_null().to_numpy(zero_copy_only=False), dtype=bool)
        series = self.series(position)
        cells = series if isinstance(series, np.ndarray) else series.to_list()
        return np.array([_is_missing(cell) for cell in cells], dtype=bool)

    def codes(self, schema: TableSchema, unseen: str = "error") -> FloatArray:
        """Read the columns that a schema can code.

        Parameters
        ----------
        schema : TableSchema
            Of the same columns.
        unseen : {"error", "missing"}
            What to do with levels that the fit did not see.

        Returns
        -------
        ndarray of shape (n_rows, n_coded)
            NaN where missing.

        Raises
        ------
        DataError
            When a column is of another type now, a level is new, or a number is infinite.
        """
        if self._floats is not None and _only_numbers(schema):
            values = self._floats[:, list(schema.coded)]
        else:
            values = np.empty((self.n_rows, len(schema.coded)), dtype=np.float64)
            for k, position in enumerate(schema.coded):
                values[:, k] = self.column_codes(position, schema.columns[position], unseen)
        self._refuse_infinities(values, [self.names[p] for p in schema.coded])
        return values

    def column_codes(self, position: int, column: Column, unseen: str = "error") -> FloatArray:
        """Read one column as codes; see `codes`."""
        kind = column.base or column.kind
        if self._floats is not None and kind in ("continuous", "integer"):
            return self._floats[:, position].copy()
        plain = self.container == "numpy" and self.native.dtype.kind in "fiu"
        if plain and kind in NUMBER_KINDS:
            numbers: FloatArray = self.native[:, position].astype(np.float64)
            return numbers
        array = self.arrow(position)
        if array is None:
            raise DataError(f"Column {column.name!r} holds cells of several types now. Give it one type.")
        return codes_of(array, column, unseen)

    def table_like(self, columns: Mapping[Any, Array]) -> Any:
        """Return a new table of the same kind and, for pandas, with the same index."""
        table = build_frame(self.container, {name: pa.array(values) for name, values in columns.items()})
        if self.container == "pandas":
            table.index = self.native.index
        return table

    @staticmethod
    def _refuse_infinities(values: FloatArray, names: list[Any]) -> None:
        counts = np.isinf(values).sum(axis=0)
        if counts.any():
            found = ", ".join(f"{name!r} ({count})" for name, count in zip(names, counts, strict=True) if count)
            raise DataError(
                f"The table holds infinite values (inf) in these columns, with their number: {found}. "
                "Only finite numbers and missing cells are allowed: replace infinities by NaN to have them filled."
            )

    def fill(self, schema: TableSchema, before: FloatArray, after: FloatArray) -> Any:
        """Return the table with missing cells replaced.

        Parameters
        ----------
        schema : TableSchema
            Of the same columns.
        before, after : ndarray of shape (n_rows, n_coded)
            Codes as they were read, NaN where missing, and as they are to be; NaN leaves a cell missing.

        Returns
        -------
        object
            A new table of the same kind.
        """
        holes = np.isnan(before) & ~np.isnan(after)
        if self._floats is not None and _only_numbers(schema):
            return self._filled_floats(holes, after, list(schema.coded))
        for k, p in enumerate(schema.coded):
            if holes[:, k].any():  # a level that the fit did not see has no code, but it is an observed cell and stays
                holes[:, k] &= self.missing(p)
        changed = [(k, p) for k, p in enumerate(schema.coded) if holes[:, k].any()]
        if self.container == "numpy":
            filled: Array = np.array(self.native)
            for k, p in changed:
                filled[holes[:, k], p] = self._new_cells(p, after[holes[:, k], k], schema.columns[p])
            return filled
        fresh = [fill_native(self.series(p), holes[:, k], after[:, k], schema.columns[p]) for k, p in changed]
        native = (self._frame.with_columns(*fresh) if fresh else self._frame.clone()).to_native()
        return _with_fields(native, self.native.schema) if self.container == "pyarrow" else native

    def _filled_floats(self, holes: BoolArray, after: FloatArray, positions: list[int]) -> Any:
        """Return a table of nothing but float64 numbers with its holes filled."""
        assert self._floats is not None
        filled = np.array(self._floats)
        filled[:, positions] = np.where(holes, after, filled[:, positions])
        if self.container == "numpy":
            return filled
        table = type(self.native)(filled, index=self.native.index, columns=self.native.columns, copy=False)
        table.attrs = dict(self.native.attrs)
        return table

    def _new_cells(self, position: int, codes: FloatArray, column: Column) -> Any:
        """Return codes as cells of one column of an array."""
        array = self.arrow(position)
        assert array is not None
        cells = new_cells(array, codes, column)
        return cells.to_pylist() if self.native.dtype == object else cells.to_numpy(zero_copy_only=False)


def _only_numbers(schema: TableSchema) -> bool:
    """Tell whether every column that is coded holds plain numbers, which are their own codes."""
    kinds = {schema.columns[p].base or schema.columns[p].kind for p in schema.coded}
    return kinds <= {"continuous", "integer"}


def _is_missing(cell: Any) -> bool:
    """Tell whether a cell among others of several types is None, NaN, or pandas' NA or NaT."""
    return (
        cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and math.isnan(cell))
    )


def _with_fields(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return an Arrow table with the metadata that another one has for it and for its columns."""
    fields = [field.with_type(kind) for field, kind in zip(schema, table.schema.types, strict=True)]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields, schema.metadata))


def read_frame(given: Any) -> Frame:
    """Read a table.

    Parameters
    ----------
    given : array-like or data frame
        numpy, nested lists, pandas, polars or pyarrow.

    Returns
    -------
    Frame

    Raises
    ------
    DataError
        When it is not a table, has no rows or no columns, or a name stands twice.
    """
    try:
        native = nw.from_native(given, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"Some column names stand more than once. Give each its own name. {error}") from error
    if not isinstance(native, nw.DataFrame):
        return _read_array(given)
    if not len(native) or not native.columns:
        raise DataError(
            f"Found a table with {len(native)} row(s) and {len(native.columns)} column(s), while a minimum of 1 of "
            "each is required. Give a table with rows and columns."
        )
    return Frame(native.to_native(), str(native.implementation).lower(), list(native.columns), len(native))


def _read_array(given: Any) -> Frame:
    # Objects stay what they are: scikit-learn would read True, "1" and 1 as the same number.
    kept = isinstance(given, np.ndarray) and given.dtype == object
    try:
        array = check_array(given, dtype=None if kept else "numeric", ensure_all_finite=False, estimator="the imputer")
    except ValueError as error:
        raise DataError(str(error)) from error
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    return Frame(array, "numpy", list(range(array.shape[1])), len(array))


def convert(native: Any, container: str) -> Any:
    """Return a data frame as another kind: "pandas", "polars" or "pyarrow"."""
    frame = nw.from_native(native, eager_only=True)
    if str(frame.implementation).lower() == container:
        return native
    if container == "polars":
        return _to_polars(frame)
    return frame.to_pandas() if container == "pandas" else frame.to_arrow()


def _to_polars(frame: nw.DataFrame[Any]) -> Any:
    """Return a polars DataFrame; of columns of objects, each for itself, as polars reads only some of them."""
    import polars as pl

    series = [frame[:, place] for place in range(len(frame.columns))]
    if not any(one.dtype == nw.Object for one in series):
        return frame.to_polars()
    return pl.DataFrame([_polars_series(one).alias(str(one.name)) for one in series])


def _polars_series(series: nw.Series[Any]) -> Any:
    import polars as pl

    if series.dtype != nw.Object:
        return series.to_polars()
    array = arrow_array(series)
    return pl.Series(series.to_list(), dtype=pl.Object) if array is None else pl.Series(array)


def select(native: Any, positions: list[int]) -> Any:
    """Return some columns of a data frame."""
    return nw.from_native(native, eager_only=True)[:, positions].to_native()


def take_rows(table: Frame, rows: Array) -> Any:
    """Return some rows as a table of the same kind.

    Examples
    --------
    >>> take_rows(read_frame(np.array([[1.0], [2.0], [3.0]])), np.array([2, 0]))
    array([[3.],
           [1.]])
    """
    if table.container == "numpy":
        return table.native[rows]
    return nw.from_native(table.native, eager_only=True)[rows.tolist(), :].to_native()


def add_columns(native: Any, columns: Mapping[Any, Array]) -> Any:
    """Return a data frame with columns of numbers added, or replaced in their type where the name is there already."""
    frame = nw.from_native(native, eager_only=True)
    fresh = [nw.new_series(name, values, backend=frame.implementation) for name, values in columns.items()]
    known = set(frame.columns)
    if str(frame.implementation).lower() == "pandas":
        types = {name: native[name].dtype for name in columns if name in known}
        return frame.with_columns(*fresh).to_native().astype(types)
    typed = [series.cast(frame[series.name].dtype) if series.name in known else series for series in fresh]
    return frame.with_columns(*typed).to_native()


def whole_columns(native: Any, names: list[Any]) -> Any:
    """Return a data frame with columns of floats as integers that may be missing."""
    frame = nw.from_native(native, eager_only=True)
    floats = [name for name in names if name in frame.columns and frame[name].dtype.is_float()]
    if str(frame.implementation).lower() == "pandas":
        return native.astype(dict.fromkeys(floats, "Int64"))
    return frame.with_columns(*(frame[name].fill_nan(None).cast(nw.Int64) for name in floats)).to_native()


def build_frame(container: str, columns: Mapping[Any, pa.Array]) -> Any:
    """Build a new table of a kind from its columns.

    Parameters
    ----------
    container : str
        One of `CONTAINERS`.
    columns : mapping
        Arrow arrays by name; numpy ignores the names.

    Returns
    -------
    object
        The table.

    Raises
    ------
    MissingExtraError
        When the library of that kind is not installed.
    """
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
