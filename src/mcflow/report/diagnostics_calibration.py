"""Calibration: how often intervals of every level hold the truth, and where in its distribution the truth lies."""

from __future__ import annotations

__all__ = ["plot_calibration"]

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mcflow.data.frames import Frame, read_frame
from mcflow.data.schema import LEVEL_KINDS
from mcflow.errors import DataError, ParameterError
from mcflow.masks import hide
from mcflow.random import seed_from
from mcflow.report.diagnostics_canvas import (
    COVERED,
    INK,
    WARM,
    add_legend,
    chance_band,
    check_matplotlib,
    panel_grid,
    shorten,
)
from mcflow.report.diagnostics_cells import (
    check_share,
    columns_of,
    filled_positions,
    take_rows,
)
from mcflow.report.diagnostics_foretold import Spread, Target, foretold
from mcflow.typing import Array, FloatArray, RandomState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Rows that are looked at, at most: a sample of them tells as much.
MOST_ROWS = 2_000
#: Bins of the histogram, and columns that are named.
N_BINS, MOST_NAMED = 10, len(WARM)
#: Levels that are asked for when the caller names none.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def plot_calibration(
    imputer: Any,
    frame: Any,
    columns: Sequence[Any] | None = None,
    hide_share: float = 0.2,
    *,
    random_state: RandomState = None,
    levels: Sequence[float] | None = None,
) -> Figure:
    r"""Hide observed cells and draw how often intervals of each level hold the truth.

    Parameters
    ----------
    imputer : object
        Fitted. Intervals come from its `interval`, or from quantiles of 40 or more of its draws.
    frame : array-like or data frame of shape (n_rows, n_columns)
        Rows with the columns of the fit; best rows that the fit did not see. Of more than 2,000, a sample.
    columns : list, optional
        Names of the columns to hide cells of, positions for arrays. By default all columns of numbers and dates that
        the imputer fills.
    hide_share : float, default=0.2
        Share of their observed cells to hide, above 0 and below 1.
    random_state : int, Generator, RandomState or None, default=None
        Decides which cells, and the draws.
    levels : list of float, optional
        Levels of the central intervals; 0.1, 0.2, …, 0.9 by default.

    Returns
    -------
    matplotlib.figure.Figure
        Left: the share of truths inside against the level, all cells in bold and each column thin; the columns that
        chance explains least are named. Right: a histogram of the truths' probability integral transforms, which is
        flat where the distributions are right. Bands: where chance alone leaves 95 % of the shares.

    Raises
    ------
    DataError
        When no cell can be hidden, or the columns are not those of the fit.
    ParameterError
        When a column is unknown or not one of numbers, a number is out of range, or the imputer has neither intervals
        nor draws.
    MissingExtraError
        When matplotlib is not installed.

    Notes
    -----
    With the foretold distribution function F of a cell and its truth y, the transform is :math:`F(y)`, uniform when
    F is right [1]_. Where F has a jump at y, or is only known at some quantiles, a place between its values before and
    after is drawn. The bands take cells for independent; those of one row are not quite.

    References
    ----------
    .. [1] A. P. Dawid, "Statistical Theory: The Prequential Approach", JRSS A, 1984.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines import make
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(300, 1)) + 0.5 * rng.normal(size=(300, 3))
    >>> figure = plot_calibration(make("em", random_state=0).fit(rows), rows, random_state=0)
    >>> [axes.get_title() for axes in figure.axes]
    ['Coverage', 'Probability integral transform']
    """
    check_matplotlib()
    asked = _checked_levels(levels)
    share = check_share("hide_share", hide_share)
    table = read_frame(frame)
    positions = _number_positions(table, imputer, columns)
    chance = np.random.default_rng(seed_from(random_state))
    hidden, targets = _hidden(table, imputer, positions, share, chance)
    spreads = foretold(imputer, hidden, targets, asked, int(chance.integers(2**62)))
    inside = [_inside(target, spread, asked) for target, spread in zip(targets, spreads, strict=True)]
    places = np.concatenate(
        [s.pit(t.truth, chance.random(len(t.truth))) for t, s in zip(targets, spreads, strict=True)]
    )
    title = f"Intervals of {len(places):,} observed cells that were hidden, in {len(targets)} columns"
    figure, (left, right) = panel_grid(2, title, side=3.0, width=3.8)
    _draw_coverage(left, targets, inside, asked)
    _draw_transforms(right, places)
    add_legend(figure, _handles())
    return figure


def _checked_levels(levels: Any) -> list[float]:
    if levels is None:
        return list(LEVELS)
    if isinstance(levels, str) or not isinstance(levels, Iterable):
        raise ParameterError(f"levels is {levels!r}, but has to be a list of numbers, such as [0.5, 0.9].")
    found = sorted({check_share("levels", level) for level in levels})
    if not found:
        raise ParameterError("levels is empty. Give some, such as [0.5, 0.9], or leave it out.")
    return found


def _number_positions(table: Frame, imputer: Any, columns: Any) -> list[int]:
    found = filled_positions(table, imputer, columns)
    schema = columns_of(table, imputer)
    levels = [p for p in found if schema.columns[p].kind in LEVEL_KINDS]
    if columns is not None and levels:
        name = schema.columns[levels[0]].name
        raise ParameterError(
            f"columns names {name!r}, whose levels have no intervals. Name columns of numbers; plot_overimputation "
            "shows the probabilities of levels."
        )
    if len(levels) == len(found):
        raise DataError("The imputer fills no column of numbers or dates, and levels have no intervals.")
    return [p for p in found if p not in levels]


def _hidden(
    table: Frame, imputer: Any, positions: list[int], share: float, chance: np.random.Generator
) -> tuple[Any, list[Target]]:
    """Return a sample of the rows with cells hidden, and what was hidden."""
    schema = columns_of(table, imputer)
    n_rows = min(table.n_rows, MOST_ROWS)
    rows = np.sort(chance.choice(table.n_rows, n_rows, replace=False))
    mask = np.zeros((n_rows, len(table.names)), dtype=bool)
    targets = []
    for p in positions:
        codes = table.column_codes(p, schema.columns[p])[rows]
        picked = np.flatnonzero((chance.random(n_rows) < share) & np.isfinite(codes))
        if len(picked):
            mask[picked, p] = True
            targets.append(Target(schema, p, picked, codes[picked]))
    if not targets:
        raise DataError(
            f"No observed cell was hidden: hide_share is {share:g} and there are few observed cells. Give more rows or "
            "a larger share."
        )
    return hide(take_rows(table, rows), mask), targets


def _inside(target: Target, spread: Spread, levels: list[float]) -> Array:
    """Return which truths the intervals hold, of shape (n_levels, n_cells)."""
    ends = [spread.interval(level) for level in levels]
    return np.stack([(low <= target.truth) & (target.truth <= high) for low, high in ends])


def _draw_coverage(axes: Any, targets: list[Target], inside: list[Array], levels: list[float]) -> None:
    nominal = 100 * np.array(levels)
    n_all = sum(len(target.truth) for target in targets)
    n_usual = int(np.median([len(target.truth) for target in targets]))
    grid = np.linspace(0, 1, 101)
    for n_cells, alpha, label in ((n_usual, 0.14, "band of a column"), (n_all, 0.3, "band")):
        low, high = chance_band(n_cells, grid)
        axes.fill_between(100 * grid, 100 * low, 100 * high, color=INK, alpha=alpha, lw=0, label=label)
    axes.plot([0, 100], [0, 100], color=INK, lw=0.8, ls=(0, (4, 2)), label="diagonal")
    named = _least_likely(inside, levels)
    for place, cells in enumerate(inside):
        colour = WARM[named.index(place)] if place in named else COVERED
        name = shorten(targets[place].column.name)
        axes.plot(nominal, 100 * cells.mean(axis=1), color=colour, lw=1.1 if place in named else 0.6,
                  alpha=1 if place in named else 0.55, label=name)  # fmt: skip
    _name_columns(axes, [(shorten(targets[place].column.name), inside[place]) for place in named], levels)
    together = np.concatenate(inside, axis=1).mean(axis=1)
    axes.plot(nominal, 100 * together, color=COVERED, lw=2.4, marker="o", markersize=3.5, label="all cells", zorder=4)
    axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    axes.set_title("Coverage", color=INK, fontsize=9)
    axes.set_xlabel("level of the interval, %")
    axes.set_ylabel("truths inside, %")


def _name_columns(axes: Any, named: list[tuple[str, Array]], levels: list[float]) -> None:
    """Write names in the colours of their lines, in the corner that most of these lines keep away from."""
    above = sum(float(np.mean(cells.mean(axis=1) - levels)) for _, cells in named) > 0
    for place, (name, _) in enumerate(named):
        x, y = (0.97, 0.04 + 0.07 * (len(named) - 1 - place)) if above else (0.03, 0.96 - 0.07 * place)
        axes.text(x, y, name, color=WARM[place], fontsize=8, ha="right" if above else "left",
                  va="bottom" if above else "top", transform=axes.transAxes)  # fmt: skip


def _least_likely(inside: list[Array], levels: list[float]) -> list[int]:
    """Return the columns, at most a few, whose coverage leaves the band around the levels, the farthest first."""
    level = np.array(levels)
    off = []
    for cells in inside:
        low, high = chance_band(cells.shape[1], level)
        share = cells.mean(axis=1)
        outside = ((share < low) | (share > high)).any()
        # In standard errors, so that a column with few cells has to be farther off.
        off.append(outside * float(np.max(np.abs(share - level) * np.sqrt(cells.shape[1] / (level * (1 - level))))))
    worst = sorted(range(len(off)), key=lambda place: -off[place])[:MOST_NAMED]
    return [place for place in worst if off[place] > 0] if len(inside) > 1 else []


def _draw_transforms(axes: Any, places: FloatArray) -> None:
    edges = np.linspace(0, 1, N_BINS + 1)
    shares = np.histogram(places, edges)[0] / len(places)
    low, high = chance_band(len(places), 1 / N_BINS)
    axes.stairs(100 * shares, edges, fill=True, color=COVERED, alpha=0.55, lw=0, label="share")
    axes.axhspan(100 * float(low), 100 * float(high), color=INK, alpha=0.3, lw=0, label="band")
    axes.axhline(100 / N_BINS, color=INK, lw=0.8, ls=(0, (4, 2)), label="flat")
    axes.set_xlim(0, 1)
    axes.set_title("Probability integral transform", color=INK, fontsize=9)
    axes.set_ylim(0, 100 * max(shares.max(), 2 / N_BINS) * 1.05)
    axes.set_xlabel("where the truth lies in its foretold distribution")
    axes.set_ylabel("share of cells, %")


def _handles() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Line2D([], [], color=COVERED, lw=2.4, marker="o", markersize=3.5, label="all cells"),
        Line2D([], [], color=COVERED, lw=0.6, label="one column"),
        Line2D([], [], color=INK, lw=0.8, ls=(0, (4, 2)), label="as stated"),
        Patch(color=INK, alpha=0.3, lw=0, label="95 % by chance"),
        Patch(color=INK, alpha=0.14, lw=0, label="… of one column"),
    ]
