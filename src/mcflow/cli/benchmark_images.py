"""`mcflow benchmark images`: the paper's tables of images with what was measured, and a picture of filled images."""

from __future__ import annotations

__all__ = ["images"]

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mcflow.cli.measuring import (
    Words,
    check_numbers,
    check_page,
    need_results,
    put_block,
    say_outcome,
    split_words,
    stoppable,
)

if TYPE_CHECKING:
    from mcflow.benchmarks.blocks import Figure
    from mcflow.benchmarks.image_suite import ImageSuite

#: Where figures go, beside the page that shows them.
_FIGURES = "pictures"


def images(
    *,
    output: Annotated[Path, Parameter(alias="-o")] = Path("mcflow-images"),
    page: Path | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    data: Annotated[Path | None, Parameter(alias="--data-dir")] = None,
    sets: Words = (),
    methods: Words = (),
    rates: Words = (),
    n_train: int | None = None,
    n_test: int | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    jobs: int = 1,
    threads: int = 1,
    figure: Words = (),
    retry: Annotated[bool, Parameter(negative="")] = False,
    report_only: Annotated[bool, Parameter(negative="")] = False,
    quiet: Annotated[bool, Parameter(alias="-q", negative="")] = False,
) -> None:
    """Measure imputers of images and write the paper's Tables 2 to 4 with what was found.

    Without flags: MNIST, CIFAR-10 and CelebA, 10 % to 90 % of the pixels missing completely at random, and blocks of
    MNIST. It can be stopped at any moment; the same command goes on where it was. Lists are separated by commas.

    Parameters
    ----------
    output
        Folder for results, table.md, table.html and figures.
    page
        Also put the tables into this page, between its marks, and the figures beside it.
    quick
        5,000 digits, three rates and short training: under ten minutes.
    data
        Folder with the sets, by default MCFLOW_DATA; MNIST and CIFAR-10 are downloaded otherwise.
    sets
        mnist,cifar10,celeba or NAME of any NAME.npz of the folder.
    methods
        Such as "mean,nearest,gain,misgan,mcflow(max_time=600),mcflow:paper,python:package.module:factory".
    rates
        Shares of missing pixels, or other masks: 0.1,0.5,blocks:0.25,halves:left
    n_train
        Use only this many first training images.
    n_test
        Use only this many first test images.
    seed
        The methods' random_state.
    time_limit
        Seconds that a cell may take.
    jobs
        Cells at a time.
    threads
        Threads of each.
    figure
        Draw filled images at these rates: 0.5,blocks:0.25
    retry
        Do cells again that failed.
    report_only
        Write tables and figures from the results that are there.
    quiet
        Print errors only.
    """
    from mcflow.benchmarks.image_report import MARK
    from mcflow.benchmarks.image_suite import mask_word

    check_numbers(jobs, threads)
    if page is not None:
        check_page("--page", page, MARK)
    drawn = [mask_word(word) for word in split_words(figure)]
    numbers = {"n_train": n_train, "n_test": n_test, "seed": seed, "time_limit": time_limit}
    suite = _changed(quick, {"sets": sets, "methods": methods, "masks": rates}, numbers)
    if report_only:
        need_results(output)
    else:
        _run(suite, output, quiet, data=data, jobs=jobs, threads=threads, retry=retry)
    _report(suite, output, page, drawn)
    if not quiet:
        print(f"Tables written to {output / 'table.md'}{f' and {page}' if page else ''}.")


def _changed(quick: bool, given: dict[str, tuple[str, ...]], numbers: dict[str, float | None]) -> ImageSuite:
    """Return a suite with what the flags say in place of its own."""
    from mcflow.benchmarks.image_suite import IMAGE_SUITES, mask_word

    lists = {name: tuple(split_words(texts)) for name, texts in given.items()}
    changes: dict[str, Any] = {name: words for name, words in lists.items() if words}
    if lists["masks"]:
        changes["masks"] = tuple(map(mask_word, lists["masks"]))
    if changes:
        changes["extras"] = ()
    changes |= {name: value for name, value in numbers.items() if value is not None}
    suite: ImageSuite = replace(IMAGE_SUITES["quick" if quick else "paper"], **changes)
    suite.check()
    return suite


def _run(suite: ImageSuite, output: Path, quiet: bool, **how: Any) -> None:
    from mcflow.benchmarks.image_bench import run_image_suite

    with stoppable(output):
        outcome = run_image_suite(suite, output, quiet=quiet, **how)
    if not quiet:
        say_outcome(outcome)


def _report(suite: ImageSuite, output: Path, page: Path | None, drawn: list[str]) -> None:
    from mcflow.benchmarks.image_figure import write_figures
    from mcflow.benchmarks.image_report import MARK, image_block, write_image_report
    from mcflow.benchmarks.store import Store

    rows = Store(output).rows()
    figures, missing = write_figures(rows, output, sets=suite.all_sets, masks=drawn)
    for words in missing:
        print(f"mcflow: {words}", file=sys.stderr)
    write_image_report(rows, output, suite, figures)
    if page is not None:
        shown = [_beside(page, output, one) for one in figures]
        put_block(page, MARK, image_block(rows, suite, shown))


def _beside(page: Path, output: Path, figure: Figure) -> Figure:
    """Copy a figure to the folder of a page's pictures, and return it with its path from there."""
    from mcflow.data.files import replacing

    folder = page.parent / _FIGURES
    folder.mkdir(exist_ok=True)
    with replacing(folder / figure.path) as temporary:
        temporary.write_bytes((output / figure.path).read_bytes())
    return replace(figure, path=f"{_FIGURES}/{figure.path}")
