"""Format names, cells, numbers and durations for the texts of evaluations and reports."""

from __future__ import annotations

__all__ = [
    "cell_text",
    "clean",
    "counted",
    "listed",
    "name_text",
    "number_text",
    "percent_text",
    "seconds_text",
    "share_text",
    "signed_text",
]

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mcflow.columns.frames import cells_of
from mcflow.columns.schema import CATEGORY_KINDS, Column

MAX_NAME_LENGTH = 60  #: Maximum length of a displayed name.
MAX_CATEGORY_LENGTH = 40  #: Maximum length of a displayed category.
NO_BREAK_SPACE = "\u00a0"
MICROSECONDS_PER_DAY = 86_400_000_000
#: Control characters, and characters that change the direction of the text around them.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]+")


def clean(text: object, max_length: int = MAX_NAME_LENGTH) -> str:
    """Return a text on one line without unprintable characters, its middle elided where it is too long."""
    whole = str(text)
    if len(whole) > 8 * max_length:  # a cell may hold megabytes
        whole = whole[: 4 * max_length] + "…" + whole[-4 * max_length :]
    plain = " ".join(_UNPRINTABLE.sub(" ", whole).split())
    if len(plain) <= max_length:
        return plain
    # Names with a common prefix often differ at their end.
    n_last = (max_length - 1) * 2 // 5
    return plain[: max_length - 1 - n_last].rstrip() + "…" + plain[len(plain) - n_last :].lstrip()


def name_text(name: object) -> str:
    """Return the name of a column, or a placeholder for an empty one."""
    return clean(name) or "(no name)"


def number_text(value: float) -> str:
    """Return a number with four significant digits; whole numbers with all digits."""
    if not math.isfinite(value):
        return "none" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == round(value) and abs(value) < 2**63:
        return f"{round(value):,}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def cell_text(code: float, column: Column) -> str:
    """Return the value that a code of a column represents."""
    kind = column.base or column.kind
    if math.isnan(code):
        return "none"
    if kind in CATEGORY_KINDS:
        return clean(column.categories[int(code)], MAX_CATEGORY_LENGTH) or "(empty text)"
    if kind == "datetime":
        return _time_text(code, column)
    if kind == "integer" and column.whole and math.isfinite(code):
        whole: Any = cells_of(np.array([code]), column)[0].as_py()
        return f"{int(whole):,}".replace("-", "−") if whole == int(whole) else number_text(float(whole))
    return number_text(code)


def _time_text(code: float, column: Column) -> str:
    if not math.isfinite(code):
        return "∞" if code > 0 else "−∞"
    microseconds = code * column.step
    if column.dtype.startswith("duration"):
        return f"{number_text(microseconds / MICROSECONDS_PER_DAY)} days"
    unit = "D" if column.step % MICROSECONDS_PER_DAY == 0 else "s"
    text = str(np.datetime64(round(microseconds), "us").astype(f"datetime64[{unit}]")).replace("T", " ")
    return text + (" UTC" if "tz=" in column.dtype else "")


def signed_text(value: float) -> str:
    """Return a number with two decimals and a minus sign instead of a hyphen."""
    return f"{value:.2f}".replace("-", "−")


def counted(n: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{n:,} {noun if n == 1 else noun + 's'}"


def listed(items: Sequence[str], max_items: int = 12) -> str:
    """Return items as an enumeration, with a count in place of those beyond the limit."""
    if len(items) > max_items:
        return f"{', '.join(items[:max_items])} and {len(items) - max_items} more"
    return " and ".join([*([", ".join(items[:-1])] if len(items) > 1 else []), *items[-1:]])


def percent_text(share: float) -> str:
    """Return a share as a percentage with at most one decimal."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def share_text(share: float) -> str:
    """Return a percentage without line breaks that is 0 or 100 only when the share is exactly 0 or 1."""
    text = "under 0.1 %" if 0 < share < 0.001 else "over 99.9 %" if 0.999 < share < 1 else percent_text(share)
    return text.replace(" ", NO_BREAK_SPACE)


def seconds_text(seconds: float) -> str:
    """Return a duration in its largest two units."""
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
