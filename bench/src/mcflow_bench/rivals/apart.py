"""Fill rows by miceforest or HyperImpute, as a program of the environment that has it; it imports nothing of mcflow.

    python apart.py METHOD FOLDER

reads `rows.npz` of the folder and writes `filled.npz` and `cost.json`.
"""

from __future__ import annotations

__all__ = ["METHODS", "frame", "hyperimpute", "main", "miceforest"]

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

#: Rounds of miceforest over the columns.
ROUNDS = 5


def miceforest(rows: Any, seed: int) -> Any:
    """Fill rows by miceforest, without mean matching: numbers are predictions, categories the most probable ones."""
    from miceforest import ImputationKernel

    kernel = ImputationKernel(rows, num_datasets=1, mean_match_candidates=0, random_state=seed)
    kernel.mice(ROUNDS)
    return kernel.complete_data(0)


def hyperimpute(rows: Any, seed: int) -> Any:
    """Fill rows by HyperImpute; columns with at most as many values as the largest categorical one are categories."""
    from hyperimpute.plugins.imputers import Imputers

    codes = {name: rows[name].astype("float64") for name in rows.select_dtypes("category")}
    # It counts NaN among the values, and takes columns with fewer than the threshold.
    few = {"class_threshold": 2 + max(cells.nunique() for cells in codes.values())} if codes else {}
    return Imputers().get("hyperimpute", random_state=seed, **few).fit_transform(rows.assign(**codes))


METHODS: dict[str, Callable[[Any, int], Any]] = {"miceforest": miceforest, "hyperimpute": hyperimpute}


def frame(rows: Any, categories: dict[int, int]) -> Any:
    """Return rows as a frame with the columns c0, c1 and so on; `categories` has the number of each column's."""
    columns = {f"c{k}": column for k, column in enumerate(rows.T)}
    for k, number in categories.items():
        codes = np.where(np.isnan(rows[:, k]), -1, rows[:, k]).astype(int)
        found = pd.Categorical.from_codes(codes, categories=list(range(number)))
        columns[f"c{k}"] = found.remove_unused_categories()
    return pd.DataFrame(columns)


def main(name: str, folder: Path) -> None:
    """Fill the rows of a folder by a method, and write the filled rows and the cost."""
    import resource  # which Windows does not have

    with np.load(folder / "rows.npz") as given:
        rows = frame(given["rows"], {int(k): int(number) for k, number in given["categories"]})
        seed = int(given["seed"])
    start = time.perf_counter()
    filled = METHODS[name](rows, seed)
    seconds = time.perf_counter() - start
    np.savez(folder / "filled.npz", filled=np.asarray(filled, dtype=np.float64))
    unit = 2**20 if sys.platform == "darwin" else 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    (folder / "cost.json").write_text(json.dumps({"seconds": round(seconds, 4), "peak_mib": round(peak, 1)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
