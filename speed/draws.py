"""Time draws beside a single fill: m completed tables of 100,000 rows like Credit's.

    MCFLOW_DATA=folder python speed/draws.py [--rows 100000] [--draws 20] [--dry]

Rows of Credit are repeated with a little noise, a fifth of the cells is hidden, and the model has seen them once: how
long an answer takes does not depend on how good it is. Writes speed/results/draws.json; --dry only prints.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mcflow import MCFlowImputer
from mcflow.data.catalog import read_numbers
from results import environment, report, table_path, write

#: What m draws may cost, in single fills.
ASKED_RATIO = 25.0

#: How often each is timed; the best counts.
REPEATS = 2


def best(act: Callable[[], Any]) -> float:
    """Return the shortest time of a few."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(options: argparse.Namespace, values: np.ndarray[Any, Any]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    rows = values[rng.integers(len(values), size=options.rows)]
    numbers = [len(np.unique(column)) > 50 for column in values.T]
    rows = rows + 0.01 * values.std(axis=0) * np.array(numbers) * rng.normal(size=rows.shape)
    holed = np.where(rng.random(rows.shape) < 0.2, np.nan, rows)
    kinds = dict.fromkeys(range(values.shape[1]), "continuous")
    imputer = MCFlowImputer(max_epochs=1, kinds=kinds, random_state=0).fit(holed[: len(values)])
    transform_s = best(lambda: imputer.transform(holed))

    def draw() -> None:
        for _ in imputer.draw(holed, options.draws, 0):
            pass

    draw_s = best(draw)
    return {
        "rows": options.rows,
        "columns": values.shape[1],
        "draws": options.draws,
        "transform_s": round(transform_s, 3),
        "draw_s": round(draw_s, 3),
        "interval_s": round(best(lambda: imputer.interval(holed)), 3),
        "ratio": round(draw_s / transform_s, 2),
        "asked_ratio": ASKED_RATIO,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    path = table_path("credit")
    if path is None:
        sys.exit("skipped: MCFLOW_DATA does not name a folder with credit.parquet")
    under = environment()
    result = measure(options, read_numbers(path, "credit").values) | under
    if options.dry:
        report(result)
    else:
        write("draws", result)


if __name__ == "__main__":
    main()
