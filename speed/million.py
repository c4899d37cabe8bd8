"""Fit a million rows of 30 columns within a time limit, in a process of its own.

    python speed/million.py [--max-time 300] [--rows 1000000] [--dry]

The table is float32 with a fifth of the cells missing. Writes speed/results/million.json; --dry only prints.
"""

from __future__ import annotations

import argparse

import case
from results import environment, report, write

N_COLUMNS = 30

#: What a fit of a million rows with max_time=300 has to stay under.
LIMIT_S, LIMIT_GIB = 360.0, 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-time", type=float, default=300.0)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    under = environment()
    found = case.run("fit", rows=options.rows, columns=N_COLUMNS, time=options.max_time)
    result = {
        "rows": options.rows,
        "columns": N_COLUMNS,
        "max_time_s": options.max_time,
        "fit_s": round(found["fit_s"], 1),
        "peak_gib": round(found["peak_mib"] / 1024, 2),
        "limit_s": LIMIT_S,
        "limit_gib": LIMIT_GIB,
        "n_epochs": found["n_epochs"],
        "ending": found["ending"],
    } | under
    if options.dry:
        report(result)
    else:
        write("million", result)


if __name__ == "__main__":
    main()
