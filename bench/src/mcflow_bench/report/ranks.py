"""Rank methods over blocks, test whether they differ, and draw the critical-difference diagram."""

from __future__ import annotations

__all__ = [
    "INK",
    "SVG",
    "SVG_IN_INK",
    "Ranking",
    "cliques",
    "draw_ranks",
    "rank_methods",
    "svg_text",
    "svg_with_legend",
]

import io
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Colour of the diagram, a mid-grey that is readable on white and on black; an HTML page replaces it by its own.
INK = "#767676"
#: Settings of matplotlib for a figure that is the same every time, and those with text and axes in `INK`.
SVG: Any = {"svg.hashsalt": "mcflow", "svg.fonttype": "none", "font.family": "sans-serif"}
SVG_IN_INK: Any = SVG | dict.fromkeys(
    ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
)


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods; 1 is best."""

    ranks: dict[str, float]  # by method, best first
    n_blocks: int  # blocks in which all methods were measured
    p_value: float  # of Friedman's test of equal methods; NaN with fewer than three methods or two blocks
    critical: float  # Nemenyi's critical difference of mean ranks at 5 %; NaN with one block


def rank_methods(scores: Mapping[str, Mapping[Hashable, float]], methods: Sequence[str]) -> Ranking | None:
    r"""Rank methods by their scores over the blocks that all of them have.

    With :math:`k` methods, :math:`N` blocks and mean ranks :math:`R_j`, ties sharing theirs, Friedman's statistic and
    Nemenyi's critical difference are

    .. math:: \chi^2 = \frac{12 N}{k (k + 1)} \sum_j \Big(R_j - \frac{k + 1}{2}\Big)^2, \qquad
              \mathrm{CD} = q \sqrt{\frac{k (k + 1)}{6 N}},

    where the former is divided by :math:`1 - \sum (t^3 - t) / (N (k^3 - k))` for groups of :math:`t` ties, and
    :math:`q` is the 95 % quantile of the studentized range of :math:`k` over :math:`\sqrt 2`. Folds of one table share
    most of their training rows, so their blocks are not independent and the critical difference is too small.

    Examples
    --------
    >>> found = rank_methods({"a": {0: 1.0, 1: 1.0}, "b": {0: 2.0, 1: 3.0}}, ["a", "b"])
    >>> found.ranks, found.n_blocks, round(found.critical, 3)
    ({'a': 1.0, 'b': 2.0}, 2, 1.386)
    """
    from scipy.stats import chi2, rankdata, studentized_range

    blocks = _shared(scores, methods)
    k, n = len(methods), len(blocks)
    if k < 2 or n == 0:
        return None
    table = np.array([[scores[method][block] for method in methods] for block in blocks])
    ranks = rankdata(table, axis=1)  # (n_blocks, n_methods)
    means = ranks.mean(axis=0)
    order = sorted(range(k), key=lambda j: (means[j], j))
    p_value = math.nan
    if k > 2 and n > 1:
        untied = 1 - _ties(ranks) / (n * (k**3 - k))
        statistic = 12 * n / (k * (k + 1)) * float(((means - (k + 1) / 2) ** 2).sum())
        p_value = float(chi2.sf(statistic / untied, k - 1)) if untied > 0 else math.nan
    spread = float(studentized_range.ppf(0.95, k, math.inf)) / math.sqrt(2)
    critical = spread * math.sqrt(k * (k + 1) / (6 * n)) if n > 1 else math.nan
    return Ranking({methods[j]: float(means[j]) for j in order}, n, p_value, critical)


def _shared(scores: Mapping[str, Mapping[Hashable, float]], methods: Sequence[str]) -> list[Hashable]:
    first = scores.get(methods[0], {}) if methods else {}
    return [block for block in first if all(block in scores.get(method, {}) for method in methods)]


def _ties(ranks: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """Return the sum of t³ − t over groups of t equal ranks in a block."""
    counts = [np.unique(row, return_counts=True)[1].astype(float) for row in ranks]
    return float(sum((count**3 - count).sum() for count in counts))


def cliques(ranking: Ranking) -> list[tuple[float, float]]:
    """Return the lowest and highest mean rank of the largest groups of methods within the critical difference."""
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
    """Draw the critical-difference diagram as SVG: methods on one line, those that do not differ joined by bars."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    n = len(ranking.ranks)
    half = math.ceil(n / 2)
    bars = cliques(ranking) if math.isfinite(ranking.critical) else []
    with mpl.rc_context(SVG):
        figure = Figure(figsize=(8.5, 1.3 + 0.28 * half + 0.12 * len(bars)))
        axes: Any = figure.add_axes((0.27, 0, 0.46, 1))
        axes.set(xlim=(1, n), ylim=(-(half + 1) - 0.4 * len(bars), 2.4))
        axes.axis("off")
        _scale(axes, ranking, n, title)
        for place, (low, high) in enumerate(bars):
            height = -0.45 - 0.4 * place
            axes.plot([low - 0.04, high + 0.04], [height] * 2, lw=3, color=INK, clip_on=False)
        _names(axes, ranking, half, -0.5 - 0.4 * len(bars))
        return svg_text(figure)


def svg_text(figure: Any) -> str:
    """Return a figure of matplotlib as an SVG element that is the same every time."""
    target = io.StringIO()
    figure.savefig(
        target, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None, "Creator": None}
    )
    text = target.getvalue()
    return text[text.index("<svg") :]


def svg_with_legend(figure: Any, panels: Iterable[Any], n_columns: int) -> str:
    """Put one legend for all panels below a figure; return it as an SVG file that is the same every time."""
    handles = {text: line for axes in panels for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=n_columns, frameon=False)
    target = io.StringIO()
    figure.savefig(target, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return target.getvalue()


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
    """Write the better half on the left from top to bottom, and the others on the right from bottom to top."""
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
