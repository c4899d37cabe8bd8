"""CSV files as typed tables, with all that is needed to write them again as they were."""

from __future__ import annotations

__all__ = ["CsvSource", "CsvTable", "header_of", "line_ends", "quoting_of", "read_csv"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from mcflow.data.cells import Spelling, decimal_mark, observed, read_cells
from mcflow.data.csv_dialect import Dialect, decode, find_separator, quoting_habit
from mcflow.data.csv_layout import CsvLayout, scan
from mcflow.errors import DataError
from mcflow.typing import BoolArray


@dataclass(frozen=True)
class CsvSource:
    """What a CSV file looks like.

    Parameters
    ----------
    dialect : Dialect
        How it is written.
    layout : CsvLayout, optional
        Its text and the places of its cells; without it there is no text to keep.
    spellings : mapping of str to Spelling
        How each column writes numbers, truth values and dates.
    quoted : mapping of str to bool or None
        Whether each column puts its cells in quotes; None when it does not show.
    """

    dialect: Dialect = field(default_factory=Dialect)
    layout: CsvLayout | None = None
    spellings: Mapping[str, Spelling] = field(default_factory=dict)
    quoted: Mapping[str, bool | None] = field(default_factory=dict)

    def spelling(self, name: str) -> Spelling:
        """Return how a column writes its values; a new column follows the others."""
        if name in self.spellings:
            return self.spellings[name]
        words = (spelling.words for spelling in self.spellings.values() if spelling.words != Spelling.words)
        return Spelling(self.dialect.decimal, next(words, Spelling.words))

    def quotes(self, name: str, number: bool) -> bool:
        """Tell whether new cells of a column, numbers or not, get quotes even where they need none."""
        habit = self.quoted.get(name)
        if habit is not None:
            return habit
        return self.dialect.quoting == "all" or (self.dialect.quoting == "text" and not number)


@dataclass(frozen=True)
class CsvTable:
    """A CSV file that was read.

    Parameters
    ----------
    table : pyarrow.Table
        The columns, typed.
    texts : pyarrow.Table
        Every cell as it is written, without quotes.
    source : CsvSource
        What the file looks like.
    """

    table: pa.Table
    texts: pa.Table
    source: CsvSource


def read_csv(data: bytes, name: str, default: str = ",") -> CsvTable:
    r"""Read a CSV file.

    Parameters
    ----------
    data : bytes
        All of the file.
    name : str
        What to call it in messages.
    default : str, default=","
        The separator when the text does not show it.

    Returns
    -------
    CsvTable

    Raises
    ------
    DataError
        When there is no header, or a name stands in it twice.
    ValueError
        When the file is not text, or its lines differ in length.

    Examples
    --------
    >>> read_csv(b"a;b\n1;2,5\n", "rows.csv").table.to_pylist()
    [{'a': 1, 'b': 2.5}]
    """
    text, encoding, bom = decode(data)
    if not text or text.isspace():
        raise DataError(f"{name} is empty. Give a file with a header line and rows.")
    separator = find_separator(text, default)
    layout = scan(text, separator)
    columns = [layout.column(place) for place in range(layout.n_columns)]
    header = [cells[0].as_py() for cells, _ in columns]
    _refuse_twins(header, name)
    texts = pa.table([cells[1:] for cells, _ in columns], names=header)
    dialect = replace(line_ends(layout), separator=separator, encoding=encoding, bom=bom)
    return _typed(texts, np.stack([quoted for _, quoted in columns], axis=1), CsvSource(dialect, layout))


def header_of(layout: CsvLayout, separator: str, name: str) -> tuple[list[str], bool | None]:
    """Read the first line of a text.

    Parameters
    ----------
    layout : CsvLayout
        Of the text; only its first line is read.
    separator : str
        Of the file.
    name : str
        What to call the file in messages.

    Returns
    -------
    names : list of str
    habit : bool or None
        Whether they are quoted out of habit.

    Raises
    ------
    DataError
        When a name stands in it twice.
    """
    cells = [layout.column(place) for place in range(layout.n_columns)]
    names = [texts[0].as_py() for texts, _ in cells]
    _refuse_twins(names, name)
    return names, quoting_habit(pa.chunked_array([names]), np.array([quoted[0] for _, quoted in cells]), separator)


def _refuse_twins(header: Sequence[str], name: str) -> None:
    if len(set(header)) < len(header):
        twice = sorted({column for column in header if header.count(column) > 1})
        raise DataError(f"{name} names these columns more than once: {', '.join(twice)}. Give each its own name.")


def line_ends(layout: CsvLayout) -> Dialect:
    """Return a dialect with the line ends of a text."""
    end = int(layout.ends[0, -1])
    found = layout.text[end : end + 2]
    newline = "\r\n" if found == b"\r\n" else "\r" if found.startswith(b"\r") else "\n"
    return Dialect(newline=newline, final_newline=layout.text.endswith(newline.encode()))


def _typed(texts: pa.Table, quoted: BoolArray, source: CsvSource) -> CsvTable:
    """Find types and habits of all columns.

    `quoted`, of shape (n_lines, n_columns), tells which cells stand in quotes, the header first.
    """
    names, separator = texts.column_names, source.dialect.separator
    cells = [observed(column) for column in texts.columns]
    decimal = decimal_mark(cells, separator)
    columns, spellings = zip(*(read_cells(column, decimal) for column in cells), strict=True)
    habits = [_habit(column, flags, separator) for column, flags in zip(cells, quoted[1:].T, strict=True)]
    names_habit = quoting_habit(pa.chunked_array([names]), quoted[0], separator)
    source = replace(
        source,
        dialect=replace(source.dialect, decimal=decimal, quoting=quoting_of(habits, names_habit)),
        spellings=dict(zip(names, spellings, strict=True)),
        quoted=dict(zip(names, habits, strict=True)),
    )
    return CsvTable(pa.table(list(columns), names=names), texts, source)


def _habit(cells: pa.ChunkedArray, quoted: BoolArray, separator: str) -> bool | None:
    """Tell whether the observed cells of a column are quoted out of habit."""
    seen = cells.is_valid().to_numpy()
    return quoting_habit(cells.drop_null(), quoted[seen], separator)


def quoting_of(habits: Sequence[bool | None], names_habit: bool | None) -> str:
    """Return which cells of a file stand in quotes, by the habits of its columns and of its header."""
    shown = [habit for habit in habits if habit is not None]
    if shown and all(shown):
        return "all"
    return "text" if names_habit else "needed"
