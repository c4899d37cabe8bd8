"""The report of accuracy against time: a figure with a panel for each table, and a table of all results."""

from __future__ import annotations

__all__ = ["FIGURE", "MARK", "Point", "anytime_block", "draw_anytime", "panels", "readme_block", "title"]

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mcflow.evaluation.methods import MethodSpec
from mcflow_bench.anytime import ENVIRONMENTS, AnytimeSuite
from mcflow_bench.report.blocks import (
    NO_RESULTS,
    Block,
    Figure,
    Grid,
    Paragraph,
    bullets,
    seconds_words,
    short_number,
    to_markdown,
)
from mcflow_bench.report.ranks import INK, SVG_IN_INK, svg_with_legend
from mcflow_bench.report.summary import data_title, measured_on
from mcflow_bench.store import Row

#: Name of the block of a page that holds the figure and the table.
MARK = "anytime"
#: File name of the figure.
FIGURE = "anytime.svg"

_WORDS = "Error against seconds of fit and fill for mcflow under several time limits and for other methods, by table"

_TITLES = {
    "ridge": "ridge loop",
    "boosted": "boosted loop",
    "forest": "forest loop",
    "miceforest": "miceforest",
    "hyperimpute": "HyperImpute",
}

#: Colour and marker of each method; the colours are readable on white and on black.
_STYLES = {
    "mcflow": ("#d9730d", "o"),
    "ridge": ("#8a8a8a", "v"),
    "boosted": ("#3f8fd6", "s"),
    "forest": ("#3a9d5d", "^"),
    "miceforest": ("#a56eda", "D"),
    "hyperimpute": ("#d6496b", "P"),
}

_SCORES = {"rmse": "RMSE, in ranges", "category_error": "wrong categories"}


class Point(NamedTuple):
    """A finished cell: seconds of fit and fill, and an error."""

    method: str
    seconds: float
    error: float


def anytime_block(rows: Sequence[Row], suite: AnytimeSuite, figure: str) -> str:
    """Return the block of the page; `figure` is the path of the figure from there."""
    own = _own(rows, suite)
    if not own:
        return to_markdown([NO_RESULTS])
    blocks: list[Block] = [_figure(own, figure), _grid(own, suite), Paragraph(_caption(own, suite))]
    return to_markdown([*blocks, *bullets(_notes(own, suite)), *bullets(_alarms(own), alarm=True)])


def readme_block(rows: Sequence[Row], suite: AnytimeSuite, figure: str) -> str:
    """Return the block of the front page: the figure, and where its numbers are."""
    own = _own(rows, suite)
    if not own:
        return to_markdown([NO_RESULTS])
    points = "Each point is one fit. The line connects mcflow with `max_time` of 2 to 80 seconds and without a limit."
    return to_markdown([_figure(own, figure), Paragraph(f"{points} {measured_on(own)}")])


def _own(rows: Sequence[Row], suite: AnytimeSuite) -> list[Row]:
    """Return the results of a suite, the newest of each table and method."""
    newest: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: str(row.get("date", ""))):
        task = row["task"]
        here = (task.get("dataset") in suite.data, row["label"] in suite.methods, task.get("fold") == suite.fold)
        if all(here) and task["rows"] == suite.rows and task["rate"] == suite.rate:
            newest[task["dataset"], row["label"]] = row
    return [newest[table, method] for table in suite.data for method in suite.methods if (table, method) in newest]


def _figure(rows: Sequence[Row], path: str) -> Figure:
    tables = ", ".join(dict.fromkeys(data_title(row["task"]["dataset"]) for row in rows))
    return Figure(path, "", f"{_WORDS}: {tables}")


def title(label: str) -> str:
    """Return a method in words.

    Examples
    --------
    >>> title("mcflow(max_time=2.0)"), title("mcflow"), title("forest")
    ('mcflow, `max_time=2`', 'mcflow, no limit', 'forest loop')
    """
    spec = MethodSpec.parse(label)
    if spec.name != "mcflow":
        return _TITLES[spec.name]
    limit = dict(spec.parameters).get("max_time")
    return "mcflow, no limit" if limit is None else f"mcflow, `max_time={limit:g}`"


def _grid(rows: Sequence[Row], suite: AnytimeSuite) -> Grid:
    found = {(row["task"]["dataset"], row["label"]): row for row in rows}
    lines = [
        (title(method), *(_entry(found.get((table, method))) for table in suite.data))
        for method in suite.methods
        if any((table, method) in found for table in suite.data)
    ]
    return Grid(("method", *map(data_title, suite.data)), tuple(lines))


def _entry(row: Row | None) -> str:
    if row is None:
        return "not measured"
    if row["status"] != "done":
        return "failed"
    errors = [short_number(row["scores"][name]["value"]) for name in _SCORES if name in row["scores"]]
    return f"{' / '.join(errors)} in {seconds_words(_seconds(row))}"


def _seconds(row: Row) -> float:
    return float(row["fit_s"] + row["transform_s"])


def _caption(rows: Sequence[Row], suite: AnytimeSuite) -> str:
    shapes = {row["task"]["dataset"]: row["data"] for row in rows if row.get("data")}
    sizes = "; ".join(f"{data_title(t)} has {d['rows']:,} × {d['columns']} cells" for t, d in shapes.items())
    second = "the error of tables with categories is followed by the fraction of wrong categories; "
    return (
        "RMSE over the hidden cells of the test fold in units of each column's range, and seconds of fit and fill; "
        f"{second if any(d['categorical'] for d in shapes.values()) else ''}"
        f"{100 * suite.rate:g} % of the cells missing completely at random, one fold, one run each. {sizes}. "
        f"{measured_on(rows)}"
    )


def _notes(rows: Sequence[Row], suite: AnytimeSuite) -> Iterator[str]:
    labels = {row["label"] for row in rows}
    if apart := [title(name) for name in ENVIRONMENTS if name in labels]:
        yield (
            f"{' and '.join(apart)}: one shot. Training and test rows are filled together, with the hidden cells of "
            "both, since HyperImpute fits anew for every table, and `impute_new_data` of miceforest 6.0.5 returns its "
            "random first fill. Imports are not counted."
        )
    mixed = [data_title(table) for table in suite.mixed if any(row["task"]["dataset"] == table for row in rows)]
    if mixed:
        yield (
            f"{', '.join(mixed)}: the loops are `mice`, `boosted` and `missforest` of `mcflow.baselines`, since those "
            "of scikit-learn take no categories."
        )


def _alarms(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if row["status"] != "done":
            where = f"{title(row['label'])} on {data_title(row['task']['dataset'])}"
            yield f"{where}: failed ({row['status']}): {row['message'].rstrip('.')}."


def panels(rows: Sequence[Row], suite: AnytimeSuite) -> dict[tuple[str, str], list[Point]]:
    """Return the points of each panel by table and score, in the order of the suite."""
    found: dict[tuple[str, str], list[Point]] = {}
    for row in _own(rows, suite):
        for score in _SCORES if row["status"] == "done" else ():
            if (value := row["scores"].get(score, {}).get("value")) is not None:
                point = Point(row["label"], _seconds(row), value)
                found.setdefault((row["task"]["dataset"], score), []).append(point)
    return found


def draw_anytime(rows: Sequence[Row], suite: AnytimeSuite) -> str | None:
    """Draw the figure as SVG, with a logarithmic time axis; None if there is nothing to draw."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    found = panels(rows, suite)
    if not found:
        return None
    with mpl.rc_context(SVG_IN_INK):
        n_columns = min(3, len(found))
        n_rows = -(-len(found) // n_columns)
        canvas = Canvas(figsize=(3.3 * n_columns, 2.6 * n_rows + 0.5), layout="constrained")
        grid = canvas.subplots(n_rows, n_columns, squeeze=False).ravel()
        for axes, ((table, score), points) in zip(grid, found.items(), strict=False):
            _panel(axes, points)
            axes.set(title=data_title(table), xlabel="seconds", ylabel=_SCORES[score])
        for axes in grid[len(found) :]:
            axes.axis("off")
        return svg_with_legend(canvas, grid, 6)


def _panel(axes: Any, points: Sequence[Point]) -> None:
    """Draw the curve of mcflow, and a point for each other method."""
    ours = sorted((p for p in points if p.method.startswith("mcflow")), key=lambda p: p.seconds)
    if ours:
        colour, marker = _STYLES["mcflow"]
        axes.plot([p.seconds for p in ours], [p.error for p in ours], marker=marker, color=colour, label="mcflow", ms=4)
    for point in points:
        if point.method in _TITLES:
            colour, marker = _STYLES[point.method]
            axes.plot(
                *([point.seconds], [point.error]), marker=marker, color=colour, ls="", label=_TITLES[point.method], ms=6
            )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(visible=True, color=INK, alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
