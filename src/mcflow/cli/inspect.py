"""`mcflow inspect`, `schema` and `check`: show or write the columns of a file, or compare them with those of a fit."""

from __future__ import annotations

__all__ = ["check", "inspect", "print_columns", "schema"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mcflow.cli.options import COLUMNS, INPUT, MODEL, OUTPUT, ColumnOptions, ReadOptions
from mcflow.errors import DataError, ParameterError

if TYPE_CHECKING:
    from mcflow.files.tables import TableFile


def inspect(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True, group=INPUT)],
    /,
    *,
    reading: ReadOptions | None = None,
    columns: ColumnOptions | None = None,
) -> None:
    """Show the kind, the role and the missing cells of every column, with the reason for the kind. Nothing is fitted.

    Parameters
    ----------
    source
        File to inspect: .csv, .tsv, .parquet or .xlsx, CSV also as .gz or .zst; - for standard input.
    """
    print_columns((reading or ReadOptions()).read(source), columns or ColumnOptions())


def schema(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True, group=INPUT)],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o", allow_leading_hyphen=True, group=OUTPUT)],
    reading: ReadOptions | None = None,
    columns: ColumnOptions | None = None,
) -> None:
    """Write the detected columns of a file to a schema, which can be edited and passed to --schema.

    Parameters
    ----------
    source
        File to describe: .csv, .tsv, .parquet or .xlsx, CSV also as .gz or .zst; - for standard input.
    output
        TOML file for the schema, for example schema.toml; - for standard output.
    """
    from mcflow.cli.outputs import check_output, write_output
    from mcflow.columns.frames import read_frame
    from mcflow.columns.planning import plan_table
    from mcflow.columns.schema_file import schema_text
    from mcflow.files.streams import STREAM

    chosen = columns or ColumnOptions()
    check_output(output, source, chosen.schema)
    table = (reading or ReadOptions()).read(source)
    frame = read_frame(table.table)
    text = schema_text(plan_table(frame, chosen.settings(frame, table.missing))[0])
    write_output(output, text)
    if output != STREAM:
        print(f"Schema of {len(frame.names)} columns written to {output}")


def print_columns(table: TableFile, columns: ColumnOptions) -> None:
    """Print the facts of all columns of a table as they would be used by a fit."""
    from mcflow.columns.frames import read_frame
    from mcflow.columns.inspection import inspect_columns

    frame = read_frame(table.table)
    facts = inspect_columns(frame, columns.settings(frame, table.missing))
    missing = sum(one["missing"] for one in facts)
    cells = max(frame.n_rows * len(facts), 1)
    title = f"{frame.n_rows:,} rows, {len(facts)} columns, {missing:,} missing cells ({missing / cells:.1%})"
    shown = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("column", "kind", "role", "missing", "why"):
        shown.add_column(heading, justify="right" if heading == "missing" else "left", overflow="fold")
    for one in facts:
        counted = f"{one['missing']:,} ({one['share']:.1%})" if one["missing"] else "0"
        shown.add_row(*map(Text, (one["name"], one["kind"], one["role"], counted, one["why"])))
    Console().print(shown)


def check(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True, group=INPUT)],
    /,
    *,
    model: Annotated[Path | None, Parameter(group=MODEL)] = None,
    schema: Annotated[Path | None, Parameter(group=COLUMNS)] = None,
    reading: ReadOptions | None = None,
) -> None:
    """Compare a file with the table that a model was fitted on, or with a schema file.

    Parameters
    ----------
    source
        File to check: .csv, .tsv, .parquet or .xlsx, CSV also as .gz or .zst; - for standard input.
    model
        Fitted model.
    schema
        Schema file written by `mcflow schema`.
    """
    from mcflow.columns.checking import check_schema
    from mcflow.columns.schema_file import read_schema
    from mcflow.files.tables import as_fitted
    from mcflow.imputers.persistence import load_table_model

    read = reading or ReadOptions()
    if model is not None and schema is None:
        imputer = load_table_model(model)
        report = imputer.check(as_fitted(read.read(source, imputer.schema_), imputer.schema_).table)
    elif schema is not None and model is None:
        report = check_schema(read.read(source).table, read_schema(schema))
    else:
        raise ParameterError("check needs a model or a schema: give --model FILE or --schema FILE.")
    print(report)
    if not report.ok:
        raise DataError(f"{source} does not match {model or schema}; the lines marked ! say why.")
