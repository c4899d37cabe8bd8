"""From a table and its owner's wishes to a schema and the constraints on what is filled in."""

from __future__ import annotations

__all__ = ["Wishes", "plan_table"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.constraints import Constraints
from mcflow.data.frames import Frame
from mcflow.data.kinds import find_column
from mcflow.data.rules import Rule, parse_rules
from mcflow.data.schema import MODEL_KINDS, NUMBER_KINDS, ROLES, Column, TableSchema
from mcflow.data.series import codes_of, type_named
from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.typing import Array, FloatArray

#: Kinds a caller may give: those of the model, and those that leave a column alone.
SAYABLE = (*MODEL_KINDS, "identifier", "text")

#: Days, say, that are listed one by one when a rule compares a column of days with one of seconds.
MANY_STEPS = 100_000

#: Whole floats that lie closer than this are rounded only when something says that they are integers: a rounding costs
#: more of the estimate's accuracy the fewer values there are.
NARROW = 50


@dataclass(frozen=True)
class Wishes:
    """What the owner of a table says about its columns; keys are names, or positions where there are none.

    Parameters
    ----------
    kinds : mapping of str
        A kind for a column.
    roles : mapping of str
        What a column is used for.
    bounds : mapping of pairs
        Lowest and highest value that may be filled in; None is open.
    allowed : mapping of lists
        The only numbers that may be filled in, or "observed" for those that were seen.
    rules : sequence of str
        Comparisons of columns, such as "low <= high".
    whole : bool
        Whether whole numbers are filled with whole numbers in any case.
    """

    kinds: Mapping[Any, str] = field(default_factory=dict)
    roles: Mapping[Any, str] = field(default_factory=dict)
    bounds: Mapping[Any, tuple[Any, Any]] = field(default_factory=dict)
    allowed: Mapping[Any, Any] = field(default_factory=dict)
    rules: Sequence[str] = ()
    whole: bool = False


def plan_table(frame: Frame, wishes: Wishes) -> tuple[TableSchema, Constraints]:
    """Find every column's kind, and what may be filled into it.

    Parameters
    ----------
    frame : Frame
        The table to fit on.
    wishes : Wishes
        What its owner says.

    Returns
    -------
    schema : TableSchema
    constraints : Constraints
        On the codes of the schema's coded columns.

    Raises
    ------
    DataError
        When no column can be learned from, or observed values are against the bounds.
    ParameterError
        When a wish names no column, or is not one.
    """
    _check_wishes(frame, wishes)
    arrays = {p: frame.arrow(p) for p in range(len(frame.names))}
    columns = [
        find_column(name, arrays[p], wishes.kinds.get(name), wishes.roles.get(name, "fill"))
        for p, name in enumerate(frame.names)
    ]
    columns = _as_measured(columns, arrays, wishes)
    names = [_word(column.name) for column in columns]
    rules = parse_rules(wishes.rules, names)
    _check_rules(rules, dict(zip(names, columns, strict=True)))
    finer = _same_steps(columns, rules, names)
    schema = TableSchema(frame.container, frame.named, tuple(finer), frame.n_rows)
    _check_any(schema)
    _check_numbers(schema, wishes)
    steps = [before.step / after.step for before, after in zip(columns, finer, strict=True)]
    return schema, _constraints(schema, wishes, rules, arrays, steps)


def _as_measured(columns: list[Column], arrays: Mapping[int, pa.Array | None], wishes: Wishes) -> list[Column]:
    """Let columns with few whole numbers be filled with what lies between them, in a table of nothing but floats.

    Such a table says nothing of types, and the mean of a 0 and a 1 that nobody can tell apart is not far from either.
    Where any column has another type, floats that are whole are integers with holes.
    """
    if wishes.whole or not all(array is not None and pa.types.is_floating(array.type) for array in arrays.values()):
        return columns
    return [
        replace(column, whole=False)
        if column.kind == "integer" and column.name not in wishes.kinds and column.high - column.low < NARROW
        else column
        for column in columns
    ]


def _word(name: Any) -> str:
    """Return a column's name as rules write it: x0, x1, … where there are no names."""
    return name if isinstance(name, str) else f"x{name}"


def _check_any(schema: TableSchema) -> None:
    if any(column.coded and column.role != "outcome" for column in schema.columns):
        return
    kinds = sorted({column.kind for column in schema.columns})
    raise DataError(
        f"None of the {len(schema.columns)} columns can be filled or learned from (they are: {', '.join(kinds)}), so "
        "there is nothing to learn. Give a table with an observed number, date, boolean or category."
    )


def _check_wishes(frame: Frame, wishes: Wishes) -> None:
    for wish in ("kinds", "roles", "bounds", "allowed"):
        given = getattr(wishes, wish)
        if not isinstance(given, Mapping):
            raise ParameterError(f"{wish} is {given!r}, but has to be a dictionary with names of columns as keys.")
        for name in given:
            if name not in frame.names:
                hint = did_you_mean(name, [str(n) for n in frame.names])
                raise ParameterError(f"{wish} names the column {name!r}, which the table does not have.{hint}")
    for wish, words in (("kinds", SAYABLE), ("roles", ROLES)):
        for name, word in getattr(wishes, wish).items():
            if word not in words:
                hint = did_you_mean(word, words)
                raise ParameterError(f"{wish}[{name!r}] is {word!r}, but has to be one of {', '.join(words)}.{hint}")
    if not isinstance(wishes.rules, Sequence):
        raise ParameterError(f"rules is {wishes.rules!r}, but has to be a list of texts such as ['low <= high'].")


def _check_numbers(schema: TableSchema, wishes: Wishes) -> None:
    """Refuse bounds and lists for columns that are not numbers; a column without a cell or without a use has none."""
    for column in schema.columns:
        kind = column.base or column.kind
        if kind in (*NUMBER_KINDS, "empty") or column.role in ("ignore", "outcome"):
            continue
        if column.name in wishes.bounds:
            raise ParameterError(f"bounds names {column.name!r}, a column of kind {kind}; only numbers have bounds.")
        if column.name in wishes.allowed:
            raise ParameterError(
                f"allowed names {column.name!r}, a column of kind {kind}; only numbers need a list, and a level is "
                "always one that was seen."
            )


def _check_rules(rules: list[Rule], columns: dict[str, Column]) -> None:
    """Refuse rules between cells that cannot be compared."""
    for rule in rules:
        sides = [columns[side] for side in rule.columns]
        for column in sides:
            if column.role in ("ignore", "outcome"):
                raise ParameterError(
                    f"Rule '{rule}' names {column.name!r}, which has the role {column.role!r} and is not read. "
                    "Give it another role or take the rule out."
                )
        if any(column.kind == "empty" for column in sides):
            continue
        measures = [_measure(rule, column) for column in sides] + ["number"] * (len(sides) == 1)
        if len(set(measures)) > 1:
            raise ParameterError(
                f"Rule '{rule}' compares a {measures[0]} with a {measures[1]}. Compare numbers with numbers and times "
                "with times; limits of times go into bounds."
            )


def _measure(rule: Rule, column: Column) -> str:
    """Say what a column's cells measure; only cells that measure the same can be compared."""
    kind = column.base or column.kind
    if kind == "datetime":
        if column.dtype.startswith("duration"):
            return "duration"
        return "time with a time zone" if "tz=" in column.dtype else "time"
    if kind not in NUMBER_KINDS:
        raise ParameterError(
            f"Rule '{rule}' names {column.name!r}, a column of kind {kind}; only numbers and times can be compared."
        )
    return "number"


def _same_steps(columns: list[Column], rules: list[Rule], names: list[str]) -> list[Column]:
    """Give times that rules compare, directly or through others, the same step."""
    columns = list(columns)
    pairs = [[names.index(side) for side in rule.columns] for rule in rules if rule.bound is None]
    for pair in pairs * len(pairs):
        step = min(columns[p].step for p in pair)
        for p in pair:
            columns[p] = _with_step(columns[p], step)
    return columns


def _with_step(column: Column, step: float) -> Column:
    factor = column.step / step
    return replace(column, step=step, low=column.low * factor, high=column.high * factor)


def _constraints(
    schema: TableSchema,
    wishes: Wishes,
    rules: list[Rule],
    arrays: dict[int, pa.Array | None],
    steps: list[float],
) -> Constraints:
    columns = [schema.columns[p] for p in schema.coded]
    names = [_word(column.name) for column in columns]
    low, high = np.array([c.low for c in columns]), np.array([c.high for c in columns])
    allowed: list[FloatArray | None] = [None] * len(columns)
    for k, (column, position) in enumerate(zip(columns, schema.coded, strict=True)):
        if column.name in wishes.bounds:
            low[k], high[k] = _bounds(column, wishes.bounds[column.name])
        if column.name in wishes.allowed:
            options = allowed[k] = _allowed(column, wishes.allowed[column.name], arrays[position])
            if column.name not in wishes.bounds:
                low[k], high[k] = options.min(), options.max()
        elif steps[position] > 1:
            allowed[k] = _multiples(low[k], high[k], steps[position])
    usable = [rule for rule in rules if all(side in names for side in rule.columns)]
    whole = np.array([column.whole for column in columns], dtype=bool)
    return Constraints(names, low, high, whole, allowed, usable)


def _multiples(low: float, high: float, factor: float) -> FloatArray | None:
    """List the codes of whole days, say, in a column of days that shares the step of a finer one; None if many."""
    first, last = np.ceil(low / factor), np.floor(high / factor)
    return np.arange(first, last + 1) * factor if last - first < MANY_STEPS else None


def _bounds(column: Column, given: Any) -> tuple[float, float]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ParameterError(
            f"bounds[{column.name!r}] is {given!r}, but has to be a pair such as (0, 120) or (0, None)."
        )
    low = -np.inf if given[0] is None else _code(column, given[0])
    high = np.inf if given[1] is None else _code(column, given[1])
    if not low < high:
        raise ParameterError(f"bounds[{column.name!r}] is {given!r}, but the first has to be below the second.")
    if column.low < low or column.high > high:
        raise DataError(
            f"Column {column.name!r} has observed values outside bounds {given!r}. Observed cells are never changed: "
            "widen the bounds, or make those cells missing to have them filled."
        )
    return low, high


def _allowed(column: Column, given: Any, array: pa.Array | None) -> FloatArray:
    if isinstance(given, str) and given == "observed" and array is not None:
        codes = codes_of(array, column)
        return np.unique(codes[~np.isnan(codes)])
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray) or not len(given):
        raise ParameterError(f"allowed[{column.name!r}] is {given!r}, but has to be a list of values or 'observed'.")
    codes = np.unique([_code(column, value) for value in given])
    if np.isinf(codes).any():
        raise ParameterError(f"allowed[{column.name!r}] holds an infinite value. List finite ones.")
    return codes


def _code(column: Column, value: Any) -> float:
    """Read one value of a column, a number or a time, as its code."""
    time = (column.base or column.kind) == "datetime"
    try:
        code = _microseconds(value, type_named(column.dtype)) / column.step if time else float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _no_value(column, value) from error
    if np.isnan(code):
        raise _no_value(column, value)
    return code


def _no_value(column: Column, value: Any) -> ParameterError:
    words = "a number"
    if (column.base or column.kind) == "datetime":
        words = "a date or time such as '2020-01-31'" + ("" if "tz=" in column.dtype else " without a time zone")
    if column.dtype.startswith("duration"):
        words = "a timedelta"
    return ParameterError(f"{value!r} is not a value for column {column.name!r} of type {column.dtype}; give {words}.")


def _microseconds(value: Any, kind: pa.DataType) -> float:
    """Count the microseconds of a duration, or from 1970 to a time; NaN for none."""
    if pa.types.is_duration(kind):
        if not isinstance(value, timedelta | np.timedelta64):
            raise TypeError("not a duration")
        count: Array = np.array(value, dtype="timedelta64[us]")
    else:
        if not isinstance(value, str | date | np.datetime64):
            raise TypeError("not a time")
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        count = _in_utc(_read_time(value) if isinstance(value, str) else value, zone)
    return float("nan") if np.isnat(count) else float(count.astype(np.int64))


def _in_utc(time: Any, zone: str | None) -> Array:
    """Return the time that a column of a zone holds; a time that names no zone is one of the column's."""
    if isinstance(time, datetime) and time.tzinfo is not None:
        if zone is None:
            raise ValueError("the column has no time zone")
        time, zone = time.astimezone(UTC).replace(tzinfo=None), None
    plain: Array = np.array(time, dtype="datetime64[us]")
    if zone is None or np.isnat(plain):
        return plain
    local = pa.array(plain[None], pa.timestamp("us"))
    there = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    return np.array(there.cast(pa.int64())[0].as_py(), dtype="datetime64[us]")


def _read_time(text: str) -> Any:
    """Read a time that may have a zone, or one such as 2020-01 that Python does not know."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return np.datetime64(text, "us")
