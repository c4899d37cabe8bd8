"""Matplotlib figures for diagnostics and reports: colours, panels, axes, legends and export to themed SVG."""

from __future__ import annotations

__all__ = [
    "add_legend",
    "area_key",
    "axis_values",
    "check_matplotlib",
    "date_ticks",
    "first_day",
    "label_axis",
    "line_key",
    "new_panel",
    "panel_grid",
    "round_ticks",
    "shorten",
    "squares",
    "to_svg",
]

import io
import math
import re
import textwrap
import warnings
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np

from mcflow.columns.schema import Column
from mcflow.errors import MissingExtraError
from mcflow.evaluation.wording import MICROSECONDS_PER_DAY
from mcflow.installation import install_extra
from mcflow.typing import Array, FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#767676"  #: Colour of text and axes, legible on white and on black.
BLUE = "#2b7fc4"  #: First of the two main colours, which colour-blind readers can tell apart on white and on black.
ORANGE = "#d9621c"  #: Second main colour.
#: Colours of several series in the order of the page's CSS variables.
PALETTE = (ORANGE, BLUE, "#1b9e77", "#b36bb0", "#8a7a20", "#c2477f", "#4f8a8b", "#7570b3")
ACCENTS = (PALETTE[0], PALETTE[2], PALETTE[3])  #: Colours that highlight single lines among blue ones.
FAINT = "#d0d4d9"  #: Background of empty cells in a map.
STRONG = "#111111"  #: Text on coloured backgrounds.
DASHED = (0, (4, 2))  #: Line style of reference lines.
MAX_PANELS = 24  #: Maximum number of panels in one figure.
FONT_SIZE = 8.5  #: Font size of pictures in a page, in points.
#: Style of text that comes from the table, in which dollar signs do not start a formula.
TABLE_TEXT: dict[str, Any] = {"color": INK, "fontsize": FONT_SIZE, "parse_math": False}
_TITLE_DENSITY = 14.0  #: Characters per inch in titles.
_LEGEND_DENSITY = 13.0  #: Characters per inch in legends.
#: CSS variables that replace colours, so that one picture serves the light and the dark theme.
_CSS_VARIABLES = {INK: "var(--ink-soft)", FAINT: "var(--faint)", STRONG: "var(--ink)"} | {
    colour: f"var(--series-{place})" for place, colour in enumerate(PALETTE, start=1)
}
_SVG_NAMESPACE = "{http://www.w3.org/2000/svg}"
_LINK_ATTRIBUTE = "{http://www.w3.org/1999/xlink}href"
_NEEDLESS = ("metadata", "style", "clipPath")  #: Elements of matplotlib's SVG that are removed.
_LONG_NUMBER = re.compile(r"(-?\d+\.\d\d)\d+")
_COLOUR = re.compile(r"#[0-9a-f]{6}")


def check_matplotlib() -> None:
    """Raise `MissingExtraError` if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"Diagnostic plots need matplotlib: {install_extra('report')}") from error


def panel_grid(n_panels: int, title: str, *, side: float = 2.2, width: float = 2.5) -> tuple[Figure, list[Any]]:
    """Return a transparent figure, unknown to pyplot, with small panels of equal size."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    n_across = min(n_panels, max(3, math.ceil(math.sqrt(1.3 * n_panels))))
    n_down = math.ceil(n_panels / n_across)
    whole = max(6.0, width * n_across)
    n_lines = math.ceil(len(title) / (whole * _TITLE_DENSITY)) + title.count("\n")
    height = (side + (0.9 if n_down == 1 else 0)) * n_down + 0.2 * n_lines + 0.5
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    figure = Figure(figsize=(whole, height), layout=layout, facecolor="none")
    lines = [textwrap.fill(line, int(whole * _TITLE_DENSITY)) for line in title.splitlines()]
    figure.suptitle("\n".join(lines), fontsize=10, color=INK, x=0.01, ha="left")
    return figure, [_styled(figure.add_subplot(n_down, n_across, place + 1)) for place in range(n_panels)]


def _styled(axes: Any) -> Any:
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(colors=INK, labelsize=7, length=2.5)
    axes.title.set(color=INK, fontsize=8)
    axes.locator_params(nbins=5)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set(color=INK, fontsize=8)
        axis.get_offset_text().set(color=INK, fontsize=6)
    return axes


def line_key(label: str, colour: str, **style: Any) -> Any:
    """Return a legend entry with a line or a marker."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, label=label, **style)


def area_key(label: str, colour: str, alpha: float) -> Any:
    """Return a legend entry with a filled area."""
    from matplotlib.patches import Patch

    return Patch(color=colour, alpha=alpha, lw=0, label=label)


def add_legend(figure: Any, handles: list[Any]) -> None:
    """Add a legend below all panels, in as many columns as fit."""
    room = figure.get_figwidth() * _LEGEND_DENSITY
    lengths = [len(handle.get_label()) + 9 for handle in handles]  # 9 characters for the mark and its padding
    n_cols = len(handles)
    while n_cols > 1:
        n_down = math.ceil(len(lengths) / n_cols)  # matplotlib fills a legend column by column
        if sum(max(lengths[start : start + n_down]) for start in range(0, len(lengths), n_down)) <= room:
            break
        n_cols -= 1
    figure.legend(handles=handles, loc="outside lower center", ncols=n_cols, frameon=False, fontsize=8, labelcolor=INK)


def axis_values(codes: FloatArray, column: Column) -> Array:
    """Convert codes to axis coordinates: dates to days of matplotlib, durations to days, others unchanged."""
    if (column.base or column.kind) != "datetime":
        return codes
    days: FloatArray = codes * (column.step / MICROSECONDS_PER_DAY)
    return days if column.dtype.startswith("duration") else days + first_day()


def first_day() -> float:
    """Return 1970-01-01 in days of matplotlib, whose epoch is configurable."""
    from matplotlib import dates

    return float(dates.date2num(np.datetime64("1970-01-01")))  # type: ignore[no-untyped-call]


def label_axis(axis: Any, column: Column) -> None:
    """Set ticks that suit the values of a column, and the unit of durations and of times with a time zone."""
    if (column.base or column.kind) != "datetime":
        axis.set_major_locator(round_ticks(4))
    elif column.dtype.startswith("duration"):
        axis.set_label_text("days")
    else:
        date_ticks(axis, 5)
        if "tz=" in column.dtype:
            axis.set_label_text("UTC")


def round_ticks(n_intervals: int) -> Any:
    """Return a locator of ticks at round numbers."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=n_intervals, steps=[1, 2, 2.5, 5, 10])


def date_ticks(axis: Any, max_ticks: int) -> None:
    """Set ticks at round dates."""
    from matplotlib import dates

    locator = dates.AutoDateLocator(minticks=2, maxticks=max_ticks)  # type: ignore[no-untyped-call]
    axis.set_major_locator(locator)
    axis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def shorten(name: object, max_length: int = 22) -> str:
    """Return a name that fits above a panel, with dollar signs escaped."""
    text = " ".join(str(name).split()).replace("$", r"\$")
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def new_panel(width: float, height: float, *, left: float, bottom: float, right: float = 0.1, top: float = 0.1) -> Any:
    """Return axes on a figure of their own for a picture in a page; sizes and margins in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="none")
    box = left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + top) / height
    axes = figure.add_axes(box)
    axes.set_facecolor("none")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(INK)
    axes.spines["bottom"].set_linewidth(0.6)
    axes.tick_params(colors=INK, labelsize=FONT_SIZE, length=0, pad=3)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set(color=INK, fontsize=FONT_SIZE)
        axis.get_offset_text().set(color=INK, fontsize=FONT_SIZE - 1)
    axes.grid(axis="y", color=FAINT, lw=0.5)
    axes.set_axisbelow(True)
    return axes


def squares(axes: Any, places: list[tuple[float, float]], colour: str, alpha: float = 1.0, side: float = 0.9) -> None:
    """Draw squares around points as one path, which keeps the SVG small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if not places:
        return
    h = side / 2
    corners = [[(x - h, y - h), (x + h, y - h), (x + h, y + h), (x - h, y + h), (x - h, y - h)] for x, y in places]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(places)
    path = Path([corner for square in corners for corner in square], codes)
    axes.add_patch(PathPatch(path, facecolor=colour, edgecolor="none", alpha=alpha, clip_on=False))


def to_svg(axes: Any, name: str, label: str) -> str:
    """Return a figure as a small SVG element with the colours of the page, the same in every run."""
    import matplotlib as mpl

    text = io.StringIO()
    settings: dict[Any, Any] = {"svg.hashsalt": name, "svg.fonttype": "none"}  # the salt makes ids unique in a page
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about glyphs that matplotlib's font lacks: the browser has other fonts
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        axes.figure.savefig(text, format="svg", facecolor="none", metadata=nothing)
    root = ET.fromstring(text.getvalue())  # noqa: S314 - written by matplotlib a line above
    _simplify(root)
    width, height = root.get("viewBox", "0 0 1 1").split()[2:]
    root.attrib = {"viewBox": f"0 0 {width} {height}", "role": "img", "aria-label": label}
    root.set("style", f"--w:{float(width) * 4 / 3:.0f}px")
    return ET.tostring(root, encoding="unicode")


def _simplify(root: ET.Element) -> None:
    """Remove what a page does not need, and apply the colours and fonts of the page."""
    for element in list(root.iter()):
        element.tag = element.tag.removeprefix(_SVG_NAMESPACE)
        element.tail = None
        if element.tag != "text":
            element.text = None
        for needless in ("clip-path", "id" if element.tag == "g" else ""):
            element.attrib.pop(needless, None)
        if (link := element.attrib.pop(_LINK_ATTRIBUTE, None)) is not None:
            element.set("href", link)
        if "style" in element.attrib:
            element.set("style", _themed(element.attrib["style"]))
        for key in element.attrib.keys() & {"d", "transform", "x", "y"}:
            element.set(key, _LONG_NUMBER.sub(r"\1", " ".join(element.attrib[key].split())))
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
    for element in list(root.iter()):
        element[:] = [child for child in element if child.tag not in _NEEDLESS and child.get("style") != "fill:none"]


def _themed(style: str) -> str:
    """Return a style with CSS variables for colours, and without font names."""
    parts = dict(part.strip().split(": ", 1) for part in style.split(";") if ": " in part)
    if "font" in parts:
        parts["font-size"] = parts.pop("font").split("px")[0].split()[-1] + "px"
    for needless in ("font-family", "stroke-linejoin", "stroke-linecap"):
        parts.pop(needless, None)
    return ";".join(
        f"{key}:{_COLOUR.sub(lambda found: _CSS_VARIABLES.get(found[0], found[0]), value)}"
        for key, value in parts.items()
    )
