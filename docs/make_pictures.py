"""Draw the pictures of the documentation: `python docs/make_pictures.py` writes docs/pictures/*.svg."""

from __future__ import annotations

__all__ = ["draw_flow", "main"]

from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "pictures"

INK, SOFT = "#22313f", "#6b7a88"
SEEN, NEAR, HOLE, GUESS, FILLED, LATENT = "#5b8db8", "#a9c4dc", "#ffffff", "#f7d9b0", "#e8963a", "#9a7fb8"

#: Rows of the little tables: a letter is missing, a dot is observed.
PATTERN = ("..m", ".m.", "...", "m..")


def draw_flow() -> Any:
    """Return a figure: data through G, H and the inverse of G, and the refill loop."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.4, 4.9), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, 9.4)
    axes.set_ylim(0, 4.9)
    axes.axis("off")
    _lane(axes, 2.3, 2.45, "data space")
    _lane(axes, 0.15, 1.5, "latent space")
    _tables(axes)
    _networks(axes)
    _loop(axes)
    return figure


def _lane(axes: Any, bottom: float, height: float, name: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    box = FancyBboxPatch(
        (0.15, bottom), 9.1, height, boxstyle="round,pad=0,rounding_size=0.12", facecolor="#f4f6f8", edgecolor="none"
    )
    axes.add_patch(box)
    axes.text(0.35, bottom + 0.14, name, color=SOFT, fontsize=10, style="italic")


def _tables(axes: Any) -> None:
    _table(axes, 1.2, 3.2, HOLE, r"$\tilde{x}$: table with holes")
    _table(axes, 4.0, 3.2, GUESS, r"$\dot{x}$: filled rows")
    _table(axes, 7.9, 3.2, FILLED, r"$\hat{x}$: decoded rows", seen=NEAR)
    _table(axes, 4.0, 1.05, LATENT, r"$\dot{z}$", seen=LATENT)
    _table(axes, 7.9, 1.05, LATENT, r"$\hat{z}$", seen=LATENT)


def _table(axes: Any, x: float, y: float, hole: str, label: str, *, seen: str = SEEN) -> None:
    """Draw a little table around a point, with its label above or, in the latent lane, below."""
    from matplotlib.patches import Rectangle

    width, height = 0.3, 0.2
    for r, row in enumerate(PATTERN):
        for c, cell in enumerate(row):
            corner = (x + (c - 1.5) * width, y + (1 - r) * height)
            style = "--" if hole == HOLE and cell == "m" else "-"
            colour = hole if cell == "m" else seen
            axes.add_patch(Rectangle(corner, width, height, facecolor=colour, edgecolor=INK, lw=0.8, ls=style))
    below = seen == LATENT
    axes.text(x, y - 0.62 if below else y + 0.52, label, color=INK, fontsize=11, ha="center", va="center")


def _networks(axes: Any) -> None:
    _arrow(axes, (1.75, 3.2), (3.45, 3.2))
    axes.text(2.6, 3.35, "first fill: draws from\nobserved values", color=INK, fontsize=9, ha="center", va="bottom")
    _arrow(axes, (4.0, 2.72), (4.0, 1.5))
    _arrow(axes, (4.55, 1.05), (7.35, 1.05))
    _arrow(axes, (7.9, 1.5), (7.9, 2.72))
    _network(axes, 4.0, 2.06, "G")
    _network(axes, 5.95, 1.05, "H")
    _network(axes, 7.9, 2.06, r"$G^{-1}$")
    axes.text(
        3.5, 2.0, "loss of G:\nnegative log-density of " + r"$\dot{x}$", color=INK, fontsize=9, ha="right", va="center"
    )
    axes.text(
        5.95,
        2.0,
        "loss of H: squared error on the observed\ncells of " + r"$\hat{x}$ less $\lambda$ times its log-density",
        color=INK,
        fontsize=9,
        ha="center",
        va="center",
    )


def _network(axes: Any, x: float, y: float, name: str) -> None:
    style = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": INK, "linewidth": 1.3}
    axes.text(x, y, name, color=INK, fontsize=13, ha="center", va="center", bbox=style, zorder=3)


def _loop(axes: Any) -> None:
    _arrow(axes, (7.9, 3.95), (4.0, 3.95), bend=0.2, colour=FILLED)
    axes.text(
        5.95,
        4.05,
        "after epochs 1, 2, 4, 8, …\nmissing cells take " + r"$\hat{x}$" + ", (G, H) is kept, G starts anew",
        color=INK,
        fontsize=9,
        ha="center",
        va="center",
    )


def _arrow(
    axes: Any, start: tuple[float, float], end: tuple[float, float], bend: float = 0.0, colour: str = INK
) -> None:
    from matplotlib.patches import FancyArrowPatch

    curve = f"arc3,rad={bend}"
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=14, lw=1.6, color=colour, connectionstyle=curve)
    )


def main() -> None:
    """Write every picture; the same program gives the same bytes."""
    import matplotlib

    FOLDER.mkdir(exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "mcflow", "svg.fonttype": "path"}):
        draw_flow().savefig(FOLDER / "flow.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
