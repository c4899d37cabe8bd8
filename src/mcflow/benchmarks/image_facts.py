"""What a run has to know of sets of images before it starts: where they are, how many images, and a checksum."""

from __future__ import annotations

__all__ = ["ImageFacts", "data_folder", "facts_of", "is_digits", "main", "prepare"]

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcflow.benchmarks.machine import thread_variables
from mcflow.data.downloads import cache_folder
from mcflow.errors import DataError, McflowError, ParameterError

if TYPE_CHECKING:
    from mcflow.data.images import ImageSet

#: Exit codes of this module as a program when a set is not to be had.
_WRONG, _UNUSABLE = 2, 3


@dataclass(frozen=True)
class ImageFacts:
    """Of one set: the folder it is read from, its checksum, and how many images it has."""

    folder: str
    sha256: str
    n_train: int
    n_test: int


def data_folder(data: Path | None = None) -> Path:
    """Return the folder that sets are read from.

    Parameters
    ----------
    data : Path, optional
        By default the one that MCFLOW_DATA names, else the cache of downloads.

    Returns
    -------
    Path
    """
    return data or Path(os.environ.get("MCFLOW_DATA") or cache_folder())


def facts_of(image_set: ImageSet, folder: Path) -> ImageFacts:
    """Return what a run has to know of a set.

    Parameters
    ----------
    image_set : ImageSet
        Loaded.
    folder : Path
        Where it was.

    Returns
    -------
    ImageFacts

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.data.images import ImageSet
    >>> facts = facts_of(ImageSet("dots", np.zeros((3, 2, 2), np.uint8), np.zeros((1, 2, 2), np.uint8)), Path("."))
    >>> facts.n_train, facts.n_test, len(facts.sha256)
    (3, 1, 64)
    """
    digest = hashlib.sha256()
    for array in (image_set.train, image_set.test, image_set.train_labels, image_set.test_labels):
        digest.update(b"none" if array is None else f"{array.shape}".encode() + array.tobytes())
    return ImageFacts(str(folder), digest.hexdigest(), len(image_set.train), len(image_set.test))


def is_digits(image_set: ImageSet) -> bool:
    """Tell whether LeNet can judge a set: grey images of 28 × 28 pixels with labels.

    Parameters
    ----------
    image_set : ImageSet
        Loaded.

    Returns
    -------
    bool
    """
    labelled = image_set.train_labels is not None and image_set.test_labels is not None
    return labelled and image_set.train.shape[1:] in {(28, 28), (28, 28, 1)}


def prepare(names: Sequence[str], data: Path | None = None, *, threads: int = 1) -> dict[str, ImageFacts]:
    """Find sets, download what is missing, and train the judge of digits unless it is there.

    Parameters
    ----------
    names : sequence of str
        Of the sets.
    data : Path, optional
        Folder of sets, by default the one that MCFLOW_DATA names, else the cache of downloads.
    threads : int, default=1
        For the training.

    Returns
    -------
    dict of ImageFacts
        By name.

    Raises
    ------
    ParameterError
        When there is no such set or folder.
    DataError
        When a set cannot be read or had.

    Notes
    -----
    It is done in another process, because this one has to stay small: a process starts with the peak memory of its
    parent.
    """
    folder = data_folder(data)
    given = [str(folder) if data or os.environ.get("MCFLOW_DATA") else "", *names]
    done = subprocess.run(  # noqa: S603 - this very program
        [sys.executable, "-m", __name__, *given],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | thread_variables(threads),
    )
    if done.returncode == _WRONG:
        raise ParameterError(done.stdout.strip())
    if done.returncode:
        raise DataError(done.stdout.strip() or f"The sets of images cannot be read: {done.stderr.strip()[-300:]}")
    found = json.loads(done.stdout)
    return {name: ImageFacts(**facts) for name, facts in found.items()}


def main(words: Sequence[str]) -> int:
    """Print the facts of sets as JSON, or why one cannot be had.

    Parameters
    ----------
    words : sequence of str
        The folder, empty for none, and the names.

    Returns
    -------
    int
        The exit code.
    """
    from mcflow.benchmarks.lenet import lenet_for
    from mcflow.data.images import load_image_set

    given, *names = words
    folder = Path(given) if given else None
    facts = {}
    try:
        for name in names:
            found = load_image_set(name, folder)
            facts[name] = asdict(facts_of(found, data_folder(folder)))
            if is_digits(found):
                lenet_for(found)
    except McflowError as error:
        sys.stdout.write(f"{error}\n")
        return _WRONG if isinstance(error, ParameterError) else _UNUSABLE
    sys.stdout.write(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
