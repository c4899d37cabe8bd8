"""What an evaluation comes to, in plain sentences."""

from __future__ import annotations

__all__ = ["listed", "verdict"]

from collections.abc import Mapping, Sequence

from mcflow.evaluation.contenders import OURS, REFERENCE
from mcflow.evaluation.result import ColumnScore, MethodScore

#: Names to list in a sentence.
MOST_NAMES = 12
#: How far coverage may be from its level before it is called off.
COVERAGE_OFF = 0.03


def listed(words: Sequence[str], most: int = MOST_NAMES) -> str:
    """Return words as a list in a sentence.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=1)
    ('a, b and c', 'a and 2 more')
    """
    shown = list(words[:most])
    if len(words) > most:
        return f"{', '.join(shown)} and {len(words) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def verdict(
    columns: Sequence[ColumnScore], methods: Sequence[MethodScore], overall: Mapping[str, str], level: float
) -> tuple[str, ...]:
    """Say where mcflow is better, where it is not, and what cannot be predicted.

    Parameters
    ----------
    columns : sequence of ColumnScore
        Every column with hidden cells.
    methods : sequence of MethodScore
        Every method, also those that failed.
    overall : mapping of str
        For each other method, how it stands against mcflow over all cells.
    level : float
        Of the intervals.

    Returns
    -------
    tuple of str
    """
    failed = {one.name for one in methods if one.error_message is not None}
    sentences = [f"{one.name} failed: {one.error_message}" for one in methods if one.error_message is not None]
    judged = [column for column in columns if column.enough]
    if OURS not in failed:
        sentences += _overall(methods, overall, failed)
        sentences += _better(judged)
        sentences += _worse(judged)
        sentences += _alike(judged)
    sentences += _unpredictable(judged)
    few = [column.name for column in columns if not column.enough]
    if few:
        sentences.append(f"Too few hidden cells to say anything of {listed(few)}.")
    return tuple(sentences + ([] if OURS in failed else _coverage(methods, level)))


def _overall(methods: Sequence[MethodScore], overall: Mapping[str, str], failed: set[str]) -> list[str]:
    errors = {one.name: one.relative_error for one in methods}
    if errors[OURS] is None:
        return ["The mean fills every hidden cell rightly, so there is nothing to compare."]
    others = [name for name in errors if name not in (OURS, REFERENCE) and name not in failed and errors[name]]
    beside = f"; {', '.join(f'that of {name} is {errors[name]:.2f}' for name in others)}" if others else ""
    start = f"Over all hidden cells the error of mcflow is {errors[OURS]:.2f} of the mean's{beside}."
    ways = {way: [name for name in [REFERENCE, *others] if overall.get(name) == way] for way in _WORDS}
    ends = [f"{words} {_articled(ways[way])}" for way, words in _WORDS.items() if ways[way]]
    return [start + (f" That makes it {listed(ends)}." if ends else "")]


#: How mcflow is said to stand, by how the other method stands against it.
_WORDS = {"worse": "better than", "same": "no different, beyond noise, from", "better": "worse than"}


def _articled(names: Sequence[str]) -> str:
    return listed(["the mean" if name == REFERENCE else name for name in names])


def _rivals(column: ColumnScore) -> dict[str, str]:
    """Return how the other methods stand in a column, those of which something can be said."""
    return {
        name: score.against_mcflow for name, score in column.methods.items() if score.against_mcflow and name != OURS
    }


def _better(judged: Sequence[ColumnScore]) -> list[str]:
    names = [c.name for c in judged if _rivals(c) and set(_rivals(c).values()) == {"worse"}]
    if not names:
        return ["In no column is mcflow better than every other method by more than noise."] if judged else []
    where = "every column that can be judged" if len(names) == len(judged) else f"{len(names)} of {len(judged)} columns"
    return [f"Better than every other method by more than noise in {where}: {listed(names)}."]


def _worse(judged: Sequence[ColumnScore]) -> list[str]:
    words = []
    for column in judged:
        better = [name for name, way in _rivals(column).items() if way == "better"]
        if better:
            best = min(better, key=lambda name: column.methods[name].error or 0.0)
            ours, theirs = column.methods[OURS].error or 0.0, column.methods[best].error or 0.0
            words.append(f"{column.name} ({best} {theirs:.4g}, mcflow {ours:.4g})")
    if words:
        return [f"mcflow is plainly worse than a simpler method in {listed(words)}."]
    return ["In no column is a simpler method better than mcflow by more than noise."] if judged else []


def _alike(judged: Sequence[ColumnScore]) -> list[str]:
    """Name, for each column where mcflow is not ahead of all, the first method that does as well."""
    groups: dict[str, list[str]] = {}
    for column in judged:
        rivals = _rivals(column)
        if column.predictable and "better" not in rivals.values() and "same" in rivals.values():
            first = next(name for name, way in rivals.items() if way == "same")
            groups.setdefault(first, []).append(column.name)
    return [
        f"Within noise, {_articled([name])} does as well as mcflow in {listed(columns)}."
        for name, columns in groups.items()
    ]


def _unpredictable(judged: Sequence[ColumnScore]) -> list[str]:
    names = [column.name for column in judged if not column.predictable]
    if not names:
        return ["Every column that can be judged can be predicted from the others to some degree."] if judged else []
    return [
        f"Cannot be predicted from the other columns, as far as these cells tell: {listed(names)}. No method does "
        "better there than the mean or the commonest level by more than noise."
    ]


def _coverage(methods: Sequence[MethodScore], level: float) -> list[str]:
    found = next(one.coverage for one in methods if one.name == OURS)
    if found is None:
        return []
    off = "" if abs(found - level) <= COVERAGE_OFF else " They are too narrow." if found < level else " They are wide."
    return [f"The {level:.0%} intervals of mcflow hold {found:.1%} of the hidden numbers.{off}"]
