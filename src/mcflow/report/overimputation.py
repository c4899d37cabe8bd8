"""Overimputation: hide observed cells one column at a time, and plot predictions against the true values."""

from __future__ import annotations

__all__ = ["plot_overimputation"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mcflow.columns.frames import Frame, read_frame, take_rows
from mcflow.columns.schema import CATEGORY_KINDS
from mcflow.config import Interval, check_parameter
from mcflow.errors import DataError
from mcflow.evaluation.wording import percent_text
from mcflow.missingness.hiding import hide
from mcflow.random import seed_from
from mcflow.report import canvas
from mcflow.report.tables import evenly_spaced, largest, schema_of
from mcflow.report.validation_predictions import (
    HiddenCells,
    binomial_band,
    check_share,
    filled_positions,
    predict_quantiles,
    true_category_probabilities,
)
from mcflow.typing import Array, BoolArray, FloatArray, RandomState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Maximum number of cells drawn in a panel; titles count all of them.
MAX_CELLS = 400
#: Maximum number of categories drawn in a panel.
MAX_CATEGORIES = 8


def plot_overimputation(
    imputer: Any,
    frame: Any,
    columns: Sequence[Any] | None = None,
    level: float = 0.9,
    *,
    n_cells: int = 200,
    random_state: RandomState = None,
) -> Figure:
    """Hide observed cells and plot the predictions of an imputer against the true values.

    Parameters
    ----------
    imputer : object
        Fitted imputer. Intervals come from its `interval`, or from quantiles of at least 40 draws.
    frame : array-like or data frame of shape (n_rows, n_columns)
        Rows with the columns of the fit, preferably rows that the fit did not see.
    columns : list, optional
        Names of the columns to plot; positions for arrays. By default all that the imputer fills, or the 24 with the
        most missing cells.
    level : float, default=0.9
        Level of the intervals, above 0 and below 1.
    n_cells : int, default=200
        Maximum number of observed cells to hide in each column.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the hidden cells and the draws.

    Returns
    -------
    matplotlib.figure.Figure
        One panel per column. Numbers and dates: true values on the horizontal axis, estimates and intervals on the
        vertical axis; correct estimates lie on the diagonal. Categories: the predicted probability of the true
        category in a strip for each category, with a dash at the mean and a dotted line at the share of the category,
        which is what a guess would reach. Titles in the second colour mark a coverage outside its 95 % band.

    Raises
    ------
    DataError
        If no cell can be hidden, or the columns are not those of the fit.
    ParameterError
        If a column is unknown or not filled, a number is out of range, or the imputer has neither intervals nor draws.
    MissingExtraError
        If matplotlib is not installed.

    Notes
    -----
    One column is hidden at a time, in a copy of the sampled rows whose other cells are unchanged [1]_.

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
    canvas.check_matplotlib()
    check_share("level", level)
    check_parameter("n_cells", n_cells, Interval(int, 1))
    table = read_frame(frame)
    positions = filled_positions(table, imputer, columns)
    drawn = largest(positions, [int(table.missing(p).sum()) for p in positions], canvas.MAX_PANELS)
    rng = np.random.default_rng(seed_from(random_state))
    found = [_predict(imputer, table, p, level=level, n_cells=int(n_cells), rng=rng) for p in drawn]
    shown = [one for one in found if one is not None]
    if not shown:
        raise DataError(
            "There is no observed cell to hide in the chosen columns, or they are categorical and the imputer predicts "
            "no probabilities. Give rows with observed cells."
        )
    figure, panels = canvas.panel_grid(len(shown), _title(level, shown, len(positions)), side=2.4)
    for axes, one in zip(panels, shown, strict=True):
        one.draw(axes)
    canvas.add_legend(figure, _legend_keys(shown, level))
    return figure


def _predict(
    imputer: Any, table: Frame, position: int, *, level: float, n_cells: int, rng: np.random.Generator
) -> _Numbers | _Categories | None:
    """Hide a sample of one column and predict it; None without observed cells or predicted probabilities."""
    schema = schema_of(table, imputer)
    column = schema.columns[position]
    codes = table.column_codes(position, column, "missing")
    observed = np.flatnonzero(np.isfinite(codes))
    if not len(observed):
        return None
    rows = np.sort(rng.choice(observed, min(n_cells, len(observed)), replace=False))
    hidden = HiddenCells(schema, position, np.arange(len(rows)), codes[rows])
    mask = np.zeros((len(rows), len(table.names)), dtype=bool)
    mask[:, position] = True
    masked = hide(take_rows(table, rows), mask)
    seed = int(rng.integers(2**62))
    fill = hidden.read(imputer.transform(masked))
    if (column.base or column.kind) in CATEGORY_KINDS:
        probabilities = true_category_probabilities(imputer, masked, hidden, seed)
        return None if probabilities is None else _Categories(hidden, fill, probabilities, codes[observed])
    (quantiles,) = predict_quantiles(imputer, masked, [hidden], [level], seed)
    return _Numbers(hidden, fill, *quantiles.interval(level), level)


@dataclass(frozen=True)
class _Numbers:
    """Hidden cells of a numeric column with their estimates and intervals, all arrays (n_cells,)."""

    hidden: HiddenCells
    fill: FloatArray
    low: FloatArray
    high: FloatArray
    level: float

    @property
    def covered(self) -> BoolArray:
        return (self.low <= self.hidden.truth) & (self.hidden.truth <= self.high)

    def draw(self, axes: Any) -> None:
        column, covered = self.hidden.column, self.covered
        truth, fill, low, high = (
            canvas.axis_values(codes, column) for codes in (self.hidden.truth, self.fill, self.low, self.high)
        )
        some = evenly_spaced(len(truth), MAX_CELLS)
        for inside, colour, marker in ((True, canvas.BLUE, "o"), (False, canvas.ORANGE, "x")):
            at = some[covered[some] == inside]
            axes.vlines(truth[at], low[at], high[at], color=colour, lw=0.6, alpha=0.45)
            axes.scatter(truth[at], fill[at], s=9, marker=marker, color=colour, lw=0.8 if marker == "x" else 0,
                         zorder=3, label="covered" if inside else "missed")  # fmt: skip
        ends = [truth.min(), truth.max()]
        axes.plot(ends, ends, color=canvas.INK, lw=0.9, ls=canvas.DASHED, label="diagonal", zorder=2)
        canvas.label_axis(axes.xaxis, column)
        canvas.label_axis(axes.yaxis, column)
        axes.set_xlabel("truth", fontsize=7)
        axes.set_ylabel(f"estimate and {percent_text(self.level)} interval", fontsize=7)
        lowest, highest = binomial_band(len(truth), self.level)
        share = float(covered.mean())
        usual = bool(lowest <= share <= highest)
        _set_title(axes, self.hidden, f"{percent_text(share)} of {len(truth):,} covered", usual)


@dataclass(frozen=True)
class _Categories:
    """Hidden cells of a categorical column with the predicted probability of each true category."""

    hidden: HiddenCells
    fill: FloatArray  # (n_cells,)
    probabilities: FloatArray  # (n_cells,)
    observed: FloatArray  # (n_observed,) codes of the whole column

    def draw(self, axes: Any) -> None:
        categories, truth = self.hidden.column.categories, self.hidden.truth
        shares = np.bincount(self.observed.astype(np.int64), minlength=len(categories)) / len(self.observed)
        kept = largest(range(len(categories)), shares.tolist(), MAX_CATEGORIES)
        right = self.fill == truth
        for place, category in enumerate(kept):
            self._strip(axes, place, np.flatnonzero(truth == category), right)
            axes.hlines(shares[category], place - 0.4, place + 0.4, color=canvas.INK, lw=1, ls=":", label="share")
        names = [canvas.shorten(categories[k], 14) for k in kept]
        axes.set_xticks(range(len(kept)), names, rotation=45 if len(kept) > 2 else 0, fontsize=6,
                        ha="right" if len(kept) > 2 else "center", rotation_mode="anchor")  # fmt: skip
        axes.set_ylim(-0.04, 1.04)
        more = len(categories) - len(kept)
        axes.set_xlabel("true category" + (f", {more} rare ones not drawn" if more else ""), fontsize=7)
        axes.set_ylabel("probability of the true category", fontsize=7)
        _set_title(axes, self.hidden, f"{percent_text(float(right.mean()))} of {len(truth):,} correct", True)

    def _strip(self, axes: Any, place: int, cells: Array, right: BoolArray) -> None:
        """Draw the probabilities of one category side by side."""
        if not len(cells):
            return
        cells = cells[evenly_spaced(len(cells), MAX_CELLS // 2)]
        # Multiples of the golden ratio spread points evenly without randomness.
        across = place + 0.6 * (np.arange(len(cells)) * 0.6180339887 % 1 - 0.5)
        for inside, colour, marker in ((True, canvas.BLUE, "o"), (False, canvas.ORANGE, "x")):
            at = right[cells] == inside
            axes.scatter(across[at], self.probabilities[cells[at]], s=9, marker=marker, color=colour, alpha=0.7,
                         lw=0.8 if marker == "x" else 0, label="covered" if inside else "missed")  # fmt: skip
        mean = self.probabilities[cells].mean()
        axes.hlines(mean, place - 0.4, place + 0.4, color=canvas.INK, lw=1.8, label="mean", zorder=3)


def _set_title(axes: Any, hidden: HiddenCells, words: str, usual: bool) -> None:
    style = {"color": canvas.INK} if usual else {"color": canvas.ORANGE, "fontweight": "bold"}
    axes.set_title(f"{canvas.shorten(hidden.column.name)}\n{words}", fontsize=8, **style)


def _title(level: float, shown: list[_Numbers | _Categories], n_columns: int) -> str:
    words = "Observed cells, hidden one column at a time: predictions against true values"
    sizes = [len(one.hidden.truth) for one in shown if isinstance(one, _Numbers)]
    if sizes:
        low, high = (percent_text(float(end)) for end in binomial_band(max(sizes), level))
        words += f"\nExpected coverage of {percent_text(level)} intervals with {max(sizes):,} cells: {low} to {high}"
    if len(shown) < n_columns:
        words += f"\n{len(shown)} of {n_columns} columns; the others have fewer missing cells or cannot be predicted"
    return words


def _legend_keys(shown: list[_Numbers | _Categories], level: float) -> list[Any]:
    numbers, categories = (any(isinstance(one, kind) for one in shown) for kind in (_Numbers, _Categories))
    right = [f"inside the {percent_text(level)} interval"] * numbers + ["correct category"] * categories
    wrong = ["outside"] * numbers + ["wrong"] * categories
    dot: dict[str, Any] = {"ls": "", "markersize": 4}
    keys = [
        canvas.line_key(" / ".join(right), canvas.BLUE, marker="o", **dot),
        canvas.line_key(" / ".join(wrong), canvas.ORANGE, marker="x", **dot),
    ]
    if numbers:
        keys.append(canvas.line_key("estimate = truth", canvas.INK, lw=0.9, ls=canvas.DASHED))
    if categories:
        keys.append(canvas.line_key("mean probability", canvas.INK, lw=1.8))
        keys.append(canvas.line_key("share of the category", canvas.INK, lw=1, ls=":"))
    return keys
