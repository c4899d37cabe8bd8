"""Dates and times in text: which of the usual formats a column is written in, and new cells in the same one."""

from __future__ import annotations

__all__ = ["DateEvidence", "DateFormat", "find_date_format"]

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

_UNITS = ("s", "ms", "us", "ns")
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
#: What may follow a date, as (between date and time, seconds, zone). The longer ones are of ISO dates only.
_TIMES = {
    ("", False, False): "",
    (" ", False, False): f" {_MINUTES}",
    (" ", True, False): f" {_SECONDS}",
}
_ISO_TIMES = {
    (joint, seconds, zone): joint + (_SECONDS + _FRACTION if seconds else _MINUTES) + (_ZONE if zone else "")
    for joint in ("T", " ")
    for seconds in (False, True)
    for zone in (False, True)
} | {("", False, False): ""}
_OVER_TWELVE = r"(?:1[3-9]|[23]\d)"


@dataclass(frozen=True)
class DateFormat:
    """How a column writes its dates.

    Parameters
    ----------
    order : {"ymd", "dmy", "mdy"}, default="ymd"
        Of year, month and day.
    mark : str, default="-"
        Between them.
    padded : bool, default=True
        Whether days and months below ten have a zero in front.
    joint : str, default=""
        Between date and time; empty without a time.
    seconds : bool, default=False
        Whether the time has seconds.
    digits : int, default=0
        Digits of the fraction of a second.
    zone : str, default=""
        The offset from UTC to write times with: empty for none, "Z", or as in "+02:00".
    """

    order: str = "ymd"
    mark: str = "-"
    padded: bool = True
    joint: str = ""
    seconds: bool = False
    digits: int = 0
    zone: str = ""

    @property
    def type(self) -> pa.DataType:
        """The type of the column: a date, or a timestamp no finer than its text, in UTC where it has offsets."""
        if not self.joint:
            return pa.date32()
        return pa.timestamp(_UNITS[-(-self.digits // 3)], "UTC" if self.zone else None)

    def read(self, cells: pa.ChunkedArray) -> pa.ChunkedArray:
        """Read text of this format.

        Raises
        ------
        pyarrow.ArrowInvalid
            When there is no such day or time.
        """
        for _ in range(0 if self.padded else 2):  # a zero in front of the second part, then of the first
            cells = pc.replace_substring_regex(cells, r"^(\d+\D)?(\d\D)", r"\10\2")
        if (self.order, self.mark) != ("ymd", "-"):
            year, month, day = (self.order.index(part) + 1 for part in "ymd")
            pattern = r"^(\d+)\D(\d+)\D(\d+)"
            cells = pc.replace_substring_regex(cells, pattern, rf"\{year}-\{month}-\{day}")
        return cells.cast(self.type)

    def write(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Write dates or times in this format.

        Parameters
        ----------
        values : pyarrow.ChunkedArray
            Dates or timestamps. What the format does not show is cut off.

        Returns
        -------
        pyarrow.ChunkedArray of string

        Examples
        --------
        >>> from datetime import date
        >>> DateFormat("dmy", ".").write(pa.chunked_array([[date(2024, 2, 29)]])).to_pylist()
        ['29.02.2024']
        """
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
        """Return timestamps without a zone, as a clock at the format's offset shows them, fine enough for it."""
        unit = getattr(values.type, "unit", "s")
        unit = _UNITS[max(_UNITS.index(unit if unit in _UNITS else "s"), -(-self.digits // 3))]
        if pa.types.is_timestamp(values.type) and (values.type.tz or self.zone):
            values = values.cast(pa.timestamp(unit, values.type.tz or "UTC")).cast(pa.timestamp(unit, "UTC"))
        values = values.cast(pa.timestamp(unit))
        return pc.add(values, pa.scalar(_offset(self.zone), pa.duration(unit))) if self.zone else values


def _offset(zone: str) -> timedelta:
    if zone == "Z":
        return timedelta()
    hours, minutes = (int(part) for part in zone[1:].split(":"))
    return timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)


def find_date_format(cells: pa.ChunkedArray) -> DateFormat | None:
    """Find the one format that all cells of a column have.

    Parameters
    ----------
    cells : pyarrow.ChunkedArray of string
        The observed cells, at least one.

    Returns
    -------
    DateFormat or None
        None also when days and months cannot be told apart: no part of a date with slashes is above twelve.

    Examples
    --------
    >>> find_date_format(pa.chunked_array([["03/04/2024", "03/14/2024"]])).order
    'mdy'
    """
    return DateEvidence.of(cells).format()


@dataclass(frozen=True)
class DateEvidence:
    """What some cells of a column say of its date format; that of all cells is found by joining that of each lot.

    Parameters
    ----------
    shape : tuple, optional
        Date and time as they are written: order, mark, joint, seconds, zone. None when they are no dates, or differ.
    over : pair of bool
        Whether the first number of a date is above twelve somewhere, and whether the second is.
    short, long : bool
        Whether a day or month below ten stands somewhere without a zero in front, and with one.
    digits : int
        Most digits of a fraction of a second.
    zones : mapping of int
        How often each offset is there.

    Examples
    --------
    >>> lots = [pa.chunked_array([[day]]) for day in ("03/04/2024", "03/14/2024")]
    >>> first, second = (DateEvidence.of(lot) for lot in lots)
    >>> first.format(), first.joined(second).format().order
    (None, 'mdy')
    """

    shape: tuple[str, str, str, bool, bool] | None
    over: tuple[bool, bool] = (False, False)
    short: bool = False
    long: bool = False
    digits: int = 0
    zones: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, cells: pa.ChunkedArray) -> DateEvidence:
        """Look at the observed cells of a column, at least one."""
        shape = _shape(cells[0].as_py())
        if shape is None:
            return cls(None)
        (order, mark), (joint, seconds, zone), pattern = shape
        if not _all(cells, f"^{pattern}$"):
            return cls(None)
        known = order, mark, joint, seconds, zone
        if order == "ymd":
            return cls(known, digits=_digits(cells), zones=_zones(cells) if zone else {})
        over = _any(cells, rf"^{_OVER_TWELVE}/"), _any(cells, rf"^\d+/{_OVER_TWELVE}/")
        return cls(known, over, _any(cells, r"^(?:\d+\D)?\d\D"), _any(cells, r"^(?:\d+\D)?0\d\D"))

    def joined(self, other: DateEvidence) -> DateEvidence:
        """Return what both lots of cells say, those of the other one being later."""
        if self.shape is None or self.shape != other.shape:
            return DateEvidence(None)
        names = dict.fromkeys([*self.zones, *other.zones])
        return DateEvidence(
            self.shape,
            (self.over[0] or other.over[0], self.over[1] or other.over[1]),
            self.short or other.short,
            self.long or other.long,
            max(self.digits, other.digits),
            {name: self.zones.get(name, 0) + other.zones.get(name, 0) for name in names},
        )

    def orders(self) -> tuple[str, ...]:
        """Return the orders of year, month and day that the cells may have."""
        if self.shape is None:
            return ()
        return ("dmy", "mdy") if self.shape[:2] == ("dmy", "/") else self.shape[:1]

    def format(self, order: str | None = None) -> DateFormat | None:
        """Return the one format that all cells have; an order that is given is taken for known."""
        if self.shape is None:
            return None
        known, mark, joint, seconds, _ = self.shape
        if known == "ymd":
            zone = max(self.zones, key=lambda name: self.zones[name]) if self.zones else ""
            return DateFormat(known, mark, True, joint, seconds, self.digits, zone)
        if mark == "/" and order is None:
            if self.over[0] == self.over[1]:
                return None
            known = "dmy" if self.over[0] else "mdy"
        return None if self.short and self.long else DateFormat(order or known, mark, not self.short, joint, seconds)


def _shape(cell: str) -> tuple[tuple[str, str], tuple[str, bool, bool], str] | None:
    """Return the date, the time and the pattern that one cell fits."""
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
    """Return how often each offset is there, in the order in which they come."""
    zones = pc.struct_field(pc.extract_regex(cells, rf"(?P<zone>{_ZONE})$"), "zone")
    return {str(entry["values"]): int(entry["counts"]) for entry in pc.value_counts(zones).to_pylist()}


def _all(cells: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(cells, pattern)).as_py())


def _any(cells: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(cells, pattern)).as_py())
