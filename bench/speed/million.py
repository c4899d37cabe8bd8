"""Fit a million rows of 30 columns within a time limit.

    python bench/speed/million.py [--max-time 300] [--rows 1000000] [--dry]

The table is float32 with a fifth of the cells missing, and the fit runs in a process of its own.
"""

from __future__ import annotations

import argparse
from typing import Any

import growth
import harness

N_COLUMNS = 30
#: Seconds that a fit of a million rows with max_time=300 may take.
LIMIT_S = 360.0
#: GiB that it may take.
LIMIT_GIB = 3.0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    size = {"rows": options.rows, "columns": N_COLUMNS}
    found = harness.apart(growth.__file__, "fit", size | {"max_time": options.max_time})
    return {
        **size,
        "max_time_s": options.max_time,
        "fit_s": round(found["fit_s"], 1),
        "peak_gib": round(found["peak_mib"] / 1024, 2),
        "limit_s": LIMIT_S,
        "limit_gib": LIMIT_GIB,
        "n_epochs": found["n_epochs"],
        "ending": found["ending"],
    }


if __name__ == "__main__":
    harness.main("million", __doc__, measure, max_time=300.0, rows=1_000_000)
