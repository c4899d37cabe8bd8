"""The paper's method: data through G, H and the inverse of G, and the refill."""

from __future__ import annotations

__all__ = ["draw_flow"]

from typing import Any

from drawing.theme import Theme, arrow, blank, lane, network, table

#: Rows of the little tables: m is missing, a dot is observed.
PATTERN = ("..m", ".m.", "...", "m..")
LOSS_OF_H = "loss of H: squared error on the observed\ncells of " + r"$\hat{x}$ less $\lambda$ times its log-density"


def draw_flow(theme: Theme) -> Any:
    """Return a figure: one pass through the networks, and the loop."""
    figure, axes = blank(9.4, 4.9)
    lane(axes, theme, 2.3, 2.45, "data space")
    lane(axes, theme, 0.15, 1.5, "latent space")
    _tables(axes, theme)
    _networks(axes, theme)
    _loop(axes, theme)
    return figure


def _tables(axes: Any, theme: Theme) -> None:
    for x, missing, seen, label in (
        (1.2, theme.missing, theme.seen, r"$\tilde{x}$: missing cells"),
        (4.0, theme.guess, theme.seen, r"$\dot{x}$: filled rows"),
        (7.9, theme.filled, theme.near, r"$\hat{x}$: decoded rows"),
    ):
        table(axes, theme, (x, 3.2), PATTERN, {"m": missing, ".": seen})
        axes.text(x, 3.72, label, color=theme.ink, fontsize=11, ha="center", va="center")
    for x, label in ((4.0, r"$\dot{z}$"), (7.9, r"$\hat{z}$")):
        table(axes, theme, (x, 1.05), PATTERN, {"m": theme.latent, ".": theme.latent})
        axes.text(x, 0.43, label, color=theme.ink, fontsize=11, ha="center", va="center")


def _networks(axes: Any, theme: Theme) -> None:
    for start, end in (
        ((1.75, 3.2), (3.45, 3.2)),
        ((4.0, 2.72), (4.0, 1.5)),
        ((4.55, 1.05), (7.35, 1.05)),
        ((7.9, 1.5), (7.9, 2.72)),
    ):
        arrow(axes, theme.ink, start, end)
    network(axes, theme, 4.0, 2.06, "G")
    network(axes, theme, 5.95, 1.05, "H")
    network(axes, theme, 7.9, 2.06, r"$G^{-1}$")
    for x, y, where, text in (
        (2.6, 2.9, "center", "first fill: draws from\nobserved values"),
        (3.5, 2.0, "right", "loss of G:\nnegative log-density of " + r"$\dot{x}$"),
        (
            5.95,
            2.0,
            "center",
            LOSS_OF_H,
        ),
    ):
        axes.text(x, y, text, color=theme.ink, fontsize=9, ha=where, va="center")


def _loop(axes: Any, theme: Theme) -> None:
    arrow(axes, theme.filled, (7.9, 3.95), (4.0, 3.95), bend=0.2)
    text = "after epochs 1, 2, 4, 8, …\nmissing cells take " + r"$\hat{x}$" + ", (G, H) is kept, G is reset"
    axes.text(5.95, 4.05, text, color=theme.ink, fontsize=9, ha="center", va="center")
