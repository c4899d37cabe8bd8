"""A cell's process: a task as JSON on standard input, the result as a JSON file, and an end with the parent."""

from __future__ import annotations

__all__ = ["Measure", "Report", "plain_scores", "run_process", "with_threads"]

import contextlib
import json
import math
import os
import signal
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcflow.data.files import replacing

if TYPE_CHECKING:
    from mcflow.metrics import Score

#: Takes a result; it may be called again with more in it.
Report = Callable[[dict[str, Any]], None]
#: Takes what standard input told, measures, and reports.
Measure = Callable[[dict[str, Any], Report], None]

#: Characters of an error's message that are kept.
_LONGEST = 500


def run_process(measure: Measure, later: str = "draws") -> int:
    """Run the cell that standard input describes.

    Parameters
    ----------
    measure : callable
        Takes what was given, and a function that keeps the result.
    later : str, default="draws"
        What is measured after the first report, for the message when that fails.

    Returns
    -------
    int
        0: the result file tells what came out, be it a failure of the method.
    """
    given = json.loads(_first_line())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    output = Path(given["result"])

    def report(result: dict[str, Any]) -> None:
        with replacing(output) as temporary:
            temporary.write_text(json.dumps(result))

    try:
        measure(given, report)
    except Exception as error:
        traceback.print_exc()
        _report_failure(output, error, report, later)
    return 0


def _report_failure(output: Path, error: Exception, report: Report, later: str) -> None:
    status = "memory" if isinstance(error, MemoryError) else "error"
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if output.is_file():  # the fill was scored; only what comes after it failed
        report(json.loads(output.read_text()) | {"message": f"{later}: {words}"[:_LONGEST]})
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


def with_threads(imputer: Any) -> Any:
    """Give an imputer that takes n_jobs as many as there are threads, unless it was told otherwise.

    Parameters
    ----------
    imputer : object
        Not fitted yet.

    Returns
    -------
    object
        The same.
    """
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    known = imputer.get_params(deep=False) if hasattr(imputer, "get_params") else {}
    if known.get("n_jobs", 1) is None and threads.isdigit():
        imputer.set_params(n_jobs=int(threads))
    return imputer


def plain_scores(scores: Mapping[str, Score]) -> dict[str, dict[str, float | None]]:
    """Return scores as JSON has them, None in place of what is not finite.

    Parameters
    ----------
    scores : mapping of Score
        By name.

    Returns
    -------
    dict of dict

    Examples
    --------
    >>> from mcflow.metrics import Score
    >>> plain_scores({"rmse": Score(0.5, float("nan"))})
    {'rmse': {'value': 0.5, 'error': None}}
    """

    def finite(number: float) -> float | None:
        return float(number) if math.isfinite(number) else None

    return {name: {"value": finite(score.value), "error": finite(score.error)} for name, score in scores.items()}
