"""`mcflow check`: compare a file with the table of a fit."""

from __future__ import annotations

__all__ = ["check"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mcflow.cli.groups import COLUMNS, INPUT, MODEL
from mcflow.cli.options import ReadOptions
from mcflow.errors import DataError, ParameterError

if TYPE_CHECKING:
    from mcflow.columns.checking import CheckReport


def check(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True, group=INPUT)],
    /,
    *,
    model: Annotated[Path | None, Parameter(group=MODEL)] = None,
    schema: Annotated[Path | None, Parameter(group=COLUMNS)] = None,
    reading: ReadOptions | None = None,
) -> None:
    """Compare a file with the table that a model was fitted on, or with a schema file.

    The exit code is 3 if `mcflow impute --model` or a fit with --schema would reject the file.

    Parameters
    ----------
    source
        File to check: .csv, .tsv, .parquet or .xlsx, CSV also as .gz or .zst; - for standard input.
    model
        Fitted model.
    schema
        Schema file written by `mcflow schema`.
    """
    if (model is None) == (schema is None):
        raise ParameterError("check needs a model or a schema: give --model FILE or --schema FILE.")
    read = reading or ReadOptions()
    report = _by_model(source, model, read) if model is not None else _by_schema(source, schema, read)
    print(report)
    if not report.ok:
        raise DataError(f"{source} does not match {model or schema}; the lines marked ! say why.")


def _by_model(source: Path, model: Path, reading: ReadOptions) -> CheckReport:
    from mcflow.files.tables import as_fitted
    from mcflow.imputers.persistence import load_table_model

    imputer = load_table_model(model)
    return imputer.check(as_fitted(reading.read(source, imputer.schema_), imputer.schema_).table)


def _by_schema(source: Path, schema: Path | None, reading: ReadOptions) -> CheckReport:
    from mcflow.columns.checking import check_schema
    from mcflow.columns.schema_file import read_schema

    assert schema is not None
    return check_schema(reading.read(source).table, read_schema(schema))
