"""Comparison of new data with the table of the fit."""

from __future__ import annotations

__all__ = ["CheckReport", "Finding", "check_schema", "check_table"]

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.columns.constraints import Constraints
from mcflow.columns.frames import Frame, codes_of, observed_cells, read_frame
from mcflow.columns.planning import find_column, value_code
from mcflow.columns.schema import CATEGORY_KINDS, Column, TableSchema
from mcflow.columns.schema_file import SchemaFile
from mcflow.errors import DataError, ParameterError
from mcflow.typing import FloatArray

MAX_RATE_INCREASE = 0.1  # increase of a column's missing rate over the fit above which it is reported

#: Words of the messages, by what a table is compared with.
_WORDS = {
    "type": {"fit": "at fit it had", "schema": "the schema has"},
    "new": {"fit": "the fit did not see", "schema": "the schema does not list"},
    "range": {"fit": "range of the fit", "schema": "bounds of the schema"},
    "rate": {"fit": "at fit in", "schema": "in the schema"},
}


@dataclass(frozen=True)
class Finding:
    """One difference between new data and the table of the fit."""

    column: Any  #: Name of the column; None for the table as a whole.
    #: "missing column", "extra column", "order", "type", "range", "new category", "missing cells" or "constraint".
    what: str
    message: str  #: Description of the difference.
    breaks: bool = False  #: Whether `transform` would reject the table because of it.


@dataclass(frozen=True)
class CheckReport:
    """All differences between new data and the table of the fit; true if `transform` would accept the data."""

    findings: list[Finding] = field(default_factory=list)  #: The differences, in the order of the columns.
    by: str = "fit"  #: What the data is compared with: "fit" or "schema".

    def __bool__(self) -> bool:
        return self.ok

    @property
    def ok(self) -> bool:
        """Tell whether `transform` would accept the table."""
        return not any(finding.breaks for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""
        findings = [asdict(finding) for finding in self.findings]
        for plain in findings:
            plain["column"] = plain["column"] if isinstance(plain["column"], str | int | None) else str(plain["column"])
        return {"ok": self.ok, "findings": findings}

    def __str__(self) -> str:
        if not self.findings:
            return f"The table matches {'the schema' if self.by == 'schema' else 'the table of the fit'}."
        return "\n".join(("- " if not f.breaks else "! ") + f.message for f in self.findings)


def check_table(given: Any, schema: TableSchema, constraints: Constraints, unseen: str = "error") -> CheckReport:
    """Compare a table with the schema and the constraints of a fit."""
    try:
        frame = read_frame(given)
    except (DataError, TypeError) as error:
        return CheckReport([Finding(None, "type", str(error), breaks=True)])
    by_name = frame.named and schema.named
    findings = [*(_names(frame, schema) if by_name else _count(frame, schema))]
    codes: dict[int, FloatArray] = {}
    for position, column in enumerate(schema.columns):
        known = column.name in frame.names if by_name else position < len(frame.names)
        if not known or not column.coded:
            continue
        here = frame.names.index(column.name) if by_name else position
        try:
            codes[position] = frame.column_codes(here, column, "missing")
        except DataError as error:
            findings.append(Finding(column.name, "type", str(error), breaks=True))
        else:
            before, array = column.missing / schema.n_rows, observed_cells(frame.arrow(here), column)
            findings += _cells(array, column, codes[position], before, unseen=unseen)
    cells = {constraints.names[k]: codes[p] for k, p in enumerate(schema.coded) if p in codes}
    for rule, count in constraints.broken_rules(cells).items():
        message = f"{count:,} rows have observed cells that violate the rule '{rule}'."
        findings.append(Finding(None, "constraint", message))
    return CheckReport(findings)


def check_schema(given: Any, schema: SchemaFile) -> CheckReport:
    """Compare a table with a schema file; `breaks` marks what a fit with the schema would reject."""
    frame = read_frame(given)
    names = [str(name) for name in frame.names]
    findings = []
    for name, fields in schema.columns.items():
        if name not in names:
            findings.append(Finding(name, "missing column", f"Column {name!r} of the schema is missing.", breaks=True))
            continue
        try:
            findings += _by_schema(frame, names.index(name), fields, schema)
        except (DataError, ParameterError) as error:
            findings.append(Finding(name, "type", str(error), breaks=True))
    extra = [name for name in names if name not in schema.columns]
    findings += [Finding(name, "extra column", f"Column {name!r} is not in the schema.") for name in extra]
    return CheckReport(findings, "schema")


def _by_schema(frame: Frame, here: int, fields: dict[str, Any], schema: SchemaFile) -> list[Finding]:
    """Compare one column with its fields in a schema file."""
    name, array = frame.names[here], frame.arrow(here)
    given = schema.settings([name], partly=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        column = find_column(name, array, given["kinds"].get(name), given["roles"].get(name, "fill"))
    if not column.coded:
        return []
    low, high = given["bounds"].get(name, (None, None))
    expected = replace(
        column,
        dtype=fields.get("type", column.dtype),
        low=-np.inf if low is None else value_code(column, low),
        high=np.inf if high is None else value_code(column, high),
    )
    if (column.base or column.kind) in CATEGORY_KINDS and "categories" in fields:
        expected = replace(expected, categories=tuple(fields["categories"]))
    before = fields.get("missing_share", 1.0)
    return list(_cells(array, expected, codes_of(array, expected, "missing"), before, unseen="missing", by="schema"))


def _names(frame: Frame, schema: TableSchema) -> Iterator[Finding]:
    known = [column.name for column in schema.columns]
    for name in known:
        if name not in frame.names:
            yield Finding(name, "missing column", f"Column {name!r} of the fit is missing.", breaks=True)
    for name in frame.names:
        if name not in known:
            yield Finding(name, "extra column", f"Column {name!r} is not a column of the fit.", breaks=True)
    if frame.names != known and sorted(frame.names) == sorted(known):
        yield Finding(None, "order", "The columns are in another order than at fit.", breaks=True)


def _count(frame: Frame, schema: TableSchema) -> Iterator[Finding]:
    here, known = len(frame.names), len(schema.columns)
    if here != known:
        what = "missing column" if here < known else "extra column"
        yield Finding(None, what, f"The table has {here} columns; at fit it had {known}.", breaks=True)


def _cells(
    array: pa.Array, column: Column, codes: FloatArray, before: float, *, unseen: str, by: str = "fit"
) -> Iterator[Finding]:
    """Compare the cells of a column, whose share of missing cells was `before`, with the fit or the schema."""
    name, kind = column.name, column.base or column.kind
    rate = array.null_count / len(array)
    if str(array.type) != column.dtype and rate < 1:
        message = f"Column {name!r} has the type {array.type}; {_WORDS['type'][by]} {column.dtype}."
        yield Finding(name, "type", message)
    yield from _categories(array, name, codes, unseen, by) if kind in CATEGORY_KINDS else _range(column, codes, by)
    if rate > before + MAX_RATE_INCREASE:
        message = f"Column {name!r} is missing in {rate:.0%} of the rows; {_WORDS['rate'][by]} {before:.0%}."
        yield Finding(name, "missing cells", message)


def _categories(array: pa.Array, name: Any, codes: FloatArray, unseen: str, by: str) -> Iterator[Finding]:
    new = pc.and_(array.is_valid(), pa.array(np.isnan(codes)))
    categories = pc.unique(array.filter(new)).to_pylist()
    if categories:
        words = ", ".join(map(repr, categories[:5])) + (" …" if len(categories) > 5 else "")
        message = f"Column {name!r} has categories that {_WORDS['new'][by]}: {words}."
        yield Finding(name, "new category", message, breaks=unseen == "error")


def _range(column: Column, codes: FloatArray, by: str) -> Iterator[Finding]:
    name, infinite = column.name, int(np.isinf(codes).sum())
    outside = int(((codes < column.low) | (codes > column.high)).sum())
    if infinite:
        yield Finding(name, "range", f"Column {name!r} has {infinite:,} infinite values.", breaks=True)
    elif outside:
        message = f"Column {name!r} has {outside:,} values outside the {_WORDS['range'][by]}."
        yield Finding(name, "range", message, breaks=by == "schema")
