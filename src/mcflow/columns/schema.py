"""Schema of a fitted table: name, type, kind and role of every column, and which values are missing."""

from __future__ import annotations

__all__ = [
    "CATEGORY_KINDS",
    "Column",
    "KINDS",
    "MISSING_MARKS",
    "MISSING_WORDS",
    "MODEL_KINDS",
    "MissingValues",
    "NUMBER_KINDS",
    "ROLES",
    "Suspect",
    "TableSchema",
    "numbers_in",
    "suspected_codes",
    "warn_of_suspects",
    "warn_of_words",
    "without_values",
    "without_words",
]

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.columns.numerals import NumberFormat
from mcflow.errors import ParameterError, did_you_mean, warn
from mcflow.typing import Array, BoolArray, FloatArray

NUMBER_KINDS = ("continuous", "integer", "datetime")  # numeric kinds, including dates and times
CATEGORY_KINDS = ("boolean", "category", "ordered")  # categorical kinds
MODEL_KINDS = (*NUMBER_KINDS, *CATEGORY_KINDS)  # kinds that the model fills
KINDS = (*MODEL_KINDS, "constant", "empty", "identifier", "text", "other")  # all kinds
ROLES = ("fill", "ignore", "predictors_only", "targets_only", "outcome")  # roles of a column; see `Column`

#: Texts that mark a missing cell in every column: those of pandas, their other cases, and the "?" of many older files.
MISSING_MARKS = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"}
    | {"NA", "NULL", "NaN", "NAN", "Nan", "None", "n/a", "nan", "null", "?"}
)

#: Limits of detection without a number, which are read as missing with a warning.
LIMIT_WORDS = frozenset({"<lod", "<loq", "<lloq", ">uloq", "<dl", "<mdl", "bdl", "n.d.", "not detected"})

#: Words in lower case that mark a missing cell in a column of numbers, dates or booleans; elsewhere they are text.
MISSING_WORDS = (
    frozenset(mark.lower() for mark in MISSING_MARKS)
    | {"unknown", "unk", "missing", "none", "n.a.", "na.", "nil", "blank", "empty", "no data", "not available", "tbd"}
    | {"-", "--", "---", "–", "—", ".", "..", "...", "*", "??", "???", "not applicable", "not recorded", "nodata"}
    | {"#value!", "#ref!", "#div/0!", "#num!", "#name?", "#null!", "nat"}
    | LIMIT_WORDS
)
#: Words that are suspected of marking missing cells where they are kept as a category.
SUSPECT_WORDS = frozenset(
    {"unknown", "unk", "missing", "not available", "no data", "not recorded", "n.a.", "-", ".", "??"}
)

MAX_CODES = 5  # maximum number of codes at one end of a column
MIN_CELLS = 10  # minimum number of cells with other values beside codes
MIN_DISTINCT = 10  # minimum number of other values beside a code that is no typical one
_LIMITS = {-32768.0, 32767.0, -2147483648.0, 2147483647.0, 1e20, -1e20, 1e30, -1e30}  # written for missing numbers


@dataclass(frozen=True)
class Column:
    """One column of the fitted table."""

    name: Any  #: Name of the column, or its position when the table has no names.
    dtype: str  #: Name of its Arrow type.
    kind: str  #: One of `KINDS`.
    #: "fill": used and filled; "ignore": passed through; "predictors_only": used, never filled; "targets_only": filled,
    #: never used to fill others; "outcome": neither used nor filled.
    role: str = "fill"
    missing: int = 0  #: Number of missing cells at fit.
    #: Categories of a categorical column, in the order of their codes. For integers and times, the exact minimum and
    #: maximum (times in nanoseconds) if float64 cannot represent them.
    categories: tuple[Any, ...] = ()
    low: float = 0.0  #: Smallest observed code.
    high: float = 0.0  #: Largest observed code.
    #: Microseconds per code in a column of dates and times, below 1 for nanoseconds; 1 for other columns.
    step: float = 1.0
    whole: bool = False  #: Whether fills are rounded to whole codes.
    base: str = ""  #: For a constant column, the kind that it would have otherwise.
    missing_codes: tuple[Any, ...] = ()  #: Values that are missing in this column, such as -999, besides null.
    format: NumberFormat | None = None  #: How numbers are written, for numbers in a column of text.
    decimals: int | None = None  #: Number of decimals of fills; None for full precision.

    @property
    def in_model(self) -> bool:
        """Tell whether the model uses this column."""
        return self.kind in MODEL_KINDS and self.role not in ("ignore", "outcome")

    @property
    def filled(self) -> bool:
        """Tell whether missing cells of this column are filled."""
        return self.kind in (*MODEL_KINDS, "constant") and self.role in ("fill", "targets_only")

    @property
    def coded(self) -> bool:
        """Tell whether cells of this column have codes."""
        return self.kind in (*MODEL_KINDS, "constant")


@dataclass(frozen=True)
class TableSchema:
    """The columns of the table that an imputer was fitted on."""

    container: str  #: Kind of table: "numpy", "pandas", "polars" or "pyarrow".
    named: bool  #: Whether the columns have names.
    columns: tuple[Column, ...]  #: The columns, in the order of the table.
    n_rows: int  #: Number of rows at fit.

    @property
    def coded(self) -> list[int]:
        """Positions of the columns that have codes, in the order of the columns of `values`."""
        return [p for p, column in enumerate(self.columns) if column.coded]

    @property
    def model(self) -> list[int]:
        """Positions of the columns that the model uses."""
        return [p for p, column in enumerate(self.columns) if column.in_model]

    @property
    def empty(self) -> list[int]:
        """Positions of the columns without observed cells."""
        return [p for p, column in enumerate(self.columns) if column.kind == "empty"]

    @property
    def incomplete(self) -> list[int]:
        """Positions of the coded or empty columns with missing cells at fit, which get a missing indicator."""
        return [p for p, c in enumerate(self.columns) if c.missing and (c.coded or c.kind == "empty")]

    @property
    def model_among_coded(self) -> BoolArray:
        """Mask over the coded columns that selects those of the model."""
        return np.array([self.columns[p].in_model for p in self.coded], dtype=bool)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Suspect:
    """A value that may stand for missing cells."""

    value: Any
    count: int


@dataclass(frozen=True)
class MissingValues:
    """Values that users declare as missing."""

    everywhere: tuple[Any, ...] = ()  # in all columns
    by_column: Mapping[Any, tuple[Any, ...]] = field(default_factory=dict)
    auto: bool = False  # whether suspected codes are missing too

    @classmethod
    def of(cls, given: Any) -> MissingValues:
        """Read the argument `missing_values`: None, "auto", a value, a list, or either of them by column."""
        if given is None or isinstance(given, cls):
            return given or cls()
        if isinstance(given, Mapping):
            return cls(by_column={name: _tuple(values) for name, values in given.items()})
        values = _tuple(given)
        return cls(tuple(value for value in values if value != "auto"), auto="auto" in values)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> MissingValues:
        """Read texts as `--na` takes them: VALUES for all columns, NAME=VALUES for one, or auto."""
        everywhere, by_column = list[str](), dict[str, tuple[str, ...]]()
        for text in texts:
            name, equals, values = text.rpartition("=")
            parts = tuple(part.strip() for part in values.split(",") if part.strip())
            if equals:
                by_column[name] = by_column.get(name, ()) + parts
            elif not parts:
                raise ParameterError(f"--na is {text!r}, but has to be a value such as -999, NAME=VALUES or auto.")
            everywhere += () if equals else parts
        return cls(tuple(value for value in everywhere if value != "auto"), by_column, "auto" in everywhere)

    def with_columns(self, more: Mapping[Any, tuple[Any, ...]]) -> MissingValues:
        """Return the values with further ones by column."""
        both = {name: (*more.get(name, ()), *self.by_column.get(name, ())) for name in {**more, **self.by_column}}
        return replace(self, by_column=both)

    def of_column(self, name: Any) -> tuple[Any, ...]:
        """Return the values that are missing in a column."""
        return (*self.everywhere, *self.by_column.get(name, ()))

    def check(self, names: Iterable[Any]) -> None:
        """Raise `ParameterError` if a column does not exist."""
        known = list(names)
        for name in self.by_column:
            if name not in known:
                hint = did_you_mean(name, map(str, known))
                raise ParameterError(f"missing_values (--na) names the column {name!r}, which the table lacks.{hint}")


def _tuple(given: Any) -> tuple[Any, ...]:
    values = given if isinstance(given, list | tuple | set | frozenset | np.ndarray) else (given,)
    plain = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    for value in plain:
        if not isinstance(value, str | int | float):
            raise ParameterError(
                f"missing_values holds {value!r}, but has to hold numbers and texts, such as [-999] or "
                "{'age': [-9, 'refused']}."
            )
    return plain


def numbers_in(values: Iterable[Any]) -> list[float]:
    """Return those of some values that are numbers, or texts of numbers."""
    found = []
    for value in values:
        with contextlib.suppress(ValueError):
            found.append(float(value))
    return [number for number in found if not math.isnan(number)]


def without_values(array: Any, values: tuple[Any, ...], form: NumberFormat | None = None) -> Any:
    """Return an array with null in the cells that equal one of the values, as numbers or as texts."""
    if not values or not len(array):
        return array
    kind = array.type
    numbers = numbers_in(values)
    words = pa.array([str(value) for value in values])
    if pa.types.is_dictionary(kind):
        plain = array.cast(kind.value_type) if isinstance(array, pa.ChunkedArray) else array.dictionary_decode()
        hit = pc.is_in(plain.cast(pa.string()), value_set=words)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        hit = pc.is_in(array.cast(pa.float64(), safe=False), value_set=pa.array(numbers, pa.float64()))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        trimmed = pc.utf8_trim_whitespace(array)
        hit = pc.is_in(trimmed, value_set=words.cast(kind))
        if form is not None and numbers:
            hit = pc.or_(hit, pc.is_in(form.read(trimmed), value_set=pa.array(numbers, pa.float64())))
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        hit = pc.is_in(pc.replace_substring_regex(array.cast(pa.string()), " 00:00:00.*$", ""), value_set=words)
    else:
        return array
    return _null_where(array, hit)


def _find_words(texts: Any, words: frozenset[str], *, lower: bool) -> Any:
    """Return which texts, without surrounding white space, are in a set of words."""
    trimmed = pc.utf8_trim_whitespace(texts)
    return pc.is_in(pc.utf8_lower(trimmed) if lower else trimmed, value_set=pa.array(sorted(words), texts.type))


def without_words(texts: Any, *, numeric: bool) -> Any:
    """Return texts with null in place of words for missing cells; `numeric` takes those of columns of numbers."""
    return _null_where(texts, _find_words(texts, MISSING_WORDS if numeric else MISSING_MARKS, lower=numeric))


def warn_of_words(name: Any, cells: Any) -> None:
    """Warn of texts that are read as missing, except empty ones."""
    found = [entry for entry in pc.value_counts(cells).to_pylist() if entry["values"].strip()]
    if found:
        words = ", ".join(f"{entry['values']!r} ({entry['counts']:,})" for entry in found[:5])
        limits = any(entry["values"].strip().lower() in LIMIT_WORDS for entry in found)
        warn(
            f"Column {name!r} holds texts that are read as missing cells, with their counts: {words}."
            + " Limits of detection are not missing at random; a number such as '<0.5' would be used." * limits,
        )


def _null_where(array: Any, hit: Any) -> Any:
    if not pc.any(hit).as_py():
        return array
    if not pa.types.is_dictionary(array.type):
        return pc.if_else(hit.fill_null(False), pa.scalar(None, array.type), array)
    if isinstance(array, pa.ChunkedArray):
        array, hit = array.combine_chunks(), hit.combine_chunks()
    indices = pc.if_else(hit.fill_null(False), pa.scalar(None, array.indices.type), array.indices)
    return pa.DictionaryArray.from_arrays(indices, array.dictionary, ordered=array.type.ordered)


def suspected_codes(array: Any) -> list[Suspect]:
    """Return values that may stand for missing cells: isolated codes in numbers, and words in text."""
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _suspected_numbers(np.asarray(array.drop_null().cast(pa.float64(), safe=False)))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        found = pc.value_counts(array.filter(_find_words(array, SUSPECT_WORDS, lower=True).fill_null(False)))
        return [Suspect(entry["values"], entry["counts"]) for entry in found.to_pylist()]
    return []


def warn_of_suspects(name: Any, suspects: Sequence[Suspect], *, taken: bool = False) -> None:
    """Warn of values that may stand for missing cells, and say how to take them as missing, or that they were."""
    found = " and ".join(f"{s.value!r} in {s.count:,} cell{'s' * (s.count > 1)}" for s in suspects)
    values = [s.value for s in suspects]
    if taken:
        warn(f"Column {name!r} holds {found}, taken as missing.")
        return
    warn(
        f"Column {name!r} holds {found}, which may stand for missing cells.",
        f"Set missing_values={{{name!r}: {values!r}}} to take them as missing, or {{{name!r}: []}} to keep them.",
        f"Add --na {name}={','.join(map(str, values))} to take them as missing, or --na {name}= to keep them; "
        "--na auto takes all such values.",
    )


def _suspected_numbers(seen: FloatArray) -> list[Suspect]:
    """Return isolated codes at both ends of numbers, (n_cells,)."""
    values, counts = np.unique(seen[np.isfinite(seen)], return_counts=True)
    found: list[Suspect] = []
    for sign in (1, -1):
        n_codes = _n_isolated(sign * values[::sign], counts[::sign], sign)
        outer = slice(0, n_codes) if sign == 1 else slice(len(values) - n_codes, None)
        pairs = zip(values[outer].tolist(), counts[outer].tolist(), strict=True)
        found += [Suspect(int(value) if value == int(value) else value, count) for value, count in pairs]
        values, counts = np.delete(values, outer), np.delete(counts, outer)
    return found


def _n_isolated(values: FloatArray, counts: Array, sign: int) -> int:
    """Return how many of the lowest of ascending `values` (n_values,) are codes; `sign` is -1 if they were negated."""
    n_codes = next((k for k, value in enumerate(values[:MAX_CODES]) if not _is_code(sign * value)), MAX_CODES)
    for k in range(min(max(n_codes, 1), len(values) - 2), 0, -1):
        if _is_isolated(values, counts, k, sign, coded=k <= n_codes):
            return k
    return 0


def _is_isolated(values: FloatArray, counts: Array, k: int, sign: int, *, coded: bool) -> bool:
    """Tell whether the lowest `k` values are far below the others."""
    code, core, n_core, number = sign * values[k - 1], values[k:], int(counts[k:].sum()), int(counts[:k].sum())
    if n_core < MIN_CELLS:
        return False
    gap, span = core[0] - values[k - 1], core[-1] - core[0]
    quartiles = np.interp([0.25, 0.75], np.cumsum(counts[k:]) / n_core, core)
    if code == 0 and sign == 1:
        repeated = 2 <= number <= n_core and len(core) >= MIN_DISTINCT
        return bool(repeated and gap > quartiles[1] - quartiles[0])
    if not coded:
        return bool(number >= max(3, 0.005 * n_core) and gap > 2 * span and len(core) >= MIN_DISTINCT)
    if code < 0 and core[0] >= 0 and sign == 1 and gap >= 2:
        return number > 1 or code <= -99
    if number == 1:
        return bool(gap > 3 * span)
    return bool(gap >= span if 0 < code < 10 else gap > span / 2)


def _is_code(value: float) -> bool:
    """Tell whether a number looks like a code for missing, such as -1, 9, 99, 998, 7777 or 99.9."""
    size = abs(value)
    if value in _LIMITS or size >= 1e30 or value == -1:
        return True
    digits = f"{size:g}".replace(".", "")
    return set(digits) in ({"7"}, {"8"}, {"9"}) or (set(digits[:-1]) == {"9"} and digits[-1] in "678")
