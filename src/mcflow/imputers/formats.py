"""Conversion of model files of earlier formats to the current one."""

from __future__ import annotations

__all__ = ["upgrade"]

from typing import Any

from mcflow.typing import Array, Header

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
    | {"likelihood_weight": None, "tolerance": None, "refills": None},
    "paper": dict.fromkeys(("masked", "hide_share", "held_share", "weight_decay", "n_blocks", "width"))
    | dict.fromkeys(("n_members", "n_knots", "n_points", "reads_mask")),
    "images": {"masked": None, "n_layers": None, "held_share": "validation_share", "window": None, "scaling": None}
    | {"likelihood_weight": None, "tolerance": None, "refills": None, "hide_share": None, "n_couplings": None}
    | dict.fromkeys(("n_members", "n_knots", "n_points", "reads_mask")),
}

#: Chains of format 1 for images of the paper's preset, which were constants then.
_IMAGE_CHAINS_OF_1 = {"burn_in": 40, "thinning": 5, "n_states": 39, "state_thinning": 1}


def upgrade(version: int, header: Header, arrays: dict[str, Array]) -> tuple[Header, dict[str, Array]]:
    """Return header and tensors of a model file as the current format has them."""
    if version == 1:
        return _from_1(header, arrays)
    return header, arrays


def _from_1(header: Header, arrays: dict[str, Array]) -> tuple[Header, dict[str, Array]]:
    of_images = header["estimator"] == "MCFlowImageImputer"
    parameters = dict(header["parameters"])
    if isinstance(parameters["preset"], dict):
        parameters["preset"] = _config_of_1(parameters["preset"], of_images)
    history = {**header["history"], "epochs": [_epoch_of_1(epoch) for epoch in header["history"]["epochs"]]}
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
    return new, arrays


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


def _epoch_of_1(epoch: dict[str, Any]) -> dict[str, Any]:
    return {{"held_error": "validation_error"}.get(name, name): value for name, value in epoch.items()}


def _renamed(name: str) -> str:
    prefix, own = (name[: len("other.0.")], name[len("other.0.") :]) if name.startswith("other.") else ("", name)
    for old, new in _TENSORS_OF_1.items():
        if own.startswith(old):
            return prefix + new + own[len(old) :]
    return name
