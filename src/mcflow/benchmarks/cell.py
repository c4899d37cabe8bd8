"""One cell in a process of its own: a task as JSON on standard input, the result as a JSON file."""

from __future__ import annotations

__all__ = ["main", "measure"]

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcflow.benchmarks.machine import peak_mib
from mcflow.benchmarks.process import Report, plain_scores, run_process, with_threads
from mcflow.benchmarks.suite import Task

if TYPE_CHECKING:
    from mcflow.benchmarks.protocol import Split


def measure(task: Task, path: Path, report: Report) -> None:
    """Fit, fill and score; report what was found as soon as it is known.

    Parameters
    ----------
    task : Task
        What to measure.
    path : Path
        File of the table.
    report : callable
        Takes the result; it is called again, with more in it, once draws have been scored.
    """
    import numpy as np

    from mcflow.benchmarks.methods import MethodSpec
    from mcflow.benchmarks.protocol import point_scores, split_table
    from mcflow.data.catalog import read_numbers

    values = read_numbers(path, task.table).values[: task.rows]
    split = split_table(values, task.fold, task.rate, task.mechanism)
    imputer = with_threads(MethodSpec.parse(task.method).build(task.seed, values.shape[1]))
    train = np.where(split.hidden_train, np.nan, split.train)
    test = np.where(split.hidden_test, np.nan, split.test)
    start_mib = peak_mib()
    start = time.perf_counter()
    imputer.fit(train)
    fitted = time.perf_counter()
    filled = np.asarray(imputer.transform(test), dtype=np.float64)
    done = time.perf_counter()
    most_mib = peak_mib()
    _check_fill(filled, split.test)
    result: dict[str, Any] = {
        "status": "done",
        "message": "",
        "scores": plain_scores(point_scores(split, filled)),
        "fit_s": round(fitted - start, 4),
        "transform_s": round(done - fitted, 4),
        "start_mib": start_mib,
        "peak_mib": most_mib,
        "data": {"rows": len(values), "columns": values.shape[1], "hidden_test_cells": int(split.hidden_test.sum())},
    }
    report(result)
    if hasattr(imputer, "draw"):
        found = _draws(split, imputer, task.seed)
        report(result | found | {"scores": result["scores"] | found["scores"]})


def _draws(split: Split, imputer: Any, seed: int) -> dict[str, Any]:
    """Return the scores of draws and the seconds that these took."""
    from mcflow.benchmarks.protocol import draw_rows, draw_scores

    start = time.perf_counter()
    draws = draw_rows(split, imputer, seed)
    seconds = round(time.perf_counter() - start, 4)
    return {"scores": plain_scores(draw_scores(split, imputer, draws)), "draw_s": seconds}


def _check_fill(filled: Any, truth: Any) -> None:
    import numpy as np

    from mcflow.errors import DataError

    if filled.shape != truth.shape:
        raise DataError(f"The filled rows have the shape {filled.shape}, but {truth.shape} were given.")
    if holes := int((~np.isfinite(filled)).sum()):
        raise DataError(f"{holes} cells of the filled rows are not finite.")


def main() -> int:
    """Run the cell that standard input describes.

    Returns
    -------
    int
        0 when the result file tells what came out, be it a failure of the method.
    """
    return run_process(lambda given, report: measure(Task(**given["task"]), Path(given["path"]), report))


if __name__ == "__main__":
    sys.exit(main())
