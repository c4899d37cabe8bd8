"""`mcflow impute`: fill the missing cells of a file."""

from __future__ import annotations

__all__ = ["fill_and_write", "impute"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mcflow.cli.engines import EngineOptions
from mcflow.cli.groups import INPUT, MODEL, OUTPUT
from mcflow.cli.options import ColumnOptions, DrawOptions, FitOptions, ReadOptions
from mcflow.errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

    from mcflow.files.tables import TableFile
    from mcflow.imputers import MCFlowImputer


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

    The model is fitted on the file itself, or loaded with --model. Observed cells are written unchanged. Large files,
    folders and patterns are filled batch by batch into a folder; an interrupted run can be resumed.

    Parameters
    ----------
    source
        File to fill: .csv, .tsv, .parquet or .xlsx, CSV also as .gz or .zst; - for standard input. Or a folder of CSV
        or Parquet files, or a quoted pattern such as "data/*.parquet".
    output
        File for the filled table; its extension determines the format; - for standard output. By default
        data.filled.csv beside data.csv. Or a folder for tables larger than memory, which are filled batch by batch and
        keep the file names of the source.
    model
        Use this fitted model instead of fitting one.
    save
        Also save the fitted model to this file.
    report
        Also write a report to this HTML file: missing values, training curves, filled values and their uncertainty.
    dry_run
        Only show what would be done with every column, as `mcflow inspect` does. Nothing is fitted or written.
    """
    from mcflow.cli.draws import outputs_of
    from mcflow.cli.outputs import check_output, check_report_file, command_line, write_report_file
    from mcflow.cli.streaming import impute_stream, is_stream, refuse_report
    from mcflow.files.tables import format_of

    chosen, settings, draws = options or FitOptions(), columns or ColumnOptions(), uncertainty or DrawOptions()
    flags, engine, read = (chosen, settings, draws), engines or EngineOptions(), reading or ReadOptions()
    if dry_run:
        _print_plan(source, settings, read)
        return
    output = _beside(source) if output is None else output
    engine.check(fits=False)
    if is_stream(source, output):
        refuse_report(report)
        read.refuse_in_parts()
        impute_stream(source, output, model, save=save, flags=flags, engine=engine, missing=read.missing)
        return
    engine.refuse_in_memory(source, output)
    draws.check(output)
    format_of(output)
    outputs = outputs_of(output, draws)
    for path in outputs:
        check_output(path, source, model)
    if save is not None:
        check_output(save, source, model, *outputs)
    check_report_file(report, source, model, save, *outputs)
    imputer, table = _fitted(source, read, *flags) if model is None else _loaded(source, model, read, flags)
    if format_of(output) == "parquet":
        table = table.without_texts()
    tables, lines = fill_and_write(imputer, table, output, draws, chosen)
    if save is not None:
        imputer.save(save)
    if report is not None:
        files = {"--output": output, "--model": model, "--save": save, "--report": report}
        command = command_line("impute", source, files, read, *flags)
        write_report_file(report, imputer, table.table, tables, source=source, command=command, options=chosen)
    if not chosen.quiet:  # after all files are written, as standard output may be closed
        cut_short = imputer.history_.cut_short if chosen.shown in ("none", "json") else ""  # else the display says so
        _print_filled(imputer, table, tables[0], [*lines, cut_short] if cut_short else lines, output)


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


def _print_plan(source: Path, settings: ColumnOptions, reading: ReadOptions) -> None:
    from mcflow.cli.inspect import print_columns

    print_columns(reading.read(source), settings)


def _fitted(
    source: Path, read: ReadOptions, chosen: FitOptions, settings: ColumnOptions, draws: DrawOptions
) -> tuple[MCFlowImputer, TableFile]:
    """Fit an imputer on the file, and return it with the table."""
    from mcflow.cli.draws import check_columns
    from mcflow.imputers import MCFlowImputer

    table = read.read(source)
    check_columns(table.table, draws)
    given = chosen.parameters() | settings.parameters()
    imputer = MCFlowImputer(keep_empty_features=True, decimals="observed", missing_values=table.missing, **given)
    return imputer.fit(table.table), table


def _loaded(
    source: Path, model: Path, read: ReadOptions, flags: tuple[FitOptions, ColumnOptions, DrawOptions]
) -> tuple[MCFlowImputer, TableFile]:
    """Load an imputer, and return it with the table, read with the column types of the fit."""
    from mcflow.cli.draws import check_columns
    from mcflow.files.tables import as_fitted
    from mcflow.imputers.persistence import load_table_model

    chosen, settings, draws = flags
    chosen.refuse_with_model(draws=draws.draws is not None)
    settings.refuse_with_model()
    imputer = load_table_model(model, device=chosen.device).set_params(unseen=settings.unseen)
    table = as_fitted(read.read(source, imputer.schema_), imputer.schema_)
    check_columns(table.table, draws)
    return imputer, table


def fill_and_write(
    imputer: MCFlowImputer, table: TableFile, output: Path, uncertainty: DrawOptions, options: FitOptions
) -> tuple[list[pa.Table], list[str]]:
    """Fill a table, write it, and return the filled table or the first draws, and lines that say what was written."""
    from mcflow.cli.draws import draw_and_write

    options.notify_phase("filling")
    if uncertainty.draws is None:
        return _fill_once(imputer, table, output, uncertainty.interval)
    silent = options.shown in ("none", "json")
    return draw_and_write(imputer, table, output, uncertainty, seed=options.seed, quiet=silent)


def _print_filled(imputer: MCFlowImputer, table: TableFile, filled: pa.Table, lines: list[str], output: Path) -> None:
    """Print the summary, to standard error if the table goes to standard output."""
    from rich.console import Console

    from mcflow.cli.summary import print_summary
    from mcflow.files.streams import STREAM
    from mcflow.report import summarise

    print_summary(summarise(imputer.schema_, table.table, filled), lines, Console(stderr=output == STREAM))


def _fill_once(
    imputer: MCFlowImputer, table: TableFile, output: Path, level: float | None
) -> tuple[list[pa.Table], list[str]]:
    """Write the filled table, with prediction intervals if a level is given."""
    from mcflow.cli.draws import with_intervals
    from mcflow.files.tables import write_table

    filled = imputer.transform(table.table)
    whole, source = (filled, table) if level is None else with_intervals(imputer, table, filled, level)
    write_table(output, whole, source)
    return [filled], [f"Written to {'standard output' if str(output) == '-' else output}"]
