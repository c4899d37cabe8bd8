"""Time m draws of 100,000 rows like those of Credit beside a single fill.

    MCFLOW_DATA=folder python bench/speed/draws.py [--rows 100000] [--draws 20] [--dry]

Rows of Credit are repeated with a little noise, and a fifth of the cells is hidden. The model is trained for one epoch,
since its speed does not depend on its quality.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

import harness
from mcflow import MCFlowImputer
from mcflow_bench.data.catalog import read_numbers

#: Time that m draws may take, in single fills.
ASKED_RATIO = 25.0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    values = read_numbers(harness.need_table("credit"), "credit").values
    rng = np.random.default_rng(0)
    rows = values[rng.integers(len(values), size=options.rows)]
    numbers = [len(np.unique(column)) > 50 for column in values.T]
    rows = rows + 0.01 * values.std(axis=0) * np.array(numbers) * rng.normal(size=rows.shape)
    incomplete = np.where(rng.random(rows.shape) < 0.2, np.nan, rows)
    kinds = dict.fromkeys(range(values.shape[1]), "continuous")
    imputer = MCFlowImputer(max_epochs=1, kinds=kinds, random_state=0).fit(incomplete[: len(values)])
    best = partial(harness.best_of, seconds=0.0, least=2)
    transform_s = best(lambda: imputer.transform(incomplete))
    draw_s = best(lambda: [None for _ in imputer.draw(incomplete, options.draws, 0)])
    return {
        "rows": options.rows,
        "columns": values.shape[1],
        "draws": options.draws,
        "transform_s": round(transform_s, 3),
        "draw_s": round(draw_s, 3),
        "interval_s": round(best(lambda: imputer.interval(incomplete)), 3),
        "ratio": round(draw_s / transform_s, 2),
        "asked_ratio": ASKED_RATIO,
    }


if __name__ == "__main__":
    harness.main("draws", __doc__, measure, rows=100_000, draws=20)
