"""A column's observed cells beside its filled ones: the codes, and the bins and levels that both are counted in."""

from __future__ import annotations

__all__ = ["Comparison", "bin_shares", "common_edges", "common_levels", "compare_column", "level_shares"]

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.frames import Frame
from mcflow.data.schema import LEVEL_KINDS, Column, TableSchema
from mcflow.errors import DataError
from mcflow.report.diagnostics_cells import place_in, widest
from mcflow.typing import FloatArray

#: The share of cells at each end that an axis may leave out where they would take up half of it.
TAIL = 0.005
#: Levels that are counted apart; the others are joined.
MOST_LEVELS = 8


@dataclass(frozen=True)
class Comparison:
    """A column's observed cells, and its filled cells in each completed table.

    Parameters
    ----------
    column : Column
        What it is, with the levels that only completed tables have.
    observed : ndarray of shape (n_observed,)
        Codes.
    filled : list of ndarray of shape (n_filled,)
        Codes, for every completed table.
    """

    column: Column
    observed: FloatArray
    filled: list[FloatArray]

    @property
    def n_filled(self) -> int:
        """Cells that are filled in the first of the tables."""
        return len(self.filled[0])

    @property
    def has_levels(self) -> bool:
        """Tell whether cells are one of a few levels."""
        return (self.column.base or self.column.kind) in LEVEL_KINDS


def compare_column(table: Frame, tables: list[Frame], schema: TableSchema, position: int) -> Comparison:
    """Read one column of a table and of its completed versions.

    Parameters
    ----------
    table : Frame
        With holes.
    tables : list of Frame
        What filled it.
    schema : TableSchema
        Of the table.
    position : int
        Of a coded column.

    Returns
    -------
    Comparison

    Raises
    ------
    DataError
        When the tables do not belong together.

    Examples
    --------
    >>> from mcflow.data.frames import read_frame
    >>> from mcflow.report.diagnostics_cells import columns_of
    >>> holed, done = (read_frame(np.array([[1.5], [cell]])) for cell in (np.nan, 2.5))
    >>> found = compare_column(holed, [done], columns_of(read_frame(np.array([[1.5], [2.0]]))), 0)
    >>> found.observed.tolist(), found.filled[0].tolist()
    ([1.5], [2.5])
    """
    column = schema.columns[position]
    places = [place_in(done, schema, position) for done in tables]
    if (column.base or column.kind) in LEVEL_KINDS:
        column = _with_new_levels(column, [done.arrow(place) for done, place in zip(tables, places, strict=True)])
    codes = table.column_codes(position, column)
    seen = ~np.isnan(codes)
    filled = []
    for done, place in zip(tables, places, strict=True):
        _check_rows(table, done)
        new = done.column_codes(place, column)
        if not np.array_equal(new[seen], codes[seen]):
            raise DataError(
                f"completed differs from frame in observed cells of column {column.name!r}. Give what transform or "
                "draw returned for this very table, with its rows in the same order."
            )
        filled.append(new[~seen & np.isfinite(new)])
    return Comparison(column, codes[seen & np.isfinite(codes)], filled)


def _check_rows(table: Frame, done: Frame) -> None:
    if done.n_rows != table.n_rows:
        raise DataError(
            f"completed has {done.n_rows:,} rows and frame has {table.n_rows:,}, but they have to be the same rows."
        )


def _with_new_levels(column: Column, arrays: list[pa.Array | None]) -> Column:
    """Add the levels that only filled cells have: the imputer may have learned them from other rows."""
    found: dict[Any, None] = dict.fromkeys(column.levels)
    for array in arrays:
        if array is not None:
            plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
            found |= dict.fromkeys(pc.unique(plain.drop_null()).to_pylist())
    return replace(column, levels=tuple(found))


def bin_shares(cells: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the percentage of cells in each bin; of all cells, also those beyond the last.

    Examples
    --------
    >>> bin_shares(np.array([0.0, 0.5, 3.0, 9.0]), np.array([0.0, 1.0, 4.0])).tolist()
    [50.0, 25.0]
    """
    shares: FloatArray = np.histogram(cells, edges)[0] * (100 / max(len(cells), 1))
    return shares


def common_edges(one: Comparison) -> FloatArray:
    """Return edges of common bins: as many as the filled cells of one draw can carry.

    Examples
    --------
    >>> column = Column("age", "double", "integer", whole=True)
    >>> common_edges(Comparison(column, np.arange(4.0), [np.array([2.0])])).tolist()
    [-0.5, 0.5, 1.5, 2.5, 3.5]
    """
    groups = [cells for cells in (one.observed, np.concatenate(one.filled)) if len(cells)]
    low, high = min(cells.min() for cells in groups), max(cells.max() for cells in groups)
    inner = [np.quantile(cells, (TAIL, 1 - TAIL)) for cells in groups]
    near_low, near_high = min(ends[0] for ends in inner), max(ends[1] for ends in inner)
    if high - low > 1.5 * (near_high - near_low) > 0:
        low, high = near_low, near_high
    n_bins = int(np.clip(2.5 * max(one.n_filled, 1) ** (1 / 3), 10, 30))
    if one.column.kind == "continuous" and high > low:
        return np.linspace(low, high, n_bins + 1)
    step = _step(one.observed)
    width = step * max(1, np.ceil((high - low) / step / n_bins))
    first = low - step / 2
    edges: FloatArray = first + width * np.arange(int((high - first) // width) + 2)
    return edges


def _step(codes: FloatArray) -> float:
    """Return the largest number that all distances between whole codes are multiples of, 1 where there is none.

    Bins whose width is no multiple of it would hold more of them here and fewer there.
    """
    gaps = np.diff(np.unique(codes))
    if not len(gaps) or (gaps != np.floor(gaps)).any() or gaps.max() > 2**53:
        return 1.0
    return float(np.gcd.reduce(gaps.astype(np.int64)))


def common_levels(one: Comparison) -> tuple[list[int], int]:
    """Return the levels that are counted apart, the commonest in their order, and how many are joined.

    Examples
    --------
    >>> column = Column("pet", "string", "category", levels=("cat", "dog"))
    >>> common_levels(Comparison(column, np.zeros(3), [np.ones(1)]))
    ([0, 1], 0)
    """
    n_levels = len(one.column.levels)
    counts = np.bincount(one.observed.astype(np.int64), minlength=n_levels)
    kept = widest(range(n_levels), counts.tolist(), MOST_LEVELS if n_levels <= MOST_LEVELS else MOST_LEVELS - 1)
    return kept, n_levels - len(kept)


def level_shares(codes: FloatArray, kept: list[int], joined: int) -> FloatArray:
    """Return the percentage of cells of each level that is kept, and of the others together.

    Examples
    --------
    >>> level_shares(np.array([0.0, 0.0, 1.0, 2.0]), [0, 1], 1).tolist()
    [50.0, 25.0, 25.0]
    """
    counts = np.array([(codes == k).sum() for k in kept], dtype=np.float64)
    if joined:
        counts = np.append(counts, len(codes) - counts.sum())
    return counts * (100 / max(len(codes), 1))
