"""Measure how time and memory of the default preset grow with the rows and with the columns.

    python bench/speed/growth.py [--rows 1000 10000 100000 1000000] [--columns 10 30 100 300 500] [--dry]

The epochs of a case, its fit, cut short, and its filling each run in a process of their own. Also draws
docs/pictures/growth_time.svg and growth_memory.svg.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import harness
import mcflow
from mcflow import MCFlowImputer
from mcflow_bench.machine import peak_mib
from rendering import draw_growth

#: Columns while the rows grow.
N_COLUMNS = 30
#: Rows while the columns grow.
N_ROWS = 10_000
#: Rows from which the exponent of the rows is taken; an epoch of fewer is too short to time.
MANY_ROWS = 10_000
#: Rows that are learned to time an epoch, about.
ROWS_LEARNED = 200_000
#: Seconds of the fit whose memory is measured; its quality does not matter.
FIT_SECONDS = 10


def learn(rows: int, columns: int, epochs: int) -> dict[str, Any]:
    """Time an epoch."""
    return {"epoch_s": round(harness.epoch_seconds(harness.correlated(rows, columns), epochs), 5)}


def fit(rows: int, columns: int, model: str = "", **limits: Any) -> dict[str, Any]:
    """Fit a table, and save the model if it has a name."""
    table = harness.correlated(rows, columns)
    start = time.perf_counter()
    imputer = MCFlowImputer(random_state=0, **limits).fit(table)
    seconds = time.perf_counter() - start
    found = {
        "fit_s": round(seconds, 3),
        "n_epochs": imputer.n_epochs_,
        "ending": imputer.history_.ending,
        "peak_mib": peak_mib(),
        "width": imputer.config_.width,
        "n_members": imputer.config_.n_members,
    }
    if model:
        imputer.save(model)
    return found


def transform(rows: int, columns: int, model: str) -> dict[str, Any]:
    """Time filling a table."""
    table, imputer = harness.correlated(rows, columns), mcflow.load(model)
    seconds = harness.best_of(lambda: imputer.transform(table))
    return {"transform_s": round(seconds, 5), "peak_mib": peak_mib()}


ACTS: dict[str, Callable[..., dict[str, Any]]] = {"epoch": learn, "fit": fit, "transform": transform}


def exponent(sizes: Sequence[float], amounts: Sequence[float]) -> float:
    """Return b of the least-squares fit of log(amount) = a + b log(size)."""
    x, y = np.log(sizes), np.log(amounts)
    x = x - x.mean()
    return float(x @ (y - y.mean()) / (x @ x))


def measure_case(n_rows: int, n_columns: int) -> dict[str, Any]:
    """Fit and fill one table."""
    size: dict[str, Any] = {"rows": n_rows, "columns": n_columns}
    limits = {"max_epochs": 1, "max_time": FIT_SECONDS}
    n_epochs = max(1, min(harness.MAX_WATCHED, ROWS_LEARNED // n_rows))
    learned = harness.apart(__file__, "epoch", size | {"epochs": n_epochs})
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.mcflow"
        fitted = harness.apart(__file__, "fit", size | limits | {"model": model})
        filled = harness.apart(__file__, "transform", size | {"model": model})
    print(f"{n_rows:,} x {n_columns}: epoch {learned['epoch_s']} s, fill {filled['transform_s']} s", file=sys.stderr)
    return {
        **size,
        "epoch_s": learned["epoch_s"],
        "transform_s": filled["transform_s"],
        "transform_rows_per_s": round(n_rows / filled["transform_s"]),
        "fit_peak_mib": fitted["peak_mib"],
        "transform_peak_mib": filled["peak_mib"],
        "width": fitted["width"],
        "n_members": fitted["n_members"],
    }


def exponents(cases: list[dict[str, Any]], axis: str) -> dict[str, float | None]:
    """Return the exponents of both times in the number of rows or columns; None for fewer than two cases."""
    found: dict[str, float | None] = {}
    for name in ("epoch_s", "transform_s"):
        pairs = [(one[axis], one[name]) for one in cases if axis != "rows" or one["rows"] >= MANY_ROWS]
        slope = exponent(*zip(*pairs, strict=True)) if len(pairs) > 1 else math.nan
        found[name] = None if math.isnan(slope) else round(slope, 3)
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    by_rows = [measure_case(n_rows, N_COLUMNS) for n_rows in options.rows]
    by_columns = [measure_case(N_ROWS, n_columns) for n_columns in options.columns]
    result = {
        "by_rows": by_rows,
        "by_columns": by_columns,
        "rows_exponent": exponents(by_rows, "rows"),
        "rows_exponent_from": MANY_ROWS,
        "columns_exponent": exponents(by_columns, "columns"),
    }
    if not options.dry:
        draw_growth(result, harness.ROOT / "docs" / "pictures")
    return result


if __name__ == "__main__":
    harness.main(
        "growth", __doc__, measure, ACTS, rows=[1_000, 10_000, 100_000, 1_000_000], columns=[10, 30, 100, 300, 500]
    )
