"""Facts on how the model was trained, and on what a reader needs to do it again."""

from __future__ import annotations

__all__ = ["origin_facts", "training_facts"]

import itertools
import platform
from importlib import metadata
from typing import Any

import numpy as np

import mcflow
from mcflow.config import Settings
from mcflow.report.diagnostics_canvas import thin
from mcflow.report.wording import clean
from mcflow.training.callbacks import ENDINGS
from mcflow.training.history import History

#: Points that a line is drawn through, at most.
MOST_POINTS = 400
#: What a fit rests on.
PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "pyarrow", "narwhals")
#: Parameters that say nothing of the result.
_SILENT = ("verbose", "checkpoint_dir")


def training_facts(imputer: Any) -> dict[str, Any] | None:
    """Return how both losses went.

    Parameters
    ----------
    imputer : object or None
        Fitted.

    Returns
    -------
    dict or None
        None when it keeps no history.
    """
    history: History | None = getattr(imputer, "history_", None)
    if not isinstance(history, History):
        return None
    settings: Settings | None = getattr(imputer, "settings_", None)
    epochs = history.epochs
    shown = [epochs[k] for k in thin(len(epochs), MOST_POINTS)]
    starts = [epoch.epoch for before, epoch in itertools.pairwise(epochs) if epoch.stage != before.stage]
    return {
        "n_epochs": len(epochs),
        "ending": history.ending,
        "ending_words": ENDINGS.get(history.ending, "there was nothing to learn"),
        "seconds": float(np.sum(history.column("seconds"))),
        "has_flow_loss": any(epoch.flow_loss for epoch in epochs),
        "epochs": [epoch.epoch for epoch in shown],
        "flow_loss": [epoch.flow_loss for epoch in shown],
        "latent_loss": [epoch.latent_loss for epoch in shown],
        "held": [[epoch.epoch, epoch.held_error] for epoch in epochs if epoch.held_error is not None],
        "stage_starts": starts,
        "n_stages": len(starts) + 1 if epochs else 0,
        "n_models": 1 + len(getattr(imputer, "other_models_", [])),
        "masked": bool(settings is not None and settings.latent.masked),
    }


def origin_facts(imputer: Any, command: str | None) -> dict[str, Any]:
    """Return what is needed to do it again.

    Parameters
    ----------
    imputer : object or None
        Fitted.
    command : str or None
        The command line.

    Returns
    -------
    dict
        No time and no machine's name: the same fill gives the same report.
    """
    versions = {"mcflow": mcflow.__version__, "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    seed = getattr(imputer, "seed_", None)
    return {
        "command": None if command is None else clean(command, 4_000),
        "imputer": None if imputer is None else type(imputer).__name__,
        "seed": None if seed is None else str(seed),
        "parameters": _parameters(imputer),
        "settings": _settings(imputer),
        "versions": versions,
    }


def _parameters(imputer: Any) -> dict[str, str]:
    """Return the parameters that differ from the imputer's own."""
    if not hasattr(imputer, "get_params"):
        return {}
    try:
        usual = type(imputer)().get_params(deep=False)
    except TypeError:
        usual = {}
    given = imputer.get_params(deep=False)
    return {
        name: clean(repr(value), 300)
        for name, value in sorted(given.items())
        if name not in _SILENT and repr(usual.get(name)) != repr(value) and value not in (None, {}, [])
    }


def _settings(imputer: Any) -> dict[str, str]:
    """Return every size and rate that the fit was made with."""
    settings = getattr(imputer, "settings_", None)
    if not isinstance(settings, Settings):
        return {}
    return {
        f"{section}.{name}": clean(value, 60)
        for section, values in settings.to_dict().items()
        for name, value in values.items()
    }
