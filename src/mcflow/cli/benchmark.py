"""`mcflow benchmark`: the paper's table with what was measured, what each ingredient is worth, and intervals."""

from __future__ import annotations

__all__ = ["ablation", "simulation", "tables"]

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
    write_table,
)
from mcflow.errors import ParameterError

if TYPE_CHECKING:
    from mcflow.benchmarks.ablation import AblationSuite
    from mcflow.benchmarks.simulation import Study
    from mcflow.benchmarks.suite import Suite


def tables(
    *,
    output: Annotated[Path, Parameter(alias="-o")] = Path("mcflow-benchmark"),
    suite: Literal["paper", "draws"] = "paper",
    quick: Annotated[bool, Parameter(negative="")] = False,
    data: Path | None = None,
    tables: Words = (),
    methods: Words = (),
    mechanisms: Words = (),
    rates: Words = (),
    folds: Words = (),
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

    check_numbers(jobs, threads)
    draws = suite == "draws"
    output = output / draws_report.FOLDER if draws else output
    if readme is not None:
        check_page("--readme", readme, draws_report.MARK if draws else report.MARK)
    given = {"tables": tables, "methods": methods, "mechanisms": mechanisms, "rates": rates, "folds": folds}
    chosen = _changed(_suite(suite, quick), given, rows=rows, seed=seed, time_limit=time_limit)
    if report_only:
        need_results(output)
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

    check_numbers(jobs, threads)
    if page is not None:
        check_page("--page", page, MARK)
    suite = QUICK_ABLATION if quick else ABLATION
    if report_only:
        need_results(output)
    else:
        _run(suite, output, quiet, data=data, jobs=jobs, threads=threads, retry=retry)
        with stoppable(output):
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
    designs: Words = (),
    methods: Words = (),
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

    check_numbers(jobs, threads)
    count = replications if replications is not None else (10 if quick else 200)
    if count < 1:
        raise ParameterError(f"replications is {count}, but has to be at least 1.")
    if page is not None:
        check_page("--page", page, MARK)
    studies = _studies(designs, methods or (("full", "complete", "em") if quick else ()), rows=rows, m=draws)
    if report_only:
        need_results(output)
    else:
        _simulate(studies, count, output, quiet, jobs=jobs, threads=threads, retry=retry)
    _report_simulation(studies, count, output, page)
    if not quiet:
        print(f"Tables written to {output / 'table.md'}{f' and {page}' if page else ''}.")


def _studies(designs: tuple[str, ...], methods: tuple[str, ...], **sizes: int) -> list[Study]:
    from mcflow.benchmarks.simulation import DESIGNS, METHODS, study_of

    which = split_words(designs) or list(DESIGNS)
    ways = split_words(methods) or list(METHODS)
    return [study_of(design, method, **sizes) for design in which for method in ways]


def _simulate(studies: list[Study], replications: int, output: Path, quiet: bool, **how: Any) -> None:
    from mcflow.benchmarks.simulation_runner import run_simulation

    def say(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr)

    with stoppable(output):
        outcome = run_simulation(studies, replications, output, say=say, **how)
    again = "; --retry does failed ones again" if outcome.failed else ""
    say(f"{outcome.done} replications done now, {outcome.found} before, {outcome.failed} failed{again}.")


def _report_simulation(studies: list[Study], replications: int, output: Path, page: Path | None) -> None:
    from mcflow.benchmarks.simulation_report import MARK, simulation_block
    from mcflow.benchmarks.simulation_runner import SimulationStore

    block = simulation_block(SimulationStore(output).rows(), studies, replications)
    write_table(output, "Coverage of intervals", block)
    if page is not None:
        put_block(page, MARK, block)


def _suite(name: str, quick: bool) -> Suite:
    from mcflow.benchmarks.suite import SUITES

    small = {"paper": "quick", "draws": "quick-draws"}
    return SUITES[small[name] if quick else name]


def _changed(suite: Suite, given: dict[str, tuple[str, ...]], **numbers: float | None) -> Suite:
    """Return a suite with what the flags say in place of its own."""
    lists = {name: split_words(texts) for name, texts in given.items()}
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

    with stoppable(output):
        outcome = run_suite(suite, output, quiet=quiet, **how)
    if not quiet:
        say_outcome(outcome)


def _report(output: Path, readme: Path | None, quiet: bool) -> None:
    from mcflow.benchmarks.report import MARK, readme_block, write_report
    from mcflow.benchmarks.store import Store

    rows = Store(output).rows()
    for missing in write_report(rows, output):
        print(f"mcflow: {missing}", file=sys.stderr)
    if readme is not None:
        put_block(readme, MARK, readme_block(rows))
    if not quiet:
        print(f"Tables written to {output / 'table.md'} and {output / 'table.html'}.")


def _report_draws(suite: Suite, output: Path, page: Path | None, quiet: bool) -> None:
    from mcflow.benchmarks.draws_report import MARK, draws_block
    from mcflow.benchmarks.store import Store

    block = draws_block(Store(output).rows(), suite.tables)
    write_table(output, "Draws and intervals", block)
    if page is not None:
        put_block(page, MARK, block)
    if not quiet:
        print(f"Tables written to {output / 'table.md'}{f' and {page}' if page else ''}.")


def _report_ablation(suite: AblationSuite, output: Path, page: Path | None) -> None:
    from mcflow.benchmarks.ablation_density import FOLDER
    from mcflow.benchmarks.ablation_report import MARK, ablation_block
    from mcflow.benchmarks.store import Store

    densities = Store(output / FOLDER).rows() if (output / FOLDER).is_dir() else []
    block = ablation_block(Store(output).rows(), densities, suite)
    write_table(output, "What each ingredient is worth", block)
    if page is not None:
        put_block(page, MARK, block)
