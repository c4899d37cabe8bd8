"""The commands of `mcflow benchmark`: tables, images, draws, anytime, ablation, reproduction and simulation."""

from __future__ import annotations

__all__ = ["RunOptions", "ablation", "anytime", "benchmark", "draws", "images", "reproduction", "simulation", "tables"]

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mcflow.errors import DataError, ParameterError
from mcflow.files.atomic import write_text
from mcflow_bench.report.blocks import Figure, check_page, put_block, to_markdown

if TYPE_CHECKING:
    from mcflow_bench.store import Outcome
    from mcflow_bench.suites import EnergySuite, ImageSuite, Suite, TableSuite

#: A flag that takes a list separated by commas.
Words = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
#: A flag without a negative form.
Flag = Annotated[bool, Parameter(negative="")]
Output = Annotated[Path, Parameter(alias="-o")]


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """Options of the runs. A cell is one method on one data set with one mask.

    Parameters
    ----------
    jobs
        Number of cells that run at the same time; 1 by default. In a simulation, number of replications; 2 by default.
    threads
        Threads per cell; 1 by default, and all threads of the machine in `anytime`.
    retry
        Measure failed cells again.
    report_only
        Write the tables from the stored results without measuring.
    quiet
        Print errors only.
    """

    jobs: int | None = None
    threads: int | None = None
    retry: Flag = False
    report_only: Flag = False
    quiet: Annotated[bool, Parameter(alias="-q", negative="")] = False

    def checked(self, jobs: int = 1, threads: int = 1) -> RunOptions:
        """Return the options with default numbers; raise `ParameterError` if a number is below 1."""
        chosen = replace(
            self,
            jobs=jobs if self.jobs is None else self.jobs,
            threads=threads if self.threads is None else self.threads,
        )
        if chosen.arguments["jobs"] < 1 or chosen.arguments["threads"] < 1:
            raise ParameterError(
                f"jobs is {chosen.jobs} and threads is {chosen.threads}, but both have to be at least 1."
            )
        return chosen

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the functions that run cells or replications."""
        return {"jobs": self.jobs, "threads": self.threads, "retry": self.retry}


def tables(
    *,
    output: Output = Path("mcflow-benchmark"),
    quick: Flag = False,
    data: Path | None = None,
    tables: Words = (),
    methods: Words = (),
    mechanisms: Words = (),
    rates: Words = (),
    folds: Words = (),
    rows: int | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    page: Path | None = None,
    readme: Path | None = None,
    options: RunOptions | None = None,
) -> None:
    """Measure imputers of tables and write the paper's Table 1 with the results.

    The defaults are Letter, Credit and News, 20 % missing completely at random, five folds, and all methods but misgan.
    The command can be interrupted at any time; the same command continues. Lists are separated by commas.

    Parameters
    ----------
    output
        Folder for results, table.md, table.html and ranks.svg.
    quick
        2,000 rows, one fold and small models: a few minutes.
    data
        Folder with NAME.parquet or NAME.csv, by default MCFLOW_DATA; other tables are downloaded.
    tables
        Data sets: letter,credit,news,bean,spambase,california or any file of the folder.
    methods
        Methods, such as "mean,missforest(n_trees=30),mcflow:paper(max_epochs=64),python:package.module:factory".
    mechanisms
        Mechanisms: mcar, mar, mnar_self, mnar_logistic, mnar_quantile.
    rates
        Fractions of hidden cells: 0.1,0.2,0.5
    folds
        Folds to run, of 0 to 4: 0,1 or 0-4.
    rows
        Use only the first rows of a table, at most this many.
    seed
        Random seed of the methods.
    time_limit
        Time limit of a cell in seconds.
    page
        Also write the tables into this page, between its marks.
    readme
        Also write the comparison with the paper into this page, between its marks.
    """
    from mcflow_bench.report import tables as report
    from mcflow_bench.suites import TABLE_SUITES

    run = (options or RunOptions()).checked()
    check_page("--page", page, report.MARK)
    check_page("--readme", readme, report.MARK)
    given = {"data": tables, "methods": methods, "mechanisms": mechanisms, "rates": rates, "folds": folds}
    named = TABLE_SUITES["quick" if quick else "paper"]
    found = _measured(_changed_tables(named, given, rows=rows, seed=seed, time_limit=time_limit), output, data, run)
    report.write_report(found, output)
    put_block(page, report.MARK, report.page_block(found))
    put_block(readme, report.MARK, report.readme_block(found))
    _say_written(output, page or readme, run)


def draws(
    *,
    output: Output = Path("mcflow-draws"),
    energy: Flag = False,
    page: Path | None = None,
    quick: Flag = False,
    data: Path | None = None,
    tables: Words = (),
    methods: Words = (),
    mechanisms: Words = (),
    rates: Words = (),
    folds: Words = (),
    rows: int | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    options: RunOptions | None = None,
) -> None:
    """Measure the accuracy of draws and the coverage of intervals, or with --energy the distribution of whole tables.

    By default, the command measures the CRPS of draws and the coverage of 90 % intervals on five tables, with 20 %
    missing completely at random and one fold. With --energy, it measures the energy distance between a draw and the
    complete table on six tables with MCAR and MAR, 10, 20 and 30 % missing and four masks, and runs R's mice on the
    same masks if it is installed. The command can be interrupted at any time; the same command continues. Lists are
    separated by commas.

    Parameters
    ----------
    output
        Folder for results and table.md; each of the two measurements needs its own.
    energy
        Measure the energy distance.
    page
        Also write the tables into this page, between its marks, and the plot into its folder of pictures.
    quick
        Few rows and small models, as a test of the command.
    data
        Folder with NAME.parquet or NAME.csv, by default MCFLOW_DATA. With --energy, its subfolder energy holds the
        tables, and results of other methods in mice_same_masks.csv and published.csv.
    tables
        Data sets: letter,credit,news,bean,california or any file of the folder.
    methods
        Methods, such as "mcflow,missforest(n_trees=30)"; with --energy also R:mice.cart, R:mice.norm, R:mice.default,
        R:mice.pmm and R:mice.rf.
    mechanisms
        Mechanisms: mcar, mar, mnar_self, mnar_logistic, mnar_quantile; with --energy only mcar and mar.
    rates
        Fractions of hidden cells: 0.1,0.2,0.3
    folds
        Folds to run, of 0 to 4: 0,1 or 0-4. With --energy, numbers of the masks.
    rows
        Use only the first rows of a table, at most this many; not with --energy.
    seed
        Random seed of the methods; not with --energy, where the seed is the number of the mask.
    time_limit
        Time limit of a cell in seconds.
    """
    run = (options or RunOptions()).checked()
    given = {"data": tables, "methods": methods, "mechanisms": mechanisms, "rates": rates, "folds": folds}
    if energy:
        if rows is not None or seed is not None:
            raise ParameterError("--energy takes no --rows and no --seed: masks and seeds follow from --folds.")
        _measure_energy(_changed_energy(quick, given, time_limit), output, page, data, run)
        return
    from mcflow_bench.report.draws import MARK, draws_block
    from mcflow_bench.suites import TABLE_SUITES

    check_page("--page", page, MARK)
    named = TABLE_SUITES["quick-draws" if quick else "draws"]
    chosen = _changed_tables(named, given, rows=rows, seed=seed, time_limit=time_limit)
    found = _measured(chosen, output, data, run)
    _write(output, "Draws and intervals", MARK, draws_block(found, chosen.data), page)
    _say_written(output, page, run)


def _measure_energy(suite: EnergySuite, output: Path, page: Path | None, data: Path | None, run: RunOptions) -> None:
    """Measure the energy distance of draws, and write its tables and its plot."""
    from mcflow_bench.data.catalog import energy_folder
    from mcflow_bench.report.energy import FIGURE, MARK, EnergyTable, Peers, draw_ratios, energy_blocks

    check_page("--page", page, MARK)
    found = _measured(suite, output, data, run)
    try:
        peers = Peers.read(energy_folder(data))
    except DataError as error:
        _say(f"Published and stored figures are left out. {error}", run)
        peers = Peers()
    table, figures = EnergyTable.gather(found, suite, peers), []
    if (picture := draw_ratios(table)) is not None:
        write_text(output / FIGURE, picture)
        figures = [Figure(FIGURE, picture, "Energy distance of draws relative to R's mice with cart")]
    _write(output, "Energy distance of draws", MARK, to_markdown(energy_blocks(table, figures)), None)
    if page is not None:
        shown = [_beside(page, output, one) for one in figures]
        put_block(page, MARK, to_markdown(energy_blocks(table, shown)))
    _say_written(output, page, run)


def images(
    *,
    output: Output = Path("mcflow-images"),
    page: Path | None = None,
    quick: Flag = False,
    data: Annotated[Path | None, Parameter(alias="--data-dir")] = None,
    sets: Words = (),
    methods: Words = (),
    rates: Words = (),
    n_train: int | None = None,
    n_test: int | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    figure: Words = (),
    options: RunOptions | None = None,
) -> None:
    """Measure imputers of images and write the paper's Tables 2 to 4 with the results.

    The defaults are MNIST, CIFAR-10 and CelebA with 10 % to 90 % of the pixels missing completely at random, and MNIST
    with missing blocks. The command can be interrupted at any time; the same command continues. Lists are separated by
    commas.

    Parameters
    ----------
    output
        Folder for results, table.md, table.html and figures.
    page
        Also write the tables into this page, between its marks, and the figures into its folder of pictures.
    quick
        5,000 digits, three rates and short training: under ten minutes.
    data
        Folder with the sets, by default MCFLOW_DATA; MNIST and CIFAR-10 are downloaded otherwise.
    sets
        mnist,cifar10,celeba or NAME of any NAME.npz of the folder.
    methods
        Methods, such as "mean,nearest,gain,misgan,mcflow(max_time=600),mcflow:paper,python:package.module:factory".
    rates
        Fractions of missing pixels, or other masks: 0.1,0.5,blocks:0.25,halves:left
    n_train
        Use only the first training images, at most this many.
    n_test
        Use only the first test images, at most this many.
    seed
        Random seed of the methods.
    time_limit
        Time limit of a cell in seconds.
    figure
        Draw filled images at these rates: 0.5,blocks:0.25
    """
    from mcflow_bench.report.images import MARK, image_blocks, write_image_report
    from mcflow_bench.report.pictures import write_figures
    from mcflow_bench.suites import IMAGE_SUITES, mask_word

    run = (options or RunOptions()).checked()
    check_page("--page", page, MARK)
    drawn = [mask_word(word) for word in _split(figure)]
    numbers = {"n_train": n_train, "n_test": n_test, "seed": seed, "time_limit": time_limit}
    named = IMAGE_SUITES["quick" if quick else "paper"]
    suite = _changed_images(named, {"data": sets, "methods": methods, "masks": rates}, **numbers)
    rows = _measured(suite, output, data, run)
    figures, missing = write_figures(rows, output, sets=suite.all_data, masks=drawn)
    for words in missing:
        print(f"mcflow: {words}", file=sys.stderr)
    write_image_report(rows, output, suite, figures)
    if page is not None:
        shown = [_beside(page, output, one) for one in figures]
        put_block(page, MARK, to_markdown(image_blocks(rows, suite, shown)))
    _say_written(output, page, run)


def anytime(
    *,
    output: Output = Path("mcflow-anytime"),
    page: Path | None = None,
    readme: Path | None = None,
    quick: Flag = False,
    data: Path | None = None,
    tables: Words = (),
    budgets: Words = (),
    methods: Words = (),
    rows: int | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    environments: Path = Path("build/environments"),
    options: RunOptions | None = None,
) -> None:
    """Measure the error of mcflow under several time limits, and of other methods.

    The defaults are Letter, Credit, California and Adult with one run each, one cell at a time. The command can be
    interrupted at any time; the same command continues. Lists are separated by commas.

    Parameters
    ----------
    output
        Folder for results, table.md and anytime.svg.
    page
        Also write the figure and the table into this page, between its marks.
    readme
        Also write the figure into this page, between its marks.
    quick
        500 rows of two tables, two time limits and two other methods: a few minutes.
    data
        Folder with NAME.parquet or NAME.csv, by default MCFLOW_DATA; other tables are downloaded.
    tables
        Data sets: letter,credit,california,adult or any file of the folder.
    budgets
        Time limits of mcflow in seconds: 2,5,10,20,40,80. mcflow is always measured without a limit too.
    methods
        Other methods: ridge,boosted,forest,miceforest,hyperimpute.
    rows
        Use only the first rows of a table, at most this many.
    seed
        Random seed of the methods.
    time_limit
        Time limit of a cell in seconds.
    environments
        Folder of the virtual environments of miceforest and hyperimpute, which `make anytime` installs.
    """
    import os

    from mcflow_bench.anytime import ANYTIME, QUICK_ANYTIME, labels
    from mcflow_bench.report.anytime import FIGURE, MARK, anytime_block, draw_anytime, readme_block

    run = (options or RunOptions()).checked(threads=os.cpu_count() or 1)
    if run.jobs != 1:
        raise ParameterError(f"jobs is {run.jobs}, but times are compared. Leave --jobs out to run one cell at a time.")
    check_page("--page", page, MARK)
    check_page("--readme", readme, MARK)
    suite = QUICK_ANYTIME if quick else ANYTIME
    own, peers = suite.split_methods()
    own = [_number("budgets", word) for word in _split(budgets)] or own
    changes: dict[str, Any] = _given({"rows": rows, "seed": seed, "time_limit": time_limit})
    changes |= {"methods": labels(own, _split(methods) or peers), "data": tuple(_split(tables)) or suite.data}
    suite = replace(suite, **changes, environments=str(environments))
    found = _measured(suite, output, data, run)
    if (drawn := draw_anytime(found, suite)) is not None:
        write_text(output / FIGURE, drawn)
    _write(output, "Accuracy against time", MARK, anytime_block(found, suite, FIGURE), None)
    place = output / FIGURE
    if page is not None:
        place = page.parent / "pictures" / FIGURE
        if drawn is not None:
            place.parent.mkdir(exist_ok=True)
            write_text(place, drawn)
        put_block(page, MARK, anytime_block(found, suite, f"pictures/{FIGURE}"))
    if readme is not None:
        put_block(readme, MARK, readme_block(found, suite, Path(os.path.relpath(place, readme.parent)).as_posix()))
    _say_written(output, page, run)


def ablation(
    *,
    output: Output = Path("mcflow-ablation"),
    page: Path | None = None,
    quick: Flag = False,
    data: Path | None = None,
    options: RunOptions | None = None,
) -> None:
    """Remove the components of the presets one at a time, and measure the change in error.

    The command uses Letter with many and with few rows and three seeds. For components that only make a fit faster, it
    measures the time. The command can be interrupted at any time; the same command continues.

    Parameters
    ----------
    output
        Folder for results and table.md.
    page
        Also write the tables into this page, between its marks.
    quick
        500 rows, one seed and four epochs, as a test of the command: one or two minutes.
    data
        Folder with NAME.parquet or NAME.csv, by default MCFLOW_DATA; other tables are downloaded.
    """
    from mcflow_bench.ablation import ABLATION, DENSITIES, QUICK_ABLATION, SPEED, run_densities
    from mcflow_bench.ablation_speed import run_speeds
    from mcflow_bench.report.ablation import MARK, ablation_block
    from mcflow_bench.store import Store

    run = (options or RunOptions()).checked()
    check_page("--page", page, MARK)
    suites = QUICK_ABLATION if quick else ABLATION
    for suite in suites:
        rows = _measured(suite, output, data, run)
    if not run.report_only:
        with _resumable(output):
            threads = run.arguments["threads"]
            run_densities(suites[0], output, data=data, threads=threads, retry=run.retry, quiet=run.quiet)
            run_speeds(output / SPEED, rounds=1 if quick else 9, retry=run.retry)
    densities, speeds = (Store(output / name).rows() if (output / name).is_dir() else [] for name in (DENSITIES, SPEED))
    _write(output, "What each ingredient contributes", MARK, ablation_block(rows, densities, speeds, suites), page)
    _say_written(output, page, run)


def reproduction(
    *,
    output: Output = Path("mcflow-reproduction"),
    tables: Path = Path("mcflow-benchmark"),
    page: Path | None = None,
    quick: Flag = False,
    data: Path | None = None,
    options: RunOptions | None = None,
) -> None:
    """Change the choices that the paper's text leaves open one at a time, and compare with the paper's Table 1.

    The command uses Letter, Credit and News with 64 epochs. It takes the results with 500 epochs and the curves by
    epoch from `mcflow benchmark tables`. The command can be interrupted at any time; the same command continues.

    Parameters
    ----------
    output
        Folder for results, table.md and reproduction.svg.
    tables
        Folder of the results of `mcflow benchmark tables`.
    page
        Also write the tables into this page, between its marks, and the plot into its folder of pictures.
    quick
        300 rows, one fold and two epochs, as a test of the command.
    data
        Folder with NAME.parquet or NAME.csv, by default MCFLOW_DATA; other tables are downloaded.
    """
    from mcflow_bench.report.reproduction import FIGURE, MARKS, Stored, draw_curves, reproduction_blocks
    from mcflow_bench.reproduction import QUICK_REPRODUCTION, REPRODUCTION
    from mcflow_bench.store import Store

    run = (options or RunOptions()).checked()
    for mark in MARKS:
        check_page("--page", page, mark)
    suites = QUICK_REPRODUCTION if quick else REPRODUCTION
    for suite in suites:
        rows = _measured(suite, output, data, run)
    found = Stored(Store(tables).rows() if (tables / "cells").is_dir() else [], rows)
    blocks = reproduction_blocks(found, suites, FIGURE)
    write_text(output / "table.md", "\n\n".join(["# Reproducing the paper", *blocks.values()]) + "\n")
    if (drawn := draw_curves(found)) is not None:
        write_text(output / FIGURE, drawn)
    if page is not None:
        if drawn is not None:
            _beside(page, output, Figure(FIGURE, drawn, ""))
        for mark, block in reproduction_blocks(found, suites, f"pictures/{FIGURE}").items():
            put_block(page, mark, block)
    _say_written(output, page, run)


def simulation(
    *,
    output: Output = Path("mcflow-simulation"),
    page: Path | None = None,
    quick: Flag = False,
    replications: int | None = None,
    designs: Words = (),
    methods: Words = (),
    rows: int = 400,
    draws: int = 20,
    options: RunOptions | None = None,
) -> None:
    """Measure the coverage of 95 % intervals from draws on simulated tables.

    The defaults are seven designs and 100 replications. The methods are compared with the full data, with complete
    cases, and with R's mice if it is installed. The command can be interrupted at any time; the same command continues.
    Lists are separated by commas.

    Parameters
    ----------
    output
        Folder for results and table.md.
    page
        Also write the tables into this page, between its marks.
    quick
        Ten replications of the full data, complete cases and em, as a test of the command: a few seconds.
    replications
        Number of simulated tables per design; 100 by default.
    designs
        Designs: linear, interaction, category, logistic, square, skewed, clustered.
    methods
        Methods, such as "full,complete,mcflow,mice(n_chains=20),em,R:mice.norm,R:mice.default,R:mice.cart".
    rows
        Number of rows per table.
    draws
        Number of draws per table.
    """
    from mcflow_bench.report.simulation import MARK, simulation_block
    from mcflow_bench.simulation import DESIGNS, METHODS, REPLICATIONS, SimulationStore, run_simulation, study_of

    run = (options or RunOptions()).checked(jobs=2)
    count = replications if replications is not None else (10 if quick else REPLICATIONS)
    if count < 1:
        raise ParameterError(f"replications is {count}, but has to be at least 1.")
    check_page("--page", page, MARK)
    words = _split(methods or (("full", "complete", "em") if quick else METHODS))
    chosen = words if run.report_only else _installed(words, named=bool(methods))
    studies = [
        study_of(design, method, rows=rows, m=draws) for design in _split(designs) or DESIGNS for method in chosen
    ]
    if run.report_only:
        _need_results(output)
    else:
        with _resumable(output):
            outcome = run_simulation(studies, count, output, say=lambda line: _say(line, run), **run.arguments)
        _say_outcome(outcome, "replications", run)
    block = simulation_block(SimulationStore(output).rows(), studies, count)
    _write(output, "Coverage of intervals", MARK, block, page)
    _say_written(output, page, run)


def _split(texts: Iterable[str]) -> list[str]:
    """Return the entries of lists separated by commas; commas inside brackets do not separate."""
    from mcflow.evaluation.methods import split_list

    return [word for text in texts for word in split_list(text)]


def _changed_tables(suite: TableSuite, given: dict[str, tuple[str, ...]], **numbers: float | None) -> TableSuite:
    """Return a suite with the values of the flags."""
    lists = {name: _split(texts) for name, texts in given.items()}
    changes: dict[str, Any] = {name: tuple(lists[name]) for name in ("data", "methods", "mechanisms") if lists[name]}
    if lists["rates"]:
        changes["rates"] = tuple(_number("rates", word) for word in lists["rates"])
    if lists["folds"]:
        changes["folds"] = tuple(sorted({fold for word in lists["folds"] for fold in _range(word)}))
        changes["settings"] = tuple(replace(setting, folds=None) for setting in suite.settings)
    if lists["data"] or lists["methods"] or lists["folds"]:
        changes["extras"] = ()
    return replace(suite, **changes | _given(numbers))


def _changed_energy(quick: bool, given: dict[str, tuple[str, ...]], time_limit: float | None) -> EnergySuite:
    """Return a suite with the values of the flags; methods of R that are not installed are left out unless named."""
    from mcflow_bench.suites import ENERGY_SUITES

    suite = ENERGY_SUITES["quick" if quick else "energy"]
    lists = {name: _split(texts) for name, texts in given.items()}
    changes: dict[str, Any] = {name: tuple(lists[name]) for name in ("data", "methods", "mechanisms") if lists[name]}
    if lists["rates"]:
        changes["rates"] = tuple(_number("rates", word) for word in lists["rates"])
    if lists["folds"]:
        changes["masks"] = tuple(sorted({fold for word in lists["folds"] for fold in _range(word)}))
    changed: EnergySuite = replace(suite, **changes | _given({"time_limit": time_limit}))
    changed.check()
    return replace(changed, methods=tuple(_installed(changed.methods, named=bool(lists["methods"]))))


def _changed_images(suite: ImageSuite, given: dict[str, tuple[str, ...]], **numbers: float | None) -> ImageSuite:
    """Return a suite with the values of the flags."""
    from mcflow_bench.suites import mask_word

    changes: dict[str, Any] = {name: tuple(words) for name, texts in given.items() if (words := _split(texts))}
    if "masks" in changes:
        changes["masks"] = tuple(map(mask_word, changes["masks"]))
    if changes:
        changes["extras"] = ()
    changed: ImageSuite = replace(suite, **changes | _given(numbers))
    changed.check()
    return changed


def _given(numbers: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if value is not None}


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


def _installed(methods: Sequence[str], *, named: bool) -> list[str]:
    """Return the methods without those of R that are not installed; raise `ParameterError` if they were named."""
    from mcflow_bench.rivals.rmice import INSTALL, available

    there = available(methods)
    absent = ", ".join(method for method in methods if method not in there)
    if absent and named:
        raise ParameterError(f"--methods names {absent}, but R's mice is not installed. {INSTALL}")
    if absent:
        print(f"mcflow: {absent} left out, R's mice is not installed. {INSTALL}", file=sys.stderr)
    return there


def _measured(suite: Suite, output: Path, data: Path | None, run: RunOptions) -> list[dict[str, Any]]:
    """Run the cells of a suite that have no result yet, unless only a report is wanted, and return all results."""
    from mcflow_bench.runner import run_suite
    from mcflow_bench.store import Store

    if run.report_only:
        _need_results(output)
    else:
        with _resumable(output):
            outcome = run_suite(suite, output, data=data, quiet=run.quiet, **run.arguments)
        _say_outcome(outcome, "cells", run)
    return Store(output).rows()


def _need_results(output: Path) -> None:
    if not (output / "cells").is_dir():
        raise DataError(f"There are no results in {output}. Leave --report-only out to measure some.")


@contextlib.contextmanager
def _resumable(output: Path) -> Iterator[None]:
    """Say after an interruption how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; finished cells are in {output}, and the same command continues") from None


def _write(output: Path, title: str, mark: str, block: str, page: Path | None) -> None:
    """Write table.md, a title and a block, and the block between the marks of a page."""
    write_text(output / "table.md", f"# {title}\n\n{block}\n")
    put_block(page, mark, block)


def _beside(page: Path, output: Path, figure: Figure) -> Figure:
    """Copy a figure into the folder `pictures` beside a page, and return it with its path from the page."""
    from mcflow.files.atomic import replacing

    folder = page.parent / "pictures"
    folder.mkdir(exist_ok=True)
    with replacing(folder / figure.path) as temporary:
        temporary.write_bytes((output / figure.path).read_bytes())
    return replace(figure, path=f"{folder.name}/{figure.path}")


def _say(line: str, run: RunOptions) -> None:
    if not run.quiet:
        print(line, file=sys.stderr)


def _say_outcome(outcome: Outcome, noun: str, run: RunOptions) -> None:
    again = "; --retry measures failed ones again" if outcome.failed else ""
    _say(f"{outcome.done} {noun} measured now, {outcome.found} before, {outcome.failed} failed{again}.", run)


def _say_written(output: Path, page: Path | None, run: RunOptions) -> None:
    if not run.quiet:
        print(f"Tables written to {output / 'table.md'}{f' and {page}' if page else ''}.")


#: The command group that `mcflow` finds by its entry point.
benchmark = App(name="benchmark", help="Benchmark imputers on public data sets; interrupted runs resume.")
benchmark.command(tables, help="Measure imputers of tables, as in the paper's Table 1.")
benchmark.command(images, help="Measure imputers of images, as in the paper's Tables 2 to 4.")
benchmark.command(draws, help="Measure draws and intervals, or the energy distance of draws.")
benchmark.command(anytime, help="Measure error against time.")
benchmark.command(ablation, help="Measure the contribution of each component of the presets.")
benchmark.command(reproduction, help="Measure the choices that the paper leaves open, and compare with its Table 1.")
benchmark.command(simulation, help="Measure the coverage of intervals from draws on simulated tables.")
