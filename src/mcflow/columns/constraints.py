"""Constraints on filled cells: bounds, whole numbers, allowed values and rules, enforced by reflection."""

from __future__ import annotations

__all__ = ["Constraints", "Rule", "close_rules", "fold", "order_columns", "parse_rules"]

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mcflow.errors import ParameterError, did_you_mean
from mcflow.typing import BoolArray, FloatArray, Header

_LARGEST = float(np.finfo(np.float64).max)
_TERM = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^<>`]+?))\s*(<=|>=|<|>|\Z)")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_PLAIN_NAME = re.compile(r"[^\W\d][\w.]*")
_ALLOWED = (
    "A rule compares two columns, or a column and a number, with <=, <, >= or >, "
    "for example 'low <= high', 'age >= 18' or '`systolic bp` > `diastolic bp`'."
)


@dataclass(frozen=True)
class Rule:
    """An inequality between two columns, or between a column and a number.

    Examples
    --------
    >>> print(Rule("low", "high", strict=True))
    low < high
    >>> print(Rule(18.0, "age"))
    age >= 18
    """

    smaller: str | float  #: Name of a column, or a number.
    larger: str | float  #: Name of a column, or a number.
    strict: bool = False  #: Whether the sides must differ.

    @property
    def bound(self) -> tuple[str, float, float] | None:
        """Column, lower and upper bound of a rule with a number; None for a rule between columns."""
        if isinstance(self.larger, str) and not isinstance(self.smaller, str):
            low = math.nextafter(self.smaller, math.inf) if self.strict else float(self.smaller)
            return self.larger, low, math.inf
        if isinstance(self.smaller, str) and not isinstance(self.larger, str):
            high = math.nextafter(self.larger, -math.inf) if self.strict else float(self.larger)
            return self.smaller, -math.inf, high
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns in the rule."""
        return tuple(side for side in (self.smaller, self.larger) if isinstance(side, str))

    def __str__(self) -> str:
        equal = "" if self.strict else "="
        if isinstance(self.smaller, str):
            return f"{_side_text(self.smaller)} <{equal} {_side_text(self.larger)}"
        return f"{_side_text(self.larger)} >{equal} {_side_text(self.smaller)}"


def parse_rules(texts: str | Iterable[str], names: Sequence[str]) -> list[Rule]:
    """Parse rules such as ``"low <= high"`` or ``"low <= mid < high"``; names may stand in backticks."""
    rules = []
    for text in [texts] if isinstance(texts, str) else texts:
        sides, operators = _split_chain(text, names)
        pairs = zip(pairwise(sides), operators, strict=True)
        rules += [_compare(text, left, operator, right) for (left, right), operator in pairs]
    return rules


def order_columns(rules: Iterable[Rule]) -> tuple[str, ...]:
    """Sort the columns that rules compare with each other, smaller ones first."""
    graph: TopologicalSorter[str] = TopologicalSorter()
    for rule in rules:
        if rule.bound is None:
            graph.add(str(rule.larger), str(rule.smaller))
    try:
        return tuple(graph.static_order())
    except CycleError as error:
        cycle = " <= ".join(map(_quoted, error.args[1]))
        raise ParameterError(
            f"The rules form a cycle, {cycle}, but a column has to be either the smaller or the larger one. "
            "Remove one of these rules."
        ) from error


def close_rules(rules: Sequence[Rule]) -> list[Rule]:
    """Return the transitive closure of the rules between columns."""
    below: dict[str, dict[str, bool]] = {name: {} for name in order_columns(rules)}
    for name, found in below.items():
        for direct in (rule for rule in rules if rule.bound is None and rule.larger == name):
            smaller = str(direct.smaller)
            for other, strict in {smaller: False, **below[smaller]}.items():
                found[other] = found.get(other, False) or strict or direct.strict
    return [Rule(smaller, larger, strict) for larger, found in below.items() for smaller, strict in found.items()]


def _quoted(name: str) -> str:
    """Put backticks around a name that is not a plain identifier."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _side_text(side: str | float) -> str:
    if isinstance(side, str):
        return _quoted(side)
    return str(int(side)) if abs(side) < 1e15 and side == int(side) else repr(float(side))


def _split_chain(text: str, names: Sequence[str]) -> tuple[list[str | float], list[str]]:
    """Split a rule into its columns and numbers, and the operators between them."""
    if not isinstance(text, str):
        raise ParameterError(f"Rule {text!r} is not a string. {_ALLOWED}")
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
            raise _unreadable(text, f"{word} is too large for float64")
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


def fold(values: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> FloatArray:
    """Reflect values at two bounds until they lie between them, which unlike clipping puts no point mass on a bound.

    A value at distance d above the upper bound u becomes u - d, and one at distance d below the lower bound l becomes
    l + d. If d exceeds the width w = u - l, it is first replaced by the triangle wave w - abs(w - d mod 2w).
    """
    values, low, high = (np.asarray(given, dtype=np.float64) for given in (values, low, high))
    above = values > high
    # Overflow comes from infinite bounds, and from cells inside the bounds, whose result is not used.
    with np.errstate(over="ignore", invalid="ignore"):
        span = high - low
        distance = np.fmod(np.minimum(np.where(above, values - high, low - values), _LARGEST), 2 * span)
        depth = np.where(distance <= span, distance, 2 * span - distance)
        folded = np.where(above, high - depth, low + depth)
    folded = np.clip(folded, np.maximum(low, -_LARGEST), np.minimum(high, _LARGEST))
    return np.where(above | (values < low), np.where(span > 0, folded, low), values)


@dataclass(frozen=True)
class _Domain:
    """Allowed values of one column: an interval, its numbers with a number of decimals, or the listed options."""

    low: float
    high: float
    digits: int | None  # number of decimals, 0 for whole numbers; None for any number
    options: FloatArray | None

    def ends(self, low: npt.ArrayLike, high: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the smallest and largest allowed value in [low, high]; they cross where there is none."""
        low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        if self.options is not None:
            padded = np.concatenate([[-np.inf], self.options, [np.inf]])
            first = np.searchsorted(self.options, low, side="left") + 1
            return padded[first], padded[np.searchsorted(self.options, high, side="right")]
        if self.digits is None:
            return low, high
        first, last = np.round(low, self.digits), np.round(high, self.digits)
        return (
            np.where(first < low, np.round(first + self._step, self.digits), first),
            np.where(last > high, np.round(last - self._step, self.digits), last),
        )

    @property
    def _step(self) -> float:
        return float(10.0 ** -(self.digits or 0))

    def at_most(self, limit: FloatArray) -> FloatArray:
        """Return the largest allowed value up to each limit, or the limit itself where there is none."""
        last = self.ends(-np.inf, limit)[1]
        return np.where(last > -np.inf, last, limit)

    def settle(self, raw: FloatArray, low: npt.ArrayLike, high: npt.ArrayLike) -> FloatArray:
        """Move raw values into the row's intervals, or into the column's bounds where an interval is empty."""
        low, high = np.broadcast_to(low, raw.shape), np.broadcast_to(high, raw.shape)
        valid = (low <= high) & (low < np.inf) & (high > -np.inf)
        low, high = np.where(valid, low, self.low), np.where(valid, high, self.high)
        if self.digits is None and self.options is None:
            return fold(raw, low, high)
        first, last = self.ends(low, high)
        none = first > last  # no allowed value, as in [0.3, 0.7] of whole numbers: take the nearest one outside
        raw = np.where(none, fold(raw, low, high), raw)
        lowest, highest = self.ends(self.low, self.high)
        return self._snap(raw, np.where(none, lowest, first), np.where(none, highest, last))

    def _snap(self, raw: FloatArray, first: FloatArray, last: FloatArray) -> FloatArray:
        """Fold half a step outside the outermost values and round, so that these get their full share of fills."""
        if self.options is None:
            half = self._step / 2
            rounded = np.round(fold(raw, first - half, last + half), self.digits or 0)
            return np.clip(rounded, first, last) + 0.0  # no negative zero
        halves = np.diff(self.options / 2)
        padded = np.concatenate([[0.0], halves, [0.0]])
        below = padded[np.searchsorted(self.options, first) + 1]
        above = padded[np.searchsorted(self.options, last)]
        nearest = np.searchsorted(self.options[:-1] + halves, fold(raw, first - below, last + above))
        return np.clip(self.options[nearest], first, last)


@dataclass(frozen=True, eq=False)
class Constraints:
    """Constraints on the filled cells of a table."""

    names: Sequence[str]  #: Names of the columns, in the order of the table.
    low: FloatArray  #: Lower bounds (n_columns,), infinite for none. Rules with a number tighten them.
    high: FloatArray  #: Upper bounds (n_columns,), infinite for none. Rules with a number tighten them.
    whole: BoolArray  #: Whether each column is filled with whole numbers, (n_columns,).
    allowed: Sequence[FloatArray | None]  #: The only values to fill into each column, or None.
    rules: Sequence[Rule] = ()  #: Rules between columns, or between a column and a number.
    decimals: Sequence[int | None] = ()  #: Number of decimals of the fills of each column, or None for any.

    def __post_init__(self) -> None:
        plain = {
            "names": tuple(self.names),
            "low": np.array(self.low, dtype=np.float64),
            "high": np.array(self.high, dtype=np.float64),
            "whole": np.array(self.whole, dtype=np.bool_),
            "allowed": tuple(None if a is None else np.unique(np.asarray(a, dtype=np.float64)) for a in self.allowed),
            "rules": tuple(self.rules),
            "decimals": tuple(self.decimals) or (None,) * len(self.names),
        }
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        self._check_names()
        for name, low, high in filter(None, (rule.bound for rule in self.rules)):
            column = self.names.index(name)
            self.low[column], self.high[column] = max(self.low[column], low), min(self.high[column], high)
        self._check_values_left()

    def apply(self, values: FloatArray, missing: BoolArray, *, rules: bool = True) -> FloatArray:
        """Move the fills of missing cells to values that satisfy the constraints; all arrays (n_rows, n_columns).

        From the largest column of the rules to the smallest, each cell gets a ceiling: its observed value, or the
        largest value that leaves room for all cells above it. Then, from the smallest to the largest, each fill is
        folded into the interval between the cells below it and its ceiling, or into the bounds of its column where
        that interval is empty.
        """
        result = np.array(values, dtype=np.float64)
        open_cells = missing & ~np.isnan(result)
        for column in self._alone if rules else [*self._alone, *self._order]:
            rows = np.flatnonzero(open_cells[:, column])
            domain = self._domains[column]
            result[rows, column] = domain.settle(result[rows, column], domain.low, domain.high)
        if self._order and rules:
            rows = np.flatnonzero(open_cells[:, self._order].any(axis=1))
            result[rows] = self._apply_rules(result[rows], open_cells[rows])
        return result

    def broken_rules(self, cells: Mapping[str, FloatArray]) -> dict[str, int]:
        """Count the rows whose observed cells, NaN where missing, violate each given or implied rule."""
        numbers = [rule for rule in self.rules if rule.bound is not None]
        found = {}
        for rule in (*numbers, *close_rules(self.rules)):
            if all(name in cells for name in rule.columns):
                smaller, larger = (cells[s] if isinstance(s, str) else s for s in (rule.smaller, rule.larger))
                found[str(rule)] = int(np.sum(smaller >= larger if rule.strict else smaller > larger))
        return {text: count for text, count in found.items() if count}

    def to_dict(self) -> Header:
        """Return a dictionary that can be written as JSON; an infinite bound is None."""
        return {
            "names": list(self.names),
            "low": [bound if math.isfinite(bound) else None for bound in self.low.tolist()],
            "high": [bound if math.isfinite(bound) else None for bound in self.high.tolist()],
            "whole": self.whole.tolist(),
            "allowed": [None if options is None else options.tolist() for options in self.allowed],
            "rules": [[rule.smaller, rule.larger, rule.strict] for rule in self.rules],
            "decimals": list(self.decimals),
        }

    @classmethod
    def from_dict(cls, given: Header) -> Constraints:
        """Build constraints from the result of `to_dict`."""
        low = np.array([-np.inf if bound is None else bound for bound in given["low"]])
        high = np.array([np.inf if bound is None else bound for bound in given["high"]])
        rules = [Rule(*sides) for sides in given["rules"]]
        return cls(given["names"], low, high, given["whole"], given["allowed"], rules, given.get("decimals", ()))

    @cached_property
    def _domains(self) -> list[_Domain]:
        domains = []
        parts = zip(self.low, self.high, self.whole, self.allowed, self.decimals, strict=True)
        for low, high, whole, options, decimals in parts:
            inside = options
            if options is not None:
                inside = options[(options >= low) & (options <= high) & ((options == np.rint(options)) | ~whole)]
            domains.append(_Domain(float(low), float(high), 0 if whole else decimals, inside))
        return domains

    @cached_property
    def _order(self) -> list[int]:
        """Columns with rules between columns, smaller ones first."""
        return [self.names.index(name) for name in order_columns(self.rules)]

    @cached_property
    def _edges(self) -> list[tuple[int, int, bool]]:
        pairs = [rule for rule in self.rules if rule.bound is None]
        ends = [[self.names.index(name) for name in rule.columns] for rule in pairs]
        return [(smaller, larger, rule.strict) for (smaller, larger), rule in zip(ends, pairs, strict=True)]

    @cached_property
    def _alone(self) -> list[int]:
        """Columns with constraints of their own but without rules between columns."""
        given = [a is not None or d is not None for a, d in zip(self.allowed, self.decimals, strict=True)]
        bound = np.isfinite(self.low) | np.isfinite(self.high) | self.whole | np.array(given, dtype=np.bool_)
        return [column for column in np.flatnonzero(bound).tolist() if column not in self._order]

    def _apply_rules(self, values: FloatArray, open_cells: BoolArray) -> FloatArray:
        ceilings = self._ceilings(values, open_cells)
        floors: dict[int, FloatArray] = {}
        for column in self._order:
            rows, domain = open_cells[:, column], self._domains[column]
            floor = np.full(len(values), -np.inf)
            for smaller, strict in [(edge[0], edge[2]) for edge in self._edges if edge[1] == column]:
                floor = np.fmax(floor, _beyond(floors[smaller], np.inf, strict))
            low, high = np.fmax(floor[rows], domain.low), ceilings[column][rows]
            values[rows, column] = domain.settle(values[rows, column], low, high)
            floors[column] = np.fmax(floor, values[:, column])
        return values

    def _ceilings(self, values: FloatArray, open_cells: BoolArray) -> dict[int, FloatArray]:
        """Return, for each column with rules, the largest values that leave room for the cells above it."""
        ceilings: dict[int, FloatArray] = {}
        tops: dict[int, FloatArray] = {}  # largest allowed values up to the ceilings
        for column in reversed(self._order):
            rows, domain = open_cells[:, column], self._domains[column]
            ceiling = np.where(rows, domain.high, values[:, column])
            for larger, strict in [(edge[1], edge[2]) for edge in self._edges if edge[0] == column]:
                ceiling = np.fmin(ceiling, _beyond(tops[larger], -np.inf, strict))
            ceilings[column] = ceiling
            tops[column] = np.where(rows, domain.at_most(ceiling), ceiling)
        return ceilings

    def _check_names(self) -> None:
        parts = (self.names, self.low, self.high, self.whole, self.allowed, set(self.names), self.decimals)
        if len({len(part) for part in parts}) > 1:
            raise ParameterError(
                "Constraints need one low, high, whole and allowed for each name, and every name only once."
            )
        unknown = [(rule, name) for rule in self.rules for name in rule.columns if name not in self.names]
        for rule, name in unknown:
            raise ParameterError(f"Rule {rule} names {name!r}, which is not a column.{did_you_mean(name, self.names)}")

    def _check_values_left(self) -> None:
        """Raise an error if no row of missing cells could satisfy the bounds and rules."""
        shape = (1, len(self.names))
        ceilings = self._ceilings(np.zeros(shape), np.ones(shape, dtype=np.bool_))
        highs = [(k, domain.high, "its bounds and rules with numbers") for k, domain in enumerate(self._domains)]
        above = "the rules and the bounds of the columns above it"
        for column, high, why in [*highs, *((k, float(ceiling[0]), above) for k, ceiling in ceilings.items())]:
            domain = self._domains[column]
            first, last = domain.ends(domain.low, high)
            if not first <= last:
                whole = "whole number" if domain.digits == 0 else "number"
                kind = "allowed value" if domain.options is not None else whole
                raise ParameterError(
                    f"Column {self.names[column]!r} has to have a {kind} from {domain.low:g} to {high:g} by {why}, "
                    "but there is none. Change the bounds or remove a rule."
                )


def _beyond(limit: FloatArray, toward: float, strict: bool) -> FloatArray:
    """Return the limits, or the next float64 beyond each finite limit when the inequality is strict."""
    return np.where(np.isinf(limit), limit, np.nextafter(limit, toward)) if strict else limit
