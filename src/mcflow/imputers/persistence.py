"""A fitted imputer as one file: tensors and a JSON header, no pickle."""

from __future__ import annotations

__all__ = ["load", "load_table_model", "save"]

from pathlib import Path
from typing import Any

import numpy as np
import torch

import mcflow
from mcflow.config import Settings
from mcflow.data.constraints import Constraints
from mcflow.data.files import read_tensors, write_tensors
from mcflow.data.pixels import PixelCodec
from mcflow.data.schema import TableSchema
from mcflow.errors import ModelFileError
from mcflow.imputers.fitting import choose_device
from mcflow.imputers.flow_images import FlowImageModel
from mcflow.imputers.image import MCFlowImageImputer
from mcflow.imputers.masked_images import MaskedImageModel
from mcflow.imputers.masked_model import MaskedModel
from mcflow.imputers.model import FlowModel
from mcflow.imputers.table import MCFlowImputer
from mcflow.training.history import History
from mcflow.typing import Array, Header

KIND = "model"
#: Parameters that are kept in another form, or belong to the fit that was.
FORGOTTEN = ("checkpoint_dir", "random_state", "kinds", "roles", "bounds", "allowed", "rules")


def save(imputer: MCFlowImputer | MCFlowImageImputer, path: str | Path) -> None:
    """Write a fitted imputer to a file.

    Parameters
    ----------
    imputer : MCFlowImputer or MCFlowImageImputer
        Fitted.
    path : path-like
        The file to make or to replace.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(imputer)
    tensors = imputer.model_.tensors()
    if isinstance(imputer, MCFlowImageImputer):
        write_tensors(Path(path), KIND, _image_header(imputer), tensors)
        return
    for k, model in enumerate(imputer.other_models_):
        tensors |= {f"other.{k}.{name}": array for name, array in model.tensors().items()}
    write_tensors(Path(path), KIND, _header(imputer), tensors)


def load(path: str | Path, *, device: str = "auto") -> Any:
    """Read a fitted imputer from a file.

    Parameters
    ----------
    path : path-like
        What `MCFlowImputer.save` or `MCFlowImageImputer.save` wrote.
    device : str, default="auto"
        Where to compute.

    Returns
    -------
    MCFlowImputer or MCFlowImageImputer
        Its answers equal the saved one's bit for bit on the same device. What was said about columns is in `schema_`
        and `constraints_`, not in the parameters.

    Raises
    ------
    ModelFileError
        When the file is truncated, altered, of another program or of a newer format.
    FileNotFoundError
        When there is no such file.
    """
    header, arrays = read_tensors(Path(path), KIND)
    try:
        of_images = header["estimator"] == "MCFlowImageImputer"
        return _build_image(header, arrays, device) if of_images else _build(header, arrays, device)
    except (KeyError, TypeError) as error:
        raise ModelFileError(f"{path} lacks a part of a model ({error}). Save it again.") from error


def load_table_model(path: str | Path, *, device: str = "auto") -> MCFlowImputer:
    """Read a fitted imputer of tables from a file.

    Parameters
    ----------
    path : path-like
        What `MCFlowImputer.save` wrote.
    device : str, default="auto"
        Where to compute.

    Returns
    -------
    MCFlowImputer

    Raises
    ------
    ModelFileError
        When it is no such model.
    """
    imputer = load(path, device=device)
    if not isinstance(imputer, MCFlowImputer):
        raise ModelFileError(f"{path} is a model of images. `mcflow impute-images` uses it.")
    return imputer


def _shared_header(imputer: MCFlowImputer | MCFlowImageImputer) -> Header:
    parameters = {name: _plain(value) for name, value in imputer.get_params().items() if name not in FORGOTTEN}
    return {
        "estimator": type(imputer).__name__,
        "mcflow": mcflow.__version__,
        "parameters": parameters | {"random_state": imputer.seed_},
        "settings": imputer.settings_.to_dict(),
        "seed": imputer.seed_,
        "n_stages": len(imputer.stages_),
        "history": imputer.history_.to_dict(),
    }


def _image_header(imputer: MCFlowImageImputer) -> Header:
    return _shared_header(imputer) | {"images": imputer.codec_.to_dict()}


def _header(imputer: MCFlowImputer) -> Header:
    return _shared_header(imputer) | {
        "schema": imputer.schema_.to_dict(),
        "constraints": imputer.constraints_.to_dict(),
        "others": [{"n_stages": len(model.stages), "seed": model.seed} for model in imputer.other_models_],
    }


def _plain(value: Any) -> Any:
    """Return numpy's numbers and settings in a form that JSON can hold."""
    if isinstance(value, Settings):
        return value.to_dict()
    return value.item() if isinstance(value, np.generic) else value


def _parameters(header: Header, device: str) -> dict[str, Any]:
    """Return an estimator's parameters as they were, on another device."""
    parameters: dict[str, Any] = dict(header["parameters"])
    if isinstance(parameters["preset"], dict):
        parameters["preset"] = Settings.from_dict(parameters["preset"])
    return parameters | {"device": device}


def _build_image(header: Header, arrays: dict[str, Array], device: str) -> MCFlowImageImputer:
    imputer = MCFlowImageImputer(**_parameters(header, device))
    imputer.codec_ = PixelCodec(**header["images"])
    imputer.settings_, imputer.seed_ = Settings.from_dict(header["settings"]), header["seed"]
    kind: type[FlowImageModel] | type[MaskedImageModel]
    kind = MaskedImageModel if imputer.settings_.latent.masked else FlowImageModel
    model = kind.from_tensors(arrays, imputer.codec_, imputer.settings_, header, choose_device(device))
    model.history = History.from_dict(header["history"])
    imputer.model_, imputer.stages_, imputer.history_ = model, model.stages, model.history
    imputer.n_epochs_ = len(model.history.epochs)
    return imputer


def _build(header: Header, arrays: dict[str, Array], device: str) -> MCFlowImputer:
    imputer = MCFlowImputer(**_parameters(header, device))
    schema = TableSchema.from_dict(header["schema"])
    imputer.settings_ = Settings.from_dict(header["settings"])
    imputer.seed_ = header["seed"]
    imputer.model_ = _model(header, arrays, schema, imputer.settings_, choose_device(device))
    imputer.other_models_ = []
    for k, said in enumerate(header["others"]):
        own = {name.removeprefix(f"other.{k}."): a for name, a in arrays.items() if name.startswith(f"other.{k}.")}
        other = _model(header | said, own, schema, imputer.settings_, choose_device(device))
        imputer.other_models_.append(other)
    imputer.stages_, imputer.history_ = imputer.model_.stages, imputer.model_.history
    imputer.n_epochs_ = len(imputer.history_.epochs)
    imputer._remember(schema, Constraints.from_dict(header["constraints"]))
    return imputer


def _model(
    header: Header, arrays: dict[str, Array], schema: TableSchema, settings: Settings, device: torch.device
) -> FlowModel | MaskedModel:
    columns = [schema.columns[p] for p in schema.model]
    kind: type[FlowModel] | type[MaskedModel] = MaskedModel if settings.latent.masked else FlowModel
    model = kind.from_tensors(arrays, columns, settings, header, device)
    model.history = History.from_dict(header["history"])
    return model
