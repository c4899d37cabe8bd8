"""How the report writes names, cells, counts and times."""

from __future__ import annotations

__all__ = ["cell_text", "clean", "counted", "name_text", "number_text", "seconds_text", "share_text", "signed_text"]

import math
import re
from typing import Any

import numpy as np

from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.data.series import cells_of

#: Characters of a name and of a level that are shown, at most.
LONGEST_NAME, LONGEST_LEVEL = 60, 40

#: A space at which no line ends.
NO_BREAK = "\u00a0"

_MICROSECONDS_A_DAY = 86_400_000_000
#: Characters that a page cannot show, or that turn the direction of the words around them.
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]+")


def clean(text: object, most: int = LONGEST_NAME) -> str:
    """Return a text on one line without characters that a page cannot show, the middle left out where it is too long.

    Parameters
    ----------
    text : object
        A name or a cell.
    most : int, default=60
        Characters to keep.

    Returns
    -------
    str

    Examples
    --------
    >>> clean(" two  words "), clean("abcdefgh", 5)
    ('two words', 'abc…h')
    """
    whole = str(text)
    if len(whole) > 8 * most:  # a cell may hold megabytes
        whole = whole[: 4 * most] + "…" + whole[-4 * most :]
    plain = " ".join(_UNSHOWN.sub(" ", whole).split())
    if len(plain) <= most:
        return plain
    # Names that begin alike often differ at their end.
    n_last = (most - 1) * 2 // 5
    return plain[: most - 1 - n_last].rstrip() + "…" + plain[len(plain) - n_last :].lstrip()


def name_text(name: object) -> str:
    """Return a column's name; an empty one in words.

    Examples
    --------
    >>> name_text(3), name_text(" ")
    ('3', '(no name)')
    """
    return clean(name) or "(no name)"


def number_text(value: float) -> str:
    """Return a number with as many digits as one reads; whole numbers in full.

    Examples
    --------
    >>> number_text(1234567.0), number_text(0.123456), number_text(12.5)
    ('1,234,567', '0.1235', '12.5')
    """
    if not math.isfinite(value):
        return "none" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == round(value) and abs(value) < 2**63:
        return f"{round(value):,}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def cell_text(code: float, column: Column) -> str:
    """Return the cell that a code stands for, in words.

    Parameters
    ----------
    code : float
        Of a coded column.
    column : Column
        Which.

    Returns
    -------
    str

    Examples
    --------
    >>> cell_text(1.0, Column("visit", "date32[day]", "datetime", step=86_400_000_000))
    '1970-01-02'
    >>> cell_text(0.0, Column("pet", "string", "category", levels=("cat", "dog")))
    'cat'
    """
    kind = column.base or column.kind
    if math.isnan(code):
        return "none"
    if kind in LEVEL_KINDS:
        return clean(column.levels[int(code)], LONGEST_LEVEL) or "(empty text)"
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
        return f"{number_text(microseconds / _MICROSECONDS_A_DAY)} days"
    unit = "D" if column.step % _MICROSECONDS_A_DAY == 0 else "s"
    text = str(np.datetime64(round(microseconds), "us").astype(f"datetime64[{unit}]")).replace("T", " ")
    return text + (" UTC" if "tz=" in column.dtype else "")


def signed_text(value: float) -> str:
    """Return a number with two digits and a real minus.

    Examples
    --------
    >>> signed_text(-0.5), signed_text(0.25)
    ('−0.50', '0.25')
    """
    return f"{value:.2f}".replace("-", "−")


def counted(n: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "row"), counted(2_000, "row"), counted(0, "entry", "entries")
    ('1 row', '2,000 rows', '0 entries')
    """
    return f"{n:,} {noun if n == 1 else nouns or noun + 's'}"


def share_text(share: float) -> str:
    """Return a share as a percentage that is neither 0 nor 100 unless it is exactly that, on one line.

    Examples
    --------
    >>> " and ".join(map(share_text, [0.0, 0.0001, 0.905, 0.9999])).replace(NO_BREAK, " ")
    '0 % and under 0.1 % and 90.5 % and over 99.9 %'
    """
    if 0 < share < 0.001:
        words = "under 0.1"
    elif 0.999 < share < 1:
        words = "over 99.9"
    else:
        words = f"{100 * share:.1f}".removesuffix(".0")
    return words.replace(" ", NO_BREAK) + NO_BREAK + "%"


def seconds_text(seconds: float) -> str:
    """Return a time in words.

    Examples
    --------
    >>> seconds_text(0.25), seconds_text(75), seconds_text(7_320)
    ('0.25 s', '1 min 15 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
