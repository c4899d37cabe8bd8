"""Estimate the machines, hours and money that a large table takes from what was measured on this machine.

    python bench/speed/sizing.py [--rows 1000000000] [--columns 50] [--cores 8] [--price 0.05] [--dry]

Nothing is measured here: the rows per second come from the other files in bench/speed/results/. The price of a core per
hour is an assumption; replace it by your own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import harness
from harness import Result, stored

#: Numbers of machines in the table.
MACHINES = (1, 4, 16, 64)

#: Bytes of a cell of float64 before compression.
TABLE_BYTES = 8
#: Bytes of a cell on disk during a fit.
FIT_BYTES = 5


def core_seconds(growth: Result, what: str, columns: int) -> float:
    """Return the seconds of one core for a row, by the largest table of growth.json and its exponent of the columns."""
    largest = max(growth["by_rows"], key=_rows)
    by_columns = (columns / largest["columns"]) ** growth["columns_exponent"][what]
    return float(largest[what] / largest["rows"] * growth["threads"] * by_columns)


def fill_seconds(growth: Result, streams: Result | None, columns: int) -> float:
    """Return the seconds of one core to fill a row: from file to file if that was measured, else in memory."""
    if streams is None:
        return core_seconds(growth, "transform_s", columns)
    by_columns = (columns / streams["columns"]) ** growth["columns_exponent"]["transform_s"]
    return float(streams["threads"] / streams["fills"][-1]["rows_per_s"] * by_columns)


def _rows(case: Result) -> int:
    return int(case["rows"])


def kept_share(measured: Result | None) -> float | None:
    """Return the fraction of the speed of single workers that several workers keep, or None if it was not measured."""
    if measured is None:
        return None
    return min(1.0, float(measured["speedup"]) / int(measured["workers"]))


def hours(seconds_a_row: float, rows: int, cores: int, share: float | None) -> float:
    """Return the hours that a number of cores takes together."""
    kept = 1.0 if share is None or cores == 1 else share
    return seconds_a_row * rows / cores / kept / 3600


def task(
    name: str, seconds: float, share: float | None, options: argparse.Namespace, machines: Sequence[int] = MACHINES
) -> Result:
    """Return the hours of a task by the number of machines, and its cost."""
    by_machines = {str(n): round(hours(seconds, options.rows, n * options.cores, share), 2) for n in machines}
    core_hours = options.cores * hours(seconds, options.rows, options.cores, share)
    return {
        "task": name,
        "rows_per_s_core": round(1 / seconds),
        "kept_share": None if share is None else round(share, 2),
        "hours": by_machines,
        "core_hours": round(core_hours, 1),
        "cost": round(core_hours * options.price, 2),
    }


def measure(options: argparse.Namespace) -> Result:
    growth, draws = stored("growth"), stored("draws")
    if growth is None:
        raise SystemExit("There is no bench/speed/results/growth.json. Run bench/speed/growth.py first.")
    streams = stored("streams")
    filling, pass_ = fill_seconds(growth, streams, options.columns), core_seconds(growth, "epoch_s", options.columns)
    by_ray, by_torchrun = kept_share(stored("ray")), kept_share(stored("parallel"))
    tasks = [task("fill", filling, by_ray, options)]
    if draws is not None:
        tasks.append(task(f"{draws['draws']} draws", filling * draws["ratio"], by_ray, options))
    # The batch size does not grow with the workers of a fit, so the speed does not scale with the machines.
    tasks.append(task("one epoch of training", pass_, by_torchrun, options, machines=(1,)))
    cells = options.rows * options.columns
    return {
        "rows": options.rows,
        "columns": options.columns,
        "cores_a_machine": options.cores,
        "price_a_core_hour": options.price,
        "tasks": tasks,
        "table_gb": round(cells * TABLE_BYTES / 1e9),
        "fit_disk_gb": round(cells * FIT_BYTES / 1e9),
        "mb_per_s_machine": round(options.cores / filling * options.columns * TABLE_BYTES / 1e6),
        "from_files": streams is not None,
        "measured_rows": (streams["fills"][-1] if streams else max(growth["by_rows"], key=_rows))["rows"],
        **{name: (streams or growth)[name] for name in ("threads", "load", "torch", "machine")},
    }


if __name__ == "__main__":
    harness.main("sizing", __doc__, measure, rows=1_000_000_000, columns=50, cores=8, price=0.05)
