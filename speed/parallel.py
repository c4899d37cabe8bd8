"""Fit one table with one process and with two that share every batch, each on one thread.

    python speed/parallel.py [--rows 200000] [--epochs 4] [--repeats 2] [--dry]

Both are measured in turn, in processes of their own, from a table in memory to a fitted model, with the batches of the
default preset and with larger ones; the best time counts.
Writes speed/results/parallel.json; --dry only prints.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

from mcflow import MCFlowImputer
from mcflow.training.parallel import GradientMean, torchrun
from results import environment, report, write
from synthetic import letter_like

WORKERS, N_COLUMNS = 2, 16

#: Rows of a batch: the default preset's, and one of which the parts are not small.
BATCHES = (256, 1024)

#: How many times the rows a second of one process two have to reach.
ASKED = 1.4

#: Rows of a fit that comes first, as a process imports parts of torch when it needs them.
FIRST_ROWS = 400


def fit(n_rows: int, n_epochs: int, batch_size: int) -> None:
    """Fit as one of the processes of torchrun, or alone; the first one prints what was measured."""
    with torchrun("cpu") as workers:
        MCFlowImputer(max_epochs=1, random_state=0).fit(letter_like(FIRST_ROWS, N_COLUMNS))
        table, exchanging = letter_like(n_rows, N_COLUMNS), timed_exchange()
        workers.gather(None)
        start = time.perf_counter()
        imputer = MCFlowImputer(max_epochs=n_epochs, batch_size=batch_size, random_state=0, device="cpu").fit(table)
        seconds = time.perf_counter() - start
        found = {
            "fit_s": round(seconds, 2),
            "epochs_s": round(sum(imputer.history_.column("seconds")), 2),
            "exchange_s": round(sum(exchanging), 2),
            "losses": [round(loss, 6) for loss in imputer.history_.column("latent_loss")],
            "parameters": sum(weight.numel() for weight in imputer.stages_[0].mapper.parameters()),
        }
        if workers.is_first:
            print(json.dumps(found))


def timed_exchange() -> list[float]:
    """Return a list to which the seconds of every exchange of gradients are added from now on."""
    seconds: list[float] = []
    average = GradientMean.average

    def timed(self: GradientMean, largest: float, weight: float, *numbers: float) -> list[float]:
        start = time.perf_counter()
        sums = average(self, largest, weight, *numbers)
        seconds.append(time.perf_counter() - start)
        return sums

    GradientMean.average = timed  # type: ignore[method-assign]
    return seconds


def run(n_workers: int, n_rows: int, n_epochs: int, batch_size: int) -> dict[str, Any]:
    """Measure a fit in processes of its own."""
    start = [sys.executable]
    if n_workers > 1:
        start += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_workers}"]
    command = [*start, __file__, "--worker", str(batch_size), "--rows", str(n_rows), "--epochs", str(n_epochs)]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=one_thread)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def compared(one: dict[str, Any], two: dict[str, Any], n_rows: int, n_epochs: int) -> dict[str, Any]:
    """Return how the best runs of one process and of two compare."""
    differences = [abs(a - b) for a, b in zip(one["losses"], two["losses"], strict=True)]
    return {
        "one_rows_per_s": round(n_rows * n_epochs / one["fit_s"]),
        "rows_per_s": round(n_rows * n_epochs / two["fit_s"]),
        "speedup": round(one["fit_s"] / two["fit_s"], 3),
        "speedup_of_epochs": round(one["epochs_s"] / two["epochs_s"], 3),
        "exchange_share": round(two["exchange_s"] / two["fit_s"], 3),
        "largest_loss_difference": max(differences),
        "parameters": one["parameters"],
    }


def measure(n_rows: int, n_epochs: int, n_repeats: int, batch_size: int) -> dict[str, Any]:
    """Measure one process and two in turn."""
    turns = [[run(n, n_rows, n_epochs, batch_size) for n in (1, WORKERS)] for _ in range(n_repeats)]
    one, two = (min(of_one, key=lambda found: float(found["fit_s"])) for of_one in zip(*turns, strict=True))
    return {"batch_size": batch_size} | compared(one, two, n_rows, n_epochs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        fit(options.rows, options.epochs, options.worker)
        return
    under = environment() | {"threads": 1}
    cases = [measure(options.rows, options.epochs, options.repeats, size) for size in BATCHES]
    result = {
        "rows": options.rows,
        "columns": N_COLUMNS,
        "epochs": options.epochs,
        "workers": WORKERS,
        "speedup": cases[0]["speedup"],
        "asked_speedup": ASKED,
        "cases": cases,
    } | under
    if options.dry:
        report(result)
    else:
        write("parallel", result)


if __name__ == "__main__":
    main()
