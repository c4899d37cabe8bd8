"""One cell in a process of its own: a task as JSON on standard input, the result as a JSON file."""

from __future__ import annotations

__all__ = ["main", "measure"]

import contextlib
import json
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcflow.benchmarks.machine import peak_mib
from mcflow.benchmarks.suite import Task
from mcflow.data.files import replacing

if TYPE_CHECKING:
    from mcflow.benchmarks.protocol import Split

#: Characters of an error's message that are kept.
_LONGEST = 500


def measure(task: Task, path: Path, report: Callable[[dict[str, Any]], None]) -> None:
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
    imputer = _with_threads(MethodSpec.parse(task.method).build(task.seed, values.shape[1]))
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
        "scores": _plain(point_scores(split, filled)),
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
    return {"scores": _plain(draw_scores(split, imputer, draws)), "draw_s": seconds}


def _with_threads(imputer: Any) -> Any:
    """Give an imputer that takes n_jobs as many as there are threads, unless it was told otherwise."""
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    known = imputer.get_params(deep=False) if hasattr(imputer, "get_params") else {}
    if known.get("n_jobs", 1) is None and threads.isdigit():
        imputer.set_params(n_jobs=int(threads))
    return imputer


def _check_fill(filled: Any, truth: Any) -> None:
    import numpy as np

    from mcflow.errors import DataError

    if filled.shape != truth.shape:
        raise DataError(f"The filled rows have the shape {filled.shape}, but {truth.shape} were given.")
    if holes := int((~np.isfinite(filled)).sum()):
        raise DataError(f"{holes} cells of the filled rows are not finite.")


def _plain(scores: dict[str, Any]) -> dict[str, Any]:
    def finite(number: float) -> float | None:
        return float(number) if math.isfinite(number) else None

    return {name: {"value": finite(score.value), "error": finite(score.error)} for name, score in scores.items()}


def main() -> int:
    """Run the cell that standard input describes.

    Returns
    -------
    int
        0 when the result file tells what came out, be it a failure of the method.
    """
    given = json.loads(_first_line())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    output = Path(given["result"])

    def report(result: dict[str, Any]) -> None:
        with replacing(output) as temporary:
            temporary.write_text(json.dumps(result))

    try:
        measure(Task(**given["task"]), Path(given["path"]), report)
    except Exception as error:
        traceback.print_exc()
        _report_failure(output, error, report)
    return 0


def _report_failure(output: Path, error: Exception, report: Callable[[dict[str, Any]], None]) -> None:
    status = "memory" if isinstance(error, MemoryError) else "error"
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if output.is_file():  # the fill was scored; only its draws failed
        report(json.loads(output.read_text()) | {"message": f"draws: {words}"[:_LONGEST]})
    else:
        report({"status": status, "message": " ".join(words.split())[:_LONGEST]})


def _first_line() -> bytes:
    # Not through sys.stdin: its buffer would be locked by the thread below when the interpreter ends.
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(0, 1 << 16)):
        line += piece
    return line


def _end_with_the_parent() -> None:
    """Wait for the end of standard input: whoever started this process is gone, and so is the use of it."""
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
