"""What a simulation found: bias, coverage and width of intervals, with their Monte Carlo errors."""

from __future__ import annotations

__all__ = ["MARK", "TermSummary", "simulation_block", "summarise_study"]

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcflow.benchmarks.blocks import Block, Bullets, Grid, Heading, Paragraph, to_markdown
from mcflow.benchmarks.simulation import DESIGNS, REFERENCES, Study

#: The block of a page that holds the tables.
MARK = "simulation"

#: Bias in percent and coverage beyond which van Buuren (2018, section 2.5.2) calls a method poor.
MOST_BIAS, LEAST_COVERAGE = 5.0, 0.9

#: What the coverage should be.
LEVEL = 0.95


@dataclass(frozen=True)
class TermSummary:
    """How well one coefficient was found over all replications.

    Parameters
    ----------
    term : str
        Its name.
    truth : float
        What it is.
    count : int
        Replications.
    bias, bias_error : float
        Mean estimate less the truth, and its Monte Carlo error.
    coverage, coverage_error : float
        Share of the intervals that hold the truth.
    width, width_error : float
        Mean width of the intervals.
    """

    term: str
    truth: float
    count: int
    bias: float
    bias_error: float
    coverage: float
    coverage_error: float
    width: float
    width_error: float

    @property
    def percent(self) -> float:
        """Return the bias in percent of the truth; less than 0 is towards 0."""
        return 100 * self.bias / self.truth

    @property
    def percent_error(self) -> float:
        """Return the Monte Carlo error of `percent`."""
        return 100 * self.bias_error / abs(self.truth)


def summarise_study(row: Mapping[str, Any], replications: int | None = None) -> list[TermSummary]:
    """Summarise the replications of a study that did not fail.

    Parameters
    ----------
    row : mapping
        One of `SimulationStore.rows`.
    replications : int, optional
        Use only those with smaller numbers.

    Returns
    -------
    list of TermSummary
        One a term; empty when all replications failed.

    Examples
    --------
    >>> ones = [{"estimate": [e], "low": [e - 1], "high": [e + 1]} for e in (1.5, 2.5)]
    >>> row = {"study": {"design": "linear"}, "terms": ["x1"], "replications": dict(enumerate(ones))}
    >>> (found,) = summarise_study(row)
    >>> found.bias, found.coverage, found.width
    (1.0, 0.5, 2.0)
    """
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
    """Return what stands between the marks of a page.

    Parameters
    ----------
    rows : sequence of dict
        What `SimulationStore.rows` returned.
    studies : sequence of Study
        What was asked for, in the order of the lines. Others are left out.
    replications : int
        How many of each.

    Returns
    -------
    str
        Markdown.
    """
    known = {row["key"]: row for row in rows}
    found = {study: known[study.key] for study in studies if study.key in known}
    blocks: list[Block] = []
    if found:
        blocks += [Heading("Overview", 3), _overview(found, replications), Paragraph(_overview_caption())]
    for name in dict.fromkeys(study.design for study in found):
        own = {study: row for study, row in found.items() if study.design == name}
        blocks += [Heading(f"{DESIGNS[name].label}: `{DESIGNS[name].formula}`", 3), _details(own, replications)]
    if found:
        blocks.append(Paragraph(_caption(found, replications)))
    if alarms := list(_alarms(found, replications)):
        blocks.append(Bullets(tuple(alarms), alarm=True))
    return to_markdown(blocks or [Paragraph("There are no results yet.")])


def _method(study: Study, row: Mapping[str, Any]) -> str:
    """Return the name of a method; one that has no draws says so."""
    if study.method in REFERENCES:
        return REFERENCES[study.method]
    single = study.m > 1 and any(one.get("tables") == 1 for one in row["replications"].values())
    return f"`{study.method}`{', one fill' if single else ''}"


def _overview(found: Mapping[Study, Mapping[str, Any]], replications: int) -> Grid:
    designs = list(dict.fromkeys(study.design for study in found))
    lines = []
    for method in dict.fromkeys(study.method for study in found):
        cells = [""]
        for design in designs:
            pairs = [(s, row) for s, row in found.items() if (s.design, s.method) == (design, method)]
            cells[0] = cells[0] or (_method(*pairs[0]) if pairs else "")
            terms = summarise_study(pairs[0][1], replications) if pairs else []
            cells += [_worst_bias(terms), _least_coverage(terms), _seconds(pairs[0][1]) if pairs else "–"]
        lines.append(tuple(cells))
    header = ["method"]
    for design in designs:
        header += [f"{design}: bias", "coverage", "time"]
    return Grid(tuple(header), tuple(lines))


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


def _seconds(row: Mapping[str, Any]) -> str:
    seconds = [one["seconds"] for one in row["replications"].values() if "seconds" in one]
    return f"{float(np.mean(seconds)):.2f} s" if seconds and max(seconds) > 0.05 else "–"


def _biased(one: TermSummary) -> bool:
    """Tell whether a bias is above the limit, by more than the Monte Carlo error may bring."""
    return abs(one.percent) > MOST_BIAS and abs(one.bias) > 2 * one.bias_error


def _uncovered(one: TermSummary) -> bool:
    """Tell whether a coverage is below the limit, and below the level by more than the Monte Carlo error may bring."""
    return one.coverage < LEAST_COVERAGE and one.coverage + 2 * one.coverage_error < LEVEL


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


def _overview_caption() -> str:
    return (
        "Of the coefficients of a design: the bias that is largest in percent of the true value, and the lowest "
        "coverage. Time is that of a fit and its draws."
    )


def _caption(found: Mapping[Study, Mapping[str, Any]], replications: int) -> str:
    study = next(iter(found))
    rows = list(found.values())
    machines = {f"{row['machine']['cpu']}, {row['machine']['cores']} cores" for row in rows if "machine" in row}
    programs = {", ".join(f"{k} {row['versions'].get(k)}" for k in ("mcflow", "numpy", "torch")) for row in rows}
    return (
        f"{replications} replications of {study.rows} rows, {study.m} draws each, {100 * study.rate:g} % of the cells "
        "of three columns missing at random. Bias is the mean estimate less the true value; in percent of that, less "
        "than 0 is towards 0. Coverage is the share of the 95 % intervals that hold the true value, width their mean "
        f"width. Each with its Monte Carlo error. Bold is a bias above {MOST_BIAS:g} % or a coverage below "
        f"{100 * LEAST_COVERAGE:g} % that is more than two Monte Carlo errors from what it should be. Measured on "
        f"{' or '.join(sorted(machines))}; {' or '.join(sorted(programs))}."
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
