"""The tables of an ablation: each variant beside the preset that it was taken from."""

from __future__ import annotations

__all__ = ["MARK", "ablation_block"]

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev

from mcflow.benchmarks.ablation import VARIANTS, AblationSuite
from mcflow.benchmarks.blocks import Block, Bullets, Grid, Heading, Paragraph, to_markdown
from mcflow.benchmarks.methods import MethodSpec
from mcflow.benchmarks.store import Row
from mcflow.benchmarks.summary import Entry, Section, sections_of
from mcflow.data.catalog import CATALOG

#: The block of a page that holds the tables.
MARK = "ablation"


def ablation_block(rows: Sequence[Row], densities: Sequence[Row], suite: AblationSuite) -> str:
    """Return what stands between the marks of a page.

    Parameters
    ----------
    rows, densities : sequence of dict
        What `Store.rows` returned for the cells of the suite and for the densities.
    suite : AblationSuite
        What was asked for. Results of other variants, epochs or rows are left out.

    Returns
    -------
    str
        Markdown.
    """
    section, joint = _section(rows, suite), _section(densities, suite)
    blocks: list[Block] = []
    if section is not None:
        for table in section.tables:
            blocks += [Heading(f"Accuracy on {_title(table)}", 3), _accuracy(section, table, suite)]
        blocks.append(Paragraph(_caption(section, suite)))
    if joint is not None:
        blocks += [Heading("Density", 3), _density(joint, suite), Paragraph(_density_caption())]
    if alarms := [*_alarms(section), *_alarms(joint)]:
        blocks.append(Bullets(tuple(alarms), alarm=True))
    return to_markdown(blocks or [Paragraph("There are no results yet.")])


def _section(rows: Sequence[Row], suite: AblationSuite) -> Section | None:
    """Gather the suite's results; the seed of each is that of its fold, so one section has them all."""
    methods = {str(MethodSpec.parse(method)) for method in suite.methods}
    own = [
        row | {"task": row["task"] | {"seed": 0}}
        for row in rows
        if row["label"] in methods
        and row["task"]["rows"] == suite.rows
        and row["task"]["fold"] == row["task"]["seed"]
        and row["task"]["fold"] in suite.folds
    ]
    return next(iter(sections_of(own)), None)


def _title(table: str) -> str:
    return CATALOG[table].title if table in CATALOG else table


def _accuracy(section: Section, table: str, suite: AblationSuite) -> Grid:
    lines = []
    for name, one in VARIANTS.items():
        entry, base = (section.entry(suite.method_of(n) or "", table) for n in (name, one.against))
        whole = one.against == name
        ratio = "1" if whole else _spread(_over(entry.values(), base.values()), 3)
        seconds = entry.seconds()
        lines.append(
            (
                f"**{one.label}**" if whole else one.label,
                _figure(entry, len(suite.folds)),
                ratio if entry.done else "–",
                "–" if seconds is None else f"{seconds:.1f} s",
            )
        )
    return Grid(("variant", "RMSE", "ratio", "time"), tuple(lines))


def _figure(entry: Entry, asked: int) -> str:
    if not entry.rows:
        return "–"
    if not entry.done:
        return "failed"
    text = _spread(entry.values(), 4)
    return text if len(entry.done) == asked else f"{text} ({len(entry.done)} of {asked} seeds)"


def _over(own: Mapping[int, float], base: Mapping[int, float]) -> dict[int, float]:
    """Return the ratios of two scores, seed by seed, where both are there."""
    return {seed: value / base[seed] for seed, value in own.items() if base.get(seed)}


def _spread(values: Mapping[int, float], digits: int, sign: str = "") -> str:
    """Return mean ± standard deviation over the seeds."""
    found = list(values.values())
    if not found:
        return "–"
    mean = f"{fmean(found):{sign}.{digits}f}"
    return mean if len(found) == 1 else f"{mean} ± {stdev(found):.{digits}f}"


def _density(section: Section, suite: AblationSuite) -> Grid:
    method = suite.method_of("full") or ""
    lines = []
    for table in section.tables:
        entry = section.entry(method, table)
        for name, words in (("hidden", "hidden cells, given the others of their row"), ("rows", "whole rows")):
            joint, alone = entry.values(name), entry.values(f"{name}_independent")
            gain = {seed: value - alone[seed] for seed, value in joint.items() if seed in alone}
            lines.append((_title(table), words, _spread(joint, 3), _spread(alone, 3), _spread(gain, 3, "+")))
    return Grid(("table", "log-density a cell of", "with the flow", "without", "gain"), tuple(lines))


def _caption(section: Section, suite: AblationSuite) -> str:
    rows = [row for entry in section.entries.values() for row in entry.rows.values()]
    shapes = {row["task"]["table"]: row["data"] for row in rows if row.get("data")}
    sizes = ", ".join(f"{_title(t)} {d['rows']:,} × {d['columns']} cells" for t, d in sorted(shapes.items()))
    epochs = {against: _epochs(suite, against) for against in ("full", "paper")}
    return (
        "RMSE over the hidden cells of the test rows in units of each column's range, mean ± standard deviation over "
        f"the seeds ({', '.join(map(str, suite.folds))}), each of which decides the split, the hidden cells and the "
        "fit. The ratio is that to the preset in bold above with the same seed; more than 1 is worse. Time is that of "
        "fit and fill. "
        f"{100 * section.rate:g} % of the cells missing completely at random; {sizes}, a fifth of them test rows; "
        f"{epochs['full']} epochs of the default preset, {epochs['paper']} of the paper's. {_environment(rows)}"
    )


def _epochs(suite: AblationSuite, name: str) -> int:
    return int(dict(MethodSpec.parse(suite.method_of(name) or "none").parameters).get("max_epochs", 0))


def _environment(rows: Sequence[Row]) -> str:
    parts = (
        {f"{row['machine']['cpu']}, {row['machine']['cores']} cores" for row in rows if row.get("machine")},
        {f"threads {row['threads']}, cells at a time {row['jobs']}" for row in rows if "jobs" in row},
        {", ".join(f"{k} {row['versions'].get(k)}" for k in ("mcflow", "torch")) for row in rows if "versions" in row},
    )
    return f"Measured on {'; '.join(' or '.join(sorted(part)) for part in parts if part)}."


def _density_caption() -> str:
    return (
        "Mean natural logarithm of the joint density of test cells, divided by their number; in units of the columns' "
        "deviations, and of masses for columns with few values, where the figure with the flow is a lower bound. "
        "Higher is better. Without the flow the cells of a row are independent given the others; H is the same, and so "
        "are the filled cells."
    )


def _alarms(section: Section | None) -> Iterator[str]:
    for (method, table), entry in sorted(section.entries.items()) if section else ():
        name = dict(MethodSpec.parse(method).parameters)["name"]
        for seed, row in entry.failed.items():
            message = row["message"].rstrip(".")
            yield f"{VARIANTS[name].label}, {_title(table)}, seed {seed}: failed ({row['status']}): {message}."
