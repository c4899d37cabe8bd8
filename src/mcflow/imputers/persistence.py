"""Model files: a fitted imputer as tensors and a JSON header, without pickle."""

from __future__ import annotations

__all__ = ["load", "load_table_model", "save"]

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

import mcflow
from mcflow.columns.constraints import Constraints
from mcflow.config import check_parameter
from mcflow.errors import DataError, ModelFileError, ParameterError
from mcflow.files.atomic import read_tensors, write_tensors
from mcflow.imputers import model_checks
from mcflow.imputers.base import COLUMN_SETTINGS
from mcflow.imputers.image import IMAGE_ALGORITHMS, MCFlowImageImputer
from mcflow.imputers.model_checks import ModelHeader, parse_config, parse_header
from mcflow.imputers.presets import choose_device, config_to_dict, set_model, table_algorithm
from mcflow.imputers.table import MCFlowImputer
from mcflow.typing import Array, Header

KIND = "model"  # as opposed to a checkpoint
#: Parameters that are not saved, or saved in another form.
NOT_SAVED = ("checkpoint_dir", "random_state", "schema", *COLUMN_SETTINGS)


def save(imputer: MCFlowImputer | MCFlowImageImputer, path: str | Path) -> None:
    """Save a fitted imputer to a file."""
    check_is_fitted(imputer)
    tensors, header = imputer.model_.tensors(), _header(imputer)
    if isinstance(imputer, MCFlowImageImputer):
        header |= {"images": dataclasses.asdict(imputer.codec_)}
    else:
        _refuse_labels(imputer)
        header |= {"schema": imputer.schema_.to_dict(), "constraints": imputer.constraints_.to_dict()}
        header |= {"others": [{"seed": model.seed} for model in imputer.other_models_]}
        for k, model in enumerate(imputer.other_models_):
            tensors |= {f"other.{k}.{name}": array for name, array in model.tensors().items()}
    write_tensors(Path(path), KIND, header, tensors)


def load(path: str | Path, *, device: str = "auto") -> Any:
    """Load a fitted imputer from a file.

    Parameters
    ----------
    path : path-like
        A file written by `MCFlowImputer.save` or `MCFlowImageImputer.save`, also of an earlier version.
    device : str, default="auto"
        Device to compute on.

    Returns
    -------
    MCFlowImputer or MCFlowImageImputer
        Its results equal those of the saved imputer bit for bit on the same device. Settings of columns are in
        `schema_` and `constraints_`, not in the parameters.

    Raises
    ------
    ModelFileError
        If the file is truncated, modified, of another program or of a newer format.
    FileNotFoundError
        If there is no such file.
    """
    version, header, arrays = read_tensors(Path(path), KIND)
    try:
        if version == 1:
            header, arrays = _from_1(header, arrays)
        return _build(parse_header(header), arrays, device)
    except (ModelFileError, ParameterError) as error:
        if isinstance(error, ParameterError) and device != "auto":
            choose_device(device)  # a wrong device is no fault of the file
        raise ModelFileError(f"{path} is not a usable model: {error}") from error
    except Exception as error:  # the file has a valid checksum, and says what no model says
        raise ModelFileError(
            f"{path} lacks a part of a model ({type(error).__name__}: {str(error)[:200]}). Save it again."
        ) from error


def load_table_model(path: str | Path, *, device: str = "auto") -> MCFlowImputer:
    """Load a fitted imputer of tables from a file."""
    imputer = load(path, device=device)
    if not isinstance(imputer, MCFlowImputer):
        raise ModelFileError(f"{path} is a model of images. Use it with `mcflow impute-images`.")
    return imputer


def _refuse_labels(imputer: MCFlowImputer) -> None:
    """Raise `DataError` if a column has a name that JSON cannot represent."""
    for column in imputer.schema_.columns:
        if not isinstance(column.name, str | int | float):
            raise DataError(
                f"Column {column.name!r} has a name of type {type(column.name).__name__}, which a model file cannot "
                "hold. Rename it to a text or a number, and fit again."
            )


def _header(imputer: MCFlowImputer | MCFlowImageImputer) -> Header:
    """Return the part of the header that models of tables and of images share."""
    parameters = {name: _plain(value) for name, value in imputer.get_params().items() if name not in NOT_SAVED}
    return {
        "estimator": type(imputer).__name__,
        "mcflow": mcflow.__version__,
        "parameters": parameters | {"random_state": imputer.seed_},
        "config": config_to_dict(imputer.config_),
        "seed": imputer.seed_,
        "history": imputer.history_.to_dict(),
    }


def _plain(value: Any) -> Any:
    """Return numpy numbers and configurations in a form that JSON can represent."""
    if dataclasses.is_dataclass(value):
        return config_to_dict(value)  # type: ignore[arg-type]
    return value.item() if isinstance(value, np.generic) else value


def _parameters(estimator: type, header: ModelHeader, device: str) -> dict[str, Any]:
    parameters = dict(header.parameters)
    unknown = set(parameters) - set(estimator._get_param_names())  # type: ignore[attr-defined]
    if unknown:
        raise ModelFileError(f"header.parameters has {min(unknown)[:80]!r}, which is no parameter.")
    if isinstance(parameters.get("preset"), dict):
        parameters["preset"] = parse_config(parameters["preset"], "header.parameters.preset")
    parameters |= {"device": device}
    for name, value in parameters.items():
        check_parameter(name, value, estimator.constraints.get(name))  # type: ignore[attr-defined]
    return parameters


def _build(header: ModelHeader, arrays: dict[str, Array], device: str) -> Any:
    """Build an imputer, and fill a row or an image with each model, so that a file that cannot do so is refused."""
    kind = MCFlowImputer if header.images is None else MCFlowImageImputer
    imputer: Any = kind(**_parameters(kind, header, device))
    config, chosen = parse_config(header.config), choose_device(device)
    if header.images is not None:
        imputer.codec_ = codec = header.images
        model_checks.check_image_tensors(arrays, codec, config)
        algorithm, parts = IMAGE_ALGORITHMS[type(config)]
        models = [algorithm.from_tensors(arrays, codec, config, {"seed": header.seed}, chosen, **parts)]
        shape = (1, codec.channels, codec.height, codec.width)
        filled = [models[0].fill(torch.zeros(shape), torch.ones(shape, dtype=torch.bool)).numpy()]
    else:
        assert header.schema is not None
        assert header.constraints is not None
        columns = [header.schema.columns[p] for p in header.schema.model]
        models = []
        seeds = {"": header.seed} | {f"other.{k}.": other.seed for k, other in enumerate(header.others)}
        for prefix, seed in seeds.items():
            own = _with_prefix(arrays, prefix)
            model_checks.check_table_tensors(own, columns, config)
            models.append(table_algorithm(config).from_tensors(own, columns, config, {"seed": seed}, chosen))
        filled = [model.fill(np.full((1, len(columns)), np.nan)) for model in models if model.is_fitted]
        imputer.other_models_ = models[1:]
        imputer._remember(header.schema, Constraints.from_dict(dataclasses.asdict(header.constraints)))
    if not all(np.isfinite(one).all() for one in filled):
        raise ModelFileError("the model fills cells with numbers that are not finite.")
    for model in models:
        model.history = header.history
    set_model(imputer, models[0], header.seed)
    return imputer


def _with_prefix(arrays: dict[str, Array], prefix: str) -> dict[str, Array]:
    """Return the arrays of a bootstrap copy, whose names have a prefix, or of the first model without one."""
    if not prefix:
        return {name: array for name, array in arrays.items() if not name.startswith("other.")}
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


#: Tensors of format 1 by the start of their names, and their names since.
_TENSORS_OF_1 = {
    "grid.bends": "grid.asinh_params",
    "grid.atoms": "grid.point_masses",
    "votes": "gaussian_share",
    "normal.": "gaussian.",
    "mapper.bends": "network.asinh_params",
    "mapper.": "network.",
}
#: Fields of the sections of format 1 that have another name since; None drops the field.
_FIELDS_OF_1: dict[str, dict[str, Any]] = {
    "masked": {"masked": None, "n_layers": None, "held_share": "validation_share", "window": None, "scaling": None}
    | {"likelihood_weight": None, "tolerance": None, "refills": None, "reads_mask": None},
    "paper": dict.fromkeys(("masked", "hide_share", "held_share", "weight_decay", "n_blocks", "width"))
    | dict.fromkeys(("n_members", "n_knots", "n_points", "reads_mask")),
    "images": {"masked": None, "n_layers": None, "held_share": "validation_share", "window": None, "scaling": None}
    | {"likelihood_weight": None, "tolerance": None, "refills": None, "hide_share": None, "n_couplings": None}
    | dict.fromkeys(("n_members", "n_knots", "n_points", "reads_mask")),
}
#: Knot below all units, above the number that stands for a hidden cell.
_MASK_KNOT = -1e37
#: Chains of format 1 for images of the paper's preset, which were constants then.
_IMAGE_CHAINS_OF_1 = {"burn_in": 40, "thinning": 5, "n_states": 39, "state_thinning": 1}


def _from_1(header: Header, arrays: dict[str, Array]) -> tuple[Header, dict[str, Array]]:
    """Return header and tensors of a file of format 1 as the current format has them."""
    of_images = header["estimator"] == "MCFlowImageImputer"
    parameters = dict(header["parameters"])
    if isinstance(parameters["preset"], dict):
        parameters["preset"] = _config_of_1(parameters["preset"], of_images)
    epochs = [
        {name.replace("held_error", "validation_error"): value for name, value in epoch.items()}
        for epoch in header["history"]["epochs"]
    ]
    history = {**header["history"], "epochs": epochs}
    new: dict[str, Any] = {**header, "parameters": parameters, "history": history}
    new["config"] = _config_of_1(header["settings"], of_images)
    if not of_images:
        columns = [
            {name.replace("levels", "categories"): value for name, value in column.items()}
            for column in header["schema"]["columns"]
        ]
        new["schema"] = {**header["schema"], "columns": columns}
        new["others"] = [{"seed": other["seed"]} for other in header["others"]]
    if new["config"]["algorithm"] != "paper":
        arrays = {_renamed(name): array for name, array in arrays.items()}
    if new["config"]["algorithm"] == "masked" and header["settings"]["latent"].get("reads_mask", True):
        for prefix in ("", *(f"other.{k}." for k in range(len(new["others"])))):
            arrays |= _without_mask(arrays, prefix)
    return new, arrays


def _without_mask(arrays: dict[str, Array], prefix: str) -> dict[str, Array]:
    """Return the tensors of H that change when the mask, an input of format 1, becomes an interval between knots.

    The interval begins below all others, so that its input is 1 for an observed cell and 0 for a missing one.
    """
    knots, weights = arrays[f"{prefix}grid.knots"], arrays[f"{prefix}network.weights.0"]
    counts = (np.diff(knots, axis=1) > 0).sum(axis=1)
    first, masks = np.cumsum(counts) - counts, slice(weights.shape[1] - len(knots), None)
    intervals: dict[str, Any] = {"start": _MASK_KNOT, "scale": -1 / _MASK_KNOT, "owner": np.arange(len(knots))}
    return {
        f"{prefix}grid.knots": np.insert(knots, 0, _MASK_KNOT, axis=1),
        f"{prefix}network.weights.0": np.insert(weights[:, : masks.start], first, weights[:, masks], axis=1),
        **{
            f"{prefix}network.{name}": np.insert(arrays[f"{prefix}network.{name}"], first, value)
            for name, value in intervals.items()
        },
    }


def _config_of_1(sections: dict[str, dict[str, Any]], of_images: bool) -> dict[str, Any]:
    """Return the four sections of settings of format 1 as one configuration."""
    algorithm = ("images" if of_images else "masked") if sections["latent"]["masked"] else "paper"
    config: dict[str, Any] = {"algorithm": algorithm}
    if algorithm == "paper":
        config |= _IMAGE_CHAINS_OF_1 if of_images else {}
        config["n_flow_layers"] = sections["flow"]["n_layers"]
        config["n_latent_layers"] = sections["latent"]["n_layers"]
    for section in sections.values():
        for name, value in section.items():
            new = _FIELDS_OF_1[algorithm].get(name, name)
            if new is not None and name != "n_layers":
                config[new] = value
    return config


def _renamed(name: str) -> str:
    prefix, own = (name[: len("other.0.")], name[len("other.0.") :]) if name.startswith("other.") else ("", name)
    for old, new in _TENSORS_OF_1.items():
        if own.startswith(old):
            return prefix + new + own[len(old) :]
    return name
