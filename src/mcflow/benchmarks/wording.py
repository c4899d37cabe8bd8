"""Numbers as reports write them."""

from __future__ import annotations

__all__ = ["count_words", "seconds_words", "short_number"]


def short_number(value: float, digits: int = 4) -> str:
    """Return a number without the zero before its point.

    Examples
    --------
    >>> short_number(0.12345), short_number(1.5), short_number(24.125, 1)
    ('.1235', '1.5000', '24.1')
    """
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def seconds_words(seconds: float) -> str:
    """Return a time.

    Examples
    --------
    >>> seconds_words(2.34), seconds_words(1234.5)
    ('2.3 s', '1,234 s')
    """
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:,.0f} s"


def count_words(number: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> count_words(1, "fold"), count_words(1200, "image")
    ('1 fold', '1,200 images')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
