"""Compare a fit in one process with a fit in two that share every batch, each on one thread.

    python bench/speed/parallel.py [--rows 200000] [--epochs 4] [--repeats 2] [--dry]

Both are measured in turn, in processes of their own, from a table in memory to a fitted model, with the batches of the
default preset and with larger ones; the best time is used.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import harness
from harness import letter_like
from mcflow import MCFlowImputer
from mcflow.fitting.distributed import GradientMean, torchrun

N_WORKERS = 2
N_COLUMNS = 16

#: Batch sizes: that of the default preset, and one whose parts are not small.
BATCHES = (256, 1024)

#: Speedup that two processes should reach.
ASKED = 1.4

#: Rows of a first fit, which imports the parts of torch that are imported when they are needed.
FIRST_ROWS = 400


def fit(n_rows: int, n_epochs: int, batch_size: int) -> dict[str, Any]:
    """Fit as one of the processes of torchrun, or alone."""
    with torchrun("cpu") as workers:
        MCFlowImputer(max_epochs=1, random_state=0).fit(letter_like(FIRST_ROWS, N_COLUMNS))
        table, exchanging = letter_like(n_rows, N_COLUMNS), timed_exchange()
        workers.gather(None)
        start = time.perf_counter()
        imputer = MCFlowImputer(max_epochs=n_epochs, batch_size=batch_size, random_state=0, device="cpu").fit(table)
        seconds = time.perf_counter() - start
        model: Any = imputer.model_
        return {
            "fit_s": round(seconds, 2),
            "epochs_s": round(sum(imputer.history_.column("seconds")), 2),
            "exchange_s": round(sum(exchanging), 2),
            "losses": [round(loss, 6) for loss in imputer.history_.column("latent_loss")],
            "parameters": sum(weight.numel() for weight in model.network.parameters()),
        }


def timed_exchange() -> list[float]:
    """Return a list to which the seconds of every later exchange of gradients are added."""
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
    many = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_workers}") if n_workers > 1 else ()
    size = {"n_rows": n_rows, "n_epochs": n_epochs, "batch_size": batch_size}
    return harness.apart(__file__, "fit", size, launcher=many, threads=1)


def compared(one: dict[str, Any], two: dict[str, Any], n_rows: int, n_epochs: int) -> dict[str, Any]:
    """Compare the best runs of one process and of two."""
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


def measure_batches(n_rows: int, n_epochs: int, n_repeats: int, batch_size: int) -> dict[str, Any]:
    """Measure one process and two in turn."""
    turns = [[run(n, n_rows, n_epochs, batch_size) for n in (1, N_WORKERS)] for _ in range(n_repeats)]
    one, two = (min(of_one, key=lambda found: float(found["fit_s"])) for of_one in zip(*turns, strict=True))
    return {"batch_size": batch_size} | compared(one, two, n_rows, n_epochs)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    cases = [measure_batches(options.rows, options.epochs, options.repeats, size) for size in BATCHES]
    return {
        "rows": options.rows,
        "columns": N_COLUMNS,
        "epochs": options.epochs,
        "workers": N_WORKERS,
        "speedup": cases[0]["speedup"],
        "asked_speedup": ASKED,
        "cases": cases,
        "threads": 1,
    }


if __name__ == "__main__":
    harness.main("parallel", __doc__, measure, {"fit": fit}, rows=200_000, epochs=4, repeats=2)
