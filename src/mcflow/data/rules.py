"""Rules between columns, such as ``low <= high``: read from text, put in order, and closed under what they imply."""

from __future__ import annotations

__all__ = ["Rule", "close_rules", "order_columns", "parse_rules", "plain_number", "quote_name"]

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from mcflow.errors import ParameterError, did_you_mean

_TERM = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^<>`]+?))\s*(<=|>=|<|>|\Z)")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_PLAIN_NAME = re.compile(r"[^\W\d][\w.]*")
_ALLOWED = (
    "A rule compares two columns, or a column and a number, with <=, <, >= or >, "
    "for example 'low <= high', 'age >= 18' or '`systolic bp` > `diastolic bp`'."
)


@dataclass(frozen=True)
class Rule:
    """One side is at most the other, or less than it.

    Parameters
    ----------
    smaller : str or float
        A column's name, or a number.
    larger : str or float
        A column's name, or a number.
    strict : bool
        Whether the sides may not be equal.

    Examples
    --------
    >>> print(Rule("low", "high", strict=True))
    low < high
    >>> print(Rule(18.0, "age"))
    age >= 18
    """

    smaller: str | float
    larger: str | float
    strict: bool = False

    @property
    def bound(self) -> tuple[str, float, float] | None:
        """The column and the lowest and highest value that a rule with a number leaves it; None without a number."""
        if isinstance(self.larger, str) and not isinstance(self.smaller, str):
            return self.larger, _past(self.smaller, math.inf) if self.strict else float(self.smaller), math.inf
        if isinstance(self.smaller, str) and not isinstance(self.larger, str):
            return self.smaller, -math.inf, _past(self.larger, -math.inf) if self.strict else float(self.larger)
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the rule names."""
        return tuple(side for side in (self.smaller, self.larger) if isinstance(side, str))

    def __str__(self) -> str:
        equal = "" if self.strict else "="
        if isinstance(self.smaller, str):
            return f"{_side_text(self.smaller)} <{equal} {_side_text(self.larger)}"
        return f"{_side_text(self.larger)} >{equal} {_side_text(self.smaller)}"


def parse_rules(texts: str | Iterable[str], names: Sequence[str]) -> list[Rule]:
    """Read rules such as ``"low <= high"``.

    Parameters
    ----------
    texts : str or iterable of str
        Rules with <=, <, >= or > between columns or numbers. A chain such as ``"low <= mid <= high"`` is several
        rules. A name with an operator or of digits only goes between backticks; in there, two backticks mean one.
    names : sequence of str
        The table's columns.

    Returns
    -------
    list of Rule
        In the order of the texts.

    Raises
    ------
    ParameterError
        When a text is not a rule or names a column that the table does not have.

    Examples
    --------
    >>> for rule in parse_rules(["0 <= low <= high", "`day 2` > `day 1`"], ["low", "high", "day 1", "day 2"]):
    ...     print(rule)
    low >= 0
    low <= high
    `day 1` < `day 2`
    """
    given = [texts] if isinstance(texts, str) else list(texts)
    return [rule for text in given for rule in _parse_chain(text, names)]


def order_columns(rules: Iterable[Rule]) -> tuple[str, ...]:
    """Sort the columns that rules compare with one another, smaller ones first.

    Parameters
    ----------
    rules : iterable of Rule
        Rules with a number are passed over.

    Returns
    -------
    tuple of str

    Raises
    ------
    ParameterError
        When the rules run in a circle.

    Examples
    --------
    >>> order_columns(parse_rules(["mid <= high", "low < mid"], ["low", "mid", "high"]))
    ('low', 'mid', 'high')
    """
    graph: TopologicalSorter[str] = TopologicalSorter()
    for rule in rules:
        if rule.bound is None:
            graph.add(str(rule.larger), str(rule.smaller))
    try:
        return tuple(graph.static_order())
    except CycleError as error:
        circle = " <= ".join(map(quote_name, error.args[1]))
        raise ParameterError(
            f"The rules run in a circle, {circle}, but a column has to be either the smaller or the larger one. "
            "Take one of these rules out."
        ) from error


def close_rules(rules: Sequence[Rule]) -> list[Rule]:
    """Add to the rules between columns all that follow from them.

    Parameters
    ----------
    rules : sequence of Rule
        Rules with a number are passed over.

    Returns
    -------
    list of Rule
        One for each pair of columns; strict when any way from one to the other has a strict rule.

    Raises
    ------
    ParameterError
        When the rules run in a circle.

    Examples
    --------
    >>> for rule in close_rules(parse_rules("low <= mid < high", ["low", "mid", "high"])):
    ...     print(rule)
    low <= mid
    mid < high
    low < high
    """
    below: dict[str, dict[str, bool]] = {name: {} for name in order_columns(rules)}
    for name, found in below.items():
        for direct in (rule for rule in rules if rule.bound is None and rule.larger == name):
            smaller = str(direct.smaller)
            for other, strict in {smaller: False, **below[smaller]}.items():
                found[other] = found.get(other, False) or strict or direct.strict
    return [Rule(smaller, larger, strict) for larger, found in below.items() for smaller, strict in found.items()]


def plain_number(value: float) -> str:
    """Write a number in full, without a decimal point when it is whole."""
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(float(value))


def quote_name(name: str) -> str:
    """Put backticks round a name that would not be read as one otherwise."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _side_text(side: str | float) -> str:
    return quote_name(side) if isinstance(side, str) else plain_number(side)


def _past(value: float, toward: float) -> float:
    return math.nextafter(value, toward)


def _parse_chain(text: str, names: Sequence[str]) -> list[Rule]:
    sides, operators = _split_chain(text, names)
    return [
        _compare(text, left, operator, right)
        for (left, right), operator in zip(pairwise(sides), operators, strict=True)
    ]


def _split_chain(text: str, names: Sequence[str]) -> tuple[list[str | float], list[str]]:
    """Take a text apart into columns and numbers, and the operators between them."""
    if not isinstance(text, str):
        raise ParameterError(f"Rule {text!r} is not a text. {_ALLOWED}")
    sides: list[str | float] = []
    operators: list[str] = []
    position = 0
    while not sides or operators[-1]:
        term = _TERM.match(text, position)
        if term is None:
            raise _unreadable(text, "a column, a number or a backtick is missing")
        quoted, bare, operator = term.groups()
        sides.append(_read_bare(text, bare.strip(), names) if bare else quoted.replace("``", "`"))
        _check_column(text, sides[-1], names)
        operators.append(operator)
        position = term.end()
    if len(sides) < 2:
        raise _unreadable(text, "it has none of the four operators")
    return sides, operators[:-1]


def _read_bare(text: str, word: str, names: Sequence[str]) -> str | float:
    if _NUMBER.fullmatch(word):
        if math.isinf(float(word)):
            raise _unreadable(text, f"{word} is more than a float64 can hold")
        return float(word)
    if word not in names and (not word or re.search(r"[=!&|~]", word)):
        raise _unreadable(text, f"{word!r} is neither a column nor a number")
    return word


def _check_column(text: str, side: str | float, names: Sequence[str]) -> None:
    if isinstance(side, str) and side not in names:
        known = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
        hint = did_you_mean(side, names)
        raise ParameterError(f"Rule {text!r} names {side!r}, but the table's columns are {known}.{hint}")


def _compare(text: str, left: str | float, operator: str, right: str | float) -> Rule:
    if left == right:
        raise _unreadable(text, "it compares a column or number with itself")
    if not isinstance(left, str) and not isinstance(right, str):
        raise _unreadable(text, "it compares two numbers")
    smaller, larger = (left, right) if operator.startswith("<") else (right, left)
    return Rule(smaller, larger, strict=not operator.endswith("="))


def _unreadable(text: str, why: str) -> ParameterError:
    return ParameterError(f"Rule {text!r} cannot be read: {why}. {_ALLOWED}")
