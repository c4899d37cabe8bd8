"""Time from the start of Python until MCFlowImputer is imported, beside scikit-learn, and of `mcflow --help`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Any

import harness

#: What is started, by the words of the result.
STARTS = {
    "`from mcflow import MCFlowImputer`": ["-c", "from mcflow import MCFlowImputer"],
    "`from sklearn.impute import IterativeImputer`": [
        "-c",
        "from sklearn.experimental import enable_iterative_imputer; from sklearn.impute import IterativeImputer",
    ],
    "`mcflow --help`": ["-m", "mcflow", "--help"],
}


def seconds_of(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Take the shortest of several starts, in turns, so that a load of the machine meets all of them."""
    times = [{name: seconds_of(arguments) for name, arguments in STARTS.items()} for _ in range(options.rounds)]
    return {"rounds": options.rounds, "seconds": {name: round(min(t[name] for t in times), 3) for name in STARTS}}


if __name__ == "__main__":
    harness.main("start", __doc__, measure, rounds=10)
