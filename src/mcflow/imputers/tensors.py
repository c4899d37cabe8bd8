"""Checks of the tensors of a model file against its header, before anything is built from them."""

from __future__ import annotations

__all__ = ["check_image_tensors", "check_table_tensors"]

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from mcflow.columns.schema import CATEGORY_KINDS, Column
from mcflow.errors import ModelFileError
from mcflow.images.config import ImageConfig
from mcflow.images.model import MaskedImageModel
from mcflow.images.pixels import PixelCodec
from mcflow.masked.config import MaskedConfig
from mcflow.paper.config import PaperConfig
from mcflow.paper.latent import LatentMapper
from mcflow.paper.realnvp import RealNVP
from mcflow.typing import Array

Arrays = Mapping[str, Array]

#: Tensors that hold bounds, which may be infinite. No other may, and none may hold NaN.
BOUNDS = ("box", "factored.units")

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
    "pooled": "columns 4",
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
    else:
        _check_stages(arrays, config)


def check_image_tensors(arrays: Arrays, codec: PixelCodec, config: Any) -> None:
    """Raise `ModelFileError` if the tensors of a model of images do not fit its images and configuration."""
    _check_numbers(arrays)
    numbers = codec.height * codec.width * codec.channels
    _check_shapes(arrays, PAPER_IMAGE_SHAPES, {"columns": codec.channels, "numbers": numbers}, [])
    if isinstance(config, ImageConfig):
        with torch.device("meta"):
            parts = dict(zip(("network", "flow"), MaskedImageModel(config, codec)._build(), strict=True))
        wanted = {f"{name}.{key}": t.shape for name, part in parts.items() for key, t in part.state_dict().items()}
        _check_same({name: tuple(shape) for name, shape in wanted.items()}, arrays)
    else:
        _check_stages(arrays, config)


def _check_numbers(arrays: Arrays) -> None:
    """Refuse tensors of other types than mcflow writes, NaN, and infinities that are no bounds."""
    for name, array in arrays.items():
        if array.dtype not in (np.float32, np.float64, np.int64, np.int32, np.int16, np.int8, np.uint8, np.bool_):
            raise ModelFileError(f"Tensor {name!r} has the type {array.dtype}, which no model has.")
        bounds = name.rpartition("other.")[2].partition(".")[2] if name.startswith("other.") else name
        finite = np.isfinite(array) if bounds not in BOUNDS else ~np.isnan(array)
        if not finite.all():
            raise ModelFileError(
                f"Tensor {name!r} holds {int((~finite).sum()):,} numbers that are not finite, so that nothing can be "
                "filled with this model. Fit it again."
            )


def _check_shapes(arrays: Arrays, shapes: Mapping[str, str], sizes: dict[str, int], categories: list[int]) -> None:
    """Compare shapes with a table of them, in which the `sizes` that are not known yet are found."""
    patterns = {
        name: re.compile(re.escape(name).replace(r"\#", r"(\d{1,9})").replace(r"\*", r"\d+")) for name in shapes
    }
    for name in sorted(arrays):
        pattern = next((one for one, compiled in patterns.items() if compiled.fullmatch(name)), None)
        if pattern is None:
            continue
        match = patterns[pattern].fullmatch(name)
        place = int(match[1]) if match is not None and match.groups() else 0
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
    stored = {part: sum(a.size for name, a in arrays.items() if name.startswith(f"{part}.")) for part in _PARTS}
    n_inputs = int((np.diff(arrays["grid.knots"], axis=1) > 0).sum()) + 2 * n_columns
    outputs = arrays["grid.points"].size
    asked = config.n_members * config.width * (n_inputs + config.n_blocks * config.width + outputs)
    if stored["network"] and asked > stored["network"]:
        raise ModelFileError("The header asks for a larger network than the file has weights for.")
    if stored["flow"] and config.n_couplings * n_columns > stored["flow"]:
        raise ModelFileError("The header asks for more couplings than the file has weights for.")


_PARTS = ("network", "flow")


def _check_stages(arrays: Arrays, config: PaperConfig) -> None:
    """Compare the sizes of the paper's networks with the weights that are stored of them."""
    n_stages = sum(name.startswith("stage.") and name.endswith(".theta") for name in arrays)
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
