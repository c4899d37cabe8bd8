"""Run `mcflow evaluate` with its defaults on four tables with missing cells of their own.

    MCFLOW_DATA=folder python bench/speed/evaluate.py [--dry]

Each table is evaluated by the command, timed from its start to its end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
from mcflow.files.datasets import nhanes_path

#: Titles of the tables by the names of their files.
TABLES = {"nhanes": "NHANES", "titanic": "Titanic", "adult": "Adult", "california": "California"}


def measure_table(title: str, path: Path) -> dict[str, Any]:
    """Evaluate one table."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        command = [sys.executable, "-m", "mcflow", "evaluate", str(path), "-o", str(output), "--quiet"]
        start = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - start
        found = json.loads(output.read_text())
    methods = {method["name"].partition("(")[0]: method for method in found["methods"]}
    return {
        "table": title,
        "rows": found["rows"],
        "columns": found["columns"],
        "hidden_cells": found["hidden_cells"],
        "seconds": round(seconds, 1),
        "relative": {method: round(one["relative_error"], 4) for method, one in methods.items()},
        "coverage": methods["mcflow"]["coverage"],
        "verdict": found["verdict"],
    }


def measure(_: argparse.Namespace) -> dict[str, Any]:
    paths = {name: nhanes_path() if name == "nhanes" else harness.need_table(name) for name in TABLES}
    tables = [measure_table(TABLES[name], path) for name, path in paths.items()]
    return {"tables": tables, "others": [name for name in tables[0]["relative"] if name != "mcflow"]}


if __name__ == "__main__":
    harness.main("evaluate", __doc__, measure)
