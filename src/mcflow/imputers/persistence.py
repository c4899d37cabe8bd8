"""A fitted imputer as one file: tensors and a JSON header, no pickle."""

from __future__ import annotations

__all__ = ["load", "save"]

from pathlib import Path
from typing import Any

import numpy as np
import torch

import mcflow
from mcflow.config import Settings
from mcflow.data.codecs import TableCodec
from mcflow.data.constraints import Constraints
from mcflow.data.files import read_tensors, write_tensors
from mcflow.data.schema import TableSchema
from mcflow.errors import ModelFileError
from mcflow.imputers.model import FlowModel
from mcflow.imputers.table import MCFlowImputer, choose_device
from mcflow.latent.heads import LevelHead
from mcflow.masks.initial import Marginals
from mcflow.training.history import History
from mcflow.training.stages import stage_tensors, stages_from
from mcflow.typing import Array, Header

KIND = "model"
#: Parameters that are kept in another form, or belong to the fit that was.
FORGOTTEN = ("checkpoint_dir", "random_state", "kinds", "roles", "bounds", "allowed", "rules")


def save(imputer: MCFlowImputer, path: str | Path) -> None:
    """Write a fitted imputer to a file.

    Parameters
    ----------
    imputer : MCFlowImputer
        Fitted.
    path : path-like
        The file to make or to replace.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(imputer)
    write_tensors(Path(path), KIND, _header(imputer), _tensors(imputer.model_))


def load(path: str | Path, *, device: str = "auto") -> MCFlowImputer:
    """Read a fitted imputer from a file.

    Parameters
    ----------
    path : path-like
        What `MCFlowImputer.save` wrote.
    device : str, default="auto"
        Where to compute.

    Returns
    -------
    MCFlowImputer
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
        return _build(header, arrays, device)
    except (KeyError, TypeError) as error:
        raise ModelFileError(f"{path} lacks a part of a model ({error}). Save it again.") from error


def _header(imputer: MCFlowImputer) -> Header:
    parameters = {name: _plain(value) for name, value in imputer.get_params().items() if name not in FORGOTTEN}
    return {
        "estimator": type(imputer).__name__,
        "mcflow": mcflow.__version__,
        "parameters": parameters | {"random_state": imputer.seed_},
        "settings": imputer.settings_.to_dict(),
        "schema": imputer.schema_.to_dict(),
        "constraints": imputer.constraints_.to_dict(),
        "seed": imputer.seed_,
        "n_stages": len(imputer.stages_),
        "history": imputer.history_.to_dict(),
    }


def _plain(value: Any) -> Any:
    """Return numpy's numbers as Python's, which JSON can hold."""
    return value.item() if isinstance(value, np.generic) else value


def _tensors(model: FlowModel) -> dict[str, Array]:
    tensors = {name: tensor.detach().cpu().numpy() for name, tensor in stage_tensors(model.stages).items()}
    for k, head in model.heads.items():
        tensors |= {f"head.{k}.weight": head.weight.numpy(), f"head.{k}.bias": head.bias.numpy()}
    box = np.stack((model.box.low.numpy(), model.box.high.numpy()))
    return tensors | model.codec.tensors() | {"quantiles": model.marginals.quantiles, "box": box}


def _build(header: Header, arrays: dict[str, Array], device: str) -> MCFlowImputer:
    parameters: dict[str, Any] = header["parameters"]
    imputer = MCFlowImputer(**parameters | {"device": device})
    schema = TableSchema.from_dict(header["schema"])
    imputer.settings_ = Settings.from_dict(header["settings"])
    imputer.seed_ = header["seed"]
    imputer.model_ = _model(header, arrays, schema, imputer.settings_, choose_device(device))
    imputer.stages_, imputer.history_ = imputer.model_.stages, imputer.model_.history
    imputer.n_epochs_ = len(imputer.history_.epochs)
    imputer._remember(schema, Constraints.from_dict(header["constraints"]))
    return imputer


def _model(
    header: Header, arrays: dict[str, Array], schema: TableSchema, settings: Settings, device: torch.device
) -> FlowModel:
    codec = TableCodec.from_tensors([schema.columns[p] for p in schema.model], arrays)
    box = arrays["box"][0], arrays["box"][1]
    model = FlowModel(settings, codec, Marginals(arrays["quantiles"]), box, header["seed"])
    model.history = History.from_dict(header["history"])
    stages = {name: torch.from_numpy(array).to(device) for name, array in arrays.items() if name.startswith("stage.")}
    model.stages = stages_from(stages, header["n_stages"], settings)
    for k in model.levels if model.stages else ():
        weight, bias = (torch.from_numpy(arrays[f"head.{k}.{part}"]) for part in ("weight", "bias"))
        model.heads[k] = LevelHead(weight, bias)
    return model
