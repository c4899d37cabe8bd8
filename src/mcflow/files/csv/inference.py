"""Inference of column types and spellings from the cells of a CSV file, piece by piece."""

from __future__ import annotations

__all__ = ["ColumnEvidence", "infer_decimal", "wider_type"]


from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from mcflow.columns.numerals import NumberFormat, NumberShapes
from mcflow.columns.schema import without_words
from mcflow.columns.truth import read_truth, truth_words
from mcflow.files.csv.cells import Spelling, any_true, plain_numbers
from mcflow.files.csv.dates import UNITS, DateEvidence
from mcflow.files.csv.dialect import always_quoted
from mcflow.typing import BoolArray

#: Cells that are cast before all others, as a cast that fails late is expensive.
_PROBE = 1000


class _Numbers(NamedTuple):
    """Whether cells are numbers with a given decimal mark."""

    whole: bool = True  # whether all cells are integers
    valid: bool = True  # whether all cells are numbers, and none looks like a code
    marked: bool = False  # whether a cell contains the decimal mark

    def joined(self, other: _Numbers) -> _Numbers:
        return _Numbers(self.whole and other.whole, self.valid and other.valid, self.marked or other.marked)


class ColumnEvidence(NamedTuple):
    """What some cells of a column show about its type and spelling; evidence of several pieces can be joined.

    Examples
    --------
    >>> import numpy as np
    >>> cells = [pa.chunked_array([[cell]]) for cell in ("1", "2.5")]
    >>> first, second = (ColumnEvidence.of(piece, np.array([False]), ",") for piece in cells)
    >>> str(first.infer(".")[0]), str(first.joined(second).infer(".")[0])
    ('int64', 'double')
    """

    seen: bool = False  # whether there is an observed cell
    truth: Mapping[str, int] | None = None  # counts of words for true and false, if all cells are such words
    dates: DateEvidence = DateEvidence()
    points: _Numbers = _Numbers()  # as numbers with a decimal point
    commas: _Numbers = _Numbers()  # as numbers with a decimal comma
    quoted: bool | None = None  # whether observed cells are always quoted; None if unknown
    shapes: NumberShapes = NumberShapes({})

    @classmethod
    def of(cls, cells: pa.ChunkedArray, quoted: BoolArray, separator: str) -> ColumnEvidence:
        """Collect evidence from cells.

        Shapes: `cells`, `quoted` (n_cells,).
        """
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
        truth, dates = _truth_counts(seen), DateEvidence.of(seen)
        if dates.shape is not None:
            none = _Numbers(False, False)
            return cls(True, None, dates, none, none, shapes=NumberShapes({"": len(seen)}))
        points = _numbers(seen, ".")
        commas = points if separator == "," else _with_commas(seen, points)
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
            _joined_truth(self.truth, other.truth),
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


def _truth_counts(seen: pa.ChunkedArray) -> dict[str, int] | None:
    """Count the words for true and false if all cells are such words."""
    if read_truth(seen[:_PROBE]).null_count or read_truth(seen).null_count:
        return None
    return {entry["values"]: entry["counts"] for entry in pc.value_counts(seen).to_pylist()}


def _joined_truth(first: Mapping[str, int] | None, second: Mapping[str, int] | None) -> dict[str, int] | None:
    return None if first is None or second is None else dict(Counter(first) + Counter(second))


def _numbers(seen: pa.ChunkedArray, decimal: str) -> _Numbers:
    marked = any_true(pc.match_substring(seen, decimal))
    cells = plain_numbers(seen, decimal)
    for kind in (pa.float64(),) if marked else (pa.int64(), pa.float64()):
        try:
            cells[:_PROBE].cast(kind)
            cells.cast(kind)
        except pa.ArrowInvalid:
            continue
        return _Numbers(kind == pa.int64(), not _looks_coded(cells), marked)
    return _Numbers(False, False, marked)


def _with_commas(seen: pa.ChunkedArray, points: _Numbers) -> _Numbers:
    """Collect evidence for numbers with a decimal comma; it equals `points` when cells contain neither mark."""
    marked = any_true(pc.match_substring(seen, ","))
    if points.marked:
        return _Numbers(False, False, marked)
    return _numbers(seen, ",") if marked else points


def _looks_coded(cells: pa.ChunkedArray) -> bool:
    """Return whether a number has a leading zero, as codes have, or is hexadecimal."""
    zeros = cells.filter(pc.or_(pc.starts_with(cells, "0"), pc.starts_with(cells, "-0")))
    return any_true(pc.match_substring_regex(zeros, r"^-?0[\dxX]"))


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
