"""Compare the error of `preset="paper"` on categories of the Adult table with that of the most frequent category.

    MCFLOW_DATA=folder python bench/speed/adult.py [--epochs 16] [--dry]

One fold: rows in random order, a fifth of all cells hidden, fitted on four fifths of the rows; the fraction of wrong
categories among the hidden cells of the rest, for every categorical column.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import harness
from mcflow import MCFlowImputer


def measure_frame(frame: Any, epochs: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    order = rng.permutation(len(frame))
    hidden = rng.random(frame.shape) < 0.2
    frame = frame.iloc[order].reset_index(drop=True)
    n_test = len(frame) // 5
    incomplete = frame.mask(hidden)
    start = time.perf_counter()
    # The 99999 of capital_gain is a cap, which is kept as a value.
    kept: dict[str, list[int]] = {"capital_gain": []}
    imputer = MCFlowImputer(preset="paper", max_epochs=epochs, missing_values=kept, random_state=0)
    imputer.fit(incomplete[n_test:])
    fitted = time.perf_counter()
    filled = imputer.transform(incomplete[:n_test])
    seconds = {"fit_s": round(fitted - start, 1), "transform_s": round(time.perf_counter() - fitted, 2)}
    columns = {}
    for k, name in enumerate(frame.columns):
        known = hidden[:n_test, k] & frame[name][:n_test].notna().to_numpy()
        if frame[name].dtype.kind not in "iuf":
            truth = frame[name][:n_test][known]
            most_frequent = incomplete[name][n_test:].mode()[0]
            errors = float((filled[name][known] != truth).mean()), float((truth != most_frequent).mean())
            columns[name] = {"error": round(errors[0], 4), "commonest_level_error": round(errors[1], 4)}
    return {"columns": columns} | seconds


def measure(options: argparse.Namespace) -> dict[str, Any]:
    import pandas as pd

    found = measure_frame(pd.read_parquet(harness.need_table("adult")).drop(columns="split"), options.epochs)
    ratios = [c["error"] / c["commonest_level_error"] for c in found["columns"].values()]
    found |= {"mean_ratio": round(float(np.mean(ratios)), 3), "largest_ratio": round(max(ratios), 3)}
    return {"data": f"Adult, 20 % of the cells hidden, one fold, {options.epochs} epochs"} | found


if __name__ == "__main__":
    harness.main("adult", __doc__, measure, epochs=16)
