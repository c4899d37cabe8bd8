"""Run `mcflow evaluate` with its defaults on four tables with holes of their own.

    MCFLOW_DATA=folder python speed/evaluate.py

Each as a command, timed from its start to its end. Writes speed/results/evaluate.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mcflow.data.datasets import nhanes_path
from results import environment, table_path, write

#: The tables, by the names of their files.
TABLES = {"nhanes": "NHANES", "titanic": "Titanic", "adult": "Adult", "california": "California"}


def measure(name: str, path: Path) -> dict[str, Any]:
    """Evaluate one table, and return what was found."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        command = [sys.executable, "-m", "mcflow", "evaluate", str(path), "-o", str(output), "--quiet"]
        start = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - start
        found = json.loads(output.read_text())
    methods = {method["name"].partition("(")[0]: method for method in found["methods"]}
    return {
        "table": name,
        "rows": found["rows"],
        "columns": found["columns"],
        "hidden_cells": found["hidden_cells"],
        "seconds": round(seconds, 1),
        "relative": {method: round(said["relative_error"], 4) for method, said in methods.items()},
        "coverage": methods["mcflow"]["coverage"],
        "verdict": found["verdict"],
    }


def main() -> None:
    paths = {name: nhanes_path() if name == "nhanes" else table_path(name) for name in TABLES}
    absent = [name for name, path in paths.items() if path is None]
    if absent:
        sys.exit(f"skipped: MCFLOW_DATA does not name a folder with {', '.join(absent)}.parquet")
    tables = [measure(TABLES[name], path) for name, path in paths.items() if path is not None]
    others = [name for name in tables[0]["relative"] if name != "mcflow"]
    write("evaluate", {"tables": tables, "others": others} | environment())


if __name__ == "__main__":
    main()
