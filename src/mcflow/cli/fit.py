"""`mcflow fit`: fit a model on a file and save it."""

from __future__ import annotations

__all__ = ["fit"]

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mcflow.cli.options import INPUT, OUTPUT, ColumnOptions, EngineOptions, FitOptions, ReadOptions, new_imputer


def fit(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True, group=INPUT)],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o", group=OUTPUT)],
    report: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    stream: Annotated[bool, Parameter(negative="", group=INPUT)] = False,
    engines: EngineOptions | None = None,
    reading: ReadOptions | None = None,
    columns: ColumnOptions | None = None,
    options: FitOptions | None = None,
) -> None:
    """Fit a model on a CSV or Parquet file and save it.

    Parameters
    ----------
    source
        File to fit on: .csv, .tsv, .parquet or .xlsx, CSV also as .gz or .zst; - for standard input. Or a folder of
        CSV or Parquet files, or a quoted pattern such as "data/*.parquet"; these may be larger than memory.
    output
        File for the model, for example model.mcflow.
    report
        Also write a report to this HTML file: missing values, training curves and a sample of filled rows.
    stream
        Keep only a sample of the rows of a file in memory. Folders and patterns are always read this way.
    """
    from mcflow.cli.outputs import check_output, check_report_file, command_line, write_report_file
    from mcflow.cli.streaming import fit_stream, is_many
    from mcflow.cli.torchrun import sharing

    settings, engine, read = columns or ColumnOptions(), engines or EngineOptions(), reading or ReadOptions()
    engine.check(fits=True)
    streamed = stream or engine.is_cluster or is_many(source)
    if streamed:
        read.check_for_parts(report)
    with sharing(source, options or FitOptions()) as (chosen, is_first):
        if is_first:
            check_output(output, None if streamed else source)
            check_report_file(report, source, output)
        table = None if streamed else read.read(source)
        if table is None:
            imputer = fit_stream(source, chosen, settings, engine, read.missing)
        else:
            imputer = new_imputer(chosen, settings, table.missing).fit(table.table)
        if not is_first:
            return
        imputer.save(output)
        if report is not None and table is not None:
            files = {"--output": output, "--report": report}
            command = command_line("fit", source, files, chosen, read, settings)
            write_report_file(report, imputer, table.table, source=source, command=command, options=chosen)
        if not chosen.quiet:
            more = chosen.n_models - 1
            others = f", and {more} more model{'s' * (more > 1)}" if more else ""
            epochs = f"{imputer.n_epochs_} epoch{'s' * (imputer.n_epochs_ != 1)}"
            print(f"Model written to {output}: {epochs}{others}.")
