"""The report of a simulation: bias, coverage and width of intervals, with their Monte Carlo errors."""

from __future__ import annotations

__all__ = ["MARK", "TermSummary", "simulation_block", "summarise_study"]

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcflow_bench.report.blocks import NO_RESULTS, Block, Bullets, Grid, Heading, Paragraph, bullets, to_markdown
from mcflow_bench.report.draws import Check
from mcflow_bench.simulation import DESIGNS, REFERENCES, Study

#: Name of the block of a page that holds the tables.
MARK = "simulation"

#: Largest acceptable bias in percent (van Buuren 2018, section 2.5.2).
MAX_BIAS = 5.0
#: Lowest acceptable coverage (van Buuren 2018, section 2.5.2).
MIN_COVERAGE = 0.9
#: Nominal coverage of the intervals.
LEVEL = 0.95

#: Required coverage of mcflow.
COVERAGE = (0.92, 0.98)

_OVERVIEW_CAPTION = (
    "For the coefficients of each design, the bias that is largest in percent of the true value, and the lowest "
    "coverage. Time is that of a fit and its draws, the mean over the designs."
)
_OWN = "mcflow"
_MICE = "R:mice."


@dataclass(frozen=True)
class TermSummary:
    """Bias, coverage and width of the intervals of one coefficient over all replications, with Monte Carlo errors."""

    term: str  # name of the coefficient
    truth: float  # its true value
    count: int  # replications
    bias: float  # mean estimate minus the true value
    bias_error: float
    coverage: float  # fraction of the intervals that contain the true value
    coverage_error: float
    width: float  # mean width of the intervals
    width_error: float

    @property
    def percent(self) -> float:
        """Return the bias in percent of the true value; negative values are biased towards 0."""
        return 100 * self.bias / self.truth

    @property
    def percent_error(self) -> float:
        """Return the Monte Carlo error of `percent`."""
        return 100 * self.bias_error / abs(self.truth)


def summarise_study(row: Mapping[str, Any], replications: int | None = None) -> list[TermSummary]:
    """Summarise the replications of a study that did not fail."""
    good = [
        one
        for number, one in row["replications"].items()
        if "error" not in one and (replications is None or int(number) < replications)
    ]
    if not good:
        return []
    truth = np.array([DESIGNS[row["study"]["design"]].truth[term] for term in row["terms"]])
    estimate, low, high = (np.array([one[name] for one in good], dtype=float) for name in ("estimate", "low", "high"))
    measures = (estimate - truth, ((low <= truth) & (truth <= high)).astype(float), high - low)
    count = len(good)
    means = [measure.mean(axis=0) for measure in measures]
    errors = [m.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(len(truth), np.nan) for m in measures]
    figures = np.stack([part for pair in zip(means, errors, strict=True) for part in pair], axis=1)
    return [
        TermSummary(term, float(value), count, *map(float, line))
        for term, value, line in zip(row["terms"], truth, figures, strict=True)
    ]


def simulation_block(rows: Sequence[Mapping[str, Any]], studies: Sequence[Study], replications: int) -> str:
    """Return the block of a page."""
    known = {row["key"]: row for row in rows}
    found = {study: known[study.key] for study in studies if study.key in known}
    blocks: list[Block] = []
    if found:
        blocks += [Heading("Overview", 3), _overview(found, replications), Paragraph(_OVERVIEW_CAPTION)]
    for name in dict.fromkeys(study.design for study in found):
        own = {study: row for study, row in found.items() if study.design == name}
        blocks += [Heading(f"{DESIGNS[name].label}: `{DESIGNS[name].formula}`", 3)]
        blocks += [Paragraph(_truths(name, own, replications)), _details(own, replications)]
    if found:
        blocks.append(Paragraph(_caption(found, replications)))
    blocks += _requirements(found, replications)
    blocks += bullets(_alarms(found, replications), alarm=True)
    return to_markdown(blocks or [NO_RESULTS])


def _method(study: Study, row: Mapping[str, Any]) -> str:
    """Return the name of a method, marked if it has no draws."""
    if study.method in REFERENCES:
        return REFERENCES[study.method]
    single = study.m > 1 and any(one.get("tables") == 1 for one in row["replications"].values())
    return f"`{study.method}`{', one fill' if single else ''}"


def _overview(found: Mapping[Study, Mapping[str, Any]], replications: int) -> Grid:
    designs = list(dict.fromkeys(study.design for study in found))
    lines = []
    for method in dict.fromkeys(study.method for study in found):
        own = {study: row for study, row in found.items() if study.method == method}
        cells = dict.fromkeys(designs, "–")
        for study, row in own.items():
            terms = summarise_study(row, replications)
            cells[study.design] = f"{_worst_bias(terms)} / {_least_coverage(terms)}" if terms else "–"
        name = next(iter(own.items()))
        lines.append((_method(*name), *cells.values(), _seconds(list(own.values()))))
    return Grid(("bias / coverage", *designs, "time"), tuple(lines))


def _truths(design: str, own: Mapping[Study, Mapping[str, Any]], replications: int) -> str:
    """State the true coefficients of a design, and their mean estimates from the full data."""
    truth = ", ".join(f"`{term}` {value:g}" for term, value in DESIGNS[design].truth.items())
    full = next((row for study, row in own.items() if study.method == "full"), None)
    terms = summarise_study(full, replications) if full is not None else []
    words = ", ".join(f"`{one.term}` {one.truth + one.bias:.3f}" for one in terms)
    return f"True coefficients: {truth}." + (f" Mean estimates from the full data: {words}." if terms else "")


def _requirements(found: Mapping[Study, Mapping[str, Any]], replications: int) -> list[Block]:
    """Return whether mcflow is accurate for every coefficient of every design, or as good as the best of mice."""
    checks = []
    for design in dict.fromkeys(study.design for study in found):
        summaries = {
            study.method: summarise_study(row, replications)
            for study, row in found.items()
            if study.design == design and study.method.startswith((_OWN, _MICE))
        }
        own = next((terms for method, terms in summaries.items() if method.startswith(_OWN) and terms), [])
        mice = [terms for method, terms in summaries.items() if method.startswith(_MICE) and terms]
        poor = [words for place, one in enumerate(own) if (words := _poor(one, [terms[place] for terms in mice]))]
        checks.append(
            Check(design, None if not own else not any(bad for bad, _ in poor), ", ".join(w for _, w in poor))
        )
    if all(check.met is None for check in checks):
        return []
    caption = (
        f"Requirements on `{_OWN}`: for every coefficient a bias of at most {MAX_BIAS:g} % and a coverage of "
        f"{COVERAGE[0]:.2f} to {COVERAGE[1]:.2f}, or else at least as good as the best of mice's methods here."
    )
    return [Paragraph(caption), Bullets(tuple(map(str, checks)))]


def _poor(one: TermSummary, mice: Sequence[TermSummary]) -> tuple[bool, str] | None:
    """Return whether a coefficient misses the requirement, and words on what is outside the limits; None if nothing."""
    found = []
    if abs(one.percent) > MAX_BIAS:
        best = min((abs(other.percent) for other in mice), default=0.0)
        found.append((abs(one.percent) > best, f"bias {one.percent:+.1f} %, mice at best {best:.1f} %"))
    if not COVERAGE[0] <= one.coverage <= COVERAGE[1]:
        best = min((other.coverage for other in mice), key=lambda value: abs(value - LEVEL), default=LEVEL)
        words = f"coverage {100 * one.coverage:.1f} %, mice at best {100 * best:.1f} %"
        found.append((abs(one.coverage - LEVEL) > abs(best - LEVEL), words))
    if not found:
        return None
    beside = "" if mice else " (mice was not measured)"
    return any(bad for bad, _ in found), f"`{one.term}` {' and '.join(words for _, words in found)}{beside}"


def _worst_bias(terms: Sequence[TermSummary]) -> str:
    if not terms:
        return "–"
    worst = max(terms, key=lambda one: abs(one.percent))
    return _marked(f"{worst.percent:+.1f} %", _biased(worst))


def _least_coverage(terms: Sequence[TermSummary]) -> str:
    if not terms:
        return "–"
    least = min(terms, key=lambda one: one.coverage)
    return _marked(f"{100 * least.coverage:.1f} %", _uncovered(least))


def _seconds(rows: Sequence[Mapping[str, Any]]) -> str:
    seconds = [one["seconds"] for row in rows for one in row["replications"].values() if "seconds" in one]
    return f"{float(np.mean(seconds)):.2f} s" if seconds and max(seconds) > 0.05 else "–"


def _biased(one: TermSummary) -> bool:
    """Return whether a bias is above the limit and differs from 0 by more than two Monte Carlo errors."""
    return abs(one.percent) > MAX_BIAS and abs(one.bias) > 2 * one.bias_error


def _uncovered(one: TermSummary) -> bool:
    """Return whether a coverage is below the limit and below the level by more than two Monte Carlo errors."""
    return one.coverage < MIN_COVERAGE and one.coverage + 2 * one.coverage_error < LEVEL


def _marked(text: str, poor: bool) -> str:
    return f"**{text}**" if poor else text


def _details(own: Mapping[Study, Mapping[str, Any]], replications: int) -> Grid:
    lines: list[tuple[str, ...]] = []
    for study, row in own.items():
        method = _method(study, row)
        for one in summarise_study(row, replications):
            lines.append(
                (
                    method,
                    f"`{one.term}`",
                    f"{one.truth:g}",
                    f"{one.bias:+.3f} ± {one.bias_error:.3f}",
                    _marked(f"{one.percent:+.1f} % ± {one.percent_error:.1f}", _biased(one)),
                    _marked(f"{100 * one.coverage:.1f} % ± {100 * one.coverage_error:.1f}", _uncovered(one)),
                    f"{one.width:.3f} ± {one.width_error:.3f}",
                )
            )
            method = ""
    return Grid(("method", "term", "true value", "bias", "in percent", "coverage", "width"), tuple(lines))


def _caption(found: Mapping[Study, Mapping[str, Any]], replications: int) -> str:
    study = next(iter(found))
    rows = list(found.values())
    machines = {f"{row['machine']['cpu']}, {row['machine']['cores']} cores" for row in rows if "machine" in row}
    programs = {", ".join(f"{k} {row['versions'].get(k)}" for k in ("mcflow", "numpy", "torch")) for row in rows}
    return (
        f"{replications} replications of {study.rows} rows, {study.m} draws each, {100 * study.rate:g} % of the cells "
        "of three columns missing at random. Bias is the mean estimate minus the true value; in percent of the true "
        "value, a negative bias is towards 0. Coverage is the fraction of the 95 % intervals that contain the true "
        "value, width their mean width, each with its Monte Carlo error. In bold: a bias above "
        f"{MAX_BIAS:g} % or a coverage below {100 * MIN_COVERAGE:g} % that is more than two Monte Carlo errors from "
        f"its nominal value. Measured on {' or '.join(sorted(machines))}; {' or '.join(sorted(programs))}."
    )


def _alarms(found: Mapping[Study, Mapping[str, Any]], replications: int) -> Iterator[str]:
    for study, row in found.items():
        numbers = {int(number): one for number, one in row["replications"].items() if int(number) < replications}
        failed = [one["error"] for one in numbers.values() if "error" in one]
        if failed:
            first = failed[0].rstrip(".")
            yield f"{study.design}, {study.method}: {len(failed)} of {replications} failed, the first with {first}."
        if len(numbers) < replications:
            yield f"{study.design}, {study.method}: {len(numbers)} of {replications} replications so far."
