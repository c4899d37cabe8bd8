"""Where each cell of a CSV text stands, and the same text with some cells replaced."""

from __future__ import annotations

__all__ = ["CsvLayout", "line_breaks", "line_widths", "scan", "splice"]

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.typing import Array, BoolArray

_QUOTE = ord('"')
_RETURN = ord("\r")
_CLOSING = r'(?s)^"((?:[^"]|"")*)"'
#: Bytes of text to gather at once; bounds the memory of the indices.
_CHUNK = 1 << 24
#: Pieces to put into a text at once; bounds the memory of the objects that they become.
_PIECES = 1 << 17


@dataclass(frozen=True)
class CsvLayout:
    """The places of all cells in a CSV text.

    Parameters
    ----------
    text : bytes
        The text, in UTF-8.
    starts : ndarray of shape (n_lines,)
        Where each line begins. The first one is the header.
    ends : ndarray of shape (n_lines, n_columns)
        Where each cell ends: the place of its separator or line break.
    """

    text: bytes
    starts: Array
    ends: Array

    @property
    def n_columns(self) -> int:
        """Cells a line."""
        return int(self.ends.shape[1])

    def bounds(self, column: int) -> tuple[Array, Array]:
        """Return where the cells of a column start and stop, the header first."""
        starts = self.starts if column == 0 else self.ends[:, column - 1] + 1
        return starts, self.ends[:, column]

    def column(self, column: int) -> tuple[pa.ChunkedArray, BoolArray]:
        """Read a column.

        Parameters
        ----------
        column : int
            Its position.

        Returns
        -------
        texts : pyarrow.ChunkedArray of string
            Its cells without their quotes, the header first.
        quoted : ndarray of shape (n_lines,)
            Which of them stand in quotes.
        """
        codes = np.frombuffer(self.text, np.uint8)
        starts, stops = self.bounds(column)
        quoted = (codes[np.minimum(starts, len(codes) - 1)] == _QUOTE) & (stops - starts > 1)
        closed = quoted & (codes[stops - 1] == _QUOTE)
        starts, stops = starts + closed, stops - closed
        pieces = int((stops - starts).sum()) // _CHUNK + 1
        parts = [np.array_split(array, pieces) for array in (starts, stops, quoted, closed)]
        return pa.chunked_array([_gather(codes, *part) for part in zip(*parts, strict=True)], pa.string()), quoted


def _gather(codes: Array, starts: Array, stops: Array, quoted: BoolArray, closed: BoolArray) -> pa.Array:
    """Copy pieces of a text into an array of strings, with the doubled quotes of quoted cells as single ones."""
    lengths = stops - starts
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    index = np.repeat(starts - offsets[:-1], lengths)
    index += np.arange(len(index), dtype=index.dtype)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(codes[index])]
    texts = pa.Array.from_buffers(pa.string(), len(starts), buffers)
    if not quoted.any():
        return texts
    if not closed[quoted].all():  # something stands between the closing quote and the separator
        texts = pc.if_else(pa.array(closed), texts, pc.replace_substring_regex(texts, _CLOSING, r"\1"))
    return pc.if_else(pa.array(quoted), pc.replace_substring(texts, '""', '"'), texts)


class _Lines(NamedTuple):
    """All lines of a text: where they start and stop, how many cells each has, and where those end."""

    starts: Array
    stops: Array
    widths: Array
    ends: Array

    def empty(self) -> BoolArray:
        found: BoolArray = (self.widths == 1) & (self.starts == self.stops)
        return found


def scan(text: bytes, separator: str, lines_before: int = 0) -> CsvLayout:
    r"""Find the cells of a CSV text.

    Parameters
    ----------
    text : bytes
        In UTF-8.
    separator : str
        One ASCII character.
    lines_before : int, default=0
        Lines of the file before the text, for messages.

    Returns
    -------
    CsvLayout
        Without lines when all are empty. Empty lines count as cells only where a line has a single one.

    Raises
    ------
    ValueError
        When a line has more or fewer cells than the first one, or a quote is never closed.

    Examples
    --------
    >>> scan(b"a,b\n1,2\n", ",").ends.tolist()
    [[1, 3], [5, 7]]
    """
    lines = _lines(text, separator, lines_before=lines_before)
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
        raise ValueError(f"line {number} has {found} cell{'s' * (found != 1)}, and the first line has {width}")
    ends = lines.ends if keep.all() else lines.ends[np.repeat(keep, lines.widths)]
    return CsvLayout(text, lines.starts[keep], ends.reshape(-1, width))


def line_widths(text: bytes, separator: str) -> list[int]:
    r"""Return how many cells each line of the beginning of a CSV text has, without empty lines.

    Parameters
    ----------
    text : bytes
        In UTF-8; may stop within a line.
    separator : str
        One ASCII character.

    Returns
    -------
    list of int

    Examples
    --------
    >>> line_widths(b'a;b\n"1;2";3\n', ";")
    [2, 2]
    """
    lines = _lines(text, separator, whole=False)
    widths: list[int] = lines.widths[~lines.empty()].tolist()
    return widths


def line_breaks(text: bytes, separator: str, newline: int) -> Array:
    r"""Find the line breaks of the beginning of a CSV text that are not within quotes.

    Parameters
    ----------
    text : bytes
        Without its end, if need be; in UTF-8 or an encoding of single bytes.
    separator : str
        One ASCII character.
    newline : int
        The byte that ends a line.

    Returns
    -------
    ndarray of int
        Their places.

    Examples
    --------
    >>> line_breaks(b'a,b\n"1\n2",3\n"4', ",", 10).tolist()
    [3, 11]
    """
    marks = np.frombuffer(text, np.uint8) == newline
    if b'"' in text:
        marks &= ~_inside_quotes(text, separator, newline, whole=False)
    return np.flatnonzero(marks)


def _lines(text: bytes, separator: str, whole: bool = True, lines_before: int = 0) -> _Lines:
    codes = np.frombuffer(text, np.uint8)
    newline = _newline(text)
    marks = (codes == ord(separator)) | (codes == newline)
    if b'"' in text:
        marks &= ~_inside_quotes(text, separator, newline, whole, lines_before)
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
    """Return the byte that ends a line; carriage returns alone are of files without any line feed."""
    return ord("\n") if b"\n" in text or b"\r" not in text else _RETURN


def _line_number(text: bytes, place: int) -> int:
    return text.count(bytes([_newline(text)]), 0, place) + 1


def _inside_quotes(text: bytes, separator: str, newline: int, whole: bool, lines_before: int = 0) -> BoolArray:
    """Mark the bytes of quoted cells: by the parity of quotes, when every one that opens stands where it may."""
    codes = np.frombuffer(text, np.uint8)
    quotes = codes == _QUOTE
    inside: BoolArray = np.logical_xor.accumulate(quotes)
    opening = np.flatnonzero(quotes & inside)
    before = codes[opening - 1]
    proper = (before == ord(separator)) | (before == newline) | (before == _QUOTE) | (opening == 0)
    if not proper.all():
        return _inside_quotes_with_strays(text, separator, newline, whole, lines_before)
    if whole and inside[-1]:
        _refuse_open(text, int(opening[before != _QUOTE][-1]) if (before != _QUOTE).any() else 0, lines_before)
    return inside


def _refuse_open(text: bytes, place: int, lines_before: int) -> None:
    raise ValueError(f"the quote that opens in line {_line_number(text, place) + lines_before} is never closed")


def _inside_quotes_with_strays(
    text: bytes, separator: str, newline: int, whole: bool, lines_before: int = 0
) -> BoolArray:
    """Mark the bytes of quoted cells where quotes also stand within plain cells, as in 5" pipe."""
    before = re.escape(separator.encode() + bytes([newline]))
    pattern = re.compile(rb"(?<![^" + before + rb'])"(?:[^"]++|"")*+("|\Z)')
    spans = np.array([(*match.span(), match.end(1) > match.start(1)) for match in pattern.finditer(text)], np.int64)
    spans = spans.reshape(-1, 3)
    if whole and len(spans) and not spans[-1, 2]:
        _refuse_open(text, int(spans[-1, 0]), lines_before)
    change = np.zeros(len(text) + 1, np.int8)
    change[spans[:, 0]] += 1
    change[spans[:, 1]] -= 1
    inside: BoolArray = np.cumsum(change[:-1], dtype=np.int8).astype(bool)
    return inside


def splice(text: bytes, starts: Array, stops: Array, pieces: pa.Array) -> bytes:
    """Replace parts of a text.

    Parameters
    ----------
    text : bytes
        The text.
    starts, stops : ndarray of shape (n_pieces,)
        The parts to replace, in any order, none over another; an empty part is a place to insert at.
    pieces : pyarrow.Array of binary
        What to put there.

    Returns
    -------
    bytes

    Examples
    --------
    >>> import numpy as np
    >>> splice(b"1,,3", np.array([2]), np.array([2]), pa.array([b"2"]))
    b'1,2,3'
    """
    order = np.lexsort((stops, starts))
    parts, place = [], 0
    for some in np.split(order, range(_PIECES, len(order), _PIECES)):
        begin, end = [place, *stops[some].tolist()], starts[some].tolist()
        place = begin.pop()
        mixed = [b""] * (2 * len(some))
        mixed[0::2] = [text[a:b] for a, b in zip(begin, end, strict=True)]
        mixed[1::2] = pieces.take(pa.array(some)).to_pylist()
        parts.append(b"".join(mixed))
    return b"".join([*parts, text[place:]])
