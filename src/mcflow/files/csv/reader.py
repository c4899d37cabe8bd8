"""CSV files as typed tables: read as a whole, or profiled in one pass and then read in batches of records."""

from __future__ import annotations

__all__ = ["CsvBatch", "CsvProfile", "CsvReader", "CsvSource", "CsvTable", "profile_csv", "read_csv", "unique_names"]

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.columns.frames import type_named
from mcflow.columns.numerals import NumberFormat
from mcflow.columns.schema import MissingValues, warn_of_words, without_values
from mcflow.errors import warn
from mcflow.files.csv.cells import DateFormat, Spelling, observed, read_as
from mcflow.files.csv.inference import ColumnEvidence, infer_decimal
from mcflow.files.csv.layout import CsvLayout, Dialect, always_quoted, find_separator, scan
from mcflow.files.csv.text import BATCH_BYTES, BLOCK_BYTES, CsvText, batches_of, open_text, split_header, whole_lines
from mcflow.files.streams import readable
from mcflow.typing import BoolArray


@dataclass(frozen=True)
class CsvSource:
    """How a CSV file is written, for tables that are written in the same way."""

    dialect: Dialect = field(default_factory=Dialect)
    layout: CsvLayout | None = None  # the text and the offsets of its cells, if the text is to be kept
    spellings: Mapping[str, Spelling] = field(default_factory=dict)  # by column
    quoted: Mapping[str, bool | None] = field(default_factory=dict)  # whether each column is always quoted, if known
    preamble: bytes = b""  # lines before the header, in UTF-8

    def spelling(self, name: str) -> Spelling:
        """Return the spelling of a column; a new column follows the others."""
        if name in self.spellings:
            return self.spellings[name]
        words = (spelling.words for spelling in self.spellings.values() if spelling.words != Spelling.words)
        return Spelling(NumberFormat(self.dialect.decimal), next(words, Spelling.words))

    def quotes(self, name: str, number: bool) -> bool:
        """Return whether new cells of a column are quoted even when they need no quotes."""
        always = self.quoted.get(name)
        if always is not None:
            return always
        return self.dialect.quoting == "all" or (self.dialect.quoting == "text" and not number)


@dataclass(frozen=True)
class CsvTable:
    """The content of a CSV file, or of some of its records."""

    table: pa.Table  # typed columns
    texts: pa.Table  # every cell as it is written, without quotes
    source: CsvSource


class _Column(NamedTuple):
    """The cells of a column, of shape (n_rows,)."""

    texts: pa.ChunkedArray  # as they are written, without quotes
    cells: pa.ChunkedArray  # without surrounding white space, null where missing
    quoted: BoolArray  # which cells are quoted


def _columns_of(layout: CsvLayout, names: Sequence[str], missing: MissingValues) -> list[_Column]:
    """Return the columns of a text without the header."""
    columns = []
    for place, name in enumerate(names):
        texts, quoted = layout.column(place)
        columns.append(_Column(texts[1:], observed(texts[1:], missing.of_column(name)), quoted[1:]))
    return columns


def unique_names(names: Sequence[str], source: str | Path) -> tuple[str, ...]:
    """Return column names with a number after each repeated one, and warn of them."""
    unique: list[str] = []
    for name in names:
        number, new = 0, name
        while new in unique or (number and new in names):
            number += 1
            new = f"{name}.{number}"
        unique.append(new)
    changed = [f"{new!r}" for name, new in zip(names, unique, strict=True) if name != new]
    if changed:
        warn(f"{source} names columns more than once. The later ones are called {', '.join(changed)}.")
    return tuple(unique)


@dataclass(frozen=True)
class CsvReader:
    """Reads records of a CSV file with the types that were inferred from all of its cells."""

    text: CsvText
    head: bytes  # the header line and the empty lines before it, in UTF-8
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    seen: tuple[bool, ...]  # whether each column has an observed cell
    source: CsvSource  # without a layout
    missing: MissingValues = field(default_factory=MissingValues)  # values that are missing besides the usual marks

    def read(self, piece: bytes, lines_before: int = 0) -> CsvTable:
        """Read whole records in UTF-8, which follow `lines_before` other lines."""
        with readable(self.text.path, "csv"):
            layout = _scan_records(self.head, piece, self.source.dialect.separator, lines_before)
            return self.table(layout, _columns_of(layout, self.names, self.missing))

    def table(self, layout: CsvLayout, columns: Sequence[_Column]) -> CsvTable:
        """Convert columns to the inferred types."""
        typed = [
            without_values(read_as(column.cells, kind, self.source.spelling(name)), self.missing.of_column(name))
            for name, column, kind in zip(self.names, columns, self.types, strict=True)
        ]
        texts = pa.table([column.texts for column in columns], names=self.names)
        return CsvTable(pa.table(typed, names=self.names), texts, replace(self.source, layout=layout))


def _scan_records(head: bytes, piece: bytes, separator: str, lines_before: int) -> CsvLayout:
    """Return the layout of the header and some records, which follow `lines_before` other lines of the file."""
    head_lines = head.count(b"\n") or head.count(b"\r")
    return scan(head + piece, separator, max(lines_before - head_lines, 0))


class _Inference:
    """Infers names, types and spellings of all columns, from pieces of a file."""

    def __init__(self, text: CsvText, header: CsvLayout, separator: str, missing: MissingValues) -> None:
        end = int(header.ends[0, -1])
        after = header.text[end : end + 2]
        newline = "\r\n" if after == b"\r\n" else "\r" if after.startswith(b"\r") else "\n"
        self.text, self.missing = text, missing
        self.dialect = Dialect(separator, newline=newline, encoding=text.encoding, bom=text.bom)
        cells = [header.column(place) for place in range(header.ends.shape[1])]
        self.names = unique_names([texts[0].as_py() for texts, _ in cells], text.path)
        missing.check(self.names)
        quoted = np.array([flags[0] for _, flags in cells])
        self.names_quoted = always_quoted(pa.chunked_array([self.names]), quoted, separator)
        self.evidence = [ColumnEvidence()] * len(self.names)

    def add(self, columns: Sequence[_Column]) -> None:
        """Take the evidence of the next piece."""
        for place, column in enumerate(columns):
            found = ColumnEvidence.of(column.cells, column.quoted, self.dialect.separator)
            self.evidence[place] = self.evidence[place].joined(found)

    def reader(self, head: bytes, end: bytes) -> CsvReader:
        """Return a reader for the file, given its header and its end."""
        decimal = infer_decimal(self.evidence, self.dialect.separator)
        types, spellings = zip(*(column.infer(decimal) for column in self.evidence), strict=True)
        quoted = [column.quoted for column in self.evidence]
        known = [always for always in quoted if always is not None]
        quoting = "all" if known and all(known) else "text" if self.names_quoted else "needed"
        final = end.endswith(self.dialect.newline.encode())
        dialect = replace(self.dialect, decimal=decimal, quoting=quoting, final_newline=final)
        by_name = dict(zip(self.names, spellings, strict=True)), dict(zip(self.names, quoted, strict=True))
        source = CsvSource(dialect, None, *by_name)
        for name, column, kind in zip(self.names, self.evidence, types, strict=True):
            if kind in (pa.int64(), pa.float64()):
                column.shapes.warn_of_odd(name, source.spelling(name).number)
        seen = tuple(column.seen for column in self.evidence)
        return CsvReader(self.text, head, self.names, types, seen, source, self.missing)


def read_csv(
    data: bytes, name: str, default: str = ",", *, missing: MissingValues | None = None, skip_rows: int = 0
) -> CsvTable:
    """Read a CSV file in memory as a single piece; the header follows `skip_rows` lines."""
    text = open_text(Path(name), data)
    content = text.whole()
    start = _end_of_line(content, text.newline, skip_rows)
    preamble, content = content[:start], content[start:]
    separator = find_separator(content, default)
    layout = scan(content, separator, skip_rows)
    inference = _Inference(text, layout.header(), separator, missing or MissingValues())
    columns = _columns_of(layout, inference.names, inference.missing)
    inference.add(columns)
    read = inference.reader(b"", content).table(layout, columns)
    for column, typed, cells in zip(inference.names, read.table.columns, (c.cells for c in columns), strict=True):
        if not pa.types.is_string(typed.type) and typed.null_count > cells.null_count:
            words = cells.filter(pc.and_(cells.is_valid(), typed.is_null()))
            warn_of_words(column, without_values(words, inference.missing.of_column(column)).drop_null())
    return replace(read, source=replace(read.source, preamble=preamble))


def _end_of_line(content: bytes, newline: int, number: int) -> int:
    """Return the offset after a number of lines."""
    end = 0
    for _ in range(number):
        end = content.find(bytes([newline]), end) + 1
        if not end:
            raise ValueError(f"it has fewer than the {number} lines to skip (--skip-rows)")
    return end


class CsvBatch(NamedTuple):
    """Records that are read together."""

    start: int  # offset of the first byte in the text
    stop: int  # offset after the last byte
    n_rows: int
    lines: int  # number of lines before the batch


@dataclass(frozen=True)
class CsvProfile:
    """The result of one pass over a CSV file: how to read it, and where its records are."""

    reader: CsvReader
    batches: tuple[CsvBatch, ...]  # all records

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dictionary that can be written as JSON."""
        reader, source = self.reader, self.reader.source
        return {
            "text": {name: getattr(reader.text, name) for name in ("encoding", "bom", "newline")},
            "head": reader.head.decode(),
            "names": list(reader.names),
            "types": [str(kind) for kind in reader.types],
            "seen": list(reader.seen),
            "missing": [list(reader.missing.everywhere), list(map(list, reader.missing.by_column.items()))],
            "dialect": asdict(source.dialect),
            "spellings": [asdict(source.spellings[name]) for name in reader.names],
            "quoted": [source.quoted[name] for name in reader.names],
            "batches": [list(batch) for batch in self.batches],
        }

    @classmethod
    def from_dict(cls, path: Path, given: dict[str, Any]) -> CsvProfile:
        """Restore the profile of a file from the result of `to_dict`."""
        names = tuple(given["names"])
        spellings = [
            Spelling(NumberFormat(**one["number"]), tuple(one["words"]), one["date"] and DateFormat(**one["date"]))
            for one in given["spellings"]
        ]
        by_name = dict(zip(names, spellings, strict=True)), dict(zip(names, given["quoted"], strict=True))
        source = CsvSource(Dialect(**given["dialect"]), None, *by_name)
        types = tuple(type_named(word) or pa.type_for_alias(word) for word in given["types"])
        text = CsvText(path, **given["text"])
        everywhere, by_column = given["missing"]
        missing = MissingValues(tuple(everywhere), {name: tuple(values) for name, values in by_column})
        reader = CsvReader(text, given["head"].encode(), names, types, tuple(given["seen"]), source, missing)
        return cls(reader, tuple(CsvBatch(*batch) for batch in given["batches"]))


def profile_csv(
    path: Path,
    default: str = ",",
    *,
    batch_rows: int,
    batch_bytes: int = BATCH_BYTES,
    block_bytes: int = BLOCK_BYTES,
    missing: MissingValues | None = None,
) -> CsvProfile:
    """Infer how to read a CSV file of any size, with the memory of one batch."""
    with readable(path, "csv"):
        text = open_text(path)
        separator = find_separator(text.in_utf8(next(text.blocks())), default)
        lines = whole_lines(text.blocks(block_bytes), separator, text.newline)
        end, lines = split_header(lines, text.newline)
        head, batches = text.in_utf8(end), []
        inference = _Inference(text, scan(head, separator), separator, missing or MissingValues())
        keep_empty = len(inference.names) == 1
        offset, line = len(end), end.count(bytes([text.newline]))
        sizes = {"batch_rows": batch_rows, "batch_bytes": batch_bytes}
        for piece, n_rows in batches_of(lines, text.newline, keep_empty=keep_empty, **sizes):
            layout = _scan_records(head, text.in_utf8(piece), separator, line)
            inference.add(_columns_of(layout, inference.names, inference.missing))
            batches.append(CsvBatch(offset, offset + len(piece), n_rows, line))
            offset, line, end = offset + len(piece), line + piece.count(bytes([text.newline])), piece
        return CsvProfile(inference.reader(head, end), tuple(batches))
