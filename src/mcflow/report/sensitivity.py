"""The picture of a sensitivity analysis: what a term becomes when filled cells are moved."""

from __future__ import annotations

__all__ = ["plot_sensitivity"]

from typing import TYPE_CHECKING, Any

import numpy as np

from mcflow.report.diagnostics_canvas import (
    COVERED,
    INK,
    MISSED,
    add_legend,
    check_matplotlib,
    panel_grid,
    percent,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mcflow.imputers.sensitivity import Sensitivity


def plot_sensitivity(result: Sensitivity, term: str, alpha: float | None = None) -> Figure:
    """Draw a term of an analysis against what the filled cells of a column are moved by.

    Parameters
    ----------
    result : Sensitivity
        With an analysis.
    term : str
        Of the analysis.
    alpha : float, optional
        For the tipping point; by default 1 less the level of the intervals, so that it is where the band meets 0.

    Returns
    -------
    matplotlib.figure.Figure
        The estimate with its interval as a band, a line at 0, and the tipping points, where there are any, as broken
        lines. The title says the same in words.

    Raises
    ------
    ParameterError
        When nothing was analysed, or there is no such term.
    MissingExtraError
        When matplotlib is not installed.

    Examples
    --------
    >>> from mcflow.imputers.sensitivity import Sensitivity
    >>> from mcflow.pool import pool
    >>> results = {delta: pool([2.0 + delta] * 2, [0.25] * 2, names=["age"]) for delta in (-2.0, 0.0, 2.0)}
    >>> figure = plot_sensitivity(Sensitivity("bmi", (-2.0, 0.0, 2.0), results), "age")
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['zero', 'estimate', 'tipping point']
    """
    check_matplotlib()
    point = result.tipping_point(term, 1 - result.level if alpha is None else alpha)
    figure, (axes,) = panel_grid(1, point.words, side=2.6)
    pooled = [result.results[delta] for delta in result.deltas]
    place = pooled[0].names.index(term)
    estimates = [one.estimate[place] for one in pooled]
    low, high = np.array([one.interval[place] for one in pooled]).T
    axes.axhline(0, color=INK, lw=0.8, label="zero")
    band = axes.fill_between(result.deltas, low, high, color=COVERED, alpha=0.25, lw=0)
    band.set_label(f"interval of {percent(result.level)}")
    (line,) = axes.plot(result.deltas, estimates, color=COVERED, lw=1.5, marker="o", ms=3, label="estimate")
    handles = [line, band, *_mark(axes, point.below, point.above)]
    axes.set_xlabel(f"delta: what filled cells of {shorten(result.column)} are moved by", fontsize=8)
    axes.set_ylabel(shorten(term), fontsize=8)
    add_legend(figure, handles)
    return figure


def _mark(axes: Any, *deltas: float | None) -> list[Any]:
    """Draw tipping points and return what stands for all of them in the legend."""
    lines = [axes.axvline(delta, color=MISSED, lw=1.2, ls="--") for delta in deltas if delta is not None]
    for line in lines:
        line.set_label("tipping point")
    return lines[:1]
