"""`mcflow fit`: learn a model from a file."""

from __future__ import annotations

__all__ = ["fit"]

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mcflow.cli.options import FitOptions


def fit(source: Path, /, *, output: Annotated[Path, Parameter(alias="-o")], options: FitOptions | None = None) -> None:
    """Fit a model on a CSV or Parquet file and save it.

    `mcflow impute --model` uses it on other files with the same columns, without fitting again.

    Parameters
    ----------
    source
        File to learn from: .csv or .parquet.
    output
        Where to write the model, for example model.mcflow.
    """
    from mcflow.cli.files import check_output
    from mcflow.data.tables import read_table
    from mcflow.imputers import MCFlowImputer

    chosen = options or FitOptions()
    check_output(output, source)
    table = read_table(source)
    imputer = MCFlowImputer(keep_empty_features=True, **chosen.parameters()).fit(table.table)
    imputer.save(output)
    if not chosen.quiet:
        print(f"Model written to {output}: {imputer.n_epochs_} epochs, {len(imputer.stages_)} stages.")
