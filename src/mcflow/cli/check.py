"""`mcflow check`: how a file differs from the table of a fit."""

from __future__ import annotations

__all__ = ["check"]

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mcflow.errors import DataError


def check(source: Annotated[Path, Parameter(allow_leading_hyphen=True)], /, *, model: Path) -> None:
    """Say how a file differs from the table that a model was fitted on.

    Ends with exit code 3 when `mcflow impute --model` would refuse the file.

    Parameters
    ----------
    source
        File to look at: .csv, .tsv or .parquet, CSV also as .gz or .zst; - for standard input.
    model
        The fitted model.
    """
    from mcflow.data.tables import as_fitted, read_table
    from mcflow.imputers.persistence import load_table_model

    imputer = load_table_model(model)
    report = imputer.check(as_fitted(read_table(source), imputer.schema_).table)
    print(report)
    if not report.ok:
        raise DataError(f"{source} cannot be filled by {model} as it is; the lines marked ! say why.")
