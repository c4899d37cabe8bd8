"""`mcflow impute`: fill the holes of a file."""

from __future__ import annotations

__all__ = ["fill_and_write", "impute"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

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
    uncertainty: DrawOptions | None = None,
    columns: ColumnOptions | None = None,
    options: FitOptions | None = None,
) -> None:
    """Fill the missing cells of a CSV or Parquet file.

    Fits on the file itself, or uses a model that was fitted before. Observed cells are written as they stood.

    Parameters
    ----------
    source
        File to fill: .csv, .tsv or .parquet, CSV also as .gz or .zst; - for standard input.
    output
        Where to write the filled table; its ending says the format; - for standard output.
    model
        Use this fitted model instead of fitting.
    save
        Also write the fitted model here.
    """
    from mcflow.cli.draws import outputs_of
    from mcflow.cli.files import check_output
    from mcflow.data.tables import format_of

    chosen, wished, unsure = options or FitOptions(), columns or ColumnOptions(), uncertainty or DrawOptions()
    unsure.check(output)
    format_of(output)
    outputs = outputs_of(output, unsure)
    for path in outputs:
        check_output(path, source, model)
    if save is not None:
        check_output(save, source, model, *outputs)
    flags = chosen, wished, unsure
    imputer, table = _fitted(source, *flags) if model is None else _loaded(source, model, *flags)
    fill_and_write(imputer, table, output, unsure, seed=chosen.seed, quiet=chosen.quiet)
    if save is not None:
        imputer.save(save)


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
    from mcflow.cli.files import load_table_model
    from mcflow.data.tables import as_fitted, read_table

    chosen.refuse_with_model(draws=unsure.draws is not None)
    wished.refuse_with_model()
    imputer = load_table_model(model, chosen.device).set_params(unseen=wished.unseen)
    table = as_fitted(read_table(source), imputer.schema_)
    check_columns(table.table, unsure)
    return imputer, table


def fill_and_write(
    imputer: MCFlowImputer, table: TableFile, output: Path, uncertainty: DrawOptions, *, seed: int, quiet: bool
) -> None:
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
    seed : int
        Decides the draws.
    quiet : bool
        Print nothing.
    """
    from mcflow.cli.draws import draw_and_write

    if uncertainty.draws is None:
        filled, lines = _fill_once(imputer, table, output, uncertainty.interval)
    else:
        filled, lines = draw_and_write(imputer, table, output, uncertainty, seed=seed, quiet=quiet)
    if not quiet:
        from rich.console import Console

        from mcflow.cli.summary import print_summary
        from mcflow.data.streams import STREAM
        from mcflow.report import summarise

        console = Console(stderr=output == STREAM)
        print_summary(summarise(imputer.schema_, table.table, filled), lines, console)


def _fill_once(
    imputer: MCFlowImputer, table: TableFile, output: Path, level: float | None
) -> tuple[pa.Table, list[str]]:
    """Write the estimates, with an interval around each when a level is given."""
    from mcflow.cli.draws import with_intervals
    from mcflow.data.tables import write_table

    filled = imputer.transform(table.table)
    whole, source = (filled, table) if level is None else with_intervals(imputer, table, filled, level)
    write_table(output, whole, source)
    return filled, [f"Written to {'standard output' if str(output) == '-' else output}"]
