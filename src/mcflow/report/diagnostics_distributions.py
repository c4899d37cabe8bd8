"""Observed against filled cells: the distribution of each column, side by side."""

from __future__ import annotations

__all__ = ["plot_distributions", "read_tables"]

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mcflow.data.frames import Frame, read_frame
from mcflow.errors import DataError
from mcflow.report.compared import (
    Comparison,
    bin_shares,
    common_edges,
    common_levels,
    compare_column,
    level_shares,
)
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
from mcflow.report.diagnostics_cells import columns_of, named_positions, widest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OBSERVED, FILLED = COVERED, MISSED

#: Draws with a line of their own, at most.
MOST_LINES = 20


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
    table, tables = read_frame(frame), read_tables(completed)
    schema = columns_of(table)
    wanted = named_positions(table, columns)
    compared = [
        compare_column(table, tables, schema, p) for p in (range(len(table.names)) if wanted is None else wanted)
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


def read_tables(completed: Any) -> list[Frame]:
    """Read one completed table or several."""
    if isinstance(completed, Iterator):
        completed = list(completed)
    if isinstance(completed, list | tuple) and not completed:
        raise DataError("completed holds no table. Give what transform returned, or one or more draws.")
    listed = isinstance(completed, list | tuple) and all(len(getattr(one, "shape", ())) == 2 for one in completed)
    if listed or (isinstance(completed, np.ndarray) and completed.ndim == 3):
        return [read_frame(one) for one in completed]
    return [read_frame(completed)]


def _title(shown: list[Comparison], drawn: list[int], n_tables: int) -> str:
    words = "Observed and filled cells" + (f" of {n_tables} draws" if n_tables > 1 else "")
    words += ", values in the columns' own units"
    left = [str(one.column.name) for place, one in enumerate(shown) if place not in set(drawn)]
    if left:
        names = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
        words += f"\nThe {len(drawn)} of {len(shown)} columns with the most filled cells; not drawn: {names}"
    return words.replace("$", r"\$")


def _draw(axes: Any, one: Comparison) -> None:
    beyond = _draw_levels(axes, one) if one.has_levels else _draw_numbers(axes, one)
    counts = f"{len(one.observed):,} observed, {one.n_filled:,} filled"
    axes.set_title(f"{shorten(one.column.name)}\n{counts}{beyond}", color=INK, fontsize=8)


def _draw_numbers(axes: Any, one: Comparison) -> str:
    """Draw histograms, and return words on the cells that lie beyond the axis."""
    edges = common_edges(one)
    at = axis_values(edges, one.column)
    axes.stairs(bin_shares(one.observed, edges), at, fill=True, color=OBSERVED, alpha=0.4, lw=0, label="observed")
    if one.n_filled:
        shares = np.stack([bin_shares(cells, edges) for cells in one.filled])
        for place in thin(len(shares), MOST_LINES) if len(shares) > 1 else ():
            axes.stairs(shares[place], at, color=FILLED, lw=0.5, alpha=0.55, label="draw", baseline=None)
        axes.stairs(shares.mean(axis=0), at, color=FILLED, lw=1.5, label="filled", baseline=None)
    label_axis(axes.xaxis, one.column)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("share of cells, %", fontsize=7)
    beyond = [np.mean((cells < edges[0]) | (cells > edges[-1])) for cells in (one.observed, np.concatenate(one.filled))
              if len(cells)]  # fmt: skip
    return f"\n{' and '.join(map(percent, beyond))} beyond the axis" if max(beyond) >= 0.0005 else ""


def _draw_levels(axes: Any, one: Comparison) -> str:
    kept, joined = common_levels(one)
    levels = one.column.levels
    names = [_two_lines(shorten(levels[k], 40)) for k in kept]
    names += [f"{joined} others"] if joined else []
    seen = level_shares(one.observed, kept, joined)
    places = np.arange(len(names))
    axes.barh(places - 0.2, seen, 0.36, color=OBSERVED, alpha=0.55, label="observed")
    if one.n_filled:
        shares = np.stack([level_shares(cells, kept, joined) for cells in one.filled])
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
