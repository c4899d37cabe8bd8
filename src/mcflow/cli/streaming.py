"""Tables that do not fit in memory, on the command line: Parquet or CSV files, folders and patterns."""

from __future__ import annotations

__all__ = ["fit_stream", "impute_stream", "is_folder", "is_many", "is_stream", "refuse_report"]

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from mcflow.cli.engines import EngineOptions
from mcflow.cli.options import ColumnOptions, DrawOptions, FitOptions
from mcflow.errors import ParameterError

if TYPE_CHECKING:
    from mcflow.imputers import MCFlowImputer


def is_folder(output: Path) -> bool:
    """Tell whether an output is meant to be a folder.

    Parameters
    ----------
    output : Path
        As it was given.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_folder(Path("out")), is_folder(Path("out.parquet")), is_folder(Path("-"))
    (True, False, False)
    """
    return output.is_dir() or (not output.suffix and str(output) != "-")


def is_many(source: Path) -> bool:
    """Tell whether a source is a folder, or a pattern of names.

    Parameters
    ----------
    source : Path
        As it was given.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_many(Path("data/*.parquet")), is_many(Path("rows.parquet"))
    (True, False)
    """
    return source.is_dir() or (any(mark in str(source) for mark in "*?[") and not source.exists())


def is_stream(source: Path, output: Path) -> bool:
    """Tell whether a table is to be filled in parts: it is many files, or one that becomes a folder.

    Parameters
    ----------
    source, output : Path
        As they were given.

    Returns
    -------
    bool
    """
    from mcflow.data.parts import is_csv, is_parquet

    return is_many(source) or ((is_csv(source) or is_parquet(source)) and is_folder(output))


def refuse_report(report: Path | None) -> None:
    """Raise `ParameterError` when a report is wanted of files that are read in parts.

    Parameters
    ----------
    report : Path or None
        As it was given.
    """
    if report is not None:
        raise ParameterError("--report needs the whole table in memory. Leave it out, or give a single file.")


def impute_stream(
    source: Path,
    output: Path,
    model: Path | None,
    *,
    save: Path | None,
    flags: tuple[FitOptions, ColumnOptions, DrawOptions],
    where: EngineOptions,
) -> None:
    """Fill Parquet or CSV files into a folder, batch by batch.

    Parameters
    ----------
    source, output : Path
        A file, folder or pattern, and the folder of the result.
    model : Path or None
        A fitted model; without one a model is fitted on the files first.
    save : Path or None
        Where to write the fitted model.
    flags : tuple
        Of the command.
    where : EngineOptions
        Which machines do it.
    """
    from mcflow.cli.files import check_output
    from mcflow.engines import Scorer
    from mcflow.imputers.persistence import load_table_model

    chosen, wished, unsure = flags
    _refuse(source, output, unsure)
    if save is not None:
        check_output(save, model)
    if model is None:
        imputer = fit_stream(source, chosen, wished, where)
        if save is not None:
            imputer.save(save)
    else:
        chosen.refuse_with_model(draws=unsure.draws is not None)
        wished.refuse_with_model()
        imputer = load_table_model(model, device=chosen.device).set_params(unseen=wished.unseen)
    with _shown("rows filled", chosen) as listen:
        outcome = where.fill(source, output, Scorer(imputer), draws=unsure.draws, seed=chosen.seed, listen=listen)
    if not chosen.quiet:
        pace = f", {outcome.rows / outcome.seconds:,.0f} rows a second" if outcome.rows else ""
        before = f" {outcome.found} of them were there before." if outcome.found else ""
        print(f"Filled {outcome.rows:,} rows in {outcome.seconds:.1f} s{pace}.")
        print(
            f"Written to {output}: {outcome.parts} files{f', in {unsure.draws} draws' if unsure.draws else ''}.{before}"
        )


def _refuse(source: Path, output: Path, unsure: DrawOptions) -> None:
    """Raise `ParameterError` when flags do not go with files that are filled in parts."""
    if not is_folder(output):
        raise ParameterError(f"{source} stands for several files, so -o has to name a folder, and {output} is a file.")
    for one in fields(unsure):
        if one.name != "draws" and getattr(unsure, one.name) != one.default:
            flag = "--" + one.name.replace("_", "-")
            raise ParameterError(f"{flag} is for a table in memory. Leave it out, or fill the files one by one.")


def fit_stream(source: Path, chosen: FitOptions, wished: ColumnOptions, where: EngineOptions) -> MCFlowImputer:
    """Fit on Parquet or CSV files of any size.

    Parameters
    ----------
    source : Path
        A file, folder or pattern.
    chosen, wished : FitOptions, ColumnOptions
        Flags of the command.
    where : EngineOptions
        Which machines do it.

    Returns
    -------
    MCFlowImputer
    """
    from mcflow.imputers import MCFlowImputer

    imputer = MCFlowImputer(keep_empty_features=True, **chosen.parameters(), **wished.parameters())
    with _shown("rows surveyed", chosen) as listen:
        return where.fit(source, imputer, folder=chosen.checkpoint_dir, listen=listen)


@contextmanager
def _shown(what: str, options: FitOptions) -> Iterator[Callable[[int, int], None]]:
    """Show rows done, all rows and rows a second: live on a terminal, a line now and then elsewhere, or as JSON."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from mcflow.cli.draws import LINE_EVERY
    from mcflow.training.progress import can_be_live, write_event

    console, start = Console(file=sys.stderr), time.perf_counter()
    live = options.shown == "auto" and can_be_live(console)
    last = [start]
    columns = TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[pace]}")
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not live) as bar:
        task = bar.add_task(what, total=None, pace="")

        def listen(done: int, total: int) -> None:
            now = time.perf_counter()
            pace = f"{done:,} of {total:,}, {done / max(now - start, 1e-9):,.0f} a second"
            if live:
                bar.update(task, completed=done, total=total, pace=pace)
            elif now - last[0] >= LINE_EVERY and options.shown != "none":
                last[0] = now
                if options.shown == "json":
                    write_event("rows", what=what, done=done, total=total)
                else:
                    console.print(f"{what}: {pace}", highlight=False)

        yield listen
