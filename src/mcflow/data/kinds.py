"""What kind of column each one is: found by its type and its cells, or said by the caller."""

from __future__ import annotations

__all__ = ["MAX_LEVELS", "find_column"]

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.schema import LEVEL_KINDS, MODEL_KINDS, Column
from mcflow.data.series import cells_of, codes_of, is_text, is_time, whole_counts
from mcflow.errors import DataError, McflowWarning

#: Levels above which a column of text is left alone.
MAX_LEVELS = 1000

#: Cells below which every-cell-different says nothing.
FEW_CELLS = 20

#: Nanoseconds in the steps that dates and times are often rounded to, longest first.
STEPS = (86_400_000_000_000, 3_600_000_000_000, 60_000_000_000, 1_000_000_000, 1_000_000, 1_000, 1)


def find_column(name: Any, array: pa.Array | None, kind: str | None, role: str) -> Column:
    """Find out what a column is.

    Parameters
    ----------
    name : object
        Its name.
    array : pyarrow.Array or None
        Its cells; None when they are of several types.
    kind : str or None
        What the caller says it is; found when None.
    role : str
        What it is used for.

    Returns
    -------
    Column

    Raises
    ------
    DataError
        When the caller's kind does not fit the cells.
    """
    if array is None or role in ("ignore", "outcome"):
        dtype = "mixed" if array is None else str(array.type)
        return Column(name, dtype, "other", role, 0 if array is None else array.null_count)
    base: dict[str, Any] = {"name": name, "dtype": str(array.type), "role": role, "missing": array.null_count}
    if array.null_count == len(array):
        return Column(kind="empty", **base)
    found = kind or _found_kind(name, array)
    if found not in MODEL_KINDS:
        return Column(kind=found, **base)
    column = _with_levels(array, found, base) if found in LEVEL_KINDS else _with_step(array, found, base)
    return _with_ends(_with_range(column, _codes(array, column, kind)), array)


def _codes(array: pa.Array, column: Column, said: str | None) -> Any:
    try:
        return codes_of(array, column)
    except DataError as error:
        raise DataError(
            f"Column {column.name!r} is of type {array.type}, which cannot be read as {said or column.kind}. "
            "Give it another kind, or convert it."
        ) from error


def _with_range(column: Column, codes: Any) -> Column:
    low, high = float(np.nanmin(codes)), float(np.nanmax(codes))
    ranged = replace(column, low=low, high=high)
    return replace(ranged, kind="constant", base=column.kind) if low == high else ranged


def _with_ends(column: Column, array: pa.Array) -> Column:
    """Keep the smallest and largest value of whole numbers and times as `levels` where a float64 cannot hold them."""
    base = column.base or column.kind
    if base != "datetime" and not (base == "integer" and pa.types.is_integer(array.type)):
        return column
    counts, unit = whole_counts(array.drop_null())
    held, _ = whole_counts(cells_of(np.array([column.low, column.high]), column, array.type))
    ends = [int(counts.min()), int(counts.max())]
    return column if held.tolist() == ends else replace(column, levels=tuple(end * unit for end in ends))


def _with_levels(array: pa.Array, kind: str, base: dict[str, Any]) -> Column:
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    if not _can_be_levels(plain.type):
        raise DataError(
            f"Column {base['name']!r} is of type {plain.type}, whose values cannot be levels of a {kind}. "
            "Convert it to text or whole numbers first."
        )
    levels = pc.unique(plain.drop_null()).to_pylist()
    if kind == "boolean" and len(levels) > 2:
        raise DataError(f"Column {base['name']!r} has {len(levels):,} levels, and a boolean has two. Try 'category'.")
    if pa.types.is_dictionary(array.type):
        order = {level: place for place, level in enumerate(array.dictionary.to_pylist())}
        levels = sorted(levels, key=lambda level: order[level])
    else:
        levels = sorted(levels)
    if len(levels) > MAX_LEVELS:
        raise DataError(
            f"Column {base['name']!r} has {len(levels):,} levels, and a {kind} may have {MAX_LEVELS:,}. "
            "Leave it out with roles={...: 'ignore'}, or join its rare levels."
        )
    return Column(kind=kind, levels=tuple(levels), whole=True, **base)


def _can_be_levels(kind: pa.DataType) -> bool:
    """Tell whether values of a type can be told apart, put in order and written to a file."""
    return is_text(kind) or any(is_(kind) for is_ in (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating))


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
    if pa.types.is_dictionary(kind):
        values = kind.value_type
        plain = is_text(values) or pa.types.is_integer(values)
        return ("ordered" if kind.ordered else "category") if plain else "other"
    if is_text(kind):
        return _text_kind(name, array)
    return "other"


def _number_kind(name: Any, array: pa.Array) -> str:
    values = array.drop_null().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    finite = values[np.isfinite(values)]
    if not (len(finite) and (np.floor(finite) == finite).all()):
        return "continuous"
    # Columns without names are features that somebody chose; a counter among them is one too.
    if isinstance(name, str) and array.null_count == 0 and len(values) > FEW_CELLS and (np.diff(finite) == 1).all():
        warnings.warn(
            f"Column {name!r} counts its rows ({values[0]:g} to {values[-1]:g}) and looks like an identifier, so it is "
            f"not used. Set kinds={{{name!r}: 'integer'}} to use it.",
            McflowWarning,
            stacklevel=2,
        )
        return "identifier"
    return "integer"


def _text_kind(name: Any, array: pa.Array) -> str:
    seen = len(array) - array.null_count
    levels = pc.count_distinct(array).as_py()
    if seen > FEW_CELLS and levels == seen:
        kind, why = "identifier", f"holds {seen:,} different texts and looks like an identifier"
    elif levels > MAX_LEVELS or (levels > FEW_CELLS and levels > seen / 2):
        kind, why = "text", f"holds {levels:,} different texts in {seen:,} cells"
    else:
        return "category"
    warnings.warn(
        f"Column {name!r} {why}, so it is left alone. Set kinds={{{name!r}: 'category'}} to use it, or "
        f"roles={{{name!r}: 'ignore'}} to silence this.",
        McflowWarning,
        stacklevel=2,
    )
    return kind
