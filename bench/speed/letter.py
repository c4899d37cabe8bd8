"""Compare accuracy and time of both presets with scikit-learn's iterative imputers on the Letter table.

    MCFLOW_DATA=folder python bench/speed/letter.py [--epochs 64] [--dry]

One fold: rows in random order, a fifth of all cells hidden, fitted on four fifths of the rows; RMSE over the hidden
cells of the rest in units of each column's range.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

import harness
from harness import Table
from mcflow import MCFlowImputer
from mcflow.metrics import rmse


def split(rows: Table, rate: float = 0.2) -> tuple[Table, Table, Table]:
    """Return incomplete training rows, incomplete test rows, and the complete test rows."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(rows))
    hidden = rng.random(rows.shape) < rate
    rows = rows[order]
    incomplete = np.where(hidden, np.nan, rows)
    n_test = len(rows) // 5
    return incomplete[n_test:], incomplete[:n_test], rows[:n_test]


def methods(epochs: int) -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, SimpleImputer

    boosted = HistGradientBoostingRegressor(max_iter=200)
    forest = RandomForestRegressor(100, n_jobs=-1, max_features="sqrt", random_state=0)
    return {
        "mcflow": MCFlowImputer(random_state=0),
        "mcflow, max_time=60": MCFlowImputer(max_time=60, random_state=0),
        "mcflow, max_time=20": MCFlowImputer(max_time=20, random_state=0),
        "random forest in a loop (IterativeImputer)": IterativeImputer(forest, max_iter=4, random_state=0),
        "boosted trees in a loop (IterativeImputer)": IterativeImputer(boosted, max_iter=4, random_state=0),
        "ridge in a loop (IterativeImputer)": IterativeImputer(max_iter=20, random_state=0),
        "column mean": SimpleImputer(),
        f"mcflow, preset paper, {epochs} epochs": MCFlowImputer(preset="paper", max_epochs=epochs, random_state=0),
    }


def measure_method(imputer: Any, span: Table, train: Table, test: Table, truth: Table) -> dict[str, float]:
    start = time.perf_counter()
    imputer.fit(train)
    fitted = time.perf_counter()
    filled = imputer.transform(test)
    done = time.perf_counter()
    return {
        "rmse": round(rmse(truth, filled, np.isnan(test), span).value, 4),
        "fit_s": round(fitted - start, 1),
        "transform_s": round(done - fitted, 2),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    rows = harness.letter_table()
    span, parts = np.ptp(rows, axis=0), split(rows)
    warnings.simplefilter("ignore", category=UserWarning)  # the ridge loop does not converge
    found = {name: measure_method(imputer, span, *parts) for name, imputer in methods(options.epochs).items()}
    return {"data": "Letter, 20 % of the cells hidden, one fold", "methods": found}


if __name__ == "__main__":
    harness.main("letter", __doc__, measure, epochs=64)
