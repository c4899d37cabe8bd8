"""`mcflow fit`: learn a model from a file."""

from __future__ import annotations

__all__ = ["fit"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mcflow.cli.engines import EngineOptions
from mcflow.cli.options import ColumnOptions, FitOptions

if TYPE_CHECKING:
    from mcflow.data.tables import TableFile
    from mcflow.imputers import MCFlowImputer


def fit(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    report: Path | None = None,
    stream: Annotated[bool, Parameter(negative="")] = False,
    engines: EngineOptions | None = None,
    columns: ColumnOptions | None = None,
    options: FitOptions | None = None,
) -> None:
    """Fit a model on a CSV or Parquet file and save it.

    `mcflow impute --model` uses it on other files with the same columns, without fitting again. Processes of torchrun
    fit together: `torchrun --nproc-per-node 2 -m mcflow fit ...`.

    Parameters
    ----------
    source
        File to learn from: .csv, .tsv or .parquet, CSV also as .gz or .zst; - for standard input. Or a folder of such
        files, or a pattern in quotes such as "data/*.parquet", which may be of any size.
    output
        Where to write the model, for example model.mcflow.
    report
        Also write a report here, one HTML file: what was missing and how the fit went, with a sample of rows filled.
    stream
        Keep only a sample of the rows of a file in memory; folders and patterns are read so in any case.
    """
    from mcflow.cli.files import check_output
    from mcflow.cli.reports import check_report_file, command_line
    from mcflow.cli.streaming import fit_stream, is_many, refuse_report
    from mcflow.cli.torchrun import sharing
    from mcflow.data.tables import read_table
    from mcflow.imputers import MCFlowImputer

    wished, where = columns or ColumnOptions(), engines or EngineOptions()
    where.check(fits=True)
    streamed = stream or where.is_cluster or is_many(source)
    if streamed:
        refuse_report(report)
    with sharing(source, options or FitOptions()) as (chosen, is_first):
        if is_first:
            check_output(output, None if streamed else source)
            check_report_file(report, source, output)
        table = None if streamed else read_table(source)
        if table is None:
            imputer = fit_stream(source, chosen, wished, where)
        else:
            imputer = MCFlowImputer(keep_empty_features=True, **chosen.parameters(), **wished.parameters())
            imputer.fit(table.table)
        if not is_first:
            return
        imputer.save(output)
        _say(imputer, output, chosen)
        if report is not None and table is not None:
            files = {"--output": output, "--report": report}
            _report(report, imputer, table, command_line("fit", source, files, chosen, wished), chosen)


def _say(imputer: MCFlowImputer, output: Path, options: FitOptions) -> None:
    """Print what was written."""
    if not options.quiet:
        more = options.n_models - 1
        others = f", and {more} more model{'s' * (more > 1)}" if more else ""
        print(f"Model written to {output}: {imputer.n_epochs_} epochs, {len(imputer.stages_)} stages{others}.")


def _report(report: Path, imputer: MCFlowImputer, table: TableFile, command: str, options: FitOptions) -> None:
    """Write a report on the table and the fit."""
    from mcflow.cli.reports import say_written, tell_phase
    from mcflow.report import write_report

    tell_phase("writing the report", options)
    write_report(report, imputer, table.table, command=command)
    say_written(report, options)
