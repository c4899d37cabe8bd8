"""Collect the content of a report as a dictionary that JSON can hold, with the training and origin of the model."""

from __future__ import annotations

__all__ = ["report_facts"]

import itertools
import platform
from importlib import metadata
from typing import Any

import numpy as np

import mcflow
from mcflow.evaluation.wording import clean
from mcflow.fitting.callbacks import ENDINGS, History
from mcflow.report.calibration import calibration_facts
from mcflow.report.distributions import column_facts
from mcflow.report.facts_columns import accuracy_facts, inspection_facts
from mcflow.report.facts_correlations import correlation_facts
from mcflow.report.facts_fills import fill_facts
from mcflow.report.facts_missing import missing_facts
from mcflow.report.facts_uncertainty import uncertainty_facts
from mcflow.report.tables import Limits, ReportTables, evenly_spaced

#: Maximum number of points of a loss curve.
MAX_POINTS = 400
#: Packages whose versions are reported.
PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "pyarrow", "narwhals")
#: Parameters that do not affect the result.
_IRRELEVANT = ("verbose", "checkpoint_dir")


def report_facts(
    imputer: Any,
    before: Any,
    after: Any = None,
    *,
    draws: Any = None,
    evaluation: Any = None,
    command: str | None = None,
    source: str | None = None,
    date: str | None = None,
) -> dict[str, Any]:
    """Collect the content of a report on an imputed table.

    Parameters
    ----------
    imputer, before, after, draws, evaluation, command, source, date : object
        The arguments of `report_html`; at most ten draws are read.

    Returns
    -------
    dict
        Dictionaries, lists, strings and numbers. Sections that do not apply are None.

    Raises
    ------
    DataError
        If the tables do not belong together.
    """
    limits = Limits()
    tables = ReportTables.read(imputer, before, after, draws)
    calibration = calibration_facts(imputer)
    return {
        "source": None if source is None else clean(source, 200),
        "date": date,
        "inspection": inspection_facts(tables, imputer, limits),
        "accuracy": accuracy_facts(imputer, calibration),
        "missing": missing_facts(tables, limits),
        "fills": fill_facts(tables, getattr(imputer, "constraints_", None), limits),
        "training": _training(imputer),
        "columns": column_facts(tables, limits),
        "correlations": correlation_facts(tables, limits),
        "uncertainty": uncertainty_facts(tables, imputer, limits),
        "calibration": calibration,
        "evaluation": None if evaluation is None else dict(evaluation),
        "origin": _origin(imputer, command),
    }


def _training(imputer: Any) -> dict[str, Any] | None:
    """Return the loss curves and how training ended."""
    history: History | None = getattr(imputer, "history_", None)
    if not isinstance(history, History):
        return None
    epochs = history.epochs
    shown = [epochs[k] for k in evenly_spaced(len(epochs), MAX_POINTS)]
    starts = [epoch.epoch for before, epoch in itertools.pairwise(epochs) if epoch.stage != before.stage]
    return {
        "n_epochs": len(epochs),
        "ending": history.ending,
        "ending_words": ENDINGS.get(history.ending, "there was nothing to learn"),
        "cut_short": history.cut_short,
        "seconds": float(np.sum(history.column("seconds"))),
        "has_flow_loss": any(epoch.flow_loss for epoch in epochs),
        "epochs": [epoch.epoch for epoch in shown],
        "flow_loss": [epoch.flow_loss for epoch in shown],
        "latent_loss": [epoch.latent_loss for epoch in shown],
        "validation": [[epoch.epoch, epoch.validation_error] for epoch in epochs if epoch.validation_error is not None],
        "stage_starts": starts,
        "n_stages": len(starts) + 1 if epochs else 0,
        "n_models": 1 + len(getattr(imputer, "other_models_", [])),
        "masked": hasattr(getattr(imputer, "config_", None), "n_validations"),
    }


def _origin(imputer: Any, command: str | None) -> dict[str, Any]:
    """Return the command, seed, parameters and versions."""
    versions = {"mcflow": mcflow.__version__, "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    seed = getattr(imputer, "seed_", None)
    settings = vars(imputer.config_) if hasattr(imputer, "config_") else {}
    return {
        "command": None if command is None else clean(command, 4_000),
        "imputer": None if imputer is None else type(imputer).__name__,
        "seed": None if seed is None else str(seed),
        "parameters": _parameters(imputer),
        "settings": {name: clean(value, 60) for name, value in settings.items()},
        "versions": versions,
    }


def _parameters(imputer: Any) -> dict[str, str]:
    """Return the parameters that differ from their defaults."""
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
        if name not in _IRRELEVANT and repr(usual.get(name)) != repr(value) and value not in (None, {}, [])
    }
