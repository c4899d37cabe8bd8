"""The tables of a benchmark: Markdown, one HTML page, and a block for a README."""

from __future__ import annotations

__all__ = [
    "MARK",
    "measured_on",
    "readme_block",
    "report_blocks",
    "section_blocks",
    "section_name",
    "table_title",
    "write_report",
]

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mcflow.benchmarks.blocks import Block, Bullets, Figure, Grid, Heading, Paragraph, to_html, to_markdown
from mcflow.benchmarks.methods import MethodSpec
from mcflow.benchmarks.paper import CITATION, paper_figure
from mcflow.benchmarks.plots import INK, draw_ranks
from mcflow.benchmarks.store import Row
from mcflow.benchmarks.summary import Entry, Section, sections_of
from mcflow.benchmarks.wording import count_words, seconds_words, short_number
from mcflow.data.catalog import CATALOG
from mcflow.data.files import replacing
from mcflow.errors import MissingExtraError

#: The block of a README that holds the tables.
MARK = "benchmark-tables"

_TITLE = "Imputation of tables"
_WORDS = {
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


def write_report(rows: Sequence[Row], folder: Path) -> list[str]:
    """Write table.md, table.html and the plots of ranks.

    Parameters
    ----------
    rows : sequence of dict
        What `Store.rows` returned.
    folder : Path
        Where to write.

    Returns
    -------
    list of str
        What could not be written and why; empty when all is there.
    """
    sections = sections_of(rows)
    figures, missing = _figures(sections, folder)
    blocks = [Heading(_TITLE, 1), *report_blocks(rows, figures)]
    inline = [
        Figure(b.path, b.svg.replace(INK, "currentColor"), b.words) if isinstance(b, Figure) else b for b in blocks
    ]
    _write(folder / "table.md", to_markdown(blocks) + "\n")
    _write(folder / "table.html", to_html(_TITLE, inline))
    return missing


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _figures(sections: Sequence[Section], folder: Path) -> tuple[dict[int, Figure], list[str]]:
    figures: dict[int, Figure] = {}
    for place, section in enumerate(sections):
        ranking = section.ranking
        if ranking is None:
            continue
        words = f"Mean ranks, {section_name(section)}"
        try:
            svg = draw_ranks(ranking, words)
        except MissingExtraError as error:
            return {}, [str(error)]
        name = "ranks.svg" if place == 0 else f"ranks-{place + 1}.svg"
        _write(folder / name, svg)
        figures[place] = Figure(name, svg, words)
    return figures, []


def report_blocks(rows: Sequence[Row], figures: dict[int, Figure] | None = None) -> list[Block]:
    """Return the parts of the whole report.

    Parameters
    ----------
    rows : sequence of dict
        What `Store.rows` returned.
    figures : dict of Figure, optional
        Plots by the number of their section.

    Returns
    -------
    list of Block
    """
    blocks: list[Block] = []
    for place, section in enumerate(sections_of(rows)):
        blocks.append(Heading(section_name(section).capitalize()))
        blocks += _tables(section)
        if figures and place in figures:
            blocks.append(figures[place])
        for table in section.tables:
            blocks += [Heading(f"All measures on {table_title(table)}", 3), _measures(section, table)]
    return blocks or [Paragraph("There are no results yet.")]


def readme_block(rows: Sequence[Row]) -> str:
    """Return what stands between the marks of a README: tables, caption and alarms, without plots.

    Parameters
    ----------
    rows : sequence of dict
        What `Store.rows` returned.

    Returns
    -------
    str
        Markdown.
    """
    return to_markdown(section_blocks(rows, _tables))


def section_blocks(rows: Sequence[Row], blocks_of: Callable[[Section], Sequence[Block]]) -> list[Block]:
    """Return the blocks of all sections, under a heading each where there are several.

    Parameters
    ----------
    rows : sequence of dict
        What `Store.rows` returned.
    blocks_of : callable
        Takes a section and returns its blocks.

    Returns
    -------
    list of Block
    """
    sections = sections_of(rows)
    blocks: list[Block] = []
    for section in sections:
        if len(sections) > 1:
            blocks.append(Heading(section_name(section).capitalize(), 3))
        blocks += blocks_of(section)
    return blocks


def _tables(section: Section) -> list[Block]:
    blocks: list[Block] = [_accuracy(section), Paragraph(_caption(section)), _cost(section)]
    if notes := _notes(section):
        blocks.append(Bullets(tuple(notes)))
    if alarms := [*_alarms(section)]:
        blocks.append(Bullets(tuple(alarms), alarm=True))
    return blocks


def section_name(section: Section) -> str:
    """Return in words how cells were hidden, such as "20 % missing completely at random, first 2,000 rows".

    Parameters
    ----------
    section : Section
        What was measured.

    Returns
    -------
    str

    Examples
    --------
    >>> section_name(Section("mcar", 0.2, None, 0))
    '20 % missing completely at random'
    """
    name = f"{section.rate:.0%} missing {_WORDS.get(section.mechanism, section.mechanism)}".replace("%", " %")
    name += f", first {section.n_rows:,} rows" if section.n_rows else ""
    return name + (f", seed {section.seed}" if section.seed else "")


def table_title(table: str) -> str:
    """Return how reports call a table.

    Parameters
    ----------
    table : str
        Its name.

    Returns
    -------
    str

    Examples
    --------
    >>> table_title("news"), table_title("my_own")
    ('News', 'My own')
    """
    return CATALOG[table].title if table in CATALOG else table.replace("_", " ").capitalize()


def _accuracy(section: Section) -> Grid:
    ranks = section.ranking.ranks if section.ranking else {}
    best = {t: min((m for m in (section.entry(k, t).mean() for k in section.methods) if m is not None), default=None)
            for t in section.tables}  # fmt: skip
    rows = []
    for method in section.methods:
        cells = [_accuracy_cell(section, method, table, best[table]) for table in section.tables]
        rank = f"{ranks[method]:.2f}" if method in ranks else "–"
        rows.append((f"`{method}`", *cells, rank))
    return Grid(("method", *map(table_title, section.tables), "mean rank"), tuple(rows))


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
        figure = paper_figure(MethodSpec.parse(method).name, table, section.mechanism, section.rate)
        text += f" [{short_number(figure[0])}]" if figure else ""
    return text


def _cost(section: Section) -> Grid:
    """Return seconds of fit and fill, the mean over folds, and the process's largest memory until the fill was done."""
    rows = []
    for method in section.methods:
        cells = [_cost_cell(section.entry(method, table)) for table in section.tables]
        rows.append((f"`{method}`", *cells))
    return Grid(("time and memory", *map(table_title, section.tables)), tuple(rows))


def _cost_cell(entry: Entry) -> str:
    seconds, peak = entry.seconds(), entry.peak_mib()
    if seconds is None:
        return "–"
    return seconds_words(seconds) + (f", {peak:,.0f} MiB" if peak is not None else "")


def _measures(section: Section, table: str) -> Grid:
    rows = []
    for method in section.methods:
        means = [section.entry(method, table).mean(score) for score in _MEASURES]
        rows.append((f"`{method}`", *("–" if mean is None else short_number(mean) for mean in means)))
    return Grid(("method", *_MEASURES.values()), tuple(rows))


def _notes(section: Section) -> list[str]:
    found = []
    for (method, table), entry in sorted(section.entries.items()):
        found += [f"`{method}` on {table_title(table)}: {note}." for note in entry.notes]
    return found


def _alarms(section: Section) -> Iterator[str]:
    for method, table, ours, theirs in section.worse_than_the_mean():
        figures = f"{short_number(ours)} against {short_number(theirs)}"
        yield f"`{method}` on {table_title(table)} is worse than the column mean: {figures}."
    for (method, table), entry in sorted(section.entries.items()):
        for fold, row in entry.failed.items():
            message = row["message"].rstrip(".")
            yield f"`{method}` on {table_title(table)}, fold {fold}, failed ({row['status']}): {message}."


def _caption(section: Section) -> str:
    rows = [row for entry in section.entries.values() for row in entry.rows.values()]
    words = (
        "RMSE over the hidden cells of the test fold in units of each column's full range, mean ± standard deviation "
        f"over folds; {section_name(section)}; fit on the other four fifths of the rows, with their holes. Every "
        f"method takes all columns as continuous numbers. {_shapes(rows)}"
    )
    if section.n_rows is None and section.mechanism == "mcar" and section.rate == 0.2:
        words += f"In brackets the figures of {CITATION}; its data are not row for row the same. "
    words += _ranking_words(section)
    return words + "Times are those of fit and fill, memory is the peak of the process. " + measured_on(rows)


def _shapes(rows: Sequence[Row]) -> str:
    shapes = {r["task"]["table"]: r["data"] for r in rows if r.get("data")}
    return "".join(f"{table_title(t)} has {d['rows']:,} × {d['columns']} cells. " for t, d in sorted(shapes.items()))


def _ranking_words(section: Section) -> str:
    ranking = section.ranking
    if ranking is None:
        return ""
    words = f"Mean rank over {ranking.n_blocks} blocks of table and fold with all {len(ranking.ranks)} ranked methods"
    if math.isfinite(ranking.critical):
        words += f", critical difference {ranking.critical:.2f} (Nemenyi, 5 %; folds of a table are not independent)"
    return words + (f", Friedman p = {ranking.p_value:.2g}. " if math.isfinite(ranking.p_value) else ". ")


def measured_on(rows: Sequence[Row]) -> str:
    """Return where results were measured: machine, threads, load and versions.

    Parameters
    ----------
    rows : sequence of dict
        Some that `Store.rows` returned.

    Returns
    -------
    str
        A sentence.
    """
    machines = _distinct(f"{m['cpu']}, {m['cores']} cores, {m['ram_gib']} GiB" for m in _parts(rows, "machine"))
    used = _distinct(", ".join(f"{k} {v}" for k, v in sorted(found.items())) for found in _parts(rows, "versions"))
    threads = _distinct(
        f"{count_words(row['threads'], 'thread')}, {count_words(row['jobs'], 'cell')} at a time"
        for row in rows
        if "threads" in row
    )
    loads = [load for row in rows for load in row.get("load", ()) if load is not None]
    load = f"load {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    return f"Measured on {'; '.join(machines)}; {' or '.join(threads)}; {load}; {' or '.join(used)}."


def _parts(rows: Sequence[Row], name: str) -> list[dict[str, Any]]:
    return [row[name] for row in rows if row.get(name)]


def _distinct(texts: Iterable[str]) -> list[str]:
    return sorted(set(texts))
