"""Pass over, fit or fill one made table, and print seconds and the peak of memory as JSON.

    python speed/case.py pass --rows 1000 --columns 30 --epochs 4
    python speed/case.py fit --rows 1000 --columns 30 --epochs 1 --time 10 --model model.mcflow
    python speed/case.py transform --rows 1000 --columns 30 --model model.mcflow

`run` starts it as a process of its own, so that no case's peak hides behind another's.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcflow
from mcflow import MCFlowImputer
from mcflow.benchmarks.machine import mebibytes
from passes import pass_seconds
from synthetic import correlated

#: Seconds in which a short act is repeated; the best time counts.
SECONDS = 1.0


def run(act: str, **arguments: Any) -> dict[str, Any]:
    """Run a case in a process of its own; arguments that are None are left out."""
    words = [word for name, value in arguments.items() if value is not None for word in (f"--{name}", str(value))]
    done = subprocess.run([sys.executable, __file__, act, *words], stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def best_of(act: Callable[[], Any], seconds: float = SECONDS) -> float:
    """Return the shortest time of an act that is repeated for some seconds, at least once."""
    first = time.perf_counter()
    best = float("inf")
    while best == float("inf") or time.perf_counter() - first < seconds:
        start = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - start)
    return best


def learn(n_rows: int, n_columns: int, n_passes: int) -> dict[str, Any]:
    return {"epoch_s": round(pass_seconds(correlated(n_rows, n_columns), n_passes), 5)}


def fit(n_rows: int, n_columns: int, model: Path | None, **limits: Any) -> dict[str, Any]:
    table = correlated(n_rows, n_columns)
    start = time.perf_counter()
    imputer = MCFlowImputer(random_state=0, **limits).fit(table)
    seconds = time.perf_counter() - start
    found = {
        "fit_s": round(seconds, 3),
        "n_epochs": imputer.n_epochs_,
        "ending": imputer.history_.ending,
        "peak_mib": round(_peak(), 1),
        "latent": imputer.settings_.to_dict()["latent"],
        "batch_size": imputer.settings_.train.batch_size,
    }
    if model is not None:
        imputer.save(model)
    return found


def transform(n_rows: int, n_columns: int, model: Path) -> dict[str, Any]:
    table = correlated(n_rows, n_columns)
    imputer = mcflow.load(model)
    seconds = best_of(lambda: imputer.transform(table))
    return {"transform_s": round(seconds, 5), "peak_mib": round(_peak(), 1)}


def _peak() -> float:
    return mebibytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("act", choices=("pass", "fit", "transform"))
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--columns", type=int, required=True)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--time", type=float)
    parser.add_argument("--model", type=Path)
    given = parser.parse_args()
    if given.act == "pass":
        found = learn(given.rows, given.columns, given.epochs)
    elif given.act == "fit":
        found = fit(given.rows, given.columns, given.model, max_epochs=given.epochs, max_time=given.time)
    else:
        found = transform(given.rows, given.columns, given.model)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
