"""Columns of text read as numbers, truth values, dates or words, and new cells spelled as the column spells its own."""

from __future__ import annotations

__all__ = [
    "MISSING_MARKS",
    "TRUTH_WORDS",
    "Spelling",
    "decimal_mark",
    "looks_coded",
    "observed",
    "plain_numbers",
    "read_as",
    "read_cells",
    "truth_words",
]

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.dates import DateFormat, find_date_format

#: What stands for a missing cell in a CSV file: pandas' list, and the "?" of many older files.
MISSING_MARKS = frozenset(
    {
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
        *("NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?"),
    }
)

#: How truth values are spelled, true first.
TRUTH_WORDS = (("True", "False"), ("true", "false"), ("TRUE", "FALSE"))

#: Whole numbers below this fit into 64 bits and are written by all their digits.
_WHOLE_BELOW = float(2**63)
#: Cells to try first.
_PROBE = 1000


@dataclass(frozen=True)
class Spelling:
    """How a column writes what is not text.

    Parameters
    ----------
    decimal : str, default="."
        Before the fraction of a number.
    words : tuple of two str, default=("True", "False")
        For truth values.
    date : DateFormat, optional
        For dates and times, ISO's by default.
    """

    decimal: str = "."
    words: tuple[str, str] = TRUTH_WORDS[0]
    date: DateFormat | None = None

    def write(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Write values of any type as cells.

        Parameters
        ----------
        values : pyarrow.ChunkedArray
            Nulls stay nulls.

        Returns
        -------
        pyarrow.ChunkedArray of string
            Whole numbers are without a fraction.

        Examples
        --------
        >>> Spelling(decimal=",").write(pa.chunked_array([[2.0, 2.5]])).to_pylist()
        ['2', '2,5']
        """
        kind = values.type
        if pa.types.is_dictionary(kind):
            return self.write(values.cast(kind.value_type))
        if pa.types.is_boolean(kind):
            return pc.if_else(values, *self.words)
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            texts = _number_texts(values)
            return texts if self.decimal == "." else pc.replace_substring(texts, ".", self.decimal)
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return (self.date or _iso(values)).write(values)
        return _texts(values)


def _number_texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Write numbers with all digits that they need to be read again as they are."""
    if pa.types.is_decimal(values.type):
        return values.cast(pa.string())
    if pa.types.is_float16(values.type):
        values = values.cast(pa.float32())
    texts = values.cast(pa.string())
    whole = pc.and_(pc.equal(values, pc.trunc(values)), pc.less(pc.abs(values), _WHOLE_BELOW))
    if not pc.any(whole).as_py():
        return texts
    integers = pc.if_else(whole, values, pa.scalar(0, values.type)).cast(pa.int64())
    return pc.if_else(whole, integers.cast(pa.string()), texts)


def _iso(values: pa.ChunkedArray) -> DateFormat:
    """Return the format for times that have none: with fractions of a second only when there are some."""
    if pa.types.is_date(values.type):
        return DateFormat()
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[values.type.unit]
    part = pc.any(pc.not_equal(pc.subsecond(values), 0)).as_py()
    return DateFormat(joint=" ", seconds=True, digits=digits if part else 0, zone="Z" if values.type.tz else "")


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return values.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.chunked_array([[None if value is None else str(value) for value in values.to_pylist()]], pa.string())


def observed(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return cells without the white space around them, null where one is missing.

    Examples
    --------
    >>> observed(pa.chunked_array([[" 1", "NA", ""]])).to_pylist()
    ['1', None, None]
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    missing = pc.is_in(trimmed, value_set=pa.array(sorted(MISSING_MARKS)))
    return pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)


def decimal_mark(columns: Sequence[pa.ChunkedArray], separator: str) -> str:
    """Tell whether numbers have a decimal comma.

    Parameters
    ----------
    columns : sequence of pyarrow.ChunkedArray of string
        The observed cells of each column.
    separator : str
        Of the file. Between commas a number cannot have one. Between semicolons a comma is the decimal mark unless more
        columns have points. Elsewhere no column may have points, or commas will be between thousands.

    Returns
    -------
    str
        "." or ",".
    """
    if separator == ",":
        return "."
    commas, points = (sum(_has_fractions(cells, mark) for cells in columns) for mark in ",.")
    return "," if commas and (commas >= points if separator == ";" else not points) else "."


def _has_fractions(cells: pa.ChunkedArray, mark: str) -> bool:
    return _any(pc.match_substring(cells, mark)) and _numbers(cells, mark) is not None


def read_cells(cells: pa.ChunkedArray, decimal: str = ".") -> tuple[pa.ChunkedArray, Spelling]:
    """Give a column of text the type that all its observed cells have.

    Parameters
    ----------
    cells : pyarrow.ChunkedArray of string
        Null where missing.
    decimal : str, default="."
        The decimal mark of its numbers.

    Returns
    -------
    column : pyarrow.ChunkedArray
        int64, float64, bool, date32, timestamp or string.
    spelling : Spelling
        How it is written.

    Examples
    --------
    >>> read_cells(pa.chunked_array([["TRUE", None]]))[0].type
    DataType(bool)
    """
    seen = cells.drop_null()
    if not len(seen):
        return cells, Spelling(decimal)
    words = truth_words(seen)
    if words is not None:
        return pc.equal(cells, words[0]), Spelling(decimal, words)
    date = find_date_format(seen)
    if date is not None:
        try:
            return date.read(cells), Spelling(decimal, date=date)
        except pa.ArrowInvalid:  # no such day
            return cells, Spelling(decimal)
    numbers = _numbers(cells, decimal)
    return cells if numbers is None else numbers, Spelling(decimal)


def read_as(cells: pa.ChunkedArray, kind: pa.DataType, spelling: Spelling) -> pa.ChunkedArray:
    """Read cells with a type that was found before, from these cells and others.

    Parameters
    ----------
    cells : pyarrow.ChunkedArray of string
        Null where missing.
    kind : pyarrow.DataType
        As `read_cells` found it, or a wider one.
    spelling : Spelling
        How the column is written.

    Returns
    -------
    pyarrow.ChunkedArray

    Raises
    ------
    pyarrow.ArrowInvalid
        When a cell cannot be read so.

    Examples
    --------
    >>> read_as(pa.chunked_array([["2", None]]), pa.float64(), Spelling()).to_pylist()
    [2.0, None]
    """
    if cells.null_count == len(cells):
        return pa.chunked_array([pa.nulls(len(cells), kind)])
    if pa.types.is_boolean(kind):
        return pc.equal(cells, spelling.words[0])
    if spelling.date is not None and not pa.types.is_string(kind):
        return spelling.date.read(cells).cast(kind)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _without_nan(plain_numbers(cells, spelling.decimal).cast(kind))
    return cells


def truth_words(seen: pa.ChunkedArray) -> tuple[str, str] | None:
    """Return the words for true and false when all cells, at least one, are such."""
    first = seen[0].as_py()
    words = next((pair for pair in TRUTH_WORDS if first in pair), None)
    if words is None or not pc.all(pc.is_in(seen, value_set=pa.array(words))).as_py():
        return None
    return words


def _numbers(cells: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray | None:
    """Read cells as whole numbers, or else as numbers; None when one of them is neither, or looks like a code."""
    if decimal == "," and _any(pc.match_substring(cells, ".")):
        return None
    cells = plain_numbers(cells, decimal)
    for kind in (pa.int64(), pa.float64()):
        try:
            cells[:_PROBE].cast(kind)  # a cast that fails costs more than one that does not
            numbers = cells.cast(kind)
        except pa.ArrowInvalid:
            continue
        return None if looks_coded(cells) else _without_nan(numbers)
    return None


def plain_numbers(cells: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    """Return cells with a decimal point, and without the plus in front of numbers."""
    if decimal == ",":
        cells = pc.replace_substring(cells, ",", ".")
    if _any(pc.starts_with(cells, "+")):
        cells = pc.replace_substring_regex(cells, r"^\+([\d.])", r"\1")
    return cells


def looks_coded(cells: pa.ChunkedArray) -> bool:
    """Tell whether a number has a zero in front, as codes have, or is in base sixteen."""
    zeros = cells.filter(pc.or_(pc.starts_with(cells, "0"), pc.starts_with(cells, "-0")))
    return _any(pc.match_substring_regex(zeros, r"^-?0[\dxX]"))


def _without_nan(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(numbers.type) or not _any(pc.is_nan(numbers)):
        return numbers
    return pc.if_else(pc.is_nan(numbers), pa.scalar(None, numbers.type), numbers)


def _any(flags: pa.ChunkedArray) -> bool:
    return bool(pc.any(flags).as_py())
