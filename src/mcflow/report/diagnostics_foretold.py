"""What an imputer foretells of cells that were hidden from it."""

from __future__ import annotations

__all__ = ["Spread", "Target", "foretold", "level_chances"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcflow.data.frames import read_frame
from mcflow.data.schema import Column, TableSchema
from mcflow.errors import DataError, ParameterError
from mcflow.random import seed_from
from mcflow.report.diagnostics_cells import place_in
from mcflow.typing import Array, FloatArray, RandomState

#: Completed tables that are drawn where an imputer has no intervals; more for levels that need more.
N_DRAWS, MOST_DRAWS = 40, 400


@dataclass(frozen=True)
class Target:
    """Hidden cells of one column.

    Parameters
    ----------
    schema : TableSchema
        All columns.
    position : int
        Of the column among them.
    rows : ndarray of int
        Rows, in the table that the imputer gets, whose cell was hidden.
    truth : ndarray
        The codes that were hidden.
    """

    schema: TableSchema
    position: int
    rows: Array
    truth: FloatArray

    @property
    def column(self) -> Column:
        """What the column is."""
        return self.schema.columns[self.position]

    def read(self, given: Any) -> FloatArray:
        """Return the codes of these cells in a table that the imputer gave back."""
        table = read_frame(given)
        place = place_in(table, self.schema, self.position)
        codes: FloatArray = table.column_codes(place, self.column, "missing")[self.rows]
        return codes


@dataclass(frozen=True)
class Spread:
    """What an imputer foretells of cells: quantiles of each.

    Parameters
    ----------
    probabilities : ndarray of shape (n_quantiles,)
        Ascending.
    quantiles : ndarray of shape (n_quantiles, n_cells)
        Codes.

    Examples
    --------
    >>> spread = Spread(np.array([0.25, 0.75]), np.array([[0.0], [1.0]]))
    >>> [end.item() for end in spread.interval(0.5)], spread.pit(np.array([2.0]), np.array([0.5])).item()
    ([0.0, 1.0], 0.875)
    """

    probabilities: FloatArray
    quantiles: FloatArray

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Return both ends of the central intervals of a level."""
        return self._quantile((1 - level) / 2), self._quantile((1 + level) / 2)

    def _quantile(self, probability: float) -> FloatArray:
        after = int(np.searchsorted(self.probabilities, probability - 1e-9))
        if after == len(self.probabilities) or abs(self.probabilities[after] - probability) < 1e-9 or after == 0:
            nearest: FloatArray = self.quantiles[min(after, len(self.quantiles) - 1)]
            return nearest
        low, high = self.probabilities[after - 1 : after + 1]
        share = (probability - low) / (high - low)
        between: FloatArray = (1 - share) * self.quantiles[after - 1] + share * self.quantiles[after]
        return between

    def pit(self, truth: FloatArray, uniforms: FloatArray) -> FloatArray:
        """Return the probability integral transform of each cell's truth.

        Between two quantiles, and where several are the truth itself, the place is drawn with `uniforms`.
        """
        edges = np.concatenate([[0.0], self.probabilities, [1.0]])
        low = edges[(self.quantiles < truth).sum(axis=0)]
        high = edges[(self.quantiles <= truth).sum(axis=0) + 1]
        places: FloatArray = low + uniforms * (high - low)
        return places


def foretold(
    imputer: Any, given: Any, targets: Sequence[Target], levels: Sequence[float], random_state: RandomState
) -> list[Spread]:
    """Ask an imputer for the spread of hidden cells, by its intervals or, where it has none, by draws.

    Parameters
    ----------
    imputer : object
        Fitted, with `interval` or `draw`.
    given : array-like or data frame
        The table with the cells hidden.
    targets : sequence of Target
        The cells.
    levels : sequence of float
        Levels of the central intervals to ask for.
    random_state : int, Generator, RandomState or None
        Of the draws.

    Returns
    -------
    list of Spread
        One a target.

    Raises
    ------
    ParameterError
        When the imputer has neither.
    DataError
        When it leaves a hidden cell without an answer.

    Notes
    -----
    Of m draws the k-th smallest is the quantile at k / (m + 1), so that a truth from the same distribution lies below
    it with that probability.

    Examples
    --------
    >>> from mcflow.baselines import make
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> imputer = make("em", random_state=0).fit(rows)
    >>> target = Target(imputer.schema_, 0, np.array([0]), rows[:1, 0])
    >>> (spread,) = foretold(imputer, np.array([[np.nan, 0.0]]), [target], [0.5], random_state=0)
    >>> low, high = spread.interval(0.5)
    >>> bool(low[0] < 0 < high[0])
    True
    """
    ordered = sorted(levels)
    if hasattr(imputer, "interval"):
        ends = [_ends(imputer.interval(given, level=level), targets) for level in ordered]
        probabilities = np.array([(1 - level) / 2 for level in reversed(ordered)] + [(1 + s) / 2 for s in ordered])
        found = [
            np.stack([low for low, _ in reversed(cells)] + [high for _, high in cells])
            for cells in zip(*ends, strict=True)
        ]
    elif hasattr(imputer, "draw"):
        n_draws = min(max(N_DRAWS, math.ceil(2 / (1 - ordered[-1])) - 1), MOST_DRAWS)
        drawn = _draws(imputer, given, targets, n_draws, random_state)
        probabilities = np.arange(1, n_draws + 1) / (n_draws + 1)
        found = [np.sort(cells, axis=0) for cells in drawn]
    else:
        raise ParameterError(
            f"imputer is a {type(imputer).__name__}, which says nothing of how sure it is: it has neither interval nor "
            "draw. Give a fitted MCFlowImputer, or a baseline with draws such as make('em')."
        )
    for target, quantiles in zip(targets, found, strict=True):
        _check_complete(target, quantiles)
    return [Spread(probabilities, quantiles) for quantiles in found]


def _ends(pair: Any, targets: Sequence[Target]) -> list[tuple[FloatArray, FloatArray]]:
    low, high = pair
    return [(target.read(low), target.read(high)) for target in targets]


def _draws(
    imputer: Any, given: Any, targets: Sequence[Target], n_draws: int, random_state: RandomState
) -> list[FloatArray]:
    """Return the cells of every target in every draw, each of shape (n_draws, n_cells)."""
    seed = seed_from(random_state)
    cells = [[target.read(one) for target in targets] for one in imputer.draw(given, m=n_draws, random_state=seed)]
    return [np.stack(column) for column in zip(*cells, strict=True)]


def _check_complete(target: Target, quantiles: FloatArray) -> None:
    if bad := int(np.isnan(quantiles).any(axis=0).sum()):
        raise DataError(
            f"The imputer left {bad} hidden cells of column {target.column.name!r} without an interval. Leave the "
            "column out with `columns`."
        )


def level_chances(imputer: Any, given: Any, target: Target, random_state: RandomState) -> FloatArray | None:
    """Return the probability that an imputer gives to each hidden cell's true level.

    Parameters
    ----------
    imputer : object
        Fitted. With `predict_proba`, or with `draw`, of which the share of draws with the level is taken.
    given : array-like or data frame
        The table with the cells hidden.
    target : Target
        The cells, of a column of levels.
    random_state : int, Generator, RandomState or None
        Of the draws.

    Returns
    -------
    ndarray of shape (n_cells,) or None
        None when the imputer has neither.

    Examples
    --------
    >>> from mcflow.baselines import make
    >>> rows = np.array([["a", 1.0], ["b", 2.0]] * 20, dtype=object)
    >>> imputer = make("em", random_state=0).fit(rows)
    >>> target = Target(imputer.schema_, 0, np.array([0]), np.array([1.0]))
    >>> float(level_chances(imputer, np.array([[None, 2.0]], dtype=object), target, 0)[0])
    1.0
    """
    truth = target.truth.astype(np.int64)
    if hasattr(imputer, "predict_proba"):
        tables = imputer.predict_proba(given)
        if target.column.name in tables:
            table = read_frame(tables[target.column.name])
            chances = np.column_stack([np.asarray(table.series(p), dtype=float) for p in range(len(table.names))])
            true: FloatArray = chances[target.rows, truth]
            return true
    if not hasattr(imputer, "draw"):
        return None
    (drawn,) = _draws(imputer, given, [target], N_DRAWS, random_state)
    shares: FloatArray = (drawn == truth).mean(axis=0)
    return shares
