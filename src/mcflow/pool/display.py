"""Tables of pooled terms as data frames, text and HTML."""

from __future__ import annotations

__all__ = ["as_frame", "as_html", "as_text"]

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

#: Columns with the decimals of the row's standard error.
_SCALED = ("estimate", "std.error")


def as_frame(columns: Mapping[str, Any]) -> Any:
    """Return columns as a pandas data frame, or as an Arrow table if pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        import pyarrow as pa

        return pa.table(dict(columns))
    return pd.DataFrame(dict(columns))


def as_text(title: str, columns: Mapping[str, Any]) -> str:
    """Return columns as text, with terms left-aligned and numbers right-aligned.

    Examples
    --------
    >>> print(as_text("T", {"term": ["a"], "estimate": [1.25], "std.error": [0.5], "p.value": [0.03]}))
    T
    term  estimate  std.error  p.value
    a        1.250      0.500   0.0300
    """
    cells = _cells(columns)
    widths = [max(len(line[k]) for line in cells) for k in range(len(columns))]
    lines = [
        "  ".join(cell.rjust(width) if k else cell.ljust(width) for k, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(line, widths, strict=True)) for line in cells)
    ]
    return "\n".join([title, *(line.rstrip() for line in lines)])


def as_html(title: str, columns: Mapping[str, Any]) -> str:
    """Return columns as an HTML table for notebooks; all text is escaped."""
    head, *rows = _cells(columns)
    names = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    body = "".join(f"<tr>{_html_row(row)}</tr>" for row in rows)
    caption = f"<caption>{html.escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _html_row(row: Sequence[str]) -> str:
    cells = "".join(f'<td style="text-align: right">{html.escape(cell)}</td>' for cell in row[1:])
    return f'<th scope="row" style="text-align: left">{html.escape(row[0])}</th>{cells}'


def _cells(columns: Mapping[str, Any]) -> list[list[str]]:
    """Return the header and the rows as text."""
    errors = columns["std.error"]
    rows = [
        [_formatted(name, values[row], float(errors[row])) for name, values in columns.items()]
        for row in range(len(errors))
    ]
    return [list(columns), *rows]


def _formatted(name: str, value: Any, error: float) -> str:
    if name == "term":
        return str(value)
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if name == "p.value":
        return "<.0001" if value < 1e-4 else f"{value:.4f}"
    if name in _SCALED or name.endswith("%"):
        return _scaled(value, error)
    return f"{value:.1f}" if name == "df" else f"{value:.3f}"


def _scaled(value: float, error: float) -> str:
    """Format a number with the decimals that show three significant digits of its standard error."""
    if not (math.isfinite(error) and error > 0):
        return f"{value:.5g}"
    decimals = max(2 - math.floor(math.log10(error)), 0)
    return f"{value:.{decimals}f}" if decimals <= 6 else f"{value:.4g}"
