"""`mcflow impute`: fill the holes of a file."""

from __future__ import annotations

__all__ = ["fill_and_write", "impute"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mcflow.cli.options import ColumnOptions, FitOptions

if TYPE_CHECKING:
    from mcflow.data.tables import TableFile
    from mcflow.imputers import MCFlowImputer


def impute(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o", allow_leading_hyphen=True)],
    model: Path | None = None,
    save: Path | None = None,
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
    from mcflow.cli.files import check_output
    from mcflow.data.tables import as_fitted, format_of, read_table
    from mcflow.imputers import MCFlowImputer, load

    chosen, wished = options or FitOptions(), columns or ColumnOptions()
    format_of(output)
    check_output(output, source, model)
    if save is not None:
        check_output(save, source, model, output)
    if model is None:
        table = read_table(source)
        imputer = MCFlowImputer(keep_empty_features=True, **chosen.parameters(), **wished.parameters())
        imputer.fit(table.table)
    else:
        chosen.refuse_with_model()
        wished.refuse_with_model()
        imputer = load(model, device=chosen.device).set_params(unseen=wished.unseen)
        table = as_fitted(read_table(source), imputer.schema_)
    fill_and_write(imputer, table, output, quiet=chosen.quiet)
    if save is not None:
        imputer.save(save)


def fill_and_write(imputer: MCFlowImputer, table: TableFile, output: Path, *, quiet: bool) -> None:
    """Fill a table that was read from a file, write it and print the summary.

    Parameters
    ----------
    imputer : MCFlowImputer
        Fitted.
    table : TableFile
        What to fill.
    output : Path
        Where to write it; "-" is standard output, and the summary then goes to standard error.
    quiet : bool
        Print nothing.
    """
    from mcflow.data.tables import write_table

    filled = imputer.transform(table.table)
    write_table(output, filled, table)
    if not quiet:
        from rich.console import Console

        from mcflow.cli.summary import print_summary
        from mcflow.data.streams import STREAM
        from mcflow.report import summarise

        console = Console(stderr=output == STREAM)
        print_summary(summarise(imputer.schema_, table.table, filled), output, console)
