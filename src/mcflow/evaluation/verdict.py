"""Summarise an evaluation in plain sentences."""

from __future__ import annotations

__all__ = ["verdict"]

from collections.abc import Mapping, Sequence

from mcflow.evaluation.methods import OURS, REFERENCE
from mcflow.evaluation.scores import ColumnScore, MethodScore
from mcflow.evaluation.wording import listed, percent_text, seconds_text

#: Distance of the coverage from its level beyond which intervals are called too narrow or too wide.
COVERAGE_TOLERANCE = 0.03
#: Standing of mcflow, by the standing of the other method.
_STANDINGS = {
    "worse": "significantly better than",
    "same": "not significantly different from",
    "better": "significantly worse than",
}


def verdict(
    columns: Sequence[ColumnScore],
    methods: Sequence[MethodScore],
    overall: Mapping[str, str],
    level: float,
    repeats: int = 1,
) -> tuple[str, ...]:
    """Say where mcflow is better, where it is not, which columns cannot be predicted, and which method to use."""
    failed = {one.name for one in methods if one.error_message is not None}
    sentences = [f"{one.name} failed: {one.error_message}" for one in methods if one.error_message is not None]
    compared = [column for column in columns if column.enough]
    if OURS not in failed:
        sentences += _overall(methods, overall, failed)
        if compared:
            sentences += [_better(compared), _worse(compared), *_alike(compared)]
    if compared:
        sentences.append(_predictable(compared))
    few = [column.name for column in columns if not column.enough]
    if few:
        sentences.append(f"Too few hidden cells to compare methods in {listed(few)}.")
    if OURS not in failed:
        sentences += [*_coverage(methods, level), *_recommendation(compared, methods, overall)]
    if repeats == 1:
        sentences.append("This is one choice of hidden cells: more repeats (repeats=3, --repeats 3) are more certain.")
    return tuple(sentences)


def _overall(methods: Sequence[MethodScore], overall: Mapping[str, str], failed: set[str]) -> list[str]:
    errors = {one.name: one.relative_error for one in methods}
    if errors[OURS] is None:
        return ["The mean fills every hidden cell correctly, so there is nothing to compare."]
    others = [name for name in errors if name not in (OURS, REFERENCE) and name not in failed and errors[name]]
    beside = f"; that of {listed([f'{name} is {errors[name]:.2f}' for name in others], len(others))}" if others else ""
    start = f"Over all hidden cells, the error of mcflow is {errors[OURS]:.2f} of the mean's{beside}."
    ways = {way: [name for name in [REFERENCE, *others] if overall.get(name) == way] for way in _STANDINGS}
    ends = [f"{words} {_articled(ways[way])}" for way, words in _STANDINGS.items() if ways[way]]
    return [start + (f" It is {listed(ends)}." if ends else "")]


def _articled(names: Sequence[str]) -> str:
    return listed(["the mean" if name == REFERENCE else name for name in names])


def _rivals(column: ColumnScore) -> dict[str, str]:
    """Return the standings of the other methods in a column."""
    return {
        name: score.against_mcflow for name, score in column.methods.items() if score.against_mcflow and name != OURS
    }


def _better(compared: Sequence[ColumnScore]) -> str:
    names = [c.name for c in compared if _rivals(c) and set(_rivals(c).values()) == {"worse"}]
    if not names:
        return "In no column is mcflow significantly better than every other method."
    where = "every column with enough hidden cells"
    if len(names) < len(compared):
        where = f"{len(names)} of {len(compared)} columns"
    return f"mcflow is significantly better than every other method in {where}: {listed(names)}."


def _worse(compared: Sequence[ColumnScore]) -> str:
    words = []
    for column in compared:
        better = [name for name, way in _rivals(column).items() if way == "better"]
        if better:
            best = min(better, key=lambda name: column.methods[name].error or 0.0)
            ours, theirs = column.methods[OURS].error or 0.0, column.methods[best].error or 0.0
            words.append(f"{column.name} ({best} {theirs:.4g}, mcflow {ours:.4g})")
    if words:
        return f"mcflow is significantly worse than another method in {listed(words)}."
    return "In no column is another method significantly better than mcflow."


def _alike(compared: Sequence[ColumnScore]) -> list[str]:
    """Name, for each column where mcflow does not lead, the first method without a significant difference."""
    groups: dict[str, list[str]] = {}
    for column in compared:
        rivals = _rivals(column)
        if column.predictable and "better" not in rivals.values() and "same" in rivals.values():
            first = next(name for name, way in rivals.items() if way == "same")
            groups.setdefault(first, []).append(column.name)
    return [
        f"mcflow is not significantly different from {_articled([name])} in {listed(columns)}."
        for name, columns in groups.items()
    ]


def _predictable(compared: Sequence[ColumnScore]) -> str:
    names = [column.name for column in compared if not column.predictable]
    if not names:
        return "Every column with enough hidden cells can be predicted from the others to some degree."
    return (
        f"Columns that could not be predicted from the others: {listed(names)}. No method is significantly better "
        "there than the mean or the most frequent category."
    )


def _coverage(methods: Sequence[MethodScore], level: float) -> list[str]:
    found = next(one.coverage for one in methods if one.name == OURS)
    if found is None:
        return []
    words = f"The {level:.0%} intervals of mcflow cover {found:.1%} of the hidden numbers."
    if abs(found - level) > COVERAGE_TOLERANCE:
        words += " They are too narrow." if found < level else " They are too wide."
    return [words]


def _recommendation(
    compared: Sequence[ColumnScore], methods: Sequence[MethodScore], overall: Mapping[str, str]
) -> list[str]:
    """Recommend the best method, or the fastest of those that are not significantly worse than mcflow."""
    known = {one.name: one for one in methods if one.relative_error is not None}
    others = [one for name, one in known.items() if name != OURS]
    if OURS not in known or not others:
        return []
    ours, best = known[OURS], min(others, key=lambda one: one.relative_error or 0.0)
    better = [one for one in others if overall.get(one.name) == "better"]
    if better:
        best = min(better, key=lambda one: one.relative_error or 0.0)
        return [f"Recommendation: use {_articled([best.name])}, {_below(best, ours)} the error of mcflow{_time(best)}."]
    same = [one for one in others if overall.get(one.name) == "same"]
    if same:
        fast = min(same, key=lambda one: one.seconds or 0.0)
        return [
            f"Recommendation: {_articled([fast.name])}{_time(fast)} is as good here as mcflow{_time(ours)}. Use mcflow "
            "for draws and intervals."
        ]
    clear = sum(_rivals(column).get(best.name) == "worse" for column in compared)
    where = f", significantly lower in {clear} of {len(compared)} columns" if compared else ""
    return [
        f"Recommendation: use mcflow. Its error is {_below(ours, best)} that of {_articled([best.name])}, the best of "
        f"the others{where}. It was fitted{_time(ours)}, {_articled([best.name])}{_time(best)}."
    ]


def _below(one: MethodScore, other: MethodScore) -> str:
    return f"{percent_text(round(1 - (one.relative_error or 0.0) / (other.relative_error or 1.0), 2))} below"


def _time(one: MethodScore) -> str:
    if one.seconds is None:
        return ""
    return f" in {seconds_text(one.seconds)}" if one.seconds >= 0.1 else " in under 0.1 s"
