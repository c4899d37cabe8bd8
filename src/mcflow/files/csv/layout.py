"""The dialect and layout of a CSV text: separator, quotes, offsets of cells, and replacement of cells in place."""

from __future__ import annotations

__all__ = ["CsvLayout", "Dialect", "always_quoted", "find_separator", "line_breaks", "scan", "splice"]

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.typing import Array, BoolArray

SEPARATORS = ("\t", ";", "|", ",")  # supported separators, in order of preference when several fit a file
SAMPLE_BYTES = 1 << 20  # bytes at the beginning of a file from which the separator is inferred
_QUOTE = ord('"')
_RETURN = ord("\r")
_CLOSING = r'(?s)^"((?:[^"]|"")*)"'  # a quoted cell with characters after its closing quote
_CHUNK = 1 << 24  # bytes of text that are gathered at once, which bounds the memory of the indices
_PIECES = 1 << 17  # number of replacements that are inserted at once, which bounds the memory of their Python objects


@dataclass(frozen=True)
class Dialect:
    """The way a CSV file is written."""

    separator: str = ","
    quoting: str = "needed"  # which cells are quoted: "needed", "text" (all except numbers) or "all"
    newline: str = "\n"
    final_newline: bool = True  # whether the last line ends with a newline
    encoding: str = "utf-8"
    bom: bool = False  # whether the file begins with a byte-order mark
    decimal: str = "."  # decimal mark of numbers

    def encode(self, text: bytes) -> bytes:
        """Convert UTF-8 text to the bytes of a file in this encoding."""
        body = text if self.encoding == "utf-8" else text.decode().encode(self.encoding)
        return "\ufeff".encode(self.encoding) + body if self.bom else body

    def quote(self, texts: pa.ChunkedArray, always: bool) -> pa.ChunkedArray:
        """Quote all cells, or only those that need it."""
        need = _needs_quotes(texts, self.separator)
        if not always and not pc.any(need).as_py():
            return texts
        quoted = pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
        return quoted if always else pc.if_else(need, quoted, texts)


def _needs_quotes(texts: pa.ChunkedArray, separator: str) -> pa.ChunkedArray:
    """Return which cells cannot be written without quotes."""
    return pc.match_substring_regex(texts, f'[{re.escape(separator)}"\\r\\n]')


@dataclass(frozen=True)
class CsvLayout:
    """The offsets of all cells in a CSV text; the first line is the header."""

    text: bytes  # in UTF-8
    starts: Array  # (n_lines,) offset of the first byte of each line
    ends: Array  # (n_lines, n_columns) offset of the separator or line break after each cell

    def header(self) -> CsvLayout:
        """Return the layout of the header line alone."""
        return CsvLayout(self.text, self.starts[:1], self.ends[:1])

    def repeated(self, times: int, newline: bytes) -> CsvLayout:
        """Return the layout of the text with all lines after the header repeated."""
        text, head = self.text, int(self.starts[1]) if len(self.starts) > 1 else len(self.text)
        lines = text[head:]
        between = b"" if lines.endswith(b"\n" if b"\n" in text else b"\r") else newline
        shifts = np.arange(times) * (len(lines) + len(between))
        starts = (self.starts[1:] + shifts[:, None]).ravel()
        ends = (self.ends[1:] + shifts[:, None, None]).reshape(-1, self.ends.shape[1])
        starts, ends = np.concatenate([self.starts[:1], starts]), np.concatenate([self.ends[:1], ends])
        return CsvLayout(text[:head] + between.join([lines] * times), starts, ends)

    def bounds(self, column: int) -> tuple[Array, Array]:
        """Return the first and the last offset of the cells of a column. Shapes: returns two of (n_lines,)."""
        starts = self.starts if column == 0 else self.ends[:, column - 1] + 1
        return starts, self.ends[:, column]

    def column(self, column: int) -> tuple[pa.ChunkedArray, BoolArray]:
        """Return the unquoted cells of a column, and which are quoted. Shapes: returns two of (n_lines,)."""
        codes = np.frombuffer(self.text, np.uint8)
        starts, stops = self.bounds(column)
        quoted = (codes[np.minimum(starts, len(codes) - 1)] == _QUOTE) & (stops - starts > 1)
        closed = quoted & (codes[stops - 1] == _QUOTE)
        starts, stops = starts + closed, stops - closed
        pieces = int((stops - starts).sum()) // _CHUNK + 1
        parts = [np.array_split(array, pieces) for array in (starts, stops, quoted, closed)]
        return pa.chunked_array([_gather(codes, *part) for part in zip(*parts, strict=True)], pa.string()), quoted


def _gather(codes: Array, starts: Array, stops: Array, quoted: BoolArray, closed: BoolArray) -> pa.Array:
    """Copy cells into an array of strings, and replace the doubled quotes of quoted cells by single ones."""
    lengths = stops - starts
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    index = np.repeat(starts - offsets[:-1], lengths)
    index += np.arange(len(index), dtype=index.dtype)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(codes[index])]
    texts = pa.Array.from_buffers(pa.string(), len(starts), buffers)
    if not quoted.any():
        return texts
    if not closed[quoted].all():  # there is text between the closing quote and the separator
        texts = pc.if_else(pa.array(closed), texts, pc.replace_substring_regex(texts, _CLOSING, r"\1"))
    return pc.if_else(pa.array(quoted), pc.replace_substring(texts, '""', '"'), texts)


class _Lines(NamedTuple):
    """All lines of a text."""

    starts: Array  # (n_lines,) offset of the first byte
    stops: Array  # (n_lines,) offset after the last byte
    widths: Array  # (n_lines,) number of cells
    ends: Array  # (n_cells,) offset after the last byte of each cell

    def empty(self) -> BoolArray:
        return np.asarray((self.widths == 1) & (self.starts == self.stops))


def scan(text: bytes, separator: str, lines_before: int = 0) -> CsvLayout:
    """Find the cells of a CSV text; `lines_before` is added to line numbers in error messages."""
    lines = _lines(text, separator, lines_before)
    keep = ~lines.empty()
    if not keep.any():
        return CsvLayout(text, lines.starts[:0], lines.ends[:0].reshape(0, 0))
    first = int(np.argmax(keep))
    width = int(lines.widths[first])
    if width == 1:
        keep[first:] = True
    ragged = np.flatnonzero(keep & (lines.widths != width))
    if len(ragged):
        number, found = _line_number(text, int(lines.starts[ragged[0]])) + lines_before, int(lines.widths[ragged[0]])
        titles = "; skip title lines above the header with --skip-rows" if width < found else ""
        raise ValueError(f"line {number} has {found} cell{'s' * (found != 1)}, and the first line has {width}{titles}")
    ends = lines.ends if keep.all() else lines.ends[np.repeat(keep, lines.widths)]
    return CsvLayout(text, lines.starts[keep], ends.reshape(-1, width))


def find_separator(text: bytes, default: str = ",") -> str:
    """Infer the separator from the beginning of a CSV text."""
    sample = text[:SAMPLE_BYTES]
    widths: dict[str, list[int]] = {}
    for separator in (default, *SEPARATORS):
        lines = _lines(sample, separator)
        widths[separator] = lines.widths[~lines.empty()].tolist()
        if len(text) > SAMPLE_BYTES:  # the last line of the sample may be incomplete
            widths[separator] = widths[separator][:-1] or widths[separator]
    found = [separator for separator, cells in widths.items() if cells and cells[0] > 1]
    fitting = [separator for separator in SEPARATORS if separator in found and len(set(widths[separator])) == 1]
    return (fitting or found or [default])[0]


def always_quoted(texts: pa.ChunkedArray, quoted: BoolArray, separator: str) -> bool | None:
    """Return whether cells (n_cells,) are quoted even when they need no quotes; None when all of them need quotes."""
    if not quoted.all():
        return False
    return True if pc.any(pc.invert(_needs_quotes(texts, separator))).as_py() else None


def line_breaks(text: bytes, separator: str, newline: int) -> Array:
    """Return the offsets of line breaks outside of quotes; the text may end within a line."""
    marks = np.frombuffer(text, np.uint8) == newline
    if b'"' in text:
        marks &= ~_inside_quotes(text, separator, newline)
    return np.flatnonzero(marks)


def _lines(text: bytes, separator: str, lines_before: int | None = None) -> _Lines:
    """Find all lines and cells; without `lines_before` the text may end within a quoted cell."""
    codes = np.frombuffer(text, np.uint8)
    newline = _newline(text)
    marks = (codes == ord(separator)) | (codes == newline)
    if b'"' in text:
        marks &= ~_inside_quotes(text, separator, newline, lines_before)
    small = np.int32 if len(text) < 2**31 - 1 else np.int64
    ends: Array = np.flatnonzero(marks).astype(small)
    breaks = codes[ends] == newline
    if len(ends) == 0 or ends[-1] != len(text) - 1 or not breaks[-1]:
        ends, breaks = np.append(ends, ends.dtype.type(len(text))), np.append(breaks, True)
    last = np.flatnonzero(breaks)
    stops = ends[last]
    starts = np.append(stops.dtype.type(0), stops[:-1] + 1)
    stops -= (stops > starts) & (codes[stops - 1] == _RETURN)
    ends[last] = stops
    return _Lines(starts, stops, np.diff(last, prepend=-1), ends)


def _newline(text: bytes) -> int:
    """Return the byte that ends a line: a carriage return only if there is no line feed."""
    return ord("\n") if b"\n" in text or b"\r" not in text else _RETURN


def _line_number(text: bytes, offset: int) -> int:
    return text.count(bytes([_newline(text)]), 0, offset) + 1


def _inside_quotes(text: bytes, separator: str, newline: int, lines_before: int | None = None) -> BoolArray:
    """Return which bytes are in quotes, by the parity of quotes if each opening quote begins a cell."""
    codes = np.frombuffer(text, np.uint8)
    quotes = codes == _QUOTE
    inside: BoolArray = np.logical_xor.accumulate(quotes)
    opening = np.flatnonzero(quotes & inside)
    before = codes[opening - 1]
    proper = (before == ord(separator)) | (before == newline) | (before == _QUOTE) | (opening == 0)
    if not proper.all():
        return _inside_stray_quotes(text, separator, newline, lines_before)
    if lines_before is not None and inside[-1]:
        _refuse_open(text, int(opening[before != _QUOTE][-1]) if (before != _QUOTE).any() else 0, lines_before)
    return inside


def _refuse_open(text: bytes, offset: int, lines_before: int) -> None:
    raise ValueError(f"the quote that opens in line {_line_number(text, offset) + lines_before} is never closed")


def _inside_stray_quotes(text: bytes, separator: str, newline: int, lines_before: int | None) -> BoolArray:
    """Return which bytes are in quotes when unquoted cells contain quotes too, as in 5" pipe."""
    before = re.escape(separator.encode() + bytes([newline]))
    pattern = re.compile(rb"(?<![^" + before + rb'])"(?:[^"]++|"")*+("|\Z)')
    spans = np.array([(*match.span(), match.end(1) > match.start(1)) for match in pattern.finditer(text)], np.int64)
    spans = spans.reshape(-1, 3)
    if lines_before is not None and len(spans) and not spans[-1, 2]:
        _refuse_open(text, int(spans[-1, 0]), lines_before)
    change = np.zeros(len(text) + 1, np.int8)
    change[spans[:, 0]] += 1
    change[spans[:, 1]] -= 1
    return np.cumsum(change[:-1], dtype=np.int8).astype(bool)


def splice(text: bytes, starts: Array, stops: Array, pieces: pa.Array) -> bytes:
    """Replace the bytes from `starts` to `stops` (n_pieces,) by other pieces (n_pieces,)."""
    order = np.lexsort((stops, starts))
    parts, position = [], 0
    for some in np.split(order, range(_PIECES, len(order), _PIECES)):
        begin, end = [position, *stops[some].tolist()], starts[some].tolist()
        position = begin.pop()
        mixed = [b""] * (2 * len(some))
        mixed[0::2] = [text[a:b] for a, b in zip(begin, end, strict=True)]
        mixed[1::2] = pieces.take(pa.array(some)).to_pylist()
        parts.append(b"".join(mixed))
    return b"".join([*parts, text[position:]])
