"""How new data differs from the table of the fit."""

from __future__ import annotations

__all__ = ["CheckReport", "Finding", "check_table"]

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.constraints import Constraints
from mcflow.data.frames import Frame, read_frame
from mcflow.data.schema import LEVEL_KINDS, Column, TableSchema
from mcflow.errors import DataError
from mcflow.typing import FloatArray

#: How much larger a column's share of holes may be than at fit before it is told.
MORE_HOLES = 0.1


@dataclass(frozen=True)
class Finding:
    """One difference.

    Parameters
    ----------
    column : object
        Where; None for the table as a whole.
    what : str
        "missing column", "extra column", "order", "type", "range", "new level", "holes" or "constraint".
    message : str
        The difference in words.
    breaks : bool
        Whether `transform` would refuse the table for it.
    """

    column: Any
    what: str
    message: str
    breaks: bool = False


@dataclass(frozen=True)
class CheckReport:
    """All differences; true when there is none that `transform` would refuse.

    Parameters
    ----------
    findings : list of Finding
        In the table's order.
    """

    findings: list[Finding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.ok

    @property
    def ok(self) -> bool:
        """Tell whether `transform` would take the table."""
        return not any(finding.breaks for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain objects, as JSON holds them."""
        plain = [asdict(f) | {"column": _plain(f.column)} for f in self.findings]
        return {"ok": self.ok, "findings": plain}

    def __str__(self) -> str:
        if not self.findings:
            return "The table is like the one of the fit."
        return "\n".join(("- " if not f.breaks else "! ") + f.message for f in self.findings)


def _plain(name: Any) -> str | int | None:
    """Return a column's name as JSON holds it."""
    return name if name is None or isinstance(name, str | int) else str(name)


def check_table(given: Any, schema: TableSchema, constraints: Constraints, unseen: str = "error") -> CheckReport:
    """Compare a table with a schema.

    Parameters
    ----------
    given : array-like or data frame
        New rows.
    schema : TableSchema
        Of the fit.
    constraints : Constraints
        Of the fit.
    unseen : {"error", "missing"}
        What `transform` does with a level that the fit did not see.

    Returns
    -------
    CheckReport
    """
    try:
        frame = read_frame(given)
    except (DataError, TypeError) as error:
        return CheckReport([Finding(None, "type", str(error), breaks=True)])
    by_name = frame.named and schema.named
    findings = [*(_names(frame, schema) if by_name else _count(frame, schema))]
    codes: dict[int, FloatArray] = {}
    for position, column in enumerate(schema.columns):
        place = _place(frame, column, position, by_name)
        if place is None or not column.coded:
            continue
        try:
            codes[position] = frame.column_codes(place, column, "missing")
        except DataError as error:
            findings.append(Finding(column.name, "type", str(error), breaks=True))
        else:
            findings += _cells(frame.arrow(place), column, codes[position], schema, unseen)
    findings += _rules(codes, schema, constraints)
    return CheckReport(findings)


def _place(frame: Frame, column: Column, position: int, by_name: bool) -> int | None:
    """Return where a column of the fit is; by its position when the table or the fit has no names, as `transform`."""
    if by_name:
        return frame.names.index(column.name) if column.name in frame.names else None
    return position if position < len(frame.names) else None


def _names(frame: Frame, schema: TableSchema) -> Iterator[Finding]:
    known = [column.name for column in schema.columns]
    for name in known:
        if name not in frame.names:
            yield Finding(name, "missing column", f"Column {name!r} of the fit is not there.", breaks=True)
    for name in frame.names:
        if name not in known:
            yield Finding(name, "extra column", f"Column {name!r} is new.", breaks=True)
    if frame.names != known and sorted(frame.names) == sorted(known):
        yield Finding(None, "order", "The columns are in another order than at fit.", breaks=True)


def _count(frame: Frame, schema: TableSchema) -> Iterator[Finding]:
    here, known = len(frame.names), len(schema.columns)
    if here != known:
        what = "missing column" if here < known else "extra column"
        yield Finding(None, what, f"The table has {here} columns; at fit it had {known}.", breaks=True)


def _cells(array: pa.Array, column: Column, codes: FloatArray, schema: TableSchema, unseen: str) -> Iterator[Finding]:
    name, kind = column.name, column.base or column.kind
    share, before = array.null_count / len(array), column.missing / schema.n_rows
    if str(array.type) != column.dtype and share < 1:
        yield Finding(name, "type", f"Column {name!r} is of type {array.type}; at fit it was {column.dtype}.")
    yield from _levels(array, name, codes, unseen) if kind in LEVEL_KINDS else _range(column, codes)
    if share > before + MORE_HOLES:
        yield Finding(name, "holes", f"Column {name!r} is missing in {share:.0%} of the rows; at fit in {before:.0%}.")


def _levels(array: pa.Array, name: Any, codes: FloatArray, unseen: str) -> Iterator[Finding]:
    new = pc.and_(array.is_valid(), pa.array(np.isnan(codes)))
    levels = pc.unique(array.filter(new)).to_pylist()
    if levels:
        words = ", ".join(map(repr, levels[:5])) + (" …" if len(levels) > 5 else "")
        message = f"Column {name!r} has levels that the fit did not see: {words}."
        yield Finding(name, "new level", message, breaks=unseen == "error")


def _range(column: Column, codes: FloatArray) -> Iterator[Finding]:
    name, infinite = column.name, int(np.isinf(codes).sum())
    outside = int(((codes < column.low) | (codes > column.high)).sum())
    if infinite:
        yield Finding(name, "range", f"Column {name!r} has {infinite:,} infinite values.", breaks=True)
    elif outside:
        yield Finding(name, "range", f"Column {name!r} has {outside:,} values outside the range of the fit.")


def _rules(codes: dict[int, FloatArray], schema: TableSchema, constraints: Constraints) -> Iterator[Finding]:
    """Look at the rules as they were said and at those that follow from them."""
    cells = {constraints.names[k]: codes[p] for k, p in enumerate(schema.coded) if p in codes}
    for text, count in constraints.broken_rules(cells).items():
        yield Finding(None, "constraint", f"{count:,} rows have observed cells against the rule '{text}'.")
