"""Diagnostic plots that hide observed cells and compare predictions with them: overimputation and calibration."""

from __future__ import annotations

__all__ = ["PredictiveQuantiles", "check_share", "plot_calibration", "plot_overimputation"]

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mcflow.columns.frames import Frame, read_frame, take_rows
from mcflow.columns.schema import CATEGORY_KINDS, Column
from mcflow.config import Interval, check_parameter
from mcflow.errors import DataError, ParameterError
from mcflow.evaluation.hidden_cells import HiddenCells
from mcflow.evaluation.wording import percent_text
from mcflow.missingness.hiding import hide
from mcflow.random import seed_from
from mcflow.report import canvas
from mcflow.report.tables import binomial_band, evenly_spaced, largest, named_positions, probabilities_in, schema_of
from mcflow.typing import Array, BoolArray, FloatArray, RandomState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_DRAWS = 40  #: Draws that estimate a predictive distribution if an imputer has no intervals or probabilities.
MAX_DRAWS = 400  #: Maximum number of draws for intervals of a high level.
MAX_CELLS = 400  #: Maximum number of cells drawn in a panel; titles count all of them.
MAX_CATEGORIES = 8  #: Maximum number of categories drawn in a panel.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  #: Default levels of `plot_calibration`.
MAX_ROWS = 2_000  #: Maximum number of rows of `plot_calibration`.
N_BINS = 10  #: Bins of the histogram of probability integral transforms.


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
    positions = _filled_positions(table, imputer, columns)
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
    hidden = HiddenCells(schema, np.arange(len(rows)), np.full(len(rows), position), codes[rows])
    masked = _masked(table, rows, hidden)
    seed = int(rng.integers(2**62))
    fill = hidden.read(imputer.transform(masked))
    if (column.base or column.kind) in CATEGORY_KINDS:
        found = _true_category_probabilities(imputer, masked, hidden, column, seed)
        return None if found is None else _Categories(column, hidden.truth, fill, found, codes[observed])
    quantiles = _predict_quantiles(imputer, masked, hidden, [level], seed)
    return _Numbers(column, hidden.truth, fill, *quantiles.interval(level), level)


@dataclass(frozen=True)
class _Numbers:
    """Hidden cells of a numeric column with their estimates and intervals, all arrays (n_cells,)."""

    column: Column
    truth: FloatArray
    fill: FloatArray
    low: FloatArray
    high: FloatArray
    level: float

    def draw(self, axes: Any) -> None:
        column, codes = self.column, (self.truth, self.fill, self.low, self.high)
        covered = (self.low <= self.truth) & (self.truth <= self.high)
        truth, fill, low, high = (canvas.axis_values(one, column) for one in codes)
        some = evenly_spaced(len(truth), MAX_CELLS)
        for inside, colour in ((True, canvas.BLUE), (False, canvas.ORANGE)):
            at = some[covered[some] == inside]
            axes.vlines(truth[at], low[at], high[at], color=colour, lw=0.6, alpha=0.45)
        _draw_points(axes, truth[some], fill[some], covered[some], zorder=3)
        ends = [truth.min(), truth.max()]
        axes.plot(ends, ends, color=canvas.INK, lw=0.9, ls=canvas.DASHED, label="diagonal", zorder=2)
        canvas.label_axis(axes.xaxis, column)
        canvas.label_axis(axes.yaxis, column)
        axes.set_xlabel("truth", fontsize=7)
        axes.set_ylabel(f"estimate and {percent_text(self.level)} interval", fontsize=7)
        lowest, highest = binomial_band(len(truth), self.level)
        share = float(covered.mean())
        usual = lowest <= share <= highest
        style = {"color": canvas.INK} if usual else {"color": canvas.ORANGE, "fontweight": "bold"}
        words = f"{percent_text(share)} of {len(truth):,} covered"
        axes.set_title(f"{canvas.shorten(column.name)}\n{words}", fontsize=8, **style)


@dataclass(frozen=True)
class _Categories:
    """Hidden cells of a categorical column with the predicted probability of each true category."""

    column: Column
    truth: FloatArray  # (n_cells,)
    fill: FloatArray  # (n_cells,)
    probabilities: FloatArray  # (n_cells,)
    observed: FloatArray  # (n_observed,) codes of the whole column

    def draw(self, axes: Any) -> None:
        categories, truth = self.column.categories, self.truth
        shares = np.bincount(self.observed.astype(np.int64), minlength=len(categories)) / len(self.observed)
        kept = largest(range(len(categories)), shares.tolist(), MAX_CATEGORIES)
        right = self.fill == truth
        for place, category in enumerate(kept):
            if (truth == category).any():
                self._strip(axes, place, np.flatnonzero(truth == category), right)
            axes.hlines(shares[category], place - 0.4, place + 0.4, color=canvas.INK, lw=1, ls=":", label="share")
        names = [canvas.shorten(categories[k], 14) for k in kept]
        axes.set_xticks(range(len(kept)), names, rotation=45 if len(kept) > 2 else 0, fontsize=6,
                        ha="right" if len(kept) > 2 else "center", rotation_mode="anchor")  # fmt: skip
        axes.set_ylim(-0.04, 1.04)
        more = len(categories) - len(kept)
        axes.set_xlabel("true category" + (f", {more} rare ones not drawn" if more else ""), fontsize=7)
        axes.set_ylabel("probability of the true category", fontsize=7)
        words = f"{percent_text(float(right.mean()))} of {len(truth):,} correct"
        axes.set_title(f"{canvas.shorten(self.column.name)}\n{words}", fontsize=8)

    def _strip(self, axes: Any, place: int, cells: Array, right: BoolArray) -> None:
        cells = cells[evenly_spaced(len(cells), MAX_CELLS // 2)]
        # Multiples of the golden ratio spread points evenly without randomness.
        across = place + 0.6 * (np.arange(len(cells)) * 0.6180339887 % 1 - 0.5)
        _draw_points(axes, across, self.probabilities[cells], right[cells], alpha=0.7)
        mean = self.probabilities[cells].mean()
        axes.hlines(mean, place - 0.4, place + 0.4, color=canvas.INK, lw=1.8, label="mean", zorder=3)


def _draw_points(axes: Any, x: Array, y: Array, right: BoolArray, **style: Any) -> None:
    """Draw a dot for each correct prediction and a cross for each wrong one; all arrays (n_cells,)."""
    axes.scatter(x[right], y[right], s=9, marker="o", color=canvas.BLUE, lw=0, label="covered", **style)
    axes.scatter(x[~right], y[~right], s=9, marker="x", color=canvas.ORANGE, lw=0.8, label="missed", **style)


def _title(level: float, shown: list[_Numbers | _Categories], n_columns: int) -> str:
    words = "Observed cells, hidden one column at a time: predictions against true values"
    sizes = [len(one.truth) for one in shown if isinstance(one, _Numbers)]
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


def plot_calibration(
    imputer: Any,
    frame: Any,
    columns: Sequence[Any] | None = None,
    hide_share: float = 0.2,
    *,
    random_state: RandomState = None,
    levels: Sequence[float] | None = None,
) -> Figure:
    r"""Hide observed cells and plot the coverage of intervals against their level.

    Parameters
    ----------
    imputer : object
        Fitted imputer. Intervals come from its `interval`, or from quantiles of at least 40 draws.
    frame : array-like or data frame of shape (n_rows, n_columns)
        Rows with the columns of the fit, preferably rows that the fit did not see. At most 2,000 rows are sampled.
    columns : list, optional
        Names of the columns in which to hide cells; positions for arrays. By default all columns of numbers and dates
        that the imputer fills.
    hide_share : float, default=0.2
        Share of their observed cells to hide, above 0 and below 1.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the hidden cells and the draws.
    levels : list of float, optional
        Levels of the central intervals; 0.1, 0.2, …, 0.9 by default.

    Returns
    -------
    matplotlib.figure.Figure
        Left: coverage against the level, with a bold line for all cells and a thin line for each column. Columns
        outside their band are named. Right: a histogram of the probability integral transforms, which is flat if the
        predictive distributions are correct. Bands contain 95 % of the shares that a correct imputer would reach.

    Raises
    ------
    DataError
        If no cell can be hidden, or the columns are not those of the fit.
    ParameterError
        If a column is unknown or categorical, a number is out of range, or the imputer has neither intervals nor draws.
    MissingExtraError
        If matplotlib is not installed.

    Notes
    -----
    With the predictive distribution function F of a cell and its true value y, the transform is :math:`F(y)`, which is
    uniform if F is correct [1]_. If F jumps at y, or is known only at some quantiles, a uniform position between its
    values below and above y is drawn. The bands assume independent cells; cells of one row are only approximately so.

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
    canvas.check_matplotlib()
    asked = _checked_levels(levels)
    share = check_share("hide_share", hide_share)
    table = read_frame(frame)
    positions = _number_positions(table, imputer, columns)
    rng = np.random.default_rng(seed_from(random_state))
    masked, hidden = _hide(table, imputer, positions, share, rng)
    quantiles = _predict_quantiles(imputer, masked, hidden, asked, int(rng.integers(2**62)))
    truth, ends = hidden.truth, [quantiles.interval(level) for level in asked]
    covered = np.stack([(low <= truth) & (truth <= high) for low, high in ends])  # (n_levels, n_cells)
    columns_hidden = dict.fromkeys(hidden.positions.tolist())
    by_column = {hidden.schema.columns[p].name: covered[:, hidden.positions == p] for p in columns_hidden}
    title = f"Intervals of {len(truth):,} observed cells that were hidden, in {len(by_column)} columns"
    figure, (left, right) = canvas.panel_grid(2, title, side=3.0, width=3.8)
    _draw_coverage(left, by_column, np.array(asked))
    _draw_transforms(right, quantiles.pit(truth, rng.random(len(truth))))
    keys = [
        canvas.line_key("all cells", canvas.BLUE, lw=2.4, marker="o", markersize=3.5),
        canvas.line_key("one column", canvas.BLUE, lw=0.6),
        canvas.line_key("nominal", canvas.INK, lw=0.8, ls=canvas.DASHED),
        canvas.area_key("95 % band of all cells", canvas.INK, 0.3),
        canvas.area_key("… of one column", canvas.INK, 0.14),
    ]
    canvas.add_legend(figure, keys)
    return figure


def _checked_levels(levels: Any) -> list[float]:
    if levels is None:
        return list(LEVELS)
    if isinstance(levels, str) or not isinstance(levels, Iterable):
        raise ParameterError(f"levels is {levels!r}, but has to be a list of numbers, such as [0.5, 0.9].")
    found = sorted({check_share("levels", level) for level in levels})
    if not found:
        raise ParameterError("levels is empty. Give at least one, such as [0.5, 0.9], or omit it.")
    return found


def _number_positions(table: Frame, imputer: Any, columns: Any) -> list[int]:
    found = _filled_positions(table, imputer, columns)
    schema = schema_of(table, imputer)
    categorical = [p for p in found if schema.columns[p].kind in CATEGORY_KINDS]
    if columns is not None and categorical:
        name = schema.columns[categorical[0]].name
        raise ParameterError(
            f"columns names {name!r}, whose categories have no intervals. Name columns of numbers; plot_overimputation "
            "shows the probabilities of categories."
        )
    if len(categorical) == len(found):
        raise DataError("The imputer fills no column of numbers or dates, and categories have no intervals.")
    return [p for p in found if p not in categorical]


def _hide(
    table: Frame, imputer: Any, positions: list[int], share: float, rng: np.random.Generator
) -> tuple[Any, HiddenCells]:
    """Hide observed cells in a sample of the rows; return the masked rows and the hidden cells."""
    schema = schema_of(table, imputer)
    n_rows = min(table.n_rows, MAX_ROWS)
    rows = np.sort(rng.choice(table.n_rows, n_rows, replace=False))
    codes = [table.column_codes(p, schema.columns[p])[rows] for p in positions]
    picked = [np.flatnonzero((rng.random(n_rows) < share) & np.isfinite(column)) for column in codes]
    truth = np.concatenate([column[here] for column, here in zip(codes, picked, strict=True)])
    if not len(truth):
        raise DataError(
            f"No observed cell was hidden: hide_share is {share:g} and there are few observed cells. Give more rows or "
            "a larger share."
        )
    hidden = HiddenCells(schema, np.concatenate(picked), np.repeat(positions, [len(here) for here in picked]), truth)
    return _masked(table, rows, hidden), hidden


def _draw_coverage(axes: Any, by_column: dict[Any, Array], levels: FloatArray) -> None:
    """Draw the coverage of all cells and of each column, given by name as arrays of shape (n_levels, n_cells)."""
    names, covered = [canvas.shorten(name) for name in by_column], list(by_column.values())
    sizes = [cells.shape[1] for cells in covered]
    grid = np.linspace(0, 1, 101)
    for n_cells, alpha, label in ((int(np.median(sizes)), 0.14, "band of a column"), (sum(sizes), 0.3, "band")):
        low, high = binomial_band(n_cells, grid)
        axes.fill_between(100 * grid, 100 * low, 100 * high, color=canvas.INK, alpha=alpha, lw=0, label=label)
    axes.plot([0, 100], [0, 100], color=canvas.INK, lw=0.8, ls=canvas.DASHED, label="diagonal")
    named = _outside_band(covered, levels)
    for place, cells in enumerate(covered):
        style = {"color": canvas.BLUE, "lw": 0.6, "alpha": 0.55}
        if place in named:
            style = {"color": canvas.ACCENTS[named.index(place)], "lw": 1.1}
        axes.plot(100 * levels, 100 * cells.mean(axis=1), label=names[place], **style)
    above = sum(float(np.mean(covered[place].mean(axis=1) - levels)) for place in named) > 0
    for k, place in enumerate(named):  # in the corner that most of these lines avoid
        x, y = (0.97, 0.04 + 0.07 * (len(named) - 1 - k)) if above else (0.03, 0.96 - 0.07 * k)
        axes.text(x, y, names[place], color=canvas.ACCENTS[k], fontsize=8, ha="right" if above else "left",
                  va="bottom" if above else "top", transform=axes.transAxes)  # fmt: skip
    overall = np.concatenate(covered, axis=1).mean(axis=1)
    axes.plot(
        100 * levels, 100 * overall, color=canvas.BLUE, lw=2.4, marker="o", markersize=3.5, label="all cells", zorder=4
    )
    axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    axes.set_title("Coverage", fontsize=9)
    axes.set_xlabel("level of the interval, %")
    axes.set_ylabel("hidden cells covered, %")


def _outside_band(covered: list[Array], levels: FloatArray) -> list[int]:
    """Return at most three columns whose coverage leaves its band, the farthest first, in standard errors."""
    distances = []
    for cells in covered:
        low, high = binomial_band(cells.shape[1], levels)
        share = cells.mean(axis=1)
        outside = ((share < low) | (share > high)).any()
        errors = np.abs(share - levels) * np.sqrt(cells.shape[1] / (levels * (1 - levels)))
        distances.append(outside * float(np.max(errors)))
    worst = sorted(range(len(distances)), key=lambda place: -distances[place])[: len(canvas.ACCENTS)]
    return [place for place in worst if distances[place] > 0] if len(covered) > 1 else []


def _draw_transforms(axes: Any, transforms: FloatArray) -> None:
    edges = np.linspace(0, 1, N_BINS + 1)
    shares = np.histogram(transforms, edges)[0] / len(transforms)
    low, high = binomial_band(len(transforms), 1 / N_BINS)
    axes.stairs(100 * shares, edges, fill=True, color=canvas.BLUE, alpha=0.55, lw=0, label="share")
    axes.axhspan(100 * float(low), 100 * float(high), color=canvas.INK, alpha=0.3, lw=0, label="band")
    axes.axhline(100 / N_BINS, color=canvas.INK, lw=0.8, ls=canvas.DASHED, label="flat")
    axes.set_xlim(0, 1)
    axes.set_title("Probability integral transform", fontsize=9)
    axes.set_ylim(0, 100 * max(shares.max(), 2 / N_BINS) * 1.05)
    axes.set_xlabel("predicted probability of a smaller value")
    axes.set_ylabel("share of cells, %")


def check_share(name: str, value: Any) -> float:
    """Return a number above 0 and below 1, or raise `ParameterError`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < 1:
        raise ParameterError(f"{name} is {value!r}, but has to be a number above 0 and below 1.")
    return float(value)


def _filled_positions(table: Frame, imputer: Any, columns: Any = None) -> list[int]:
    """Return the positions of the columns that an imputer fills by a model: all, or those in `columns`."""
    if not hasattr(imputer, "transform"):
        raise ParameterError(f"imputer is {imputer!r}, but has to be a fitted imputer, such as MCFlowImputer.")
    if hasattr(type(imputer), "__sklearn_tags__"):
        check_is_fitted(imputer)
    schema = schema_of(table, imputer)
    usable = [p for p, column in enumerate(schema.columns) if column.in_model and column.filled]
    wanted = named_positions(table, columns)
    for p in wanted or ():
        if p not in usable:
            column = schema.columns[p]
            raise ParameterError(
                f"columns names {column.name!r}, which the imputer does not fill by a model: it is of kind "
                f"{column.kind} and role {column.role}. Name other columns."
            )
    if not usable:
        raise DataError("The imputer fills no column by a model, so there is nothing to plot.")
    return usable if wanted is None else wanted


def _masked(table: Frame, rows: Array, hidden: HiddenCells) -> Any:
    mask = np.zeros((len(rows), len(table.names)), dtype=bool)
    mask[hidden.rows, hidden.positions] = True
    return hide(take_rows(table, rows), mask)


@dataclass(frozen=True)
class PredictiveQuantiles:
    """Quantiles of the predictive distributions of cells."""

    probabilities: FloatArray  # (n_quantiles,) ascending
    quantiles: FloatArray  # (n_quantiles, n_cells) codes

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Return both ends of the central intervals of a level, each (n_cells,)."""
        return self._quantile((1 - level) / 2), self._quantile((1 + level) / 2)

    def _quantile(self, probability: float) -> FloatArray:
        """Interpolate between known quantiles; beyond the outermost ones, return these."""
        after = int(np.searchsorted(self.probabilities, probability - 1e-9))
        if after == len(self.probabilities) or abs(self.probabilities[after] - probability) < 1e-9 or after == 0:
            return np.asarray(self.quantiles[min(after, len(self.quantiles) - 1)])
        low, high = self.probabilities[after - 1 : after + 1]
        share = (probability - low) / (high - low)
        return np.asarray((1 - share) * self.quantiles[after - 1] + share * self.quantiles[after])

    def pit(self, truth: FloatArray, uniforms: FloatArray) -> FloatArray:
        """Return the transforms of the true values, placed by `uniforms` between known quantiles; all (n_cells,)."""
        edges = np.concatenate([[0.0], self.probabilities, [1.0]])
        low = edges[(self.quantiles < truth).sum(axis=0)]
        high = edges[(self.quantiles <= truth).sum(axis=0) + 1]
        return np.asarray(low + uniforms * (high - low))


def _predict_quantiles(
    imputer: Any, masked: Any, hidden: HiddenCells, levels: list[float], seed: int
) -> PredictiveQuantiles:
    """Predict hidden cells by intervals of the imputer, with ascending levels, or by draws if it has none."""
    if hasattr(imputer, "interval"):
        bounds = [imputer.interval(masked, level=level) for level in levels]
        probabilities = np.array([(1 - level) / 2 for level in reversed(levels)] + [(1 + s) / 2 for s in levels])
        tables = [low for low, _ in reversed(bounds)] + [high for _, high in bounds]
        found = np.stack([hidden.read(table) for table in tables])
    elif hasattr(imputer, "draw"):
        n_draws = min(max(MIN_DRAWS, math.ceil(2 / (1 - levels[-1])) - 1), MAX_DRAWS)
        probabilities = np.arange(1, n_draws + 1) / (n_draws + 1)  # another draw lies below the k-th with that chance
        found = np.sort(_draws(imputer, masked, hidden, n_draws, seed), axis=0)
    else:
        raise ParameterError(
            f"imputer is a {type(imputer).__name__}, which gives no uncertainty: it has neither interval nor draw. "
            "Give a fitted MCFlowImputer, or a baseline with draws such as make('em')."
        )
    unknown = hidden.positions[np.isnan(found).any(axis=0)]
    if len(unknown):
        raise DataError(
            f"The imputer left {(unknown == unknown[0]).sum()} hidden cells of column "
            f"{hidden.schema.columns[unknown[0]].name!r} without an interval. Leave the column out with `columns`."
        )
    return PredictiveQuantiles(probabilities, found)


def _draws(imputer: Any, masked: Any, hidden: HiddenCells, n_draws: int, seed: int) -> FloatArray:
    """Draw the hidden cells, (n_draws, n_cells)."""
    return np.stack([hidden.read(table) for table in imputer.draw(masked, m=n_draws, random_state=seed)])


def _true_category_probabilities(
    imputer: Any, masked: Any, hidden: HiddenCells, column: Column, seed: int
) -> FloatArray | None:
    """Return the predicted probability of each true category, (n_cells,); None if the imputer predicts none."""
    truth = hidden.truth.astype(np.int64)
    predicted = imputer.predict_proba(masked) if hasattr(imputer, "predict_proba") else {}
    if column.name in predicted:
        return np.asarray(probabilities_in(predicted[column.name])[hidden.rows, truth])
    if not hasattr(imputer, "draw"):
        return None
    return np.asarray((_draws(imputer, masked, hidden, MIN_DRAWS, seed) == truth).mean(axis=0))
