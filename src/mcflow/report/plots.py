"""Pictures of the report: matplotlib's SVG made small, themed by the page and the same from run to run."""

from __future__ import annotations

__all__ = ["FAINT", "FONT", "PALETTE", "STRONG", "WORDS", "new_panel", "squares", "to_svg"]

import io
import re
import warnings
from typing import Any
from xml.etree import ElementTree as ET

from mcflow.report.diagnostics_canvas import COVERED, INK, MISSED

#: Colours of several series, each with a variable of the page's style, so that one picture does for light and dark.
PALETTE = (MISSED, COVERED, "#1b9e77", "#b36bb0", "#8a7a20", "#c2477f", "#4f8a8b", "#7570b3")
#: The ground of cells that carry nothing.
FAINT = "#d0d4d9"
#: Words on colours.
STRONG = "#111111"
#: What a colour becomes on the page.
_VARIABLES = {INK: "var(--ink-soft)", FAINT: "var(--faint)", STRONG: "var(--ink)"} | {
    colour: f"var(--series-{place})" for place, colour in enumerate(PALETTE, start=1)
}
#: Size of words, in points.
FONT = 8.5
#: How words of the table are written: two dollars among them make no formula.
WORDS: dict[str, Any] = {"color": INK, "fontsize": FONT, "parse_math": False}

_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_LONG_NUMBER = re.compile(r"(-?\d+\.\d\d)\d+")
_COLOUR = re.compile(r"#[0-9a-f]{6}")


def new_panel(width: float, height: float, *, left: float, bottom: float, right: float = 0.1, top: float = 0.1) -> Any:
    """Return plain axes on a figure of their own that no window and no global state knows of.

    Parameters
    ----------
    width, height : float
        Of the figure, in inches.
    left, bottom, right, top : float
        Room around the axes, in inches.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> float(new_panel(4, 3, left=0.5, bottom=0.5).figure.get_figwidth())
    4.0
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="none")
    box = left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + top) / height
    axes = figure.add_axes(box)
    axes.set_facecolor("none")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(INK)
    axes.spines["bottom"].set_linewidth(0.6)
    axes.tick_params(colors=INK, labelsize=FONT, length=0, pad=3)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set(color=INK, fontsize=FONT)
        axis.get_offset_text().set(color=INK, fontsize=FONT - 1)
    axes.grid(axis="y", color=FAINT, lw=0.5)
    axes.set_axisbelow(True)
    return axes


def squares(axes: Any, places: list[tuple[float, float]], colour: str, alpha: float = 1.0, side: float = 0.9) -> None:
    """Draw squares around some places as one shape.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    places : list of (float, float)
        Middles.
    colour : str
        One of the report's.
    alpha : float, default=1.0
        How much of the colour.
    side : float, default=0.9
        Of a square.
    """
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
    """Return a figure as an SVG element for the inside of a page.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        On the figure.
    name : str
        What the names inside the picture begin with; each picture of a page has its own.
    label : str
        The picture in words, for those who do not see it.

    Returns
    -------
    str
        Words stay words; colours are variables of the page; no date, no name of a program.

    Examples
    --------
    >>> axes = new_panel(2, 1, left=0.3, bottom=0.3)
    >>> svg = to_svg(axes, "one", "Nothing <at all>")
    >>> svg.startswith("<svg") and 'aria-label="Nothing &lt;at all&gt;"' in svg
    True
    """
    import matplotlib as mpl

    words = io.StringIO()
    rules: dict[Any, Any] = {"svg.hashsalt": "mcflow", "svg.fonttype": "none"}
    with mpl.rc_context(rules), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that matplotlib's own font lacks: the browser has others
        axes.figure.savefig(
            words, format="svg", facecolor="none", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    root = ET.fromstring(words.getvalue())  # noqa: S314 - written by matplotlib a line above
    _strip(root)
    _rename(root, name)
    width, height = root.get("viewBox", "0 0 1 1").split()[2:]
    root.attrib = {"viewBox": f"0 0 {width} {height}", "role": "img", "aria-label": label}
    root.set("style", f"--w:{float(width) * 4 / 3:.0f}px")
    return ET.tostring(root, encoding="unicode")


def _strip(root: ET.Element) -> None:
    """Take from a picture what a page has no use for, and give it the page's colours and letters."""
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        element.tail = None
        if element.tag != "text":
            element.text = None
        for needless in ("clip-path", "id" if element.tag == "g" else ""):
            element.attrib.pop(needless, None)
        if (link := element.attrib.pop(_LINK, None)) is not None:
            element.set("href", link)
        if "style" in element.attrib:
            element.set("style", _themed(element.attrib["style"]))
        for key in element.attrib.keys() & {"d", "transform", "x", "y"}:
            element.set(key, _LONG_NUMBER.sub(r"\1", " ".join(element.attrib[key].split())))
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
    root[:] = [kept for child in root for kept in _flat(child)]


def _flat(element: ET.Element) -> list[ET.Element]:
    """Return an element without groups that only hold others, and without parts that nobody sees."""
    element[:] = [kept for child in element for kept in _flat(child)]
    unseen = element.tag == "path" and element.get("style") == "fill:none"
    if element.tag in ("metadata", "style", "clipPath") or unseen:
        return []
    if element.tag in ("g", "defs") and not (len(element) and element.attrib):
        return [] if not len(element) else list(element) if element.tag == "g" else [element]
    return [element]


def _themed(style: str) -> str:
    """Return a style with the page's colours, and without the name of a font."""
    parts = dict(part.strip().split(": ", 1) for part in style.split(";") if ": " in part)
    if "font" in parts:
        parts["font-size"] = parts.pop("font").split("px")[0].split()[-1] + "px"
    for needless in ("font-family", "stroke-linejoin", "stroke-linecap"):
        parts.pop(needless, None)
    return ";".join(f"{key}:{_COLOUR.sub(_variable, value)}" for key, value in parts.items())


def _variable(found: re.Match[str]) -> str:
    return _VARIABLES.get(found[0], found[0])


def _rename(root: ET.Element, name: str) -> None:
    """Keep only the names that are referred to, and make them this picture's own."""
    links = [element for element in root.iter() if "href" in element.attrib]
    used = {link.attrib["href"]: f"#{name}-{place}" for place, link in enumerate(links)}
    for element in root.iter():
        own = f"#{element.attrib.pop('id', '')}"
        if own in used:
            element.set("id", used[own][1:])
    for link in links:
        link.set("href", used[link.attrib["href"]])
