"""Calibration of intervals: coverage of validation cells in a report, and of hidden cells in a plot."""

from __future__ import annotations

__all__ = ["calibration_facts", "plot_calibration"]

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mcflow.columns.frames import Frame, read_frame, take_rows
from mcflow.columns.schema import CATEGORY_KINDS, NUMBER_KINDS
from mcflow.errors import DataError, ParameterError
from mcflow.evaluation.wording import name_text
from mcflow.fitting.calibration import Calibration
from mcflow.missingness.hiding import hide
from mcflow.random import seed_from
from mcflow.report import canvas
from mcflow.report.facts_uncertainty import LEVEL
from mcflow.report.tables import schema_of
from mcflow.report.validation_predictions import (
    HiddenCells,
    binomial_band,
    check_share,
    filled_positions,
    predict_quantiles,
)
from mcflow.typing import Array, BoolArray, FloatArray, RandomState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Default levels of `plot_calibration`.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Maximum number of rows of `plot_calibration`.
MAX_ROWS = 2_000
#: Bins of the histogram of probability integral transforms.
N_BINS = 10
#: Validation cells that a table or a column needs for its coverage to be reported.
MIN_CELLS = 20
#: Maximum number of columns whose coverage is reported.
MAX_COLUMNS = 10


def calibration_facts(imputer: Any) -> dict[str, Any] | None:
    """Return the coverage of intervals on the validation cells of the fit, before and after calibration."""
    found: Calibration | None = getattr(getattr(imputer, "model_", None), "calibration", None)
    if not isinstance(found, Calibration):
        return None
    columns = [imputer.schema_.columns[p] for p in imputer.schema_.model]
    found = _without_unordered(found, np.array([column.kind in (*NUMBER_KINDS, "ordered") for column in columns]))
    if len(found.below) < MIN_CELLS:
        return None
    names = [name_text(column.name) for column in columns]
    levels = (*LEVELS, 0.95)
    first, second = _halves(found)
    tails = [np.full(len(names), (1 - level) / 2) for level in levels]
    uncalibrated = [_n_covered(found, tail, tail) for tail in tails]
    # Each half is covered by intervals that were calibrated on the other half.
    calibrated = [
        _n_covered(first, *second.tails((1 - level) / 2)) + _n_covered(second, *first.tails((1 - level) / 2))
        for level in levels
    ]
    counts = np.diff(found.starts)
    low, high = binomial_band(len(found.below), np.array(levels))
    at = levels.index(LEVEL)
    return {
        "cells": len(found.below),
        "levels": list(levels),
        "uncalibrated": [_share(covered, counts) for covered in uncalibrated],
        "calibrated": [_share(covered, counts) for covered in calibrated],
        "band": [np.round(low, 4).tolist(), np.round(high, 4).tolist()],
        "level": LEVEL,
        "columns": _columns(names, counts, uncalibrated[at], calibrated[at]),
        "by_column": [
            {"position": int(k), "cells": int(counts[k]), "calibrated": round(float(calibrated[at][k] / counts[k]), 3)}
            for k in np.flatnonzero(counts >= MIN_CELLS)
        ],
    }


def _without_unordered(found: Calibration, kept: BoolArray) -> Calibration:
    """Remove the cells of columns without an order, which have no intervals."""
    counts = np.diff(found.starts)
    cells = np.repeat(kept, counts)
    starts = np.concatenate([[0], np.cumsum(np.where(kept, counts, 0))])
    return Calibration(found.below[cells], found.above[cells], starts, found.scale)


def _n_covered(found: Calibration, low: FloatArray, high: FloatArray) -> FloatArray:
    """Count the true values of each column inside intervals that cut off the masses `low` and `high`; (n_columns,)."""
    counts = np.diff(found.starts)
    columns = np.repeat(np.arange(len(counts)), counts)
    outside = np.bincount(columns, found.below < low[columns] - 1e-12, minlength=len(counts))
    outside += np.bincount(columns, found.above < high[columns] - 1e-12, minlength=len(counts))
    covered: FloatArray = np.maximum(counts - outside, 0)
    return covered


def _halves(found: Calibration) -> tuple[Calibration, Calibration]:
    """Split the cells of every column at random."""
    counts = np.diff(found.starts)
    columns = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(columns)) - found.starts[:-1][columns]
    rng = np.random.default_rng(0)
    firsts = []
    for _ in range(2):  # both arrays are sorted separately, so that an index is not the same cell in both
        first = np.empty(len(columns), dtype=bool)
        first[np.lexsort((rng.random(len(columns)), columns))] = within % 2 == 0
        firsts.append(first)
    halves = []
    for below, above in (firsts, [~first for first in firsts]):
        starts = np.concatenate([[0], np.cumsum(np.bincount(columns[below], minlength=len(counts)))])
        halves.append(Calibration(found.below[below], found.above[above], starts, found.scale))
    return halves[0], halves[1]


def _share(covered: FloatArray, counts: Array) -> float:
    return round(float(covered.sum() / max(counts.sum(), 1)), 4)


def _columns(names: list[str], counts: Array, before: FloatArray, after: FloatArray) -> list[dict[str, Any]]:
    """Return the columns whose coverage is farthest from the level, in standard errors."""
    some = np.flatnonzero(counts >= MIN_CELLS)
    error = np.abs(after[some] / counts[some] - LEVEL) * np.sqrt(counts[some])
    order = some[np.argsort(-error, kind="stable")][:MAX_COLUMNS]
    return [
        {
            "name": names[k],
            "cells": int(counts[k]),
            "uncalibrated": round(float(before[k] / counts[k]), 3),
            "calibrated": round(float(after[k] / counts[k]), 3),
        }
        for k in order
    ]


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
    predicted = predict_quantiles(imputer, masked, hidden, asked, int(rng.integers(2**62)))
    covered, transforms = [], []
    for cells, quantiles in zip(hidden, predicted, strict=True):
        ends = [quantiles.interval(level) for level in asked]
        covered.append(np.stack([(low <= cells.truth) & (cells.truth <= high) for low, high in ends]))
        transforms.append(quantiles.pit(cells.truth, rng.random(len(cells.truth))))
    n_cells = sum(map(len, transforms))
    title = f"Intervals of {n_cells:,} observed cells that were hidden, in {len(hidden)} columns"
    figure, (left, right) = canvas.panel_grid(2, title, side=3.0, width=3.8)
    _draw_coverage(left, [canvas.shorten(cells.column.name) for cells in hidden], covered, np.array(asked))
    _draw_transforms(right, np.concatenate(transforms))
    canvas.add_legend(figure, _legend_keys())
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
    found = filled_positions(table, imputer, columns)
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
) -> tuple[Any, list[HiddenCells]]:
    """Hide observed cells in a sample of the rows; return the masked rows and the hidden cells by column."""
    schema = schema_of(table, imputer)
    n_rows = min(table.n_rows, MAX_ROWS)
    rows = np.sort(rng.choice(table.n_rows, n_rows, replace=False))
    mask = np.zeros((n_rows, len(table.names)), dtype=bool)
    hidden = []
    for p in positions:
        codes = table.column_codes(p, schema.columns[p])[rows]
        picked = np.flatnonzero((rng.random(n_rows) < share) & np.isfinite(codes))
        if len(picked):
            mask[picked, p] = True
            hidden.append(HiddenCells(schema, p, picked, codes[picked]))
    if not hidden:
        raise DataError(
            f"No observed cell was hidden: hide_share is {share:g} and there are few observed cells. Give more rows or "
            "a larger share."
        )
    return hide(take_rows(table, rows), mask), hidden


def _draw_coverage(axes: Any, names: list[str], covered: list[Array], levels: FloatArray) -> None:
    """Draw the coverage of all cells and of each column; `covered` holds arrays of shape (n_levels, n_cells)."""
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
    _name_columns(axes, [(names[place], covered[place]) for place in named], levels)
    overall = np.concatenate(covered, axis=1).mean(axis=1)
    axes.plot(
        100 * levels, 100 * overall, color=canvas.BLUE, lw=2.4, marker="o", markersize=3.5, label="all cells", zorder=4
    )
    axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    axes.set_title("Coverage", color=canvas.INK, fontsize=9)
    axes.set_xlabel("level of the interval, %")
    axes.set_ylabel("hidden cells covered, %")


def _name_columns(axes: Any, named: list[tuple[str, Array]], levels: FloatArray) -> None:
    """Write names in the colours of their lines, in the corner that most of these lines avoid."""
    above = sum(float(np.mean(cells.mean(axis=1) - levels)) for _, cells in named) > 0
    for place, (name, _) in enumerate(named):
        x, y = (0.97, 0.04 + 0.07 * (len(named) - 1 - place)) if above else (0.03, 0.96 - 0.07 * place)
        axes.text(x, y, name, color=canvas.ACCENTS[place], fontsize=8, ha="right" if above else "left",
                  va="bottom" if above else "top", transform=axes.transAxes)  # fmt: skip


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
    axes.set_title("Probability integral transform", color=canvas.INK, fontsize=9)
    axes.set_ylim(0, 100 * max(shares.max(), 2 / N_BINS) * 1.05)
    axes.set_xlabel("predicted probability of a smaller value")
    axes.set_ylabel("share of cells, %")


def _legend_keys() -> list[Any]:
    return [
        canvas.line_key("all cells", canvas.BLUE, lw=2.4, marker="o", markersize=3.5),
        canvas.line_key("one column", canvas.BLUE, lw=0.6),
        canvas.line_key("nominal", canvas.INK, lw=0.8, ls=canvas.DASHED),
        canvas.area_key("95 % band of all cells", canvas.INK, 0.3),
        canvas.area_key("… of one column", canvas.INK, 0.14),
    ]
