"""The report on draws and intervals: their sharpness, their calibration, and whether the requirements are met."""

from __future__ import annotations

__all__ = ["MARK", "OTHERS", "Check", "checks_of", "draws_block"]

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from mcflow.evaluation.methods import MethodSpec
from mcflow_bench.protocol import ENERGY_DRAWS, FEW_VALUES, MAX_DRAWN_ROWS, N_DRAWS
from mcflow_bench.report.blocks import NO_RESULTS, Block, Bullets, Grid, Paragraph, bullets, short_number, to_markdown
from mcflow_bench.report.summary import Section, data_title, measured_on
from mcflow_bench.report.tables import section_blocks, section_name
from mcflow_bench.store import Row
from mcflow_bench.suites import TABLE_SUITES

#: Name of the block of a page that holds the table.
MARK = "draws"
#: Methods that the draws of `mcflow` are compared with.
OTHERS = ("mice", "em", "missforest")

_OWN = "mcflow"
#: Required coverage of 90 % intervals over all cells.
_OVERALL = (0.88, 0.92)
#: Required coverage in every column.
_COLUMN = (0.80, 0.98)
#: Required coverage in columns with few values.
_FEW = 0.88
#: Required mean ratio of the CRPS to that of another method.
_SHARPER = 0.8
#: Title and number of digits of the scores in the table.
_SCORES = {
    "coverage_90": ("covers", 3),
    "lowest_coverage": ("lowest column", 3),
    "highest_coverage": ("highest column", 3),
    "few_values_coverage": ("few values", 3),
    "interval_width": ("width", 3),
    "draw_energy_distance": ("energy distance", 5),
}


@dataclass(frozen=True)
class Check:
    """One requirement on the draws."""

    words: str  # the requirement
    met: bool | None  # None if a score that it needs was not measured
    found: str  # the scores

    def __str__(self) -> str:
        verdict = {True: "met", False: "not met", None: "not measured"}[self.met]
        return f"{self.words}: **{verdict}**" + (f" ({self.found})." if self.found else ".")


def draws_block(rows: Sequence[Row], tables: Sequence[str] = TABLE_SUITES["draws"].data) -> str:
    """Return the block of a page."""
    return to_markdown(section_blocks(rows, lambda section: _section_blocks(section, tables)) or [NO_RESULTS])


def _section_blocks(section: Section, tables: Sequence[str]) -> list[Block]:
    return [
        _grid(section),
        Paragraph(_caption(section)),
        *bullets(section.notes),
        Paragraph(f"Requirements on `{_OWN}`:"),
        Bullets(tuple(map(str, checks_of(section, tables)))),
        *bullets(_alarms(section), alarm=True),
    ]


def _label(section: Section, name: str) -> str:
    """Return a method with its parameters, as the section has it."""
    found = sorted(method for method in section.methods if MethodSpec.parse(method).name == name)
    return found[0] if found else name


def _ratio(section: Section, table: str, score: str, own: str, other: str) -> float | None:
    """Return the ratio of a score to that of another method, on the folds of both."""
    ours, theirs = (section.entry(method, table).values(score) for method in (own, other))
    shared = [fold for fold in ours if fold in theirs]
    base = fmean(theirs[fold] for fold in shared) if shared else 0.0
    return fmean(ours[fold] for fold in shared) / base if base else None


def _grid(section: Section) -> Grid:
    order = [_label(section, name) for name in (_OWN, *OTHERS)]
    methods = [m for m in order if m in section.methods] + [m for m in section.methods if m not in order]
    lines = [
        (data_title(table), f"`{method}`", *_line(section, table, method))
        for table, method in product(section.tables, methods)
        if (method, table) in section.entries
    ]
    ratios = (f"/ {name}" for name in OTHERS)
    return Grid(("table", "method", "CRPS", *ratios, *(name for name, _ in _SCORES.values()), "draws"), tuple(lines))


def _line(section: Section, table: str, method: str) -> Iterator[str]:
    """Yield the cells of one line: the CRPS, its ratios, the scores of `_SCORES` and seconds."""
    entry = section.entry(method, table)
    yield short_number(entry.mean("crps"), 4)
    for name in OTHERS:
        other = _label(section, name)
        yield "–" if other == method else short_number(_ratio(section, table, "crps", method, other), 3)
    for score, (_, digits) in _SCORES.items():
        yield short_number(entry.mean(score), digits)
    seconds = entry.draw_seconds()
    yield "–" if seconds is None else f"{seconds:.1f} s"


def checks_of(section: Section, tables: Sequence[str]) -> list[Check]:
    """Return the requirements on the draws of `mcflow`, and whether they are met."""
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
    texts = [_marked(table, short_number(value, 3), good) for table, value in values.items()]
    return Check(words, _verdict(good, len(values)), ", ".join(texts))


def _marked(table: str, text: str, good: dict[str, bool]) -> str:
    """Return a score of a table, in bold if it fails a check."""
    return f"{data_title(table)} {text if good.get(table, True) else f'**{text}**'}"


def _verdict(good: dict[str, bool], n_asked: int) -> bool | None:
    """Return False if a table fails a check, True if all tables that were asked for pass it, else None."""
    if not all(good.values()):
        return False
    return True if len(good) == n_asked > 0 else None


def _few_values(section: Section, own: str, tables: Sequence[str]) -> Check:
    """Check columns with few values; a table that was measured without that score has no such column."""
    entries = {table: section.entry(own, table) for table in tables}
    without = [t for t, e in entries.items() if e.values("lowest_coverage") and not e.values("few_values_coverage")]
    values = {table: entry.mean("few_values_coverage") for table, entry in entries.items() if table not in without}
    return _every(f"at least .88 in columns with at most {FEW_VALUES} values", values, _between(_FEW, math.inf))


def _sharper(other: str, ratios: dict[str, float | None]) -> Check:
    found = [ratio for ratio in ratios.values() if ratio is not None]
    words = f"CRPS at least 20 % below that of `{other}`, the mean of the ratios over the tables"
    met = fmean(found) <= _SHARPER if len(found) == len(ratios) > 0 else None
    return Check(words, met, f"{short_number(fmean(found), 3)} over {len(found)} tables" if found else "")


def _nearer(section: Section, own: str, tables: Sequence[str]) -> Check:
    name, other = "draw_energy_distance", _label(section, "mice")
    pairs = {t: (section.entry(own, t).mean(name), section.entry(other, t).mean(name)) for t in tables}
    good = {t: ours <= theirs for t, (ours, theirs) in pairs.items() if ours is not None and theirs is not None}
    texts = [
        f"{_marked(table, short_number(ours, 5), good)} against {short_number(theirs, 5)}"
        for table, (ours, theirs) in pairs.items()
    ]
    words = "energy distance of drawn rows at most that of `mice` on every table"
    return Check(words, _verdict(good, len(pairs)), ", ".join(texts))


def _caption(section: Section) -> str:
    rows = section.rows
    folds = sorted({row["task"]["fold"] for row in rows})
    return (
        f"{section_name(section).capitalize()}, fold {', '.join(map(str, folds))}. CRPS in units of each column's "
        f"range, of {N_DRAWS} draws of the first {MAX_DRAWN_ROWS:,} test rows, and its ratio to that of another "
        "method. Coverage of 90 % intervals: those of `interval` for all test rows if a method has it, else those "
        "between the 5 % and 95 % quantiles of the draws; the columns with the lowest and the highest coverage; "
        f"columns with at most {FEW_VALUES} distinct training values; and the mean width in units of the range. Energy "
        "distance between drawn and true test rows that have missing cells, columns in units of their standard "
        f"deviations, mean of {ENERGY_DRAWS} draws; its mean is 0 for draws from the true distribution, so it may be "
        f"negative. Seconds are those of the {N_DRAWS} draws. {measured_on(rows)}"
    )


def _alarms(section: Section) -> Iterator[str]:
    for (method, table), entry in sorted(section.entries.items()):
        for fold, row in entry.rows.items():
            if row.get("message"):
                yield f"`{method}` on {data_title(table)}, fold {fold}: {row['message'].rstrip('.')}."
