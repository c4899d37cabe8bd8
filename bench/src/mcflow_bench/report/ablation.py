"""The report of an ablation: each variant beside the preset that it was derived from."""

from __future__ import annotations

__all__ = ["MARK", "ablation_block"]

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev

from mcflow.evaluation.methods import MethodSpec
from mcflow_bench.ablation import VARIANTS, method_of
from mcflow_bench.ablation_speed import SPEEDS
from mcflow_bench.report.blocks import NO_RESULTS, Block, Grid, Heading, Paragraph, bullets, to_markdown
from mcflow_bench.report.summary import Entry, Section, data_title, sections_of
from mcflow_bench.store import Row
from mcflow_bench.suites import TableSuite

#: Name of the block of a page that holds the tables.
MARK = "ablation"

_PRESETS = {"full": "default preset", "paper": "paper's preset"}

#: Entry of a row that has no result yet.
NOT_MEASURED = "not measured"

_SPEED_CAPTION = (
    "Medians over the rounds. Both sides compute the same numbers, so an ingredient here changes the time of a fit "
    "only. A step of the first row is both losses and their gradients for a batch of the paper's preset on a table of "
    "16 columns; one of the second averages the gradients of the default preset's H."
)

_DENSITY_CAPTION = (
    "Mean log-density of test cells per cell, with columns in units of their standard deviations, and log-probability "
    "for columns with few values, where the value with the flow is a lower bound. Higher is better. Without the flow, "
    "the cells of a row are independent given the observed ones; H and the filled cells are the same."
)


def ablation_block(
    rows: Sequence[Row], densities: Sequence[Row], speeds: Sequence[Row], suites: Sequence[TableSuite]
) -> str:
    """Return the block of a page; what has no result yet is listed as not measured."""
    sections = [_section(rows, suite) for suite in suites]
    joint = _section(densities, suites[0])
    if not any([*sections, joint, *speeds]):
        return to_markdown([NO_RESULTS])
    blocks: list[Block] = []
    for section, suite in zip(sections, suites, strict=True):
        for table in section.tables if section else suite.data:
            blocks += [Heading(f"Accuracy on {data_title(table)}, {suite.rows:,} rows", 3)]
            blocks += [_accuracy(section or Section("", 0.0, None, 0), table, suite)]
        if section is not None:
            blocks.append(Paragraph(_caption(section, suite)))
    if joint is not None:
        blocks += [Heading("Density", 3), _density(joint, suites[0]), Paragraph(_DENSITY_CAPTION)]
    blocks += [Heading("Speed", 3), _speed(speeds), Paragraph(_SPEED_CAPTION)]
    alarms = [alarm for section in (*sections, joint) for alarm in _alarms(section)]
    return to_markdown([*blocks, *bullets([*alarms, *_speed_alarms(speeds)], alarm=True)])


def _section(rows: Sequence[Row], suite: TableSuite) -> Section | None:
    """Gather the results of the suite in one section, since the seed of each is the number of its fold."""
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


def _accuracy(section: Section, table: str, suite: TableSuite) -> Grid:
    """Return a row for each variant of the suite; few rows also have scores of draws."""
    found = {name: method_of(suite, name) for name in VARIANTS}
    draws = any(VARIANTS[name].few_rows for name, method in found.items() if method)
    lines = []
    for name, method in found.items():
        if method is None:
            continue
        one = VARIANTS[name]
        entry, base = section.entry(method, table), section.entry(found[one.against] or "", table)
        seconds = entry.seconds()
        line = [f"**{one.label}**" if name == one.against else one.label]
        line += [_figure(entry, len(suite.folds)), _ratio(entry, base)]
        if draws:
            crps = entry.values("crps")
            line += [_spread(crps, 4), _ratio(entry, base, "crps"), _spread(entry.values("draw_energy_distance"), 4)]
        lines.append((*line, "–" if seconds is None else f"{seconds:.1f} s"))
    more = ("CRPS of draws", "ratio", "energy distance of draws") if draws else ()
    return Grid(("variant", "RMSE", "ratio", *more, "time"), tuple(lines))


def _ratio(entry: Entry, base: Entry, score: str = "rmse") -> str:
    own, other = entry.values(score), base.values(score)
    return "1" if entry is base else _spread(_over(own, other), 3)


def _figure(entry: Entry, asked: int) -> str:
    if not entry.rows:
        return NOT_MEASURED
    if not entry.done:
        return "failed"
    text = _spread(entry.values(), 4)
    return text if len(entry.done) == asked else f"{text} ({len(entry.done)} of {asked} seeds)"


def _speed(rows: Sequence[Row]) -> Grid:
    newest = {row["label"]: row for row in sorted(rows, key=lambda row: str(row.get("date", "")))}
    lines = []
    for name, one in SPEEDS.items():
        row = newest.get(name)
        if row is None or row["status"] != "done":
            lines.append((one.label, one.against, NOT_MEASURED if row is None else "failed", "–", "–"))
            continue
        ours, others, ratio = (row["scores"][key]["value"] for key in ("with", "without", "ratio"))
        lines.append((one.label, one.against, f"{1e3 * ours:.3g} ms", f"{1e3 * others:.3g} ms", f"{ratio:.2f}"))
    return Grid(("ingredient", "instead of", "a step with it", "without", "times as fast"), tuple(lines))


def _speed_alarms(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if row["status"] != "done" and row["label"] in SPEEDS:
            yield f"Time of {SPEEDS[row['label']].label}: failed: {row['message'].rstrip('.')}."


def _over(own: Mapping[int, float], base: Mapping[int, float]) -> dict[int, float]:
    """Return the ratios of two scores for the seeds that both have."""
    return {seed: value / base[seed] for seed, value in own.items() if base.get(seed)}


def _spread(values: Mapping[int, float], digits: int, sign: str = "") -> str:
    """Return mean ± standard deviation over the seeds."""
    found = list(values.values())
    if not found:
        return "–"
    mean = f"{fmean(found):{sign}.{digits}f}"
    return mean if len(found) == 1 else f"{mean} ± {stdev(found):.{digits}f}"


def _density(section: Section, suite: TableSuite) -> Grid:
    method = method_of(suite, "full") or ""
    lines = []
    for table in section.tables:
        entry = section.entry(method, table)
        for name, words in (("hidden", "hidden cells, given the others of their row"), ("rows", "whole rows")):
            joint, alone = entry.values(name), entry.values(f"{name}_independent")
            gain = {seed: value - alone[seed] for seed, value in joint.items() if seed in alone}
            lines.append((data_title(table), words, _spread(joint, 3), _spread(alone, 3), _spread(gain, 3, "+")))
    return Grid(("table", "log-density per cell of", "with the flow", "without", "gain"), tuple(lines))


def _caption(section: Section, suite: TableSuite) -> str:
    rows = section.rows
    shapes = {row["task"]["table"]: row["data"] for row in rows if row.get("data")}
    sizes = ", ".join(f"{data_title(t)} {d['rows']:,} × {d['columns']} cells" for t, d in sorted(shapes.items()))
    epochs = [f"{_epochs(suite, base)} of the {words}" for base, words in _PRESETS.items() if method_of(suite, base)]
    return (
        "RMSE over the hidden cells of the test rows in units of each column's range, mean ± standard deviation over "
        f"the seeds ({', '.join(map(str, suite.folds))}), each of which determines the split, the hidden cells and the "
        "fit. The ratio is to the preset in bold above with the same seed; more than 1 is worse. Time is that of fit "
        "and fill. "
        f"{100 * section.rate:g} % of the cells missing completely at random; {sizes}, a fifth of them test rows; "
        f"epochs: {', '.join(epochs)}. {_environment(rows)}"
    )


def _epochs(suite: TableSuite, name: str) -> int:
    return int(dict(MethodSpec.parse(method_of(suite, name) or "none").parameters).get("max_epochs", 0))


def _environment(rows: Sequence[Row]) -> str:
    parts = (
        {f"{row['machine']['cpu']}, {row['machine']['cores']} cores" for row in rows if row.get("machine")},
        {f"threads {row['threads']}, cells at a time {row['jobs']}" for row in rows if "jobs" in row},
        {", ".join(f"{k} {row['versions'].get(k)}" for k in ("mcflow", "torch")) for row in rows if "versions" in row},
    )
    return f"Measured on {'; '.join(' or '.join(sorted(part)) for part in parts if part)}."


def _alarms(section: Section | None) -> Iterator[str]:
    for (method, table), entry in sorted(section.entries.items()) if section else ():
        name = dict(MethodSpec.parse(method).parameters)["name"]
        for seed, row in entry.failed.items():
            message = row["message"].rstrip(".")
            yield f"{VARIANTS[name].label}, {data_title(table)}, seed {seed}: failed ({row['status']}): {message}."
