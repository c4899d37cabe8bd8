"""From a suite of images to results on disk: do what is missing."""

from __future__ import annotations

__all__ = ["run_image_suite"]

import sys
from pathlib import Path

from mcflow.benchmarks.bench import Outcome, run_missing
from mcflow.benchmarks.image_facts import prepare
from mcflow.benchmarks.image_suite import ImageSuite
from mcflow.errors import ParameterError


def run_image_suite(
    suite: ImageSuite,
    output: Path,
    *,
    data: Path | None = None,
    jobs: int = 1,
    threads: int = 1,
    retry: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Run the cells of a suite whose results are not in a folder yet.

    Parameters
    ----------
    suite : ImageSuite
        What to measure.
    output : Path
        Folder of the results.
    data : Path, optional
        Folder of sets, by default the one that MCFLOW_DATA names; MNIST and CIFAR-10 are downloaded otherwise.
    jobs : int, default=1
        Cells at a time.
    threads : int, default=1
        Threads of each.
    retry : bool, default=False
        Do cells again that failed.
    quiet : bool, default=False
        Show no progress.

    Returns
    -------
    Outcome

    Raises
    ------
    ParameterError
        When the suite names what there is not.
    DataError
        When a set cannot be read or had.
    OutputError
        When the folder cannot be written or another benchmark is at work there.
    """
    suite.check()
    if not quiet:
        names = ", ".join(suite.all_sets)
        sys.stderr.write(f"Reading {names}. Digits are judged by a LeNet, trained once, which takes some minutes.\n")
    facts = prepare(suite.all_sets, data, threads=threads)
    for name, found in facts.items():
        for part, asked, there in (("train", suite.n_train, found.n_train), ("test", suite.n_test, found.n_test)):
            if asked is not None and asked > there:
                raise ParameterError(f"n_{part} is {asked:,}, but {name} has {there:,} such images. Ask for fewer.")
    cells = suite.cells(lambda name: (Path(facts[name].folder), facts[name].sha256))
    return run_missing(
        cells, output, time_limit=suite.time_limit, images=True, jobs=jobs, threads=threads, retry=retry, quiet=quiet
    )
