"""`mcflow benchmark`: the paper's table with what was measured, what each ingredient is worth, and intervals."""

from __future__ import annotations

__all__ = ["ablation", "simulation", "tables"]

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from mcflow.errors import DataError, ParameterError

if TYPE_CHECKING:
    from mcflow.benchmarks.ablation import AblationSuite
    from mcflow.benchmarks.simulation import Study
    from mcflow.benchmarks.suite import Suite

_List = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]


def tables(
    *,
    output: Annotated[Path, Parameter(alias="-o")] = Path("mcflow-benchmark"),
    suite: Literal["paper", "draws"] = "paper",
    quick: Annotated[bool, Parameter(negative="")] = False,
    data: Path | None = None,
    tables: _List = (),
    methods: _List = (),
    mechanisms: _List = (),
    rates: _List = (),
    folds: _List = (),
    rows: int | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    jobs: int = 1,
    threads: int = 1,
    retry: Annotated[bool, Parameter(negative="")] = False,
    report_only: Annotated[bool, Parameter(negative="")] = False,
    readme: Path | None = None,
    quiet: Annotated[bool, Parameter(alias="-q", negative="")] = False,
) -> None:
    """Measure imputers of tables and write the paper's Table 1 with what was found.

    Without flags: Letter, Credit and News, 20 % missing completely at random, five folds, all methods but
    misgan. It can be stopped at any moment; the same command goes on where it was. Lists are separated by commas.

    Parameters
    ----------
    output
        Folder for results, table.md, table.html and ranks.svg.
    suite
        paper, or draws: how good draws and intervals are, on two tables more and one fold, kept in the folder draws.
    quick
        2,000 rows, one fold and small models: a few minutes.
    data
        Folder with NAME.parquet or NAME.csv, by default MCFLOW_DATA; other tables are downloaded.
    tables
        Data sets: letter,credit,news,bean,spambase,california or any file of the folder.
    methods
        Such as "mean,missforest(n_trees=30),mcflow:paper(max_epochs=64),python:package.module:factory".
    mechanisms
        mcar, mar, mnar_self, mnar_logistic, mnar_quantile.
    rates
        Shares of hidden cells: 0.1,0.2,0.5
    folds
        Which of the five: 0,1 or 0-4.
    rows
        Use only this many first rows.
    seed
        The methods' random_state.
    time_limit
        Seconds that a cell may take.
    jobs
        Cells at a time.
    threads
        Threads of each.
    retry
        Do cells again that failed.
    report_only
        Write the tables from the results that are there.
    readme
        Also put the table into this page, between its marks.
    quiet
        Print errors only.
    """
    from mcflow.benchmarks import draws_report, report

    _check_numbers(jobs, threads)
    draws = suite == "draws"
    output = output / draws_report.FOLDER if draws else output
    if readme is not None:
        _check_page("--readme", readme, draws_report.MARK if draws else report.MARK)
    given = {"tables": tables, "methods": methods, "mechanisms": mechanisms, "rates": rates, "folds": folds}
    chosen = _changed(_suite(suite, quick), given, rows=rows, seed=seed, time_limit=time_limit)
    if report_only:
        _need_results(output)
    else:
        _run(chosen, output, quiet, data=data, jobs=jobs, threads=threads, retry=retry)
    if draws:
        _report_draws(chosen, output, readme, quiet)
    else:
        _report(output, readme, quiet)


def ablation(
    *,
    output: Annotated[Path, Parameter(alias="-o")] = Path("mcflow-ablation"),
    page: Path | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    data: Path | None = None,
    jobs: int = 1,
    threads: int = 1,
    retry: Annotated[bool, Parameter(negative="")] = False,
    report_only: Annotated[bool, Parameter(negative="")] = False,
    quiet: Annotated[bool, Parameter(alias="-q", negative="")] = False,
) -> None:
    """Take the ingredients out of the presets one at a time, and measure what is lost.

    Letter, three seeds. It can be stopped at any moment; the same command goes on where it was.

    Parameters
    ----------
    output
        Folder for results and table.md.
    page
        Also put the tables into this page, between its marks.
    quick
        500 rows, one seed and four epochs: a minute or two, to see that it runs.
    data
        Folder with NAME.parquet or NAME.csv, by default MCFLOW_DATA; other tables are downloaded.
    jobs
        Cells at a time.
    threads
        Threads of each.
    retry
        Do cells again that failed.
    report_only
        Write the tables from the results that are there.
    quiet
        Print errors only.
    """
    from mcflow.benchmarks.ablation import ABLATION, QUICK_ABLATION
    from mcflow.benchmarks.ablation_density import run_densities
    from mcflow.benchmarks.ablation_report import MARK

    _check_numbers(jobs, threads)
    if page is not None:
        _check_page("--page", page, MARK)
    suite = QUICK_ABLATION if quick else ABLATION
    if report_only:
        _need_results(output)
    else:
        _run(suite, output, quiet, data=data, jobs=jobs, threads=threads, retry=retry)
        with _stoppable(output):
            run_densities(suite, output, data=data, threads=threads, retry=retry, quiet=quiet)
    _report_ablation(suite, output, page)
    if not quiet:
        print(f"Tables written to {output / 'table.md'}{f' and {page}' if page else ''}.")


def simulation(
    *,
    output: Annotated[Path, Parameter(alias="-o")] = Path("mcflow-simulation"),
    page: Path | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    replications: int | None = None,
    designs: _List = (),
    methods: _List = (),
    rows: int = 400,
    draws: int = 20,
    jobs: int = 2,
    threads: int = 1,
    retry: Annotated[bool, Parameter(negative="")] = False,
    report_only: Annotated[bool, Parameter(negative="")] = False,
    quiet: Annotated[bool, Parameter(alias="-q", negative="")] = False,
) -> None:
    """See whether 95 % intervals from draws hold the truth 95 % of the time, on simulated tables.

    Three designs, 200 replications, the full data and complete cases beside the methods. It can be stopped at any
    moment; the same command goes on where it was. Lists are separated by commas.

    Parameters
    ----------
    output
        Folder for results and table.md.
    page
        Also put the tables into this page, between its marks.
    quick
        Ten replications of the full data, complete cases and em: seconds, to see that it runs.
    replications
        Simulated tables of each design, 200 by default.
    designs
        linear, interaction, category.
    methods
        Such as "full,complete,mcflow,mice(n_chains=20),em".
    rows
        Of each table.
    draws
        Completed tables of each.
    jobs
        Replications at a time.
    threads
        Threads of each.
    retry
        Do replications again that failed.
    report_only
        Write the tables from the results that are there.
    quiet
        Print errors only.
    """
    from mcflow.benchmarks.simulation_report import MARK

    _check_numbers(jobs, threads)
    count = replications if replications is not None else (10 if quick else 200)
    if count < 1:
        raise ParameterError(f"replications is {count}, but has to be at least 1.")
    if page is not None:
        _check_page("--page", page, MARK)
    studies = _studies(designs, methods or (("full", "complete", "em") if quick else ()), rows=rows, m=draws)
    if report_only:
        _need_results(output)
    else:
        _simulate(studies, count, output, quiet, jobs=jobs, threads=threads, retry=retry)
    _report_simulation(studies, count, output, page)
    if not quiet:
        print(f"Tables written to {output / 'table.md'}{f' and {page}' if page else ''}.")


def _studies(designs: tuple[str, ...], methods: tuple[str, ...], **sizes: int) -> list[Study]:
    from mcflow.benchmarks.methods import split_list
    from mcflow.benchmarks.simulation import DESIGNS, METHODS, study_of

    which = [word for text in designs for word in split_list(text)] or list(DESIGNS)
    ways = [word for text in methods for word in split_list(text)] or list(METHODS)
    return [study_of(design, method, **sizes) for design in which for method in ways]


def _simulate(studies: list[Study], replications: int, output: Path, quiet: bool, **how: Any) -> None:
    from mcflow.benchmarks.simulation_runner import run_simulation

    def say(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr)

    with _stoppable(output):
        outcome = run_simulation(studies, replications, output, say=say, **how)
    again = "; --retry does failed ones again" if outcome.failed else ""
    say(f"{outcome.done} replications done now, {outcome.found} before, {outcome.failed} failed{again}.")


def _report_simulation(studies: list[Study], replications: int, output: Path, page: Path | None) -> None:
    from mcflow.benchmarks.simulation_report import MARK, simulation_block
    from mcflow.benchmarks.simulation_runner import SimulationStore
    from mcflow.data.files import replacing

    block = simulation_block(SimulationStore(output).rows(), studies, replications)
    with replacing(output / "table.md") as temporary:
        temporary.write_text(f"# Coverage of intervals\n\n{block}\n", encoding="utf-8")
    if page is not None:
        _put(page, MARK, block)


def _check_numbers(jobs: int, threads: int) -> None:
    if jobs < 1 or threads < 1:
        raise ParameterError(f"jobs is {jobs} and threads is {threads}, but both have to be at least 1.")


def _check_page(flag: str, page: Path, mark: str) -> None:
    """Raise an error before hours are spent when the page for the table has no place for it."""
    from mcflow.benchmarks.blocks import with_block
    from mcflow.data.files import check_writable

    if not page.is_file():
        raise ParameterError(f"{flag} is {page}, which is not a file. Give a page that has marks for the table.")
    with_block(page.read_text(encoding="utf-8"), mark, "")
    check_writable(page)


def _need_results(output: Path) -> None:
    if not (output / "cells").is_dir():
        raise DataError(f"There are no results in {output}. Leave --report-only out to measure some.")


def _suite(name: str, quick: bool) -> Suite:
    from mcflow.benchmarks.suite import SUITES

    small = {"paper": "quick", "draws": "quick-draws"}
    return SUITES[small[name] if quick else name]


def _changed(suite: Suite, given: dict[str, tuple[str, ...]], **numbers: float | None) -> Suite:
    """Return a suite with what the flags say in place of its own."""
    from mcflow.benchmarks.methods import split_list

    lists = {name: [word for text in texts for word in split_list(text)] for name, texts in given.items()}
    changes: dict[str, object] = {
        name: tuple(lists[name]) for name in ("tables", "methods", "mechanisms") if lists[name]
    }
    if lists["rates"]:
        changes["rates"] = tuple(_number("rates", word) for word in lists["rates"])
    if lists["folds"]:
        changes["folds"] = tuple(sorted({fold for word in lists["folds"] for fold in _range(word)}))
        changes["settings"] = tuple(replace(setting, folds=None) for setting in suite.settings)
    if lists["tables"] or lists["methods"] or lists["folds"]:
        changes["extras"] = ()
    changes |= {name: value for name, value in numbers.items() if value is not None}
    return replace(suite, **changes)  # type: ignore[arg-type]


def _number(flag: str, word: str) -> float:
    try:
        return float(word)
    except ValueError as error:
        raise ParameterError(f"--{flag} has {word!r}, which is not a number.") from error


def _range(word: str) -> range:
    first, dash, last = word.partition("-")
    try:
        return range(int(first), (int(last) if dash else int(first)) + 1)
    except ValueError as error:
        raise ParameterError(f"--folds has {word!r}. Write 0,1 or 0-4.") from error


def _run(suite: Suite, output: Path, quiet: bool, **how: Any) -> None:
    from mcflow.benchmarks.bench import run_suite

    with _stoppable(output):
        outcome = run_suite(suite, output, quiet=quiet, **how)
    if not quiet:
        again = "; --retry does failed ones again" if outcome.failed else ""
        print(
            f"{outcome.done} cells measured now, {outcome.found} before, {outcome.failed} failed{again}.",
            file=sys.stderr,
        )


@contextlib.contextmanager
def _stoppable(output: Path) -> Iterator[None]:
    """Say after a stop how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"stopped; finished cells are in {output}, and the same command goes on where it was"
        ) from None


def _report(output: Path, readme: Path | None, quiet: bool) -> None:
    from mcflow.benchmarks.report import MARK, readme_block, write_report
    from mcflow.benchmarks.store import Store

    rows = Store(output).rows()
    for missing in write_report(rows, output):
        print(f"mcflow: {missing}", file=sys.stderr)
    if readme is not None:
        _put(readme, MARK, readme_block(rows))
    if not quiet:
        print(f"Tables written to {output / 'table.md'} and {output / 'table.html'}.")


def _report_draws(suite: Suite, output: Path, page: Path | None, quiet: bool) -> None:
    from mcflow.benchmarks.draws_report import MARK, draws_block
    from mcflow.benchmarks.store import Store
    from mcflow.data.files import replacing

    block = draws_block(Store(output).rows(), suite.tables)
    with replacing(output / "table.md") as temporary:
        temporary.write_text(f"# Draws and intervals\n\n{block}\n", encoding="utf-8")
    if page is not None:
        _put(page, MARK, block)
    if not quiet:
        print(f"Tables written to {output / 'table.md'}{f' and {page}' if page else ''}.")


def _report_ablation(suite: AblationSuite, output: Path, page: Path | None) -> None:
    from mcflow.benchmarks.ablation_density import FOLDER
    from mcflow.benchmarks.ablation_report import MARK, ablation_block
    from mcflow.benchmarks.store import Store
    from mcflow.data.files import replacing

    densities = Store(output / FOLDER).rows() if (output / FOLDER).is_dir() else []
    block = ablation_block(Store(output).rows(), densities, suite)
    with replacing(output / "table.md") as temporary:
        temporary.write_text(f"# What each ingredient is worth\n\n{block}\n", encoding="utf-8")
    if page is not None:
        _put(page, MARK, block)


def _put(page: Path, mark: str, block: str) -> None:
    """Write a block between the marks of a page."""
    from mcflow.benchmarks.blocks import with_block
    from mcflow.data.files import replacing

    text = with_block(page.read_text(encoding="utf-8"), mark, block)
    with replacing(page) as temporary:
        temporary.write_text(text, encoding="utf-8")
