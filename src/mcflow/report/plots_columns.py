"""Pictures of distributions: the observed and the filled cells of one column."""

from __future__ import annotations

__all__ = ["draw_column"]

from typing import Any

import numpy as np

from mcflow.report.diagnostics_canvas import COVERED, INK, MISSED
from mcflow.report.plots import FAINT, WORDS, new_panel, to_svg
from mcflow.report.wording import clean
from mcflow.typing import FloatArray

#: Inches of a picture across.
WIDTH = 3.3
#: Share of a number's size below which differences have to be written apart.
NARROW = 1e-4


def draw_column(facts: dict[str, Any], name: str) -> str:
    """Draw the shares of a column's cells by bin or by level.

    Parameters
    ----------
    facts : dict
        Of the column, from `report_facts`.
    name : str
        Of the picture.

    Returns
    -------
    str
        SVG.
    """
    draw = _draw_levels if facts["axis"] == "levels" else _draw_numbers
    return to_svg(draw(facts), name, _words(facts))


def _words(facts: dict[str, Any]) -> str:
    words = f"{facts['name']}: {facts['observed']:,} observed and {facts['filled']:,} filled cells."
    if facts["axis"] == "levels":
        shares = zip(facts["levels"], facts["observed_shares"], facts["filled_shares"], strict=True)
        listed = "; ".join(f"{level} {seen:.0f} % of observed, {new:.0f} % of filled" for level, seen, new in shares)
        return f"Bars for {words} {listed}."
    seen, new = (" / ".join(facts[f"{which}_quartiles"]) for which in ("observed", "filled"))
    return f"Histograms of {words} Quartiles of the observed cells {seen}, of the filled cells {new}."


def _draw_numbers(facts: dict[str, Any]) -> Any:
    axes = new_panel(WIDTH, 1.75, left=0.42, bottom=0.28)
    edges = np.array(facts["edges"])
    axes.stairs(facts["observed_shares"], edges, fill=True, color=COVERED, alpha=0.4, lw=0)
    if facts["lowest_shares"] != facts["highest_shares"]:
        axes.stairs(
            facts["highest_shares"], edges, baseline=facts["lowest_shares"], fill=True, color=MISSED, alpha=0.3, lw=0
        )
    axes.stairs(facts["filled_shares"], edges, color=MISSED, lw=1.6, baseline=None)
    axes.set_ylim(bottom=0)
    axes.set_xlim(edges[0], edges[-1])
    axes.yaxis.set_major_locator(_marks(3))
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:g} %")
    _mark_values(axes.xaxis, facts["axis"], edges)
    return axes


def _marks(n: int) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=n, steps=[1, 2, 2.5, 5, 10])


def _mark_values(axis: Any, kind: str, edges: FloatArray) -> None:
    if kind == "date":
        from matplotlib import dates

        first = float(dates.date2num(np.datetime64("1970-01-01")))  # type: ignore[no-untyped-call]
        if first:  # a setting may count days from elsewhere
            axis.set_major_formatter(lambda day, _: str(np.datetime64(int(day), "D")))
            return
        locator = dates.AutoDateLocator(minticks=2, maxticks=4)  # type: ignore[no-untyped-call]
        axis.set_major_locator(locator)
        axis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axis.get_offset_text().set_visible(False)
        return
    base = float(edges[0])
    if kind == "number" and edges[-1] - base < NARROW * abs(base):  # large numbers that differ by little
        axis.set_ticks([base, float(edges[-1])], [f"{base:,.0f}", "+" + _short_number(float(edges[-1]) - base)])
        for label, side in zip(axis.get_ticklabels(), ("left", "right"), strict=True):
            label.set_horizontalalignment(side)
        return
    axis.set_major_locator(_marks(4))
    axis.set_major_formatter(_short_number if kind == "number" else lambda days, _: f"{days:g} d")


def _short_number(value: float, _: Any = None) -> str:
    """Return a mark's number in few letters."""
    for limit, letter in ((1e15, ""), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scale = {"T": 1e12, "B": 1e9, "M": 1e6, "k": 1e3}.get(letter, 1.0)
            return f"{value / scale:.5g}{letter}".replace("-", "−")
    return f"{value:.5g}".replace("-", "−")


def _draw_levels(facts: dict[str, Any]) -> Any:
    names = [clean(level, 21) for level in facts["levels"]]
    axes = new_panel(WIDTH, 0.42 + 0.3 * len(names), left=1.42, bottom=0.28)
    places = np.arange(len(names))
    axes.barh(places - 0.19, facts["observed_shares"], 0.34, color=COVERED, alpha=0.55, lw=0)
    axes.barh(places + 0.19, facts["filled_shares"], 0.34, color=MISSED, alpha=0.75, lw=0)
    if facts["lowest_shares"] != facts["highest_shares"]:
        axes.hlines(places + 0.19, facts["lowest_shares"], facts["highest_shares"], color=INK, lw=1)
    axes.set_yticks(places, names, **WORDS)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=FAINT, lw=0.5)
    axes.xaxis.set_major_locator(_marks(3))
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:g} %")
    return axes
