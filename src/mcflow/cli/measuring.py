"""What the commands that measure share: lists of words, pages with marks, and a stop that says how to go on."""

from __future__ import annotations

__all__ = [
    "Words",
    "check_numbers",
    "check_page",
    "need_results",
    "put_block",
    "say_outcome",
    "split_words",
    "stoppable",
    "write_table",
]

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mcflow.errors import DataError, ParameterError

if TYPE_CHECKING:
    from mcflow.benchmarks.bench import Outcome

#: A flag that takes a list separated by commas.
Words = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]


def split_words(texts: Iterable[str]) -> list[str]:
    """Return the entries of lists that are separated by commas, those inside brackets aside."""
    from mcflow.benchmarks.methods import split_list

    return [word for text in texts for word in split_list(text)]


def check_numbers(jobs: int, threads: int) -> None:
    """Raise `ParameterError` unless both are at least 1."""
    if jobs < 1 or threads < 1:
        raise ParameterError(f"jobs is {jobs} and threads is {threads}, but both have to be at least 1.")


def check_page(flag: str, page: Path, mark: str) -> None:
    """Raise an error before hours are spent when the page for the table has no place for it."""
    from mcflow.benchmarks.blocks import with_block
    from mcflow.data.files import check_writable

    if not page.is_file():
        raise ParameterError(f"{flag} is {page}, which is not a file. Give a page that has marks for the table.")
    with_block(page.read_text(encoding="utf-8"), mark, "")
    check_writable(page)


def need_results(output: Path) -> None:
    """Raise `DataError` when there is nothing to report."""
    if not (output / "cells").is_dir():
        raise DataError(f"There are no results in {output}. Leave --report-only out to measure some.")


@contextlib.contextmanager
def stoppable(output: Path) -> Iterator[None]:
    """Say after a stop how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"stopped; finished cells are in {output}, and the same command goes on where it was"
        ) from None


def say_outcome(outcome: Outcome) -> None:
    """Print how many cells were measured and failed."""
    again = "; --retry does failed ones again" if outcome.failed else ""
    print(
        f"{outcome.done} cells measured now, {outcome.found} before, {outcome.failed} failed{again}.",
        file=sys.stderr,
    )


def write_table(output: Path, title: str, block: str) -> None:
    """Write table.md: a title and what also stands between the marks of a page."""
    from mcflow.data.files import replacing

    with replacing(output / "table.md") as temporary:
        temporary.write_text(f"# {title}\n\n{block}\n", encoding="utf-8")


def put_block(page: Path, mark: str, block: str) -> None:
    """Write a block between the marks of a page."""
    from mcflow.benchmarks.blocks import with_block
    from mcflow.data.files import replacing

    text = with_block(page.read_text(encoding="utf-8"), mark, block)
    with replacing(page) as temporary:
        temporary.write_text(text, encoding="utf-8")
