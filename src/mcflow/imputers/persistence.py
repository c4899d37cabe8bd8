"""A fitted imputer as one file: tensors and a JSON header, no pickle."""

from __future__ import annotations

__all__ = ["load", "save"]

from pathlib import Path
from typing import Any

import numpy as np
import torch

import mcflow
from mcflow.config import Settings
from mcflow.data.codecs import RangeCodec
from mcflow.data.files import read_tensors, write_tensors
from mcflow.data.schema import TableSchema
from mcflow.errors import ModelFileError
from mcflow.imputers.table import MCFlowImputer, choose_device
from mcflow.masks.initial import Marginals
from mcflow.training.history import History
from mcflow.training.stages import stage_tensors, stages_from
from mcflow.typing import Array, Header

KIND = "model"
#: Parameters that belong to the fit that was, not to the model.
FORGOTTEN = ("checkpoint_dir", "random_state")


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
    write_tensors(Path(path), KIND, _header(imputer), _tensors(imputer))


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
        Its answers equal the saved one's bit for bit on the same device.

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
        "seed": imputer.seed_,
        "n_stages": len(imputer.stages_),
        "history": imputer.history_.to_dict(),
    }


def _plain(value: Any) -> Any:
    """Return numpy's numbers as Python's, which JSON can hold."""
    return value.item() if isinstance(value, np.generic) else value


def _tensors(imputer: MCFlowImputer) -> dict[str, Array]:
    tensors = {name: tensor.detach().cpu().numpy() for name, tensor in stage_tensors(imputer.stages_).items()}
    return tensors | {
        "low": imputer.codec_.low,
        "span": imputer.codec_.span,
        "quantiles": imputer.marginals_.quantiles,
    }


def _build(header: Header, arrays: dict[str, Array], device: str) -> MCFlowImputer:
    parameters: dict[str, Any] = header["parameters"]
    imputer = MCFlowImputer(**parameters | {"device": device})
    imputer.settings_ = Settings.from_dict(header["settings"])
    imputer.seed_ = header["seed"]
    imputer.history_ = History.from_dict(header["history"])
    imputer.n_epochs_ = len(imputer.history_.epochs)
    imputer.codec_ = RangeCodec(arrays["low"], arrays["span"])
    imputer.marginals_ = Marginals(arrays["quantiles"])
    place = choose_device(device)
    tensors = {name: torch.from_numpy(array).to(place) for name, array in arrays.items() if "stage." in name}
    imputer.stages_ = stages_from(tensors, header["n_stages"], imputer.settings_)
    imputer._remember(TableSchema.from_dict(header["schema"]))
    return imputer
