"""The report of the reproduction: the paper's figures beside ours, curves by epoch, and the effect of each choice."""

from __future__ import annotations

__all__ = ["FIGURE", "MARKS", "Stored", "draw_curves", "reproduction_blocks"]

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from mcflow_bench.report.blocks import (
    NO_RESULTS,
    Block,
    Figure,
    Grid,
    Heading,
    Paragraph,
    bullets,
    count_words,
    short_number,
    to_markdown,
)
from mcflow_bench.report.published import AUTHORS_PROGRAM, EMFLOW_TABLES, TABLE_1
from mcflow_bench.report.ranks import INK, SVG_IN_INK, svg_with_legend
from mcflow_bench.report.summary import data_title, measured_on
from mcflow_bench.reproduction import CHOICES, method_of
from mcflow_bench.store import Row
from mcflow_bench.suites import TableSuite

#: Names of the blocks of a page, in the order of `reproduction_blocks`.
MARKS = ("reproduction-table", "reproduction-curves", "reproduction-credit", "reproduction-choices")
#: File name of the plot.
FIGURE = "reproduction.svg"

_TABLES = ("letter", "credit", "news")
_EPOCHS = 500
_PAPER = f"mcflow:paper(max_epochs={_EPOCHS})"
_BATCH_64 = f"mcflow:paper(batch_size=64,max_epochs={_EPOCHS})"
_METHODS = {
    "mcflow:paper(max_epochs=64)": '`preset="paper"`, 64 epochs',
    _PAPER: f'`preset="paper"`, {_EPOCHS} epochs',
    _BATCH_64: f'`preset="paper"`, {_EPOCHS} epochs, batch 64',
    "mean": "column mean",
}
#: Colour and label of each curve; the colours are readable on white and on black.
_CURVES = {_PAPER: ("#d9730d", "batch 128"), _BATCH_64: ("#3f8fd6", "batch 64")}
_LEVELS = {"published": ("#3a9d5d", "--"), "EMFlow's re-run": ("#a56eda", ":"), "column mean": ("#8a8a8a", "-.")}
_WORDS = "RMSE on test rows by epoch of the paper's method on Letter, Credit and News, with the published figures"


@dataclass(frozen=True)
class Stored:
    """Stored results: those of `mcflow benchmark tables`, and those of the choices."""

    tables: Sequence[Row]
    choices: Sequence[Row]

    def of(self, method: str, table: str) -> dict[int, Row]:
        """Return the results of a method on a whole table of the paper by fold."""
        return {
            row["task"]["fold"]: row
            for row in self.tables
            if _is_whole(row, table) and row["label"] == method and row["status"] == "done"
        }

    def chosen(self, name: str, suite: TableSuite) -> dict[int, Row]:
        """Return the results of a choice by fold."""
        epochs = _epochs(suite)
        return {
            row["task"]["fold"]: row
            for row in self.choices
            if row["task"]["table"] == suite.data[0]
            and row["task"]["rows"] == suite.rows
            and row["label"] == method_of(name, epochs)
            and row["task"]["fold"] in suite.folds
            and row["status"] == "done"
        }

    def stages(self, method: str, table: str) -> dict[int, list[dict[str, Any]]]:
        """Return the stages of all folds of a method by epoch."""
        found: dict[int, list[dict[str, Any]]] = {}
        for row in self.of(method, table).values():
            for stage in row.get("stages", ()):
                found.setdefault(stage["epoch"], []).append(stage)
        return dict(sorted(found.items()))


def _is_whole(row: Row, table: str) -> bool:
    task = row["task"]
    asked = (table, None, "mcar", 0.2, 0)
    return tuple(task.get(name) for name in ("table", "rows", "mechanism", "rate", "seed")) == asked


def _epochs(suite: TableSuite) -> int:
    """Return the epochs of a suite of choices."""
    from mcflow.evaluation.methods import MethodSpec

    return int(dict(MethodSpec.parse(suite.methods[0]).parameters)["max_epochs"])


def reproduction_blocks(found: Stored, suites: Sequence[TableSuite], figure: str) -> dict[str, str]:
    """Return the blocks of the page by mark; `figure` is the path of the plot from there."""
    *by_table, longer = suites
    parts = (_table(found), _curves(found, figure), _credit(found, longer), _choices(found, by_table))
    return {mark: to_markdown(blocks or [NO_RESULTS]) for mark, blocks in zip(MARKS, parts, strict=True)}


def _table(found: Stored) -> list[Block]:
    """Compare with Table 1 of the paper."""
    ours = {method: {table: found.of(method, table) for table in _TABLES} for method in _METHODS}
    rows = [row for by_table in ours.values() for by_fold in by_table.values() for row in by_fold.values()]
    if not rows:
        return []
    published = TABLE_1["mcflow:paper"]
    lines = [
        ("MCFlow, published", *(f"{short_number(published[t][0])} ± {short_number(published[t][1])}" for t in _TABLES)),
        ("MCFlow, run by the authors of EMFlow", *(short_number(EMFLOW_TABLES[t], 3) for t in _TABLES)),
    ]
    lines += [(words, *(_spread(_rmse(ours[method][t])) for t in _TABLES)) for method, words in _METHODS.items()]
    ratio = [_over(_rmse(ours[_PAPER][t]), published[t][0]) for t in _TABLES]
    lines.append((f'`preset="paper"`, {_EPOCHS} epochs, relative to the published figure', *ratio))
    words = (
        "RMSE over the missing cells of the test rows in units of each column's range, 20 % of the cells missing "
        "completely at random, mean ± standard deviation over folds, with the number of folds in brackets. "
    )
    return [Grid(("RMSE", *map(data_title, _TABLES)), tuple(lines)), Paragraph(words + measured_on(rows))]


def _rmse(rows: Mapping[int, Row]) -> list[float]:
    return [row["scores"]["rmse"]["value"] for row in rows.values()]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "not measured"
    spread = f" ± {short_number(stdev(values))}" if len(values) > 1 else ""
    return f"{short_number(fmean(values))}{spread} ({len(values)})"


def _over(values: Sequence[float], published: float) -> str:
    return f"{100 * (fmean(values) / published - 1):+.0f} %".replace("-", "−") if values else "–"


def _curves(found: Stored, figure: str) -> list[Block]:
    """Show the errors by epoch, as a plot and as a table."""
    curves = {(method, table): _mean_curve(found, method, table) for method in _CURVES for table in _TABLES}
    curves = {place: curve for place, curve in curves.items() if curve}
    if not curves:
        return []
    names = [f"{data_title(table)}, {_CURVES[method][1]}" for method, table in curves]
    epochs = sorted({epoch for curve in curves.values() for epoch in curve})
    lines = [
        (str(epoch), *(short_number(curve.get(epoch)) for curve in curves.values()), _of_authors(epoch))
        for epoch in epochs
    ]
    folds = ", ".join(
        f"{count_words(len(found.of(*place)), 'fold')} of {name}" for place, name in zip(curves, names, strict=True)
    )
    words = (
        f"RMSE over the missing cells of the test rows after each stage, mean over folds: {folds}. A stage ends at "
        "every epoch that is a power of two, so a row is what a fit of that many epochs gives. The last column is from "
        "single runs of the authors' program on one split of Letter, with the same rows, masks and scaling as ours; "
        "this command does not run it."
    )
    grid = Grid(("epoch", *names, "Letter, authors' program"), tuple(lines))
    return [Figure(figure, "", _WORDS), grid, Paragraph(words)]


def _mean_curve(found: Stored, method: str, table: str) -> dict[int, float]:
    stages = found.stages(method, table)
    return {epoch: fmean(stage["test"] for stage in some) for epoch, some in stages.items()}


def _of_authors(epoch: int) -> str:
    return short_number(AUTHORS_PROGRAM.get(epoch))


def _credit(found: Stored, longer: TableSuite) -> list[Block]:
    """Show the errors on Credit by epoch: all columns, that with the largest error, the others, and with λ = 0."""
    rows = found.of(_PAPER, "credit")
    stages = found.stages(_PAPER, "credit")
    if not stages:
        return []
    names = next(iter(rows.values()))["columns"]
    squares = {epoch: _column_squares(some) for epoch, some in stages.items()}
    last = squares[max(squares)]
    worst = last.index(max(last))
    plain = {
        s["epoch"]: _column_squares([s]) for row in found.chosen("lambda_0", longer).values() for s in row["stages"]
    }
    lines = []
    for epoch, columns in squares.items():
        others = [square for k, square in enumerate(columns) if k != worst]
        errors = [_root(part) for part in (columns, [columns[worst]], others, plain.get(epoch))]
        lines.append((str(epoch), *errors, f"{100 * columns[worst] / sum(columns):.0f} %"))
    name = f"`{names[worst]}`"
    header = ("epoch", "all columns", name, "all other columns", "all columns, λ = 0", f"share of {name}")
    words = (
        "RMSE over the missing cells of the training rows of Credit in units of each column's range, the root of the "
        f"mean square over the columns; {count_words(len(rows), 'fold')}, with λ = 0 the first fold. The share is that "
        "of the sum of squares."
    )
    return [Grid(header, tuple(lines)), Paragraph(words)]


def _column_squares(stages: Sequence[dict[str, Any]]) -> list[float]:
    """Return the mean square of each column's error over folds."""
    return [fmean(error**2 for error in column) for column in zip(*(stage["columns"] for stage in stages), strict=True)]


def _root(squares: Sequence[float] | None) -> str:
    return short_number(math.sqrt(fmean(squares)) if squares else None)


def _choices(found: Stored, suites: Sequence[TableSuite]) -> list[Block]:
    """Show the effect of every choice, table by table."""
    blocks: list[Block] = []
    alarms: list[str] = []
    for suite in suites:
        table = suite.data[0]
        if not any(found.chosen(name, suite) for name in CHOICES):
            continue
        lines = [_choice_line(found, name, suite) for name, one in CHOICES.items() if table in one.tables]
        header = ("choice", "value", "training rows", "difference", "test rows", "difference")
        blocks += [Heading(f"{data_title(table)}, {_epochs(suite)} epochs", 3), Grid(header, tuple(lines))]
        alarms += _failures(found, suite)
    if not blocks:
        return []
    words = (
        "RMSE over the missing cells of training and of test rows, mean ± standard deviation over folds, with the "
        "number of folds in brackets; each fold has its own random state. Differences are to the unchanged preset in "
        "the same folds; negative ones are better. "
    )
    return [*blocks, Paragraph(words + measured_on(found.choices)), *bullets(alarms, alarm=True)]


def _choice_line(found: Stored, name: str, suite: TableSuite) -> tuple[str, ...]:
    one, rows, base = CHOICES[name], found.chosen(name, suite), found.chosen("paper", suite)
    line = [one.subject, one.label]
    for part in ("train", "test"):
        own = {fold: _last(row, part) for fold, row in rows.items()}
        changes = [value - _last(base[fold], part) for fold, value in own.items() if fold in base]
        line += [_spread(list(own.values())), "–" if name == "paper" else _signed(changes)]
    return tuple(line)


def _last(row: Row, part: str) -> float:
    return float(row["stages"][-1][part])


def _signed(values: Sequence[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {short_number(stdev(values))}" if len(values) > 1 else ""
    mean = round(fmean(values), 4)
    return f"{'−' if mean < 0 else '+'}{short_number(abs(mean))}{spread}"


def _failures(found: Stored, suite: TableSuite) -> Iterator[str]:
    labels = {method_of(name, _epochs(suite)): one for name, one in CHOICES.items()}
    for row in found.choices:
        if row["status"] != "done" and row["label"] in labels and row["task"]["table"] == suite.data[0]:
            one, task = labels[row["label"]], row["task"]
            where = f"{one.subject}, {one.label}, {data_title(task['table'])}, fold {task['fold']}"
            yield f"{where}: failed ({row['status']}): {row['message'].rstrip('.')}."


def draw_curves(found: Stored) -> str | None:
    """Draw the errors by epoch as SVG, a panel for each table; None if there is nothing to draw."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    tables = [table for table in _TABLES if _mean_curve(found, _PAPER, table)]
    if not tables:
        return None
    with mpl.rc_context(SVG_IN_INK):
        canvas = Canvas(figsize=(3.3 * len(tables), 3.3), layout="constrained")
        grid = canvas.subplots(1, len(tables), squeeze=False).ravel()
        for axes, table in zip(grid, tables, strict=True):
            _panel(axes, found, table)
        return svg_with_legend(canvas, grid, 5)


def _panel(axes: Any, found: Stored, table: str) -> None:
    """Draw the curves of a table from epoch 4, and the published figures and the column mean as horizontal lines."""
    for method, (colour, label) in _CURVES.items():
        curve = {epoch: value for epoch, value in _mean_curve(found, method, table).items() if epoch >= 4}
        if curve:
            axes.plot(list(curve), list(curve.values()), marker="o", ms=4, color=colour, label=label)
    means = _rmse(found.of("mean", table))
    levels = {"published": TABLE_1["mcflow:paper"][table][0], "EMFlow's re-run": EMFLOW_TABLES[table]}
    levels |= {"column mean": fmean(means)} if means else {}
    for label, level in levels.items():
        colour, style = _LEVELS[label]
        axes.axhline(level, color=colour, ls=style, lw=1.2, label=label)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(title=data_title(table), xlabel="epochs", ylabel="RMSE, in ranges")
    axes.grid(visible=True, color=INK, alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
