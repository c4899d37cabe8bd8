"""Plot a sensitivity analysis: the estimate of a term against the delta adjustment of filled cells."""

from __future__ import annotations

__all__ = ["plot_sensitivity"]

from typing import TYPE_CHECKING, Any

import numpy as np

from mcflow.evaluation.wording import percent_text
from mcflow.report import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mcflow.imputers.sensitivity import Sensitivity


def plot_sensitivity(result: Sensitivity, term: str, alpha: float | None = None) -> Figure:
    """Plot the estimate of a term against the delta by which the filled cells of a column are adjusted.

    Parameters
    ----------
    result : Sensitivity
        A sensitivity analysis with pooled results.
    term : str
        Name of a term of the analysis.
    alpha : float, optional
        Significance level of the tipping point; by default 1 minus the level of the intervals, so that the tipping
        point is where the interval reaches 0.

    Returns
    -------
    matplotlib.figure.Figure
        The estimate with its interval as a band, a line at 0, and dashed lines at the tipping points, if any. The
        title states the result in words.

    Raises
    ------
    ParameterError
        If nothing was analysed, or there is no such term.
    MissingExtraError
        If matplotlib is not installed.

    Examples
    --------
    >>> from mcflow.imputers.sensitivity import Sensitivity
    >>> from mcflow.pool import pool
    >>> results = {delta: pool([2.0 + delta] * 2, [0.25] * 2, names=["age"]) for delta in (-2.0, 0.0, 2.0)}
    >>> figure = plot_sensitivity(Sensitivity("bmi", (-2.0, 0.0, 2.0), results), "age")
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['zero', 'estimate', 'tipping point']
    """
    canvas.check_matplotlib()
    point = result.tipping_point(term, 1 - result.level if alpha is None else alpha)
    figure, (axes,) = canvas.panel_grid(1, point.words, side=2.6)
    pooled = [result.results[delta] for delta in result.deltas]
    place = pooled[0].names.index(term)
    estimates = [one.estimate[place] for one in pooled]
    low, high = np.array([one.interval[place] for one in pooled]).T
    axes.axhline(0, color=canvas.INK, lw=0.8, label="zero")
    band = axes.fill_between(result.deltas, low, high, color=canvas.BLUE, alpha=0.25, lw=0)
    band.set_label(f"{percent_text(result.level)} interval")
    (line,) = axes.plot(result.deltas, estimates, color=canvas.BLUE, lw=1.5, marker="o", ms=3, label="estimate")
    style: dict[str, Any] = {"color": canvas.ORANGE, "lw": 1.2, "ls": "--", "label": "tipping point"}
    tips = [axes.axvline(delta, **style) for delta in (point.below, point.above) if delta is not None]
    axes.set_xlabel(f"delta adjustment of the filled cells of {canvas.shorten(result.column)}")
    axes.set_ylabel(canvas.shorten(term))
    canvas.add_legend(figure, [line, band, *tips[:1]])
    return figure
