"""The table of draws and intervals: how sharp, how honest, and whether what was asked of them is met."""

from __future__ import annotations

__all__ = ["FOLDER", "MARK", "OTHERS", "Check", "checks_of", "draws_block"]

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from mcflow.benchmarks.blocks import Block, Bullets, Grid, Paragraph, to_markdown
from mcflow.benchmarks.methods import MethodSpec
from mcflow.benchmarks.protocol import ENERGY_DRAWS, FEW_VALUES, MOST_ROWS, N_DRAWS
from mcflow.benchmarks.report import measured_on, section_blocks, section_name, table_title
from mcflow.benchmarks.store import Row
from mcflow.benchmarks.suite import SUITES
from mcflow.benchmarks.summary import Section

#: The block of a page that holds the table.
MARK = "draws"
#: The folder of these results inside that of the benchmark, whose earlier cells have fewer scores.
FOLDER = "draws"
#: Whom the draws of `mcflow` are compared with.
OTHERS = ("mice", "em", "missforest")

_OWN = "mcflow"
_OVERALL = (0.88, 0.92)
_COLUMN = (0.80, 0.98)
_FEW = 0.88
_SHARPER = 0.8
_FIGURES = {
    "coverage_90": ("covers", 3),
    "lowest_coverage": ("lowest column", 3),
    "highest_coverage": ("highest column", 3),
    "few_values_coverage": ("few values", 3),
    "interval_width": ("width", 3),
    "draw_energy_distance": ("energy distance", 5),
}


@dataclass(frozen=True)
class Check:
    """One thing that is asked of the draws.

    Parameters
    ----------
    words : str
        What is asked.
    met : bool or None
        None when something that it needs was not measured.
    found : str
        The figures.
    """

    words: str
    met: bool | None
    found: str

    def __str__(self) -> str:
        verdict = {True: "met", False: "not met", None: "not measured"}[self.met]
        return f"{self.words}: **{verdict}**" + (f" ({self.found})." if self.found else ".")


def draws_block(rows: Sequence[Row], tables: Sequence[str] = SUITES["draws"].tables) -> str:
    """Return what stands between the marks of a page.

    Parameters
    ----------
    rows : sequence of dict
        What `Store.rows` returned.
    tables : sequence of str
        The tables that the checks are about, measured or not.

    Returns
    -------
    str
        Markdown.
    """
    blocks = section_blocks(rows, lambda section: _section_blocks(section, tables))
    return to_markdown(blocks or [Paragraph("There are no results yet.")])


def _section_blocks(section: Section, tables: Sequence[str]) -> list[Block]:
    blocks: list[Block] = [_grid(section), Paragraph(_caption(section))]
    if notes := [*_notes(section)]:
        blocks.append(Bullets(tuple(notes)))
    blocks += [Paragraph(f"What is asked of `{_OWN}`:"), Bullets(tuple(map(str, checks_of(section, tables))))]
    if alarms := [*_alarms(section)]:
        blocks.append(Bullets(tuple(alarms), alarm=True))
    return blocks


def _label(section: Section, name: str) -> str:
    """Return how the section writes a method, with its parameters."""
    found = sorted(method for method in section.methods if MethodSpec.parse(method).name == name)
    return found[0] if found else name


def _ratio(section: Section, table: str, score: str, own: str, other: str) -> float | None:
    """Return a score over that of another method, on the folds of both."""
    ours, theirs = (section.entry(method, table).values(score) for method in (own, other))
    shared = [fold for fold in ours if fold in theirs]
    base = fmean(theirs[fold] for fold in shared) if shared else 0.0
    return fmean(ours[fold] for fold in shared) / base if base else None


def _digits(value: float | None, digits: int) -> str:
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def _grid(section: Section) -> Grid:
    order = [_label(section, name) for name in (_OWN, *OTHERS)]
    methods = [m for m in order if m in section.methods] + [m for m in section.methods if m not in order]
    lines = [
        (table_title(table), f"`{method}`", *_figures(section, table, method))
        for table, method in product(section.tables, methods)
        if (method, table) in section.entries
    ]
    ratios = (f"/ {name}" for name in OTHERS)
    return Grid(("table", "method", "CRPS", *ratios, *(name for name, _ in _FIGURES.values()), "draws"), tuple(lines))


def _figures(section: Section, table: str, method: str) -> Iterator[str]:
    """Yield the cells of one line: the CRPS, its ratios, the figures of `_FIGURES` and seconds."""
    entry = section.entry(method, table)
    yield _digits(entry.mean("crps"), 4)
    for name in OTHERS:
        other = _label(section, name)
        yield "–" if other == method else _digits(_ratio(section, table, "crps", method, other), 3)
    for score, (_, digits) in _FIGURES.items():
        yield _digits(entry.mean(score), digits)
    seconds = entry.draw_seconds()
    yield "–" if seconds is None else f"{seconds:.1f} s"


def checks_of(section: Section, tables: Sequence[str]) -> list[Check]:
    """Return what is asked of the draws of `mcflow`, and whether it is met.

    Parameters
    ----------
    section : Section
        Results.
    tables : sequence of str
        Those that have to be measured before anything counts as met.

    Returns
    -------
    list of Check
        Coverage of all cells, of every column and of columns with few values, then the CRPS against the others and
        the energy distance against `mice`.
    """
    own = _label(section, _OWN)

    def score(name: str) -> dict[str, float | None]:
        return {table: section.entry(own, table).mean(name) for table in tables}

    def ratios(other: str) -> dict[str, float | None]:
        return {table: _ratio(section, table, "crps", own, _label(section, other)) for table in tables}

    return [
        _every("90 % intervals cover between .88 and .92 of the cells", score("coverage_90"), _between(*_OVERALL)),
        _every("at least .80 in every column", score("lowest_coverage"), _between(_COLUMN[0], math.inf)),
        _every("at most .98 in every column", score("highest_coverage"), _between(0.0, _COLUMN[1])),
        _few_values(section, own, tables),
        *(_sharper(other, ratios(other)) for other in ("mice", "em")),
        _every("CRPS not above that of `missforest` on any table", ratios("missforest"), _between(0.0, 1.0)),
        _nearer(section, own, tables),
    ]


def _between(low: float, high: float) -> Callable[[float], bool]:
    return lambda value: low <= value <= high


def _every(words: str, values: dict[str, float | None], holds: Callable[[float], bool]) -> Check:
    """Return a check that has to hold on every table."""
    good = {table: holds(value) for table, value in values.items() if value is not None}
    texts = [_marked(table, _digits(value, 3), good) for table, value in values.items()]
    return Check(words, _verdict(good, len(values)), ", ".join(texts))


def _marked(table: str, text: str, good: dict[str, bool]) -> str:
    """Return a figure of a table, bold where it breaks a check."""
    return f"{table_title(table)} {text if good.get(table, True) else f'**{text}**'}"


def _verdict(good: dict[str, bool], n_asked: int) -> bool | None:
    """Return False as soon as one table breaks a check, True once all that were asked for hold."""
    if not all(good.values()):
        return False
    return True if len(good) == n_asked > 0 else None


def _few_values(section: Section, own: str, tables: Sequence[str]) -> Check:
    """Check columns with few values; a table that was measured and has no such figure has no such column."""
    entries = {table: section.entry(own, table) for table in tables}
    without = [t for t, e in entries.items() if e.values("lowest_coverage") and not e.values("few_values_coverage")]
    values = {table: entry.mean("few_values_coverage") for table, entry in entries.items() if table not in without}
    return _every(f"at least .88 in columns with at most {FEW_VALUES} values", values, _between(_FEW, math.inf))


def _sharper(other: str, ratios: dict[str, float | None]) -> Check:
    found = [ratio for ratio in ratios.values() if ratio is not None]
    words = f"CRPS at least 20 % below that of `{other}`, the mean of the ratios over the tables"
    met = fmean(found) <= _SHARPER if len(found) == len(ratios) > 0 else None
    return Check(words, met, f"{_digits(fmean(found), 3)} over {len(found)} tables" if found else "")


def _nearer(section: Section, own: str, tables: Sequence[str]) -> Check:
    name, other = "draw_energy_distance", _label(section, "mice")
    pairs = {t: (section.entry(own, t).mean(name), section.entry(other, t).mean(name)) for t in tables}
    good = {t: ours <= theirs for t, (ours, theirs) in pairs.items() if ours is not None and theirs is not None}
    texts = [
        f"{_marked(table, _digits(ours, 5), good)} against {_digits(theirs, 5)}"
        for table, (ours, theirs) in pairs.items()
    ]
    words = "energy distance of drawn rows at most that of `mice` on every table"
    return Check(words, _verdict(good, len(pairs)), ", ".join(texts))


def _caption(section: Section) -> str:
    rows = [row for entry in section.entries.values() for row in entry.rows.values()]
    folds = sorted({row["task"]["fold"] for row in rows})
    return (
        f"{section_name(section).capitalize()}, fold {', '.join(map(str, folds))}. CRPS in units of each column's "
        f"range, of {N_DRAWS} draws of the first {MOST_ROWS:,} test rows, and its ratio to that of another method. "
        "What 90 % intervals cover: those of `interval` for all test rows where a method has it, else those between "
        "the 5 % and 95 % points of the draws; the columns where they cover least and most; columns with at most "
        f"{FEW_VALUES} distinct training values; and the mean width in units of the range. Energy distance between "
        f"drawn and true test rows that have a hole, columns in units of their deviations, mean of {ENERGY_DRAWS} "
        f"draws; it is 0 on average when draws are right, so it may be negative. Seconds are those of the {N_DRAWS} "
        f"draws. {measured_on(rows)}"
    )


def _notes(section: Section) -> Iterator[str]:
    for (method, table), entry in sorted(section.entries.items()):
        for note in entry.notes:
            yield f"`{method}` on {table_title(table)}: {note}."


def _alarms(section: Section) -> Iterator[str]:
    for (method, table), entry in sorted(section.entries.items()):
        for fold, row in entry.rows.items():
            if row.get("message"):
                yield f"`{method}` on {table_title(table)}, fold {fold}: {row['message'].rstrip('.')}."
