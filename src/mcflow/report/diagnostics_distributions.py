"""Observed against filled cells: the distribution of each column, side by side."""

from __future__ import annotations

__all__ = ["plot_distributions"]

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.frames import Frame, read_frame
from mcflow.data.schema import LEVEL_KINDS, Column, TableSchema
from mcflow.errors import DataError
from mcflow.report.diagnostics_canvas import (
    COVERED,
    INK,
    MISSED,
    MOST_PANELS,
    add_legend,
    axis_values,
    check_matplotlib,
    label_axis,
    panel_grid,
    percent,
    shorten,
    thin,
)
from mcflow.report.diagnostics_cells import columns_of, named_positions, place_in, widest
from mcflow.typing import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OBSERVED, FILLED = COVERED, MISSED

#: Draws with a line of their own, at most, and levels with bars of their own; the other levels are joined.
MOST_LINES, MOST_LEVELS = 20, 8
#: The share of cells at each end that an axis may leave out where they would take up half of it.
TAIL = 0.005


def plot_distributions(frame: Any, completed: Any, columns: Sequence[Any] | None = None) -> Figure:
    """Draw the distribution of the observed and of the filled cells of each column.

    Parameters
    ----------
    frame : array-like or data frame of shape (n_rows, n_columns)
        The table with holes.
    completed : array-like, data frame, or sequence or iterator of them
        What `transform` made of it, or the tables that `draw` gave.
    columns : list, optional
        Names of the columns to draw, positions for arrays. By default those with filled cells; of more than 24, those
        with the most.

    Returns
    -------
    matplotlib.figure.Figure
        A panel a column. Numbers and dates: histograms on common bins, the observed cells as an area, the filled ones
        as a bold line with a thin one for each draw. Levels: bars of shares, with a line from the smallest to the
        largest share among the draws.

    Raises
    ------
    DataError
        When the tables do not belong together, or nothing was filled.
    ParameterError
        When `columns` names one that the table does not have.
    MissingExtraError
        When matplotlib is not installed.

    Notes
    -----
    Filled cells need not look like the observed ones: where the holes depend on other columns, they should differ. A
    difference that those columns cannot explain is what to look for.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines import make
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(200, 2))
    >>> rows[rng.random(200) < 0.3, 1] = np.nan
    >>> imputer = make("em", random_state=0).fit(rows)
    >>> figure = plot_distributions(rows, imputer.draw(rows, m=5, random_state=0))
    >>> len(figure.axes)
    1
    """
    check_matplotlib()
    table, tables = read_frame(frame), _tables(completed)
    schema = columns_of(table)
    wanted = named_positions(table, columns)
    compared = [
        _compare(table, tables, schema, p) for p in (range(len(table.names)) if wanted is None else wanted)
        if schema.columns[p].coded
    ]  # fmt: skip
    shown = [one for one in compared if one.n_filled or wanted is not None]
    if not any(one.n_filled for one in compared):
        raise DataError(
            "No cell was missing in frame and is filled in completed, so there is nothing to compare. Give the table "
            "with holes first, then what transform or draw returned for it."
        )
    drawn = widest(range(len(shown)), [one.n_filled for one in shown], MOST_PANELS)
    figure, panels = panel_grid(len(drawn), _title(shown, drawn, len(tables)))
    for axes, place in zip(panels, drawn, strict=True):
        _draw(axes, shown[place])
    add_legend(figure, _handles(len(tables)))
    return figure


def _tables(completed: Any) -> list[Frame]:
    """Read one completed table or several."""
    if isinstance(completed, Iterator):
        completed = list(completed)
    if isinstance(completed, list | tuple) and not completed:
        raise DataError("completed holds no table. Give what transform returned, or one or more draws.")
    listed = isinstance(completed, list | tuple) and all(len(getattr(one, "shape", ())) == 2 for one in completed)
    if listed or (isinstance(completed, np.ndarray) and completed.ndim == 3):
        return [read_frame(one) for one in completed]
    return [read_frame(completed)]


@dataclass(frozen=True)
class _Comparison:
    """A column's observed cells, and its filled cells in each completed table."""

    column: Column
    observed: FloatArray
    filled: list[FloatArray]

    @property
    def n_filled(self) -> int:
        return len(self.filled[0])


def _compare(table: Frame, tables: list[Frame], schema: TableSchema, position: int) -> _Comparison:
    column = schema.columns[position]
    places = [place_in(done, schema, position) for done in tables]
    if (column.base or column.kind) in LEVEL_KINDS:
        column = _with_new_levels(column, [done.arrow(place) for done, place in zip(tables, places, strict=True)])
    codes = table.column_codes(position, column)
    seen = ~np.isnan(codes)
    filled = []
    for done, place in zip(tables, places, strict=True):
        _check_rows(table, done)
        new = done.column_codes(place, column)
        if not np.array_equal(new[seen], codes[seen]):
            raise DataError(
                f"completed differs from frame in observed cells of column {column.name!r}. Give what transform or "
                "draw returned for this very table, with its rows in the same order."
            )
        filled.append(new[~seen & np.isfinite(new)])
    return _Comparison(column, codes[seen & np.isfinite(codes)], filled)


def _check_rows(table: Frame, done: Frame) -> None:
    if done.n_rows != table.n_rows:
        raise DataError(
            f"completed has {done.n_rows:,} rows and frame has {table.n_rows:,}, but they have to be the same rows."
        )


def _with_new_levels(column: Column, arrays: list[pa.Array | None]) -> Column:
    """Add the levels that only filled cells have: the imputer may have learned them from other rows."""
    found: dict[Any, None] = dict.fromkeys(column.levels)
    for array in arrays:
        if array is not None:
            plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
            found |= dict.fromkeys(pc.unique(plain.drop_null()).to_pylist())
    return replace(column, levels=tuple(found))


def _title(shown: list[_Comparison], drawn: list[int], n_tables: int) -> str:
    words = "Observed and filled cells" + (f" of {n_tables} draws" if n_tables > 1 else "")
    words += ", values in the columns' own units"
    left = [str(one.column.name) for place, one in enumerate(shown) if place not in set(drawn)]
    if left:
        names = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
        words += f"\nThe {len(drawn)} of {len(shown)} columns with the most filled cells; not drawn: {names}"
    return words.replace("$", r"\$")


def _draw(axes: Any, one: _Comparison) -> None:
    levels = (one.column.base or one.column.kind) in LEVEL_KINDS
    beyond = _draw_levels(axes, one) if levels else _draw_numbers(axes, one)
    counts = f"{len(one.observed):,} observed, {one.n_filled:,} filled"
    axes.set_title(f"{shorten(one.column.name)}\n{counts}{beyond}", color=INK, fontsize=8)


def _draw_numbers(axes: Any, one: _Comparison) -> str:
    """Draw histograms, and return words on the cells that lie beyond the axis."""
    edges = _edges(one)
    at = axis_values(edges, one.column)
    axes.stairs(_shares(one.observed, edges), at, fill=True, color=OBSERVED, alpha=0.4, lw=0, label="observed")
    if one.n_filled:
        shares = np.stack([_shares(cells, edges) for cells in one.filled])
        for place in thin(len(shares), MOST_LINES) if len(shares) > 1 else ():
            axes.stairs(shares[place], at, color=FILLED, lw=0.5, alpha=0.55, label="draw", baseline=None)
        axes.stairs(shares.mean(axis=0), at, color=FILLED, lw=1.5, label="filled", baseline=None)
    label_axis(axes.xaxis, one.column)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("share of cells, %", fontsize=7)
    beyond = [np.mean((cells < edges[0]) | (cells > edges[-1])) for cells in (one.observed, np.concatenate(one.filled))
              if len(cells)]  # fmt: skip
    return f"\n{' and '.join(map(percent, beyond))} beyond the axis" if max(beyond) >= 0.0005 else ""


def _shares(cells: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the percentage of cells in each bin; of all cells, also those beyond the last."""
    shares: FloatArray = np.histogram(cells, edges)[0] * (100 / max(len(cells), 1))
    return shares


def _edges(one: _Comparison) -> FloatArray:
    """Return edges of common bins: as many as the filled cells of one draw can carry."""
    groups = [cells for cells in (one.observed, np.concatenate(one.filled)) if len(cells)]
    low, high = min(cells.min() for cells in groups), max(cells.max() for cells in groups)
    inner = [np.quantile(cells, (TAIL, 1 - TAIL)) for cells in groups]
    near_low, near_high = min(ends[0] for ends in inner), max(ends[1] for ends in inner)
    if high - low > 1.5 * (near_high - near_low) > 0:
        low, high = near_low, near_high
    n_bins = int(np.clip(2.5 * max(one.n_filled, 1) ** (1 / 3), 10, 30))
    if one.column.kind == "continuous" and high > low:
        return np.linspace(low, high, n_bins + 1)
    step = _step(one.observed)
    width = step * max(1, np.ceil((high - low) / step / n_bins))
    first = low - step / 2
    edges: FloatArray = first + width * np.arange(int((high - first) // width) + 2)
    return edges


def _step(codes: FloatArray) -> float:
    """Return the largest number that all distances between whole codes are multiples of, 1 where there is none.

    Bins whose width is no multiple of it would hold more of them here and fewer there.
    """
    gaps = np.diff(np.unique(codes))
    if not len(gaps) or (gaps != np.floor(gaps)).any() or gaps.max() > 2**53:
        return 1.0
    return float(np.gcd.reduce(gaps.astype(np.int64)))


def _draw_levels(axes: Any, one: _Comparison) -> str:
    levels = list(one.column.levels)
    counts = np.bincount(one.observed.astype(np.int64), minlength=len(levels))
    kept = widest(range(len(levels)), counts.tolist(), MOST_LEVELS if len(levels) <= MOST_LEVELS else MOST_LEVELS - 1)
    names = [_two_lines(shorten(levels[k], 40)) for k in kept]
    joined = len(levels) - len(kept)
    names += [f"{joined} others"] if joined else []
    seen = _level_shares(one.observed, kept, joined)
    places = np.arange(len(names))
    axes.barh(places - 0.2, seen, 0.36, color=OBSERVED, alpha=0.55, label="observed")
    if one.n_filled:
        shares = np.stack([_level_shares(cells, kept, joined) for cells in one.filled])
        axes.barh(places + 0.2, shares.mean(axis=0), 0.36, color=FILLED, alpha=0.55, label="filled")
        if len(shares) > 1:
            axes.hlines(places + 0.2, shares.min(axis=0), shares.max(axis=0), color=FILLED, lw=1.2, label="draws")
    axes.set_yticks(places, names, fontsize=6)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("share of cells, %", fontsize=7)
    return ""


def _two_lines(words: str) -> str:
    return "\n".join(textwrap.wrap(words, 16, max_lines=2, placeholder=" …")) or words


def _level_shares(codes: FloatArray, kept: list[int], joined: int) -> FloatArray:
    """Return the percentage of cells of each level that is kept, and of the others together."""
    counts = np.array([(codes == k).sum() for k in kept], dtype=np.float64)
    if joined:
        counts = np.append(counts, len(codes) - counts.sum())
    return counts * (100 / max(len(codes), 1))


def _handles(n_tables: int) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(color=OBSERVED, alpha=0.5, lw=0, label="observed cells"),
        Line2D([], [], color=FILLED, lw=1.5, label="filled cells" + (", mean of the draws" if n_tables > 1 else "")),
    ]
    if n_tables > 1:
        handles.append(Line2D([], [], color=FILLED, lw=0.5, label="one draw"))
    return handles
