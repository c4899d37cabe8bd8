"""What has to be known of a whole CSV file before a batch of it can be read: its looks, its types, where rows are."""

from __future__ import annotations

__all__ = ["CsvBatch", "CsvLooks", "CsvProfile", "profile_csv"]

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from mcflow.data.cells import Spelling, observed, read_as
from mcflow.data.csv_cutting import BATCH_BYTES, batches_of, head_of, whole_lines
from mcflow.data.csv_dialect import SHOWN_BYTES, Dialect, find_separator
from mcflow.data.csv_evidence import ColumnEvidence, decimal_of
from mcflow.data.csv_layout import CsvLayout, scan
from mcflow.data.csv_reader import CsvSource, CsvTable, header_of, line_ends, quoting_of
from mcflow.data.csv_texts import BLOCK_BYTES, CsvText, open_text
from mcflow.data.dates import DateFormat
from mcflow.errors import DataError


class CsvBatch(NamedTuple):
    """Records of a CSV text that are read together: from byte `start` to `stop`, and the lines before them."""

    start: int
    stop: int
    n_rows: int
    lines: int


@dataclass(frozen=True)
class CsvLooks:
    """How a CSV file is written and read.

    Parameters
    ----------
    text : CsvText
        The file and its encoding.
    head : bytes
        Its header line, in UTF-8, with what comes before.
    names : tuple of str
        Its columns.
    types : tuple of pyarrow.DataType
        What their cells are read as.
    seen : tuple of bool
        Whether each has an observed cell.
    source : CsvSource
        Dialect and habits, without a layout.
    """

    text: CsvText
    head: bytes
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    seen: tuple[bool, ...]
    source: CsvSource

    def read(self, piece: bytes, lines: int = 0) -> CsvTable:
        """Read records.

        Parameters
        ----------
        piece : bytes
            Of the text, in UTF-8; it begins and ends with a record.
        lines : int, default=0
            Lines of the file before it, for messages.

        Returns
        -------
        CsvTable
            Its layout is that of a file with the header and these records only.

        Raises
        ------
        DataError
            When they are not records of the file.
        """
        before = max(lines - self.head.count(bytes([self.text.newline])), 0)
        try:
            layout = scan(self.head + piece, self.source.dialect.separator, before)
            texts = pa.table([layout.column(place)[0][1:] for place in range(len(self.names))], names=self.names)
            columns = [
                read_as(observed(cells), kind, self.source.spelling(name))
                for name, cells, kind in zip(self.names, texts.columns, self.types, strict=True)
            ]
        except (ValueError, pa.ArrowException) as error:
            raise _unreadable(self.text.path, error) from error
        return CsvTable(pa.table(columns, names=self.names), texts, replace(self.source, layout=layout))


@dataclass(frozen=True)
class CsvProfile:
    """A CSV file that was looked through.

    Parameters
    ----------
    looks : CsvLooks
        How it is written and read.
    batches : tuple of CsvBatch
        All its records.
    """

    looks: CsvLooks
    batches: tuple[CsvBatch, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain objects, as JSON holds them."""
        looks, source = self.looks, self.looks.source
        text = {"encoding": looks.text.encoding, "bom": looks.text.bom, "newline": looks.text.newline}
        return {
            "text": text,
            "head": looks.head.decode(),
            "names": list(looks.names),
            "types": [str(kind) for kind in looks.types],
            "seen": list(looks.seen),
            "dialect": asdict(source.dialect),
            "spellings": [asdict(source.spellings[name]) for name in looks.names],
            "quoted": [source.quoted[name] for name in looks.names],
            "batches": [list(batch) for batch in self.batches],
        }

    @classmethod
    def from_dict(cls, path: Path, given: dict[str, Any]) -> CsvProfile:
        """Undo `to_dict`."""
        names = tuple(given["names"])
        spellings = [_spelling(spelling) for spelling in given["spellings"]]
        source = CsvSource(
            Dialect(**given["dialect"]),
            spellings=dict(zip(names, spellings, strict=True)),
            quoted=dict(zip(names, given["quoted"], strict=True)),
        )
        types = tuple(
            pa.type_for_alias(word) if "timestamp" not in word else spelling.date.type  # type: ignore[union-attr]
            for word, spelling in zip(given["types"], spellings, strict=True)
        )
        looks = CsvLooks(
            CsvText(path, **given["text"]), given["head"].encode(), names, types, tuple(given["seen"]), source
        )
        return cls(looks, tuple(CsvBatch(*batch) for batch in given["batches"]))


def _spelling(given: dict[str, Any]) -> Spelling:
    date = given["date"]
    return Spelling(given["decimal"], tuple(given["words"]), None if date is None else DateFormat(**date))


def profile_csv(
    path: Path,
    default: str = ",",
    *,
    batch_rows: int,
    batch_bytes: int = BATCH_BYTES,
    block_bytes: int = BLOCK_BYTES,
) -> CsvProfile:
    """Look through a CSV file, with memory for a batch of it.

    Parameters
    ----------
    path : Path
        The file.
    default : str, default=","
        The separator when the text does not show it.
    batch_rows, batch_bytes : int
        Rows and bytes of a batch, at most.
    block_bytes : int
        Bytes that are read at a time.

    Returns
    -------
    CsvProfile
        The same types and looks that `mcflow.data.csv_reader.read_csv` finds.

    Raises
    ------
    DataError
        When the file cannot be read as CSV.
    """
    try:
        return _profiled(path, default, batch_rows, batch_bytes, block_bytes)
    except DataError:
        raise
    except (ValueError, OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    why = str(error).rstrip(". \n")
    return DataError(f"{path} cannot be read as csv: {why}. Check the file, or give another one.")


def _profiled(path: Path, default: str, batch_rows: int, batch_bytes: int, block_bytes: int) -> CsvProfile:
    text = open_text(path)
    separator = find_separator(_beginning(text), default)
    raw, lines = head_of(whole_lines(text.blocks(block_bytes), separator, text.newline), text.newline)
    head = text.in_utf8(raw)
    layout = scan(head, separator)
    names, names_quoted = header_of(layout, separator, str(path))
    pieces = batches_of(lines, text.newline, keep_empty=len(names) == 1, batch_rows=batch_rows, batch_bytes=batch_bytes)
    evidence, batches, dialect = [ColumnEvidence()] * len(names), [], line_ends(layout)
    place, line = len(raw), raw.count(bytes([text.newline]))
    for piece, n_rows in pieces:
        found = _evidence(text.in_utf8(piece), head, separator, line)
        evidence = [before.joined(now) for before, now in zip(evidence, found, strict=True)]
        batches.append(CsvBatch(place, place + len(piece), n_rows, line))
        place, line = place + len(piece), line + piece.count(bytes([text.newline]))
        dialect = replace(dialect, final_newline=piece.endswith(dialect.newline.encode()))
    dialect = replace(dialect, separator=separator, encoding=text.encoding, bom=text.bom)
    looks = CsvLooks(text, head, tuple(names), (), (), CsvSource(dialect))
    return CsvProfile(_with_evidence(looks, evidence, names_quoted), tuple(batches))


def _beginning(text: CsvText) -> bytes:
    """Return as much of a text as its separator is found by, and a little more, in UTF-8."""
    pieces: list[bytes] = []
    for block in text.blocks(SHOWN_BYTES + 4):
        pieces.append(block)
        if sum(map(len, pieces)) > SHOWN_BYTES + 2:
            break
    whole = b"".join(pieces)
    return text.in_utf8(whole)


def _evidence(piece: bytes, head: bytes, separator: str, lines: int) -> list[ColumnEvidence]:
    """Look at the columns of some records."""
    newlines = head.count(b"\n") or head.count(b"\r")
    layout = scan(head + piece, separator, max(lines - newlines, 0))
    return list(_looked_at(layout, separator))


def _looked_at(layout: CsvLayout, separator: str) -> Iterator[ColumnEvidence]:
    for place in range(layout.n_columns):
        cells, quoted = layout.column(place)
        yield ColumnEvidence.of(observed(cells[1:]), quoted[1:], separator, commas=separator != ",")


def _with_evidence(looks: CsvLooks, evidence: Sequence[ColumnEvidence], names_quoted: bool | None) -> CsvLooks:
    dialect = looks.source.dialect
    decimal = decimal_of(evidence, dialect.separator)
    types, spellings = zip(*(column.found(decimal) for column in evidence), strict=True)
    habits = [column.habit for column in evidence]
    source = CsvSource(
        replace(dialect, decimal=decimal, quoting=quoting_of(habits, names_quoted)),
        spellings=dict(zip(looks.names, spellings, strict=True)),
        quoted=dict(zip(looks.names, habits, strict=True)),
    )
    return replace(looks, types=tuple(types), seen=tuple(column.seen for column in evidence), source=source)
