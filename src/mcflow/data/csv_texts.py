"""The text of a CSV file of any size: its encoding, and its bytes from the beginning or from a place within."""

from __future__ import annotations

__all__ = ["BLOCK_BYTES", "CsvText", "open_text"]

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from mcflow.data.csv_dialect import BYTE_ORDER_MARKS, CONTROL, EIGHT_BIT
from mcflow.errors import DataError

#: Bytes that are read at a time.
BLOCK_BYTES = 1 << 23

#: Bytes that cp1252 gives no meaning.
_HOLES_OF_CP1252 = b"\x81\x8d\x8f\x90\x9d"


@dataclass(frozen=True)
class CsvText:
    """A CSV file as a row of bytes in which separators, quotes and line breaks are single ones.

    Parameters
    ----------
    path : Path
        The file; its ending says how it is compressed.
    encoding : str
        Of the file.
    bom : bool
        Whether a byte-order mark comes first; it is no part of the text.
    newline : int
        The byte that ends a line.

    Notes
    -----
    A file in UTF-16 is read as UTF-8, others are read as they are.
    """

    path: Path
    encoding: str = "utf-8"
    bom: bool = False
    newline: int = ord("\n")

    @property
    def has_places(self) -> bool:
        """Tell whether reading can begin anywhere, as in files that are not compressed."""
        return not _is_packed(self.path) and not self.encoding.startswith("utf-16")

    def blocks(self, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Yield the text from its beginning, in pieces of any size."""
        decoder = codecs.getincrementaldecoder(self.encoding)() if self.encoding.startswith("utf-16") else None
        with _reading(self.path) as opened:
            opened.read(self._skipped)
            while block := opened.read(size):
                yield bytes(block) if decoder is None else decoder.decode(bytes(block)).encode()
            if decoder is not None:
                decoder.decode(b"", final=True)

    def pieces(self, places: list[tuple[int, int]]) -> Iterator[bytes]:
        """Yield pieces of the text, in UTF-8.

        Parameters
        ----------
        places : list of (int, int)
            Where they start and stop, in order.

        Yields
        ------
        bytes
        """
        found = self._sought(places) if self.has_places else self._passed(places)
        for piece in found:
            yield self.in_utf8(piece)

    def in_utf8(self, piece: bytes) -> bytes:
        """Return a piece of the text in UTF-8."""
        if self.encoding not in EIGHT_BIT or piece.isascii():
            return piece
        return piece.decode(self.encoding).encode()

    @property
    def _skipped(self) -> int:
        return (
            0
            if not self.bom
            else len("\ufeff".encode(self.encoding if self.encoding.startswith("utf-16") else "utf-8"))
        )

    def _sought(self, places: list[tuple[int, int]]) -> Iterator[bytes]:
        with self.path.open("rb") as opened:
            for start, stop in places:
                opened.seek(self._skipped + start)
                yield opened.read(stop - start)

    def _passed(self, places: list[tuple[int, int]]) -> Iterator[bytes]:
        """Read all that comes before a piece too."""
        blocks, held, first = self.blocks(), b"", 0
        for start, stop in places:
            while first + len(held) < stop:
                block = next(blocks, None)
                if block is None:
                    break
                drop = min(max(start - first, 0), len(held))
                held, first = held[drop:] + block, first + drop
            yield held[start - first : stop - first]


def open_text(path: Path) -> CsvText:
    """Find the encoding of a CSV file, as `mcflow.data.csv_dialect.decode` does, without keeping it in memory.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    CsvText

    Raises
    ------
    DataError
        When there is nothing in it.
    ValueError
        When it is not text, or not compressed as its ending says.
    """
    with _reading(path) as opened:
        begin = bytes(opened.read(4))
    mark = next((mark for mark in BYTE_ORDER_MARKS if begin.startswith(mark)), b"")
    text = CsvText(path, BYTE_ORDER_MARKS.get(mark, "utf-8"), bool(mark))
    facts = _Facts(text.encoding == "utf-8")
    for block in text.blocks():
        facts.add(block)
    if facts.blank:
        raise DataError(f"{path} is empty. Give a file with a header line and rows.")
    encoding = text.encoding if facts.ends_well() else _eight_bit(text)
    if facts.zeros:
        raise ValueError("it holds zero bytes, so it is not text")
    return CsvText(path, encoding, text.bom, ord("\n") if facts.feeds or not facts.returns else ord("\r"))


class _Facts:
    """What has to be known of all of a text."""

    def __init__(self, check: bool) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")() if check else None
        self.utf8 = self.blank = True
        self.feeds = self.returns = self.zeros = False

    def add(self, block: bytes) -> None:
        self.blank = self.blank and (not block or block.isspace())
        self.feeds = self.feeds or b"\n" in block
        self.returns = self.returns or b"\r" in block
        self.zeros = self.zeros or b"\0" in block
        if self.decoder is not None and self.utf8 and (self.decoder.getstate()[0] or not block.isascii()):
            self._decode(block)

    def _decode(self, block: bytes, final: bool = False) -> None:
        assert self.decoder is not None
        try:
            self.decoder.decode(block, final)
        except UnicodeDecodeError:
            self.utf8 = False

    def ends_well(self) -> bool:
        if self.decoder is not None and self.utf8:
            self._decode(b"", final=True)
        return self.utf8


def _eight_bit(text: CsvText) -> str:
    encoding = EIGHT_BIT[0]
    for block in text.blocks():
        if CONTROL.search(block):
            raise ValueError("it is neither UTF-8 nor free of control characters, so it is not text")
        if len(block.translate(None, _HOLES_OF_CP1252)) < len(block):
            encoding = EIGHT_BIT[1]
    return encoding


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() in (".gz", ".zst")


@contextmanager
def _reading(path: Path) -> Iterator[IO[bytes] | Any]:
    """Open a file as what is in it."""
    ending = path.suffix.lower()
    try:
        if ending == ".gz":
            with gzip.open(path, "rb") as opened:
                yield opened
        elif ending == ".zst":
            with pa.input_stream(str(path), compression="zstd") as opened:
                yield opened
        else:
            with path.open("rb") as opened:
                yield opened
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"it cannot be decompressed ({error})") from error
    except OSError as error:
        if ending != ".zst":
            raise
        raise ValueError(f"it cannot be decompressed ({error})") from error
