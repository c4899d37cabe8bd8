"""Fill hidden cells of the Adult table, and compare the error on levels with the commonest level's.

    MCFLOW_DATA=folder python speed/adult.py [--epochs 16]

One fold: rows in random order, a fifth of all cells hidden, fitted on four fifths of the rows; the share of wrong
levels among the hidden cells of the rest, for every column of levels. Writes speed/results/adult.json.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np

from mcflow import MCFlowImputer
from results import environment, table_path, write


def measure(frame: Any, epochs: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    order = rng.permutation(len(frame))
    hidden = rng.random(frame.shape) < 0.2
    frame = frame.iloc[order].reset_index(drop=True)
    n_test = len(frame) // 5
    holed = frame.mask(hidden)
    start = time.perf_counter()
    imputer = MCFlowImputer(max_epochs=epochs, random_state=0).fit(holed[n_test:])
    fitted = time.perf_counter()
    filled = imputer.transform(holed[:n_test])
    seconds = {"fit_s": round(fitted - start, 1), "transform_s": round(time.perf_counter() - fitted, 2)}
    columns = {}
    for k, name in enumerate(frame.columns):
        known = hidden[:n_test, k] & frame[name][:n_test].notna().to_numpy()
        if frame[name].dtype.kind not in "iuf":
            truth = frame[name][:n_test][known]
            commonest = holed[name][n_test:].mode()[0]
            errors = float((filled[name][known] != truth).mean()), float((truth != commonest).mean())
            columns[name] = {"error": round(errors[0], 4), "commonest_level_error": round(errors[1], 4)}
    return {"columns": columns} | seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=16)
    options = parser.parse_args()
    path = table_path("adult")
    if path is None:
        sys.exit("skipped: MCFLOW_DATA does not name a folder with adult.parquet")
    import pandas as pd

    found = measure(pd.read_parquet(path).drop(columns="split"), options.epochs)
    ratios = [c["error"] / c["commonest_level_error"] for c in found["columns"].values()]
    found |= {"mean_ratio": round(float(np.mean(ratios)), 3), "largest_ratio": round(max(ratios), 3)}
    write(
        "adult", {"data": f"Adult, 20 % of the cells hidden, one fold, {options.epochs} epochs"} | found | environment()
    )


if __name__ == "__main__":
    main()
