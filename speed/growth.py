"""Measure how time and memory of the default preset grow with the rows and with the columns.

    python speed/growth.py [--rows 1000 10000 100000 1000000] [--columns 10 30 100 300 500] [--dry]

A case's passes over the rows, its fit, cut short, and its filling each run in a process of their own.
Writes speed/results/growth.json; --dry only prints.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import case
from passes import MOST
from pictures import draw_pictures
from results import environment, report, write

#: Columns while the rows grow, and rows while the columns grow.
N_COLUMNS, N_ROWS = 30, 10_000

#: Rows from which the exponent of the rows is taken: below, a pass is over in a blink.
MANY_ROWS = 10_000

#: Rows that are learned in a case, about, to time a pass.
ROWS_LEARNED = 200_000

#: Seconds of the fit whose memory is measured: what it learns does not matter.
FIT_SECONDS = 10


def exponent(sizes: Sequence[float], amounts: Sequence[float]) -> float:
    """Return b of the least-squares fit of log(amount) = a + b log(size)."""
    x, y = np.log(sizes), np.log(amounts)
    x = x - x.mean()
    return float(x @ (y - y.mean()) / (x @ x))


def measure(n_rows: int, n_columns: int) -> dict[str, Any]:
    """Fit and fill one table."""
    size = {"rows": n_rows, "columns": n_columns}
    learned = case.run("pass", epochs=max(1, min(MOST, ROWS_LEARNED // n_rows)), **size)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.mcflow"
        fitted = case.run("fit", epochs=1, time=FIT_SECONDS, model=model, **size)
        filled = case.run("transform", model=model, **size)
    print(f"{n_rows:,} x {n_columns}: a pass {learned['epoch_s']} s, fill {filled['transform_s']} s", file=sys.stderr)
    return {
        "rows": n_rows,
        "columns": n_columns,
        "epoch_s": learned["epoch_s"],
        "transform_s": filled["transform_s"],
        "transform_rows_per_s": round(n_rows / filled["transform_s"]),
        "fit_peak_mib": fitted["peak_mib"],
        "transform_peak_mib": filled["peak_mib"],
        "width": fitted["latent"]["width"],
        "n_members": fitted["latent"]["n_members"],
    }


def exponents(cases: list[dict[str, Any]], axis: str) -> dict[str, float | None]:
    """Return the exponent of both times in the number of rows or columns; None for fewer than two cases."""
    found: dict[str, float | None] = {}
    for name in ("epoch_s", "transform_s"):
        pairs = [(one[axis], one[name]) for one in cases if axis != "rows" or one["rows"] >= MANY_ROWS]
        slope = exponent(*zip(*pairs, strict=True)) if len(pairs) > 1 else math.nan
        found[name] = None if math.isnan(slope) else round(slope, 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 30, 100, 300, 500])
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    under = environment()
    by_rows = [measure(n_rows, N_COLUMNS) for n_rows in options.rows]
    by_columns = [measure(N_ROWS, n_columns) for n_columns in options.columns]
    result = {
        "by_rows": by_rows,
        "by_columns": by_columns,
        "rows_exponent": exponents(by_rows, "rows"),
        "rows_exponent_from": MANY_ROWS,
        "columns_exponent": exponents(by_columns, "columns"),
    } | under
    if options.dry:
        report(result)
        return
    write("growth", result)
    draw_pictures()


if __name__ == "__main__":
    main()
