"""Pictures made of squares: patterns of holes, columns that are missing together, and correlations."""

from __future__ import annotations

__all__ = ["draw_correlations", "draw_patterns", "draw_together"]

from typing import Any

from mcflow.report.diagnostics_canvas import COVERED, MISSED
from mcflow.report.plots import FAINT, FONT, STRONG, WORDS, new_panel, squares, to_svg
from mcflow.report.wording import clean, counted, share_text, signed_text

#: Inches of a square and of one that carries a number, letters of a name beside them, and inches of a letter.
SIDE, WIDE_SIDE, LETTERS, LETTER = 0.24, 0.38, 24, 0.075
#: Steps in which colours are laid on.
STEPS = 10
#: Columns up to which squares carry their number.
NUMBERED = 10


def draw_patterns(facts: dict[str, Any], n_rows: int, name: str) -> str:
    """Draw the commonest patterns: a row of squares a pattern, full where a column is missing.

    Parameters
    ----------
    facts : dict
        Patterns, from `report_facts`.
    n_rows : int
        Of the table.
    name : str
        Of the picture.

    Returns
    -------
    str
        SVG.
    """
    names, patterns = facts["columns"], facts["commonest"]
    counts = [_count(one, n_rows) for one in patterns]
    axes = _grid(names, [""] * len(patterns), right=0.15 + LETTER * max(map(len, counts)))
    full: list[tuple[float, float]] = []
    empty: list[tuple[float, float]] = []
    for y, one in enumerate(patterns):
        for x in range(len(names)):
            (full if x in one["missing"] else empty).append((float(x), float(y)))
        axes.text(len(names) - 0.3, y, counts[y], va="center", **WORDS)
    squares(axes, empty, FAINT, 0.45)
    squares(axes, full, MISSED, 0.9)
    return to_svg(axes, name, _pattern_words(facts, n_rows))


def _count(one: dict[str, Any], n_rows: int) -> str:
    return f"{counted(one['rows'], 'row')}, {share_text(one['rows'] / n_rows)}"


def _pattern_words(facts: dict[str, Any], n_rows: int) -> str:
    words = []
    for one in facts["commonest"][:6]:
        absent = ", ".join(facts["columns"][k] for k in one["missing"][:6]) or "nothing"
        others = one["n_missing"] - len(one["missing"][:6])
        words.append(f"{_count(one, n_rows)} lack {absent}" + (f" and {others} more" if others > 0 else ""))
    return "Map of the commonest patterns of missing cells. " + "; ".join(words) + "."


def draw_together(facts: dict[str, Any], name: str) -> str:
    """Draw which columns are missing together: of the rows that lack one, the share that lack another too.

    Parameters
    ----------
    facts : dict
        Shares, from `report_facts`.
    name : str
        Of the picture.

    Returns
    -------
    str
        SVG.
    """
    names, shares = facts["columns"], facts["shares"]
    axes = _grid(names, names)
    _shade(axes, [[share if x != y else None for x, share in enumerate(row)] for y, row in enumerate(shares)])
    if len(names) <= NUMBERED:
        _write(axes, [[f"{100 * s:.0f}" if x != y else "" for x, s in enumerate(r)] for y, r in enumerate(shares)])
    pairs = "; ".join(f"{p['first']} and {p['second']} {p['correlation']:.2f}" for p in facts["pairs"][:5])
    words = (
        f"Pairs whose holes agree most, by correlation: {pairs}." if pairs else "No two columns agree in their holes."
    )
    return to_svg(axes, name, f"Map of columns that are missing together. {words}")


def draw_correlations(facts: dict[str, Any], name: str) -> str:
    """Draw correlations: below the diagonal between observed cells, above it in the filled table.

    Parameters
    ----------
    facts : dict
        Correlations, from `report_facts`.
    name : str
        Of the picture.

    Returns
    -------
    str
        SVG.
    """
    names = facts["columns"]
    axes = _grid(names, names)
    found = [
        [facts["before" if x < y else "after"][y][x] if x != y else None for x in range(len(names))]
        for y in range(len(names))
    ]
    _shade(axes, found)
    if len(names) <= NUMBERED:
        _write(axes, [["" if r is None else signed_text(r) for r in row] for row in found])
    moved = "; ".join(
        f"{p['first']} and {p['second']} from {p['before']:.2f} to {p['after']:.2f}" for p in facts["pairs"][:5]
    )
    words = f"Pairs that moved most: {moved}." if moved else "No pair moved."
    return to_svg(axes, name, f"Map of correlations before and after the fill. {words}")


def _grid(across: list[str], down: list[str], right: float = 0.1) -> Any:
    """Return axes with a square for every pair, names above and at the left."""
    above, beside = ([clean(text, LETTERS) for text in texts] for texts in (across, down))
    left = 0.15 + LETTER * max(map(len, beside), default=0)
    top = 0.2 + 0.8 * LETTER * max(map(len, above), default=0)
    slant = 0.55 * LETTER * max(map(len, above), default=0)
    room = max(right, slant)
    side = WIDE_SIDE if across == down and len(across) <= NUMBERED else SIDE
    axes = new_panel(
        left + room + side * len(across), top + 0.1 + side * len(down), left=left, bottom=0.1, right=room, top=top
    )
    axes.set_xlim(-0.5, len(across) - 0.5)
    axes.set_ylim(len(down) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    axes.set_yticks([])
    for x, text in enumerate(above):
        axes.text(x, -0.6, text, rotation=55, rotation_mode="anchor", ha="left", va="bottom", **WORDS)
    for y, text in enumerate(beside):
        axes.text(-0.7, y, text, ha="right", va="center", **WORDS)
    return axes


def _shade(axes: Any, found: list[list[float | None]]) -> None:
    """Draw squares, blue above zero and orange below it, the more colour the farther from it."""
    groups: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for y, row in enumerate(found):
        for x, value in enumerate(row):
            step = 0 if value is None else round(abs(value) * STEPS)
            colour = FAINT if not step else COVERED if (value or 0) > 0 else MISSED
            groups.setdefault((colour, step), []).append((float(x), float(y)))
    for (colour, step), places in sorted(groups.items()):
        squares(axes, places, colour, 0.8 * step / STEPS if step else 0.35)


def _write(axes: Any, texts: list[list[str]]) -> None:
    for y, row in enumerate(texts):
        for x, text in enumerate(row):
            if text:
                axes.text(x, y, text, ha="center", va="center", color=STRONG, fontsize=FONT - 0.5)
