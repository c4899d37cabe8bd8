"""Model files: a fitted imputer as tensors and a JSON header, without pickle."""

from __future__ import annotations

__all__ = ["load", "load_table_model", "save"]

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mcflow
from mcflow.columns.constraints import Constraints
from mcflow.columns.schema import Column
from mcflow.config import check_parameter
from mcflow.errors import DataError, ModelFileError, ParameterError
from mcflow.files.atomic import read_tensors, write_tensors
from mcflow.imputers.formats import upgrade
from mcflow.imputers.headers import ModelHeader, parse_config, parse_header
from mcflow.imputers.image import IMAGE_ALGORITHMS, MCFlowImageImputer
from mcflow.imputers.models import ALGORITHMS, TableModel
from mcflow.imputers.presets import Config, choose_device, config_to_dict
from mcflow.imputers.table import MCFlowImputer
from mcflow.imputers.tensors import check_image_tensors, check_table_tensors
from mcflow.typing import Array, Header

KIND = "model"  # as opposed to a checkpoint

#: Parameters that are not saved, or saved in another form.
NOT_SAVED = (
    "checkpoint_dir",
    "random_state",
    "schema",
    "kinds",
    "roles",
    "bounds",
    "allowed",
    "rules",
    "missing_values",
)


def save(imputer: MCFlowImputer | MCFlowImageImputer, path: str | Path) -> None:
    """Save a fitted imputer to a file."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(imputer)
    tensors, header = imputer.model_.tensors(), _header(imputer)
    if isinstance(imputer, MCFlowImageImputer):
        header |= {"images": imputer.codec_.to_dict()}
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
        header, arrays = upgrade(version, header, arrays)
        parsed = parse_header(header)
        build = _build_image if parsed.images is not None else _build
        return build(parsed, arrays, device)
    except ModelFileError as error:
        raise ModelFileError(f"{path} is not a usable model: {error}") from error
    except ParameterError as error:
        if device != "auto":
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
    """Return the parameters of the estimator for a device."""
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


def _restore(imputer: Any, model: Any, header: ModelHeader) -> None:
    """Set the loaded model and its state on an imputer."""
    model.history = header.history
    imputer.model_, imputer.config_, imputer.seed_ = model, model.config, header.seed
    imputer.history_, imputer.n_epochs_ = model.history, len(model.history.epochs)


def _build_image(header: ModelHeader, arrays: dict[str, Array], device: str) -> MCFlowImageImputer:
    assert header.images is not None
    imputer = MCFlowImageImputer(**_parameters(MCFlowImageImputer, header, device))
    imputer.codec_, config = header.images, parse_config(header.config)
    check_image_tensors(arrays, imputer.codec_, config)
    algorithm, parts = IMAGE_ALGORITHMS[type(config)]
    seed = {"seed": header.seed}
    model = algorithm.from_tensors(arrays, imputer.codec_, config, seed, choose_device(device), **parts)
    _restore(imputer, model, header)
    shape = (1, imputer.codec_.channels, imputer.codec_.height, imputer.codec_.width)
    filled = model.fill(torch.zeros(shape), torch.ones(shape, dtype=torch.bool))
    _check_answer(filled.numpy())
    return imputer


def _build(header: ModelHeader, arrays: dict[str, Array], device: str) -> MCFlowImputer:
    schema, constraints = header.schema, header.constraints
    assert schema is not None
    assert constraints is not None
    imputer = MCFlowImputer(**_parameters(MCFlowImputer, header, device))
    config, columns = parse_config(header.config), [schema.columns[p] for p in schema.model]
    own = {name: array for name, array in arrays.items() if not name.startswith("other.")}
    models = [_model(own, columns, config, header.seed, device)]
    for k, other in enumerate(header.others):
        own = {name.removeprefix(f"other.{k}."): a for name, a in arrays.items() if name.startswith(f"other.{k}.")}
        models.append(_model(own, columns, config, other.seed, device))
        models[-1].history = header.history
    _restore(imputer, models[0], header)
    imputer.other_models_ = models[1:]
    imputer._remember(schema, Constraints.from_dict(dataclasses.asdict(constraints)))
    return imputer


def _model(arrays: dict[str, Array], columns: list[Column], config: Config, seed: int, device: str) -> TableModel:
    """Build a model of tables, and fill a row with it, so that a file that cannot do so is refused here."""
    check_table_tensors(arrays, columns, config)
    model = ALGORITHMS[type(config)].from_tensors(arrays, columns, config, {"seed": seed}, choose_device(device))
    if model.is_fitted:
        _check_answer(model.fill(np.full((1, len(columns)), np.nan)))
    return model


def _check_answer(filled: Array) -> None:
    if not np.isfinite(filled).all():
        raise ModelFileError("the model fills cells with numbers that are not finite.")
