"""`mcflow impute` and `mcflow demo`: fill the missing cells of a file, or of the table that ships with the package."""

from __future__ import annotations

__all__ = ["demo", "impute", "print_summary"]

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mcflow.cli.options import (
    INPUT,
    MODEL,
    OUTPUT,
    ColumnOptions,
    DrawOptions,
    EngineOptions,
    FitOptions,
    ReadOptions,
    load_imputer,
    new_imputer,
)
from mcflow.errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

    from mcflow.files.tables import TableFile
    from mcflow.imputers import MCFlowImputer

DEMO_TIME = 30.0  #: Default time limit of the fit, in seconds.
MISSING_PRESSURES = ("dbp1=0", "dbp2=0", "dbp3=0")  #: Diastolic pressures of 0, which mean that no sound was heard.
MAX_COLUMNS = 50  #: Maximum number of columns in the table.
MAX_NAMES = 20  #: Maximum number of names in a sentence.
MAX_WIDTH = 12  #: Maximum number of characters of a category.
#: Notes on columns that are not filled by the model, by kind or role.
NOTES = {
    "constant": "Constant, filled with its value",
    "zeros": "No observed value, filled with 0",
    "empty": "No observed value, not filled",
    "identifier": "Identifier, not filled",
    "text": "Free text, not filled",
    "other": "Unsupported type, not filled",
    "ignore": "Ignored as requested",
    "outcome": "Outcome, neither used nor filled",
    "predictors_only": "Used as a predictor, not filled",
}


def impute(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True, group=INPUT)],
    /,
    *,
    output: Annotated[Path | None, Parameter(alias="-o", allow_leading_hyphen=True, group=OUTPUT)] = None,
    model: Annotated[Path | None, Parameter(group=MODEL)] = None,
    save: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    report: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    dry_run: Annotated[bool, Parameter(negative="", group=OUTPUT)] = False,
    uncertainty: DrawOptions | None = None,
    engines: EngineOptions | None = None,
    reading: ReadOptions | None = None,
    columns: ColumnOptions | None = None,
    options: FitOptions | None = None,
) -> None:
    """Fill the missing cells of a CSV, Parquet or Excel file.

    Parameters
    ----------
    source
        File to fill: .csv, .tsv, .parquet or .xlsx, CSV also as .gz or .zst; - for standard input. Or a folder of CSV
        or Parquet files, or a quoted pattern such as "data/*.parquet".
    output
        File for the filled table; its extension determines the format; - for standard output. By default
        data.filled.csv in the folder of data.csv. Or a folder for tables larger than memory, which are filled batch by
        batch and keep the file names of the source.
    model
        Use this fitted model instead of fitting one.
    save
        Also save the fitted model to this file.
    report
        Also write a report to this HTML file: missing values, training curves, filled values and their uncertainty.
    dry_run
        Only show what would be done with every column, as `mcflow inspect` does. Nothing is fitted or written.
    """
    from mcflow.cli import outputs
    from mcflow.cli.inspect import print_columns
    from mcflow.cli.streaming import impute_stream, is_stream
    from mcflow.files.streams import STREAM
    from mcflow.files.tables import format_of

    chosen, settings, draws = options or FitOptions(), columns or ColumnOptions(), uncertainty or DrawOptions()
    flags, engine, read = (chosen, settings, draws), engines or EngineOptions(), reading or ReadOptions()
    if dry_run:
        print_columns(read.read(source), settings)
        return
    output = _beside(source) if output is None else output
    engine.check(fits=False)
    if is_stream(source, output):
        read.check_for_parts(report)
        impute_stream(source, output, model, save=save, flags=flags, engine=engine, missing=read.missing)
        return
    engine.refuse_in_memory(source, output)
    draws.check(output)
    format_of(output)
    paths = outputs.outputs_of(output, draws)
    for path in paths:
        outputs.check_output(path, source, model)
    if save is not None:
        outputs.check_output(save, source, model, *paths)
    outputs.check_report_file(report, source, model, save, *paths)
    imputer, table = _prepared(source, model, read, flags)
    if format_of(output) == "parquet":
        table = table.without_texts()
    chosen.notify_phase("filling")
    if draws.draws is None:
        tables, lines = _fill_and_write(imputer, table, output, draws.interval)
    else:
        silent = chosen.shown in ("none", "json")
        tables, lines = outputs.draw_and_write(imputer, table, output, draws, seed=chosen.seed, quiet=silent)
    if save is not None:
        imputer.save(save)
    if report is not None:
        files = {"--output": output, "--model": model, "--save": save, "--report": report}
        command = outputs.command_line("impute", source, files, read, *flags)
        outputs.write_report_file(report, imputer, table.table, tables, source=source, command=command, options=chosen)
    if not chosen.quiet:  # after all files are written, as standard output may be closed
        from mcflow.report import summarise

        cut_short = imputer.history_.cut_short if chosen.shown in ("none", "json") else ""  # else the display says so
        lines += [cut_short] if cut_short else []
        summary = summarise(imputer.schema_, table.table, tables[0])
        print_summary(summary, lines, Console(stderr=output == STREAM))


def _beside(source: Path) -> Path:
    """Return the output of a command without one: data.filled.csv for data.csv."""
    from mcflow.cli.streaming import is_many
    from mcflow.files.streams import STREAM
    from mcflow.files.tables import marked

    if source == STREAM or is_many(source):
        given = "Standard input" if source == STREAM else f"{source}, which is several files,"
        wanted = "a file, or - for standard output" if source == STREAM else "a folder for the filled files"
        raise ParameterError(f"{given} needs --output (-o). Name {wanted}.")
    return marked(source, "filled")


def _prepared(
    source: Path, model: Path | None, read: ReadOptions, flags: tuple[FitOptions, ColumnOptions, DrawOptions]
) -> tuple[MCFlowImputer, TableFile]:
    """Return a fitted imputer and the table; with a model, the table is read with the column types of the fit."""
    from mcflow.cli.outputs import check_columns
    from mcflow.files.tables import as_fitted

    chosen, settings, draws = flags
    imputer = None if model is None else load_imputer(model, chosen, settings, draws)
    table = read.read(source) if imputer is None else as_fitted(read.read(source, imputer.schema_), imputer.schema_)
    check_columns(table.table, draws)
    return imputer or new_imputer(chosen, settings, table.missing).fit(table.table), table


def _fill_and_write(
    imputer: MCFlowImputer, table: TableFile, output: Path, level: float | None
) -> tuple[list[pa.Table], list[str]]:
    """Write the filled table, with prediction intervals if a level is given; return it and what was written."""
    from mcflow.cli.outputs import with_intervals
    from mcflow.files.tables import write_table

    filled = imputer.transform(table.table)
    whole, source = (filled, table) if level is None else with_intervals(imputer, table, filled, level)
    write_table(output, whole, source)
    return [filled], [f"Written to {'standard output' if str(output) == '-' else output}"]


def print_summary(summary: dict[str, Any], written: Sequence[str], console: Console | None = None) -> None:
    """Print a summary from `mcflow.report.summarise`, and the lines that say what was written."""
    console = console or Console()
    incomplete = sorted((c for c in summary["columns"] if c["missing"]), key=lambda c: -c["missing"])
    share = summary["missing"] / max(summary["cells"], 1)
    title = f"{summary['rows']:,} rows, {len(summary['columns'])} columns, {share:.1%} of the cells missing"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("column", no_wrap=True)
    for heading in ("kind", "missing", "observed", "filled with"):
        table.add_column(heading, justify="right", no_wrap=True)
    for column in incomplete[:MAX_COLUMNS]:
        missing = f"{column['missing']:,} ({column['missing'] / summary['rows']:.1%})"
        typical = [_shown(column.get("observed_typical")), _shown(column.get("filled_typical")) or "not filled"]
        # As `Text`, brackets in a name are not markup.
        table.add_row(*map(Text, (column["name"], column["kind"], missing, *typical)))
    table.caption = "observed, filled with: mean of numbers and times, most frequent category"
    if incomplete:
        console.print(table)
    for line in [*_lines(summary, incomplete), *written]:
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _shown(typical: Any) -> str:
    """Return a mean or a category, shortened for the table."""
    if typical is None:
        return ""
    text = f"{typical:.4g}" if isinstance(typical, float) else str(typical)
    return text if len(text) <= MAX_WIDTH else text[: MAX_WIDTH - 1] + "…"


def _treatment(column: dict[str, Any]) -> str:
    """Return the key of the note on a column with the role "fill"."""
    if column["role"] != "fill":
        return ""
    return "zeros" if column["kind"] == "empty" and column["filled"] else str(column["kind"])


def _lines(summary: dict[str, Any], incomplete: list[dict[str, Any]]) -> list[str]:
    lines = []
    if len(incomplete) > MAX_COLUMNS:
        lines.append(f"… and {len(incomplete) - MAX_COLUMNS} more columns with missing cells.")
    for word, note in NOTES.items():
        names = [c["name"] for c in summary["columns"] if word in (c["role"], _treatment(c))]
        if names:
            more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
            lines.append(f"{note}: {', '.join(names[:MAX_NAMES])}{more}.")
    left = summary["missing"] - summary["filled"]
    stay = f"; {left:,} remain missing in columns that are not filled" if left else ""
    lines.append(f"Filled {summary['filled']:,} of {summary['missing']:,} missing cells{stay}.")
    return lines


def demo(
    *,
    output: Annotated[Path, Parameter(alias="-o", group=OUTPUT)] = Path("nhanes_filled.parquet"),
    options: FitOptions | None = None,
) -> None:
    """Fill the NHANES 2017-2018 table that ships with the package (5,265 adults, 42 columns, real missing values).

    Parameters
    ----------
    output
        File for the filled table; its extension determines the format.
    """
    from mcflow.files.datasets import nhanes_path

    chosen = options or FitOptions()
    if chosen.max_epochs is None and chosen.max_time is None:
        chosen = replace(chosen, max_time=DEMO_TIME)
    impute(nhanes_path(), output=output, reading=ReadOptions(na=MISSING_PRESSURES), options=chosen)
