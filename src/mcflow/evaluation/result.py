"""The result of an evaluation: as data, as a frame, as text on a terminal and as HTML."""

from __future__ import annotations

__all__ = ["Evaluation", "print_evaluation"]

import io
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from mcflow.errors import MissingExtraError
from mcflow.evaluation.scores import CellScore, ColumnScore, MethodScore

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

#: Maximum number of columns in a table.
MAX_COLUMNS = 60
#: Width of `str(evaluation)`, in characters.
TEXT_WIDTH = 120
#: Width below which a table is shortened, without its methods.
_BASE_WIDTH = 52
#: Additional width for each method.
_METHOD_WIDTH = 17
#: Longest column name that is not wrapped.
_UNWRAPPED_NAME = 16
#: Marks beside the error of a method, by its standing against mcflow.
MARKS = {"better": "+", "worse": "-", "same": "~", None: ""}


@dataclass(frozen=True)
class Evaluation:
    """Errors and coverage of mcflow and of other methods on hidden cells of a table; see `mcflow.evaluate`.

    Parameters
    ----------
    rows, columns : int
        Size of the table; the rows may be a sample.
    hidden_cells : int
        Known cells that were hidden and filled, over all repeats.
    repeats : int
        How often cells were hidden and all methods were fitted.
    level : float
        Level of the intervals.
    methods : tuple of MethodScore
        Scores of the methods, mcflow first.
    per_column : tuple of ColumnScore
        Scores of the columns with hidden cells, in the order of the table.
    verdict : tuple of str
        The conclusions in sentences.
    settings : dict
        The arguments of `evaluate`, and notes on what was done.
    """

    rows: int
    columns: int
    hidden_cells: int
    repeats: int
    level: float
    methods: tuple[MethodScore, ...]
    per_column: tuple[ColumnScore, ...]
    verdict: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as dictionaries, lists and numbers that JSON can hold."""
        plain = asdict(self)
        return plain | {name: list(plain[name]) for name in ("methods", "per_column", "verdict")}

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per column and method.

        Returns
        -------
        pandas.DataFrame
            The scores.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("A frame of results needs pandas: pip install pandas") from error
        rows = [
            {"column": column.name, "kind": column.kind, "measure": column.measure, "hidden": column.hidden}
            | {"predictable": column.predictable, "method": name}
            | asdict(score)
            for column in self.per_column
            for name, score in column.methods.items()
        ]
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        from rich.console import Console

        page = io.StringIO()
        print_evaluation(self, Console(file=page, width=TEXT_WIDTH, force_jupyter=False, color_system=None))
        return "\n".join(line.rstrip() for line in page.getvalue().splitlines())

    def _repr_html_(self) -> str:
        names = _names(self)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.settings.get("notes", ()))
        columns = [
            [column.name, _measure(column), f"{column.hidden:,}"]
            + [_score_text(column, column.methods.get(name)) for name in names]
            + [_percent(column.methods[names[0]].coverage) if names else ""]
            for column in self.per_column[:MAX_COLUMNS]
        ]
        methods = [_method_row(method) for method in self.methods]
        verdict = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.verdict)
        return (
            f"<div><p><b>{escape(_title(self))}</b></p>{notes}<ul>{verdict}</ul>"
            f"{_html_table(['column', 'measure', 'hidden', *names, 'coverage'], columns)}"
            f"{_html_table(['method', 'relative error', 'coverage', 'seconds'], methods)}</div>"
        )


def print_evaluation(evaluation: Evaluation, console: Console) -> None:
    """Print the notes, the tables and the verdict."""
    for note in evaluation.settings.get("notes", ()):
        console.print(note, highlight=False, markup=False)
    console.print(_column_table(evaluation, console.width))
    console.print(_method_table(evaluation))
    for sentence in evaluation.verdict:
        console.print(f"- {sentence}", highlight=False, markup=False)


def _column_table(evaluation: Evaluation, width: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = _names(evaluation)
    brief = width < _BASE_WIDTH + _METHOD_WIDTH * len(names)
    padding = (0, 1, 0, 0) if brief else (0, 1)
    table = Table(title=_title(evaluation), box=box.SIMPLE_HEAD, pad_edge=False, padding=padding)
    widest = max((len(column.name) for column in evaluation.per_column), default=0)
    table.add_column("column", overflow="fold", min_width=min(widest, _UNWRAPPED_NAME))
    for heading in ([] if brief else ["measure"]) + ["hidden", *names, "coverage"]:
        table.add_column(Text(heading), justify="left" if heading == "measure" else "right", overflow="fold")
    for column in evaluation.per_column[:MAX_COLUMNS]:
        table.add_row(*_column_row(column, names, brief=brief), style="" if column.predictable else "dim")
    table.caption = _caption(evaluation, brief=brief)
    return table


def _column_row(column: ColumnScore, names: list[str], *, brief: bool) -> list[Text]:
    from rich.text import Text

    facts = [column.name, *([] if brief else [_measure(column)]), f"{column.hidden:,}"]
    scores = []
    for name in names:
        score = column.methods.get(name)
        style = {"better": "red", "worse": "green"}.get(score.against_mcflow or "", "") if score else ""
        scores.append(Text(_score_text(column, score, brief=brief and name != names[0]), style=style))
    coverage = _percent(column.methods[names[0]].coverage) if names[0] in column.methods else ""
    return [*map(Text, facts), *scores, Text(coverage)]


def _caption(evaluation: Evaluation, *, brief: bool) -> str:
    rest = len(evaluation.per_column) - MAX_COLUMNS
    more = f"… and {rest} more columns. " if rest > 0 else ""
    errors = "error (RMSE, or % wrong) and, in brackets, relative to the mean's"
    if brief:
        errors = "mcflow: error (RMSE, or % wrong) and, in brackets, relative to the mean's; others: relative error"
    return (
        f"{more}{errors}; + significantly better, - significantly worse than mcflow, ~ no significant difference; "
        f"coverage: share of hidden numbers inside the {evaluation.level:.0%} intervals of mcflow"
    )


def _method_table(evaluation: Evaluation) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("method")
    for heading in ("relative error", "coverage", "seconds"):
        table.add_column(heading, justify="right")
    for method in evaluation.methods:
        table.add_row(*(Text(cell) for cell in _method_row(method)))
    return table


def _title(evaluation: Evaluation) -> str:
    return f"{evaluation.rows:,} rows, {evaluation.columns} columns, {evaluation.hidden_cells:,} hidden cells"


def _names(evaluation: Evaluation) -> list[str]:
    return [method.name for method in evaluation.methods if method.error_message is None]


def _measure(column: ColumnScore) -> str:
    if column.measure == "error rate":
        return "wrong"
    return f"RMSE, {column.unit}" if column.unit else "RMSE"


def _score_text(column: ColumnScore, score: CellScore | None, *, brief: bool = False) -> str:
    """Return an error, its relative error and its mark; in brief, without the error."""
    if score is None or score.error is None:
        return ""
    error = f"{score.error:.1%}" if column.measure == "error rate" else f"{score.error:.4g}"
    mark = f" {MARKS[score.against_mcflow]}".rstrip()
    if score.relative is None:
        return f"{error}{mark}"
    return f"{score.relative:.2f}{mark}" if brief else f"{error} ({score.relative:.2f}){mark}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _method_row(method: MethodScore) -> list[str]:
    if method.error_message is not None:
        return [method.name, "failed", "", ""]
    relative = "" if method.relative_error is None else f"{method.relative_error:.3f}"
    seconds = "" if method.seconds is None else f"{method.seconds:.1f}"
    return [method.name, relative, _percent(method.coverage), seconds]


def _html_table(headings: list[str], rows: list[list[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
