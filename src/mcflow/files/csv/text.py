"""The text of a CSV file of any size: its encoding, its blocks of bytes, and batches of whole records."""

from __future__ import annotations

__all__ = ["BATCH_BYTES", "BLOCK_BYTES", "CsvText", "batches_of", "open_text", "split_header", "whole_lines"]

import codecs
import contextlib
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from mcflow.errors import DataError
from mcflow.files.csv.layout import line_breaks
from mcflow.files.streams import open_decompressed
from mcflow.typing import Array, BoolArray

BLOCK_BYTES = 1 << 23  # bytes that are read at a time
BATCH_BYTES = 1 << 25  # maximum size of a batch; a single longer record is a batch of its own
RECORD_BYTES = 1 << 26  # maximum size of a record; a quote that is never closed would extend it to the end of the file
#: Byte-order marks and their encodings.
_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
#: Encodings of files that are not Unicode. Both restore every byte; the second one defines all of them.
_EIGHT_BIT = ("cp1252", "latin-1")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f]")  # control characters that do not occur in eight-bit text
_NOT_CP1252 = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # bytes that cp1252 does not define
Lines = tuple[bytes, Array]  # bytes of whole lines, and the offsets at which the lines end, shape (n_lines,)


@dataclass(frozen=True)
class CsvText:
    """A CSV file as bytes in which separators, quotes and line breaks are single: UTF-16 is converted to UTF-8."""

    path: Path  # the file; its ending gives the compression
    content: bytes | None = None  # the decompressed file, when it is in memory
    encoding: str = "utf-8"
    bom: bool = False  # whether the file begins with a byte-order mark
    newline: int = ord("\n")  # byte that ends a line

    @property
    def is_seekable(self) -> bool:
        """Return whether reading can start at any byte."""
        return self.path.suffix.lower() not in (".gz", ".zst") and not self._is_utf16

    @property
    def _is_utf16(self) -> bool:
        return self.encoding.startswith("utf-16")

    @property
    def _bom_bytes(self) -> int:
        """Return the length of the byte-order mark."""
        return len("\ufeff".encode(self.encoding if self._is_utf16 else "utf-8")) if self.bom else 0

    def blocks(self, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Yield the text from its beginning; a `size` of -1 yields it as a single block."""
        decoder = codecs.getincrementaldecoder(self.encoding)() if self._is_utf16 else None
        with self._open() as opened:
            opened.read(self._bom_bytes)
            block = bytes(opened.read(size))
            while block:
                following = bytes(opened.read(size))
                yield block if decoder is None else decoder.decode(block, not following).encode()
                block = following

    def _open(self) -> contextlib.AbstractContextManager[IO[bytes] | Any]:
        if self.content is not None:
            return io.BytesIO(self.content)
        return open_decompressed(self.path, self.path.suffix.lower())

    def whole(self) -> bytes:
        """Return all of the text in UTF-8."""
        return self.in_utf8(b"".join(self.blocks(-1)))

    def pieces(self, bounds: list[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the pieces of the text between pairs of offsets in UTF-8."""
        if not self.is_seekable:
            yield from map(self.in_utf8, self._read_through(bounds))
            return
        with self.path.open("rb") as opened:
            for start, stop in bounds:
                opened.seek(self._bom_bytes + start)
                yield self.in_utf8(opened.read(stop - start))

    def _read_through(self, bounds: list[tuple[int, int]]) -> Iterator[bytes]:
        """Yield pieces of a text that can only be read from its beginning."""
        blocks, held, first = self.blocks(), b"", 0
        for start, stop in bounds:
            while first + len(held) < stop:
                block = next(blocks, None)
                if block is None:
                    break
                drop = min(max(start - first, 0), len(held))
                held, first = held[drop:] + block, first + drop
            yield held[start - first : stop - first]

    def in_utf8(self, piece: bytes) -> bytes:
        """Convert a piece of the text to UTF-8."""
        if self.encoding not in _EIGHT_BIT or piece.isascii():
            return piece
        return piece.decode(self.encoding).encode()


def open_text(path: Path, content: bytes | None = None) -> CsvText:
    """Find the encoding and the line ends of a CSV file by reading all of its blocks."""
    with CsvText(path, content)._open() as opened:
        begin = bytes(opened.read(4))
    mark = next((mark for mark in _BYTE_ORDER_MARKS if begin.startswith(mark)), b"")
    text = CsvText(path, content, _BYTE_ORDER_MARKS.get(mark, "utf-8"), bool(mark))
    is_blank, is_utf8, decoder = True, True, codecs.getincrementaldecoder("utf-8")()
    marks: set[bytes] = set()
    for block in itertools.chain(text.blocks(), [b""]):
        is_blank = is_blank and (not block or block.isspace())
        marks.update(mark for mark in (b"\n", b"\r", b"\0") if mark in block)
        try:
            decoder.decode(block if is_utf8 else b"", final=not block)
        except UnicodeDecodeError:
            is_utf8 = False
    if is_blank:
        raise DataError(f"{path} is empty. Give a file with a header line and rows.")
    encoding = text.encoding if is_utf8 else _eight_bit_encoding(text)
    if b"\0" in marks:
        raise ValueError("it holds zero bytes, so it is not text")
    newline = ord("\r") if b"\r" in marks and b"\n" not in marks else ord("\n")
    return replace(text, encoding=encoding, newline=newline)


def _eight_bit_encoding(text: CsvText) -> str:
    encoding = _EIGHT_BIT[0]
    for block in text.blocks():
        if _CONTROL.search(block):
            raise ValueError("it is neither UTF-8 nor free of control characters, so it is not text")
        if _NOT_CP1252.search(block):
            encoding = _EIGHT_BIT[1]
    return encoding


def whole_lines(blocks: Iterable[bytes], separator: str, newline: int) -> Iterator[Lines]:
    """Join the blocks of a text and cut it after whole lines."""
    rest, n_lines = b"", 0
    for block in blocks:
        text = rest + block
        ends = line_breaks(text, separator, newline) + 1
        stop = int(ends[-1]) if len(ends) else 0
        if stop:
            n_lines += text.count(bytes([newline]), 0, stop)
            yield text[:stop], ends
        rest = text[stop:]
        if len(rest) > RECORD_BYTES:
            raise ValueError(
                f"the record that begins in line {n_lines + 1} does not end within {RECORD_BYTES:,} bytes; perhaps a "
                "quote in it is never closed"
            )
    if rest:
        yield rest, np.array([len(rest)])


def split_header(lines: Iterator[Lines], newline: int) -> tuple[bytes, Iterator[Lines]]:
    """Separate the header line, with the empty lines before it, from the other lines."""
    head = b""
    for text, ends in lines:
        full = np.flatnonzero(~_empty_lines(text, ends, newline))
        if len(full):
            cut = int(ends[full[0]])
            rest = [(text[cut:], ends[full[0] + 1 :] - cut)] if cut < len(text) else []
            return head + text[:cut], itertools.chain(rest, lines)
        head += text
    return head, iter(())


def batches_of(
    lines: Iterable[Lines], newline: int, *, keep_empty: bool, batch_rows: int, batch_bytes: int = BATCH_BYTES
) -> Iterator[tuple[bytes, int]]:
    """Yield batches of records, each with its number of rows; empty lines count as rows if `keep_empty` is true."""
    pieces: list[bytes] = []
    rows = size = 0
    for text, ends in lines:
        full = np.ones(len(ends), dtype=bool) if keep_empty else ~_empty_lines(text, ends, newline)
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


def _empty_lines(text: bytes, ends: Array, newline: int) -> BoolArray:
    """Return which lines are empty. Shapes: `ends` (n_lines,), returns (n_lines,)."""
    codes = np.frombuffer(text, np.uint8)
    starts = np.concatenate([[0], ends[:-1]])
    stops = ends - (codes[ends - 1] == newline)
    stops = stops - ((stops > starts) & (codes[stops - 1] == ord("\r")))
    return np.asarray(stops == starts)
