"""`mcflow fit`: learn a model from a file."""

from __future__ import annotations

__all__ = ["fit"]

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mcflow.cli.options import ColumnOptions, FitOptions


def fit(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    columns: ColumnOptions | None = None,
    options: FitOptions | None = None,
) -> None:
    """Fit a model on a CSV or Parquet file and save it.

    `mcflow impute --model` uses it on other files with the same columns, without fitting again.

    Parameters
    ----------
    source
        File to learn from: .csv, .tsv or .parquet, CSV also as .gz or .zst; - for standard input.
    output
        Where to write the model, for example model.mcflow.
    """
    from mcflow.cli.files import check_output
    from mcflow.data.tables import read_table
    from mcflow.imputers import MCFlowImputer

    chosen, wished = options or FitOptions(), columns or ColumnOptions()
    check_output(output, source)
    table = read_table(source)
    imputer = MCFlowImputer(keep_empty_features=True, **chosen.parameters(), **wished.parameters())
    imputer.fit(table.table).save(output)
    if not chosen.quiet:
        more = chosen.n_models - 1
        others = f", and {more} more model{'s' * (more > 1)}" if more else ""
        print(f"Model written to {output}: {imputer.n_epochs_} epochs, {len(imputer.stages_)} stages{others}.")
