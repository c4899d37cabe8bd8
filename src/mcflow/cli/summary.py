"""The summary of a fill as a table on the terminal."""

from __future__ import annotations

__all__ = ["print_summary"]

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Columns to list before the rest is only counted.
MOST_COLUMNS = 50
#: Names to list in a sentence.
MOST_NAMES = 20
#: Characters of a level that are shown.
WIDEST = 12

#: What to say of columns that no model filled, by kind or role.
NOTES = {
    "constant": "One value only, filled with it",
    "empty": "No observed value, numbers filled with 0",
    "identifier": "Looks like an identifier, left alone",
    "text": "Too many different texts, left alone",
    "other": "Of a type that is not filled, left alone",
    "ignore": "Ignored as asked",
    "outcome": "Outcome, neither used nor filled",
    "predictors_only": "Used, not filled",
}


def print_summary(summary: dict[str, Any], written: Sequence[str], console: Console | None = None) -> None:
    """Print what was missing and what was filled.

    Parameters
    ----------
    summary : dict
        From `mcflow.report.summarise`.
    written : sequence of str
        Lines to end with, which say what was written where.
    console : rich.console.Console, optional
        Where to print, by default standard output.
    """
    console = console or Console()
    holed = sorted((c for c in summary["columns"] if c["missing"]), key=lambda c: -c["missing"])
    share = summary["missing"] / max(summary["cells"], 1)
    title = f"{summary['rows']:,} rows, {len(summary['columns'])} columns, {share:.1%} of the cells missing"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("column", no_wrap=True)
    for heading in ("kind", "missing", "observed", "filled with"):
        table.add_column(heading, justify="right", no_wrap=True)
    for column in holed[:MOST_COLUMNS]:
        table.add_row(*map(Text, _cells(column, summary["rows"])))  # brackets in a name are no markup
    table.caption = "observed, filled with: the mean of numbers and times, the commonest level"
    if holed:
        console.print(table)
    for line in [*_lines(summary, holed), *written]:
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _cells(column: dict[str, Any], n_rows: int) -> list[str]:
    return [
        column["name"],
        column["kind"],
        f"{column['missing']:,} ({column['missing'] / n_rows:.1%})",
        _shown(column.get("observed_typical")),
        _shown(column.get("filled_typical")) or "not filled",
    ]


def _shown(typical: Any) -> str:
    """Return a mean or a level, short enough for the table."""
    if typical is None:
        return ""
    text = f"{typical:.4g}" if isinstance(typical, float) else str(typical)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _lines(summary: dict[str, Any], holed: list[dict[str, Any]]) -> list[str]:
    lines = []
    if len(holed) > MOST_COLUMNS:
        lines.append(f"… and {len(holed) - MOST_COLUMNS} more columns with holes.")
    for word, note in NOTES.items():
        names = [
            c["name"] for c in summary["columns"] if c["role"] == word or (c["role"] == "fill" and c["kind"] == word)
        ]
        if names:
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            lines.append(f"{note}: {', '.join(names[:MOST_NAMES])}{more}.")
    left = summary["missing"] - summary["filled"]
    stay = f"; {left:,} stay missing, in columns that are left alone" if left else ""
    lines.append(f"Filled {summary['filled']:,} of {summary['missing']:,} missing cells{stay}.")
    return lines
