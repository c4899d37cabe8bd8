"""The result of an evaluation: its verdict in sentences, and all of it as data, as text on a terminal and as HTML."""

from __future__ import annotations

__all__ = ["Evaluation", "print_evaluation", "verdict"]

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mcflow.evaluation.methods import OURS, REFERENCE
from mcflow.evaluation.scores import CellScore, ColumnScore, MethodScore
from mcflow.evaluation.wording import listed, percent_text, seconds_text

MAX_COLUMNS = 60  #: Maximum number of columns in a table.
TEXT_WIDTH = 120  #: Width of `str(evaluation)`, in characters.
_BASE_WIDTH = 52  #: Width below which a table is shortened, without its methods.
_METHOD_WIDTH = 17  #: Additional width for each method.
_UNWRAPPED_NAME = 16  #: Longest column name that is not wrapped.
MARKS = {"better": "+", "worse": "-", "same": "~", None: ""}  #: Marks of a method, by its standing against mcflow.
COVERAGE_TOLERANCE = 0.03  #: Distance of the coverage from its level from which intervals are too narrow or wide.
#: Standing of mcflow, by the standing of the other method.
_STANDINGS = {
    "worse": "significantly better than",
    "same": "not significantly different from",
    "better": "significantly worse than",
}


@dataclass(frozen=True)
class Evaluation:
    """Errors and coverage of mcflow and of other methods on hidden cells of a table; see `mcflow.evaluate`."""

    rows: int  #: Rows of the table, or of a sample of it.
    columns: int  #: Columns of the table.
    hidden_cells: int  #: Known cells that were hidden and filled, over all repeats.
    repeats: int  #: How often cells were hidden and all methods were fitted.
    level: float  #: Level of the intervals.
    methods: tuple[MethodScore, ...]  #: Scores of the methods, mcflow first.
    per_column: tuple[ColumnScore, ...]  #: Scores of the columns with hidden cells, in the order of the table.
    verdict: tuple[str, ...]  #: The conclusions in sentences.
    settings: dict[str, Any] = field(default_factory=dict)  #: The arguments of `evaluate`, and notes on what was done.

    def to_dict(self) -> dict[str, Any]:
        """Return the result as dictionaries, lists and numbers that JSON can hold."""
        plain = asdict(self)
        return plain | {name: list(plain[name]) for name in ("methods", "per_column", "verdict")}

    def to_frame(self) -> Any:
        """Return the scores as a pandas DataFrame with one row per column and method."""
        rows = [
            {"column": column.name, "kind": column.kind, "measure": column.measure, "hidden": column.hidden}
            | {"predictable": column.predictable, "method": name}
            | asdict(score)
            for column in self.per_column
            for name, score in column.methods.items()
        ]
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        page = io.StringIO()
        print_evaluation(self, Console(file=page, width=TEXT_WIDTH, force_jupyter=False, color_system=None))
        return "\n".join(line.rstrip() for line in page.getvalue().splitlines())

    def _repr_html_(self) -> str:
        names = _names(self)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.settings.get("notes", ()))
        columns = [_column_row(column, names) for column in self.per_column[:MAX_COLUMNS]]
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
    names = _names(evaluation)
    brief = width < _BASE_WIDTH + _METHOD_WIDTH * len(names)
    padding = (0, 1, 0, 0) if brief else (0, 1)
    table = Table(title=_title(evaluation), box=box.SIMPLE_HEAD, pad_edge=False, padding=padding)
    widest = max((len(column.name) for column in evaluation.per_column), default=0)
    table.add_column("column", overflow="fold", min_width=min(widest, _UNWRAPPED_NAME))
    for heading in ([] if brief else ["measure"]) + ["hidden", *names, "coverage"]:
        table.add_column(Text(heading), justify="left" if heading == "measure" else "right", overflow="fold")
    for column in evaluation.per_column[:MAX_COLUMNS]:
        cells = [Text(cell) for cell in _column_row(column, names, brief=brief)]
        for name, cell in zip(names, cells[-1 - len(names) : -1], strict=True):
            cell.style = {"better": "red", "worse": "green"}.get(column.methods[name].against_mcflow or "", "")
        table.add_row(*cells, style="" if column.predictable else "dim")
    table.caption = _caption(evaluation, brief=brief)
    return table


def _column_row(column: ColumnScore, names: list[str], *, brief: bool = False) -> list[str]:
    measure = "wrong" if column.measure == "error rate" else f"RMSE, {column.unit}" if column.unit else "RMSE"
    scores = [_score_text(column, column.methods[name], brief=brief and name != names[0]) for name in names]
    coverage = _percent(column.methods[names[0]].coverage)
    return [column.name, *([] if brief else [measure]), f"{column.hidden:,}", *scores, coverage]


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


def _score_text(column: ColumnScore, score: CellScore, *, brief: bool) -> str:
    """Return an error, its relative error and its mark; in brief, without the error."""
    if score.error is None:
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


def verdict(
    columns: Sequence[ColumnScore],
    methods: Sequence[MethodScore],
    overall: Mapping[str, str],
    level: float,
    repeats: int = 1,
) -> tuple[str, ...]:
    """Say where mcflow is better, where it is not, which columns cannot be predicted, and which method to use."""
    failed = {one.name for one in methods if one.error_message is not None}
    sentences = [f"{one.name} failed: {one.error_message}" for one in methods if one.error_message is not None]
    compared = [column for column in columns if column.enough]
    if OURS not in failed:
        sentences += _overall(methods, overall, failed)
        if compared:
            sentences += [_better(compared), _worse(compared), *_alike(compared)]
    unpredictable = [column.name for column in compared if not column.predictable]
    if unpredictable:
        sentences.append(
            f"Columns that could not be predicted from the others: {listed(unpredictable)}. No method is significantly "
            "better there than the mean or the most frequent category."
        )
    elif compared:
        sentences.append("Every column with enough hidden cells can be predicted from the others to some degree.")
    few = [column.name for column in columns if not column.enough]
    if few:
        sentences.append(f"Too few hidden cells to compare methods in {listed(few)}.")
    if OURS not in failed:
        sentences += [*_coverage(methods, level), *_recommendation(compared, methods, overall)]
    if repeats == 1:
        sentences.append("This is one choice of hidden cells: more repeats (repeats=3, --repeats 3) are more certain.")
    return tuple(sentences)


def _overall(methods: Sequence[MethodScore], overall: Mapping[str, str], failed: set[str]) -> list[str]:
    errors = {one.name: one.relative_error for one in methods}
    if errors[OURS] is None:
        return ["The mean fills every hidden cell correctly, so there is nothing to compare."]
    others = [name for name in errors if name not in (OURS, REFERENCE) and name not in failed and errors[name]]
    beside = f"; that of {listed([f'{name} is {errors[name]:.2f}' for name in others], len(others))}" if others else ""
    start = f"Over all hidden cells, the error of mcflow is {errors[OURS]:.2f} of the mean's{beside}."
    ways = {way: [name for name in [REFERENCE, *others] if overall.get(name) == way] for way in _STANDINGS}
    ends = [f"{words} {_articled(ways[way])}" for way, words in _STANDINGS.items() if ways[way]]
    return [start + (f" It is {listed(ends)}." if ends else "")]


def _articled(names: Sequence[str]) -> str:
    return listed(["the mean" if name == REFERENCE else name for name in names])


def _rivals(column: ColumnScore) -> dict[str, str]:
    """Return the standings of the other methods in a column."""
    return {name: one.against_mcflow for name, one in column.methods.items() if one.against_mcflow and name != OURS}


def _better(compared: Sequence[ColumnScore]) -> str:
    names = [c.name for c in compared if _rivals(c) and set(_rivals(c).values()) == {"worse"}]
    if not names:
        return "In no column is mcflow significantly better than every other method."
    every = len(names) == len(compared)
    where = "every column with enough hidden cells" if every else f"{len(names)} of {len(compared)} columns"
    return f"mcflow is significantly better than every other method in {where}: {listed(names)}."


def _worse(compared: Sequence[ColumnScore]) -> str:
    words = []
    for column in compared:
        better = [name for name, way in _rivals(column).items() if way == "better"]
        if better:
            best = min(better, key=lambda name: column.methods[name].error or 0.0)
            ours, theirs = column.methods[OURS].error or 0.0, column.methods[best].error or 0.0
            words.append(f"{column.name} ({best} {theirs:.4g}, mcflow {ours:.4g})")
    if words:
        return f"mcflow is significantly worse than another method in {listed(words)}."
    return "In no column is another method significantly better than mcflow."


def _alike(compared: Sequence[ColumnScore]) -> list[str]:
    """Name, for each column where mcflow does not lead, the first method without a significant difference."""
    groups: dict[str, list[str]] = {}
    for column in compared:
        rivals = _rivals(column)
        if column.predictable and "better" not in rivals.values() and "same" in rivals.values():
            first = next(name for name, way in rivals.items() if way == "same")
            groups.setdefault(first, []).append(column.name)
    return [
        f"mcflow is not significantly different from {_articled([name])} in {listed(columns)}."
        for name, columns in groups.items()
    ]


def _coverage(methods: Sequence[MethodScore], level: float) -> list[str]:
    found = next(one.coverage for one in methods if one.name == OURS)
    if found is None:
        return []
    words = f"The {level:.0%} intervals of mcflow cover {found:.1%} of the hidden numbers."
    if abs(found - level) > COVERAGE_TOLERANCE:
        words += " They are too narrow." if found < level else " They are too wide."
    return [words]


def _recommendation(
    compared: Sequence[ColumnScore], methods: Sequence[MethodScore], overall: Mapping[str, str]
) -> list[str]:
    """Recommend the best method, or the fastest of those that are not significantly worse than mcflow."""
    known = {one.name: one for one in methods if one.relative_error is not None}
    others = [one for name, one in known.items() if name != OURS]
    if OURS not in known or not others:
        return []
    better = [one for one in others if overall.get(one.name) == "better"]
    ours, best = known[OURS], min(better or others, key=lambda one: one.relative_error or 0.0)
    if better:
        return [f"Recommendation: use {_articled([best.name])}, {_below(best, ours)} the error of mcflow{_time(best)}."]
    same = [one for one in others if overall.get(one.name) == "same"]
    if same:
        fast = min(same, key=lambda one: one.seconds or 0.0)
        return [
            f"Recommendation: {_articled([fast.name])}{_time(fast)} is as good here as mcflow{_time(ours)}. Use mcflow "
            "for draws and intervals."
        ]
    clear = sum(_rivals(column).get(best.name) == "worse" for column in compared)
    where = f", significantly lower in {clear} of {len(compared)} columns" if compared else ""
    return [
        f"Recommendation: use mcflow. Its error is {_below(ours, best)} that of {_articled([best.name])}, the best of "
        f"the others{where}. It was fitted{_time(ours)}, {_articled([best.name])}{_time(best)}."
    ]


def _below(one: MethodScore, other: MethodScore) -> str:
    return f"{percent_text(round(1 - (one.relative_error or 0.0) / (other.relative_error or 1.0), 2))} below"


def _time(one: MethodScore) -> str:
    if one.seconds is None:
        return ""
    return f" in {seconds_text(one.seconds)}" if one.seconds >= 0.1 else " in under 0.1 s"
