"""What a filled cell may be: bounds, whole numbers, listed values and rules between columns, kept by reflection."""

from __future__ import annotations

__all__ = ["Constraints", "fold"]

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mcflow.data.rules import Rule, close_rules, order_columns, plain_number, quote_name
from mcflow.errors import ParameterError, did_you_mean
from mcflow.typing import BoolArray, FloatArray, Header

_LARGEST = float(np.finfo(np.float64).max)


def fold(values: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> FloatArray:
    """Reflect values at two bounds until they are between them.

    Parameters
    ----------
    values : array-like
        Any numbers; NaN stays NaN.
    low, high : array-like
        The bounds, broadcast against the values; infinite for none. No `low` may be above its `high`.

    Returns
    -------
    ndarray
        Values between the bounds; bit for bit the given ones where those were.

    Notes
    -----
    A value that is d above the upper bound u comes to u - d, and one that is d below the lower bound l to l + d. Where
    d is more than w = u - l, d first becomes w - abs(w - d mod 2w), a triangle wave. Unlike clipping, this puts no
    heap of values on a bound.

    Examples
    --------
    >>> fold([-0.25, 0.5, 1.125, 9.25], 0, 1)
    array([0.25 , 0.5  , 0.875, 0.75 ])
    >>> fold([-3, 7], 0, np.inf)
    array([3., 7.])
    """
    values, low, high = (np.asarray(given, dtype=np.float64) for given in (values, low, high))
    above = values > high
    with np.errstate(over="ignore", invalid="ignore"):  # infinite bounds, and cells inside that are not read
        span = high - low
        distance = np.fmod(np.minimum(np.where(above, values - high, low - values), _LARGEST), 2 * span)
        depth = np.where(distance <= span, distance, 2 * span - distance)
        folded = np.where(above, high - depth, low + depth)
    folded = np.clip(folded, np.maximum(low, -_LARGEST), np.minimum(high, _LARGEST))
    return np.where(above | (values < low), np.where(span > 0, folded, low), values)


@dataclass(frozen=True)
class _Domain:
    """What one column may hold: all between two bounds, or of that the whole numbers, or the listed options."""

    low: float
    high: float
    whole: bool
    options: FloatArray | None

    def ends(self, low: npt.ArrayLike, high: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the first and the last value in [low, high]; the first is above the last where there is none."""
        low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        if self.options is not None:
            padded = np.concatenate([[-np.inf], self.options, [np.inf]])
            first = np.searchsorted(self.options, low, side="left") + 1
            return padded[first], padded[np.searchsorted(self.options, high, side="right")]
        return (np.ceil(low), np.floor(high)) if self.whole else (low, high)

    def at_most(self, limit: FloatArray) -> FloatArray:
        """Return the largest value up to each limit, or the limit where there is none."""
        last = self.ends(-np.inf, limit)[1]
        return np.where(last > -np.inf, last, limit)

    def settle(self, raw: FloatArray, low: npt.ArrayLike, high: npt.ArrayLike) -> FloatArray:
        """Bring raw values into the row's intervals, or into the column's bounds where an interval is empty."""
        low, high = np.broadcast_to(low, raw.shape), np.broadcast_to(high, raw.shape)
        good = (low <= high) & (low < np.inf) & (high > -np.inf)
        low, high = np.where(good, low, self.low), np.where(good, high, self.high)
        if not self.whole and self.options is None:
            return fold(raw, low, high)
        first, last = self.ends(low, high)
        barren = first > last  # an interval such as [0.3, 0.7] of a whole column: stay as near to it as possible
        raw = np.where(barren, fold(raw, low, high), raw)
        lowest, highest = self.ends(self.low, self.high)
        return self._snap(raw, np.where(barren, lowest, first), np.where(barren, highest, last))

    def _snap(self, raw: FloatArray, first: FloatArray, last: FloatArray) -> FloatArray:
        """Fold half a step outside the outermost values, so that they draw from both sides as all others do."""
        if self.options is None:
            return np.clip(np.rint(fold(raw, first - 0.5, last + 0.5)), first, last) + 0.0  # no negative zero
        halves = np.diff(self.options / 2)
        padded = np.concatenate([[0.0], halves, [0.0]])
        below = padded[np.searchsorted(self.options, first) + 1]
        above = padded[np.searchsorted(self.options, last)]
        nearest = np.searchsorted(self.options[:-1] + halves, fold(raw, first - below, last + above))
        return np.clip(self.options[nearest], first, last)


@dataclass(frozen=True, eq=False)
class Constraints:
    """What the cells of a table may be.

    Parameters
    ----------
    names : tuple of str
        The columns, in the table's order.
    low, high : ndarray of shape (n_columns,)
        Bounds, infinite for none. What the rules with a number say is merged into them.
    whole : ndarray of bool of shape (n_columns,)
        Columns of whole numbers.
    allowed : tuple of (ndarray or None)
        For each column the only values it may have, or None.
    rules : tuple of Rule
        Rules between columns, or between a column and a number.

    Raises
    ------
    ParameterError
        When a rule names an unknown column, rules run in a circle, or a column is left without a value.

    Examples
    --------
    >>> from mcflow.data.rules import parse_rules
    >>> rules = parse_rules("0 <= low <= high", ["low", "high"])
    >>> given = Constraints(("low", "high"), [-np.inf] * 2, [np.inf] * 2, [False] * 2, [None] * 2, rules)
    >>> given.apply(np.array([[-1.0, 5.0], [4.0, 3.0]]), np.array([[True, False], [False, True]]))
    array([[1., 5.],
           [4., 5.]])
    """

    names: Sequence[str]
    low: FloatArray
    high: FloatArray
    whole: BoolArray
    allowed: Sequence[FloatArray | None]
    rules: Sequence[Rule] = ()

    def __post_init__(self) -> None:
        plain = {
            "names": tuple(self.names),
            "low": np.array(self.low, dtype=np.float64),
            "high": np.array(self.high, dtype=np.float64),
            "whole": np.array(self.whole, dtype=np.bool_),
            "allowed": tuple(None if a is None else np.unique(np.asarray(a, dtype=np.float64)) for a in self.allowed),
            "rules": tuple(self.rules),
        }
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        self._check_names()
        self._merge_bounds()
        self._check_values_left()

    def apply(self, values: FloatArray, missing: BoolArray, *, rules: bool = True) -> FloatArray:
        """Move the fills of missing cells to where they may be.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Raw fills where missing, observed values elsewhere. NaN stays NaN and binds no other cell.
        missing : ndarray of bool of shape (n_rows, n_columns)
            Cells that may be changed.
        rules : bool, default=True
            Whether rules between columns are kept too. Ends of intervals are no rows, so none are between them.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            A new table. All fills are inside their column's bounds, whole or listed where that is asked for. They keep
            the rules in every row in which the observed cells allow it.

        Notes
        -----
        From the largest column to the smallest, each cell gets a ceiling: its observed value, or the largest value
        that leaves room for all cells above it. Then, from the smallest to the largest, each fill is folded into the
        interval between the cells below it and its ceiling. Where that is empty, the column's bounds are used.
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

    def violations(self, values: FloatArray, missing: BoolArray) -> dict[str, int]:
        """Count the observed cells, or pairs of them, that are not as they have to be.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            The table; missing cells are not read.
        missing : ndarray of bool of shape (n_rows, n_columns)
            Cells that were not observed.

        Returns
        -------
        dict of str to int
            Counts above zero. A key is a rule that is broken, stated or implied ("low <= high"), or what is wrong with
            a column's values ("age < 0").
        """
        seen = np.where(missing, np.nan, values)
        found: dict[str, int] = {}
        for column in range(len(self.names)):
            found |= self._column_violations(column, seen[:, column])
        found |= self.broken_rules(dict(zip(self.names, seen.T, strict=True)))
        return {text: count for text, count in found.items() if count}

    def broken_rules(self, cells: Mapping[str, FloatArray]) -> dict[str, int]:
        """Count the rows whose observed cells are against a rule, one that was said or one that follows.

        Parameters
        ----------
        cells : mapping of ndarray of shape (n_rows,)
            Columns by name, NaN where missing; rules about others are passed over.

        Returns
        -------
        dict of str to int
            Counts above zero, by rule.
        """
        numbers = [rule for rule in self.rules if rule.bound is not None]
        found = {}
        for rule in (*numbers, *close_rules(self.rules)):
            if all(name in cells for name in rule.columns):
                smaller, larger = (cells[s] if isinstance(s, str) else s for s in (rule.smaller, rule.larger))
                found[str(rule)] = int(np.sum(smaller >= larger if rule.strict else smaller > larger))
        return {text: count for text, count in found.items() if count}

    def to_dict(self) -> Header:
        """Return the constraints as lists for a file's header; an infinite bound is None."""
        return {
            "names": list(self.names),
            "low": [bound if math.isfinite(bound) else None for bound in self.low.tolist()],
            "high": [bound if math.isfinite(bound) else None for bound in self.high.tolist()],
            "whole": self.whole.tolist(),
            "allowed": [None if options is None else options.tolist() for options in self.allowed],
            "rules": [[rule.smaller, rule.larger, rule.strict] for rule in self.rules],
        }

    @classmethod
    def from_dict(cls, given: Header) -> Constraints:
        """Build constraints from what `to_dict` returned."""
        low = np.array([-np.inf if bound is None else bound for bound in given["low"]])
        high = np.array([np.inf if bound is None else bound for bound in given["high"]])
        rules = [Rule(*sides) for sides in given["rules"]]
        return cls(given["names"], low, high, given["whole"], given["allowed"], rules)

    @cached_property
    def _domains(self) -> list[_Domain]:
        domains = []
        for low, high, whole, options in zip(self.low, self.high, self.whole, self.allowed, strict=True):
            inside = options
            if options is not None:
                inside = options[(options >= low) & (options <= high) & ((options == np.rint(options)) | ~whole)]
            domains.append(_Domain(float(low), float(high), bool(whole), inside))
        return domains

    @cached_property
    def _order(self) -> list[int]:
        """The columns with rules, smaller ones first."""
        return [self.names.index(name) for name in order_columns(self.rules)]

    @cached_property
    def _edges(self) -> list[tuple[int, int, bool]]:
        pairs = [rule for rule in self.rules if rule.bound is None]
        ends = [[self.names.index(name) for name in rule.columns] for rule in pairs]
        return [(smaller, larger, rule.strict) for (smaller, larger), rule in zip(ends, pairs, strict=True)]

    @cached_property
    def _alone(self) -> list[int]:
        """The columns with constraints of their own but no rules."""
        listed = np.array([options is not None for options in self.allowed], dtype=np.bool_)
        bound = np.isfinite(self.low) | np.isfinite(self.high) | self.whole | listed
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
        """Return for each column with rules the largest values that leave room for the cells above."""
        ceilings: dict[int, FloatArray] = {}
        tops: dict[int, FloatArray] = {}  # the largest values of the column's kind under its ceilings
        for column in reversed(self._order):
            rows, domain = open_cells[:, column], self._domains[column]
            ceiling = np.where(rows, domain.high, values[:, column])
            for larger, strict in [(edge[1], edge[2]) for edge in self._edges if edge[0] == column]:
                ceiling = np.fmin(ceiling, _beyond(tops[larger], -np.inf, strict))
            ceilings[column] = ceiling
            tops[column] = np.where(rows, domain.at_most(ceiling), ceiling)
        return ceilings

    def _column_violations(self, column: int, seen: FloatArray) -> dict[str, int]:
        low, high, options = self.low[column], self.high[column], self.allowed[column]
        name, label = self.names[column], quote_name(self.names[column])
        texts = {rule.bound: str(rule) for rule in self.rules}
        seen = seen[~np.isnan(seen)]
        found: dict[str, int] = {}
        if low > -np.inf:
            found[texts.get((name, low, np.inf), f"{label} < {plain_number(low)}")] = int(np.sum(seen < low))
        if high < np.inf:
            found[texts.get((name, -np.inf, high), f"{label} > {plain_number(high)}")] = int(np.sum(seen > high))
        if self.whole[column]:
            found[f"{label} not a whole number"] = int(np.sum(seen != np.rint(seen)))
        if options is not None:
            found[f"{label} not an allowed value"] = int(np.sum(~np.isin(seen, options)))
        return found

    def _check_names(self) -> None:
        sizes = {len(part) for part in (self.names, self.low, self.high, self.whole, self.allowed, set(self.names))}
        if len(sizes) > 1:
            raise ParameterError("Constraints need one low, high, whole and allowed for each name, and no name twice.")
        for rule in self.rules:
            for name in rule.columns:
                if name not in self.names:
                    raise ParameterError(
                        f"Rule {rule} names {name!r}, which is not a column.{did_you_mean(name, self.names)}"
                    )

    def _merge_bounds(self) -> None:
        for name, low, high in filter(None, (rule.bound for rule in self.rules)):
            column = self.names.index(name)
            self.low[column] = max(self.low[column], low)
            self.high[column] = min(self.high[column], high)

    def _check_values_left(self) -> None:
        """Refuse bounds and rules that no table could keep: a row of missing cells has to have a ceiling."""
        for column, domain in enumerate(self._domains):
            self._check_left(column, domain.high, "its bounds and rules with numbers")
        shape = (1, len(self.names))
        for column, ceiling in self._ceilings(np.zeros(shape), np.ones(shape, dtype=np.bool_)).items():
            self._check_left(column, float(ceiling[0]), "the rules and the bounds of the columns above it")

    def _check_left(self, column: int, high: float, why: str) -> None:
        domain = self._domains[column]
        first, last = domain.ends(domain.low, high)
        if not first <= last:
            kind = "allowed value" if domain.options is not None else "whole number" if domain.whole else "number"
            raise ParameterError(
                f"Column {self.names[column]!r} has to have a {kind} from {domain.low:g} to {high:g} by {why}, "
                "but there is none. Change the bounds or take a rule out."
            )


def _beyond(limit: FloatArray, toward: float, strict: bool) -> FloatArray:
    """Return the next numbers past the limits when those may not be reached; an infinite limit is none."""
    return np.where(np.isinf(limit), limit, np.nextafter(limit, toward)) if strict else limit
