"""Pictures made of lines and dots: losses, coverage, and errors of several methods."""

from __future__ import annotations

__all__ = ["MARKS", "draw_coverage", "draw_errors", "draw_line", "draw_shares"]

from collections.abc import Sequence
from typing import Any

from mcflow.report.diagnostics_canvas import COVERED, INK, MISSED
from mcflow.report.plots import FAINT, PALETTE, WORDS, new_panel, to_svg
from mcflow.report.wording import clean, number_text, share_text

#: Marks of methods, so that they can be told apart without colour, and what the page writes for them.
MARKS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖", "p": "⬟"}


def draw_line(points: Sequence[tuple[float, float]], starts: Sequence[float], name: str, words: str) -> str:
    """Draw a quantity by epoch, with a thin line where a stage begins.

    Parameters
    ----------
    points : sequence of (float, float)
        Epochs and values.
    starts : sequence of float
        Epochs at which stages begin.
    name : str
        Of the picture.
    words : str
        The quantity, as a sentence begins with it.

    Returns
    -------
    str
        SVG.
    """
    from matplotlib.ticker import MaxNLocator

    axes = new_panel(4.4, 2.0, left=0.55, bottom=0.42)
    across, up = [x for x, _ in points], [y for _, y in points]
    for start in starts:
        axes.axvline(start - 0.5, color=INK, lw=0.6, ls=(0, (3, 2)))
    axes.plot(across, up, color=COVERED, lw=1.6, marker="o" if len(points) < 30 else "", markersize=3)
    axes.set_xlabel("epoch")
    axes.set_xlim(min(across) - 0.5, max(across) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}".replace("-", "−"))
    low, high = min(up), max(up)
    stages = f" {len(starts) + 1} stages." if starts else ""
    label = f"{words} by epoch: {number_text(up[0])} at first, {number_text(up[-1])} at the end, "
    return to_svg(axes, name, f"{label}from {number_text(low)} to {number_text(high)} in between.{stages}")


def draw_shares(bins: Sequence[dict[str, Any]], name: str) -> str:
    """Draw how many columns lack how much.

    Parameters
    ----------
    bins : sequence of dict
        From `report_facts`.
    name : str
        Of the picture.

    Returns
    -------
    str
        SVG.
    """
    labels = ["none" if not b["to"] else f"≤ {share_text(b['to'])}" for b in bins]
    counts = [b["columns"] for b in bins]
    axes = new_panel(4.4, 1.9, left=0.5, bottom=0.42)
    axes.bar(range(len(bins)), counts, 0.72, color=MISSED, alpha=0.75, lw=0)
    axes.set_xticks(range(len(bins)), labels)
    axes.set_xlabel("share of the cells that is missing")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    words = "; ".join(f"{label}: {count:,} columns" for label, count in zip(labels, counts, strict=True))
    return to_svg(axes, name, f"Columns by the share of their cells that is missing. {words}.")


def draw_coverage(facts: dict[str, Any], name: str) -> str:
    """Draw how often intervals of each level held hidden cells.

    Parameters
    ----------
    facts : dict
        Calibration, from `report_facts`.
    name : str
        Of the picture.

    Returns
    -------
    str
        SVG.
    """
    axes = new_panel(3.6, 3.3, left=0.6, bottom=0.45)
    levels = [100 * level for level in facts["levels"]]
    low, high = ([100 * share for share in ends] for ends in facts["chance"])
    axes.plot([0, 100], [0, 100], color=INK, lw=0.8, ls=(0, (4, 2)))
    axes.fill_between(levels, low, high, color=INK, alpha=0.25, lw=0)
    axes.plot(levels, [100 * s for s in facts["stated"]], color=COVERED, lw=1.3, marker="s", markersize=3.5)
    axes.plot(levels, [100 * s for s in facts["set_right"]], color=MISSED, lw=1.6, marker="o", markersize=3.5)
    axes.set(xlim=(0, 100), ylim=(0, 100))
    axes.set_xlabel("level of the interval")
    axes.set_ylabel("hidden cells inside")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda share, _: f"{share:g} %")
    found = "; ".join(
        f"{share_text(level)}: {share_text(stated)} as stated, {share_text(right)} set right"
        for level, stated, right in zip(facts["levels"], facts["stated"], facts["set_right"], strict=True)
    )
    return to_svg(axes, name, f"Coverage of intervals by their level. {found}.")


def draw_errors(columns: Sequence[dict[str, Any]], methods: Sequence[str], name: str) -> str:
    """Draw the errors of methods in units of the mean's, a line of dots a column.

    Parameters
    ----------
    columns : sequence of dict
        Under "per_column" of an evaluation.
    methods : sequence of str
        Names.
    name : str
        Of the picture.

    Returns
    -------
    str
        SVG.
    """
    names = [clean(column["name"], 26) for column in columns]
    left = 0.2 + 0.075 * max(map(len, names), default=1)
    axes = new_panel(left + 4.2, 0.5 + 0.24 * len(names), left=left, bottom=0.42)
    axes.axvline(1, color=INK, lw=0.8, ls=(0, (4, 2)))
    for place, (method, mark) in enumerate(zip(methods, MARKS, strict=False)):
        found = [(_relative(column, method), y) for y, column in enumerate(columns)]
        dots = [(min(x, 2.0), y) for x, y in found if x is not None]
        axes.plot(
            [x for x, _ in dots], [y for _, y in dots], mark, color=PALETTE[place], markersize=5, alpha=0.9, mew=0
        )
    axes.set_yticks(range(len(names)), names, **WORDS)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, None)
    axes.grid(axis="x", color=FAINT, lw=0.4)
    axes.set_xlabel("error relative to that of the mean or the commonest level; less is better")
    return to_svg(axes, name, _error_words(columns, methods))


def _relative(column: dict[str, Any], method: str) -> float | None:
    found: float | None = (column["methods"].get(method) or {}).get("relative")
    return found


def _error_words(columns: Sequence[dict[str, Any]], methods: Sequence[str]) -> str:
    words = []
    for column in columns[:8]:
        shown = [(method, _relative(column, method)) for method in methods]
        listed = ", ".join(f"{method} {value:.2f}" for method, value in shown if value is not None)
        words.append(f"{column['name']}: {listed}")
    return (
        "Errors relative to the mean's, by column. " + "; ".join(words) + ("." if len(columns) <= 8 else "; and more.")
    )
