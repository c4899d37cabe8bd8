"""The dialect of a CSV file: separator, quoting, line ends, encoding and decimal mark."""

from __future__ import annotations

__all__ = ["SAMPLE_BYTES", "Dialect", "always_quoted", "find_separator"]

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mcflow.files.csv.layout import line_widths
from mcflow.typing import BoolArray

#: Supported separators, in order of preference when several fit a file.
SEPARATORS = ("\t", ";", "|", ",")
#: Bytes at the beginning of a file from which the separator is inferred.
SAMPLE_BYTES = 1 << 20


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


def find_separator(text: bytes, default: str = ",") -> str:
    """Infer the separator from the beginning of a CSV text."""
    sample = text[:SAMPLE_BYTES]
    widths = {separator: line_widths(sample, separator) for separator in (default, *SEPARATORS)}
    if len(text) > SAMPLE_BYTES:  # the last line of the sample may be incomplete
        widths = {separator: found[:-1] or found for separator, found in widths.items()}
    found = [separator for separator, cells in widths.items() if cells and cells[0] > 1]
    fitting = [separator for separator in SEPARATORS if separator in found and len(set(widths[separator])) == 1]
    return (fitting or found or [default])[0]


def always_quoted(texts: pa.ChunkedArray, quoted: BoolArray, separator: str) -> bool | None:
    """Return whether cells are quoted even when they need no quotes; None when all of them need quotes.

    Shapes: `quoted` (n_cells,).
    """
    if not quoted.all():
        return False
    return True if pc.any(pc.invert(_needs_quotes(texts, separator))).as_py() else None
