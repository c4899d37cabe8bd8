"""SVG pictures of the HTML report, drawn from its facts."""

from __future__ import annotations

__all__ = ["draw_pictures"]

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mcflow.evaluation.wording import clean, counted, number_text, share_text, signed_text
from mcflow.report import canvas
from mcflow.report.canvas import BLUE, FAINT, INK, ORANGE, TABLE_TEXT
from mcflow.typing import FloatArray

MAX_LISTED_FIRST = 15  #: Number of columns above which missing shares are also shown as a histogram.
MAX_EVALUATED = 40  #: Maximum number of columns in the picture of an evaluation.
#: Matplotlib markers of methods, which do not rely on colour, and the characters for them in the legend.
MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖", "p": "⬟"}
CHARACTER_WIDTH = 0.075  #: Width of a character, in inches.
N_SHADES = 10  #: Number of shades of a colour in a map.
MAX_NUMBERED = 10  #: Maximum number of columns of a map whose squares contain numbers.
COLUMN_WIDTH = 3.3  #: Width of the picture of a column, in inches.


def draw_pictures(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Draw all pictures of a report: a list under "columns", single pictures under the other names."""
    missing = facts["missing"]
    found: dict[str, Any] = {"columns": [_column(c, f"c{k}") for k, c in enumerate(facts["columns"]["drawn"])]}
    if missing["patterns"]["columns"]:
        found["patterns"] = _patterns(missing["patterns"], missing["rows"])
    if missing["co_missing"]["columns"]:
        found["co_missing"] = _co_missing(missing["co_missing"])
    if missing["n_columns"] > MAX_LISTED_FIRST and missing["missing"]:
        found["shares"] = _shares(missing["by_share"])
    if facts["correlations"] is not None:
        found["correlations"] = _correlations(facts["correlations"])
    if facts["calibration"] is not None:
        found["coverage"] = _coverage(facts["calibration"])
    return found | _training(facts["training"]) | _evaluation(facts["evaluation"])


def _training(facts: Mapping[str, Any] | None) -> dict[str, str]:
    if facts is None or not facts["epochs"]:
        return {}
    epochs, starts = facts["epochs"], facts["stage_starts"]
    found = {"latent": _curve(epochs, facts["latent_loss"], starts, "latent", "Loss of the network H")}
    if facts["has_flow_loss"]:
        found["flow"] = _curve(epochs, facts["flow_loss"], starts, "flow", "Loss of the flow G")
    if facts["validation"]:
        validated, errors = zip(*facts["validation"], strict=True)
        words = "Mean squared error on validation cells"
        found["validation"] = _curve(validated, errors, [], "validation", words)
    return found


def _curve(epochs: Sequence[int], values: Sequence[float], starts: Sequence[int], name: str, words: str) -> str:
    """Draw a quantity by epoch, with vertical lines at the starts of stages."""
    from matplotlib.ticker import MaxNLocator

    axes = canvas.new_panel(4.4, 2.0, left=0.55, bottom=0.42)
    for start in starts:
        axes.axvline(start - 0.5, color=INK, lw=0.6, ls=(0, (3, 2)))
    axes.plot(epochs, values, color=BLUE, lw=1.6, marker="o" if len(epochs) < 30 else "", markersize=3)
    axes.set_xlabel("epoch")
    axes.set_xlim(min(epochs) - 0.5, max(epochs) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}".replace("-", "−"))
    first, last, low, high = map(number_text, (values[0], values[-1], min(values), max(values)))
    stages = f" {len(starts) + 1} stages." if starts else ""
    label = f"{words} by epoch: first {first}, last {last}, lowest {low}, highest {high}.{stages}"
    return canvas.to_svg(axes, name, label)


def _shares(bins: Sequence[Mapping[str, Any]]) -> str:
    """Draw the number of columns by their share of missing cells."""
    labels = ["none" if not b["to"] else f"≤ {share_text(b['to'])}" for b in bins]
    counts = [b["columns"] for b in bins]
    axes = canvas.new_panel(4.4, 1.9, left=0.5, bottom=0.42)
    axes.bar(range(len(bins)), counts, 0.72, color=ORANGE, alpha=0.75, lw=0)
    axes.set_xticks(range(len(bins)), labels)
    axes.set_xlabel("share of missing cells")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    words = "; ".join(f"{label}: {count:,} columns" for label, count in zip(labels, counts, strict=True))
    return canvas.to_svg(axes, "shares", f"Columns by their share of missing cells. {words}.")


def _coverage(facts: Mapping[str, Any]) -> str:
    """Draw the coverage of validation cells by the level of the intervals."""
    axes = canvas.new_panel(3.6, 3.3, left=0.6, bottom=0.45)
    levels = [100 * level for level in facts["levels"]]
    low, high = ([100 * share for share in ends] for ends in facts["band"])
    axes.plot([0, 100], [0, 100], color=INK, lw=0.8, ls=canvas.DASHED)
    axes.fill_between(levels, low, high, color=INK, alpha=0.25, lw=0)
    axes.plot(levels, [100 * s for s in facts["uncalibrated"]], color=BLUE, lw=1.3, marker="s", markersize=3.5)
    axes.plot(levels, [100 * s for s in facts["calibrated"]], color=ORANGE, lw=1.6, marker="o", markersize=3.5)
    axes.set(xlim=(0, 100), ylim=(0, 100))
    axes.set_xlabel("level of the interval")
    axes.set_ylabel("coverage of validation cells")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda share, _: f"{share:g} %")
    found = "; ".join(
        f"{share_text(level)}: {share_text(before)} uncalibrated, {share_text(after)} calibrated"
        for level, before, after in zip(facts["levels"], facts["uncalibrated"], facts["calibrated"], strict=True)
    )
    return canvas.to_svg(axes, "coverage", f"Coverage of intervals by their level. {found}.")


def _evaluation(facts: Mapping[str, Any] | None) -> dict[str, str]:
    """Draw the relative errors of methods, with one line of markers per column."""
    columns = [c for c in facts["per_column"] if c["hidden"]][:MAX_EVALUATED] if facts else []
    if not facts or not columns:
        return {}
    errors = {  # by method and column
        method["name"]: [(column["methods"].get(method["name"]) or {}).get("relative") for column in columns]
        for method in facts["methods"]
    }
    names = [clean(column["name"], 26) for column in columns]
    left = 0.2 + CHARACTER_WIDTH * max(map(len, names), default=1)
    axes = canvas.new_panel(left + 4.2, 0.5 + 0.24 * len(names), left=left, bottom=0.42)
    axes.axvline(1, color=INK, lw=0.8, ls=canvas.DASHED)
    for own, marker, colour in zip(errors.values(), MARKERS, canvas.PALETTE, strict=False):
        dots = [(min(error, 2.0), y) for y, error in enumerate(own) if error is not None]
        axes.plot([x for x, _ in dots], [y for _, y in dots], marker, color=colour, markersize=5, alpha=0.9, mew=0)
    axes.set_yticks(range(len(names)), names, **TABLE_TEXT)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, None)
    axes.grid(axis="x", color=FAINT, lw=0.4)
    axes.set_xlabel("error relative to the mean or the most frequent category; lower is better")
    words = []
    for y, column in enumerate(columns[:8]):
        shown = ", ".join(f"{method} {own[y]:.2f}" for method, own in errors.items() if own[y] is not None)
        words.append(f"{column['name']}: {shown}")
    label = f"Errors relative to the mean's by column. {'; '.join(words)}{'.' if len(columns) <= 8 else '; and more.'}"
    return {"errors": canvas.to_svg(axes, "errors", label)}


def _patterns(facts: Mapping[str, Any], n_rows: int) -> str:
    """Draw the most frequent missingness patterns: one row of squares per pattern, filled where a column is missing."""
    names, patterns = facts["columns"], facts["most_frequent"]
    counts = [f"{counted(one['rows'], 'row')}, {share_text(one['rows'] / n_rows)}" for one in patterns]
    axes = _grid(names, [""] * len(patterns), right=0.15 + CHARACTER_WIDTH * max(map(len, counts)))
    words = []
    for y, one in enumerate(patterns):
        axes.text(len(names) - 0.3, y, counts[y], va="center", **TABLE_TEXT)
        absent = ", ".join(names[k] for k in one["missing"][:6]) or "nothing"
        others = one["n_missing"] - len(one["missing"][:6])
        words.append(f"{counts[y]} lack {absent}" + (f" and {others} more" if others > 0 else ""))
    cells = [(x, y, x in one["missing"]) for y, one in enumerate(patterns) for x in range(len(names))]
    canvas.squares(axes, [(x, y) for x, y, missing in cells if not missing], FAINT, 0.45)
    canvas.squares(axes, [(x, y) for x, y, missing in cells if missing], ORANGE, 0.9)
    return canvas.to_svg(axes, "patterns", f"Map of the most frequent missingness patterns. {'; '.join(words[:6])}.")


def _co_missing(facts: Mapping[str, Any]) -> str:
    """Draw, for the rows that lack one column, the share that also lack another."""
    names, shares = facts["columns"], facts["shares"]
    axes = _grid(names, names)
    found = [[share if x != y else None for x, share in enumerate(row)] for y, row in enumerate(shares)]
    _shade(axes, found, lambda share: f"{100 * share:.0f}")
    pairs = "; ".join(f"{p['first']} and {p['second']} {p['correlation']:.2f}" for p in facts["pairs"][:5])
    words = f"Most correlated missingness: {pairs}." if pairs else "No two columns have correlated missingness."
    return canvas.to_svg(axes, "co-missing", f"Map of columns that are missing together. {words}")


def _correlations(facts: Mapping[str, Any]) -> str:
    """Draw correlations: below the diagonal between observed cells, above it in the filled table."""
    names = facts["columns"]
    axes = _grid(names, names)
    found = [
        [facts["before" if x < y else "after"][y][x] if x != y else None for x in range(len(names))]
        for y in range(len(names))
    ]
    _shade(axes, found, signed_text)
    changed = "; ".join(
        f"{p['first']} and {p['second']} from {p['before']:.2f} to {p['after']:.2f}" for p in facts["pairs"][:5]
    )
    words = f"Largest changes: {changed}." if changed else "No correlation changed."
    return canvas.to_svg(axes, "correlations", f"Map of correlations before and after imputation. {words}")


def _grid(across: list[str], down: list[str], right: float = 0.1) -> Any:
    """Return axes for a map of squares, with names above and at the left."""
    above, beside = ([clean(text, 24) for text in texts] for texts in (across, down))
    left = 0.15 + CHARACTER_WIDTH * max(map(len, beside), default=0)
    top = 0.2 + 0.8 * CHARACTER_WIDTH * max(map(len, above), default=0)
    slant = 0.55 * CHARACTER_WIDTH * max(map(len, above), default=0)
    room = max(right, slant)
    side = 0.38 if across == down and len(across) <= MAX_NUMBERED else 0.24  # wide squares contain numbers
    width, height = left + room + side * len(across), top + 0.1 + side * len(down)
    axes = canvas.new_panel(width, height, left=left, bottom=0.1, right=room, top=top)
    axes.set_xlim(-0.5, len(across) - 0.5)
    axes.set_ylim(len(down) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    axes.set_yticks([])
    for x, text in enumerate(above):
        axes.text(x, -0.6, text, rotation=55, rotation_mode="anchor", ha="left", va="bottom", **TABLE_TEXT)
    for y, text in enumerate(beside):
        axes.text(-0.7, y, text, ha="right", va="center", **TABLE_TEXT)
    return axes


def _shade(axes: Any, found: list[list[float | None]], text: Callable[[float], str]) -> None:
    """Draw squares, blue above zero and orange below, more opaque for larger absolute values; number a small map."""
    groups: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for y, row in enumerate(found):
        for x, value in enumerate(row):
            shade = 0 if value is None else round(abs(value) * N_SHADES)
            colour = FAINT if not shade else BLUE if (value or 0) > 0 else ORANGE
            groups.setdefault((colour, shade), []).append((x, y))
            if value is not None and len(found) <= MAX_NUMBERED:
                style = {"color": canvas.STRONG, "fontsize": canvas.FONT_SIZE - 0.5}
                axes.text(x, y, text(value), ha="center", va="center", **style)
    for (colour, shade), places in sorted(groups.items()):
        canvas.squares(axes, places, colour, 0.8 * shade / N_SHADES if shade else 0.35)


def _column(facts: Mapping[str, Any], name: str) -> str:
    """Draw the shares of the observed and filled cells of a column by bin or category."""
    words = f"{facts['name']}: {facts['observed']:,} observed and {facts['filled']:,} filled cells."
    if facts["axis"] == "categories":
        shares = zip(facts["categories"], facts["observed_shares"], facts["filled_shares"], strict=True)
        listed = "; ".join(f"{word} {seen:.0f} % of observed, {new:.0f} % of filled" for word, seen, new in shares)
        return canvas.to_svg(_column_categories(facts), name, f"Bars for {words} {listed}.")
    seen, new = (" / ".join(facts[f"{which}_quartiles"]) for which in ("observed", "filled"))
    quartiles = f"Quartiles of the observed cells {seen}, of the filled cells {new}."
    return canvas.to_svg(_column_numbers(facts), name, f"Histograms of {words} {quartiles}")


def _column_numbers(facts: Mapping[str, Any]) -> Any:
    axes = canvas.new_panel(COLUMN_WIDTH, 1.75, left=0.42, bottom=0.28)
    edges, low, high = np.array(facts["edges"]), facts["lowest_shares"], facts["highest_shares"]
    edges += canvas.first_day() if facts["axis"] == "date" else 0
    axes.stairs(facts["observed_shares"], edges, fill=True, color=BLUE, alpha=0.4, lw=0)
    if low != high:
        axes.stairs(high, edges, baseline=low, fill=True, color=ORANGE, alpha=0.3, lw=0)
    axes.stairs(facts["filled_shares"], edges, color=ORANGE, lw=1.6, baseline=None)
    axes.set_ylim(bottom=0)
    axes.set_xlim(edges[0], edges[-1])
    axes.yaxis.set_major_locator(canvas.round_ticks(3))
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:g} %")
    _label_values(axes.xaxis, facts["axis"], edges)
    return axes


def _label_values(axis: Any, kind: str, edges: FloatArray) -> None:
    """Set the ticks of an axis of dates, durations or numbers."""
    if kind == "date":
        canvas.date_ticks(axis, 4)
        axis.get_offset_text().set_visible(False)
        return
    base = float(edges[0])
    if kind == "number" and edges[-1] - base < 1e-4 * abs(base):  # large numbers with small differences
        axis.set_ticks([base, float(edges[-1])], [f"{base:,.0f}", "+" + _short_number(float(edges[-1]) - base)])
        for label, side in zip(axis.get_ticklabels(), ("left", "right"), strict=True):
            label.set_horizontalalignment(side)
        return
    axis.set_major_locator(canvas.round_ticks(4))
    axis.set_major_formatter(_short_number if kind == "number" else lambda days, _: f"{days:g} d")


def _short_number(value: float, _: Any = None) -> str:
    """Return a number with a suffix for thousands, millions, billions or trillions."""
    for limit, scale, suffix in ((1e15, 1.0, ""), (1e12, 1e12, "T"), (1e9, 1e9, "B"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= limit:
            return f"{value / scale:.5g}{suffix}".replace("-", "−")
    return f"{value:.5g}".replace("-", "−")


def _column_categories(facts: Mapping[str, Any]) -> Any:
    names = [clean(category, 21) for category in facts["categories"]]
    low, high = facts["lowest_shares"], facts["highest_shares"]
    axes = canvas.new_panel(COLUMN_WIDTH, 0.42 + 0.3 * len(names), left=1.42, bottom=0.28)
    places = np.arange(len(names))
    axes.barh(places - 0.19, facts["observed_shares"], 0.34, color=BLUE, alpha=0.55, lw=0)
    axes.barh(places + 0.19, facts["filled_shares"], 0.34, color=ORANGE, alpha=0.75, lw=0)
    if low != high:
        axes.hlines(places + 0.19, low, high, color=INK, lw=1)
    axes.set_yticks(places, names, **TABLE_TEXT)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=FAINT, lw=0.5)
    axes.xaxis.set_major_locator(canvas.round_ticks(3))
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:g} %")
    return axes
