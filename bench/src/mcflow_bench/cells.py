"""Measure one cell in a process of its own: the task comes as JSON on standard input, the result is a JSON file."""

from __future__ import annotations

__all__ = ["Report", "main", "measure_frame", "measure_images", "measure_table", "plain_scores", "with_threads"]

import contextlib
import json
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcflow.errors import DataError
from mcflow.evaluation.methods import MethodSpec
from mcflow.files.atomic import replacing
from mcflow_bench.machine import peak_mib
from mcflow_bench.suites import EnergyTask, FrameTask, ImageTask, TableTask, task_from

if TYPE_CHECKING:
    from mcflow.metrics import Score
    from mcflow.typing import Array, FloatArray
    from mcflow_bench.data.image_sets import ImageSet
    from mcflow_bench.lenet import LeNetJudge
    from mcflow_bench.protocol import ImageSplit, Split

#: Takes a result; it may be called again with a more complete one.
Report = Callable[[dict[str, Any]], None]

#: Maximum number of characters of an error message that is stored.
_MAX_MESSAGE = 500
#: Images that are drawn first, to estimate the time for all.
FEW_DRAWN = 32
#: Maximum estimated seconds for the draws of all test images; longer draws are skipped.
MAX_DRAW_SECONDS = 7200.0


def measure_table(task: TableTask, path: Path, report: Report) -> None:
    """Fit a method on a table, fill and score it; report each result as soon as it is known."""
    import numpy as np

    from mcflow_bench.data.catalog import read_numbers
    from mcflow_bench.protocol import point_scores, split_table, stage_errors

    found = read_numbers(path, task.table)
    values = found.values[: task.rows]
    split = split_table(values, task.fold, task.rate, task.mechanism)
    imputer = with_threads(MethodSpec.parse(task.method).build(task.seed, values.shape[1]))
    filled, cost = _fit_and_fill(imputer, split.incomplete_train, split.incomplete_test)
    filled = np.asarray(filled, dtype=np.float64)
    _check_rows(filled, split.test)
    data = {"rows": len(values), "columns": values.shape[1], "hidden_test_cells": int(split.hidden_test.sum())}
    result = {"status": "done", "message": "", "scores": plain_scores(point_scores(split, filled)), "data": data} | cost
    if stages := stage_errors(split, imputer):
        result["stages"] = stages
        result["columns"] = list(found.names)
    report(result)
    if hasattr(imputer, "draw"):
        report(_with_draws(result, split, imputer, task.seed))


def measure_frame(task: FrameTask, path: Path, report: Report) -> None:
    """Fit a method on a table with its categories, fill and score it."""
    from mcflow_bench.data.catalog import read_mixed, read_numbers
    from mcflow_bench.frames import FrameSplit, built_for

    found = read_mixed(path, task.dataset) if task.mixed else read_numbers(path, task.dataset)
    frame = FrameSplit.of(found, task.rows, task.fold, task.rate)
    imputer, train, test = built_for(MethodSpec.parse(task.method), frame, task.seed)
    filled, cost = _fit_and_fill(with_threads(imputer), train, test)
    values = frame.codes(filled)
    _check_rows(values, frame.split.test)
    data = {"rows": frame.n_rows, "columns": len(frame.names), "categorical": len(frame.categories)}
    cost |= getattr(imputer, "cost_", {})
    report({"status": "done", "message": "", "scores": plain_scores(frame.scores(values)), "data": data} | cost)


def _with_draws(result: dict[str, Any], split: Split, imputer: Any, seed: int) -> dict[str, Any]:
    """Return the result with the scores of draws of the test rows and the seconds that these took."""
    from mcflow_bench.protocol import draw_rows, draw_scores

    start = time.perf_counter()
    draws = draw_rows(split, imputer, seed)
    seconds = round(time.perf_counter() - start, 4)
    scores = result["scores"] | plain_scores(draw_scores(split, imputer, draws))
    return result | {"scores": scores, "draw_s": seconds}


def _check_rows(filled: FloatArray, truth: FloatArray) -> None:
    import numpy as np

    if filled.shape != truth.shape:
        raise DataError(f"The filled rows have the shape {filled.shape}, but {truth.shape} were given.")
    if missing := int((~np.isfinite(filled)).sum()):
        raise DataError(f"{missing} cells of the filled rows are not finite.")


def measure_images(task: ImageTask, folder: Path, output: Path, report: Report) -> None:
    """Fit a method on images, fill and score them; report each result as soon as it is known."""
    from mcflow_bench.data.image_sets import load_image_set
    from mcflow_bench.protocol import split_images
    from mcflow_bench.report.pictures import keep_pictures
    from mcflow_bench.rivals.image_methods import build_for_images

    found = load_image_set(task.images, folder)
    split = split_images(found, task.mask, task.n_train, task.n_test)
    imputer = with_threads(build_for_images(MethodSpec.parse(task.method), task.seed))
    work = _ImageWork(split, imputer, _judge_of(found))
    filled, result = work.fit()
    keep_pictures(output, task.name, split, filled)
    report(result)
    result = work.with_training_images(result)
    report(result)
    if hasattr(imputer, "draw"):
        drawn, result = work.with_draw(result, task.seed)
        if drawn is not None:
            keep_pictures(output, task.name, split, filled, drawn)
        report(result)


def _judge_of(image_set: ImageSet) -> LeNetJudge | None:
    """Return the LeNet of all complete training digits, or None for other sets, which need no torch."""
    if not image_set.is_digits:
        return None
    from mcflow_bench.lenet import LeNetJudge, lenet_for

    return LeNetJudge(lenet_for(image_set))


@dataclass(frozen=True)
class _ImageWork:
    """Images, a method, and the classifier that its fills are judged by."""

    split: ImageSplit
    imputer: Any
    judge: LeNetJudge | None

    def fit(self) -> tuple[Array, dict[str, Any]]:
        """Fit, and return the filled test images and the result."""
        from mcflow_bench.protocol import blacken

        split = self.split
        train, test = blacken(split.train, split.hidden_train), blacken(split.test, split.hidden_test)
        filled, cost = _fit_and_fill(self.imputer, train, test, split.hidden_train, split.hidden_test)
        filled = _checked_images(filled, split.test)
        data = {
            "train_images": len(split.train),
            "test_images": len(split.test),
            "size": list(split.test.shape[1:]),
            "hidden_test_pixels": int(split.hidden_test.sum()),
        }
        return filled, {"status": "done", "message": "", "scores": self._test_scores(filled), "data": data} | cost

    def _test_scores(self, filled: Array, prefix: str = "") -> dict[str, Any]:
        from mcflow_bench.protocol import image_scores

        split = self.split
        return plain_scores(
            image_scores(filled, split.test, split.hidden_test, labels=split.labels, judge=self.judge, prefix=prefix)
        )

    def with_training_images(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result with the scores of the first training images."""
        from mcflow_bench.protocol import MAX_SCORED_TRAIN, blacken, image_scores

        truth, hidden = self.split.train[:MAX_SCORED_TRAIN], self.split.hidden_train[:MAX_SCORED_TRAIN]
        filled = _checked_images(self.imputer.transform(blacken(truth, hidden), mask=hidden), truth)
        scores = plain_scores(image_scores(filled, truth, hidden, prefix="train_"))
        data = result["data"] | {"scored_train_images": len(truth)}
        return result | {"scores": result["scores"] | scores, "data": data}

    def with_draw(self, result: dict[str, Any], seed: int) -> tuple[Array | None, dict[str, Any]]:
        """Return one draw of the test images and the result with its scores; no draw if it would take too long."""
        from mcflow_bench.protocol import blacken

        hidden = self.split.hidden_test
        test = blacken(self.split.test, hidden)
        few = test[:FEW_DRAWN]
        start = time.perf_counter()
        next(iter(self.imputer.draw(few, 1, seed, mask=hidden[:FEW_DRAWN])))
        needed = (time.perf_counter() - start) * len(test) / len(few)
        if needed > MAX_DRAW_SECONDS:
            hours = f"{needed / 3600:.1f} hours"
            return None, result | {
                "message": f"draws were not scored: by the first {len(few)} images, all would take {hours}"
            }
        start = time.perf_counter()
        drawn = next(iter(self.imputer.draw(test, 1, seed, mask=hidden)))
        seconds = round(time.perf_counter() - start, 4)
        drawn = _checked_images(drawn, self.split.test)
        return drawn, result | {"scores": result["scores"] | self._test_scores(drawn, "draw_"), "draw_s": seconds}


def _checked_images(filled: Any, truth: Array) -> Array:
    import numpy as np

    given: Array = np.asarray(filled)
    if given.shape != truth.shape or given.dtype != truth.dtype:
        raise DataError(
            f"The filled images are of type {given.dtype} and shape {given.shape}, but {truth.dtype} and {truth.shape} "
            "were given."
        )
    return given


def _fit_and_fill(imputer: Any, train: Any, test: Any, *masks: Any) -> tuple[Any, dict[str, Any]]:
    """Fit and fill, images with the masks of both parts; return the fill, the seconds and the memory in MiB."""
    of_train, of_test = ({"mask": mask} for mask in masks) if masks else ({}, {})
    start_mib, start = peak_mib(), time.perf_counter()
    imputer.fit(train, **of_train)
    fitted = time.perf_counter()
    filled = imputer.transform(test, **of_test)
    done, end_mib = time.perf_counter(), peak_mib()
    return filled, {
        "fit_s": round(fitted - start, 4),
        "transform_s": round(done - fitted, 4),
        "start_mib": start_mib,
        "peak_mib": end_mib,
    }


def with_threads(imputer: Any) -> Any:
    """Set n_jobs to the number of threads of the process, unless the imputer has none or it was given."""
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    known = imputer.get_params(deep=False) if hasattr(imputer, "get_params") else {}
    if known.get("n_jobs", 1) is None and threads.isdigit():
        imputer.set_params(n_jobs=int(threads))
    return imputer


def plain_scores(scores: Mapping[str, Score]) -> dict[str, dict[str, float | None]]:
    """Return scores as JSON holds them, with None for values that are not finite."""

    def finite(number: float) -> float | None:
        return float(number) if math.isfinite(number) else None

    return {name: {"value": finite(score.value), "error": finite(score.error)} for name, score in scores.items()}


def main() -> int:
    """Run the cell that standard input describes."""
    given = json.loads(_first_line())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    task, path, output = task_from(given["task"]), Path(given["path"]), Path(given["result"])

    def report(result: dict[str, Any]) -> None:
        with replacing(output) as temporary:
            temporary.write_text(json.dumps(result))

    try:
        if isinstance(task, ImageTask):
            measure_images(task, path, Path(given["output"]), report)
        elif isinstance(task, TableTask):
            measure_table(task, path, report)
        elif isinstance(task, EnergyTask):
            from mcflow_bench.energy import measure_energy

            report(measure_energy(task, path))
        elif isinstance(task, FrameTask):
            measure_frame(task, path, report)
    except Exception as error:
        traceback.print_exc()
        _report_failure(output, error, report, "draws" if task.kind == "table" else "training images or draws")
    return 0


def _report_failure(output: Path, error: Exception, report: Report, later: str) -> None:
    status = "memory" if isinstance(error, MemoryError) else "error"
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if output.is_file():  # the fill was scored; only what comes after it failed
        report(json.loads(output.read_text()) | {"message": f"{later}: {words}"[:_MAX_MESSAGE]})
    else:
        report({"status": status, "message": " ".join(words.split())[:_MAX_MESSAGE]})


def _first_line() -> bytes:
    # Not through sys.stdin, whose buffer would be locked by the thread below when the interpreter ends.
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(0, 1 << 16)):
        line += piece
    return line


def _end_with_parent() -> None:
    """Wait for the end of standard input, which means that the parent is gone, and end the process."""
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
