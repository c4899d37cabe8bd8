"""What the diagnostic pictures are drawn on: panels, colours and axes that can be read on white and on black."""

from __future__ import annotations

__all__ = [
    "COVERED",
    "INK",
    "MISSED",
    "MOST_PANELS",
    "WARM",
    "add_legend",
    "axis_values",
    "chance_band",
    "check_matplotlib",
    "label_axis",
    "new_figure",
    "panel_grid",
    "percent",
    "shorten",
    "thin",
]

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from mcflow.data.schema import Column
from mcflow.errors import MissingExtraError
from mcflow.typing import Array, FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Words and axes: a mid-grey that can be read on white and on black.
INK = "#767676"
#: The two colours of every picture, which people who see red and green alike can tell apart, on white and on black.
COVERED, MISSED = "#2b7fc4", "#d9621c"
#: More of them, for single columns.
WARM = ("#d9621c", "#1b9e77", "#b36bb0")

#: Panels that one picture has at most.
MOST_PANELS = 24
#: Characters that an inch holds in titles, and below, where each entry needs room between the next and itself.
_PER_INCH, _PER_INCH_BELOW = 14.0, 13.0
_MICROSECONDS_A_DAY = 86_400_000_000


def check_matplotlib() -> None:
    """Make sure that matplotlib is there, before anything that takes time.

    Raises
    ------
    MissingExtraError
        With the line that installs it.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("Diagnostic pictures need matplotlib: pip install 'mcflow[report]'") from error


def new_figure(width: float, height: float, title: str) -> Figure:
    """Return an empty figure with a see-through ground, which no window and no global state knows of.

    Parameters
    ----------
    width, height : float
        In inches.
    title : str
        Written above; long ones are broken into lines.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> new_figure(4, 3, "A title").get_suptitle()
    'A title'
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    figure = Figure(figsize=(width, height), layout=layout, facecolor="none")
    lines = [textwrap.fill(line, int(width * _PER_INCH)) for line in title.splitlines()]
    figure.suptitle("\n".join(lines), fontsize=10, color=INK, x=0.01, ha="left")
    return figure


def panel_grid(n_panels: int, title: str, *, side: float = 2.2, width: float = 2.5) -> tuple[Figure, list[Any]]:
    """Return a figure with small panels of one size.

    Parameters
    ----------
    n_panels : int
        At least 1.
    title : str
        Written above all.
    side : float, default=2.2
        Height of a panel in inches.
    width : float, default=2.5
        Its width.

    Returns
    -------
    figure : matplotlib.figure.Figure
    panels : list of matplotlib.axes.Axes

    Examples
    --------
    >>> len(panel_grid(5, "Five columns")[1])
    5
    """
    n_across = min(n_panels, max(3, math.ceil(math.sqrt(1.3 * n_panels))))
    n_down = math.ceil(n_panels / n_across)
    whole = max(6.0, width * n_across)
    lines = math.ceil(len(title) / (whole * _PER_INCH)) + title.count("\n")
    figure = new_figure(whole, (side + (0.9 if n_down == 1 else 0)) * n_down + 0.2 * lines + 0.5, title)
    panels = [_plain(figure.add_subplot(n_down, n_across, place + 1)) for place in range(n_panels)]
    return figure, panels


def _plain(axes: Any) -> Any:
    """Take from a panel what carries no information, and give the rest the colour of words."""
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(colors=INK, labelsize=7, length=2.5)
    axes.xaxis.label.set(color=INK, fontsize=8)
    axes.yaxis.label.set(color=INK, fontsize=8)
    axes.title.set(color=INK, fontsize=8)
    axes.locator_params(nbins=5)
    axes.xaxis.get_offset_text().set(color=INK, fontsize=6)
    axes.yaxis.get_offset_text().set(color=INK, fontsize=6)
    return axes


def add_legend(figure: Any, handles: list[Any]) -> None:
    """Write what the marks mean below all panels; handles carry their words as labels."""
    room = figure.get_figwidth() * _PER_INCH_BELOW
    n_across = len(handles)
    while n_across > 1 and _width([len(handle.get_label()) for handle in handles], n_across) > room:
        n_across -= 1
    figure.legend(
        handles=handles, loc="outside lower center", ncols=n_across, frameon=False, fontsize=8, labelcolor=INK
    )


def _width(lengths: list[int], n_across: int) -> int:
    """Return the characters that a legend takes up across, its marks included: it is filled from the top down."""
    n_down = math.ceil(len(lengths) / n_across)
    return sum(max(lengths[start : start + n_down]) + 9 for start in range(0, len(lengths), n_down))


def axis_values(codes: FloatArray, column: Column) -> Array:
    """Return codes of a column of numbers as an axis shows them: dates as matplotlib's days, durations in days.

    Parameters
    ----------
    codes : ndarray
        Codes, perhaps with infinities.
    column : Column
        Whose they are.

    Returns
    -------
    ndarray
        Of the same shape.

    Examples
    --------
    >>> day = Column("visit", "date32[day]", "datetime", step=86_400_000_000)
    >>> axis_values(np.array([0.0, 2.5]), day)
    array([0. , 2.5])
    """
    if (column.base or column.kind) != "datetime":
        return codes
    days: FloatArray = codes * (column.step / _MICROSECONDS_A_DAY)
    if column.dtype.startswith("duration"):
        return days
    from matplotlib import dates

    # Matplotlib counts days as well, from a day that a setting may move.
    first = float(dates.date2num(np.datetime64("1970-01-01")))  # type: ignore[no-untyped-call]
    return days + first


def label_axis(axis: Any, column: Column) -> None:
    """Give an axis the marks that a column's values need; of days, the unit as well."""
    if (column.base or column.kind) != "datetime":
        axis.set_major_locator(_round_marks())
        return
    if column.dtype.startswith("duration"):
        axis.set_label_text("days")
        return
    from matplotlib import dates

    locator = dates.AutoDateLocator(minticks=2, maxticks=5)  # type: ignore[no-untyped-call]
    axis.set_major_locator(locator)
    axis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    if "tz=" in column.dtype:
        axis.set_label_text("UTC")


def _round_marks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10])


def chance_band(n_cells: Any, share: Any, belief: float = 0.95) -> tuple[FloatArray, FloatArray]:
    r"""Return between which shares of cells chance alone keeps a true share.

    Parameters
    ----------
    n_cells : int or array-like of int
        Independent cells.
    share : float or array-like of float
        The true share.
    belief : float, default=0.95
        How often at least.

    Returns
    -------
    low, high : ndarray
        Quantiles of the binomial distribution, divided by `n_cells`.

    Notes
    -----
    With :math:`K \sim \mathrm{Bin}(n, p)`, the shares :math:`k / n` at the quantiles :math:`(1 \pm b) / 2` of K.

    Examples
    --------
    >>> low, high = chance_band(200, 0.9)
    >>> float(low), float(high)
    (0.855, 0.94)
    """
    from scipy.stats import binom

    count = np.asarray(n_cells, dtype=np.float64)
    low, high = (binom.ppf(end, count, share) / count for end in ((1 - belief) / 2, (1 + belief) / 2))
    return np.asarray(low), np.asarray(high)


def percent(share: float) -> str:
    """Return a share in words.

    Examples
    --------
    >>> percent(0.905), percent(0.9), percent(1.0)
    ('90.5 %', '90 %', '100 %')
    """
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def shorten(name: object, most: int = 22) -> str:
    """Return a name that fits above a panel.

    Examples
    --------
    >>> shorten("a_very_long_name_of_a_column"), shorten(3)
    ('a_very_long_name_of_a…', '3')
    """
    text = " ".join(str(name).split()).replace("$", r"\$")  # two dollars would be read as a formula
    return text if len(text) <= most else text[: most - 1] + "…"


def thin(n: int, most: int) -> Array:
    """Return evenly spaced places among n, at most so many.

    Examples
    --------
    >>> thin(10, 4).tolist(), thin(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if n <= most:
        return np.arange(n)
    return np.linspace(0, n - 1, most).round().astype(np.int64)
