"""Filled tables as CSV files: the text of the source with only its filled cells changed."""

from __future__ import annotations

__all__ = ["write_csv"]

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.csv_layout import CsvLayout, splice
from mcflow.data.csv_reader import CsvSource
from mcflow.typing import Array, BoolArray


@dataclass
class _Changes:
    """Parts of a text to replace, and what to put there."""

    starts: list[Array]
    stops: list[Array]
    pieces: list[pa.Array]

    def add(self, starts: Array, stops: Array, pieces: pa.ChunkedArray) -> None:
        self.starts.append(starts)
        self.stops.append(stops)
        self.pieces += pieces.cast(pa.large_binary()).chunks

    def apply(self, text: bytes) -> bytes:
        if not self.starts:
            return text
        pieces = pa.chunked_array(self.pieces, pa.large_binary()).combine_chunks()
        return splice(text, np.concatenate(self.starts), np.concatenate(self.stops), pieces)


def write_csv(filled: pa.Table, table: pa.Table, texts: pa.Table | None, source: CsvSource) -> bytes:
    """Write a filled table as a CSV file.

    Parameters
    ----------
    filled : pyarrow.Table
        The table to write; it may have columns more or less than its source.
    table : pyarrow.Table
        The source's table, with its holes.
    texts : pyarrow.Table or None
        The source's cells as they were written, when it was a CSV file.
    source : CsvSource
        What the file has to look like. Its layout is that of the source.

    Returns
    -------
    bytes
        Cells that the source had are as they were there. New ones follow the habits of their column.

    Raises
    ------
    UnicodeEncodeError
        When a new cell has a character that the encoding lacks.
    """
    layout = source.layout
    if texts is None or layout is None or not _in_place(filled.column_names, texts.column_names):
        return source.dialect.encode(_joined(filled, table, texts, source))
    changes = _Changes([], [], [])
    known, given = texts.column_names, set(filled.column_names)
    kept = [name in given for name in known]
    for place in np.flatnonzero(kept).tolist():
        _fill(changes, layout, place, *_fresh(filled, table, known[place], source))
    _drop(changes, layout, kept)
    _append(changes, layout, filled.select(list(range(sum(kept), filled.num_columns))), source)
    return source.dialect.encode(changes.apply(layout.text))


def _in_place(names: list[str], known: list[str]) -> bool:
    """Tell whether columns stand in the order of the source, at least one of them, with new ones at the end."""
    given = set(names)
    kept = [name for name in known if name in given]
    return bool(kept) and names[: len(kept)] == kept


def _fresh(filled: pa.Table, table: pa.Table, name: str, source: CsvSource) -> tuple[BoolArray, pa.ChunkedArray]:
    """Return which cells of a column were filled, and their text."""
    holes = table.column(name).is_null(nan_is_null=True)
    column = filled.column(name)
    if str(column.type) == "string_view":  # which cannot be filtered
        column = column.cast(pa.string())
    new: BoolArray = pc.and_not(holes, column.is_null(nan_is_null=True)).to_numpy()
    return new, _spelled(column.filter(pa.array(new)), name, source)


def _spelled(values: pa.ChunkedArray, name: str, source: CsvSource) -> pa.ChunkedArray:
    """Write values as cells, with quotes where the column has them."""
    kind = values.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return source.dialect.quote(source.spelling(name).write(values), source.quotes(name, number))


def _fill(changes: _Changes, layout: CsvLayout, place: int, new: BoolArray, cells: pa.ChunkedArray) -> None:
    starts, stops = layout.bounds(place)
    changes.add(starts[1:][new], stops[1:][new], cells)


def _drop(changes: _Changes, layout: CsvLayout, kept: list[bool]) -> None:
    """Take out columns, each with the separator that leads to the first kept one."""
    first = kept.index(True)
    for place in np.flatnonzero(~np.array(kept)).tolist():
        starts, stops = layout.bounds(place)
        part = (starts, stops + 1) if place < first else (starts - 1, stops)
        changes.add(*part, pa.chunked_array([pa.repeat("", len(starts))]))


def _append(changes: _Changes, layout: CsvLayout, added: pa.Table, source: CsvSource) -> None:
    """Put columns at the end of each line."""
    ends = layout.ends[:, -1]
    for name in added.column_names:
        cells = [*_named([name], source).chunks, *_whole_column(added.column(name), name, source).chunks]
        changes.add(ends, ends, pc.binary_join_element_wise(source.dialect.separator, pa.chunked_array(cells), ""))


def _named(names: list[str], source: CsvSource) -> pa.ChunkedArray:
    return source.dialect.quote(pa.chunked_array([names], pa.string()), source.dialect.quoting != "needed")


def _whole_column(column: pa.ChunkedArray, name: str, source: CsvSource) -> pa.ChunkedArray:
    missing = column.is_null(nan_is_null=True)
    return pc.if_else(missing, "", _spelled(column, name, source).fill_null(""))


def _joined(filled: pa.Table, table: pa.Table, texts: pa.Table | None, source: CsvSource) -> bytes:
    """Write all cells anew, in the source's dialect."""
    dialect, names = source.dialect, filled.column_names
    columns = [_column(filled, table, texts, name, source) for name in names]
    if len(names) == 1:  # an empty line would be no row to most readers
        columns = [pc.if_else(pc.equal(columns[0], ""), '""', columns[0])]
    rows = pc.binary_join_element_wise(*columns, dialect.separator).to_pylist()
    header = dialect.separator.join(_named(names, source).to_pylist())
    lines = dialect.newline.join([header, *rows])
    return (lines + dialect.newline * dialect.final_newline).encode()


def _column(filled: pa.Table, table: pa.Table, texts: pa.Table | None, name: str, source: CsvSource) -> pa.ChunkedArray:
    if texts is None or texts.schema.get_field_index(name) < 0:
        return _whole_column(filled.column(name), name, source)
    new, cells = _fresh(filled, table, name, source)
    old = source.dialect.quote(texts.column(name), source.quotes(name, number=False))
    if not new.any():
        return old
    return pa.chunked_array([pc.replace_with_mask(old.combine_chunks(), pa.array(new), cells.combine_chunks())])
