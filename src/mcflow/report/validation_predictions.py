"""Hide observed cells from a fitted imputer and predict them, for overimputation and calibration plots."""

from __future__ import annotations

__all__ = [
    "HiddenCells",
    "PredictiveQuantiles",
    "binomial_band",
    "check_share",
    "filled_positions",
    "predict_quantiles",
    "true_category_probabilities",
]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mcflow.columns.frames import Frame, read_frame
from mcflow.columns.schema import Column, TableSchema
from mcflow.errors import DataError, ParameterError
from mcflow.random import seed_from
from mcflow.report.tables import named_positions, place_in, schema_of
from mcflow.typing import Array, FloatArray, RandomState

#: Draws that estimate a predictive distribution if an imputer has no intervals or probabilities.
MIN_DRAWS = 40
#: Maximum number of draws for intervals of a high level.
MAX_DRAWS = 400


def check_share(name: str, value: Any) -> float:
    """Return a number above 0 and below 1, or raise `ParameterError`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < 1:
        raise ParameterError(f"{name} is {value!r}, but has to be a number above 0 and below 1.")
    return float(value)


def filled_positions(table: Frame, imputer: Any, columns: Any = None) -> list[int]:
    """Return the positions of the columns that an imputer fills by a model: all, or those in `columns`."""
    if not hasattr(imputer, "transform"):
        raise ParameterError(f"imputer is {imputer!r}, but has to be a fitted imputer, such as MCFlowImputer.")
    if hasattr(type(imputer), "__sklearn_tags__"):
        check_is_fitted(imputer)
    schema = schema_of(table, imputer)
    usable = [p for p, column in enumerate(schema.columns) if column.in_model and column.filled]
    wanted = named_positions(table, columns)
    for p in wanted or ():
        if p not in usable:
            column = schema.columns[p]
            raise ParameterError(
                f"columns names {column.name!r}, which the imputer does not fill by a model: it is of kind "
                f"{column.kind} and role {column.role}. Name other columns."
            )
    if not usable:
        raise DataError("The imputer fills no column by a model, so there is nothing to plot.")
    return usable if wanted is None else wanted


@dataclass(frozen=True)
class HiddenCells:
    """Hidden cells of one column."""

    schema: TableSchema  # of the table
    position: int  # of the column
    rows: Array  # (n_cells,) rows in the table that the imputer gets
    truth: FloatArray  # (n_cells,) codes

    @property
    def column(self) -> Column:
        """The column of the cells."""
        return self.schema.columns[self.position]

    def read(self, completed: Any) -> FloatArray:
        """Return the codes of these cells in a table that the imputer returned, (n_cells,)."""
        table = read_frame(completed)
        place = place_in(table, self.schema, self.position)
        codes: FloatArray = table.column_codes(place, self.column, "missing")[self.rows]
        return codes


@dataclass(frozen=True)
class PredictiveQuantiles:
    """Quantiles of the predictive distributions of cells."""

    probabilities: FloatArray  # (n_quantiles,) ascending
    quantiles: FloatArray  # (n_quantiles, n_cells) codes

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Return both ends of the central intervals of a level, each (n_cells,)."""
        return self._quantile((1 - level) / 2), self._quantile((1 + level) / 2)

    def _quantile(self, probability: float) -> FloatArray:
        """Interpolate between known quantiles; beyond the outermost ones, return these."""
        after = int(np.searchsorted(self.probabilities, probability - 1e-9))
        if after == len(self.probabilities) or abs(self.probabilities[after] - probability) < 1e-9 or after == 0:
            nearest: FloatArray = self.quantiles[min(after, len(self.quantiles) - 1)]
            return nearest
        low, high = self.probabilities[after - 1 : after + 1]
        share = (probability - low) / (high - low)
        between: FloatArray = (1 - share) * self.quantiles[after - 1] + share * self.quantiles[after]
        return between

    def pit(self, truth: FloatArray, uniforms: FloatArray) -> FloatArray:
        """Return the probability integral transform of the true values, randomised by `uniforms`; all (n_cells,).

        A true value between two quantiles, or equal to several, gets a uniform position between their probabilities.
        """
        edges = np.concatenate([[0.0], self.probabilities, [1.0]])
        low = edges[(self.quantiles < truth).sum(axis=0)]
        high = edges[(self.quantiles <= truth).sum(axis=0) + 1]
        transforms: FloatArray = low + uniforms * (high - low)
        return transforms


def predict_quantiles(
    imputer: Any, masked: Any, hidden: Sequence[HiddenCells], levels: Sequence[float], random_state: RandomState
) -> list[PredictiveQuantiles]:
    """Predict hidden cells by intervals of the imputer or, if it has none, by draws; one result per column.

    The k-th smallest of m draws is the quantile at k / (m + 1): another draw lies below it with that probability.
    """
    ordered = sorted(levels)
    if hasattr(imputer, "interval"):
        bounds = [imputer.interval(masked, level=level) for level in ordered]
        probabilities = np.array([(1 - level) / 2 for level in reversed(ordered)] + [(1 + s) / 2 for s in ordered])
        tables = [low for low, _ in reversed(bounds)] + [high for _, high in bounds]
        found = [np.stack([cells.read(table) for table in tables]) for cells in hidden]
    elif hasattr(imputer, "draw"):
        n_draws = min(max(MIN_DRAWS, math.ceil(2 / (1 - ordered[-1])) - 1), MAX_DRAWS)
        probabilities = np.arange(1, n_draws + 1) / (n_draws + 1)
        found = [np.sort(cells, axis=0) for cells in _draws(imputer, masked, hidden, n_draws, random_state)]
    else:
        raise ParameterError(
            f"imputer is a {type(imputer).__name__}, which gives no uncertainty: it has neither interval nor draw. "
            "Give a fitted MCFlowImputer, or a baseline with draws such as make('em')."
        )
    for cells, quantiles in zip(hidden, found, strict=True):
        if n_missing := int(np.isnan(quantiles).any(axis=0).sum()):
            raise DataError(
                f"The imputer left {n_missing} hidden cells of column {cells.column.name!r} without an interval. Leave "
                "the column out with `columns`."
            )
    return [PredictiveQuantiles(probabilities, quantiles) for quantiles in found]


def _draws(
    imputer: Any, masked: Any, hidden: Sequence[HiddenCells], n_draws: int, random_state: RandomState
) -> list[FloatArray]:
    """Draw the hidden cells of every column, each (n_draws, n_cells)."""
    tables = imputer.draw(masked, m=n_draws, random_state=seed_from(random_state))
    cells = [[one.read(table) for one in hidden] for table in tables]
    return [np.stack(column) for column in zip(*cells, strict=True)]


def true_category_probabilities(
    imputer: Any, masked: Any, hidden: HiddenCells, random_state: RandomState
) -> FloatArray | None:
    """Return the predicted probability of each true category, (n_cells,); None if the imputer predicts none."""
    truth = hidden.truth.astype(np.int64)
    if hasattr(imputer, "predict_proba"):
        tables = imputer.predict_proba(masked)
        if hidden.column.name in tables:
            table = read_frame(tables[hidden.column.name])
            predicted = np.column_stack([np.asarray(table.series(p), dtype=float) for p in range(len(table.names))])
            true: FloatArray = predicted[hidden.rows, truth]
            return true
    if not hasattr(imputer, "draw"):
        return None
    (drawn,) = _draws(imputer, masked, [hidden], MIN_DRAWS, random_state)
    shares: FloatArray = (drawn == truth).mean(axis=0)
    return shares


def binomial_band(n_cells: Any, share: Any, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    r"""Return the central interval of the observed share among n cells, given the true share.

    With :math:`K \sim \mathrm{Bin}(n, p)`, the shares :math:`k / n` at the quantiles :math:`(1 \pm b) / 2` of K.
    """
    from scipy.stats import binom

    count = np.asarray(n_cells, dtype=np.float64)
    low, high = (binom.ppf(end, count, share) / count for end in ((1 - level) / 2, (1 + level) / 2))
    return np.asarray(low), np.asarray(high)
