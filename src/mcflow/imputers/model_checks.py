"""Checks of model files: headers, parsed by the annotations of the classes that they describe, and their tensors."""

from __future__ import annotations

__all__ = ["ModelHeader", "check_image_tensors", "check_table_tensors", "parse_config", "parse_header"]

import dataclasses
import math
import re
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch

from mcflow.columns.frames import CONTAINERS, observed_cells
from mcflow.columns.numerals import NumberFormat
from mcflow.columns.schema import CATEGORY_KINDS, KINDS, MODEL_KINDS, ROLES, Column, TableSchema
from mcflow.config import Interval, Options, field_range
from mcflow.errors import ModelFileError
from mcflow.fitting.callbacks import Epoch, History
from mcflow.images.config import ImageConfig
from mcflow.images.model import MaskedImageModel
from mcflow.images.pixels import INTEGER_RANGES, PixelCodec
from mcflow.imputers.presets import CONFIGS, Config
from mcflow.masked.config import MaskedConfig
from mcflow.paper.config import PaperConfig
from mcflow.paper.networks import LatentMapper, RealNVP
from mcflow.typing import Array, Header

MAX_TEXT = 1_000_000  #: Largest number of characters of a text in a header.
MAX_WHOLE = 2**64  #: Largest absolute whole number without another limit; exact ends of columns have 64 bits.
MAX_SIDE = 1 << 16  #: Largest height, width and number of channels of images.
_SIDE = Interval(int, 1, MAX_SIDE)
_DECIMALS = Interval(int, 0, 400, optional=True)
_SEED = Interval(int, 0, 2**64)


@dataclasses.dataclass(frozen=True)
class _ConstraintsHeader:
    """Constraints as `Constraints.to_dict` returns them."""

    names: list[Any]
    low: list[float | None]
    high: list[float | None]
    whole: list[bool]
    allowed: list[list[float] | None]
    rules: list[tuple[str | float, str | float, bool]]
    decimals: list[int | None] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class _OtherHeader:
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
    constraints: _ConstraintsHeader | None = None
    others: list[_OtherHeader] = dataclasses.field(default_factory=list)
    images: PixelCodec | None = None


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
    (ModelHeader, "seed"): _SEED,
    (_OtherHeader, "seed"): _SEED,
}


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


def _any_missing(column: Column) -> bool:
    """Return whether a category would be read as a missing cell, so that a fill would leave the cell missing."""
    try:
        categories = pa.array(list(column.categories))
    except pa.ArrowException as error:
        raise ModelFileError(f"Column {column.name!r} has categories of several types.") from error
    return bool(observed_cells(categories, column).null_count)


def _check_schema(schema: TableSchema, constraints: _ConstraintsHeader | None) -> None:
    for column in schema.columns:
        kind = column.base or column.kind
        if column.coded and (kind in ("boolean", "category", "ordered")) and not column.categories:
            raise ModelFileError(f"Column {column.name!r} has the kind {kind}, and no categories.")
        if kind in CATEGORY_KINDS and _any_missing(column):
            raise ModelFileError(f"Column {column.name!r} has a category that stands for a missing cell.")
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


Arrays = Mapping[str, Array]

BOUNDS = ("box", "factored.units")  #: Tensors of bounds, which may be infinite. No other may, and none may hold NaN.

#: Shapes of tensors by name. A word stands for one size that is the same wherever it occurs; "*" for any size. In a
#: name, # is the position of a column, and "categories" is the number of its categories.
SHAPES: dict[str, str] = {
    "calibration.below": "cells",
    "calibration.above": "cells",
    "calibration.starts": "columns+1",
    "calibration.scale": "columns",
    "scale.#": "2 *",
}
MASKED_SHAPES = SHAPES | {
    "box": "2 columns",
    "blend": "columns *",
    "means": "columns",
    "gaussian_share": "columns",
    "pooled": "columns *",
    "gaussian.mean": "gaussians encoded",
    "gaussian.covariance": "gaussians encoded encoded",
    "grid.centre": "columns",
    "grid.spread": "columns",
    "grid.asinh_params": "columns 4",
    "grid.knots": "columns knots",
    "grid.points": "columns points",
    "grid.codes": "columns points",
    "grid.point_masses": "columns points",
    "grid.n_knots": "columns",
    "grid.n_points": "columns",
    "grid.places.#": "categories",
    "grid.answers.#": "*",
    "grid.shares.#": "categories",
    "factored.sizes": "columns",
    "factored.order": "columns",
    "factored.terms": "* *",
    "factored.units": "4 columns",
    "factored.members": "* *",
    "factored.used": "columns",
}
PAPER_SHAPES = SHAPES | {
    "box": "2 places",
    "quantiles": "* columns",
    "head.#.weight": "places categories",
    "head.#.bias": "categories",
    "stage.*.masks": "* places",
}
PAPER_IMAGE_SHAPES = SHAPES | {"level": "*", "steps": "numbers", "stage.*.masks": "* numbers"}

#: Smallest and largest number in tensors of positions; a word is a size of the shapes above.
POSITIONS: dict[str, tuple[int, str]] = {
    "grid.n_knots": (0, "knots"),
    "grid.n_points": (0, "points"),
    "grid.places.#": (0, "points-1"),
    "grid.answers.#": (0, "categories-1"),
    "calibration.starts": (0, "cells"),
    "factored.order": (0, "columns-1"),
}


def check_table_tensors(arrays: Arrays, columns: list[Column], config: Any) -> None:
    """Raise `ModelFileError` if the tensors of a model of tables do not fit its columns and configuration."""
    _check_numbers(arrays)
    shapes = MASKED_SHAPES if isinstance(config, MaskedConfig) else PAPER_SHAPES
    sizes = {"columns": len(columns)}
    _check_shapes(arrays, shapes, sizes, [len(c.categories) for c in columns])
    for k, column in enumerate(columns):
        if column.kind not in CATEGORY_KINDS:
            continue
        named = [f"grid.{part}.{k}" for part in ("places", "answers", "shares")]
        if isinstance(config, MaskedConfig) and not all(name in arrays for name in named):
            raise ModelFileError(f"Column {column.name!r} has categories, and no tensors for them.")
        codes = arrays.get("quantiles", np.zeros((1, len(columns))))[:, k]
        if not ((codes >= 0) & (codes < len(column.categories))).all():
            raise ModelFileError(f"Tensor 'quantiles' holds codes that are no category of {column.name!r}.")
    _check_scales(arrays)
    if isinstance(config, MaskedConfig):
        _check_masked_sizes(arrays, config, len(columns))
    elif columns:
        _check_stages(arrays, config)


def check_image_tensors(arrays: Arrays, codec: PixelCodec, config: Any) -> None:
    """Raise `ModelFileError` if the tensors of a model of images do not fit its images and configuration."""
    _check_numbers(arrays)
    numbers = codec.height * codec.width * codec.channels
    calibrated = codec.channels if isinstance(config, ImageConfig) else 1  # the paper's method calibrates all at once
    _check_shapes(arrays, PAPER_IMAGE_SHAPES, {"columns": calibrated, "numbers": numbers}, [])
    if isinstance(config, ImageConfig):
        with torch.device("meta"):
            network, flow = MaskedImageModel(config, codec)._build()
        networks = torch.nn.ModuleDict({"network": network, "flow": flow})
        _check_same({name: tensor.shape for name, tensor in networks.state_dict().items()}, arrays)
    else:
        _check_stages(arrays, config)


def _check_numbers(arrays: Arrays) -> None:
    """Refuse tensors of other types than mcflow writes, NaN, and infinities that are no bounds."""
    for name, array in arrays.items():
        if array.dtype not in (np.float32, np.float64, np.int64, np.int32, np.int16, np.int8, np.uint8, np.bool_):
            raise ModelFileError(f"Tensor {name!r} has the type {array.dtype}, which no model has.")
        finite = np.isfinite(array) if name not in BOUNDS else ~np.isnan(array)
        if not finite.all():
            raise ModelFileError(
                f"Tensor {name!r} holds {int((~finite).sum()):,} numbers that are not finite, so that nothing can be "
                "filled with this model. Fit it again."
            )


def _check_shapes(arrays: Arrays, shapes: Mapping[str, str], sizes: dict[str, int], categories: list[int]) -> None:
    """Compare shapes with a table of them, in which the `sizes` that are not known yet are found."""
    patterns = {one: re.compile(re.escape(one).replace(r"\#", r"(\d{1,9})").replace(r"\*", r"\d+")) for one in shapes}
    for name in sorted(arrays):
        matches = ((one, compiled.fullmatch(name)) for one, compiled in patterns.items())
        pattern, match = next((found for found in matches if found[1]), ("", None))
        if match is None:
            continue
        place = int(match[1]) if match.groups() else 0
        if "#" in pattern and place >= sizes["columns"]:
            raise ModelFileError(f"Tensor {name!r} belongs to a column that the model does not have.")
        here = sizes | ({"categories": categories[place]} if "#" in pattern else {})
        axes, shape = shapes[pattern].split(), arrays[name].shape
        wanted = [_size(axis, found, here) for axis, found in zip(axes, (*shape, 0, 0, 0), strict=False)]
        if shape != tuple(wanted):
            raise ModelFileError(f"Tensor {name!r} is of shape {shape}, but has to be of {tuple(wanted)}.")
        sizes.update({axis: here[axis] for axis in axes if axis.isalpha() and axis != "categories"})
        _check_positions(name, arrays[name], pattern, here)


def _size(axis: str, found: int, sizes: dict[str, int]) -> int:
    """Return the size that an axis has to have; a word that is new stands for the size that was found."""
    if axis == "*":
        return found
    word, _, more = axis.partition("+")
    return (int(word) if word.isdecimal() else sizes.setdefault(word, found)) + int(more or 0)


def _check_positions(name: str, array: Array, pattern: str, sizes: Mapping[str, int]) -> None:
    if pattern not in POSITIONS or not array.size:
        return
    low, word = POSITIONS[pattern]
    high = sizes.get(word.removesuffix("-1"), 2**31) - word.endswith("-1")
    rising = pattern != "calibration.starts" or bool((np.diff(array) >= 0).all() and array[-1] == high)
    if array.dtype.kind != "i" or array.min() < low or array.max() > high or not rising:
        raise ModelFileError(f"Tensor {name!r} holds positions that are not between {low} and {high}.")


def _check_scales(arrays: Arrays) -> None:
    """Check the scales of numbers, whose knots have to rise."""
    for name, array in arrays.items():
        if re.fullmatch(r"scale\.\d+", name) and (array.shape[1] < 2 or not (np.diff(array) > 0).all()):
            raise ModelFileError(f"Tensor {name!r} holds knots that do not rise.")
    if "grid.spread" in arrays and not (arrays["grid.spread"] > 0).all():
        raise ModelFileError("Tensor 'grid.spread' holds numbers that are not above 0.")


def _check_masked_sizes(arrays: Arrays, config: MaskedConfig, n_columns: int) -> None:
    """Bound the networks that the configuration asks for by what is stored of them."""
    for name in ("grid.knots", "grid.points", "grid.centre"):
        if name not in arrays:
            raise ModelFileError(f"Tensor {name!r} is not there.")
    parts = ("network", "flow")
    stored = {part: sum(a.size for name, a in arrays.items() if name.startswith(f"{part}.")) for part in parts}
    n_inputs = int((np.diff(arrays["grid.knots"], axis=1) > 0).sum()) + 2 * n_columns
    outputs = arrays["grid.points"].size
    asked = config.n_members * config.width * (n_inputs + config.n_blocks * config.width + outputs)
    if n_columns and asked > stored["network"]:
        raise ModelFileError("The header asks for a larger network than the file has weights for.")
    if stored["flow"] and config.n_couplings * n_columns > stored["flow"]:
        raise ModelFileError("The header asks for more couplings than the file has weights for.")


def _check_stages(arrays: Arrays, config: PaperConfig) -> None:
    """Compare the sizes of the paper's networks with the weights that are stored of them."""
    n_stages = sum(name.startswith("stage.") and name.endswith(".theta") for name in arrays)
    if not n_stages:
        raise ModelFileError("Tensor 'stage.0.theta' is not there.")
    for k in range(n_stages):
        try:
            masks = torch.from_numpy(arrays[f"stage.{k}.masks"])
        except KeyError as error:
            raise ModelFileError(f"Tensor {error.args[0]!r} is not there.") from error
        if masks.ndim != 2 or masks.dtype != torch.bool or not masks.numel():
            raise ModelFileError(f"Tensor 'stage.{k}.masks' is no table of truth values.")
        with torch.device("meta"):
            flow = RealNVP(masks, n_layers=config.n_flow_layers)
            mapper = LatentMapper(masks.shape[1], config.n_latent_layers)
        _check_same({f"stage.{k}.theta": flow.theta.shape, f"stage.{k}.phi": mapper.phi.shape}, arrays)


def _check_same(wanted: Mapping[str, Any], arrays: Arrays) -> None:
    for name, shape in wanted.items():
        if name not in arrays or arrays[name].shape != tuple(shape):
            found = f"of shape {arrays[name].shape}" if name in arrays else "not there"
            raise ModelFileError(f"Tensor {name!r} is {found}, but has to be of shape {tuple(shape)}.")
