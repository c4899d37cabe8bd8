"""Distributions of the observed and filled cells of a column: common bins, facts of a report, and a plot."""

from __future__ import annotations

__all__ = ["column_facts", "plot_distributions"]

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from mcflow.columns.frames import Frame, read_frame
from mcflow.columns.schema import CATEGORY_KINDS, Column, TableSchema
from mcflow.errors import DataError
from mcflow.evaluation.hidden_cells import place_in
from mcflow.evaluation.wording import MICROSECONDS_PER_DAY, cell_text, clean, listed, name_text, percent_text
from mcflow.report import canvas
from mcflow.report.tables import (
    MAX_DRAWN,
    ReportTables,
    evenly_spaced,
    largest,
    named_positions,
    read_tables,
    schema_of,
)
from mcflow.typing import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TAIL = 0.005  #: Share of the cells at each end that bins may exclude if these cells would stretch the axis.
MAX_CATEGORIES = 8  #: Maximum number of categories, including the combined rest.
MAX_LINES = 20  #: Maximum number of draws with a line of their own.
MIN_FILLED = 5  #: Filled cells that a column needs for its distribution to be drawn in a report.
DIGITS = 3  #: Decimals of the shares in a report.
OBSERVED, FILLED = canvas.BLUE, canvas.ORANGE


@dataclass(frozen=True)
class _Comparison:
    """The observed cells of a column, and its filled cells in each completed table."""

    column: Column  # with the categories that occur only in completed tables
    observed: FloatArray  # (n_observed,) codes
    filled: list[FloatArray]  # (n_filled,) codes for every completed table

    @property
    def n_filled(self) -> int:
        return len(self.filled[0])

    @property
    def has_categories(self) -> bool:
        return (self.column.base or self.column.kind) in CATEGORY_KINDS

    @cached_property
    def categories(self) -> list[int]:
        """The most frequent categories in their order; the others are combined."""
        n_categories = len(self.column.categories)
        counts = np.bincount(self.observed.astype(np.int64), minlength=n_categories)
        n_kept = MAX_CATEGORIES if n_categories <= MAX_CATEGORIES else MAX_CATEGORIES - 1
        return largest(range(n_categories), counts.tolist(), n_kept)

    @property
    def n_others(self) -> int:
        return len(self.column.categories) - len(self.categories)

    @cached_property
    def edges(self) -> FloatArray:
        """The edges of common bins, whose number grows with the number of filled cells, (n_bins + 1,)."""
        groups = [cells for cells in (self.observed, np.concatenate(self.filled)) if len(cells)]
        low, high = min(cells.min() for cells in groups), max(cells.max() for cells in groups)
        inner = [np.quantile(cells, (TAIL, 1 - TAIL)) for cells in groups]
        near_low, near_high = min(ends[0] for ends in inner), max(ends[1] for ends in inner)
        if high - low > 1.5 * (near_high - near_low) > 0:
            low, high = near_low, near_high
        n_bins = int(np.clip(2.5 * max(self.n_filled, 1) ** (1 / 3), 10, 30))
        if self.column.kind == "continuous" and high > low:
            return np.linspace(low, high, n_bins + 1)
        step = _step(self.observed)
        width = step * max(1, np.ceil((high - low) / step / n_bins))
        first = low - step / 2
        return np.asarray(first + width * np.arange(int((high - first) // width) + 2))

    def shares(self, cells: FloatArray) -> FloatArray:
        """Return the percentage of cells in each bin, or in each category and the other ones together."""
        if not self.has_categories:
            counts = np.histogram(cells, self.edges)[0]
        else:
            counts = np.array([(cells == k).sum() for k in self.categories])
            counts = np.append(counts, len(cells) - counts.sum()) if self.n_others else counts
        return np.asarray(counts * (100 / max(len(cells), 1)))

    def filled_shares(self) -> FloatArray:
        """Return the shares in each completed table, (n_tables, n_shares)."""
        return np.stack([self.shares(cells) for cells in self.filled])


def _step(codes: FloatArray) -> float:
    """Return the greatest common divisor of the distances between whole codes, or 1; bins are multiples of it wide."""
    gaps = np.diff(np.unique(codes))
    if not len(gaps) or (gaps != np.floor(gaps)).any() or gaps.max() > 2**53:
        return 1.0
    return float(np.gcd.reduce(gaps.astype(np.int64)))


def _compare_column(table: Frame, tables: list[Frame], schema: TableSchema, position: int) -> _Comparison:
    """Read one column of a table and of its completed versions."""
    column = schema.columns[position]
    places = [place_in(done, schema, position) for done in tables]
    if (column.base or column.kind) in CATEGORY_KINDS:
        column = _with_new_categories(column, [done.arrow(place) for done, place in zip(tables, places, strict=True)])
    codes = table.column_codes(position, column)
    seen = ~np.isnan(codes)
    filled = []
    for done, place in zip(tables, places, strict=True):
        if done.n_rows != table.n_rows:
            raise DataError(
                f"completed has {done.n_rows:,} rows and frame has {table.n_rows:,}, but they have to be the same rows."
            )
        new = done.column_codes(place, column)
        if not np.array_equal(new[seen], codes[seen]):
            raise DataError(
                f"completed differs from frame in observed cells of column {column.name!r}. Give the result of "
                "transform or draw for this table, with its rows in the same order."
            )
        filled.append(new[~seen & np.isfinite(new)])
    return _Comparison(column, codes[seen & np.isfinite(codes)], filled)


def _with_new_categories(column: Column, arrays: list[pa.Array | None]) -> Column:
    """Add categories that only filled cells have: the imputer may have seen them in other rows."""
    found: dict[Any, None] = dict.fromkeys(column.categories)
    for array in arrays:
        if array is not None:
            plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
            found |= dict.fromkeys(pc.unique(plain.drop_null()).to_pylist())
    return replace(column, categories=tuple(found))


def column_facts(tables: ReportTables) -> dict[str, Any]:
    """Compare the observed and filled cells of the columns with the most missing cells."""
    filled = [p for p in tables.missing if tables.schema.columns[p].coded and tables.schema.columns[p].filled]
    if not tables.draws:
        filled = []
    chosen = largest(filled, [int(tables.missing[p].sum()) for p in filled], MAX_DRAWN)
    compared = [_compare_column(tables.sample, list(tables.draws), tables.schema, p) for p in chosen]
    drawn = [_facts(one) for one in compared if one.n_filled >= MIN_FILLED and len(one.observed)]
    few = [name_text(one.column.name) for one in compared if 0 < one.n_filled < MIN_FILLED]
    return {"drawn": drawn, "undrawn": len(filled) - len(chosen), "few": few, "n_draws": len(tables.draws)}


def _facts(one: _Comparison) -> dict[str, Any]:
    seen, new = one.shares(one.observed), one.filled_shares()
    facts: dict[str, Any] = {
        "name": name_text(one.column.name),
        "kind": one.column.base or one.column.kind,
        "observed": len(one.observed),
        "filled": one.n_filled,
        "observed_shares": np.round(seen, DIGITS).tolist(),
        "filled_shares": np.round(new.mean(axis=0), DIGITS).tolist(),
        "lowest_shares": np.round(new.min(axis=0), DIGITS).tolist(),
        "highest_shares": np.round(new.max(axis=0), DIGITS).tolist(),
    }
    if not one.has_categories:
        return facts | _number_facts(one)
    names = [clean(one.column.categories[k], 40) or "(empty text)" for k in one.categories]
    return facts | {
        "axis": "categories",
        "categories": [*names, f"{one.n_others} others"] if one.n_others else names,
        "shift": 0.0,
        # Total variation distance: the share of cells that would have to change their category.
        "distance": round(float(np.abs(seen - new.mean(axis=0)).sum()) / 200, DIGITS),
    }


def _number_facts(one: _Comparison) -> dict[str, Any]:
    column, groups = one.column, (one.observed, np.concatenate(one.filled))
    axis, scale = "number", 1.0
    if (column.base or column.kind) == "datetime":  # durations in days, dates in days since 1970
        axis = "duration" if column.dtype.startswith("duration") else "date"
        scale = column.step / MICROSECONDS_PER_DAY
    seen, new = (np.quantile(cells, (0.25, 0.5, 0.75)) for cells in groups)
    spread = float(seen[2] - seen[0])
    outside = [float(np.mean((cells < one.edges[0]) | (cells > one.edges[-1]))) for cells in groups]
    return {
        "axis": axis,
        "edges": (one.edges * scale).tolist(),
        "observed_quartiles": [cell_text(float(code), column) for code in seen],
        "filled_quartiles": [cell_text(float(code), column) for code in new],
        "outside": [round(share, 5) for share in outside],
        "distance": round(float(stats.ks_2samp(*groups, method="asymp").statistic), DIGITS),
        "shift": round(float(abs(new[1] - seen[1])) / spread if spread else 0.0, DIGITS),
    }


def plot_distributions(frame: Any, completed: Any, columns: Sequence[Any] | None = None) -> Figure:
    """Plot the distributions of the observed and filled cells of each column.

    Parameters
    ----------
    frame : array-like or data frame of shape (n_rows, n_columns)
        The table with missing cells.
    completed : array-like, data frame, or sequence or iterator of them
        The result of `transform` or `draw` for this table.
    columns : list, optional
        Names of the columns to plot; positions for arrays. By default those with filled cells, or the 24 with the most
        filled cells.

    Returns
    -------
    matplotlib.figure.Figure
        One panel per column. Numbers and dates: histograms in common bins, with an area for the observed cells, a bold
        line for the filled cells and a thin line for each draw. Categories: bars of shares, with a line from the
        smallest to the largest share among the draws.

    Raises
    ------
    DataError
        If the tables do not belong together, or nothing was filled.
    ParameterError
        If `columns` contains a name that the table does not have.
    MissingExtraError
        If matplotlib is not installed.

    Notes
    -----
    Both distributions may differ: if the missingness of a cell depends on other columns, they should. Look for
    differences that the other columns cannot explain.

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
    canvas.check_matplotlib()
    table, tables = read_frame(frame), read_tables(completed)
    schema = schema_of(table)
    wanted = named_positions(table, columns)
    positions = [p for p in (range(len(table.names)) if wanted is None else wanted) if schema.columns[p].coded]
    compared = [_compare_column(table, tables, schema, p) for p in positions]
    shown = [one for one in compared if one.n_filled or wanted is not None]
    if not any(one.n_filled for one in compared):
        raise DataError(
            "No cell was missing in frame and is filled in completed, so there is nothing to compare. Give the table "
            "with missing cells first, then the result of transform or draw."
        )
    drawn = largest(range(len(shown)), [one.n_filled for one in shown], canvas.MAX_PANELS)
    figure, panels = canvas.panel_grid(len(drawn), _title(shown, drawn, len(tables)))
    for axes, place in zip(panels, drawn, strict=True):
        one = shown[place]
        note = _draw_categories(axes, one) if one.has_categories else _draw_numbers(axes, one)
        counts = f"{len(one.observed):,} observed, {one.n_filled:,} filled"
        axes.set_title(f"{canvas.shorten(one.column.name)}\n{counts}{note}", fontsize=8)
    several = len(tables) > 1
    keys = [
        canvas.area_key("observed cells", OBSERVED, 0.5),
        canvas.line_key("filled cells, mean of the draws" if several else "filled cells", FILLED, lw=1.5),
    ]
    canvas.add_legend(figure, [*keys, canvas.line_key("one draw", FILLED, lw=0.5)] if several else keys)
    return figure


def _title(shown: list[_Comparison], drawn: list[int], n_tables: int) -> str:
    words = "Observed and filled cells" + (f" of {n_tables} draws" if n_tables > 1 else "")
    words += ", in the units of the columns"
    left = [str(one.column.name) for place, one in enumerate(shown) if place not in set(drawn)]
    if left:
        words += f"\nThe {len(drawn)} of {len(shown)} columns with the most filled cells; not drawn: {listed(left, 5)}"
    return words.replace("$", r"\$")


def _draw_numbers(axes: Any, one: _Comparison) -> str:
    """Draw histograms, and return a note on the share of cells beyond the axis."""
    at = canvas.axis_values(one.edges, one.column)
    axes.stairs(one.shares(one.observed), at, fill=True, color=OBSERVED, alpha=0.4, lw=0, label="observed")
    if one.n_filled:
        shares = one.filled_shares()
        for place in evenly_spaced(len(shares), MAX_LINES) if len(shares) > 1 else ():
            axes.stairs(shares[place], at, color=FILLED, lw=0.5, alpha=0.55, label="draw", baseline=None)
        axes.stairs(shares.mean(axis=0), at, color=FILLED, lw=1.5, label="filled", baseline=None)
    canvas.label_axis(axes.xaxis, one.column)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("share of cells, %", fontsize=7)
    groups = [cells for cells in (one.observed, np.concatenate(one.filled)) if len(cells)]
    beyond = [np.mean((cells < one.edges[0]) | (cells > one.edges[-1])) for cells in groups]
    return f"\n{' and '.join(map(percent_text, beyond))} beyond the axis" if max(beyond) >= 0.0005 else ""


def _draw_categories(axes: Any, one: _Comparison) -> str:
    """Draw bars of shares; return an empty note."""
    short = [canvas.shorten(one.column.categories[k], 40) for k in one.categories]
    names = ["\n".join(textwrap.wrap(name, 16, max_lines=2, placeholder=" …")) or name for name in short]
    names += [f"{one.n_others} others"] if one.n_others else []
    places = np.arange(len(names))
    axes.barh(places - 0.2, one.shares(one.observed), 0.36, color=OBSERVED, alpha=0.55, label="observed")
    if one.n_filled:
        shares = one.filled_shares()
        axes.barh(places + 0.2, shares.mean(axis=0), 0.36, color=FILLED, alpha=0.55, label="filled")
        if len(shares) > 1:
            axes.hlines(places + 0.2, shares.min(axis=0), shares.max(axis=0), color=FILLED, lw=1.2, label="draws")
    axes.set_yticks(places, names, fontsize=6)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("share of cells, %", fontsize=7)
    return ""
