"""Measure which share of the machine's matrix-multiply rate training and transform reach, and where the rest goes.

    python speed/matmul.py [--rows 100000] [--train-rows 24000] [--passes 4] [--boosted-rows 4000] [--dry]

The rate of float32 multiplies, the passes and the fills are measured in one run, on a made table like Letter: whole
numbers from 0 to 15, a fifth of the cells missing. Loops of boosted trees fill some of the same rows for comparison.
Writes speed/results/matmul.json; --dry only prints.
"""

from __future__ import annotations

import argparse
import contextlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

import breakdown
from case import best_of
from mcflow import MCFlowImputer
from mcflow.baselines import make
from passes import pass_seconds
from results import environment, report, write
from synthetic import Table, letter_like

#: Rows, inner size and columns of the products whose rate is measured; the best counts.
SHAPES = ((2048, 384, 384), (1024, 1024, 1024))

#: Backward takes two products for each of forward: one for the weights and one for what the layer read.
TRAINING_PASSES = 3

#: What transform is asked to reach: a share of the rate, and times the rows a second of a loop of boosted trees.
ASKED_SHARE, ASKED_RATIO = 0.4, 15.0

#: Rows that a loop of boosted trees fills, at most.
BOOSTED_FILLS = 20_000


def multiply_adds(weights: Iterable[torch.Tensor]) -> int:
    """Return the multiply-adds of one row through layers of shape (n_members, n_in, n_out); biases have n_in = 1."""
    return sum(weight.numel() for weight in weights if weight.shape[-2] > 1)


def reached(n_multiply_adds: float, seconds: float, rate: float) -> float:
    """Return the share of a rate, in multiply-adds a second, that some work came to."""
    return n_multiply_adds / seconds / rate


@contextlib.contextmanager
def threads(n_threads: int) -> Iterator[None]:
    """Use a number of threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def product_rate(shape: tuple[int, int, int]) -> float:
    """Return the multiply-adds a second of the fastest of many equal products."""
    n_rows, n_inner, n_columns = shape
    left, right = torch.ones(n_rows, n_inner), torch.ones(n_inner, n_columns)
    out = torch.empty(n_rows, n_columns)
    return n_rows * n_inner * n_columns / best_of(lambda: torch.mm(left, right, out=out))


def rates() -> dict[str, dict[str, float]]:
    """Return the rate of every shape in GFLOP/s, by number of threads."""
    found = {}
    for n_threads in sorted({1, torch.get_num_threads()}):
        with threads(n_threads):
            found[str(n_threads)] = {"x".join(map(str, s)): round(2e-9 * product_rate(s), 1) for s in SHAPES}
    return found


def boosted_loops() -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    trees = HistGradientBoostingRegressor(max_iter=200, random_state=0)
    return {
        "`mcflow.baselines`, boosted, 2 rounds": make("boosted", random_state=0),
        "IterativeImputer, boosted trees, 4 rounds": IterativeImputer(trees, max_iter=4, random_state=0),
    }


def boosted_speeds(train: Table, test: Table) -> dict[str, int]:
    """Return the rows a second that each loop of boosted trees fills."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=UserWarning)  # four rounds are not to convergence
        for name, loop in boosted_loops().items():
            loop.fit(train)
            found[name] = round(len(test) / best_of(lambda loop=loop: loop.transform(test)))  # type: ignore[misc]
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    table = letter_like(options.rows)
    train = letter_like(options.train_rows, seed=1)
    epoch_s = pass_seconds(train, options.passes)
    imputer = MCFlowImputer(max_epochs=1, random_state=0).fit(train)
    transform_s = best_of(lambda: imputer.transform(table), 5.0)
    speed = rates()
    rate = 0.5e9 * max(speed[str(torch.get_num_threads())].values())
    mapper: Any = imputer.model_.stages[0].mapper
    once = multiply_adds(mapper.weights)
    n_filled = int(np.isnan(table).any(axis=1).sum())  # whole rows do not reach the networks
    return {
        "rows": options.rows,
        "columns": table.shape[1],
        "train_rows": options.train_rows,
        "width": imputer.settings_.latent.width,
        "n_members": imputer.settings_.latent.n_members,
        "batch_size": imputer.settings_.train.batch_size,
        "multiply_adds_per_row": once,
        "gflops": speed,
        "epoch_s": round(epoch_s, 4),
        "training_share": round(reached(TRAINING_PASSES * once * len(train), epoch_s, rate), 3),
        "transform_s": round(transform_s, 4),
        "transform_share": round(reached(once * n_filled, transform_s, rate), 3),
        "transform_rows_per_s": round(len(table) / transform_s),
        "asked_share": ASKED_SHARE,
        "asked_ratio": ASKED_RATIO,
        "training_parts": breakdown.of_training(train),
        "transform_parts": breakdown.of_transform(imputer, table),
        "boosted_rows_per_s": boosted_speeds(train[: options.boosted_rows], table[:BOOSTED_FILLS]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--train-rows", type=int, default=24_000)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--boosted-rows", type=int, default=4_000)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    under = environment()
    result = measure(options) | under
    if options.dry:
        report(result)
    else:
        write("matmul", result)


if __name__ == "__main__":
    main()
