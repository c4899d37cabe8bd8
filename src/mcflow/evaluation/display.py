"""An evaluation as a table on the terminal, as text and as HTML."""

from __future__ import annotations

__all__ = ["as_html", "as_text", "print_evaluation"]

import io
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from mcflow.evaluation.result import CellScore, ColumnScore, Evaluation, MethodScore

#: Columns to list before the rest is only counted.
MOST_COLUMNS = 60
#: Characters of a line when nobody says how many there are.
WIDTH = 110
#: Characters that a line needs for a column, and more for each method, so that errors stand beside their shares.
_ROOM, _ROOM_A_METHOD = 40, 17
#: Characters of a name that stand on one line.
_WIDEST_NAME = 16
#: What stands beside another method's error when it is better or worse than mcflow's by more than noise.
MARKS = {"better": "+", "worse": "-", "same": "~", None: ""}


def print_evaluation(evaluation: Evaluation, console: Console) -> None:
    """Print what was done, the tables and the verdict.

    Parameters
    ----------
    evaluation : Evaluation
        What was found.
    console : rich.console.Console
        Where to print.
    """
    for note in evaluation.settings.get("notes", ()):
        console.print(note, highlight=False, markup=False)
    console.print(_columns(evaluation, console.width))
    console.print(_methods(evaluation))
    for sentence in evaluation.verdict:
        console.print(f"- {sentence}", highlight=False, markup=False)


def _columns(evaluation: Evaluation, width: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = _names(evaluation)
    brief = width < _ROOM + _ROOM_A_METHOD * len(names)
    padding = (0, 1, 0, 0) if brief else (0, 1)
    table = Table(title=_title(evaluation), box=box.SIMPLE_HEAD, pad_edge=False, padding=padding)
    widest = max((len(column.name) for column in evaluation.per_column), default=0)
    table.add_column("column", overflow="fold", min_width=min(widest, _WIDEST_NAME))
    for heading in ([] if brief else ["measure"]) + ["hidden", *names, "held"]:
        table.add_column(Text(heading), justify="left" if heading == "measure" else "right", overflow="fold")
    for column in evaluation.per_column[:MOST_COLUMNS]:
        table.add_row(*_row(column, names, brief=brief), style="" if column.predictable else "dim")
    table.caption = _caption(evaluation, brief=brief)
    return table


def _row(column: ColumnScore, names: list[str], *, brief: bool) -> list[Text]:
    from rich.text import Text

    facts = [column.name, *([] if brief else [_measure(column)]), f"{column.hidden:,}"]
    scores = [_score(column, name, brief=brief and name != names[0]) for name in names]
    held = _percent(column.methods[names[0]].coverage) if names[0] in column.methods else ""
    return [*map(Text, facts), *scores, Text(held)]


def _caption(evaluation: Evaluation, *, brief: bool) -> str:
    rest = len(evaluation.per_column) - MOST_COLUMNS
    more = f"… and {rest} more columns. " if rest > 0 else ""
    what = "error (RMSE, or %: share wrong) and, in brackets, its"
    if brief:
        what = "mcflow's error (RMSE, or %: share wrong) and, in brackets and for others, its"
    return (
        f"{more}{what} share of the mean's; + better, - worse than mcflow, ~ within noise; held: truths inside the "
        f"{evaluation.level:.0%} intervals of mcflow"
    )


def _methods(evaluation: Evaluation) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("method")
    for heading in ("of the mean's error", "held", "seconds"):
        table.add_column(Text(heading), justify="right")
    for method in evaluation.methods:
        table.add_row(*(Text(cell) for cell in _method(method)))
    return table


def _title(evaluation: Evaluation) -> str:
    return f"{evaluation.rows:,} rows, {evaluation.columns} columns, {evaluation.hidden_cells:,} hidden cells"


def _names(evaluation: Evaluation) -> list[str]:
    return [method.name for method in evaluation.methods if method.error_message is None]


def _measure(column: ColumnScore) -> str:
    if column.measure == "error rate":
        return "wrong"
    return f"RMSE, {column.unit}" if column.unit else "RMSE"


def _words(column: ColumnScore, score: CellScore | None, *, brief: bool = False) -> str:
    """Return an error with its share of the mean's and its mark; in brief, the share and the mark."""
    if score is None or score.error is None:
        return ""
    error = f"{score.error:.1%}" if column.measure == "error rate" else f"{score.error:.4g}"
    mark = f" {MARKS[score.against_mcflow]}".rstrip()
    if score.relative is None:
        return f"{error}{mark}"
    return f"{score.relative:.2f}{mark}" if brief else f"{error} ({score.relative:.2f}){mark}"


def _score(column: ColumnScore, name: str, *, brief: bool) -> Text:
    from rich.text import Text

    score = column.methods.get(name)
    style = {"better": "red", "worse": "green"}.get(score.against_mcflow or "", "") if score else ""
    return Text(_words(column, score, brief=brief), style=style)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _method(method: MethodScore) -> list[str]:
    if method.error_message is not None:
        return [method.name, "failed", "", ""]
    relative = "" if method.relative_error is None else f"{method.relative_error:.3f}"
    seconds = "" if method.seconds is None else f"{method.seconds:.1f}"
    return [method.name, relative, _percent(method.coverage), seconds]


def as_text(evaluation: Evaluation) -> str:
    """Return what `print_evaluation` prints, without colours.

    Parameters
    ----------
    evaluation : Evaluation
        What was found.

    Returns
    -------
    str
    """
    from rich.console import Console

    page = io.StringIO()
    print_evaluation(evaluation, Console(file=page, width=WIDTH, force_jupyter=False, color_system=None))
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def as_html(evaluation: Evaluation) -> str:
    """Return the tables and the verdict as HTML, for notebooks.

    Parameters
    ----------
    evaluation : Evaluation
        What was found.

    Returns
    -------
    str
    """
    names = _names(evaluation)
    notes = "".join(f"<p>{escape(note)}</p>" for note in evaluation.settings.get("notes", ()))
    columns = [
        [column.name, _measure(column), f"{column.hidden:,}"]
        + [_words(column, column.methods.get(name)) for name in names]
        + [_percent(column.methods[names[0]].coverage) if names else ""]
        for column in evaluation.per_column[:MOST_COLUMNS]
    ]
    methods = [_method(method) for method in evaluation.methods]
    verdict = "".join(f"<li>{escape(sentence)}</li>" for sentence in evaluation.verdict)
    return (
        f"<div><p><b>{escape(_title(evaluation))}</b></p>{notes}<ul>{verdict}</ul>"
        f"{_html_table(['column', 'measure', 'hidden', *names, 'held'], columns)}"
        f"{_html_table(['method', 'of the mean’s error', 'held', 'seconds'], methods)}</div>"
    )


def _html_table(headings: list[str], rows: list[list[Any]]) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
