"""Schema files: the kind, role, bounds and other settings of every column, in TOML that people can edit."""

from __future__ import annotations

__all__ = ["SchemaFile", "read_schema", "schema_text"]

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from mcflow.columns.inspection import value_range
from mcflow.columns.planning import USER_KINDS
from mcflow.columns.schema import CATEGORY_KINDS, ROLES, Column, TableSchema
from mcflow.errors import DataError, ParameterError, did_you_mean, warn

#: Fields of a column. `type`, `categories` and `missing_share` describe the table and are read by `mcflow check` only.
FIELDS = ("kind", "role", "bounds", "allowed", "missing", "type", "categories", "missing_share")

_TOP_FIELDS = ("rows", "rules", "columns")  # fields of the file
AUTO = "auto"  # kind of a column that is detected again
MAX_LISTED = 200  # maximum number of categories that are listed for a column

_HEADING = """\
# Columns of a table, written by `mcflow schema`. Edit it and pass it with --schema, or as MCFlowImputer(schema=...).
# kind: {kinds} or auto. role: {roles}.
# bounds: lowest and highest fill, inf for none. missing: values that stand for a missing cell.
"""


@dataclass(frozen=True)
class SchemaFile:
    """The content of a schema file."""

    columns: dict[str, dict[str, Any]]  # fields by column
    rules: tuple[str, ...] = ()
    n_rows: int = 0  # rows of the table that it describes
    origin: str = "schema"  # path, for messages

    def settings(self, names: Sequence[Any], *, partly: bool = False) -> dict[str, Any]:
        """Return the arguments of `ColumnSettings` for columns, and warn of others unless the names are `partly`."""
        known = {str(name): name for name in names}
        absent = [name for name in self.columns if name not in known]
        if absent and not partly:
            warn(f"{self.origin} describes columns that the table does not have: {', '.join(map(repr, absent))}.")
        given = {known[name]: fields for name, fields in self.columns.items() if name in known}
        kinds = {name: kind for name, kind in _collect(given, "kind").items() if kind != AUTO}
        bounds = {name: tuple(map(_end, pair)) for name, pair in _collect(given, "bounds").items()}
        found = {"kinds": kinds, "roles": _collect(given, "role"), "bounds": bounds}
        return found | {"allowed": _collect(given, "allowed")} | ({"rules": list(self.rules)} if self.rules else {})

    def missing(self, names: Sequence[Any]) -> dict[Any, tuple[Any, ...]]:
        """Return the values that stand for missing cells by column; a column without the field is not among them."""
        known = {str(name): name for name in names}
        return {known[name]: tuple(v) for name, v in _collect(self.columns, "missing").items() if name in known and v}


def _collect(columns: Mapping[Any, dict[str, Any]], name: str) -> dict[Any, Any]:
    return {column: fields[name] for column, fields in columns.items() if name in fields}


def _end(value: Any) -> Any:
    """Return a bound, None if it is open."""
    return None if value == "" or (isinstance(value, float) and math.isinf(value)) else value


def read_schema(given: str | Path | Mapping[str, Any]) -> SchemaFile:
    """Read a schema from a TOML file, or from a dictionary with the same content."""
    origin, content = "schema", given
    if not isinstance(given, Mapping):
        origin = str(given)
        try:
            content = tomllib.loads(Path(given).read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(f"{origin} is not a schema: {error}. Write one with `mcflow schema`.") from error
        except OSError as error:
            why = error.strerror or error
            raise DataError(f"{origin} cannot be read: {why}. Write a schema with `mcflow schema`.") from error
    assert isinstance(content, Mapping)
    _check_words(origin, content, _TOP_FIELDS)
    columns = content.get("columns")
    if not isinstance(columns, Mapping) or not all(isinstance(fields, Mapping) for fields in columns.values()):
        raise ParameterError(f"{origin} has no columns, such as [columns.age]. Write a schema with `mcflow schema`.")
    rules, n_rows = content.get("rules", []), content.get("rows", 0)
    if not isinstance(rules, list | tuple) or not isinstance(n_rows, int):
        raise ParameterError(f"{origin}: rules has to be a list such as ['low <= high'], and rows a whole number.")
    for name, fields in columns.items():
        _check_column(f"{origin}: columns.{name}", fields)
    plain = {str(name): dict(fields) for name, fields in columns.items()}
    return SchemaFile(plain, tuple(rules), n_rows, origin)


def _check_words(place: str, given: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for name in given:
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            raise ParameterError(f"{place} has the field {name!r}, but may have {', '.join(allowed)}.{hint}")


def _check_column(place: str, fields: Mapping[str, Any]) -> None:
    _check_words(place, fields, FIELDS)
    for name, words in (("kind", (*USER_KINDS, AUTO)), ("role", ROLES)):
        if name in fields and fields[name] not in words:
            hint = did_you_mean(fields[name], words)
            raise ParameterError(f"{place}.{name} is {fields[name]!r}, but has to be one of {', '.join(words)}.{hint}")
    pair = fields.get("bounds", (0, 1))
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise ParameterError(f"{place}.bounds is {pair!r}, but has to be a pair such as [0, 120] or [0, inf].")
    for name in ("missing", "categories"):
        if not isinstance(fields.get(name, []), list | tuple):
            raise ParameterError(f"{place}.{name} is {fields[name]!r}, but has to be a list such as [-999].")


def schema_text(schema: TableSchema) -> str:
    """Return the schema of a table, such as `schema_` of a fitted imputer, as the TOML of a schema file."""
    parts = [_HEADING.format(kinds=", ".join(USER_KINDS), roles=", ".join(ROLES)) + f"rows = {schema.n_rows}\n"]
    for column in schema.columns:
        fields = _fields(column, schema.n_rows)
        lines = [f"{name} = {_toml(fields[name])}" for name in FIELDS if name in fields]
        name = str(column.name)
        key = name if re.fullmatch("[A-Za-z0-9_-]+", name) else _toml(name)
        parts.append("\n".join([f"[columns.{key}]", *lines, ""]))
    return "\n".join(parts)


def _fields(column: Column, n_rows: int) -> dict[str, Any]:
    kind = column.base or column.kind
    if kind == "integer" and not column.whole:
        kind = "continuous"  # it is filled with fractions
    fields: dict[str, Any] = {"kind": kind if kind in USER_KINDS else AUTO, "role": column.role, "type": column.dtype}
    is_exact = column.step >= 1 and column.dtype.startswith(("date", "timestamp"))  # ISO times have microseconds
    if kind in CATEGORY_KINDS and column.coded:
        fields |= {"categories": list(column.categories)} if len(column.categories) <= MAX_LISTED else {}
    elif column.coded and column.kind != "constant" and (column.kind != "datetime" or is_exact):
        fields["bounds"] = [end.isoformat() if isinstance(end, date) else end for end in value_range(column)]
    share = round(column.missing / max(n_rows, 1), 4)
    return fields | {"missing": list(column.missing_codes), "missing_share": share}


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return ("false", "true")[value] if isinstance(value, bool) else repr(value)
