"""Headers of model files, parsed by the annotations of the classes that they describe into checked objects."""

from __future__ import annotations

__all__ = ["ConstraintsHeader", "ModelHeader", "OtherHeader", "parse_config", "parse_header"]

import dataclasses
import math
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from mcflow.columns.frames import CONTAINERS
from mcflow.columns.numerals import NumberFormat
from mcflow.columns.schema import KINDS, MODEL_KINDS, ROLES, Column, TableSchema
from mcflow.config import Interval, Options, field_range
from mcflow.errors import ModelFileError
from mcflow.fitting.callbacks import Epoch, History
from mcflow.images.pixels import INTEGER_RANGES, PixelCodec
from mcflow.imputers.presets import CONFIGS, Config
from mcflow.typing import Header

#: Largest number of characters of a text in a header.
MAX_TEXT = 1_000_000
#: Largest absolute value of a whole number that is not otherwise limited; exact ends of columns may have 64 bits.
MAX_WHOLE = 2**64
#: Largest height, width and number of channels of images.
MAX_SIDE = 1 << 16

_SIDE = Interval(int, 1, MAX_SIDE)
_DECIMALS = Interval(int, 0, 400, optional=True)

#: What fields of the classes in a header may be beyond what their types say.
RANGES: dict[tuple[type, str], Interval | Options] = {
    (Column, "kind"): Options(KINDS),
    (Column, "role"): Options(ROLES),
    (Column, "base"): Options(("", *MODEL_KINDS)),
    (Column, "missing"): Interval(int, 0),
    (Column, "decimals"): _DECIMALS,
    (NumberFormat, "decimals"): _DECIMALS,
    (Column, "step"): Interval(float, 0, low_open=True),
    (TableSchema, "container"): Options(CONTAINERS),
    (TableSchema, "n_rows"): Interval(int, 0),
    (PixelCodec, "height"): _SIDE,
    (PixelCodec, "width"): _SIDE,
    (PixelCodec, "channels"): _SIDE,
    (PixelCodec, "dtype"): Options((*INTEGER_RANGES, "float16", "float32", "float64")),
    (Epoch, "epoch"): Interval(int, 0),
    (Epoch, "stage"): Interval(int, 0),
}

_SEED = Interval(int, 0, 2**64)


@dataclasses.dataclass(frozen=True)
class ConstraintsHeader:
    """Constraints as `Constraints.to_dict` returns them."""

    names: list[Any]
    low: list[float | None]
    high: list[float | None]
    whole: list[bool]
    allowed: list[list[float] | None]
    rules: list[tuple[str | float, str | float, bool]]
    decimals: list[int | None] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class OtherHeader:
    """A bootstrap copy."""

    seed: int


@dataclasses.dataclass(frozen=True)
class ModelHeader:
    """Header of a model of tables, which has `schema`, `constraints` and `others`, or of images, which has `images`."""

    estimator: Literal["MCFlowImputer", "MCFlowImageImputer"]
    mcflow: str
    parameters: dict[str, Any]
    config: dict[str, Any]
    seed: int
    history: History
    schema: TableSchema | None = None
    constraints: ConstraintsHeader | None = None
    others: list[OtherHeader] = dataclasses.field(default_factory=list)
    images: PixelCodec | None = None


RANGES |= {(ModelHeader, "seed"): _SEED, (OtherHeader, "seed"): _SEED}


def parse_header(header: Header) -> ModelHeader:
    """Parse the header of the current format, or raise `ModelFileError` that names the field that is wrong."""
    known = {field.name for field in dataclasses.fields(ModelHeader)}
    found: ModelHeader = _parse(ModelHeader, {name: v for name, v in header.items() if name in known}, "header")
    of_images = found.estimator == "MCFlowImageImputer"
    if of_images != (found.images is not None) or of_images == (found.schema is not None):
        raise ModelFileError(f"The header describes {found.estimator}, and lacks its columns or images.")
    if found.schema is not None:
        _check_schema(found.schema, found.constraints)
    elif found.images is not None and not found.images.low < found.images.high:
        raise ModelFileError("header.images: low has to be below high.")
    return found


def parse_config(values: Mapping[str, Any], where: str = "header.config") -> Config:
    """Parse a configuration; fields that an earlier version did not have get their defaults."""
    if not isinstance(values, dict) or values.get("algorithm") not in CONFIGS:
        raise ModelFileError(f"{where}.algorithm has to be one of {', '.join(CONFIGS)}.")
    kind = CONFIGS[values["algorithm"]]
    config: Config = _parse(kind, {name: v for name, v in values.items() if name != "algorithm"}, where)
    return config


def _check_schema(schema: TableSchema, constraints: ConstraintsHeader | None) -> None:
    for column in schema.columns:
        kind = column.base or column.kind
        if column.coded and (kind in ("boolean", "category", "ordered")) and not column.categories:
            raise ModelFileError(f"Column {column.name!r} has the kind {kind}, and no categories.")
        if column.low > column.high:
            raise ModelFileError(f"Column {column.name!r} has a smallest value above its largest one.")
        if kind in ("continuous", "integer", "datetime") and len(column.categories) not in (0, 2):
            raise ModelFileError(f"Column {column.name!r} of numbers has categories.")
    if constraints is None:
        raise ModelFileError("The header has no constraints.")
    lengths = {len(getattr(constraints, name)) for name in ("names", "low", "high", "whole", "allowed")}
    if lengths != {len(schema.coded)}:
        raise ModelFileError(f"The constraints have {sorted(lengths)} entries for {len(schema.coded)} columns.")
    decimals = constraints.decimals
    if len(decimals) not in (0, len(schema.coded)) or not all(_DECIMALS.allows(one) for one in decimals):
        raise ModelFileError("header.constraints.decimals has to be a number of at most 400 or null for each column.")


def _parse(kind: Any, value: Any, where: str) -> Any:
    """Return a JSON value as an object of an annotated type."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _parse_fields(kind, value, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return _checked(value, Options(arguments), where)
    if origin in (typing.Union, types.UnionType):
        return _parse_union(arguments, value, where)
    if origin in (list, tuple):
        return origin(_parse_items(arguments, value, where))
    return dict(_of_type(value, dict, where)) if origin is dict else _parse_scalar(kind, value, where)


def _parse_items(arguments: tuple[Any, ...], value: Any, where: str) -> list[Any]:
    _of_type(value, list, where)
    kinds = [arguments[0]] * len(value) if len(arguments) == 1 or arguments[-1] is Ellipsis else list(arguments)
    if len(value) != len(kinds):
        raise _wrong(value, f"a list of {len(kinds)}", where)
    return [_parse(kind, one, f"{where}[{k}]") for k, (kind, one) in enumerate(zip(kinds, value, strict=True))]


def _parse_union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    options = [argument for argument in arguments if argument is not type(None)]
    for option in options[:-1]:
        try:
            return _parse(option, value, where)
        except ModelFileError:
            continue
    return _parse(options[-1], value, where)


def _parse_fields(kind: type, value: Any, where: str) -> Any:
    """Return a dataclass of a JSON object, whose fields may be absent only if they have defaults."""
    _of_type(value, dict, where)
    hints = typing.get_type_hints(kind, vars(sys.modules[kind.__module__]))
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = [name for name in value if name not in fields]
    if unknown:
        raise ModelFileError(f"{where} has the field {unknown[0][:80]!r}, which is not known.")
    found = {}
    for name, field in fields.items():
        if name not in value:
            if field.default is field.default_factory is dataclasses.MISSING:
                raise ModelFileError(f"{where} lacks the field {name!r}.")
            continue
        found[name] = _parse(hints[name], value[name], f"{where}.{name}")
        limits = RANGES.get((kind, name))
        if limits is None and kind in CONFIGS.values():
            limits = field_range(name, hints[name])
        if limits is not None:
            _checked(found[name], limits, f"{where}.{name}")
    return kind(**found)


def _parse_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        if value is not None and not isinstance(value, str | int | float):
            raise _wrong(value, "a text, a number, a truth value or null", where)
        kind = type(value)
    if kind is float and type(value) is int and abs(value) <= MAX_WHOLE:
        value = float(value)
    if type(value) is not kind:
        raise _wrong(value, {int: "a whole number", float: "a number", str: "a text"}.get(kind, kind.__name__), where)
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(value, "a finite number", where)
    if type(value) is int and abs(value) > MAX_WHOLE:
        raise _wrong(value, "a whole number of at most 64 bits", where)
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise _wrong(value, f"a text of at most {MAX_TEXT:,} characters", where)
    return value


def _of_type(value: Any, kind: type, where: str) -> Any:
    if type(value) is not kind:
        raise _wrong(value, "an object" if kind is dict else "a list", where)
    return value


def _checked(value: Any, limits: Interval | Options, where: str) -> Any:
    if not limits.allows(value):
        raise _wrong(value, str(limits), where)
    return value


def _wrong(value: Any, allowed: str, where: str) -> ModelFileError:
    shown = f"of {value.bit_length()} bits" if type(value) is int and abs(value) > MAX_WHOLE else repr(value)[:80]
    return ModelFileError(f"{where} is {shown}, but has to be {allowed}.")
