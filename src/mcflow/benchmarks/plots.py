"""The picture of mean ranks: methods on one line, those that do not differ tied by bars."""

from __future__ import annotations

__all__ = ["cliques", "draw_ranks"]

import io
import math
from typing import Any

from mcflow.benchmarks.ranks import Ranking
from mcflow.errors import MissingExtraError

#: Drawn in this colour, which a page with its own replaces; a mid-grey can be read on white and on black.
INK = "#767676"


def cliques(ranking: Ranking) -> list[tuple[float, float]]:
    """Return the largest groups of methods whose mean ranks are within the critical difference.

    Parameters
    ----------
    ranking : Ranking
        Of at least two methods.

    Returns
    -------
    list of (float, float)
        Best and worst mean rank of each group of two or more.

    Examples
    --------
    >>> cliques(Ranking({"a": 1.0, "b": 1.5, "c": 3.0}, 9, 0.01, 0.9))
    [(1.0, 1.5)]
    """
    ranks = sorted(ranking.ranks.values())
    found: list[tuple[float, float]] = []
    last = -1
    for start, low in enumerate(ranks):
        end = max(k for k in range(start, len(ranks)) if k == start or ranks[k] - low <= ranking.critical)
        if end > start and end > last:
            found.append((low, ranks[end]))
        last = max(last, end)
    return found


def draw_ranks(ranking: Ranking, title: str) -> str:
    """Draw the ranks as SVG.

    Parameters
    ----------
    ranking : Ranking
        Of at least two methods.
    title : str
        Written above.

    Returns
    -------
    str
        An ``<svg>`` element.

    Raises
    ------
    MissingExtraError
        When matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("The plot of ranks needs matplotlib: pip install 'mcflow[bench]'") from error

    n = len(ranking.ranks)
    half = math.ceil(n / 2)
    bars = cliques(ranking) if math.isfinite(ranking.critical) else []
    with mpl.rc_context({"svg.hashsalt": "mcflow", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure = Figure(figsize=(8.5, 1.3 + 0.28 * half + 0.12 * len(bars)))
        axes: Any = figure.add_axes((0.27, 0, 0.46, 1))
        axes.set(xlim=(1, n), ylim=(-(half + 1) - 0.4 * len(bars), 2.4))
        axes.axis("off")
        _scale(axes, ranking, n, title)
        for place, (low, high) in enumerate(bars):
            height = -0.45 - 0.4 * place
            axes.plot([low - 0.04, high + 0.04], [height] * 2, lw=3, color=INK, clip_on=False)
        _names(axes, ranking, half, -0.5 - 0.4 * len(bars))
        target = io.StringIO()
        figure.savefig(
            target, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None, "Creator": None}
        )
    text = target.getvalue()
    return text[text.index("<svg") :]


def _scale(axes: Any, ranking: Ranking, n: int, title: str) -> None:
    axes.plot([1, n], [0, 0], lw=1, color=INK, clip_on=False)
    for rank in range(1, n + 1):
        axes.plot([rank] * 2, [0, 0.25], lw=1, color=INK, clip_on=False)
        axes.text(rank, 0.4, str(rank), ha="center", va="bottom", color=INK, fontsize=9)
    words = title
    if math.isfinite(ranking.critical):
        words += f" (critical difference {ranking.critical:.2f})"
    axes.text((1 + n) / 2, 1.5, words, ha="center", va="bottom", color=INK, fontsize=10)


def _names(axes: Any, ranking: Ranking, half: int, top: float) -> None:
    """Write the better half on the left, from the top down, and the others on the right, from the bottom up."""
    n = len(ranking.ranks)
    margin = 0.03 * (n - 1)
    for place, (method, rank) in enumerate(ranking.ranks.items()):
        left = place < half
        height = top - (place if left else n - 1 - place) * 1.0
        edge = 1 - margin if left else n + margin
        axes.plot([rank, rank, edge], [0, height, height], lw=0.8, color=INK, clip_on=False)
        words = f"{method} {rank:.2f}" if left else f"{rank:.2f} {method}"
        axes.text(edge - margin if left else edge + margin, height, words, color=INK, fontsize=9,
                  ha="right" if left else "left", va="center")  # fmt: skip
