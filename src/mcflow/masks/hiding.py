"""Take cells out of a table."""

from __future__ import annotations

__all__ = ["hide"]

from typing import Any

import numpy as np
import pyarrow as pa

from mcflow.data.frames import read_frame
from mcflow.errors import ParameterError
from mcflow.typing import Array, BoolArray


def hide(frame: Any, mask: Any) -> Any:
    """Return a table with some cells missing.

    Parameters
    ----------
    frame : array-like or data frame of shape (n_rows, n_columns)
        numpy, pandas, polars or pyarrow; it is not changed.
    mask : array-like of bool of shape (n_rows, n_columns)
        True where a cell is to go.

    Returns
    -------
    object
        A new table of the same kind, with null in the hidden cells, NaN in arrays. Types stay where they can hold
        missing cells: arrays of whole numbers or booleans become floats, and such columns of pandas become its
        nullable ones.

    Raises
    ------
    ParameterError
        When the mask is not boolean or of another shape.
    DataError
        When `frame` is not a table.

    Examples
    --------
    >>> import numpy as np
    >>> hide(np.array([[1.0, 2.0], [3.0, 4.0]]), [[True, False], [False, False]])
    array([[nan,  2.],
           [ 3.,  4.]])
    """
    table = read_frame(frame)
    holes = _read_mask(mask, (table.n_rows, len(table.names)))
    if table.container == "numpy":
        hidden = _hide_array(table.native, holes)
        return hidden.astype(np.float16) if getattr(frame, "dtype", None) == np.float16 else hidden
    places = [p for p in range(len(table.names)) if holes[:, p].any()]
    return {"pandas": _hide_pandas, "polars": _hide_polars, "pyarrow": _hide_arrow}[table.container](
        table.native, holes, places
    )


def _read_mask(given: Any, shape: tuple[int, int]) -> BoolArray:
    mask = np.asarray(given)
    if mask.dtype != bool or mask.shape != shape:
        raise ParameterError(
            f"mask is of type {mask.dtype} and shape {mask.shape}, but has to be boolean and of the table's shape "
            f"{shape}. Give what mcar, mar or another mechanism returned for this table."
        )
    return mask


def _hide_array(native: Array, holes: BoolArray) -> Array:
    whole = native.dtype.kind in "iub" and holes.any()
    hidden: Array = native.astype(np.float64) if whole else native.copy()
    if holes.any():
        hidden[holes] = "NaT" if native.dtype.kind in "mM" else np.nan
    return hidden


def _hide_pandas(native: Any, holes: BoolArray, places: list[int]) -> Any:
    hidden = native.copy()
    for place in places:
        hidden.isetitem(place, _hide_series(native.iloc[:, place], holes[:, place]))
    return hidden


def _hide_series(series: Any, holes: BoolArray) -> Any:
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.ArrowDtype):  # whose `where` fills missing cells of dictionaries
        column = _take(pa.chunked_array(pa.array(series.array)), holes)
        return pd.Series(pd.arrays.ArrowExtensionArray(column), index=series.index)
    if isinstance(dtype, np.dtype) and dtype.kind in "iub":
        series = series.astype({"b": "boolean", "i": f"I{dtype.name[1:]}", "u": f"UI{dtype.name[2:]}"}[dtype.kind])
    return series.where(~holes)


def _hide_polars(native: Any, holes: BoolArray, places: list[int]) -> Any:
    import polars as pl

    kept = {place: pl.Series(_kept(holes[:, place])) for place in places}
    return native.with_columns([native.to_series(place).gather(rows) for place, rows in kept.items()])


def _hide_arrow(native: Any, holes: BoolArray, places: list[int]) -> Any:
    for place in places:
        field = native.schema.field(place).with_nullable(True)
        native = native.set_column(place, field, _take(native.column(place), holes[:, place]))
    return native


def _take(column: pa.ChunkedArray, holes: BoolArray) -> pa.ChunkedArray:
    kind = column.type
    if str(kind) == "string_view":  # of which Arrow cannot take cells
        return column.cast(pa.large_string()).take(_kept(holes)).cast(kind)
    return column.take(_kept(holes))


def _kept(holes: BoolArray) -> pa.Array:
    """Return the place of every cell that stays, null for the others: to take them works for cells of any type."""
    return pa.array(np.arange(len(holes)), mask=holes)
