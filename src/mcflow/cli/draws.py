"""What is not known of the filled cells, in files: draws beside or below each other, and intervals."""

from __future__ import annotations

__all__ = ["check_columns", "draw_and_write", "outputs_of", "with_intervals"]

import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.cli.options import DrawOptions
from mcflow.data.schema import NUMBER_KINDS, Column
from mcflow.data.tables import TableFile, numbered, repeated, with_twins, write_table
from mcflow.errors import DataError, McflowWarning, ParameterError, did_you_mean
from mcflow.typing import Array

if TYPE_CHECKING:
    from mcflow.imputers import MCFlowImputer

#: The column with the number of the draw.
DRAW = "draw"
#: The ends of an interval.
ENDS = ("low", "high")
#: Draws that are kept in memory for what is said of them afterwards.
MOST_KEPT = 5
#: Seconds from one line of progress to the next where there is no terminal.
LINE_EVERY = 10.0


def outputs_of(output: Path, options: DrawOptions) -> list[Path]:
    """Return the files that a command writes.

    Parameters
    ----------
    output : Path
        What was asked for.
    options : DrawOptions
        Flags.

    Returns
    -------
    list of Path
        One, or one for each draw.
    """
    if options.draws is None or options.long:
        return [output]
    return [numbered(output, k) for k in range(1, options.draws + 1)]


def check_columns(table: pa.Table, options: DrawOptions) -> None:
    """Raise an error now when a table cannot get the columns that are to be added, or lacks the one that is named.

    Parameters
    ----------
    table : pyarrow.Table
        What is to be filled.
    options : DrawOptions
        Flags.

    Raises
    ------
    DataError
        When a name that is to be added is there already.
    ParameterError
        When there are no numbers of rows where the flags say.
    """
    names = table.column_names
    if options.long and DRAW in names:
        raise DataError(
            f"The table has a column {DRAW!r} already, and --long adds one. Rename it, or leave out --long to write a "
            "file for each draw."
        )
    if options.interval is not None:
        holed = [name for name in names if pc.any(_holes(table, name)).as_py()]
        taken = sorted({f"{name}.{end}" for name in holed for end in ENDS} & set(names))
        if taken:
            raise DataError(
                f"The table has columns that --interval may add: {', '.join(taken)}. Rename them, or leave out "
                "--interval."
            )
    if options.row_ids is not None:
        _ids(table, options.row_ids)


def _holes(table: pa.Table, name: str) -> pa.ChunkedArray:
    return table.column(name).is_null(nan_is_null=True)


def _ids(table: pa.Table, name: str) -> Array:
    """Return the numbers of the rows."""
    if name not in table.column_names:
        raise ParameterError(
            f"--row-ids is {name!r}, but there is no such column.{did_you_mean(name, table.column_names)}"
        )
    column = table.column(name)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise ParameterError(
            f"--row-ids is {name!r}, a column of type {column.type} with {column.null_count} missing cells, but has to "
            "name one of whole numbers without a hole."
        )
    ids: Array = column.to_numpy()
    return ids


def draw_and_write(
    imputer: MCFlowImputer, source: TableFile, output: Path, options: DrawOptions, *, seed: int, quiet: bool
) -> tuple[list[pa.Table], list[str]]:
    """Draw completed tables and write them.

    Parameters
    ----------
    imputer : MCFlowImputer
        Fitted.
    source : TableFile
        What to fill.
    output : Path
        The name of all draws; see `outputs_of`.
    options : DrawOptions
        How many draws, and whether in one file.
    seed : int
        Decides the draws.
    quiet : bool
        Show no progress.

    Returns
    -------
    first : list of pyarrow.Table
        The first draws, a few at most.
    lines : list of str
        What was written where.
    """
    assert options.draws is not None
    ids = None if options.row_ids is None else _ids(source.table, options.row_ids)
    drawn = imputer.draw(source.table, options.draws, seed, row_ids=ids)
    tables = drawn if quiet else _with_progress(drawn, options.draws)
    write = _write_long if options.long else _write_files
    first = write(tables, source, outputs_of(output, options))
    return first, _lines(source.table.num_rows, output, options)


def _write_files(tables: Iterable[pa.Table], source: TableFile, outputs: list[Path]) -> list[pa.Table]:
    """Write each draw to a file of its own as soon as it is made, and return the first ones."""
    first: list[pa.Table] = []
    for path, table in zip(outputs, tables, strict=True):
        write_table(path, table, source)
        if len(first) < MOST_KEPT:
            first.append(table)
    return first


def _write_long(tables: Iterable[pa.Table], source: TableFile, outputs: list[Path]) -> list[pa.Table]:
    """Write all draws to one file, and return the first ones."""
    draws = list(tables)
    numbers = np.repeat(np.arange(1, len(draws) + 1), source.table.num_rows)
    long = pa.concat_tables(draws).unify_dictionaries().append_column(DRAW, pa.chunked_array([numbers]))
    write_table(outputs[0], long, repeated(source, len(draws)))
    return draws[:MOST_KEPT]


def _lines(n_rows: int, output: Path, options: DrawOptions) -> list[str]:
    """Say what was written, and warn of what an earlier command left beside it."""
    m = options.draws or 0
    each = f"{m} draw{'s' * (m > 1)} of {n_rows:,} rows"
    shown = "Filled cells above are those of draw 1."
    if options.long:
        place = "standard output" if str(output) == "-" else str(output)
        return [shown, f"Written to {place}: {each}, {m * n_rows:,} rows in all"]
    paths = outputs_of(output, options)
    left = numbered(output, m + 1)
    if left.exists():
        warnings.warn(
            f"{left} was there before and is none of these {m} draws. Remove it, and what follows it, before you read "
            "all files of that name.",
            McflowWarning,
            stacklevel=2,
        )
    return [shown, f"Written to {paths[0]}{f' … {paths[-1]}' if m > 1 else ''}: {each}"]


def _with_progress(tables: Iterable[pa.Table], total: int) -> Iterator[pa.Table]:
    """Pass tables on and show how many there are: live on a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

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
    """Add to a filled table the ends between which its filled cells lie.

    Parameters
    ----------
    imputer : MCFlowImputer
        Fitted.
    source : TableFile
        What was filled.
    filled : pyarrow.Table
        The result.
    level : float
        The share of the cells that has to lie between the ends.

    Returns
    -------
    filled : pyarrow.Table
        With NAME.low and NAME.high at the end for every column with filled cells and an order; null where a cell was
        observed.
    source : TableFile
        To write it by.
    """
    bounds = dict(zip(ENDS, imputer.interval(source.table, level), strict=True))
    twins = {}
    for column in imputer.schema_.columns:
        name = str(column.name)
        holes = _holes(source.table, name)
        if _has_order(column) and pc.any(holes).as_py():
            for end, table in bounds.items():
                twins[f"{name}.{end}"] = name
                filled = filled.append_column(f"{name}.{end}", _only(table.column(name), holes))
    return filled, with_twins(source, twins)


def _has_order(column: Column) -> bool:
    return column.filled and (column.base or column.kind) in (*NUMBER_KINDS, "ordered")


def _only(cells: pa.ChunkedArray, holes: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the cells of holes, null elsewhere."""
    if str(cells.type) == "string_view":  # which cannot be taken from
        cells = cells.cast(pa.string())
    places = pc.if_else(holes, pa.array(np.arange(len(cells))), None)
    return cells.take(places)
