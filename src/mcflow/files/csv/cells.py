"""Cells of CSV columns: missing cells, and values read from text and written with the spelling of their column."""

from __future__ import annotations

__all__ = ["DateFormat", "Spelling", "UNITS", "any_true", "observed", "plain_numbers", "read_as"]

import contextlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mcflow.columns.numerals import TRUTH_WORDS, NumberFormat, read_truth
from mcflow.columns.schema import without_values, without_words

UNITS = ("s", "ms", "us", "ns")  # units of timestamps, from coarse to fine


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
        if not self.zone:
            return values
        return pc.add(values, pa.scalar(datetime.strptime(self.zone, "%z").utcoffset(), pa.duration(unit)))


@dataclass(frozen=True)
class Spelling:
    """How a column writes values that are not text."""

    number: NumberFormat = field(default_factory=NumberFormat)
    words: tuple[str, str] = TRUTH_WORDS[0]  # true and false
    date: DateFormat | None = None  # format of dates and times, ISO by default

    def write(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Write values of any type as cells."""
        kind = values.type
        if pa.types.is_dictionary(kind):
            return self.write(values.cast(kind.value_type))
        if pa.types.is_boolean(kind):
            return pc.if_else(values, *self.words)
        if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            if self.number == NumberFormat():
                return _number_texts(values)
            return self.number.write(values.cast(pa.float32()) if pa.types.is_float16(kind) else values)
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return (self.date or _iso_format(values)).write(values)
        return _texts(values)


def _number_texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Write numbers with the digits that restore their exact value, and integers without a fraction."""
    if pa.types.is_decimal(values.type):
        return values.cast(pa.string())
    if pa.types.is_float16(values.type):
        values = values.cast(pa.float32())
    texts = values.cast(pa.string())
    whole = pc.and_(pc.equal(values, pc.trunc(values)), pc.less(pc.abs(values), float(2**63)))
    if not any_true(whole):
        return texts
    integers = pc.if_else(whole, values, pa.scalar(0, values.type)).cast(pa.int64())
    return pc.if_else(whole, integers.cast(pa.string()), texts)


def _iso_format(values: pa.ChunkedArray) -> DateFormat:
    """Return the default format, with fractions of a second only if there are any."""
    if pa.types.is_date(values.type):
        return DateFormat()
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[values.type.unit]
    fractions = any_true(pc.not_equal(pc.subsecond(values), 0))
    return DateFormat(joint=" ", seconds=True, digits=digits if fractions else 0, zone="Z" if values.type.tz else "")


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return values.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.chunked_array([[None if value is None else str(value) for value in values.to_pylist()]], pa.string())


def observed(texts: pa.ChunkedArray, missing: tuple[Any, ...] = ()) -> pa.ChunkedArray:
    """Return cells without surrounding white space, null where they are marked as missing or among given values."""
    return without_values(without_words(pc.utf8_trim_whitespace(texts), numeric=False), missing)


def read_as(cells: pa.ChunkedArray, kind: pa.DataType, spelling: Spelling) -> pa.ChunkedArray:
    """Read observed cells with the type and the spelling of their column."""
    if cells.null_count == len(cells):
        return pa.chunked_array([pa.nulls(len(cells), kind)])
    if not pa.types.is_string(kind):
        cells = without_words(cells, numeric=True)
    if pa.types.is_boolean(kind):
        return read_truth(cells)
    if spelling.date is not None and not pa.types.is_string(kind):
        return spelling.date.read(cells).cast(kind)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return cells
    numbers = _numbers(cells, kind, spelling.number)
    if pa.types.is_integer(kind) or not any_true(pc.is_nan(numbers)):
        return numbers
    return pc.if_else(pc.is_nan(numbers), pa.scalar(None, kind), numbers)


def _numbers(cells: pa.ChunkedArray, kind: pa.DataType, form: NumberFormat) -> pa.ChunkedArray:
    """Read numbers, by a plain cast where their format allows it."""
    if form.is_plain:
        with contextlib.suppress(pa.ArrowInvalid):
            return plain_numbers(cells, form.decimal).cast(kind)
    return form.read(cells).cast(kind)


def plain_numbers(cells: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    """Return numbers with a decimal point and without a leading plus sign."""
    if decimal == ",":
        cells = pc.replace_substring(cells, ",", ".")
    if any_true(pc.starts_with(cells, "+")):
        cells = pc.replace_substring_regex(cells, r"^\+([\d.])", r"\1")
    return cells


def any_true(flags: pa.ChunkedArray) -> bool:
    """Return whether a flag is true."""
    return bool(pc.any(flags).as_py())
