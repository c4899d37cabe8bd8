"""Print the summary of a filled table on the terminal."""

from __future__ import annotations

__all__ = ["print_summary"]

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Maximum number of columns in the table.
MAX_COLUMNS = 50
#: Maximum number of names in a sentence.
MAX_NAMES = 20
#: Maximum number of characters of a category.
MAX_WIDTH = 12

#: Notes on columns that are not filled by the model, by kind or role.
NOTES = {
    "constant": "Constant, filled with its value",
    "zeros": "No observed value, filled with 0",
    "empty": "No observed value, not filled",
    "identifier": "Identifier, not filled",
    "text": "Free text, not filled",
    "other": "Unsupported type, not filled",
    "ignore": "Ignored as requested",
    "outcome": "Outcome, neither used nor filled",
    "predictors_only": "Used as a predictor, not filled",
}


def print_summary(summary: dict[str, Any], written: Sequence[str], console: Console | None = None) -> None:
    """Print a summary from `mcflow.report.summarise`, and the lines that say what was written."""
    console = console or Console()
    incomplete = sorted((c for c in summary["columns"] if c["missing"]), key=lambda c: -c["missing"])
    share = summary["missing"] / max(summary["cells"], 1)
    title = f"{summary['rows']:,} rows, {len(summary['columns'])} columns, {share:.1%} of the cells missing"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("column", no_wrap=True)
    for heading in ("kind", "missing", "observed", "filled with"):
        table.add_column(heading, justify="right", no_wrap=True)
    for column in incomplete[:MAX_COLUMNS]:
        table.add_row(*map(Text, _cells(column, summary["rows"])))  # as `Text`, brackets in a name are not markup
    table.caption = "observed, filled with: mean of numbers and times, most frequent category"
    if incomplete:
        console.print(table)
    for line in [*_lines(summary, incomplete), *written]:
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
    """Return a mean or a category, shortened for the table."""
    if typical is None:
        return ""
    text = f"{typical:.4g}" if isinstance(typical, float) else str(typical)
    return text if len(text) <= MAX_WIDTH else text[: MAX_WIDTH - 1] + "…"


def _treatment(column: dict[str, Any]) -> str:
    """Return the key of the note on a column with the role "fill"."""
    if column["role"] != "fill":
        return ""
    return "zeros" if column["kind"] == "empty" and column["filled"] else str(column["kind"])


def _lines(summary: dict[str, Any], incomplete: list[dict[str, Any]]) -> list[str]:
    lines = []
    if len(incomplete) > MAX_COLUMNS:
        lines.append(f"… and {len(incomplete) - MAX_COLUMNS} more columns with missing cells.")
    for word, note in NOTES.items():
        names = [c["name"] for c in summary["columns"] if word in (c["role"], _treatment(c))]
        if names:
            more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
            lines.append(f"{note}: {', '.join(names[:MAX_NAMES])}{more}.")
    left = summary["missing"] - summary["filled"]
    stay = f"; {left:,} remain missing in columns that are not filled" if left else ""
    lines.append(f"Filled {summary['filled']:,} of {summary['missing']:,} missing cells{stay}.")
    return lines
