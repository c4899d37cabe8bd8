"""One cell of images in a process of its own: a task as JSON on standard input, the result as a JSON file."""

from __future__ import annotations

__all__ = ["main", "measure"]

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcflow.benchmarks.image_suite import ImageTask
from mcflow.benchmarks.machine import peak_mib
from mcflow.benchmarks.process import Report, plain_scores, run_process, with_threads

if TYPE_CHECKING:
    from mcflow.benchmarks.image_protocol import ImageSplit, Judge
    from mcflow.benchmarks.lenet import LeNet
    from mcflow.data.images import ImageSet
    from mcflow.typing import Array, FloatArray


#: Images that are drawn first, and the seconds that all of them may need by these.
FEW_DRAWN, MOST_DRAW_SECONDS = 32, 7200.0


def measure(task: ImageTask, folder: Path, output: Path, report: Report) -> None:
    """Fit, fill and score; report what was found as soon as it is known.

    Parameters
    ----------
    task : ImageTask
        What to measure.
    folder : Path
        Where the set is.
    output : Path
        Where pictures are kept, in a folder of their own.
    report : callable
        Takes the result; it is called again, with more in it, once training images and draws have been scored.
    """
    from mcflow.benchmarks.image_pictures import keep_pictures
    from mcflow.benchmarks.image_protocol import split_images
    from mcflow.benchmarks.methods import MethodSpec
    from mcflow.data.images import load_image_set

    found = load_image_set(task.images, folder)
    judge = _judge_of(found)
    split = split_images(found, task.mask, task.n_train, task.n_test)
    imputer = with_threads(MethodSpec.parse(task.method).build_for_images(task.seed))
    work = _Work(split, imputer, judge)
    filled, result = work.fitted()
    keep_pictures(output, task.name, split, filled)
    report(result)
    result = work.with_training_images(result)
    report(result)
    if hasattr(imputer, "draw"):
        drawn, result = work.with_a_draw(result, task.seed)
        if drawn is not None:
            keep_pictures(output, task.name, split, filled, drawn)
        report(result)


@dataclass(frozen=True)
class _Work:
    """Images, a method and who judges it."""

    split: ImageSplit
    imputer: Any
    judge: Judge | None

    def fitted(self) -> tuple[Array, dict[str, Any]]:
        """Fit, and return the filled test images and what they are worth."""
        from mcflow.benchmarks.image_protocol import with_holes

        split = self.split
        train, test = with_holes(split.train, split.hidden_train), with_holes(split.test, split.hidden_test)
        start_mib, start = peak_mib(), time.perf_counter()
        self.imputer.fit(train, mask=split.hidden_train)
        fitted = time.perf_counter()
        filled = self.imputer.transform(test, mask=split.hidden_test)
        done, most_mib = time.perf_counter(), peak_mib()
        filled = _checked(filled, split.test)
        return filled, {
            "status": "done",
            "message": "",
            "scores": self._test_scores(filled),
            "fit_s": round(fitted - start, 4),
            "transform_s": round(done - fitted, 4),
            "start_mib": start_mib,
            "peak_mib": most_mib,
            "data": _facts(split),
        }

    def _test_scores(self, filled: Array, prefix: str = "") -> dict[str, Any]:
        from mcflow.benchmarks.image_protocol import image_scores

        split = self.split
        return plain_scores(
            image_scores(filled, split.test, split.hidden_test, labels=split.labels, judge=self.judge, prefix=prefix)
        )

    def with_training_images(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result with the scores of the first training images, filled by what was learned from them."""
        from mcflow.benchmarks.image_protocol import MOST_TRAIN, image_scores, with_holes

        truth, hidden = self.split.train[:MOST_TRAIN], self.split.hidden_train[:MOST_TRAIN]
        filled = _checked(self.imputer.transform(with_holes(truth, hidden), mask=hidden), truth)
        scores = plain_scores(image_scores(filled, truth, hidden, prefix="train_"))
        data = result["data"] | {"scored_train_images": len(truth)}
        return result | {"scores": result["scores"] | scores, "data": data}

    def with_a_draw(self, result: dict[str, Any], seed: int) -> tuple[Array | None, dict[str, Any]]:
        """Return one draw of the test images, and the result with its scores; None if it would take too long."""
        from mcflow.benchmarks.image_protocol import with_holes

        split = self.split
        test = with_holes(split.test, split.hidden_test)
        few = test[:FEW_DRAWN]
        start = time.perf_counter()
        next(iter(self.imputer.draw(few, 1, seed, mask=split.hidden_test[:FEW_DRAWN])))
        needed = (time.perf_counter() - start) * len(test) / len(few)
        if needed > MOST_DRAW_SECONDS:
            hours = f"{needed / 3600:.1f} hours"
            return None, result | {
                "message": f"draws were not scored: by the first {len(few)} images, all would take {hours}"
            }
        start = time.perf_counter()
        drawn = next(iter(self.imputer.draw(test, 1, seed, mask=split.hidden_test)))
        seconds = round(time.perf_counter() - start, 4)
        drawn = _checked(drawn, split.test)
        scores = result["scores"] | self._test_scores(drawn, "draw_")
        return drawn, result | {"scores": scores, "draw_s": seconds}


def _checked(filled: Any, truth: Array) -> Array:
    import numpy as np

    from mcflow.errors import DataError

    given: Array = np.asarray(filled)
    if given.shape != truth.shape or given.dtype != truth.dtype:
        raise DataError(
            f"The filled images are of type {given.dtype} and shape {given.shape}, but {truth.dtype} and {truth.shape} "
            "were given."
        )
    return given


def _facts(split: ImageSplit) -> dict[str, Any]:
    return {
        "train_images": len(split.train),
        "test_images": len(split.test),
        "size": list(split.test.shape[1:]),
        "hidden_test_pixels": int(split.hidden_test.sum()),
    }


@dataclass(frozen=True)
class _LeNetJudge:
    network: LeNet

    def accuracy(self, images: Array, labels: Array) -> float:
        from mcflow.benchmarks.lenet import accuracy

        return accuracy(self.network, images, labels)

    def features(self, images: Array) -> FloatArray:
        from mcflow.benchmarks.lenet import features

        return features(self.network, images)


def _judge_of(image_set: ImageSet) -> Judge | None:
    """Return the LeNet of all complete training digits; None for other sets."""
    from mcflow.benchmarks.image_facts import is_digits
    from mcflow.benchmarks.lenet import lenet_for

    return _LeNetJudge(lenet_for(image_set)) if is_digits(image_set) else None


def main() -> int:
    """Run the cell that standard input describes.

    Returns
    -------
    int
        0 when the result file tells what came out, be it a failure of the method.
    """
    return run_process(
        lambda given, report: measure(ImageTask(**given["task"]), Path(given["path"]), Path(given["output"]), report),
        later="training images or draws",
    )


if __name__ == "__main__":
    sys.exit(main())
