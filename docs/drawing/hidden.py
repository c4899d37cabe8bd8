"""The default preset: H learns to predict hidden cells; H, trees and donors complete rows."""

from __future__ import annotations

__all__ = ["draw_hidden"]

from typing import Any

import numpy as np

from drawing.theme import Theme, arrow, blank, lane, network, table

#: Cells of the tables: m is missing, h is hidden for training, a dot is observed.
HIDDEN = (".h.m", "m...", "...h", "h.m.")
INCOMPLETE = ("...m", "m...", "....", "..m.")


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
    colours = {".": theme.seen, "m": theme.missing, "h": theme.hidden}
    table(axes, theme, (1.3, 3.75), INCOMPLETE, colours)
    table(axes, theme, (3.6, 3.75), HIDDEN, colours)
    arrow(axes, theme.ink, (2.0, 3.75), (2.9, 3.75))
    arrow(axes, theme.ink, (4.3, 3.75), (6.3, 3.75))
    network(axes, theme, 5.25, 3.75, "H")
    _curves(axes, theme, 7.3, 3.75, theme.hidden, truths=True)
    _say(axes, theme, 1.3, 4.4, "rows with\nmissing cells")
    _say(axes, theme, 3.6, 4.4, "one in five observed\ncells is hidden")
    _say(axes, theme, 5.25, 4.4, "reads the\nvisible cells")
    _say(axes, theme, 7.3, 4.45, "a distribution for each hidden cell")
    _say(axes, theme, 6.7, 2.8, "loss: cross-entropy of the true value, and squared error")


def _filling(axes: Any, theme: Theme) -> None:
    table(axes, theme, (1.3, 1.3), INCOMPLETE, {".": theme.seen, "m": theme.missing})
    for y, name in ((1.6, "H"), (1.0, "trees")):
        arrow(axes, theme.ink, (2.0, 1.3), (2.6, y))
        arrow(axes, theme.ink, (3.3, y), (3.95, 1.3))
        network(axes, theme, 2.95, y, name)
    _curves(axes, theme, 4.75, 1.3, theme.filled, truths=False)
    arrow(axes, theme.ink, (5.6, 1.3), (7.6, 1.3))
    network(axes, theme, 6.5, 1.3, "donors")
    table(axes, theme, (8.3, 1.3), INCOMPLETE, {".": theme.seen, "m": theme.filled})
    _say(axes, theme, 4.75, 2.0, "blended: fills\nand intervals")
    _say(axes, theme, 6.5, 2.0, "observed values\nof similar rows")
    _say(axes, theme, 8.3, 2.0, "draws")
    _say(axes, theme, 6.0, 0.4, "validation cells decide the weights and the width of intervals")


def _curves(axes: Any, theme: Theme, x: float, y: float, colour: str, *, truths: bool) -> None:
    """Draw three distributions one below the other, with the true value as a line."""
    across = np.linspace(-1, 1, 80)
    shapes = ((-0.3, 0.22, -0.15), (0.1, 0.4, 0.5), (0.45, 0.15, 0.4))
    for place, (mean, spread, truth) in enumerate(shapes):
        base = y + 0.2 - 0.32 * place
        curve = 0.24 * np.exp(-(((across - mean) / spread) ** 2) / 2)
        axes.fill_between(x + 0.7 * across, base, base + curve, color=colour, alpha=0.85, lw=0)
        axes.hlines(base, x - 0.7, x + 0.7, color=theme.ink, lw=0.8)
        if truths:
            axes.vlines(x + 0.7 * truth, base, base + 0.26, color=theme.ink, lw=1.6)
