"""A CSV text of any size cut into batches of whole records, without keeping more than one of them."""

from __future__ import annotations

__all__ = ["BATCH_BYTES", "RECORD_BYTES", "batches_of", "head_of", "whole_lines"]

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from mcflow.data.csv_layout import line_breaks
from mcflow.typing import Array, BoolArray

#: Bytes of a batch, at most; a single record may have more.
BATCH_BYTES = 1 << 25

#: Bytes of a record, at most. A quote that is never closed makes a record of all that follows.
RECORD_BYTES = 1 << 26

_RETURN = ord("\r")

Lines = tuple[bytes, Array]


def whole_lines(blocks: Iterable[bytes], separator: str, newline: int) -> Iterator[Lines]:
    r"""Join the pieces of a text and cut it after lines.

    Parameters
    ----------
    blocks : iterable of bytes
        The text in pieces of any size.
    separator : str
        One ASCII character.
    newline : int
        The byte that ends a line.

    Yields
    ------
    text : bytes
        Lines with their breaks; those within quotes are no breaks. The last line of all may be without one.
    ends : ndarray of int
        Where each of them ends.

    Raises
    ------
    ValueError
        When a record does not end within `RECORD_BYTES`.

    Examples
    --------
    >>> [text for text, _ in whole_lines([b"a,b\n1", b",2\n3,4"], ",", 10)]
    [b'a,b\n', b'1,2\n', b'3,4']
    """
    rest, lines = b"", 0
    for block in blocks:
        text = rest + block
        ends = line_breaks(text, separator, newline) + 1
        stop = int(ends[-1]) if len(ends) else 0
        if stop:
            lines += text.count(bytes([newline]), 0, stop)
            yield text[:stop], ends
        rest = text[stop:]
        if len(rest) > RECORD_BYTES:
            raise ValueError(
                f"the record that begins in line {lines + 1} does not end within {RECORD_BYTES:,} bytes; perhaps a "
                "quote in it is never closed"
            )
    if rest:
        yield rest, np.array([len(rest)])


def head_of(lines: Iterator[Lines], newline: int) -> tuple[bytes, Iterator[Lines]]:
    """Take the header line from a text, with the empty lines before it.

    Parameters
    ----------
    lines : iterator of (bytes, ndarray)
        From `whole_lines`.
    newline : int
        The byte that ends a line.

    Returns
    -------
    head : bytes
    lines : iterator of (bytes, ndarray)
        All that follow.
    """
    head = b""
    for text, ends in lines:
        full = np.flatnonzero(~_empty(text, ends, newline))
        if len(full):
            cut = int(ends[full[0]])
            rest = [(text[cut:], ends[full[0] + 1 :] - cut)] if cut < len(text) else []
            return head + text[:cut], itertools.chain(rest, lines)
        head += text
    return head, iter(())


def batches_of(
    lines: Iterable[Lines], newline: int, *, keep_empty: bool, batch_rows: int, batch_bytes: int = BATCH_BYTES
) -> Iterator[tuple[bytes, int]]:
    """Join lines to batches.

    Parameters
    ----------
    lines : iterable of (bytes, ndarray)
        From `head_of`.
    newline : int
        The byte that ends a line.
    keep_empty : bool
        Whether empty lines are rows, as in files with a single column.
    batch_rows : int
        Rows of a batch; only the last has fewer, if none is too long.
    batch_bytes : int
        Bytes of a batch, at most, if a single row has not more.

    Yields
    ------
    text : bytes
        Lines with their breaks.
    n_rows : int
        Rows in them.
    """
    pieces: list[bytes] = []
    rows = size = 0
    for text, ends in lines:
        full = np.ones(len(ends), dtype=bool) if keep_empty else ~_empty(text, ends, newline)
        count = np.concatenate([[0], np.cumsum(full)])
        first = begin = 0
        while first < len(ends):
            by_rows = int(np.searchsorted(count, count[first] + batch_rows - rows, side="right")) - 1
            by_bytes = int(np.searchsorted(ends, begin + batch_bytes - size, side="right"))
            last = min(by_rows, max(by_bytes, first + (not pieces)))
            if last > first:
                stop = int(ends[last - 1])
                pieces.append(text[begin:stop])
                rows, size = rows + int(count[last] - count[first]), size + stop - begin
                first, begin = last, stop
            if first < len(ends):
                yield b"".join(pieces), rows
                pieces, rows, size = [], 0, 0
    if pieces:
        yield b"".join(pieces), rows


def _empty(text: bytes, ends: Array, newline: int) -> BoolArray:
    """Tell which lines are empty."""
    codes = np.frombuffer(text, np.uint8)
    starts = np.concatenate([[0], ends[:-1]])
    stops = ends - (codes[ends - 1] == newline)
    stops = stops - ((stops > starts) & (codes[stops - 1] == _RETURN))
    found: BoolArray = stops == starts
    return found
