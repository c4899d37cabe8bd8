"""How a CSV file is written: its encoding, separator, quotes, line ends and decimal mark."""

from __future__ import annotations

__all__ = [
    "BYTE_ORDER_MARKS",
    "CONTROL",
    "EIGHT_BIT",
    "SEPARATORS",
    "SHOWN_BYTES",
    "Dialect",
    "decode",
    "find_separator",
    "quoting_habit",
]

import codecs
import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.csv_layout import line_widths
from mcflow.typing import BoolArray

#: Characters that can separate cells; where several fit a file, the first of them is taken.
SEPARATORS = ("\t", ";", "|", ",")

#: What a file may begin with, and the encoding that it says.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
#: For files that are not Unicode. Both give every byte back as it was; the second one knows all of them.
EIGHT_BIT = ("cp1252", "latin-1")
#: Bytes that text in eight bits does not have.
CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f]")
#: Bytes at the beginning of a file that have to show its separator.
SHOWN_BYTES = 1 << 20


@dataclass(frozen=True)
class Dialect:
    r"""The way a CSV file is written.

    Parameters
    ----------
    separator : str, default=","
        Between two cells.
    quoting : {"needed", "text", "all"}, default="needed"
        Which cells stand in quotes: those that have to, all that are not numbers, or all.
    newline : str, default="\n"
        At the end of a line.
    final_newline : bool, default=True
        Whether the last line has one too.
    encoding : str, default="utf-8"
        Of the bytes.
    bom : bool, default=False
        Whether a byte-order mark comes first.
    decimal : str, default="."
        Before the fraction of a number.
    """

    separator: str = ","
    quoting: str = "needed"
    newline: str = "\n"
    final_newline: bool = True
    encoding: str = "utf-8"
    bom: bool = False
    decimal: str = "."

    def encode(self, text: bytes) -> bytes:
        """Return UTF-8 text as the bytes of a file in this encoding.

        Raises
        ------
        UnicodeEncodeError
            When the encoding lacks a character.
        """
        body = text if self.encoding == "utf-8" else text.decode().encode(self.encoding)
        return "\ufeff".encode(self.encoding) + body if self.bom else body

    def quote(self, texts: pa.ChunkedArray, always: bool) -> pa.ChunkedArray:
        """Put cells into quotes.

        Parameters
        ----------
        texts : pyarrow.ChunkedArray of string
            Cells as they are meant.
        always : bool
            Quote all of them, not only those that need it.

        Returns
        -------
        pyarrow.ChunkedArray of string
            Cells as they stand in the file.
        """
        need = _needs_quotes(texts, self.separator)
        if not always and not pc.any(need).as_py():
            return texts
        quoted = pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
        return quoted if always else pc.if_else(need, quoted, texts)


def _needs_quotes(texts: pa.ChunkedArray, separator: str) -> pa.ChunkedArray:
    """Tell which cells cannot stand without quotes."""
    return pc.match_substring_regex(texts, f'[{re.escape(separator)}"\\r\\n]')


def decode(data: bytes) -> tuple[bytes, str, bool]:
    """Find the encoding of a file.

    Parameters
    ----------
    data : bytes
        All of it.

    Returns
    -------
    text : bytes
        The text in UTF-8, without a byte-order mark.
    encoding : str
        UTF-8, UTF-16 when a byte-order mark says so, else cp1252 or latin-1.
    bom : bool
        Whether there was a byte-order mark.

    Raises
    ------
    ValueError
        When the file is not text.

    Examples
    --------
    >>> decode("Größe".encode("cp1252"))[0].decode()
    'Größe'
    """
    mark = next((mark for mark in BYTE_ORDER_MARKS if data.startswith(mark)), b"")
    encoding = BYTE_ORDER_MARKS.get(mark, "")
    data = data.removeprefix(mark)
    if encoding.startswith("utf-16"):
        data = data.decode(encoding).encode()
    elif not _is_utf8(data):
        data, encoding = _decode_eight_bit(data)
    if b"\0" in data:
        raise ValueError("it holds zero bytes, so it is not text")
    return data, encoding or "utf-8", bool(mark)


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _decode_eight_bit(data: bytes) -> tuple[bytes, str]:
    if CONTROL.search(data):
        raise ValueError("it is neither UTF-8 nor free of control characters, so it is not text")
    try:
        return data.decode(EIGHT_BIT[0]).encode(), EIGHT_BIT[0]
    except UnicodeDecodeError:
        return data.decode(EIGHT_BIT[1]).encode(), EIGHT_BIT[1]


def find_separator(text: bytes, default: str = ",") -> str:
    r"""Find what separates the cells of a CSV text.

    Parameters
    ----------
    text : bytes
        In UTF-8.
    default : str, default=","
        For texts that do not show it.

    Returns
    -------
    str
        One of `SEPARATORS`: one that cuts all lines into the same number of cells, or else one of the first line.

    Examples
    --------
    >>> find_separator(b"a;b\n1,5;2,5\n")
    ';'
    """
    sample = text[:SHOWN_BYTES]
    widths = {separator: line_widths(sample, separator) for separator in (default, *SEPARATORS)}
    if len(text) > SHOWN_BYTES:  # the last line may be cut
        widths = {separator: found[:-1] or found for separator, found in widths.items()}
    found = [separator for separator, cells in widths.items() if cells and cells[0] > 1]
    fitting = [separator for separator in SEPARATORS if separator in found and len(set(widths[separator])) == 1]
    return (fitting or found or [default])[0]


def quoting_habit(texts: pa.ChunkedArray, quoted: BoolArray, separator: str) -> bool | None:
    """Tell whether cells are quoted out of habit.

    Parameters
    ----------
    texts : pyarrow.ChunkedArray of string
        Cells of a column, or of a header.
    quoted : ndarray of shape (n_cells,)
        Which of them stand in quotes.
    separator : str
        Of the file.

    Returns
    -------
    bool or None
        None when all are quoted because they have to be, or when there are none.
    """
    if not quoted.all():
        return False
    return True if pc.any(pc.invert(_needs_quotes(texts, separator))).as_py() else None
