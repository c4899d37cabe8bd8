"""The first picture of the README: rows with missing cells, the same rows filled with intervals, and digits."""

from __future__ import annotations

__all__ = ["draw_front", "fill_people"]

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from drawing.theme import Theme, arrow, blank
from mcflow import MCFlowImputer
from mcflow.files.datasets import nhanes_path

COLUMNS = ["age", "gender", "height_cm", "weight_kg", "waist_cm", "sbp1", "education"]
NAMES = ["age", "sex", "height", "weight", "waist", "pressure"]
#: Digits drawn by `mcflow benchmark images`: position of the first tile, distance between tiles, and their size.
DIGITS = Path(__file__).parent.parent / "pictures" / "images-mnist-0.5.png"
LEFT, STEP, SIDE, N_DIGITS = 114, 60, 56, 14

CELL, LINE, TOP = 0.66, 0.27, 3.6


class People(NamedTuple):
    """Rows with missing cells, the same rows filled, and the bounds of the intervals."""

    incomplete: pd.DataFrame
    filled: pd.DataFrame
    low: pd.DataFrame
    high: pd.DataFrame


def fill_people() -> People:
    """Fit on rows of NHANES, and return some rows with missing cells."""
    table = pd.read_parquet(nhanes_path())[COLUMNS].head(2000)
    imputer = MCFlowImputer(random_state=0).fit(table)
    shown = COLUMNS[:6]
    missing = table[shown].isna()
    some = table[(missing.sum(axis=1).between(1, 3)) & ~missing["gender"]]
    # At most two rows of each pattern of missing cells, so that several columns are shown filled.
    first = some.groupby([missing.loc[some.index, name] for name in shown], sort=False).head(2).head(7)
    filled = imputer.transform(first)
    low, high = imputer.interval(first, level=0.9)
    return People(first[shown], filled[shown], low[shown], high[shown])


def draw_front(theme: Theme, people: People) -> Any:
    """Return the figure."""
    figure, axes = blank(9.6, 4.0)
    _people(axes, theme, people, 0.1, filled=False)
    _people(axes, theme, people, 5.1, filled=True)
    arrow(axes, theme.filled, (4.25, 2.55), (4.95, 2.55))
    axes.text(4.6, 2.7, "mcflow", color=theme.filled, fontsize=10, ha="center", weight="bold")
    axes.text(5.1, 1.43, "filled, with 90 % intervals", color=theme.soft, fontsize=8.5, va="center")
    axes.text(0.1, 1.43, "rows of the NHANES survey", color=theme.soft, fontsize=8.5, va="center")
    _digits(figure, axes, theme)
    return figure


def _people(axes: Any, theme: Theme, people: People, left: float, *, filled: bool) -> None:
    """Draw the rows as cells with their values; filled cells also show their interval."""
    step = CELL + (0.075 if filled else 0)
    for c, name in enumerate(people.incomplete.columns):
        x = left + (c + 0.5) * step
        axes.text(x, TOP + 0.18, NAMES[c], color=theme.soft, fontsize=8.5, ha="center", va="center")
        for r, row in enumerate(people.incomplete.index):
            y = TOP - (r + 0.5) * (LINE + 0.02)
            missing = pd.isna(people.incomplete.loc[row, name])
            _box(axes, theme, (x, y), step - 0.03, missing=missing, filled=filled)
            if filled or not missing:
                ends = (people.low.loc[row, name], people.high.loc[row, name]) if missing else None
                _value(axes, theme, (x, y), people.filled.loc[row, name], ends)


def _box(axes: Any, theme: Theme, centre: tuple[float, float], width: float, *, missing: bool, filled: bool) -> None:
    from matplotlib.patches import FancyBboxPatch

    corner = (centre[0] - width / 2, centre[1] - LINE / 2)
    colour = theme.lane if not missing else theme.guess if filled else theme.missing
    line = {"edgecolor": theme.filled if missing else "none", "lw": 1, "ls": "-" if filled else "--"}
    shape = "round,pad=0,rounding_size=0.04"
    axes.add_patch(FancyBboxPatch(corner, width, LINE, boxstyle=shape, facecolor=colour, **line))


def _value(axes: Any, theme: Theme, centre: tuple[float, float], value: Any, ends: tuple[Any, Any] | None) -> None:
    """Write a value, and below a filled value the bounds of its interval."""
    x, y = centre
    style = {"color": theme.ink, "ha": "center", "va": "center"}
    axes.text(x, y if ends is None else y + 0.05, _written(value), fontsize=8, **style)
    if ends is not None:
        axes.text(x, y - 0.075, " – ".join(_written(end) for end in ends), fontsize=5.5, **style)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.0f}"


def _digits(figure: Any, axes: Any, theme: Theme) -> None:
    """Draw digits with missing pixels, and the same digits filled."""
    from matplotlib.image import imread

    picture = imread(DIGITS)
    for line, (row, name) in enumerate(((1, "half of pixels\nmissing"), (2, "filled"))):
        bottom = 0.65 - line * 0.6
        axes.text(0.78, bottom + 0.28, name, color=theme.soft, fontsize=8.5, ha="right", va="center")
        for k in range(N_DIGITS):
            tile = picture[row * STEP : row * STEP + SIDE, LEFT + k * STEP : LEFT + k * STEP + SIDE]
            box = np.array([0.92 + k * 0.622, bottom, 0.57, 0.57]) / [9.6, 4.0, 9.6, 4.0]
            inner = figure.add_axes(tuple(box))
            inner.imshow(tile, interpolation="none")
            inner.axis("off")
