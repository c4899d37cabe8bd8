"""`mcflow inspect` and `mcflow schema`: show or write the kind, role and missing cells of every column."""

from __future__ import annotations

__all__ = ["inspect", "print_columns", "schema"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mcflow.cli.groups import INPUT, OUTPUT
from mcflow.cli.options import ColumnOptions, ReadOptions

if TYPE_CHECKING:
    from mcflow.files.tables import TableFile


def inspect(
    source: Annotated[Path, Parameter(allow_leading_hyphen=True, group=INPUT)],
    /,
    *,
    reading: ReadOptions | None = None,
    columns: ColumnOptions | None = None,
) -> None:
    """Show the kind, the role and the missing cells of every column, and why it has that kind. Nothing is fitted.

    Parameters
    ----------
    source
        File to inspect: .csv, .tsv or .parquet, CSV also as .gz or .zst; - for standard input.
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
        File to describe: .csv, .tsv or .parquet, CSV also as .gz or .zst; - for standard input.
    output
        TOML file for the schema, for example schema.toml; - for standard output.
    """
    from mcflow.cli.outputs import check_output
    from mcflow.columns.frames import read_frame
    from mcflow.columns.planning import plan_table
    from mcflow.columns.schema_file import schema_text
    from mcflow.files.atomic import replacing
    from mcflow.files.streams import STREAM, write_stream

    chosen = columns or ColumnOptions()
    check_output(output, source, chosen.schema)
    table = (reading or ReadOptions()).read(source)
    frame = read_frame(table.table)
    text = schema_text(plan_table(frame, chosen.settings(frame, table.missing))[0])
    if output == STREAM:
        write_stream(text.encode())
        return
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"Schema of {len(frame.names)} columns written to {output}")


def print_columns(table: TableFile, columns: ColumnOptions) -> None:
    """Print the facts of all columns of a table as they would be used by a fit."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
        shown.add_row(*map(Text, _cells(one)))
    Console().print(shown)


def _cells(facts: dict[str, Any]) -> list[str]:
    missing = f"{facts['missing']:,} ({facts['share']:.1%})" if facts["missing"] else "0"
    return [facts["name"], facts["kind"], facts["role"], missing, facts["why"]]
