"""Say how many machines, hours and how much money a big table takes, from what was measured on this one.

    python speed/sizing.py [--rows 1000000000] [--columns 50] [--cores 8] [--price 0.05] [--dry]

Nothing is measured here: rows a second come from the other files in speed/results/. The price of a core for an hour is
an assumption; put in your own. Writes speed/results/sizing.json; --dry only prints.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from results import FOLDER, report, write

Result = dict[str, Any]

#: Machines that the table has a row for.
MACHINES = (1, 4, 16, 64)

#: Bytes of a cell in a table of float64, before compression, and on disk during a fit.
TABLE_BYTES, FIT_BYTES = 8, 5


def stored(name: str) -> Result | None:
    """Return a result that was measured, None when it is not there."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def core_seconds(growth: Result, what: str, columns: int) -> float:
    """Return the seconds of one core for a row of a big table.

    The largest table of growth.json is taken, and the exponent that was measured in the number of columns.
    """
    largest = max(growth["by_rows"], key=_rows)
    by_columns = (columns / largest["columns"]) ** growth["columns_exponent"][what]
    return float(largest[what] / largest["rows"] * growth["threads"] * by_columns)


def fill_seconds(growth: Result, streams: Result | None, columns: int) -> float:
    """Return the seconds of one core to fill a row: from file to file where that was measured, in memory otherwise."""
    if streams is None:
        return core_seconds(growth, "transform_s", columns)
    by_columns = (columns / streams["columns"]) ** growth["columns_exponent"]["transform_s"]
    return float(streams["threads"] / streams["fills"][-1]["rows_per_s"] * by_columns)


def _rows(case: Result) -> int:
    return int(case["rows"])


def kept_share(measured: Result | None) -> float | None:
    """Return the share of the speed of single workers that several workers keep, None when it was not measured."""
    if measured is None:
        return None
    return min(1.0, float(measured["speedup"]) / int(measured["workers"]))


def hours(seconds_a_row: float, rows: int, cores: int, share: float | None) -> float:
    """Return the hours that cores take together."""
    kept = 1.0 if share is None or cores == 1 else share
    return seconds_a_row * rows / cores / kept / 3600


def task(
    name: str, seconds: float, share: float | None, said: argparse.Namespace, machines: Sequence[int] = MACHINES
) -> Result:
    """Return what one task takes: by machine, and in money."""
    by_machines = {str(n): round(hours(seconds, said.rows, n * said.cores, share), 2) for n in machines}
    core_hours = said.cores * hours(seconds, said.rows, said.cores, share)
    return {
        "task": name,
        "rows_per_s_core": round(1 / seconds),
        "kept_share": None if share is None else round(share, 2),
        "hours": by_machines,
        "core_hours": round(core_hours, 1),
        "cost": round(core_hours * said.price, 2),
    }


def sized(said: argparse.Namespace) -> Result:
    """Return all figures."""
    growth, draws = stored("growth"), stored("draws")
    if growth is None:
        raise SystemExit("There is no speed/results/growth.json. Run speed/growth.py first.")
    streams = stored("streams")
    filling, pass_ = fill_seconds(growth, streams, said.columns), core_seconds(growth, "epoch_s", said.columns)
    by_ray, by_torchrun = kept_share(stored("ray")), kept_share(stored("parallel"))
    tasks = [task("fill", filling, by_ray, said)]
    if draws is not None:
        tasks.append(task(f"{draws['draws']} draws", filling * draws["ratio"], by_ray, said))
    # Batches do not grow with the workers of a fit, so more machines are no multiple of one.
    tasks.append(task("one pass of training", pass_, by_torchrun, said, machines=(1,)))
    cells = said.rows * said.columns
    return {
        "rows": said.rows,
        "columns": said.columns,
        "cores_a_machine": said.cores,
        "price_a_core_hour": said.price,
        "tasks": tasks,
        "table_gb": round(cells * TABLE_BYTES / 1e9),
        "fit_disk_gb": round(cells * FIT_BYTES / 1e9),
        "mb_per_s_machine": round(said.cores / filling * said.columns * TABLE_BYTES / 1e6),
        "from_files": streams is not None,
        "measured_rows": (streams["fills"][-1] if streams else max(growth["by_rows"], key=_rows))["rows"],
        **{name: (streams or growth)[name] for name in ("threads", "load", "torch", "machine")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--cores", type=int, default=8, help="of a machine")
    parser.add_argument("--price", type=float, default=0.05, help="of a core for an hour, in dollars")
    parser.add_argument("--dry", action="store_true")
    said = parser.parse_args()
    result = sized(said)
    if said.dry:
        report(result)
    else:
        write("sizing", result)


if __name__ == "__main__":
    main()
