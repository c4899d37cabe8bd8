"""Write filled tables as CSV files: the text of the source, in which only filled cells change."""

from __future__ import annotations

__all__ = ["encodable", "write_csv"]

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.errors import OutputError
from mcflow.files.csv.layout import CsvLayout, splice
from mcflow.files.csv.reader import CsvSource
from mcflow.typing import Array, BoolArray


@dataclass
class _Changes:
    """Pieces of a text to replace."""

    starts: list[Array]  # offsets of the first byte
    stops: list[Array]  # offsets after the last byte
    pieces: list[pa.Array]  # replacements

    def add(self, starts: Array, stops: Array, pieces: pa.ChunkedArray) -> None:
        self.starts.append(starts)
        self.stops.append(stops)
        self.pieces += pieces.cast(pa.large_binary()).chunks

    def apply(self, text: bytes) -> bytes:
        if not self.starts:
            return text
        pieces = pa.chunked_array(self.pieces, pa.large_binary()).combine_chunks()
        return splice(text, np.concatenate(self.starts), np.concatenate(self.stops), pieces)


@contextlib.contextmanager
def encodable(name: str | Path, encoding: str) -> Iterator[None]:
    """Raise an `OutputError` that names the file when the block writes a character that the encoding lacks."""
    try:
        yield
    except UnicodeEncodeError as error:
        lacking = error.object[error.start : error.end]
        raise OutputError(f"{name} cannot be written as {encoding}, which lacks {lacking!r}.") from error


def write_csv(filled: pa.Table, table: pa.Table, texts: pa.Table | None, source: CsvSource) -> bytes:
    """Return a filled table as the bytes of a CSV file, given its source table and the texts of its cells."""
    layout = source.layout
    if texts is None or layout is None or not _in_place(filled.column_names, texts.column_names):
        return source.dialect.encode(source.preamble + _rewritten(filled, table, texts, source))
    changes = _Changes([], [], [])
    known, given = texts.column_names, set(filled.column_names)
    kept = [name in given for name in known]
    for place in np.flatnonzero(kept).tolist():
        _fill(changes, layout, place, *_new_cells(filled, table, known[place], source))
    _drop(changes, layout, kept)
    _append(changes, layout, filled.select(list(range(sum(kept), filled.num_columns))), source)
    return source.dialect.encode(source.preamble + changes.apply(layout.text))


def _in_place(names: list[str], known: list[str]) -> bool:
    """Return whether columns of the source come first, in its order, and new columns last."""
    given = set(names)
    kept = [name for name in known if name in given]
    return bool(kept) and names[: len(kept)] == kept


def _new_cells(filled: pa.Table, table: pa.Table, name: str, source: CsvSource) -> tuple[BoolArray, pa.ChunkedArray]:
    """Return which cells of a column were filled, of shape (n_rows,), and their texts, of shape (n_filled,)."""
    missing = table.column(name).is_null(nan_is_null=True)
    column = filled.column(name)
    if str(column.type) == "string_view":  # Arrow cannot filter it
        column = column.cast(pa.string())
    new: BoolArray = pc.and_not(missing, column.is_null(nan_is_null=True)).to_numpy()
    return new, _spelled(column.filter(pa.array(new)), name, source)


def _spelled(values: pa.ChunkedArray, name: str, source: CsvSource) -> pa.ChunkedArray:
    """Write values as cells, quoted as the column is."""
    kind = values.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return source.dialect.quote(source.spelling(name).write(values), source.quotes(name, number))


def _fill(changes: _Changes, layout: CsvLayout, place: int, new: BoolArray, cells: pa.ChunkedArray) -> None:
    starts, stops = layout.bounds(place)
    changes.add(starts[1:][new], stops[1:][new], cells)


def _drop(changes: _Changes, layout: CsvLayout, kept: list[bool]) -> None:
    """Remove columns, each with the separator between it and the first kept column."""
    first = kept.index(True)
    for place in np.flatnonzero(~np.array(kept)).tolist():
        starts, stops = layout.bounds(place)
        part = (starts, stops + 1) if place < first else (starts - 1, stops)
        changes.add(*part, pa.chunked_array([pa.repeat("", len(starts))]))


def _append(changes: _Changes, layout: CsvLayout, added: pa.Table, source: CsvSource) -> None:
    """Add columns at the end of each line."""
    ends = layout.ends[:, -1]
    for name in added.column_names:
        cells = [*_header([name], source).chunks, *_whole_column(added.column(name), name, source).chunks]
        changes.add(ends, ends, pc.binary_join_element_wise(source.dialect.separator, pa.chunked_array(cells), ""))


def _header(names: list[str], source: CsvSource) -> pa.ChunkedArray:
    return source.dialect.quote(pa.chunked_array([names], pa.string()), source.dialect.quoting != "needed")


def _whole_column(column: pa.ChunkedArray, name: str, source: CsvSource) -> pa.ChunkedArray:
    missing = column.is_null(nan_is_null=True)
    return pc.if_else(missing, "", _spelled(column, name, source).fill_null(""))


def _rewritten(filled: pa.Table, table: pa.Table, texts: pa.Table | None, source: CsvSource) -> bytes:
    """Write all cells in the dialect of the source, without its layout."""
    dialect, names = source.dialect, filled.column_names
    columns = [_column(filled, table, texts, name, source) for name in names]
    if len(names) == 1:  # most readers skip empty lines
        columns = [pc.if_else(pc.equal(columns[0], ""), '""', columns[0])]
    rows = pc.binary_join_element_wise(*columns, dialect.separator).to_pylist()
    header = dialect.separator.join(_header(names, source).to_pylist())
    lines = dialect.newline.join([header, *rows])
    return (lines + dialect.newline * dialect.final_newline).encode()


def _column(filled: pa.Table, table: pa.Table, texts: pa.Table | None, name: str, source: CsvSource) -> pa.ChunkedArray:
    if texts is None or texts.schema.get_field_index(name) < 0:
        return _whole_column(filled.column(name), name, source)
    new, cells = _new_cells(filled, table, name, source)
    old = source.dialect.quote(texts.column(name), source.quotes(name, number=False))
    if not new.any():
        return old
    return pa.chunked_array([pc.replace_with_mask(old.combine_chunks(), pa.array(new), cells.combine_chunks())])
