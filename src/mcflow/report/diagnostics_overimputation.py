"""Overimputation: observed cells are hidden one at a time, and what is foretold is held against the truth."""

from __future__ import annotations

__all__ = ["plot_overimputation"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mcflow.config import Interval, check_parameter
from mcflow.data.frames import Frame, read_frame
from mcflow.data.schema import LEVEL_KINDS
from mcflow.errors import DataError
from mcflow.random import seed_from
from mcflow.report.diagnostics_canvas import (
    COVERED,
    INK,
    MISSED,
    MOST_PANELS,
    add_legend,
    axis_values,
    chance_band,
    check_matplotlib,
    label_axis,
    panel_grid,
    percent,
    shorten,
    thin,
)
from mcflow.report.diagnostics_cells import (
    check_share,
    columns_of,
    filled_positions,
    hide_column,
    widest,
)
from mcflow.report.diagnostics_foretold import Target, foretold, level_chances
from mcflow.typing import Array, BoolArray, FloatArray, RandomState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Cells that a panel shows at most, and levels; the words above count all of them.
MOST_CELLS, MOST_LEVELS = 400, 8


def plot_overimputation(
    imputer: Any,
    frame: Any,
    columns: Sequence[Any] | None = None,
    level: float = 0.9,
    *,
    n_cells: int = 200,
    random_state: RandomState = None,
) -> Figure:
    """Hide observed cells and draw what the imputer foretells of them against the truth.

    Parameters
    ----------
    imputer : object
        Fitted. Intervals come from its `interval`, or from quantiles of 40 or more of its draws.
    frame : array-like or data frame of shape (n_rows, n_columns)
        Rows with the columns of the fit; best rows that the fit did not see.
    columns : list, optional
        Names of the columns to draw, positions for arrays. By default those that the imputer fills; of more than 24,
        those with the most missing cells.
    level : float, default=0.9
        Of the intervals, above 0 and below 1.
    n_cells : int, default=200
        Observed cells to hide in each column, at most.
    random_state : int, Generator, RandomState or None, default=None
        Decides which cells, and the draws.

    Returns
    -------
    matplotlib.figure.Figure
        A panel a column. Numbers and dates: the truth from left to right, the estimate and its interval upwards; what
        lies on the diagonal is right. Levels: the probability of the true level, a strip for each level, with a dash
        at the mean and a dotted one at the level's share, which is what a guess would get. Columns whose coverage
        chance does not explain have their title in the second colour.

    Raises
    ------
    DataError
        When no cell can be hidden, or the columns are not those of the fit.
    ParameterError
        When a column is unknown or not filled, a number is out of range, or the imputer has neither intervals nor
        draws.
    MissingExtraError
        When matplotlib is not installed.

    Notes
    -----
    A column is hidden at a time: a copy of the sampled rows without that one column, the other cells as they are [1]_.

    References
    ----------
    .. [1] J. Honaker, G. King and M. Blackwell, "Amelia II: A Program for Missing Data", Journal of Statistical
       Software 45 (7), 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines import make
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(300, 1)) + 0.5 * rng.normal(size=(300, 2))
    >>> imputer = make("em", random_state=0).fit(rows)
    >>> figure = plot_overimputation(imputer, rows, n_cells=50, random_state=0)
    >>> len(figure.axes)
    2
    """
    check_matplotlib()
    check_share("level", level)
    check_parameter("n_cells", n_cells, Interval(int, 1))
    table = read_frame(frame)
    positions = filled_positions(table, imputer, columns)
    drawn = widest(positions, [int(table.missing(p).sum()) for p in positions], MOST_PANELS)
    seeds = np.random.default_rng(seed_from(random_state))
    found = [_examine(imputer, table, p, level=level, n_cells=int(n_cells), seeds=seeds) for p in drawn]
    shown = [one for one in found if one is not None]
    if not shown:
        raise DataError(
            "There is no observed cell to hide in the chosen columns, or only levels of which the imputer gives no "
            "probability. Give rows with observed cells."
        )
    figure, panels = panel_grid(len(shown), _title(level, shown, len(positions)), side=2.4)
    for axes, one in zip(panels, shown, strict=True):
        one.draw(axes)
    add_legend(figure, _handles(shown, level))
    return figure


def _examine(
    imputer: Any, table: Frame, position: int, *, level: float, n_cells: int, seeds: np.random.Generator
) -> _Numbers | _Levels | None:
    """Hide a sample of one column; None where nothing is observed, or no probability is given."""
    schema = columns_of(table, imputer)
    column = schema.columns[position]
    codes = table.column_codes(position, column, "missing")
    seen = np.flatnonzero(np.isfinite(codes))
    if not len(seen):
        return None
    rows = np.sort(seeds.choice(seen, min(n_cells, len(seen)), replace=False))
    target = Target(schema, position, np.arange(len(rows)), codes[rows])
    hidden = hide_column(table, rows, position)
    seed = int(seeds.integers(2**62))
    fill = target.read(imputer.transform(hidden))
    if (column.base or column.kind) in LEVEL_KINDS:
        chances = level_chances(imputer, hidden, target, seed)
        return None if chances is None else _Levels(target, fill, chances, codes[seen])
    (spread,) = foretold(imputer, hidden, [target], [level], seed)
    return _Numbers(target, fill, *spread.interval(level), level)


@dataclass(frozen=True)
class _Numbers:
    """Hidden cells of a column of numbers with their estimates and intervals."""

    target: Target
    fill: FloatArray
    low: FloatArray
    high: FloatArray
    level: float

    @property
    def covered(self) -> BoolArray:
        return (self.low <= self.target.truth) & (self.target.truth <= self.high)

    def draw(self, axes: Any) -> None:
        column, covered = self.target.column, self.covered
        truth, fill, low, high = (
            axis_values(codes, column) for codes in (self.target.truth, self.fill, self.low, self.high)
        )
        some = thin(len(truth), MOST_CELLS)
        for inside, colour, marker in ((True, COVERED, "o"), (False, MISSED, "x")):
            at = some[covered[some] == inside]
            axes.vlines(truth[at], low[at], high[at], color=colour, lw=0.6, alpha=0.45)
            axes.scatter(truth[at], fill[at], s=9, marker=marker, color=colour, lw=0.8 if marker == "x" else 0,
                         zorder=3, label="covered" if inside else "missed")  # fmt: skip
        ends = [truth.min(), truth.max()]
        axes.plot(ends, ends, color=INK, lw=0.9, ls=(0, (4, 2)), label="diagonal", zorder=2)
        label_axis(axes.xaxis, column)
        label_axis(axes.yaxis, column)
        axes.set_xlabel("truth", fontsize=7)
        axes.set_ylabel(f"estimate and {percent(self.level)} interval", fontsize=7)
        lowest, highest = chance_band(len(truth), self.level)
        share = float(covered.mean())
        _entitle(axes, self.target, f"{percent(share)} of {len(truth):,} covered", bool(lowest <= share <= highest))


@dataclass(frozen=True)
class _Levels:
    """Hidden cells of a column of levels with the probability that each true level was given."""

    target: Target
    fill: FloatArray
    chances: FloatArray
    observed: FloatArray

    def draw(self, axes: Any) -> None:
        levels, truth = self.target.column.levels, self.target.truth
        shares = np.bincount(self.observed.astype(np.int64), minlength=len(levels)) / len(self.observed)
        kept = widest(range(len(levels)), shares.tolist(), MOST_LEVELS)
        right = self.fill == truth
        for place, level in enumerate(kept):
            self._strip(axes, place, np.flatnonzero(truth == level), right)
            axes.hlines(shares[level], place - 0.4, place + 0.4, color=INK, lw=1, ls=":", label="share")
        names = [shorten(levels[level], 14) for level in kept]
        axes.set_xticks(range(len(kept)), names, rotation=45 if len(kept) > 2 else 0, fontsize=6,
                        ha="right" if len(kept) > 2 else "center", rotation_mode="anchor")  # fmt: skip
        axes.set_ylim(-0.04, 1.04)
        more = len(levels) - len(kept)
        axes.set_xlabel("true level" + (f", {more} rare ones not drawn" if more else ""), fontsize=7)
        axes.set_ylabel("probability of the true level", fontsize=7)
        _entitle(axes, self.target, f"{percent(float(right.mean()))} of {len(truth):,} likeliest", True)

    def _strip(self, axes: Any, place: int, cells: Array, right: BoolArray) -> None:
        """Draw one level's probabilities side by side, in the order of their height."""
        if not len(cells):
            return
        cells = cells[thin(len(cells), MOST_CELLS // 2)]
        # Multiples of the golden ratio spread points evenly, without chance.
        across = place + 0.6 * (np.arange(len(cells)) * 0.6180339887 % 1 - 0.5)
        for inside, colour, marker in ((True, COVERED, "o"), (False, MISSED, "x")):
            at = right[cells] == inside
            axes.scatter(across[at], self.chances[cells[at]], s=9, marker=marker, color=colour, alpha=0.7,
                         lw=0.8 if marker == "x" else 0, label="covered" if inside else "missed")  # fmt: skip
        axes.hlines(self.chances[cells].mean(), place - 0.4, place + 0.4, color=INK, lw=1.8, label="mean", zorder=3)


def _entitle(axes: Any, target: Target, words: str, usual: bool) -> None:
    axes.set_title(f"{shorten(target.column.name)}\n{words}", fontsize=8, color=INK if usual else MISSED,
                   fontweight="normal" if usual else "bold")  # fmt: skip


def _title(level: float, shown: list[_Numbers | _Levels], n_columns: int) -> str:
    words = "Observed cells, hidden one column at a time: what is foretold against the truth"
    sizes = [len(one.target.truth) for one in shown if isinstance(one, _Numbers)]
    if sizes:
        low, high = (percent(float(end)) for end in chance_band(max(sizes), level))
        words += f"\n{percent(level)} intervals of {max(sizes):,} cells cover {low} to {high} by chance"
    if len(shown) < n_columns:
        words += f"\n{len(shown)} of {n_columns} columns; the others have fewer holes, no observed cell or no answer"
    return words


def _handles(shown: list[_Numbers | _Levels], level: float) -> list[Any]:
    from matplotlib.lines import Line2D

    numbers, levels = (any(isinstance(one, kind) for one in shown) for kind in (_Numbers, _Levels))
    inside = [f"in the {percent(level)} interval"] * numbers + ["right level"] * levels
    dot: dict[str, Any] = {"ls": "", "markersize": 4}
    handles = [
        Line2D([], [], color=COVERED, marker="o", **dot, label=" / ".join(inside)),
        Line2D([], [], color=MISSED, marker="x", **dot, label="not so"),
    ]
    if numbers:
        handles.append(Line2D([], [], color=INK, lw=0.9, ls=(0, (4, 2)), label="estimate = truth"))
    if levels:
        handles.append(Line2D([], [], color=INK, lw=1.8, label="mean probability"))
        handles.append(Line2D([], [], color=INK, lw=1, ls=":", label="share of the level"))
    return handles
