"""`mcflow impute`: fill the holes of a file."""

from __future__ import annotations

__all__ = ["fill_and_write", "impute"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mcflow.cli.engines import EngineOptions
from mcflow.cli.options import ColumnOptions, DrawOptions, FitOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from mcflow.data.tables import TableFile
    from mcflow.imputers import MCFlowImputer


def impute(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o", allow_leading_hyphen=True)],
    model: Path | None = None,
    save: Path | None = None,
    report: Path | None = None,
    uncertainty: DrawOptions | None = None,
    engines: EngineOptions | None = None,
    columns: ColumnOptions | None = None,
    options: FitOptions | None = None,
) -> None:
    """Fill the missing cells of a CSV or Parquet file.

    Fits on the file itself, or uses a model that was fitted before. Observed cells are written as they stood. Files of
    any size, folders of them and patterns are filled batch by batch into a folder; a stopped run goes on.

    Parameters
    ----------
    source
        File to fill: .csv, .tsv or .parquet, CSV also as .gz or .zst; - for standard input. Or a folder of such files,
        all of one format, or a pattern in quotes such as "data/*.parquet".
    output
        Where to write the filled table; its ending says the format; - for standard output. Or a folder, which is filled
        batch by batch with files as those of the source; for tables that do not fit in memory.
    model
        Use this fitted model instead of fitting.
    save
        Also write the fitted model here.
    report
        Also write a report here, one HTML file: what was missing, how the fit went, what was filled and how sure it is.
    """
    from mcflow.cli.draws import outputs_of
    from mcflow.cli.files import check_output
    from mcflow.cli.reports import check_report_file, command_line
    from mcflow.cli.streaming import impute_stream, is_stream, refuse_report
    from mcflow.data.tables import format_of

    chosen, wished, unsure = options or FitOptions(), columns or ColumnOptions(), uncertainty or DrawOptions()
    where = engines or EngineOptions()
    where.check(fits=False)
    if is_stream(source, output):
        refuse_report(report)
        impute_stream(source, output, model, save=save, flags=(chosen, wished, unsure), where=where)
        return
    where.refuse_in_memory(source, output)
    unsure.check(output)
    format_of(output)
    outputs = outputs_of(output, unsure)
    for path in outputs:
        check_output(path, source, model)
    if save is not None:
        check_output(save, source, model, *outputs)
    check_report_file(report, source, model, save, *outputs)
    flags = chosen, wished, unsure
    imputer, table = _fitted(source, *flags) if model is None else _loaded(source, model, *flags)
    if format_of(output) == "parquet":
        table = table.without_texts()
    tables = fill_and_write(imputer, table, output, unsure, chosen)
    if save is not None:
        imputer.save(save)
    if report is not None:
        files = {"--output": output, "--model": model, "--save": save, "--report": report}
        command = command_line("impute", source, files, *flags)
        _report(report, imputer, table, tables, command=command, options=chosen)


def _report(
    report: Path, imputer: MCFlowImputer, table: TableFile, tables: list[pa.Table], *, command: str, options: FitOptions
) -> None:
    """Write a report on what was filled, once or in several draws."""
    from mcflow.cli.reports import say_written, tell_phase
    from mcflow.report import write_report

    tell_phase("writing the report", options)
    draws = tables if len(tables) > 1 else None
    write_report(report, imputer, table.table, tables[0], draws=draws, command=command)
    say_written(report, options)


def _fitted(
    source: Path, chosen: FitOptions, wished: ColumnOptions, unsure: DrawOptions
) -> tuple[MCFlowImputer, TableFile]:
    """Return an imputer that was fitted on the file, and its table."""
    from mcflow.cli.draws import check_columns
    from mcflow.data.tables import read_table
    from mcflow.imputers import MCFlowImputer

    table = read_table(source)
    check_columns(table.table, unsure)
    imputer = MCFlowImputer(keep_empty_features=True, **chosen.parameters(), **wished.parameters())
    return imputer.fit(table.table), table


def _loaded(
    source: Path, model: Path, chosen: FitOptions, wished: ColumnOptions, unsure: DrawOptions
) -> tuple[MCFlowImputer, TableFile]:
    """Return an imputer from a file, and the table to fill, read as the one of the fit."""
    from mcflow.cli.draws import check_columns
    from mcflow.data.tables import as_fitted, read_table
    from mcflow.imputers.persistence import load_table_model

    chosen.refuse_with_model(draws=unsure.draws is not None)
    wished.refuse_with_model()
    imputer = load_table_model(model, device=chosen.device).set_params(unseen=wished.unseen)
    table = as_fitted(read_table(source), imputer.schema_)
    check_columns(table.table, unsure)
    return imputer, table


def fill_and_write(
    imputer: MCFlowImputer, table: TableFile, output: Path, uncertainty: DrawOptions, options: FitOptions
) -> list[pa.Table]:
    """Fill a table that was read from a file, write it and print the summary.

    Parameters
    ----------
    imputer : MCFlowImputer
        Fitted.
    table : TableFile
        What to fill.
    output : Path
        Where to write it; "-" is standard output, and the summary then goes to standard error.
    uncertainty : DrawOptions
        What to write besides or instead of the estimates.
    options : FitOptions
        With the seed that decides the draws, and what to print.

    Returns
    -------
    list of pyarrow.Table
        The filled table, or the first few draws.
    """
    from mcflow.cli.draws import draw_and_write
    from mcflow.cli.reports import tell_phase

    tell_phase("filling", options)
    if uncertainty.draws is None:
        tables, lines = _fill_once(imputer, table, output, uncertainty.interval)
    else:
        silent = options.shown in ("none", "json")
        tables, lines = draw_and_write(imputer, table, output, uncertainty, seed=options.seed, quiet=silent)
    if not options.quiet:
        from rich.console import Console

        from mcflow.cli.summary import print_summary
        from mcflow.data.streams import STREAM
        from mcflow.report import summarise

        console = Console(stderr=output == STREAM)
        print_summary(summarise(imputer.schema_, table.table, tables[0]), lines, console)
    return tables


def _fill_once(
    imputer: MCFlowImputer, table: TableFile, output: Path, level: float | None
) -> tuple[list[pa.Table], list[str]]:
    """Write the estimates, with an interval around each when a level is given."""
    from mcflow.cli.draws import with_intervals
    from mcflow.data.tables import write_table

    filled = imputer.transform(table.table)
    whole, source = (filled, table) if level is None else with_intervals(imputer, table, filled, level)
    write_table(output, whole, source)
    return [filled], [f"Written to {'standard output' if str(output) == '-' else output}"]
