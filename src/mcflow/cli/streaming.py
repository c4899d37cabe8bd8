"""Fit and fill tables larger than memory: Parquet or CSV files, folders and patterns."""

from __future__ import annotations

__all__ = ["fit_stream", "impute_stream", "is_many", "is_stream"]

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mcflow.cli.options import ColumnOptions, DrawOptions, EngineOptions, FitOptions, load_imputer, new_imputer
from mcflow.errors import ParameterError

if TYPE_CHECKING:
    from mcflow.columns.schema import MissingValues
    from mcflow.imputers import MCFlowImputer


def _is_folder(output: Path) -> bool:
    return output.is_dir() or (not output.suffix and str(output) != "-")


def is_many(source: Path) -> bool:
    """Return whether a source is a folder or a pattern."""
    return source.is_dir() or (any(mark in str(source) for mark in "*?[") and not source.exists())


def is_stream(source: Path, output: Path) -> bool:
    """Return whether a table is filled in parts: the source is several files, or the output is a folder."""
    from mcflow.files.partitioned import is_csv, is_parquet

    return is_many(source) or ((is_csv(source) or is_parquet(source)) and _is_folder(output))


def impute_stream(
    source: Path,
    output: Path,
    model: Path | None,
    *,
    save: Path | None,
    flags: tuple[FitOptions, ColumnOptions, DrawOptions],
    engine: EngineOptions,
    missing: MissingValues,
) -> None:
    """Fill Parquet or CSV files into a folder batch by batch, with a model file or a model fitted on the files."""
    from mcflow.cli.outputs import check_output
    from mcflow.engines import Scorer

    chosen, settings, draws = flags
    if not _is_folder(output):
        raise ParameterError(f"{source} is several files, so -o has to name a folder, but {output} is a file.")
    for option in fields(draws):
        if option.name != "draws" and getattr(draws, option.name) != option.default:
            flag = "--" + option.name.replace("_", "-")
            raise ParameterError(f"{flag} requires a table in memory. Leave it out, or fill the files one by one.")
    if save is not None:
        check_output(save, model)
    if model is None:
        imputer = fit_stream(source, chosen, settings, engine, missing)
        if save is not None:
            imputer.save(save)
    else:
        if missing != type(missing)():
            raise ParameterError(
                "--na has no effect with --model on several files; the model has its own missing values."
            )
        imputer = load_imputer(model, chosen, settings, draws)
    with _shown("rows filled", chosen) as listen:
        outcome = engine.fill(source, output, Scorer(imputer), draws=draws.draws, seed=chosen.seed, listen=listen)
    if not chosen.quiet:
        speed = f", {outcome.rows / outcome.seconds:,.0f} rows per second" if outcome.rows else ""
        before = f" {outcome.found} of them were already complete." if outcome.found else ""
        per_draw = f" for each of {draws.draws} draws" if draws.draws else ""
        print(f"Filled {outcome.rows:,} rows in {outcome.seconds:.1f} s{speed}.")
        print(f"Written to {output}: {outcome.parts} files{per_draw}.{before}")


def fit_stream(
    source: Path, chosen: FitOptions, settings: ColumnOptions, engine: EngineOptions, missing: MissingValues
) -> MCFlowImputer:
    """Fit on Parquet or CSV files of any size."""
    imputer = new_imputer(chosen, settings, missing)
    with _shown("rows read", chosen) as listen:
        return engine.fit(source, imputer, folder=chosen.checkpoint_dir, listen=listen)


@contextmanager
def _shown(what: str, options: FitOptions) -> Iterator[Callable[[int, int], None]]:
    """Show the rows that are done and the speed: a live display on a terminal, lines elsewhere, or JSON."""
    from mcflow.cli.outputs import LINE_EVERY
    from mcflow.fitting.progress import can_be_live, write_event

    console, start = Console(file=sys.stderr), time.perf_counter()
    live = options.shown == "auto" and can_be_live(console)
    last = [start]
    columns = TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[speed]}")
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not live) as bar:
        task = bar.add_task(what, total=None, speed="")

        def listen(done: int, total: int) -> None:
            now = time.perf_counter()
            speed = f"{done:,} of {total:,}, {done / max(now - start, 1e-9):,.0f} per second"
            if live:
                bar.update(task, completed=done, total=total, speed=speed)
            elif now - last[0] >= LINE_EVERY and options.shown != "none":
                last[0] = now
                if options.shown == "json":
                    write_event("rows", what=what, done=done, total=total)
                else:
                    console.print(f"{what}: {speed}", highlight=False)

        yield listen
