"""Measure one cell of the energy distance: hide cells of a complete table, draw them, and compare the tables."""

from __future__ import annotations

__all__ = ["hidden_cells", "hide_frame", "measure_energy"]

import time
import warnings
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from mcflow.errors import DataError
from mcflow.evaluation.methods import MethodSpec
from mcflow.metrics import energy_by_column
from mcflow.missingness import mar
from mcflow.typing import BoolArray, FloatArray
from mcflow_bench.machine import peak_mib
from mcflow_bench.rivals.rmice import build_method, is_r, mice_version
from mcflow_bench.suites import EnergyTask

if TYPE_CHECKING:
    import pandas as pd

#: The seed of a mask is its number plus this one, as where the stored figures of R's mice were measured.
FIRST_SEED = 1000


def hidden_cells(frame: pd.DataFrame, mechanism: str, rate: float, mask: int) -> BoolArray:
    """Return the cells to hide, (n_rows, n_columns); no row loses all its cells."""
    if mechanism == "mar":
        hidden = mar(frame, rate, random_state=FIRST_SEED + mask)
    else:
        hidden = np.random.default_rng(FIRST_SEED + mask).random(frame.shape) < rate
    hidden[hidden.all(axis=1)] = False
    return hidden


def hide_frame(frame: pd.DataFrame, hidden: BoolArray) -> pd.DataFrame:
    """Return a copy without the hidden cells; columns of integers become floats."""
    table = frame.copy()
    for k, name in enumerate(frame.columns):
        column = frame[name].astype("float64") if frame[name].dtype.kind in "iu" else frame[name]
        table[name] = column.mask(hidden[:, k])
    return table


def measure_energy(task: EnergyTask, path: Path) -> dict[str, Any]:
    """Fit a method, draw the hidden cells, and return the mean energy distance over the draws."""
    import pandas as pd

    frame = pd.read_parquet(path)
    hidden = hidden_cells(frame, task.mechanism, task.rate, task.mask)
    incomplete = hide_frame(frame, hidden)
    spec = MethodSpec.parse(task.method)
    imputer = build_method(spec, task.mask, ours={"restore_integers": False})
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those on column types do not matter here
        imputer.fit(incomplete)
        fitted = time.perf_counter()
        draws = _draws(imputer, incomplete, task)
        drawn = time.perf_counter()
        filled = None if is_r(spec.name) else imputer.transform(incomplete)
    categorical = [k for k, kind in enumerate(frame.dtypes) if isinstance(kind, pd.CategoricalDtype)]
    truth, tables = _codes(frame, frame, categorical), [_codes(frame, table, categorical) for table in draws]
    split = np.array([energy_by_column(truth, table, categorical) for table in tables])  # (n_draws, n_columns)
    values, parts = split.sum(axis=1).tolist(), split.mean(axis=0)
    scores = {"energy": {"value": fmean(values), "error": stdev(values) if len(values) > 1 else None}}
    if filled is not None:
        fill = energy_by_column(truth, _codes(frame, filled, categorical), categorical)
        scores["fill_energy"] = {"value": float(fill.sum()), "error": None}
    return {
        "status": "done",
        "message": "",
        "scores": scores,
        "columns": {str(name): round(float(part), 5) for name, part in zip(frame.columns, parts, strict=True)},
        "data": {"rows": len(frame), "columns": frame.shape[1], "hidden_cells": int(hidden.sum())},
        "fit_s": round(fitted - start, 4),
        "draw_s": round(drawn - fitted, 4),
        "peak_mib": peak_mib(),
    } | ({"mice": mice_version()} if is_r(spec.name) else {})


def _draws(imputer: Any, incomplete: pd.DataFrame, task: EnergyTask) -> list[Any]:
    """Return the draws, or the fill of a method that has none."""
    if hasattr(imputer, "draw"):
        return list(imputer.draw(incomplete, m=task.draws, random_state=task.mask))
    return [imputer.transform(incomplete)]


def _codes(frame: pd.DataFrame, table: Any, categorical: list[int]) -> FloatArray:
    """Return a table as numbers, with the categories as the codes that they have in `frame`."""
    codes = np.empty(frame.shape)
    for k, name in enumerate(frame.columns):
        if k in categorical:
            codes[:, k] = frame[name].cat.categories.get_indexer(table[name].astype(object))
        else:
            codes[:, k] = table[name].to_numpy(dtype=np.float64, na_value=np.nan)
    if left := int((np.isnan(codes) | (codes < 0) & np.isin(np.arange(frame.shape[1]), categorical)).sum()):
        raise DataError(f"{left} cells of a draw are missing.")
    return codes
