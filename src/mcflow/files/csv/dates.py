"""Date and time formats of CSV columns: inference from cells, reading and writing."""

from __future__ import annotations

__all__ = ["UNITS", "DateEvidence", "DateFormat"]

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

#: Units of timestamps, from coarse to fine.
UNITS = ("s", "ms", "us", "ns")

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
_TIMES = {
    ("", False, False): "",
    (" ", False, False): f" {_MINUTES}",
    (" ", True, False): f" {_SECONDS}",
}
#: The same for times after an ISO date.
_ISO_TIMES = {
    (joint, seconds, zone): joint + (_SECONDS + _FRACTION if seconds else _MINUTES) + (_ZONE if zone else "")
    for joint in ("T", " ")
    for seconds in (False, True)
    for zone in (False, True)
} | {("", False, False): ""}
#: A number that can be a day but not a month.
_OVER_TWELVE = r"(?:1[3-9]|[23]\d)"


@dataclass(frozen=True)
class DateFormat:
    """The format of a column of dates or times."""

    order: str = "ymd"  # order of year, month and day
    mark: str = "-"  # separator of year, month and day
    padded: bool = True  # whether days and months below ten have a leading zero
    joint: str = ""  # separator of date and time; empty without a time
    seconds: bool = False  # whether the time has seconds
    digits: int = 0  # digits of the fraction of a second
    zone: str = ""  # UTC offset of written times: empty, "Z", or such as "+02:00"

    @property
    def type(self) -> pa.DataType:
        """Return the Arrow type: a date, or a timestamp with the precision of the text, in UTC if there are offsets."""
        if not self.joint:
            return pa.date32()
        return pa.timestamp(UNITS[-(-self.digits // 3)], "UTC" if self.zone else None)

    def read(self, cells: pa.ChunkedArray) -> pa.ChunkedArray:
        """Read cells of this format."""
        for _ in range(0 if self.padded else 2):  # pad the second number, then the first
            cells = pc.replace_substring_regex(cells, r"^(\d+\D)?(\d\D)", r"\10\2")
        if (self.order, self.mark) != ("ymd", "-"):
            year, month, day = (self.order.index(part) + 1 for part in "ymd")
            pattern = r"^(\d+)\D(\d+)\D(\d+)"
            cells = pc.replace_substring_regex(cells, pattern, rf"\{year}-\{month}-\{day}")
        return cells.cast(self.type)

    def write(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Write dates or times as cells of this format."""
        texts = self._local(values).cast(pa.string())
        part = r"(\d+)" if self.padded else r"0?(\d+)"
        fraction = rf"(\.\d{{{self.digits}}})\d*" if self.digits else r"()(?:\.\d*)?"
        pattern = rf"^(\d+)-{part}-{part} (\d\d:\d\d)(:\d\d){fraction}$"
        places = {"y": r"\1", "m": r"\2", "d": r"\3"}
        template = self.mark.join(places[part] for part in self.order)
        if self.joint:
            template += self.joint + r"\4" + (r"\5\6" if self.seconds else "") + self.zone
        return pc.replace_substring_regex(texts, pattern, template)

    def _local(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return timestamps in local time at the format's UTC offset, with at least the format's precision."""
        unit = getattr(values.type, "unit", "s")
        unit = UNITS[max(UNITS.index(unit if unit in UNITS else "s"), -(-self.digits // 3))]
        if pa.types.is_timestamp(values.type) and (values.type.tz or self.zone):
            values = values.cast(pa.timestamp(unit, values.type.tz or "UTC")).cast(pa.timestamp(unit, "UTC"))
        values = values.cast(pa.timestamp(unit))
        return pc.add(values, pa.scalar(_offset(self.zone), pa.duration(unit))) if self.zone else values


def _offset(zone: str) -> timedelta:
    if zone == "Z":
        return timedelta()
    hours, minutes = (int(part) for part in zone[1:].split(":"))
    return timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)


@dataclass(frozen=True)
class DateEvidence:
    """What some cells of a column show about its date format; evidence of several pieces can be joined.

    Examples
    --------
    >>> cells = [pa.chunked_array([[day]]) for day in ("03/04/2024", "03/14/2024")]
    >>> first, second = (DateEvidence.of(piece) for piece in cells)
    >>> first.format(), first.joined(second).format().order
    (None, 'mdy')
    """

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
        if shape is None or not _all(cells, f"^{shape[2]}$"):
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
        names = dict.fromkeys([*self.zones, *other.zones])
        return DateEvidence(
            self.shape,
            (self.over[0] or other.over[0], self.over[1] or other.over[1]),
            self.short or other.short,
            self.long or other.long,
            max(self.digits, other.digits),
            {name: self.zones.get(name, 0) + other.zones.get(name, 0) for name in names},
            self.invalid | other.invalid,
        )

    def format(self) -> DateFormat | None:
        """Return the format that all cells have, or None if there is none or more than one."""
        if self.shape is None or (self.short and self.long):
            return None
        order = self.shape[0]
        if self.shape[:2] == ("dmy", "/"):
            if self.over[0] == self.over[1]:
                return None
            order = "dmy" if self.over[0] else "mdy"
        if order in self.invalid or (self.digits > 6 and "ns" in self.invalid):
            return None
        return self._format(order)

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
    if not pc.any(pc.match_substring(cells, ".")).as_py():
        return 0
    fractions = pc.struct_field(pc.extract_regex(cells, r"\.(?P<digits>\d+)"), "digits")
    return int(pc.max(pc.utf8_length(fractions)).as_py())


def _zones(cells: pa.ChunkedArray) -> dict[str, int]:
    """Count the UTC offsets, in order of appearance."""
    zones = pc.struct_field(pc.extract_regex(cells, rf"(?P<zone>{_ZONE})$"), "zone")
    return {str(entry["values"]): int(entry["counts"]) for entry in pc.value_counts(zones).to_pylist()}


def _all(cells: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(cells, pattern)).as_py())


def _any(cells: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(cells, pattern)).as_py())
