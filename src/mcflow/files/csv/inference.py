"""Inference of column types and spellings from the cells of a CSV file, piece by piece."""

from __future__ import annotations

__all__ = ["ColumnEvidence", "DateEvidence", "infer_decimal", "wider_type"]

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from mcflow.columns.numerals import NumberFormat, NumberShapes, read_truth, truth_words
from mcflow.columns.schema import without_words
from mcflow.files.csv.cells import UNITS, DateFormat, Spelling, any_true, plain_numbers
from mcflow.files.csv.layout import always_quoted
from mcflow.typing import BoolArray

_PROBE = 1000  # cells that are cast before all others, as a cast that fails late is expensive
#: Patterns of dates by order and mark. "dmy" with slashes stands for "mdy" too.
_DATE = {
    ("ymd", "-"): r"(\d{4})-(\d\d)-(\d\d)",
    ("ymd", "/"): r"(\d{4})/(\d\d)/(\d\d)",
    ("dmy", "."): r"(\d{1,2})\.(\d{1,2})\.(\d{4})",
    ("dmy", "/"): r"(\d{1,2})/(\d{1,2})/(\d{4})",
}
_MINUTES = r"\d\d:\d\d"
_SECONDS = r"\d\d:\d\d:\d\d"
_FRACTION = r"(?:\.\d{1,9})?"
_ZONE = r"(?:Z|[+-]\d\d:\d\d)"
#: Patterns of times by (separator of date and time, seconds, zone).
_TIMES = {("", False, False): "", (" ", False, False): f" {_MINUTES}", (" ", True, False): f" {_SECONDS}"}
#: The same for times after an ISO date.
_ISO_TIMES = {
    (joint, seconds, zone): joint + (_SECONDS + _FRACTION if seconds else _MINUTES) + (_ZONE if zone else "")
    for joint in ("T", " ")
    for seconds in (False, True)
    for zone in (False, True)
} | {("", False, False): ""}
_OVER_TWELVE = r"(?:1[3-9]|[23]\d)"  # a number that can be a day but not a month


@dataclass(frozen=True)
class DateEvidence:
    """What some cells of a column show about its date format; evidence of several pieces can be joined."""

    # order, mark, joint, seconds and whether there is a zone; None when cells are no dates or differ in it
    shape: tuple[str, str, str, bool, bool] | None = None
    over: tuple[bool, bool] = (False, False)  # whether the first and the second number of a date exceed twelve
    short: bool = False  # whether a day or month below ten is written without a leading zero
    long: bool = False  # whether a day or month below ten is written with a leading zero
    digits: int = 0  # most digits of a fraction of a second
    zones: Mapping[str, int] = field(default_factory=dict)  # counts of UTC offsets
    invalid: frozenset[str] = frozenset()  # orders, and "ns" for nanoseconds, with which a cell cannot be read

    @classmethod
    def of(cls, cells: pa.ChunkedArray) -> DateEvidence:
        """Collect evidence from observed cells, of which there is at least one."""
        shape = _shape(cells[0].as_py())
        if shape is None or not pc.all(pc.match_substring_regex(cells, f"^{shape[2]}$")).as_py():
            return cls()
        (order, mark), (joint, seconds, zone), _ = shape
        known = order, mark, joint, seconds, zone
        if order == "ymd":
            return cls(known, digits=_digits(cells), zones=_zones(cells) if zone else {})._validated(cells)
        over = _any(cells, rf"^{_OVER_TWELVE}/"), _any(cells, rf"^\d+/{_OVER_TWELVE}/")
        short, long = _any(cells, r"^(?:\d+\D)?\d\D"), _any(cells, r"^(?:\d+\D)?0\d\D")
        return cls(known, over, short, long)._validated(cells)

    def _validated(self, cells: pa.ChunkedArray) -> DateEvidence:
        """Add the formats with which a cell is no valid date."""
        assert self.shape is not None
        orders = ("dmy", "mdy") if self.shape[:2] == ("dmy", "/") else self.shape[:1]
        formats = {order: self._format(order) for order in orders}
        if self.shape[:2] == ("ymd", "-") and self.shape[3]:  # another piece may have more digits
            formats["ns"] = replace(self, digits=9)._format("ymd")
        return replace(self, invalid=frozenset(name for name, form in formats.items() if not _can_read(form, cells)))

    def joined(self, other: DateEvidence) -> DateEvidence:
        """Return the evidence of both pieces, of which the other one is later in the column."""
        if self.shape is None or self.shape != other.shape:
            return DateEvidence()
        return DateEvidence(
            self.shape,
            (self.over[0] or other.over[0], self.over[1] or other.over[1]),
            self.short or other.short,
            self.long or other.long,
            max(self.digits, other.digits),
            Counter(self.zones) + Counter(other.zones),
            self.invalid | other.invalid,
        )

    def format(self) -> DateFormat | None:
        """Return the format that all cells have, or None if there is none or more than one."""
        if self.shape is None or (self.short and self.long):
            return None
        order = self.shape[0]
        if self.shape[:2] == ("dmy", "/"):
            order = "dmy" if self.over[0] else "mdy"
            if self.over[0] == self.over[1]:
                return None
        unreadable = order in self.invalid or (self.digits > 6 and "ns" in self.invalid)
        return None if unreadable else self._format(order)

    def _format(self, order: str) -> DateFormat:
        assert self.shape is not None
        _, mark, joint, seconds, _ = self.shape
        zone = max(self.zones, key=lambda name: self.zones[name]) if self.zones else ""
        return DateFormat(order, mark, not self.short, joint, seconds, self.digits, zone)


def _can_read(form: DateFormat, cells: pa.ChunkedArray) -> bool:
    try:
        form.read(cells)
    except pa.ArrowInvalid:
        return False
    return True


def _shape(cell: str) -> tuple[tuple[str, str], tuple[str, bool, bool], str] | None:
    """Return the date, the time and the pattern that a cell matches."""
    for (order, mark), date in _DATE.items():
        if re.match(date, cell):
            times = _ISO_TIMES if mark == "-" else _TIMES
            fits = (time for time, pattern in times.items() if re.fullmatch(date + pattern, cell))
            time = next(fits, None)
            return time and ((order, mark), time, date + times[time])
    return None


def _digits(cells: pa.ChunkedArray) -> int:
    if not any_true(pc.match_substring(cells, ".")):
        return 0
    fractions = pc.struct_field(pc.extract_regex(cells, r"\.(?P<digits>\d+)"), "digits")
    return int(pc.max(pc.utf8_length(fractions)).as_py())


def _zones(cells: pa.ChunkedArray) -> dict[str, int]:
    """Count the UTC offsets, in order of appearance."""
    zones = pc.struct_field(pc.extract_regex(cells, rf"(?P<zone>{_ZONE})$"), "zone")
    return {str(entry["values"]): int(entry["counts"]) for entry in pc.value_counts(zones).to_pylist()}


def _any(cells: pa.ChunkedArray, pattern: str) -> bool:
    return any_true(pc.match_substring_regex(cells, pattern))


class _Numbers(NamedTuple):
    """Whether cells are numbers with a given decimal mark."""

    whole: bool = True  # whether all cells are integers
    valid: bool = True  # whether all cells are numbers, and none looks like a code
    marked: bool = False  # whether a cell contains the decimal mark

    def joined(self, other: _Numbers) -> _Numbers:
        return _Numbers(self.whole and other.whole, self.valid and other.valid, self.marked or other.marked)


class ColumnEvidence(NamedTuple):
    """What some cells of a column show about its type and spelling; evidence of several pieces can be joined."""

    seen: bool = False  # whether there is an observed cell
    truth: Mapping[str, int] | None = None  # counts of words for true and false, if all cells are such words
    dates: DateEvidence = DateEvidence()
    points: _Numbers = _Numbers()  # as numbers with a decimal point
    commas: _Numbers = _Numbers()  # as numbers with a decimal comma
    quoted: bool | None = None  # whether observed cells are always quoted; None if unknown
    shapes: NumberShapes = NumberShapes({})

    @classmethod
    def of(cls, cells: pa.ChunkedArray, quoted: BoolArray, separator: str) -> ColumnEvidence:
        """Collect evidence from cells (n_cells,), of which some are `quoted` (n_cells,)."""
        seen = cells.drop_null()
        if not len(seen):
            return cls()
        always = always_quoted(seen, quoted[cells.is_valid().to_numpy()], separator)
        found = cls._of(seen, separator)
        if not (found.points.valid or found.commas.valid or found.dates.shape):  # a word for missing may be in the way
            without = without_words(seen, numeric=True).drop_null()
            if len(without) < len(seen):
                found = cls._of(without, separator) if len(without) else cls()
        return found._replace(quoted=always)

    @classmethod
    def _of(cls, seen: pa.ChunkedArray, separator: str) -> ColumnEvidence:
        """Collect evidence from observed cells, of which there is at least one."""
        dates = DateEvidence.of(seen)
        if dates.shape is not None:
            none = _Numbers(False, False)
            return cls(True, None, dates, none, none, shapes=NumberShapes({"": len(seen)}))
        truth, points = None, _numbers(seen, ".")
        if not (read_truth(seen[:_PROBE]).null_count or read_truth(seen).null_count):
            truth = {entry["values"]: entry["counts"] for entry in pc.value_counts(seen).to_pylist()}
        commas = points  # if cells contain neither mark
        if separator != "," and (points.marked or any_true(pc.match_substring(seen, ","))):
            commas = _Numbers(False, False) if points.marked else _numbers(seen, ",")
        plain = points.valid or commas.valid
        shapes = NumberShapes.of_plain(seen, "." if points.valid else ",") if plain else NumberShapes.of(seen)
        return cls(True, truth, dates, points, commas, None, shapes)

    def joined(self, other: ColumnEvidence) -> ColumnEvidence:
        """Return the evidence of both pieces, of which the other one is later in the column."""
        quoted = False if False in (self.quoted, other.quoted) else self.quoted or other.quoted
        if not self.seen or not other.seen:
            return (self if self.seen else other)._replace(quoted=quoted)
        return ColumnEvidence(
            True,
            None if self.truth is None or other.truth is None else Counter(self.truth) + Counter(other.truth),
            self.dates.joined(other.dates),
            self.points.joined(other.points),
            self.commas.joined(other.commas),
            quoted,
            self.shapes.joined(other.shapes),
        )

    def infer(self, decimal: str) -> tuple[pa.DataType, Spelling]:
        """Return the type that all observed cells have, and their spelling."""
        plain = NumberFormat(decimal)
        words = truth_words(self.truth or {})
        if words is not None:
            return pa.bool_(), Spelling(plain, words)
        date = self.dates.format()
        if date is not None:
            return date.type, Spelling(plain, date=date)
        form, whole = self._number_format(decimal)
        if not self.seen or form is None:
            return pa.string(), Spelling(plain)
        return pa.int64() if whole else pa.float64(), Spelling(form)

    def _number_format(self, decimal: str) -> tuple[NumberFormat | None, bool]:
        """Return how all cells write numbers, and whether all are integers."""
        mark = "," if decimal == "." else "."
        own, other = (self.points, self.commas) if decimal == "." else (self.commas, self.points)
        form = self.shapes.format(decimal if own.valid or not other.valid or self.shapes.may_group(mark) else mark)
        if own.valid:
            return NumberFormat(decimal, decimals=None if form is None else form.decimals), own.whole
        return form, form is not None and form.decimals == 0


def _numbers(seen: pa.ChunkedArray, decimal: str) -> _Numbers:
    marked = any_true(pc.match_substring(seen, decimal))
    cells = plain_numbers(seen, decimal)
    for kind in (pa.float64(),) if marked else (pa.int64(), pa.float64()):
        try:
            cells[:_PROBE].cast(kind)
            cells.cast(kind)
        except pa.ArrowInvalid:
            continue
        zeros = cells.filter(pc.or_(pc.starts_with(cells, "0"), pc.starts_with(cells, "-0")))
        coded = any_true(pc.match_substring_regex(zeros, r"^-?0[\dxX]"))  # a leading zero, or hexadecimal
        return _Numbers(kind == pa.int64(), not coded, marked)
    return _Numbers(False, False, marked)


def infer_decimal(columns: Sequence[ColumnEvidence], separator: str) -> str:
    """Return the decimal mark of a file, which its columns share."""
    if separator == ",":
        return "."
    found = [column.shapes for column in columns if column.shapes.format() is not None]
    for grouped in (False, True):  # a mark that may separate thousands counts if there is no other
        commas, points = (sum(_has_mark(shapes, mark, grouped) for shapes in found) for mark in ",.")
        if commas or points:
            return "," if commas and (commas >= points if separator == ";" else not points) else "."
    return "."


def _has_mark(shapes: NumberShapes, mark: str, grouped: bool) -> bool:
    """Return whether cells have a decimal mark, or with `grouped` one that may separate thousands."""
    if grouped:
        return any(mark in shape for shape in shapes.counts) and shapes.may_group(mark)
    marks = shapes.marks()
    return marks[mark] > marks["," if mark == "." else "."]


def wider_type(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return the type that holds the cells of two columns, which is text if no other type does."""
    if first == second:
        return first
    if {first, second} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_timestamp(first) and pa.types.is_timestamp(second) and first.tz == second.tz:
        return max(first, second, key=lambda kind: UNITS.index(kind.unit))
    return pa.string()
