"""Chained models: each column is predicted from the others as they are filled now, round after round."""

from __future__ import annotations

__all__ = ["Chain", "Constant", "Layout", "Learner", "Model", "differences", "has_settled", "visiting_order"]

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.typing import Array, BoolArray, FloatArray


class Model(Protocol):
    """What predicts one column from the others."""

    def predict(self, rows: Any) -> Array:
        """Return one number or code a row."""
        ...


@dataclass(frozen=True)
class Layout:
    """The columns of a chain: how each is scaled, where it starts, and which may predict others.

    Parameters
    ----------
    n_levels : tuple of int
        Levels of each column, 0 for numbers.
    nominal : tuple of bool
        Whether the levels of a column have no order.
    predicts : tuple of bool
        Whether a column may be used to fill others.
    centre, scale : ndarray of shape (n_columns,)
        Mean and standard deviation of the observed numbers; 0 and 1 for levels.
    start : ndarray of shape (n_columns,)
        What a hole holds first, in scaled units: the mean, or the commonest level.
    low, high : ndarray of shape (n_columns,)
        Bounds of what is filled in, in the columns' own units.
    """

    n_levels: tuple[int, ...]
    nominal: tuple[bool, ...]
    predicts: tuple[bool, ...]
    centre: FloatArray
    scale: FloatArray
    start: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def from_values(cls, values: FloatArray, columns: Sequence[Column], low: FloatArray, high: FloatArray) -> Layout:
        """Learn the layout from codes of shape (n_rows, n_columns), NaN where missing."""
        n_levels = tuple(len(c.levels) if c.kind in LEVEL_KINDS else 0 for c in columns)
        moments = [_moments(values[:, k], n) for k, n in enumerate(n_levels)]
        centre, scale, start = np.array(moments, dtype=np.float64).reshape(-1, 3).T
        return cls(
            n_levels=n_levels,
            nominal=tuple(c.kind == "category" and len(c.levels) > 2 for c in columns),
            predicts=tuple(c.role != "targets_only" for c in columns),
            centre=centre,
            scale=scale,
            start=start,
            low=low,
            high=high,
        )

    @property
    def is_level(self) -> BoolArray:
        """Which columns hold levels."""
        return np.array(self.n_levels, dtype=np.int64) > 0

    def sources(self, column: int) -> list[int]:
        """Return the columns that `column` is predicted from."""
        return [k for k, used in enumerate(self.predicts) if used and k != column]

    def scaled(self, values: FloatArray) -> FloatArray:
        """Return codes in scaled units."""
        return np.asarray((values - self.centre) / self.scale)

    def restored(self, scaled: FloatArray) -> FloatArray:
        """Return codes in their own units, within their bounds."""
        return np.clip(scaled * self.scale + self.centre, self.low, self.high)

    def bounded(self, predicted: Array, column: int) -> FloatArray:
        """Return predictions of one column, in scaled units, within its bounds."""
        low, high = ((end[column] - self.centre[column]) / self.scale[column] for end in (self.low, self.high))
        return np.clip(predicted, low, high)


def _moments(column: FloatArray, n_levels: int) -> tuple[float, float, float]:
    """Return the centre, the scale and the scaled start of one column."""
    seen = column[~np.isnan(column)]
    if n_levels:
        counts = np.bincount(seen.astype(np.int64), minlength=n_levels)
        return 0.0, 1.0, float(counts.argmax())
    if not len(seen):
        return 0.0, 1.0, 0.0
    size = float(np.abs(seen).max()) or 1.0  # squares of 1e-200 and 1e200 would leave the floats
    spread = float((seen / size).std()) * size
    return float((seen / size).mean() * size), spread if spread > 0.0 else 1.0, 0.0


class Learner(Protocol):
    """How a chain's models are made."""

    @property
    def takes_holes(self) -> bool:
        """Whether models read rows with holes; then the first round starts from the holes as they are."""
        ...

    def fit(self, layout: Layout, column: int, rows: FloatArray, target: FloatArray, seed: int) -> Model:
        """Return a model of `target` from `rows`, whose columns are `layout.sources(column)`."""
        ...


@dataclass(frozen=True)
class Constant:
    """Predict one value whatever the row."""

    value: float

    def predict(self, rows: Any) -> Array:
        """Return the value once a row."""
        return np.full(len(rows), self.value)


def visiting_order(missing: BoolArray) -> list[int]:
    """Return the columns by their number of missing cells, fewest first.

    Parameters
    ----------
    missing : ndarray of shape (n_rows, n_columns)
        True where a cell is missing.

    Returns
    -------
    list of int
        Ties keep the table's order.

    Examples
    --------
    >>> import numpy as np
    >>> visiting_order(np.array([[True, False, True], [True, False, False]]))
    [1, 2, 0]
    """
    return [int(k) for k in np.argsort(missing.sum(axis=0), kind="stable")]


def differences(new: FloatArray, old: FloatArray, missing: BoolArray, is_level: BoolArray) -> dict[str, float]:
    """Return how far two successive filled tables are apart, for each type of column that has holes.

    Parameters
    ----------
    new, old : ndarray of shape (n_rows, n_columns)
        Filled tables.
    missing : ndarray of shape (n_rows, n_columns)
        True where a cell is filled.
    is_level : ndarray of shape (n_columns,)
        Which columns hold levels.

    Returns
    -------
    dict
        "numbers": Σ(new − old)² / Σ new² over the columns of numbers; "levels": the share of filled cells that changed.

    Examples
    --------
    >>> import numpy as np
    >>> new, old = np.array([[3.0, 1.0], [4.0, 0.0]]), np.array([[3.0, 1.0], [3.0, 1.0]])
    >>> missing = np.array([[False, True], [True, True]])
    >>> differences(new, old, missing, np.array([False, True]))
    {'numbers': 0.04, 'levels': 0.5}
    """
    found = {}
    if missing[:, ~is_level].any():
        change = ((new - old)[:, ~is_level] ** 2).sum()
        found["numbers"] = float(change / max((new[:, ~is_level] ** 2).sum(), np.finfo(np.float64).tiny))
    if missing[:, is_level].any():
        found["levels"] = float((new != old)[:, is_level].sum() / missing[:, is_level].sum())
    return found


def has_settled(now: dict[str, float], before: dict[str, float] | None) -> bool:
    """Tell whether the difference has stopped falling for every type of column.

    Parameters
    ----------
    now : dict
        What `differences` returned after this round.
    before : dict or None
        What it returned after the round before; None at the first.

    Returns
    -------
    bool

    Examples
    --------
    >>> has_settled({"numbers": 0.3, "levels": 0.1}, {"numbers": 0.2, "levels": 0.2})
    False
    >>> has_settled({"numbers": 0.3, "levels": 0.2}, {"numbers": 0.2, "levels": 0.2})
    True
    """
    return before is not None and all(now[name] >= before[name] for name in now)


class Chain:
    """Models of every column from the others, fitted round after round until the filled table settles.

    Parameters
    ----------
    layout : Layout
        What the columns are.
    learner : Learner
        What makes the models.
    max_rounds : int
        Rounds after which the chain ends, settled or not.
    seed : int
        Every model has its own seed, made of this one, the column and the round.

    Attributes
    ----------
    rounds : list of dict
        The models of each kept round by column. Columns without a hole, and those that are not used to fill others,
        cannot change the table of the fit: they have a model in the last round only.
    changes : list of dict
        What `differences` returned after each round that was run.

    Notes
    -----
    New rows are led through the kept rounds one after the other, as the rows of the fit were, so that a model is asked
    about rows that are filled as well, or as badly, as those it learned from. When fewer than `max_rounds` were kept,
    the last one is repeated on each row until the row no longer changes.
    """

    def __init__(self, layout: Layout, learner: Learner, *, max_rounds: int, seed: int) -> None:
        self.layout = layout
        self.learner = learner
        self.max_rounds = max_rounds
        self.seed = seed
        self.rounds: list[dict[int, Model]] = []
        self.changes: list[dict[str, float]] = []
        self._order: list[int] = []
        self._looped: list[int] = []

    def fit(self, values: FloatArray) -> Self:
        """Learn from codes of shape (n_rows, n_columns), NaN where missing."""
        seen = self.layout.scaled(values)
        missing = np.isnan(seen)
        self._order = visiting_order(missing)
        self._looped = [c for c in self._order if self.layout.predicts[c] and missing[:, c].any()]
        filled = self._iterate(np.where(missing, self.layout.start, seen), missing)
        self.rounds = self.rounds or [{}]
        for column in [c for c in self._order if c not in self._looped]:
            holed = self.layout.predicts[column] and self._reads_holes(len(self.rounds) - 1)
            read = seen if holed else filled
            self.rounds[-1][column] = self._fit_column(read, missing, column, len(self.rounds))
        return self

    def _reads_holes(self, number: int) -> bool:
        """Tell whether the models of a round read rows with their holes."""
        return number == 0 and self.learner.takes_holes and bool(self._looped)

    def _iterate(self, filled: FloatArray, missing: BoolArray) -> FloatArray:
        """Run rounds and keep their models until the table settles; return the table of the last kept one."""
        moving = missing & np.isin(np.arange(missing.shape[1]), self._looped)
        before: dict[str, float] | None = None
        for number in range(self.max_rounds if self._looped else 0):
            models: dict[int, Model] = {}
            new = self._sweep(filled, moving, self._looped, number, models, learn=True)
            now = differences(new, filled, moving, self.layout.is_level)
            self.changes.append(now)
            if has_settled(now, before):
                break
            self.rounds.append(models)
            filled, before = new, now
        return filled

    def _sweep(
        self,
        filled: FloatArray,
        missing: BoolArray,
        columns: Iterable[int],
        number: int,
        models: dict[int, Model],
        *,
        learn: bool = False,
    ) -> FloatArray:
        """Return the table after every column of one round was predicted in its turn, by new models or given ones."""
        new = filled.copy()
        read = new
        if self._reads_holes(number):
            # Only columns that had holes at fit have models that know what a hole means.
            read = filled.copy()
            read[:, self._looped] = np.where(missing, np.nan, filled)[:, self._looped]
        for column in columns:
            if learn:
                models[column] = self._fit_column(read, missing, column, number)
            rows = missing[:, column]
            if rows.any():
                new[rows, column] = self._predicted(models[column], read[rows], column)
        return new

    def _fit_column(self, read: FloatArray, missing: BoolArray, column: int, number: int) -> Model:
        sources = self.layout.sources(column)
        rows = ~missing[:, column]
        target = read[rows, column]
        if not sources or not len(target) or (target == target[0]).all():
            return Constant(float(target[0]) if len(target) and sources else float(self.layout.start[column]))
        seed = np.random.SeedSequence([self.seed, column, number]).generate_state(1)[0]
        return self.learner.fit(self.layout, column, read[rows][:, sources], target, int(seed))

    def _predicted(self, model: Model, rows: FloatArray, column: int) -> FloatArray:
        return self.layout.bounded(model.predict(rows[:, self.layout.sources(column)]), column)

    def fill(self, values: FloatArray) -> FloatArray:
        """Return codes of shape (n_rows, n_columns) without a hole; each row by itself."""
        seen = self.layout.scaled(values)
        missing = np.isnan(seen)
        filled = np.where(missing, self.layout.start, seen)
        used = np.array(self.layout.predicts)
        rows = np.flatnonzero(missing[:, used].any(axis=1))
        for number in range(self.max_rounds):
            kept = min(number, len(self.rounds) - 1)
            models = self.rounds[kept]
            columns = [c for c in self._order if used[c] and c in models]
            new = self._sweep(filled[rows], missing[rows], columns, kept, models)
            changed = (new != filled[rows]).any(axis=1)
            filled[rows] = new
            rows = rows[changed] if kept == len(self.rounds) - 1 else rows
            if not len(rows):
                break
        late = [c for c in self._order if not used[c]]
        filled = self._sweep(filled, missing, late, self.max_rounds, self.rounds[-1])
        return self.layout.restored(filled)
