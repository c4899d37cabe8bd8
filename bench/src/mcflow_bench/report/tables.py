"""The report of a benchmark of tables: Markdown, an HTML page, a block for the docs and one for the README."""

from __future__ import annotations

__all__ = ["MARK", "page_block", "readme_block", "report_blocks", "section_blocks", "section_name", "write_report"]

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mcflow.evaluation.methods import MethodSpec
from mcflow.files.atomic import write_text
from mcflow_bench.report.blocks import (
    NO_RESULTS,
    Block,
    Figure,
    Grid,
    Heading,
    Paragraph,
    bullets,
    count_words,
    seconds_words,
    short_number,
    to_html,
    to_markdown,
)
from mcflow_bench.report.published import CITATION, EMFLOW_TABLES, TABLE_1, paper_rmse
from mcflow_bench.report.ranks import INK, draw_ranks
from mcflow_bench.report.summary import Entry, Section, data_title, measured_on, sections_of
from mcflow_bench.store import Row

#: Name of the block of a page that holds the tables.
MARK = "benchmark-tables"

#: Epochs of the paper's preset when a method does not set them.
PAPER_EPOCHS = 500

_TITLE = "Imputation of tables"
_MECHANISMS = {
    "mcar": "completely at random",
    "mar": "at random (by other columns)",
    "mnar_self": "not at random (by their own value)",
    "mnar_logistic": "not at random (logistic)",
    "mnar_quantile": "not at random (upper tails)",
}
_MEASURES = {
    "rmse": "RMSE",
    "mae": "MAE",
    "standardised_rmse": "standardised RMSE",
    "correlation_error": "correlation error",
    "energy_distance": "energy distance",
    "crps": "CRPS",
    "coverage_90": "90 % interval covers",
}


def write_report(rows: Sequence[Row], folder: Path) -> None:
    """Write table.md, table.html and the plots of ranks.

    Parameters
    ----------
    rows : sequence of dict
        The results, as `Store.rows` returns them.
    folder : Path
        Where to write.
    """
    figures: dict[int, Figure] = {}
    for place, section in enumerate(sections_of(rows)):
        if (ranking := section.ranking) is not None:
            words = f"Mean ranks, {section_name(section)}"
            name = "ranks.svg" if place == 0 else f"ranks-{place + 1}.svg"
            figures[place] = Figure(name, draw_ranks(ranking, words), words)
            write_text(folder / name, figures[place].html)
    blocks = [Heading(_TITLE, 1), *report_blocks(rows, figures)]
    page = [replace(b, html=b.html.replace(INK, "currentColor")) if isinstance(b, Figure) else b for b in blocks]
    write_text(folder / "table.md", to_markdown(blocks) + "\n")
    write_text(folder / "table.html", to_html(_TITLE, page))


def report_blocks(rows: Sequence[Row], figures: dict[int, Figure] | None = None) -> list[Block]:
    """Return the parts of the whole report; `figures` are those of the sections by their number."""
    blocks: list[Block] = []
    for place, section in enumerate(sections_of(rows)):
        blocks.append(Heading(section_name(section).capitalize()))
        blocks += _tables(section)
        if figures and place in figures:
            blocks.append(figures[place])
        for table in section.tables:
            blocks += [Heading(f"All measures on {data_title(table)}", 3), _measures(section, table)]
    return blocks or [NO_RESULTS]


def page_block(rows: Sequence[Row]) -> str:
    """Return the block for a page of the docs: tables, caption and alarms, without plots."""
    return to_markdown(section_blocks(rows, _tables))


def readme_block(rows: Sequence[Row]) -> str:
    """Return the block for the README: the paper's figures, beside both presets on the same tables."""
    found = [s for s in sections_of(rows) if (s.mechanism, s.rate, s.n_rows) == ("mcar", 0.2, None)]
    if not found:
        return to_markdown([NO_RESULTS])
    section = found[0]
    tables = [table for table in section.tables if table in EMFLOW_TABLES]
    lines = [
        ("MCFlow, published", *(_published(table) for table in tables)),
        ("MCFlow, run by the authors of EMFlow", *(short_number(EMFLOW_TABLES[table], 3) for table in tables)),
        ('`MCFlowImputer(preset="paper")`', *(_reproduced(section, table) for table in tables)),
        ("`MCFlowImputer()`", *(_bold(section.entry("mcflow", table).mean()) for table in tables)),
    ]
    words = "RMSE in units of each column's range, 20 % of the cells missing completely at random, mean over folds."
    return to_markdown([Grid(("RMSE", *map(data_title, tables)), tuple(lines)), Paragraph(words)])


def _published(table: str) -> str:
    return short_number(TABLE_1["mcflow:paper"][table][0])


def _reproduced(section: Section, table: str) -> str:
    """Return the error of the paper's preset, unchanged, with the most epochs that were measured."""
    own = {m: MethodSpec.parse(m) for m in section.methods if section.entry(m, table).mean() is not None}
    epochs = {
        m: int(dict(spec.parameters).get("max_epochs", PAPER_EPOCHS))
        for m, spec in own.items()
        if spec.name == "mcflow:paper" and not dict(spec.parameters).keys() - {"max_epochs"}
    }
    if not epochs:
        return "–"
    method = max(epochs, key=lambda m: epochs[m])
    return f"{short_number(section.entry(method, table).mean())} ({epochs[method]} epochs)"


def _bold(value: float | None) -> str:
    return "–" if value is None else f"**{short_number(value)}**"


def section_blocks(rows: Sequence[Row], blocks_of: Callable[[Section], Sequence[Block]]) -> list[Block]:
    """Return the blocks of all sections, with a heading for each if there are several."""
    sections = sections_of(rows)
    blocks: list[Block] = []
    for section in sections:
        if len(sections) > 1:
            blocks.append(Heading(section_name(section).capitalize(), 3))
        blocks += blocks_of(section)
    return blocks


def _tables(section: Section) -> list[Block]:
    return [
        _accuracy(section),
        Paragraph(_caption(section)),
        _cost(section),
        *bullets(section.notes),
        *bullets(_alarms(section), alarm=True),
    ]


def section_name(section: Section) -> str:
    """Return how cells were hidden, such as "20 % missing completely at random, first 2,000 rows"."""
    name = f"{section.rate:.0%} missing {_MECHANISMS.get(section.mechanism, section.mechanism)}".replace("%", " %")
    name += f", first {section.n_rows:,} rows" if section.n_rows else ""
    return name + (f", seed {section.seed}" if section.seed else "")


def _accuracy(section: Section) -> Grid:
    ranks = section.ranking.ranks if section.ranking else {}
    best = {t: min((m for m in (section.entry(k, t).mean() for k in section.methods) if m is not None), default=None)
            for t in section.tables}  # fmt: skip
    rows = []
    for method in section.methods:
        cells = [_accuracy_cell(section, method, table, best[table]) for table in section.tables]
        rows.append((f"`{method}`", *cells, f"{ranks[method]:.2f}" if method in ranks else "–"))
    return Grid(("method", *map(data_title, section.tables), "mean rank"), tuple(rows))


def _accuracy_cell(section: Section, method: str, table: str, best: float | None) -> str:
    entry = section.entry(method, table)
    mean, deviation = entry.mean(), entry.deviation()
    if mean is None:
        return "failed" if entry.failed else "–"
    text = f"**{short_number(mean)}**" if mean == best else short_number(mean)
    text += f" ± {short_number(deviation)}" if deviation is not None else ""
    if len(entry.done) < entry.asked:
        text += f" ({count_words(len(entry.done), 'fold')})"
    if section.n_rows is None:
        published = paper_rmse(MethodSpec.parse(method).name, table, section.mechanism, section.rate)
        text += f" [{short_number(published[0])}]" if published else ""
    return text


def _cost(section: Section) -> Grid:
    """Return the mean seconds of fit and fill over folds, and the peak memory of the process until the fill."""
    rows = []
    for method in section.methods:
        cells = [_cost_cell(section.entry(method, table)) for table in section.tables]
        rows.append((f"`{method}`", *cells))
    return Grid(("time and memory", *map(data_title, section.tables)), tuple(rows))


def _cost_cell(entry: Entry) -> str:
    seconds, peak = entry.seconds(), entry.peak_mib()
    if seconds is None:
        return "–"
    return seconds_words(seconds) + (f", {peak:,.0f} MiB" if peak is not None else "")


def _measures(section: Section, table: str) -> Grid:
    rows = []
    for method in section.methods:
        means = [section.entry(method, table).mean(score) for score in _MEASURES]
        rows.append((f"`{method}`", *map(short_number, means)))
    return Grid(("method", *_MEASURES.values()), tuple(rows))


def _alarms(section: Section) -> Iterator[str]:
    for method, table, ours, theirs in section.worse_than_the_mean():
        both = f"{short_number(ours)} against {short_number(theirs)}"
        yield f"`{method}` on {data_title(table)} is worse than the column mean: {both}."
    for (method, table), entry in sorted(section.entries.items()):
        for fold, row in entry.failed.items():
            message = row["message"].rstrip(".")
            yield f"`{method}` on {data_title(table)}, fold {fold}, failed ({row['status']}): {message}."


def _caption(section: Section) -> str:
    rows = section.rows
    words = (
        "RMSE over the hidden cells of the test fold in units of each column's full range, mean ± standard deviation "
        f"over folds; {section_name(section)}; fitted on the other four fifths of the rows, which are also incomplete. "
        f"Every method treats all columns as continuous numbers. {_shapes(rows)}"
    )
    if section.n_rows is None and section.mechanism == "mcar" and section.rate == 0.2:
        words += f"Results in brackets are from {CITATION}, whose tables differ in some rows. "
    words += _ranking_words(section)
    return words + "Times are those of fit and fill, memory is the peak of the process. " + measured_on(rows)


def _shapes(rows: Sequence[Row]) -> str:
    shapes = {r["task"]["table"]: r["data"] for r in rows if r.get("data")}
    return "".join(f"{data_title(t)} has {d['rows']:,} × {d['columns']} cells. " for t, d in sorted(shapes.items()))


def _ranking_words(section: Section) -> str:
    ranking = section.ranking
    if ranking is None:
        return ""
    words = f"Mean rank over {ranking.n_blocks} blocks of table and fold with all {len(ranking.ranks)} ranked methods"
    if math.isfinite(ranking.critical):
        words += f", critical difference {ranking.critical:.2f} (Nemenyi, 5 %; folds of a table are not independent)"
    return words + (f", Friedman p = {ranking.p_value:.2g}. " if math.isfinite(ranking.p_value) else ". ")
