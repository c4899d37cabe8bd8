"""Colours for light and for dark pages, and the shapes that several pictures share."""

from __future__ import annotations

__all__ = ["DARK", "LIGHT", "Theme", "arrow", "blank", "lane", "network", "table"]

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Theme:
    """Colours of one kind of page; pictures have no ground of their own."""

    ink: str
    soft: str
    lane: str
    box: str
    seen: str
    near: str
    missing: str
    guess: str
    filled: str
    latent: str
    hidden: str


LIGHT = Theme(
    ink="#22313f",
    soft="#5f6d7a",
    lane="#f1f4f7",
    box="#ffffff",
    seen="#5b8db8",
    near="#a9c4dc",
    missing="#ffffff",
    guess="#f7d9b0",
    filled="#e8963a",
    latent="#9a7fb8",
    hidden="#f2c14e",
)
DARK = Theme(
    ink="#e4e9ee",
    soft="#9aa7b3",
    lane="#1f262d",
    box="#12171c",
    seen="#4d82b3",
    near="#35597a",
    missing="#12171c",
    guess="#7a5a2c",
    filled="#e8963a",
    latent="#8a6bb0",
    hidden="#d9a72c",
)


def blank(width: float, height: float) -> tuple[Any, Any]:
    """Return a figure without a ground, and axes in inches over all of it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.axis("off")
    return figure, axes


def lane(axes: Any, theme: Theme, bottom: float, height: float, name: str, *, width: float = 9.1) -> None:
    """Draw a band with its name in the lower left corner."""
    from matplotlib.patches import FancyBboxPatch

    shape = "round,pad=0,rounding_size=0.12"
    axes.add_patch(
        FancyBboxPatch((0.15, bottom), width, height, boxstyle=shape, facecolor=theme.lane, edgecolor="none")
    )
    axes.text(0.35, bottom + 0.14, name, color=theme.soft, fontsize=10, style="italic")


def table(
    axes: Any, theme: Theme, centre: tuple[float, float], pattern: tuple[str, ...], colours: dict[str, str]
) -> None:
    """Draw a little table around a point; a letter of the pattern has the colour of that letter."""
    from matplotlib.patches import Rectangle

    width, height = 0.3, 0.2
    x, y = centre
    left, top = x - len(pattern[0]) * width / 2, y + len(pattern) * height / 2
    for r, row in enumerate(pattern):
        for c, cell in enumerate(row):
            colour = colours[cell]
            style = "--" if colour == theme.missing else "-"
            corner = (left + c * width, top - (r + 1) * height)
            axes.add_patch(Rectangle(corner, width, height, facecolor=colour, edgecolor=theme.ink, lw=0.8, ls=style))


def network(axes: Any, theme: Theme, x: float, y: float, name: str) -> None:
    """Draw a box with the name of a network."""
    style = {"boxstyle": "round,pad=0.35", "facecolor": theme.box, "edgecolor": theme.ink, "linewidth": 1.3}
    axes.text(x, y, name, color=theme.ink, fontsize=13, ha="center", va="center", bbox=style, zorder=3)


def arrow(axes: Any, colour: str, start: tuple[float, float], end: tuple[float, float], *, bend: float = 0.0) -> None:
    """Draw an arrow."""
    from matplotlib.patches import FancyArrowPatch

    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=14, lw=1.6, color=colour, connectionstyle=f"arc3,rad={bend}"
        )
    )
