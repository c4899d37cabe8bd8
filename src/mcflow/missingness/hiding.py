"""Hiding of cells in a table of any kind."""

from __future__ import annotations

__all__ = ["hide"]

from typing import Any

import numpy as np
import pyarrow as pa

from mcflow.columns.frames import read_frame
from mcflow.errors import ParameterError
from mcflow.typing import Array, BoolArray


def hide(frame: Any, mask: Any) -> Any:
    """Return a copy of a table with some cells missing.

    Parameters
    ----------
    frame : array-like or data frame of shape (n_rows, n_columns)
        A numpy, pandas, polars or pyarrow table; it is not modified.
    mask : array-like of bool of shape (n_rows, n_columns)
        True for cells to hide.

    Returns
    -------
    object
        A new table of the same kind, with null in the hidden cells, NaN in arrays. Types that cannot hold missing cells
        are converted: integer and boolean arrays to floats, and such columns of pandas to its nullable types.

    Raises
    ------
    ParameterError
        When the mask is not boolean or has another shape.
    DataError
        When `frame` is not a table.

    Examples
    --------
    >>> hide(np.array([[1.0, 2.0], [3.0, 4.0]]), [[True, False], [False, False]])
    array([[nan,  2.],
           [ 3.,  4.]])
    """
    table, checked = read_frame(frame), np.asarray(mask)
    native, shape = table.native, (table.n_rows, len(table.names))
    if checked.dtype != bool or checked.shape != shape:
        raise ParameterError(
            f"mask is of type {checked.dtype} and shape {checked.shape}, but has to be boolean and of the table's "
            f"shape {shape}. Give the result of mcar, mar or another mechanism for this table."
        )
    if table.container == "numpy":
        hidden: Array = native.astype(np.float64) if native.dtype.kind in "iub" and checked.any() else native.copy()
        if checked.any():
            hidden[checked] = "NaT" if native.dtype.kind in "mM" else np.nan
        return hidden.astype(np.float16) if getattr(frame, "dtype", None) == np.float16 else hidden
    columns = np.flatnonzero(checked.any(axis=0)).tolist()
    if table.container == "polars":
        import polars as pl

        return native.with_columns([native.to_series(k).gather(pl.Series(_kept(checked[:, k]))) for k in columns])
    native = native.copy() if table.container == "pandas" else native
    for k in columns:
        if table.container == "pandas":
            native.isetitem(k, _hide_series(native.iloc[:, k], checked[:, k]))
        else:
            field = native.schema.field(k).with_nullable(True)
            native = native.set_column(k, field, _take(native.column(k), checked[:, k]))
    return native


def _hide_series(series: Any, mask: BoolArray) -> Any:
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.ArrowDtype):  # its `where` would fill missing cells of dictionaries
        column = _take(pa.chunked_array(pa.array(series.array)), mask)
        return pd.Series(pd.arrays.ArrowExtensionArray(column), index=series.index)
    if isinstance(dtype, np.dtype) and dtype.kind in "iub":
        series = series.astype({"b": "boolean", "i": f"I{dtype.name[1:]}", "u": f"UI{dtype.name[2:]}"}[dtype.kind])
    return series.where(~mask)


def _take(column: pa.ChunkedArray, mask: BoolArray) -> pa.ChunkedArray:
    kind = column.type
    if str(kind) == "string_view":  # Arrow does not support `take` for this type
        return column.cast(pa.large_string()).take(_kept(mask)).cast(kind)
    return column.take(_kept(mask))


def _kept(mask: BoolArray) -> pa.Array:
    """Return the index of every visible cell and null for hidden ones; `take` with it works for any type."""
    return pa.array(np.arange(len(mask)), mask=mask)
