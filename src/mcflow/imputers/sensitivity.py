"""Sensitivity analysis for data missing not at random: delta adjustment and tipping points."""

from __future__ import annotations

__all__ = ["DeltaDraws", "Sensitivity", "TippingPoint", "sensitivity", "tilt_categories"]

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from mcflow.columns.schema import CATEGORY_KINDS, Column
from mcflow.config import Interval, check_parameter
from mcflow.errors import McflowWarning, ParameterError, did_you_mean
from mcflow.imputers.table import MCFlowImputer, warn_of_equal_rows
from mcflow.pool.fits import PooledFit, fit_pooled
from mcflow.pool.rules import PooledResult, as_text
from mcflow.random import cell_uniforms, checked_ids, hash_rows, seed_from
from mcflow.typing import Array, FloatArray, RandomState

DAY = 86_400_000_000  # microseconds of a day, the unit of deltas of dates
CLIPPED_SHARE = 0.05  # fraction of the shifted cells that may be clipped at a bound before a warning is issued
KEPT_BYTES = 1 << 28  #: Maximum size of drawn cells that are kept; larger ones are drawn again for each delta.
MIN_PROBABILITY = 1e-12  # lower bound of the probability of a category, so that every drawn category has a positive one
SHIFT_STREAM = 0x6D6F7665  # separates the random numbers of the shifts from others of the same seed
REDRAW_STREAM = 0x72656472  # separates the random numbers of the draws after the shifts from others of the same seed


@dataclass(frozen=True)
class TippingPoint:
    """The shift of the filled cells of a column at which a conclusion changes."""

    term: str  #: Term of the analysis.
    below: float | None  #: Negative delta nearest to 0 at which the conclusion changes; None if it does not.
    above: float | None  #: Positive delta nearest to 0 at which the conclusion changes; None if it does not.
    words: str  #: The result in words, also returned by `str`.

    @property
    def delta(self) -> float | None:
        """The one of both deltas that is nearer to 0, None if there is none."""
        found = [side for side in (self.below, self.above) if side is not None]
        return min(found, key=abs) if found else None

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True, repr=False, eq=False)
class Sensitivity:
    """Delta-adjusted draws, and an analysis of them, for a series of deltas; see `MCFlowImputer.sensitivity`."""

    column: Any  #: The column whose filled cells are shifted.
    deltas: tuple[float, ...]  #: Shifts in increasing order, among them 0.
    #: The pooled analysis at each delta; empty without an analysis.
    results: Mapping[float, PooledResult] = field(default_factory=dict)
    level: float = 0.95  #: Confidence level of the intervals.
    delta_draws: DeltaDraws | None = None  #: Source of the completed tables.

    def draws(self, delta: float) -> Iterator[Any]:
        """Draw completed tables at one delta.

        Parameters
        ----------
        delta : float
            Any finite number, not only one of `deltas`.

        Returns
        -------
        iterator
            m tables of the same type as the given one, generated one at a time.
        """
        (checked,) = _checked_deltas(delta)
        if self.delta_draws is None:
            raise ParameterError("These are results only. `imputer.sensitivity` returns them together with draws.")
        return self.delta_draws.tables(checked)

    def table(self) -> Any:
        """Return the terms of the analysis at all deltas as a table.

        Returns
        -------
        pandas.DataFrame
            Columns: delta, term, estimate, std.error, df, p.value and both ends of the interval.

        Raises
        ------
        ParameterError
            If there was no analysis.
        """
        return pd.DataFrame(self._columns())

    def tipping_point(self, term: str, alpha: float = 0.05) -> TippingPoint:
        """Find the shift of the filled cells at which the conclusion about a term changes.

        Parameters
        ----------
        term : str
            Term of the analysis.
        alpha : float, default=0.05
            Significance level.

        Returns
        -------
        TippingPoint

        Raises
        ------
        ParameterError
            If there was no analysis, it has no such term, or alpha is not between 0 and 1.

        Notes
        -----
        The conclusion at delta 0 is one of three: above 0, below 0, or not significantly different from 0. The bound of
        the interval of level 1 - alpha that decides it is interpolated linearly between the last delta of the grid at
        which the conclusion holds and the first at which it does not. Changes between two deltas at which the
        conclusion holds are not detected; use a finer grid.

        Examples
        --------
        >>> from mcflow.pool import pool
        >>> results = {delta: pool([1.0 + delta] * 2, [0.25] * 2, names=["age"]) for delta in (-1.0, 0.0, 1.0)}
        >>> print(Sensitivity("bmi", (-1.0, 0.0, 1.0), results).tipping_point("age"))
        age is above 0 at delta 0 (p = 0.0455). This changes when the filled cells of bmi are shifted by -0.02; it holds
        up to 1.
        """
        results = self._analysed()
        if not 0 < alpha < 1:
            raise ParameterError(f"alpha is {alpha!r}, but has to be between 0 and 1, such as 0.05.")
        names = results[0.0].names
        if term not in names:
            raise ParameterError(f"There is no term {term!r}. There are {', '.join(names)}.{did_you_mean(term, names)}")
        place = names.index(term)
        ends = np.array([_ends(results[delta], place, alpha) for delta in self.deltas])
        start = self.deltas.index(0.0)
        below = _change(self.deltas[start::-1], ends[start::-1])
        above = _change(self.deltas[start:], ends[start:])
        words = self._words(term, ends[start], float(results[0.0].p_value[place]), (below, above))
        return TippingPoint(term, below, above, words)

    def _words(self, term: str, ends: FloatArray, p_value: float, sides: tuple[float | None, float | None]) -> str:
        side = "above 0" if ends[0] > 0 else "below 0" if ends[1] < 0 else "not significantly different from 0"
        opening = f"{term} is {side} at delta 0 (p {'< 0.0001' if p_value < 1e-4 else f'= {p_value:.4f}'})."
        found = " or ".join(f"{delta:.3g}" for delta in sides if delta is not None)
        if not found:
            return f"{opening} This holds for all deltas from {self.deltas[0]:g} to {self.deltas[-1]:g}."
        text = f"{opening} This changes when the filled cells of {self.column} are shifted by {found}"
        for way, delta, last in zip(("down", "up"), sides, (self.deltas[0], self.deltas[-1]), strict=True):
            if delta is None and last:
                text += f"; it holds {way} to {last:g}"
        return text + "."

    def _analysed(self) -> Mapping[float, PooledResult]:
        if not self.results:
            raise ParameterError("There is no analysis. Pass analysis=, such as analysis='bmi ~ age'.")
        return self.results

    def _columns(self) -> dict[str, Any]:
        results = self._analysed()
        low, high = (f"{100 * end:g} %" for end in ((1 - self.level) / 2, (1 + self.level) / 2))
        pooled = [results[delta] for delta in self.deltas]
        bounds = np.concatenate([one.interval for one in pooled])
        columns = {"estimate": "estimate", "std.error": "std_error", "df": "df", "p.value": "p_value"}
        return {
            "delta": np.repeat(self.deltas, [len(one.names) for one in pooled]),
            "term": [name for one in pooled for name in one.names],
            **{name: np.concatenate([getattr(one, part) for one in pooled]) for name, part in columns.items()},
            low: bounds[:, 0],
            high: bounds[:, 1],
        }

    def __repr__(self) -> str:
        title = f"Filled cells of {self.column} shifted by {', '.join(f'{delta:g}' for delta in self.deltas)}"
        if not self.results:
            return title
        columns = self._columns()
        return as_text(title, {"term": columns.pop("term")} | columns)


def sensitivity(
    imputer: MCFlowImputer,
    X: Any,
    column: Any,
    deltas: Any,
    *,
    analysis: Any = None,
    m: int = 20,
    random_state: RandomState = None,
    level: float = 0.95,
    row_ids: Any = None,
    **how: Any,
) -> Sensitivity:
    """Shift the filled cells of a column and analyse the completed tables; see `MCFlowImputer.sensitivity`."""
    if not 0 < level < 1:
        raise ParameterError(f"level is {level!r}, but has to be between 0 and 1, such as 0.95.")
    if how and analysis is None:
        raise ParameterError(f"{', '.join(how)}: these arguments need an analysis. Pass analysis= as well.")
    grid = tuple(sorted({0.0, *_checked_deltas(deltas)}))
    draws = DeltaDraws(imputer, X, column, m=m, random_state=random_state, row_ids=row_ids)
    results = {}
    if analysis is not None:
        for delta in grid:
            results[delta] = _terms_only(fit_pooled(analysis, draws.tables(delta), level=level, **how))
    return Sensitivity(column, grid, results, float(level), draws)


def _checked_deltas(deltas: Any) -> list[float]:
    wrong = f"deltas is {deltas!r}, but has to be finite numbers, such as [-10, -5, 0, 5, 10]."
    try:
        found = np.atleast_1d(np.asarray(deltas, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ParameterError(wrong) from error
    if found.ndim > 1 or not found.size or not np.isfinite(found).all():
        raise ParameterError(wrong)
    return [float(delta) + 0.0 for delta in found]  # no negative zero


def _terms_only(fit: PooledFit) -> PooledResult:
    """Return a pooled fit without its models, to save memory."""
    if fit.reason:
        raise ParameterError(fit.reason)
    return PooledResult(**{part.name: getattr(fit, part.name) for part in fields(PooledResult)})


def _ends(result: PooledResult, place: int, alpha: float) -> tuple[float, float]:
    """Return the bounds of the interval of level 1 - alpha of a term."""
    half = stats.t.isf(alpha / 2, result.df[place]) * result.std_error[place]
    return float(result.estimate[place] - half), float(result.estimate[place] + half)


def _change(deltas: tuple[float, ...], ends: FloatArray) -> float | None:
    """Return the delta at which the conclusion changes, given the bounds (n_deltas, 2); None if it does not."""
    above, below = ends[:, 0] > 0, ends[:, 1] < 0
    other = np.flatnonzero((above != above[0]) | (below != below[0]))
    if not len(other):
        return None
    last = int(other[0])
    # The bound that crosses 0 decides.
    end = ends[:, 0] if above[0] != above[last] else ends[:, 1]
    before, after = end[last - 1], end[last]
    share = before / (before - after)
    return float(deltas[last - 1] + share * (deltas[last] - deltas[last - 1]))


class DeltaDraws:
    """Draws of a table in which the filled cells of one column are shifted by a delta."""

    def __init__(
        self, imputer: MCFlowImputer, X: Any, column: Any, *, m: int, random_state: RandomState, row_ids: Any = None
    ) -> None:
        check_is_fitted(imputer)
        check_parameter("m", m, Interval(int, 1))
        self.imputer, self.m, self.seed = imputer, int(m), seed_from(random_state)
        self.column = _checked_column(imputer, column)
        self.frame, self.values = imputer._read(X)
        self.ids = None if row_ids is None else checked_ids("row_ids", row_ids, len(self.values))
        if self.ids is None:
            warn_of_equal_rows(self.values)
        schema = imputer.schema_
        position = schema.columns.index(self.column)
        self.place = schema.coded.index(position)  # index among the coded columns
        self.model_place = schema.model.index(position)  # index among the columns of the model
        self.rows = np.flatnonzero(np.isnan(self.values[:, self.place]) & self.frame.missing(position, self.column))
        if not len(self.rows):
            warnings.warn(
                f"Column {column!r} has no missing cells in this table, so no delta changes anything.",
                McflowWarning,
                stacklevel=3,
            )
        self.models = [imputer.model_, *imputer.other_models_]
        self.given = imputer._seen_by_model(self.values)[self.rows]
        self._cells: list[FloatArray] = []
        self._probabilities: dict[int, FloatArray] = {}

    def tables(self, delta: float) -> Iterator[Any]:
        """Yield m completed tables in which the filled cells of the column are shifted by delta."""
        return self.imputer._tables(self.frame, self.values, self._series(delta))

    def _series(self, delta: float) -> Iterator[FloatArray]:
        """Yield the codes of the columns of the model, within the constraints."""
        seen_by_model = self.imputer.schema_.model_among_coded
        clipped = 0
        for number, codes in enumerate(self._drawn()):
            own = self.imputer._completed(self.values[self.rows], codes[self.rows])
            cells, n_clipped = self._shifted(own[:, self.place], number, delta)
            clipped += n_clipped
            values = self.values[self.rows]
            values[:, self.place] = cells = self._settled(values, cells)
            rest = self._rest(codes[self.rows], cells, number)
            # The shifted cell counts as observed, so that rules adjust the other cells to it.
            codes[self.rows] = self.imputer._completed(values, rest)[:, seen_by_model]
            yield codes
        share = clipped / max(self.m * len(self.rows), 1)
        if share > CLIPPED_SHARE:
            warnings.warn(
                f"At delta {delta:g}, {100 * share:.0f} % of the shifted cells of column {self.column.name!r} are at a "
                f"bound and clipped. Set bounds={{{self.column.name!r}: (low, high)}} at fit, or use smaller deltas.",
                McflowWarning,
                stacklevel=1,
            )

    def _drawn(self) -> Iterator[FloatArray]:
        """Yield the codes of the draws; drawn cells are kept for the next delta if they are few."""
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

    def _shifted(self, cells: FloatArray, number: int, delta: float) -> tuple[FloatArray, int]:
        """Return the shifted cells of a draw, and how many were clipped at a bound."""
        hashes = self._hashes(SHIFT_STREAM, number)
        uniforms = cell_uniforms(hashes, np.zeros(len(cells), dtype=np.int64), np.array([0]))[0]
        if self.column.kind in CATEGORY_KINDS:
            return tilt_categories(cells, self._probabilities_of(number), uniforms, delta), 0
        step = delta * (DAY / self.column.step if self.column.kind == "datetime" else 1.0)
        constraints = self.imputer.constraints_
        shifted = cells + (np.floor(step + uniforms) if constraints.whole[self.place] else step)
        low, high = constraints.low[self.place], constraints.high[self.place]
        return np.clip(shifted, low, high), int(((shifted < low) | (shifted > high)).sum())

    def _probabilities_of(self, number: int) -> FloatArray:
        """Return the probabilities (n_cells, n_categories) of the categories under the model of a draw."""
        turn = number % len(self.models)
        if turn not in self._probabilities:
            model = self.models[turn]
            self._probabilities[turn] = model.category_frequencies(self.given, self.model_place)
        return self._probabilities[turn]

    def _settled(self, values: FloatArray, cells: FloatArray) -> FloatArray:
        """Return the shifted cells within whole numbers, bounds and rules, given the observed cells."""
        raw, free = values.copy(), np.zeros(values.shape, dtype=bool)
        raw[:, self.place], free[:, self.place] = cells, True
        return self.imputer.constraints_.apply(raw, free)[:, self.place]

    def _rest(self, codes: FloatArray, cells: FloatArray, number: int) -> FloatArray:
        """Return rows whose other missing cells are drawn given the shifted ones."""
        codes[:, self.model_place] = cells
        given = self.given.copy()
        given[:, self.model_place] = cells
        incomplete = np.flatnonzero(np.isnan(given).any(axis=1))
        if not len(incomplete) or self.column.role == "targets_only":  # no other cell depends on such a column
            return codes
        turn, own_number = number % len(self.models), number // len(self.models)
        hashes = self._hashes(REDRAW_STREAM, number)[incomplete]
        codes[incomplete] = self.models[turn].redraw(given[incomplete], hashes, own_number)
        return codes

    def _hashes(self, stream: int, number: int) -> Array:
        """Return hashes of the rows as given, which do not depend on delta."""
        own_seed = seed_from(np.random.default_rng([self.seed, number, stream]))
        rows = self.given if self.ids is None else np.column_stack([self.given, self.ids[self.rows]])
        return hash_rows(rows, own_seed)


def tilt_categories(codes: FloatArray, probabilities: FloatArray, uniforms: FloatArray, delta: float) -> FloatArray:
    r"""Change drawn categories so that the log-odds of each category against the one before it increase by delta.

    With the cumulative distribution functions :math:`F` before and :math:`F_\delta` after the change, a cell with
    category j gets :math:`F_\delta^{-1}(F(j - 1) + u p_j)`. The category is monotone in delta. `probabilities` are of
    shape (n_cells, n_categories), everything else (n_cells,).
    """
    if delta == 0:
        return codes
    weights = np.maximum(probabilities, MIN_PROBABILITY)
    before = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    logs = np.log(weights) + delta * np.arange(weights.shape[1])
    tilted = np.exp(logs - logs.max(axis=1, keepdims=True))
    after = np.cumsum(tilted, axis=1) / tilted.sum(axis=1, keepdims=True)
    floors = np.column_stack([np.zeros(len(codes)), before])
    categories = codes.astype(np.int64)[:, None]
    low, high = (np.take_along_axis(floors, categories + k, axis=1)[:, 0] for k in (0, 1))
    found = (after < (low + uniforms * (high - low))[:, None]).sum(axis=1)
    return np.asarray(np.minimum(found, weights.shape[1] - 1), dtype=np.float64)


def _checked_column(imputer: MCFlowImputer, name: Any) -> Column:
    columns = imputer.schema_.columns
    names = [column.name for column in columns]
    if name not in names:
        raise ParameterError(
            f"There is no column {name!r}.{did_you_mean(name, [str(known) for known in names])} "
            "Give the name of a column of the fit, or its position for numpy."
        )
    column = columns[names.index(name)]
    if not (column.filled and column.in_model):
        raise ParameterError(
            f"Column {name!r} is {column.kind} with the role {column.role!r}, and its missing cells are not drawn. "
            "Choose a column that varies and is filled."
        )
    if column.kind == "category" and len(column.categories) > 2:
        raise ParameterError(
            f"Column {name!r} has {len(column.categories)} unordered categories, which cannot be shifted. Fit with "
            f"kinds={{{name!r}: 'ordered'}}, or merge them to two categories."
        )
    return column
