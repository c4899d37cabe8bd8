"""Fill hidden cells of the Letter table by both presets and by scikit-learn's loops of trees and of ridge, in one run.

    MCFLOW_DATA=folder python speed/letter.py [--epochs 64]

One fold: rows in random order, a fifth of all cells hidden, fitted on four fifths of the rows, RMSE over the hidden
cells of the rest in units of each column's range. Writes speed/results/letter.json.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from typing import Any

import numpy as np

from mcflow import MCFlowImputer
from mcflow.metrics import rmse
from results import environment, table_path, write

Table = np.ndarray[Any, Any]


def split(rows: Table, rate: float = 0.2) -> tuple[Table, Table, Table]:
    """Return training rows and test rows with holes, and the whole test rows."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(rows))
    hidden = rng.random(rows.shape) < rate
    rows = rows[order]
    holed = np.where(hidden, np.nan, rows)
    n_test = len(rows) // 5
    return holed[n_test:], holed[:n_test], rows[:n_test]


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


def measure(imputer: Any, span: Table, train: Table, test: Table, truth: Table) -> dict[str, float]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=64)
    options = parser.parse_args()
    path = table_path("letter")
    if path is None:
        sys.exit("skipped: MCFLOW_DATA does not name a folder with letter.parquet")
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    rows = np.column_stack([table.column(c).to_numpy().astype(float) for c in table.column_names if c != "lettr"])
    span = rows.max(axis=0) - rows.min(axis=0)
    parts = split(rows)
    warnings.simplefilter("ignore", category=UserWarning)  # the ridge loop says that it has not converged
    found = {name: measure(imputer, span, *parts) for name, imputer in methods(options.epochs).items()}
    write("letter", {"data": "Letter, 20 % of the cells hidden, one fold", "methods": found} | environment())


if __name__ == "__main__":
    main()
