"""Derive a table's schema, with detected kinds of columns, and the constraints on filled cells."""

from __future__ import annotations

__all__ = [
    "ColumnSettings",
    "MAX_CATEGORIES",
    "USER_KINDS",
    "column_settings",
    "find_column",
    "find_columns",
    "plan_table",
    "suspects_of",
    "value_code",
]

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.columns.constraints import Constraints, Rule, parse_rules
from mcflow.columns.frames import Frame, cells_of, codes_of, is_text, is_time, observed_cells, type_named, whole_counts
from mcflow.columns.numerals import MOSTLY_NUMBERS, TRUTH_WORDS, NumberFormat, NumberShapes, decimals_of, truth_words
from mcflow.columns.schema import (
    CATEGORY_KINDS,
    MODEL_KINDS,
    NUMBER_KINDS,
    ROLES,
    Column,
    MissingValues,
    Suspect,
    TableSchema,
    suspected_codes,
    warn_of_suspects,
    warn_of_words,
    without_values,
    without_words,
)
from mcflow.errors import DataError, ParameterError, did_you_mean, warn
from mcflow.typing import Array, FloatArray

USER_KINDS = (*MODEL_KINDS, "identifier", "text")  # kinds that users may set; the last two exclude a column
MAX_LISTED_CODES = 100_000  # maximum number of codes that are listed when a rule compares times of different steps
NARROW_RANGE = 50  # range below which whole floats are not rounded, as rounding costs more accuracy there
SAMPLE = 1_000  # cells whose decimals are counted before those of all cells
MAX_CATEGORIES = 1000  # maximum number of categories of a column
FEW_CELLS = 20  # minimum number of cells for detecting identifiers by distinct values

#: Ratios of distinct texts to cells between which the probability that two cells agree decides whether they are free
#: text; it does not change with the number of rows, so that folds of a table agree.
AMBIGUOUS_RATIOS = (0.4, 0.6)
#: Expected number of repeated values from which distinct whole numbers are identifiers, not distinct by chance.
MIN_EXPECTED_REPEATS = 10.0
#: Parts of names that mark a column of distinct whole numbers as an identifier.
IDENTIFIER_NAMES = frozenset({"id", "ids", "uid", "uuid", "guid", "key", "acct", "account", "ssn", "mrn", "serial"})
MAX_SPELLINGS = 20  # maximum number of spellings of true and false in a column
PROBE = 1_000  # cells of a column of text that are tried as numbers before all others

#: Resolutions of dates and times that are detected, in nanoseconds, coarsest first.
STEPS = (86_400_000_000_000, 3_600_000_000_000, 60_000_000_000, 1_000_000_000, 1_000_000, 1_000, 1)


@dataclass(frozen=True)
class ColumnSettings:
    """User settings for the columns of a table; keys are column names, or positions when there are none."""

    kinds: Mapping[Any, str] = field(default_factory=dict)  # kinds, in place of the detected ones
    roles: Mapping[Any, str] = field(default_factory=dict)  # roles; see `Column`
    bounds: Mapping[Any, tuple[Any, Any]] = field(default_factory=dict)  # lowest and highest fill, None for no bound
    allowed: Mapping[Any, Any] = field(default_factory=dict)  # allowed fills, or "observed" for the observed values
    rules: Sequence[str] = ()  # comparisons of columns, such as "low <= high"
    whole: bool = False  # whether whole numbers are always filled with whole numbers
    missing: MissingValues = field(default_factory=MissingValues)  # values that are missing besides null
    decimals: str | None = None  # "observed" for fills with as many decimals as the observed cells


def column_settings(
    frame: Frame, schema: str | Path | Mapping[str, Any] | None, *, whole: bool = False, **given: Any
) -> ColumnSettings:
    """Return the settings of a table: those of a schema, replaced by other arguments of `ColumnSettings`."""
    given = {name: value for name, value in given.items() if value is not None}
    missing = MissingValues.of(given.pop("missing_values", None))
    if schema is not None:
        from mcflow.columns.schema_file import read_schema  # imported here because it imports this module

        file = read_schema(schema)
        missing = missing.with_columns(file.missing(frame.names))
        for name, found in file.settings(frame.names).items():
            own = given.get(name, type(found)())
            if isinstance(found, list):
                given[name] = [*found, *own]
            elif isinstance(own, Mapping):  # the planning words the error of another type
                given[name] = {**found, **own}
    return ColumnSettings(**given, whole=whole, missing=missing)


def plan_table(frame: Frame, settings: ColumnSettings) -> tuple[TableSchema, Constraints]:
    """Return the schema of a table and the constraints on its filled cells."""
    columns, arrays = find_columns(frame, settings)
    names = [_word(column.name) for column in columns]
    rules = parse_rules(settings.rules, names)
    _check_rules(rules, dict(zip(names, columns, strict=True)))
    finer = _same_steps(columns, rules, names)
    schema = TableSchema(frame.container, frame.named, tuple(finer), frame.n_rows)
    if not any(column.coded and column.role != "outcome" for column in schema.columns):
        kinds = ", ".join(sorted({column.kind for column in schema.columns}))
        raise DataError(
            f"None of the {len(columns)} columns can be filled or learned from (their kinds: {kinds}), so there is "
            "nothing to learn. Give a table with an observed number, date, boolean or category."
        )
    _check_numbers(schema, settings)
    steps = [before.step / after.step for before, after in zip(columns, finer, strict=True)]
    return schema, _constraints(schema, settings, rules, arrays, steps)


def find_columns(frame: Frame, settings: ColumnSettings) -> tuple[list[Column], dict[int, pa.Array | None]]:
    """Return the columns of a table with their kinds and roles, and their cells by position."""
    _check_settings(frame, settings)
    arrays = {p: frame.arrow(p) for p in range(len(frame.names))}
    columns = [_column(name, arrays[p], settings) for p, name in enumerate(frame.names)]
    columns = _allow_fractions(columns, arrays, settings)
    return [_with_decimals(column, arrays[p], settings) for p, column in enumerate(columns)], arrays


def _column(name: Any, array: pa.Array | None, settings: ColumnSettings) -> Column:
    """Describe a column, and warn of values that may stand for missing cells, or take them as missing."""
    kind, role = settings.kinds.get(name), settings.roles.get(name, "fill")
    codes = settings.missing.of_column(name)
    column = find_column(name, array, kind, role, codes)
    suspects = [] if array is None or name in settings.missing.by_column else suspects_of(array, column)
    if suspects and settings.missing.auto:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were issued above
            return find_column(name, array, kind, role, (*codes, *(suspect.value for suspect in suspects)))
    if suspects:
        warn_of_suspects(name, suspects)
    return column


def suspects_of(array: pa.Array, column: Column) -> list[Suspect]:
    """Return the values of a column that may stand for missing cells."""
    observed = observed_cells(array, column)
    if column.kind == "category" and is_text(array.type):
        return suspected_codes(observed)
    if column.kind not in ("integer", "continuous"):
        return []
    return suspected_codes(observed if column.format is None else pa.array(codes_of(array, column), from_pandas=True))


def _with_decimals(column: Column, array: pa.Array | None, settings: ColumnSettings) -> Column:
    """Add the number of decimals of the fills of a continuous column; numbers in text always have the observed one."""
    if column.kind != "continuous" or array is None or (settings.decimals is None and column.format is None):
        return column
    codes = codes_of(array, column)
    decimals = None if decimals_of(codes[:SAMPLE]) is None else decimals_of(codes)
    if decimals is not None and column.format is not None:
        decimals = max(decimals, column.format.decimals or 0)
    return replace(column, decimals=decimals)


def _allow_fractions(columns: list[Column], arrays: dict[int, Any], settings: ColumnSettings) -> list[Column]:
    """Allow fractional fills in detected integer columns with a narrow range if no column shows evidence of types."""
    floats = all(array is not None and pa.types.is_floating(array.type) for array in arrays.values())
    if settings.whole or settings.decimals or not floats:
        return columns
    detected = [column.kind == "integer" and column.name not in settings.kinds for column in columns]
    narrow = [column.high - column.low < NARROW_RANGE for column in columns]
    return [replace(c, whole=c.whole and not (d and n)) for c, d, n in zip(columns, detected, narrow, strict=True)]


def _word(name: Any) -> str:
    """Return the name of a column in rules: x0, x1, … when columns have no names."""
    return name if isinstance(name, str) else f"x{name}"


def _check_settings(frame: Frame, settings: ColumnSettings) -> None:
    for setting in ("kinds", "roles", "bounds", "allowed"):
        given = getattr(settings, setting)
        if not isinstance(given, Mapping):
            raise ParameterError(f"{setting} is {given!r}, but has to be a dictionary with column names as keys.")
        for name in given:
            if name not in frame.names:
                hint = did_you_mean(name, [str(n) for n in frame.names])
                raise ParameterError(f"{setting} names the column {name!r}, which the table does not have.{hint}")
    for setting, words in (("kinds", USER_KINDS), ("roles", ROLES)):
        for name, word in getattr(settings, setting).items():
            if word not in words:
                hint = did_you_mean(word, words)
                raise ParameterError(f"{setting}[{name!r}] is {word!r}, but has to be one of {', '.join(words)}.{hint}")
    settings.missing.check(frame.names)
    if not isinstance(settings.rules, Sequence):
        raise ParameterError(f"rules is {settings.rules!r}, but has to be a list of strings such as ['low <= high'].")


def _check_numbers(schema: TableSchema, settings: ColumnSettings) -> None:
    """Raise an error for bounds or allowed values of a categorical column that is in use."""
    for column in schema.columns:
        kind = column.base or column.kind
        if kind in (*NUMBER_KINDS, "empty") or column.role in ("ignore", "outcome"):
            continue
        words = f"names {column.name!r}, a column of kind {kind}, but only numbers and times"
        if column.name in settings.bounds:
            raise ParameterError(f"bounds {words} have bounds.")
        if column.name in settings.allowed:
            raise ParameterError(f"allowed {words} need a list: categories are always filled with observed ones.")


def _check_rules(rules: list[Rule], columns: dict[str, Column]) -> None:
    """Raise an error for rules between columns that cannot be compared."""
    for rule in rules:
        sides = [columns[side] for side in rule.columns]
        for column in sides:
            if column.role in ("ignore", "outcome"):
                raise ParameterError(
                    f"Rule '{rule}' names {column.name!r}, which has the role {column.role!r} and is not used. "
                    "Give it another role or remove the rule."
                )
        if any(column.kind == "empty" for column in sides):
            continue
        quantities = [_quantity(rule, column) for column in sides] + ["number"] * (len(sides) == 1)
        if len(set(quantities)) > 1:
            raise ParameterError(
                f"Rule '{rule}' compares a {quantities[0]} with a {quantities[1]}. Compare numbers with numbers "
                "and times with times; limit times by bounds."
            )


def _quantity(rule: Rule, column: Column) -> str:
    """Return the name of the quantity in a column; only columns of the same quantity can be compared."""
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
    """Give time columns that rules compare, directly or through other columns, the same step."""
    columns = list(columns)
    pairs = [[names.index(side) for side in rule.columns] for rule in rules if rule.bound is None]
    for pair in pairs * len(pairs):
        step = min(columns[p].step for p in pair)
        for p in pair:
            factor = columns[p].step / step
            low, high = columns[p].low * factor, columns[p].high * factor
            columns[p] = replace(columns[p], step=step, low=low, high=high)
    return columns


def _constraints(
    schema: TableSchema, settings: ColumnSettings, rules: list[Rule], arrays: dict[int, Any], steps: list[float]
) -> Constraints:
    columns = [schema.columns[p] for p in schema.coded]
    names = [_word(column.name) for column in columns]
    low, high = np.array([c.low for c in columns]), np.array([c.high for c in columns])
    allowed: list[FloatArray | None] = [None] * len(columns)
    for k, (column, position) in enumerate(zip(columns, schema.coded, strict=True)):
        if column.name in settings.bounds:
            low[k], high[k] = _bounds(column, settings.bounds[column.name])
        if column.name in settings.allowed:
            options = allowed[k] = _allowed(column, settings.allowed[column.name], arrays[position])
            if column.name not in settings.bounds:
                low[k], high[k] = options.min(), options.max()
        elif steps[position] > 1:
            first, last = np.ceil(low[k] / steps[position]), np.floor(high[k] / steps[position])
            if last - first < MAX_LISTED_CODES:  # multiples of the step, such as whole days in seconds
                allowed[k] = np.arange(first, last + 1) * steps[position]
    usable = [rule for rule in rules if all(side in names for side in rule.columns)]
    whole = np.array([column.whole for column in columns], dtype=bool)
    return Constraints(names, low, high, whole, allowed, usable, [column.decimals for column in columns])


def _bounds(column: Column, given: Any) -> tuple[float, float]:
    words = f"bounds[{column.name!r}] is {given!r}, but"
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ParameterError(f"{words} has to be a pair such as (0, 120) or (0, None).")
    low = -np.inf if given[0] is None else value_code(column, given[0])
    high = np.inf if given[1] is None else value_code(column, given[1])
    if not low < high:
        raise ParameterError(f"{words} the lower bound has to be below the upper one.")
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
    codes = np.unique([value_code(column, value) for value in given])
    if np.isinf(codes).any():
        raise ParameterError(f"allowed[{column.name!r}] holds an infinite value. List finite ones.")
    return codes


def value_code(column: Column, value: Any) -> float:
    """Return the code of a number or time given for a column."""
    time = (column.base or column.kind) == "datetime"
    try:
        code = _microseconds(value, type_named(column.dtype)) / column.step if time else float(value)
        if np.isnan(code):
            raise ValueError("missing")
    except (TypeError, ValueError, OverflowError) as error:
        zone = "" if "tz=" in column.dtype else " without a time zone"
        expected = f"a date or time such as '2020-01-31'{zone}" if time else "a number"
        expected = "a timedelta" if column.dtype.startswith("duration") else expected
        raise ParameterError(
            f"{value!r} is not a value for column {column.name!r} of type {column.dtype}; give {expected}."
        ) from error
    return code


def _microseconds(value: Any, kind: pa.DataType) -> float:
    """Return the microseconds of a duration, or since 1970 of a time; NaN for NaT."""
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
    """Convert a time to UTC; a time without a zone is in the zone of the column."""
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
    """Parse a time, including formats such as 2020-01 that only numpy reads."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return np.datetime64(text, "us")


def find_column(
    name: Any, array: pa.Array | None, kind: str | None, role: str, missing_codes: tuple[Any, ...] = ()
) -> Column:
    """Describe a column, with its kind detected unless `kind` is given; values in `missing_codes` are missing."""
    if array is None or role in ("ignore", "outcome"):
        dtype = "mixed" if array is None else str(array.type)
        missing = 0 if array is None else without_values(array, missing_codes).null_count
        return Column(name, dtype, "other", role, missing, missing_codes=missing_codes)
    form = _number_format(name, without_values(array, missing_codes), kind) if is_text(array.type) else None
    truth = None if form is not None else _truth_words(array, kind)
    base: dict[str, Any] = {"name": name, "dtype": str(array.type), "role": role, "format": form}
    base["missing_codes"] = missing_codes
    array = without_values(array, missing_codes, form)
    if is_text(array.type):
        words = array
        array = without_words(array, numeric=form is not None or truth is not None)
        warn_of_words(name, words.filter(pc.and_(words.is_valid(), array.is_null())))
    base["missing"] = array.null_count
    if array.null_count == len(array):
        return Column(kind="empty", **base)
    numbers = array if form is None else form.read(pc.utf8_trim_whitespace(array))
    found = kind or ("boolean" if truth else _found_kind(name, numbers))
    if found not in MODEL_KINDS:
        return Column(kind=found, **base)
    if truth is not None:
        column = Column(kind="boolean", categories=truth[::-1], whole=True, **base)
    elif found in CATEGORY_KINDS:
        column = _with_categories(array, found, base)
    else:
        column = _with_step(array, found, base)
    try:
        codes = codes_of(array, column)
    except DataError as error:
        raise DataError(
            f"Column {name!r} has the type {array.type}, which cannot be read as {kind or column.kind}. "
            "Give it another kind, or convert it."
        ) from error
    column = replace(column, low=float(np.nanmin(codes)), high=float(np.nanmax(codes)))
    if column.low == column.high:
        column = replace(column, kind="constant", base=column.kind)
    return _with_ends(column, array)


def _truth_words(array: pa.Array, kind: str | None) -> tuple[str, str] | None:
    """Return the words for true and false of a column of text in which their spelling varies."""
    if not is_text(array.type) or kind not in (None, "boolean"):
        return None
    words = pc.value_counts(without_words(array, numeric=True).drop_null())
    if not 0 < len(words) <= MAX_SPELLINGS:
        return None
    found = truth_words({entry["values"].strip(): entry["counts"] for entry in words.to_pylist()})
    return None if found in TRUTH_WORDS and len(words) <= 2 else found  # one spelling is a category of two


def _number_format(name: Any, array: pa.Array, kind: str | None) -> NumberFormat | None:
    """Return how numbers are written in a column of text, or None if it is no column of numbers."""
    if kind not in (None, "continuous", "integer"):
        return None
    observed = array.drop_null()
    cells = pc.utf8_trim_whitespace(without_words(array, numeric=True).drop_null())
    if not len(cells) or (kind is None and NumberShapes.of(cells[:PROBE]).share < MOSTLY_NUMBERS):
        return None
    shapes = NumberShapes.of(cells)
    form = shapes.format()
    if form is None:
        if pc.count_distinct(cells).as_py() > FEW_CELLS:  # few texts, such as 1 to 6 and "7+", are categories
            shapes.warn_of_others(name)
    elif kind is None and form == NumberFormat(decimals=0) and len(cells) == len(observed):
        return None  # digits that the caller keeps as text are codes
    else:
        shapes.warn_of_odd(name, form)
    return form


def _with_ends(column: Column, array: pa.Array) -> Column:
    """Store the exact minimum and maximum of integers and times in `categories` if float64 cannot represent them."""
    base = column.base or column.kind
    if base != "datetime" and not (base == "integer" and pa.types.is_integer(array.type)):
        return column
    counts, unit = whole_counts(array.drop_null())
    held, _ = whole_counts(cells_of(np.array([column.low, column.high]), column, array.type))
    ends = [int(counts.min()), int(counts.max())]
    return column if held.tolist() == ends else replace(column, categories=tuple(end * unit for end in ends))


def _with_categories(array: pa.Array, kind: str, base: dict[str, Any]) -> Column:
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    # Categories are compared, sorted and written to a model file.
    tests = (is_text, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
    if not any(test(plain.type) for test in tests):
        raise DataError(
            f"Column {base['name']!r} has the type {plain.type}, whose values cannot be the categories of a "
            f"{kind} column. Convert it to text or whole numbers first."
        )
    categories = pc.unique(plain.drop_null()).to_pylist()
    if kind == "boolean" and len(categories) > 2:
        raise DataError(
            f"Column {base['name']!r} has {len(categories):,} categories, but a boolean has two. Use 'category'."
        )
    known = array.dictionary.to_pylist() if pa.types.is_dictionary(array.type) else sorted(categories)
    order = {category: code for code, category in enumerate(known)}
    categories.sort(key=order.__getitem__)
    if len(categories) > MAX_CATEGORIES:
        raise DataError(
            f"Column {base['name']!r} has {len(categories):,} categories, but at most {MAX_CATEGORIES:,} are allowed. "
            "Leave it out with roles={...: 'ignore'}, or join its rare categories."
        )
    return Column(kind=kind, categories=tuple(categories), whole=True, **base)


def _with_step(array: pa.Array, kind: str, base: dict[str, Any]) -> Column:
    plain = Column(kind=kind, whole=kind != "continuous", **base)
    if kind != "datetime" or not is_time(array.type):
        return plain
    counts, unit = whole_counts(array.drop_null())
    zoned = pa.types.is_timestamp(array.type) and array.type.tz is not None
    steps = STEPS[1:] if zoned else STEPS
    step = next(s for s in steps if s <= unit or (np.mod(counts, s // unit) == 0).all())
    return replace(plain, step=step / 1_000)


def _found_kind(name: Any, array: pa.Array) -> str:
    kind = array.type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _number_kind(name, array)
    if is_time(kind):
        return "datetime"
    if pa.types.is_dictionary(kind) and (is_text(kind.value_type) or pa.types.is_integer(kind.value_type)):
        return "ordered" if kind.ordered else "category"
    return _text_kind(name, array) if is_text(kind) else "other"


def _number_kind(name: Any, array: pa.Array) -> str:
    values = array.drop_null().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    finite = values[np.isfinite(values)]
    if not (len(finite) and (np.floor(finite) == finite).all()):
        return "continuous"
    # Columns without names are features that the caller has chosen, so none of them is an identifier.
    if isinstance(name, str) and array.null_count == 0 and len(finite) > FEW_CELLS and _identifies(name, finite):
        warn(
            f"Column {name!r} has a different whole number in every row and looks like an identifier, so it is not "
            f"used. Set kinds={{{name!r}: 'integer'}} to use it."
        )
        return "identifier"
    return "integer"


def _identifies(name: str, numbers: FloatArray) -> bool:
    """Tell whether distinct whole numbers are identifiers: too dense to be distinct by chance, or named as such."""
    if len(np.unique(numbers)) < len(numbers):
        return False
    spread = float(numbers.max() - numbers.min()) + 1
    expected = len(numbers) ** 2 / (2 * spread)
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()
    return expected >= MIN_EXPECTED_REPEATS or not IDENTIFIER_NAMES.isdisjoint(re.split(r"[^a-z]+", words))


def _text_kind(name: Any, array: pa.Array) -> str:
    seen = len(array) - array.null_count
    categories = pc.count_distinct(array).as_py()
    if seen > FEW_CELLS and categories == seen:
        kind, why = "identifier", "has a different text in every row and looks like an identifier"
    elif categories > MAX_CATEGORIES or (categories > FEW_CELLS and _is_free_text(array, categories / seen)):
        kind, why = "text", "has too many different texts to be a category"
    else:
        return "category"
    # Without counts, so that folds of one table repeat the same text and Python shows it once.
    warn(
        f"Column {name!r} {why}, so it is not used. Set kinds={{{name!r}: 'category'}} to use it, or "
        f"roles={{{name!r}: 'ignore'}} to silence this warning."
    )
    return kind


def _is_free_text(array: pa.Array, ratio: float) -> bool:
    """Tell whether most texts differ; near the limit, whether two random cells agree in less than 1 of 20 cases."""
    low, high = AMBIGUOUS_RATIOS
    if not low < ratio < high:
        return ratio >= high
    counts = array.drop_null().value_counts().field("counts").to_numpy().astype(np.float64)
    agree = (counts * (counts - 1)).sum() / (counts.sum() * (counts.sum() - 1))
    return bool(agree * FEW_CELLS < 1)
