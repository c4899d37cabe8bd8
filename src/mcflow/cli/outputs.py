"""Output files of commands: checks before any work, draws, prediction intervals, and reports."""

from __future__ import annotations

__all__ = [
    "check_columns",
    "check_output",
    "check_report_file",
    "command_line",
    "draw_and_write",
    "outputs_of",
    "with_intervals",
    "write_output",
    "write_report_file",
]

import shlex
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mcflow.cli.options import DrawOptions, FitOptions
from mcflow.columns.schema import NUMBER_KINDS
from mcflow.errors import DataError, McflowWarning, OutputError, ParameterError, did_you_mean
from mcflow.files.atomic import check_writable, write_text
from mcflow.files.streams import STREAM, write_stream
from mcflow.files.tables import TableFile, marked, repeated, with_companions, write_table
from mcflow.typing import Array

if TYPE_CHECKING:
    from mcflow.imputers import MCFlowImputer

_NO_EFFECT = {"quiet", "progress", "checkpoint_dir"}  #: Options that do not change the result.
#: Columns with the number of the draw and of the row that a stacked format adds, by format.
ADDED = {"long": ("draw", None), "mids": (".imp", ".id"), "stata": ("_mi_m", "_mi_id"), "spss": ("Imputation_", None)}
ENDS = ("low", "high")  #: Suffixes of the columns with the bounds of an interval.
MAX_KEPT = 5  #: Draws that are kept in memory for the summary and the report.
LINE_EVERY = 10.0  #: Seconds between two lines of progress without a terminal.


def check_output(output: Path, *others: Path | None) -> None:
    """Raise `OutputError` if an output cannot be written or would replace another file of the command."""
    if output == STREAM:
        return
    check_writable(output)
    for other in others:
        if other is not None and output.resolve() == other.resolve():
            raise OutputError(f"{output} is given twice and would be overwritten. Give each file its own name.")


def write_output(output: Path, text: str) -> None:
    """Write a text to a file, or to standard output."""
    if output == STREAM:
        write_stream(text.encode())
    else:
        write_text(output, text)


def check_report_file(report: Path | None, *others: Path | None) -> None:
    """Raise an error if a requested report cannot be written later, or if its libraries are not installed."""
    if report is None:
        return
    from mcflow.report import check_report

    if report == STREAM:
        raise ParameterError("--report is -, but a report is a file. Give a name such as report.html.")
    check_report()
    check_output(report, *(other for other in others if other != STREAM))


def outputs_of(output: Path, options: DrawOptions) -> list[Path]:
    """Return the output files of a command: one, or one per draw."""
    if options.draws is None or options.layout != "files":
        return [output]
    return [marked(output, k) for k in range(1, options.draws + 1)]


def check_columns(table: pa.Table, options: DrawOptions) -> None:
    """Raise an error if a column that will be added exists already, or if the column of row ids is unusable."""
    names = table.column_names
    added = {name for name in ADDED.get(options.layout, ()) if name is not None}
    if options.layout == "stata-wide":
        added = {_wide_name(k, name) for name in names for k in range(1, (options.draws or 0) + 1)}
    for name in sorted(added & set(names)):
        flag = "--long" if options.long else f"--draws-format {options.layout}"
        raise DataError(
            f"The table already has a column {name!r}, and {flag} adds one. Rename it, or leave out {flag} to write "
            "one file per draw."
        )
    if options.interval is not None:
        incomplete = [name for name in names if pc.any(_missing(table, name)).as_py()]
        taken = sorted({f"{name}.{end}" for name in incomplete for end in ENDS} & set(names))
        if taken:
            raise DataError(
                f"The table already has columns that --interval adds: {', '.join(taken)}. Rename them, or leave out "
                "--interval."
            )
    if options.row_ids is not None:
        _ids(table, options.row_ids)


def _missing(table: pa.Table, name: str) -> pa.ChunkedArray:
    return table.column(name).is_null(nan_is_null=True)


def _ids(table: pa.Table, name: str) -> Array:
    """Return the row ids. Shape: (n_rows,)."""
    if name not in table.column_names:
        raise ParameterError(
            f"--row-ids is {name!r}, but there is no such column.{did_you_mean(name, table.column_names)}"
        )
    column = table.column(name)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise ParameterError(
            f"--row-ids is {name!r}, a column of type {column.type} with {column.null_count} missing cells, but has to "
            "name a column of integers without missing cells."
        )
    return np.asarray(column)


def draw_and_write(
    imputer: MCFlowImputer, source: TableFile, output: Path, options: DrawOptions, *, seed: int, quiet: bool
) -> tuple[list[pa.Table], list[str]]:
    """Draw completed tables, write them, and return the first draws and the lines that say what was written."""
    assert options.draws is not None
    ids = None if options.row_ids is None else _ids(source.table, options.row_ids)
    drawn = imputer.draw(source.table, options.draws, seed, row_ids=ids)
    tables = drawn if quiet else _with_progress(drawn, options.draws)
    outputs = outputs_of(output, options)
    if options.layout == "files":
        first = _write_files(tables, source, outputs)
    elif options.layout == "stata-wide":
        first = _write_wide(imputer, list(tables), source, output)
    else:
        first = _write_stacked(tables, source, output, options.layout)
    return first, _lines(source.table.num_rows, output, options)


def _write_files(tables: Iterable[pa.Table], source: TableFile, outputs: list[Path]) -> list[pa.Table]:
    """Write each draw to its own file as soon as it is drawn, and return the first draws."""
    first: list[pa.Table] = []
    for path, table in zip(outputs, tables, strict=True):
        write_table(path, table, source)
        if len(first) < MAX_KEPT:
            first.append(table)
    return first


def _write_stacked(tables: Iterable[pa.Table], source: TableFile, output: Path, layout: str) -> list[pa.Table]:
    """Write all draws to one file, below the incomplete table if the format has an imputation 0; return the first."""
    draws = list(tables)
    number, row = ADDED[layout]
    blocks = draws if layout == "long" else [source.table, *draws]
    first, n_rows = int(layout == "long"), source.table.num_rows
    long = pa.concat_tables(blocks).unify_dictionaries()
    long = long.append_column(number, pa.chunked_array([np.repeat(np.arange(first, first + len(blocks)), n_rows)]))
    if row is not None:
        long = long.append_column(row, pa.chunked_array([np.tile(np.arange(1, n_rows + 1), len(blocks))]))
    write_table(output, long, repeated(source, len(blocks)))
    return draws[:MAX_KEPT]


def _write_wide(imputer: MCFlowImputer, draws: list[pa.Table], source: TableFile, output: Path) -> list[pa.Table]:
    """Write the incomplete table with columns _1_NAME, _2_NAME, … for every column that is filled; return the first."""
    wide, twins = source.table, {}
    for column in imputer.schema_.columns:
        name = str(column.name)
        if column.filled and pc.any(_missing(source.table, name)).as_py():
            for k, drawn in enumerate(draws, start=1):
                twins[_wide_name(k, name)] = name
                wide = wide.append_column(_wide_name(k, name), drawn.column(name))
    write_table(output, wide, with_companions(source, twins))
    return draws[:MAX_KEPT]


def _wide_name(number: int, name: str) -> str:
    return f"_{number}_{name}"


def _lines(n_rows: int, output: Path, options: DrawOptions) -> list[str]:
    """Return lines that say what was written, and warn of files of an earlier command."""
    m = options.draws or 0
    each = f"{m} draw{'s' * (m > 1)} of {n_rows:,} rows"
    shown = "The filled values above are those of draw 1."
    if options.layout != "files":
        place = "standard output" if str(output) == "-" else str(output)
        blocks = {"long": m, "stata-wide": 1}.get(options.layout, m + 1)
        return [shown, f"Written to {place}: {each}, {blocks * n_rows:,} rows in total"]
    paths = outputs_of(output, options)
    left = marked(output, m + 1)
    if left.exists():
        warnings.warn(
            f"{left} was written by an earlier command and is not one of these {m} draws. Delete it, and files with "
            "higher numbers, before you read all files of that name.",
            McflowWarning,
            stacklevel=2,
        )
    return [shown, f"Written to {paths[0]}{f' … {paths[-1]}' if m > 1 else ''}: {each}"]


def _with_progress(tables: Iterable[pa.Table], total: int) -> Iterator[pa.Table]:
    """Pass tables on and show how many are drawn: a live display on a terminal, lines elsewhere."""
    console = Console(file=sys.stderr)
    columns = TextColumn("draw"), MofNCompleteColumn(), BarColumn(bar_width=24), TimeElapsedColumn()
    start = last = time.perf_counter()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("draw", total=total)
        for done, table in enumerate(tables, start=1):
            yield table
            bar.update(task, completed=done)
            now = time.perf_counter()
            if not console.is_terminal and now - last >= LINE_EVERY:
                last = now
                console.print(f"draw {done}/{total}", highlight=False)
    console.print(f"drew {total} tables in {time.perf_counter() - start:.1f} s", highlight=False)


def with_intervals(
    imputer: MCFlowImputer, source: TableFile, filled: pa.Table, level: float
) -> tuple[pa.Table, TableFile]:
    """Add NAME.low and NAME.high, null in observed cells, to a filled table; return it with the matching source."""
    bounds = dict(zip(ENDS, imputer.interval(source.table, level), strict=True))
    twins = {}
    for column in imputer.schema_.columns:
        name = str(column.name)
        missing = _missing(source.table, name)
        ordered = (column.base or column.kind) in (*NUMBER_KINDS, "ordered")
        if column.filled and ordered and pc.any(missing).as_py():
            places = pc.if_else(missing, pa.array(np.arange(len(missing))), None)
            for end, table in bounds.items():
                cells = table.column(name)
                if str(cells.type) == "string_view":  # pyarrow cannot take from it
                    cells = cells.cast(pa.string())
                twins[f"{name}.{end}"] = name
                filled = filled.append_column(f"{name}.{end}", cells.take(places))
    return filled, with_companions(source, twins)


def command_line(name: str, source: Path, files: Mapping[str, Path | None], *options: Any) -> str:
    """Return the command that reproduces a result, with the files by flag and the options that differ from defaults."""
    words = ["mcflow", name, str(source)]
    for flag, path in files.items():
        words += [] if path is None else [flag, str(path)]
    for group in options:
        for field in fields(group):
            value = getattr(group, field.name)
            if field.name not in _NO_EFFECT and (value != field.default or field.name == "seed"):
                words += _flag("--" + field.name.replace("_", "-"), value)
    return shlex.join(words)


def _flag(flag: str, value: Any) -> list[str]:
    if isinstance(value, tuple):
        return [word for one in value for word in (flag, str(one))]
    if isinstance(value, bool):
        return [flag if value else "--no-" + flag[2:]]
    return [flag, f"{value:g}" if isinstance(value, float) else str(value)]


def write_report_file(
    report: Path,
    imputer: MCFlowImputer,
    table: pa.Table,
    filled: list[pa.Table] | None = None,
    *,
    source: Path,
    command: str,
    options: FitOptions,
) -> None:
    """Write the report of a fit, of a filled table or of several draws, and print its name to standard error."""
    from mcflow.report import write_report

    options.notify_phase("writing the report")
    first = filled[0] if filled else None
    draws = filled if filled and len(filled) > 1 else None
    write_report(report, imputer, table, first, draws=draws, command=command, source=source.name)
    if not options.quiet:
        print(f"Report written to {report}", file=sys.stderr)
