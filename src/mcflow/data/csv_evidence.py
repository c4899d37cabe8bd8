"""What lots of a CSV column's cells say of its type and its looks, joined into what all of them say."""

from __future__ import annotations

__all__ = ["ColumnEvidence", "decimal_of", "wider_type"]

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.cells import Spelling, looks_coded, plain_numbers, truth_words
from mcflow.data.csv_dialect import quoting_habit
from mcflow.data.dates import DateEvidence
from mcflow.typing import BoolArray

_UNITS = ("s", "ms", "us", "ns")
#: Cells that are tried before all of them are.
_PROBE = 1000


@dataclass(frozen=True)
class _Numbers:
    """What cells say of being numbers with one of the decimal marks."""

    whole: bool = True
    any: bool = True
    marked: bool = False

    def joined(self, other: _Numbers) -> _Numbers:
        return _Numbers(self.whole and other.whole, self.any and other.any, self.marked or other.marked)


@dataclass(frozen=True)
class ColumnEvidence:
    """What some cells of a column say of it.

    Parameters
    ----------
    seen : bool
        Whether there was an observed cell.
    words : tuple of two str, optional
        For truth values, when all cells are such.
    dates : DateEvidence, optional
        Of the format of dates.
    broken : frozenset of str
        Orders of year, month and day in which a date is none.
    points, commas : _Numbers
        Of being numbers with a decimal point, and with a comma.
    quoted : bool
        Whether all observed cells stand in quotes.
    free : bool
        Whether one of them stands in quotes that it does not need.

    Notes
    -----
    `joined` over the lots of a column finds what `mcflow.data.cells.read_cells` finds in all of it at once.

    Examples
    --------
    >>> first, second = (ColumnEvidence.of(pa.chunked_array([[cell]])) for cell in ("1", "2.5"))
    >>> str(first.found(".")[0]), str(first.joined(second).found(".")[0])
    ('int64', 'double')
    """

    seen: bool = False
    words: tuple[str, str] | None = None
    dates: DateEvidence | None = None
    broken: frozenset[str] = frozenset()
    points: _Numbers = field(default_factory=_Numbers)
    commas: _Numbers = field(default_factory=_Numbers)
    quoted: bool = True
    free: bool = False

    @classmethod
    def of(
        cls, cells: pa.ChunkedArray, quoted: BoolArray | None = None, separator: str = ",", *, commas: bool = False
    ) -> ColumnEvidence:
        """Look at cells.

        Parameters
        ----------
        cells : pyarrow.ChunkedArray of string
            Null where missing.
        quoted : ndarray of bool of shape (n_cells,), optional
            Which of them stand in quotes.
        separator : str, default=","
            Of the file.
        commas : bool, default=False
            Whether numbers may have a decimal comma.

        Returns
        -------
        ColumnEvidence
        """
        seen = cells.drop_null()
        if not len(seen):
            return cls()
        habit = False if quoted is None else quoting_habit(seen, quoted[cells.is_valid().to_numpy()], separator)
        looks: dict[str, Any] = {"seen": True, "quoted": habit is not False, "free": habit is True}
        words = truth_words(seen)
        dates = DateEvidence.of(seen)
        if words is not None or dates.shape is not None:
            no = _Numbers(False, False)
            return cls(words=words, dates=dates, broken=_broken(dates, seen), points=no, commas=no, **looks)
        points = _numbers(seen, ".")
        return cls(dates=dates, points=points, commas=_commas(seen, points) if commas else points, **looks)

    def joined(self, other: ColumnEvidence) -> ColumnEvidence:
        """Return what both lots of cells say.

        Parameters
        ----------
        other : ColumnEvidence
            Of cells that come later.

        Returns
        -------
        ColumnEvidence
        """
        if not self.seen or not other.seen:
            return self if self.seen else other
        assert self.dates is not None
        assert other.dates is not None
        return ColumnEvidence(
            True,
            self.words if self.words == other.words else None,
            self.dates.joined(other.dates),
            self.broken | other.broken,
            self.points.joined(other.points),
            self.commas.joined(other.commas),
            self.quoted and other.quoted,
            self.free or other.free,
        )

    @property
    def habit(self) -> bool | None:
        """Tell whether cells are quoted out of habit; None when it does not show."""
        return False if not self.quoted else self.free or None

    def found(self, decimal: str) -> tuple[pa.DataType, Spelling]:
        """Return the type that all cells have, and how they are written.

        Parameters
        ----------
        decimal : str
            The decimal mark of the file.

        Returns
        -------
        kind : pyarrow.DataType
        spelling : Spelling
        """
        if self.words is not None:
            return pa.bool_(), Spelling(decimal, self.words)
        date = self.dates.format() if self.dates is not None else None
        if date is not None:
            if date.order in self.broken:
                return pa.string(), Spelling(decimal)
            return date.type, Spelling(decimal, date=date)
        numbers = self.points if decimal == "." else self.commas
        if not self.seen or not numbers.any:
            return pa.string(), Spelling(decimal)
        return pa.int64() if numbers.whole else pa.float64(), Spelling(decimal)


def _broken(dates: DateEvidence, seen: pa.ChunkedArray) -> frozenset[str]:
    """Return the orders in which a cell is no day or time that there is."""
    found = set()
    for order in dates.orders():
        date = dates.format(order)
        try:
            if date is not None:
                date.read(seen)
        except pa.ArrowInvalid:
            found.add(order)
    return frozenset(found)


def _numbers(seen: pa.ChunkedArray, decimal: str) -> _Numbers:
    marked = bool(pc.any(pc.match_substring(seen, decimal)).as_py())
    cells = plain_numbers(seen, decimal)
    for kind in (pa.int64(), pa.float64()):
        if kind == pa.int64() and marked:
            continue
        try:
            cells[:_PROBE].cast(kind)  # a cast that fails costs more than one that does not
            cells.cast(kind)
        except pa.ArrowInvalid:
            continue
        return _Numbers(kind == pa.int64(), not looks_coded(cells), marked)
    return _Numbers(False, False, marked)


def _commas(seen: pa.ChunkedArray, points: _Numbers) -> _Numbers:
    """Look at numbers with a decimal comma; without either mark they are the same."""
    marked = bool(pc.any(pc.match_substring(seen, ",")).as_py())
    if points.marked:
        return _Numbers(False, False, marked)
    return _numbers(seen, ",") if marked else points


def decimal_of(columns: Sequence[ColumnEvidence], separator: str) -> str:
    """Tell whether numbers of a file have a decimal comma, as `mcflow.data.cells.decimal_mark` does.

    Parameters
    ----------
    columns : sequence of ColumnEvidence
        Of all columns.
    separator : str
        Of the file.

    Returns
    -------
    str
        "." or ",".
    """
    if separator == ",":
        return "."
    commas = sum(column.commas.marked and column.commas.any for column in columns)
    points = sum(column.points.marked and column.points.any for column in columns)
    return "," if commas and (commas >= points if separator == ";" else not points) else "."


def wider_type(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return the type that holds the cells of two files' columns: text when nothing else does.

    Examples
    --------
    >>> str(wider_type(pa.int64(), pa.float64())), str(wider_type(pa.int64(), pa.date32()))
    ('double', 'string')
    """
    if first == second:
        return first
    if {first, second} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_timestamp(first) and pa.types.is_timestamp(second) and first.tz == second.tz:
        return max(first, second, key=lambda kind: _UNITS.index(kind.unit))
    return pa.string()
