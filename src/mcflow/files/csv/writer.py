"""Write filled tables as CSV files: the text of the source, in which only filled cells change."""

from __future__ import annotations

__all__ = ["encodable", "write_csv"]

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.errors import OutputError
from mcflow.files.csv.layout import CsvLayout, splice
from mcflow.files.csv.reader import CsvSource
from mcflow.typing import Array, BoolArray

#: Pieces of a text to replace: offsets of the first byte and after the last byte, and replacements; each (n_pieces,).
Change = tuple[Array, Array, pa.ChunkedArray]


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
    layout, known = source.layout, [] if texts is None else texts.column_names
    given = set(filled.column_names)
    kept, first = [name in given for name in known], [name for name in known if name in given]
    # In place, columns of the source come first, in its order, and new columns last.
    if layout is None or not first or filled.column_names[: len(first)] != first:
        return source.dialect.encode(source.preamble + _rewritten(filled, table, texts, source))
    changes: list[Change] = []
    for place in np.flatnonzero(kept).tolist():
        new, cells = _new_cells(filled, table, known[place], source)
        starts, stops = layout.bounds(place)
        changes.append((starts[1:][new], stops[1:][new], cells))
    changes += _drop(layout, kept)
    changes += _append(layout, filled.select(list(range(sum(kept), filled.num_columns))), source)
    first_bytes, ends = (np.concatenate([change[k] for change in changes]) for k in (0, 1))
    chunks = [chunk for *_, pieces in changes for chunk in pieces.cast(pa.large_binary()).chunks]
    text = splice(layout.text, first_bytes, ends, pa.chunked_array(chunks, pa.large_binary()).combine_chunks())
    return source.dialect.encode(source.preamble + text)


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


def _drop(layout: CsvLayout, kept: list[bool]) -> Iterator[Change]:
    """Remove columns, each with the separator between it and the first kept column."""
    first = kept.index(True)
    for place in np.flatnonzero(~np.array(kept)).tolist():
        starts, stops = layout.bounds(place)
        part = (starts, stops + 1) if place < first else (starts - 1, stops)
        yield *part, pa.chunked_array([pa.repeat("", len(starts))])


def _append(layout: CsvLayout, added: pa.Table, source: CsvSource) -> Iterator[Change]:
    """Add columns at the end of each line."""
    ends = layout.ends[:, -1]
    for name in added.column_names:
        cells = [*_header([name], source).chunks, *_whole_column(added.column(name), name, source).chunks]
        yield ends, ends, pc.binary_join_element_wise(source.dialect.separator, pa.chunked_array(cells), "")


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
