"""The default preset: H learns cells that are hidden on purpose, and fills real holes in the same way."""

from __future__ import annotations

__all__ = ["draw_hidden"]

from typing import Any

import numpy as np

from drawing.theme import Theme, arrow, blank, lane, network, table

#: Rows of the little tables: m is missing, h is hidden on purpose, a dot is observed.
PATTERN = (".h.m", "m...", "...h", "h.m.")
HOLED = ("...m", "m...", "....", "..m.")


def draw_hidden(theme: Theme) -> Any:
    """Return a figure with two lanes: training and filling."""
    figure, axes = blank(9.4, 4.9)
    lane(axes, theme, 2.55, 2.2, "training, at every step")
    lane(axes, theme, 0.15, 2.2, "filling, once")
    _training(axes, theme)
    _filling(axes, theme)
    return figure


def _say(axes: Any, theme: Theme, x: float, y: float, text: str) -> None:
    axes.text(x, y, text, color=theme.ink, fontsize=9, ha="center", va="center")


def _training(axes: Any, theme: Theme) -> None:
    colours = {".": theme.seen, "m": theme.hole, "h": theme.hidden}
    table(axes, theme, (1.3, 3.75), HOLED, colours)
    table(axes, theme, (3.6, 3.75), PATTERN, colours)
    arrow(axes, theme.ink, (2.0, 3.75), (2.9, 3.75))
    arrow(axes, theme.ink, (4.3, 3.75), (6.3, 3.75))
    network(axes, theme, 5.25, 3.75, "H")
    _curves(axes, theme, 7.3, 3.75, theme.hidden, truths=True)
    _say(axes, theme, 1.3, 4.4, "rows with holes")
    _say(axes, theme, 3.6, 4.4, "one in five observed\ncells is hidden")
    _say(axes, theme, 5.25, 4.4, "sees the blue cells\nand where they are")
    _say(axes, theme, 7.3, 4.45, "a distribution for each hidden cell")
    _say(axes, theme, 6.7, 2.8, "loss: was the hidden truth likely there, and near the mean?")


def _filling(axes: Any, theme: Theme) -> None:
    table(axes, theme, (1.3, 1.3), HOLED, {".": theme.seen, "m": theme.hole})
    arrow(axes, theme.ink, (2.0, 1.3), (3.9, 1.3))
    network(axes, theme, 2.95, 1.3, "H")
    _curves(axes, theme, 4.75, 1.3, theme.filled, truths=False)
    arrow(axes, theme.ink, (5.6, 1.3), (7.5, 1.3))
    network(axes, theme, 6.5, 1.3, "G")
    table(axes, theme, (8.3, 1.3), HOLED, {".": theme.seen, "m": theme.filled})
    _say(axes, theme, 4.75, 2.05, "a distribution for each\nmissing cell")
    _say(axes, theme, 6.5, 2.05, "ties the cells\nof a row together")
    _say(axes, theme, 8.3, 2.05, "means are fills;\ndraws are draws")
    _say(axes, theme, 5.6, 0.4, "held-out cells, never learned, say how wide intervals have to be")


def _curves(axes: Any, theme: Theme, x: float, y: float, colour: str, *, truths: bool) -> None:
    """Draw three little distributions under each other, with the truth as a line."""
    across = np.linspace(-1, 1, 80)
    shapes = ((-0.3, 0.22, -0.15), (0.1, 0.4, 0.5), (0.45, 0.15, 0.4))
    for place, (mean, spread, truth) in enumerate(shapes):
        base = y + 0.2 - 0.32 * place
        curve = 0.24 * np.exp(-(((across - mean) / spread) ** 2) / 2)
        axes.fill_between(x + 0.7 * across, base, base + curve, color=colour, alpha=0.85, lw=0)
        axes.hlines(base, x - 0.7, x + 0.7, color=theme.ink, lw=0.8)
        if truths:
            axes.vlines(x + 0.7 * truth, base, base + 0.26, color=theme.ink, lw=1.6)
