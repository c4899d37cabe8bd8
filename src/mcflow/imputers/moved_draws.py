"""Draws in which the filled cells of one column are moved, and the rest of their rows drawn given the moved ones."""

from __future__ import annotations

__all__ = ["MovedDraws", "tilt_levels"]

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mcflow.config import Interval, check_parameter
from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.errors import McflowWarning, ParameterError, did_you_mean
from mcflow.imputers.masked_draws import MaskedDraws
from mcflow.imputers.uncertainty import _warn_of_equal_rows
from mcflow.random import cell_uniforms, checked_ids, hash_rows, seed_from
from mcflow.typing import Array, FloatArray, RandomState

if TYPE_CHECKING:
    from mcflow.imputers.uncertainty import UncertaintyMixin

#: Microseconds in the unit in which dates are moved.
DAY = 86_400_000_000

#: Share of the moved cells that may come to a bound before a warning is given.
STOPPED_SHARE = 0.05

#: Bytes of drawn cells that are kept for all deltas; more are drawn again for each.
KEPT_BYTES = 1 << 28

#: The least probability of a level, so that every drawn one had some.
LEAST_CHANCE = 1e-12

#: What seeds of the moves and of the draws after them are made with, besides the seed of the whole.
MOVES, REDRAWS = 0x6D6F7665, 0x72656472


class MovedDraws:
    """Draws of a table in which the filled cells of one column are moved.

    Parameters
    ----------
    imputer : UncertaintyMixin
        Fitted.
    X : array-like or data frame
        With holes.
    column : object
        Whose filled cells are moved.
    m : int
        Tables.
    random_state : int, Generator, RandomState or None
        Decides the draws.
    row_ids : array-like of shape (n_rows,), optional
        Tells equal rows apart.
    """

    def __init__(
        self, imputer: UncertaintyMixin, X: Any, column: Any, *, m: int, random_state: RandomState, row_ids: Any = None
    ) -> None:
        check_is_fitted(imputer)
        check_parameter("m", m, Interval(int, 1))
        self.imputer, self.m, self.seed = imputer, int(m), seed_from(random_state)
        self.column = _checked_column(imputer, column)
        self.frame, self.values = imputer._read(X)
        self.ids = None if row_ids is None else checked_ids("row_ids", row_ids, len(self.values))
        if self.ids is None:
            _warn_of_equal_rows(self.values)
        schema = imputer.schema_
        position = schema.columns.index(self.column)
        #: Where the column is among those that are coded, and among those that the model sees.
        self.place, self.model_place = schema.coded.index(position), schema.model.index(position)
        self.rows = np.flatnonzero(np.isnan(self.values[:, self.place]) & self.frame.missing(position))
        if not len(self.rows):
            warnings.warn(
                f"Column {column!r} has no missing cell in this table, so that no delta changes anything.",
                McflowWarning,
                stacklevel=3,
            )
        self.models = [imputer.model_, *imputer.other_models_]
        self.given = imputer._seen_by_model(self.values)[self.rows]
        self._cells: list[FloatArray] = []
        self._chances: dict[int, FloatArray] = {}

    def tables(self, delta: float) -> Iterator[Any]:
        """Yield m completed tables in which the filled cells of the column are moved by delta."""
        return self.imputer._tables(self.frame, self.values, self._series(delta))

    def _series(self, delta: float) -> Iterator[FloatArray]:
        """Yield the codes of the columns that the model sees, within the constraints."""
        seen_by_model = self.imputer.schema_.among_coded(model=True)
        stopped = 0
        for number, codes in enumerate(self._drawn()):
            own = self.imputer._completed(self.values[self.rows], lambda _, codes=codes: codes[self.rows])  # type: ignore[misc]
            cells, n_stopped = self._moved(own[:, self.place], number, delta)
            stopped += n_stopped
            values = self.values[self.rows]
            values[:, self.place] = cells = self._settled(values, cells)
            rest = self._rest(codes[self.rows], cells, number)
            # With the moved cell taken for observed, so that rules bind the others to it and not it to them.
            codes[self.rows] = self.imputer._completed(values, lambda _, rest=rest: rest)[:, seen_by_model]  # type: ignore[misc]
            yield codes
        self._warn_of_bounds(delta, stopped / max(self.m * len(self.rows), 1))

    def _drawn(self) -> Iterator[FloatArray]:
        """Yield what `draw` completes tables from; the drawn cells are kept when they are few."""
        given = self.imputer._seen_by_model(self.values)
        missing = np.isnan(given)
        if not self._cells:
            kept = []
            few = self.m * int(missing.sum()) * 8 <= KEPT_BYTES
            for codes in self.imputer._series(self.values, self.m, self.seed, self.ids):
                if few:
                    kept.append(codes[missing])
                yield codes
            self._cells = kept
            return
        for cells in self._cells:
            codes = given.copy()
            codes[missing] = cells
            yield codes

    def _moved(self, cells: FloatArray, number: int, delta: float) -> tuple[FloatArray, int]:
        """Return the moved cells of a draw, and how many a bound stopped."""
        uniforms = cell_uniforms(self._hashes(MOVES, number), np.zeros(len(cells), dtype=np.int64), np.array([0]))[0]
        if self.column.kind in LEVEL_KINDS:
            return tilt_levels(cells, self._chances_of(number), uniforms, delta), 0
        step = delta * (DAY / self.column.step if self.column.kind == "datetime" else 1.0)
        constraints = self.imputer.constraints_
        moved = cells + (np.floor(step + uniforms) if constraints.whole[self.place] else step)
        low, high = constraints.low[self.place], constraints.high[self.place]
        return np.clip(moved, low, high), int(((moved < low) | (moved > high)).sum())

    def _chances_of(self, number: int) -> FloatArray:
        """Return the probabilities of the levels, of shape (n_cells, n_levels), by the model of a draw."""
        turn = number % len(self.models)
        if turn not in self._chances:
            model = self.models[turn]
            stated = model.probabilities(self.given, np.full(self.given.shape, np.nan))[self.model_place]
            if isinstance(model, MaskedDraws):
                stated = model.drawn_chances(self.given, self.model_place, stated)
            self._chances[turn] = stated
        return self._chances[turn]

    def _settled(self, values: FloatArray, cells: FloatArray) -> FloatArray:
        """Return the moved cells as whole numbers, bounds, and rules with observed cells of the row want them."""
        raw, free = values.copy(), np.zeros(values.shape, dtype=bool)
        raw[:, self.place], free[:, self.place] = cells, True
        settled: FloatArray = self.imputer.constraints_.apply(raw, free)[:, self.place]
        return settled

    def _rest(self, codes: FloatArray, cells: FloatArray, number: int) -> FloatArray:
        """Return rows with the moved cells, in which the other missing cells are drawn given these."""
        codes[:, self.model_place] = cells
        given = self.given.copy()
        given[:, self.model_place] = cells
        holed = np.flatnonzero(np.isnan(given).any(axis=1))
        if not len(holed) or self.column.role == "targets_only":  # which no other cell is drawn from
            return codes
        turn, own_number = number % len(self.models), number // len(self.models)
        hashes = self._hashes(REDRAWS, number)[holed]
        codes[holed] = self.models[turn].redraw(given[holed], hashes, own_number)
        return codes

    def _hashes(self, purpose: int, number: int) -> Array:
        """Return hashes of the rows as they were given, which no delta changes."""
        own_seed = seed_from(np.random.default_rng([self.seed, number, purpose]))
        rows = self.given if self.ids is None else np.column_stack([self.given, self.ids[self.rows]])
        return hash_rows(rows, own_seed)

    def _warn_of_bounds(self, delta: float, share: float) -> None:
        if share > STOPPED_SHARE:
            warnings.warn(
                f"At delta {delta:g}, {100 * share:.0f} % of the moved cells of column {self.column.name!r} come to a "
                f"bound and stop there. Give bounds={{{self.column.name!r}: (low, high)}} at fit to let them go on, "
                "or take smaller deltas.",
                McflowWarning,
                stacklevel=2,
            )


def tilt_levels(codes: FloatArray, chances: FloatArray, uniforms: FloatArray, delta: float) -> FloatArray:
    r"""Move drawn levels so that the log-odds of each against the one before it rise by delta.

    Parameters
    ----------
    codes : ndarray of shape (n_cells,)
        Drawn levels, 0 to n_levels - 1.
    chances : ndarray of shape (n_cells, n_levels)
        The probabilities that they were drawn with.
    uniforms : ndarray of shape (n_cells,)
        In (0, 1), a number for each cell.
    delta : float
        What is added.

    Returns
    -------
    ndarray of shape (n_cells,)
        Levels with the probabilities :math:`p_j e^{\delta j} / \sum_i p_i e^{\delta i}`.

    Notes
    -----
    With :math:`F` the distribution function before and :math:`F_\delta` after, a cell at level j goes to
    :math:`F_\delta^{-1}(F(j - 1) + u p_j)`: no cell moves against delta, and a larger one moves none less far.

    Examples
    --------
    >>> tilt_levels(np.array([0.0, 0.0, 1.0]), np.full((3, 2), 0.5), np.array([0.2, 0.8, 0.5]), 1.0)
    array([0., 1., 1.])
    """
    if delta == 0:
        return codes
    weights = np.maximum(chances, LEAST_CHANCE)
    before = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    logs = np.log(weights) + delta * np.arange(weights.shape[1])
    tilted = np.exp(logs - logs.max(axis=1, keepdims=True))
    after = np.cumsum(tilted, axis=1) / tilted.sum(axis=1, keepdims=True)
    floors = np.column_stack([np.zeros(len(codes)), before])
    levels = codes.astype(np.int64)[:, None]
    low, high = (np.take_along_axis(floors, levels + k, axis=1)[:, 0] for k in (0, 1))
    found = (after < (low + uniforms * (high - low))[:, None]).sum(axis=1)
    moved: FloatArray = np.minimum(found, weights.shape[1] - 1).astype(np.float64)
    return moved


def _checked_column(imputer: UncertaintyMixin, name: Any) -> Column:
    columns = imputer.schema_.columns
    names = [column.name for column in columns]
    if name not in names:
        raise ParameterError(
            f"There is no column {name!r}.{did_you_mean(name, [str(known) for known in names])} "
            "Name one of those of the fit, or give its position for numpy."
        )
    column = columns[names.index(name)]
    if not (column.filled and column.in_model):
        raise ParameterError(
            f"Column {name!r} is {column.kind} with the role {column.role!r}, and its missing cells are not drawn. "
            "Name a column that varies and is filled."
        )
    if column.kind == "category" and len(column.levels) > 2:
        raise ParameterError(
            f"Column {name!r} has {len(column.levels)} levels without an order, so there is no way up or down. Say at "
            f"fit that they have one, kinds={{{name!r}: 'ordered'}}, or join them to two."
        )
    return column
