"""Check methods and read image sets before a run, in a separate process.

The process that starts the cells has to stay small, since a process starts with the peak memory of its parent.
"""

from __future__ import annotations

__all__ = ["ImageFacts", "check_methods", "facts_of", "main", "prepare_images"]

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcflow.errors import DataError, McflowError, ParameterError
from mcflow.evaluation.methods import MethodSpec
from mcflow.files.atomic import cache_folder
from mcflow_bench.machine import thread_variables

if TYPE_CHECKING:
    from mcflow_bench.data.image_sets import ImageSet

#: Exit code of this module as a program when a method, a parameter or an image set does not exist.
WRONG = 2
#: Exit code when an image set exists but cannot be read.
_UNUSABLE = 3


@dataclass(frozen=True)
class ImageFacts:
    """The folder that an image set is read from, its checksum and its numbers of images."""

    folder: str
    sha256: str
    n_train: int
    n_test: int


def check_methods(methods: Sequence[str], kind: str) -> None:
    """Raise `ParameterError` for a method or parameter that does not exist; `kind` is "table", "frame" or "images"."""
    done = _run(["methods", kind, *dict.fromkeys(methods)])
    if done.returncode == WRONG:
        raise ParameterError(done.stdout.strip())


def prepare_images(names: Sequence[str], data: Path | None = None, *, threads: int = 1) -> dict[str, ImageFacts]:
    """Read image sets, download what is missing, and train the classifier of digits unless it is cached."""
    done = _run(["images", str(data or os.environ.get("MCFLOW_DATA") or ""), *names], threads)
    if done.returncode == WRONG:
        raise ParameterError(done.stdout.strip())
    if done.returncode:
        raise DataError(done.stdout.strip() or f"The image sets cannot be read: {done.stderr.strip()[-300:]}")
    return {name: ImageFacts(**facts) for name, facts in json.loads(done.stdout).items()}


def _run(words: Sequence[str], threads: int = 1) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a module of this program
        [sys.executable, "-m", __name__, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | thread_variables(threads),
    )


def facts_of(image_set: ImageSet, folder: Path) -> ImageFacts:
    """Return the facts of a set that a run needs."""
    digest = hashlib.sha256()
    for array in (image_set.train, image_set.test, image_set.train_labels, image_set.test_labels):
        digest.update(b"none" if array is None else f"{array.shape}".encode() + array.tobytes())
    return ImageFacts(str(folder), digest.hexdigest(), len(image_set.train), len(image_set.test))


def main(words: Sequence[str]) -> int:
    """Check methods, or print the facts of image sets as JSON; print the reason of a failure."""
    command, given, *names = words
    try:
        if command == "methods":
            _build(names, given)
        else:
            sys.stdout.write(json.dumps(_read_images(names, Path(given) if given else None)))
    except McflowError as error:
        sys.stdout.write(f"{error}\n")
        return WRONG if isinstance(error, ParameterError) else _UNUSABLE
    return 0


def _build(methods: Sequence[str], kind: str) -> None:
    """Build each method; let through only errors that name a method or parameter that does not exist."""
    for method in methods:
        try:
            spec = MethodSpec.parse(method)
            if kind == "images":
                from mcflow_bench.rivals.image_methods import build_for_images

                build_for_images(spec, 0)
            elif kind == "frame":
                from mcflow_bench.rivals.rmice import build_method

                build_method(spec, 0)
            else:
                spec.build(0, 1)
        except ParameterError:
            raise
        except Exception:  # noqa: S112 - the cells of this method will report it
            continue


def _read_images(names: Sequence[str], folder: Path | None) -> dict[str, dict[str, object]]:
    from mcflow_bench.data.image_sets import load_image_set

    facts = {}
    for name in names:
        found = load_image_set(name, folder)
        facts[name] = asdict(facts_of(found, folder or cache_folder()))
        if found.is_digits:
            from mcflow_bench.lenet import lenet_for

            lenet_for(found)
    return facts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
