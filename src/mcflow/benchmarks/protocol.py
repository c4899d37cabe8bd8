"""The protocol of a comparison: five folds, cells hidden, a fit on the training rows, scores on the test rows."""

from __future__ import annotations

__all__ = ["Split", "draw_rows", "draw_scores", "point_scores", "split_table"]

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mcflow.benchmarks.suite import N_FOLDS
from mcflow.errors import DataError
from mcflow.typing import BoolArray, FloatArray

if TYPE_CHECKING:
    from mcflow.metrics import Score

#: Draws a row, and rows at most, for the scores of draws.
N_DRAWS = 20
MOST_ROWS = 1000
#: Draws whose rows are compared with true rows; each costs the distances of all pairs.
ENERGY_DRAWS = 5
#: What intervals are asked to hold.
LEVEL = 0.9
#: Distinct values of a column up to which it has few.
FEW_VALUES = 20


class Split(NamedTuple):
    """Complete training and test rows, the masks of their hidden cells, and the units of the columns."""

    train: FloatArray
    test: FloatArray
    hidden_train: BoolArray
    hidden_test: BoolArray
    span: FloatArray
    deviation: FloatArray


def split_table(values: FloatArray, fold: int, rate: float, mechanism: str = "mcar") -> Split:
    """Shuffle a complete table, hide cells and take one fifth of the rows for the test.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        Complete numbers.
    fold : int
        From 0 to 4: which fifth is the test fold; it also seeds the order of the rows and the mask.
    rate : float
        Share of the cells that are hidden.
    mechanism : str, default="mcar"
        A function of `mcflow.masks`.

    Returns
    -------
    Split
        Rows that are left over when the number of rows is not a multiple of five are training rows.

    Notes
    -----
    One generator, seeded with the fold, gives first the order of the rows and then the mask, which belongs to the rows
    in their new order. Both training and test rows have holes; only cells hidden in test rows are scored.

    Examples
    --------
    >>> split = split_table(np.arange(40.0).reshape(10, 4), 0, 0.2)
    >>> split.train.shape, split.test.shape
    ((8, 4), (2, 4))
    """
    rng = np.random.default_rng(fold)
    shuffled = values[rng.permutation(len(values))]
    if mechanism == "mcar":
        hidden: BoolArray = rng.random(values.shape) < rate
    else:
        from mcflow import masks

        hide: Callable[..., BoolArray] = getattr(masks, mechanism)
        hidden = hide(shuffled, rate, random_state=rng)
    size = len(values) // N_FOLDS
    test = np.zeros(len(values), dtype=bool)
    test[fold * size : (fold + 1) * size] = True
    span: FloatArray = np.ptp(values, axis=0)
    return Split(shuffled[~test], shuffled[test], hidden[~test], hidden[test], span, values.std(axis=0))


def point_scores(split: Split, filled: FloatArray) -> dict[str, Score]:
    """Score filled test rows.

    Parameters
    ----------
    split : Split
        What was hidden.
    filled : ndarray of shape (n_test_rows, n_columns)
        The test rows without a hole.

    Returns
    -------
    dict of Score
        rmse and mae in units of the columns' ranges, standardised_rmse in those of their deviations;
        correlation_error and energy_distance compare distributions, the latter with training rows.

    Raises
    ------
    DataError
        When a hidden cell was not filled.
    """
    from mcflow import metrics

    truth, mask = split.test, split.hidden_test
    scores = {
        "rmse": metrics.rmse(truth, filled, mask, split.span),
        "mae": metrics.mae(truth, filled, mask, split.span),
        "standardised_rmse": metrics.standardised_rmse(truth, filled, mask, split.deviation),
    }
    few = slice(MOST_ROWS)
    unit = split.deviation
    others: dict[str, Callable[[], Score]] = {
        "correlation_error": lambda: metrics.correlation_error(truth, filled),
        "energy_distance": lambda: metrics.energy_distance(filled[few] / unit, split.train[few] / unit),
    }
    for name, measure in others.items():
        try:
            scores[name] = measure()
        except DataError:  # a column that does not vary over the test rows has no correlations
            continue
    return scores


def draw_rows(split: Split, imputer: Any, seed: int) -> FloatArray:
    """Draw the first test rows.

    Parameters
    ----------
    split : Split
        What was hidden.
    imputer : object
        Fitted, with `draw`.
    seed : int
        Decides the draws.

    Returns
    -------
    ndarray of shape (n_draws, n_rows, n_columns)
        20 draws of at most 1,000 rows.
    """
    rows = _holed(split)[:MOST_ROWS]
    return np.stack([np.asarray(table, dtype=np.float64) for table in imputer.draw(rows, N_DRAWS, seed)])


def _holed(split: Split) -> FloatArray:
    return np.where(split.hidden_test, np.nan, split.test)


def draw_scores(split: Split, imputer: Any, draws: FloatArray) -> dict[str, Score]:
    """Score draws of the first test rows, and intervals of all of them when there are some.

    Parameters
    ----------
    split : Split
        What was hidden.
    imputer : object
        Fitted. When it has ``interval(rows, level=0.9)``, which returns the low and the high ends as two tables, these
        are the intervals of all test rows; else they are those of the draws.
    draws : ndarray of shape (n_draws, n_rows, n_columns)
        What `draw_rows` returned.

    Returns
    -------
    dict of Score
        crps in units of the range; draw_coverage_90, the share of cells between the 5 % and 95 % points of the draws;
        draw_energy_distance, how far drawn rows are from true ones, in units of the deviations; and of the intervals
        coverage_90, interval_width in units of the range, lowest_coverage and highest_coverage of any column, and
        few_values_coverage, that of the columns with at most 20 distinct training values when there are such.

    Notes
    -----
    The k-th smallest of m draws is taken for their :math:`k / (m + 1)` point, so that draws that are right hold 90 % of
    the truths between both points, however few they are.
    """
    from mcflow import metrics

    truth, mask = split.test[: draws.shape[1]], split.hidden_test[: draws.shape[1]]
    low, high = np.quantile(draws, [0.05, 0.95], axis=0, method="weibull")
    scores = {
        "crps": metrics.crps(truth, draws, mask, split.span),
        "draw_coverage_90": metrics.coverage(truth, low, high, mask),
    }
    holed = mask.any(axis=1)
    if holed.sum() > 1:
        unit = np.where(split.deviation > 0, split.deviation, 1.0)
        scores["draw_energy_distance"] = _energy(draws[:ENERGY_DRAWS, holed] / unit, truth[holed] / unit)
    if hasattr(imputer, "interval"):
        low, high = (np.asarray(end, dtype=np.float64) for end in imputer.interval(_holed(split), level=LEVEL))
    return scores | _interval_scores(split, low, high)


def _interval_scores(split: Split, low: FloatArray, high: FloatArray) -> dict[str, Score]:
    """Score the intervals of the first test rows, as many as there are ends."""
    from mcflow import metrics

    truth, mask = split.test[: len(low)], split.hidden_test[: len(low)]
    columns = [s for s in metrics.coverage_by_column(truth, low, high, mask) if np.isfinite(s.value)]
    scores = {
        "coverage_90": metrics.coverage(truth, low, high, mask),
        "interval_width": metrics.width(low, high, mask, split.span),
        "lowest_coverage": min(columns, key=lambda score: score.value),
        "highest_coverage": max(columns, key=lambda score: score.value),
    }
    few = mask & _has_few_values(split)
    if few.any():
        scores["few_values_coverage"] = metrics.coverage(truth, low, high, few)
    return scores


def _has_few_values(split: Split) -> BoolArray:
    """Tell which columns have few distinct values among the training cells that were not hidden."""
    seen = zip(split.train.T, split.hidden_train.T, strict=True)
    return np.array([len(np.unique(cells[~hidden])) <= FEW_VALUES for cells, hidden in seen])


def _energy(draws: FloatArray, truth: FloatArray) -> Score:
    r"""Return the energy distance between rows and their draws, without bias, the mean over the draws.

    A row and its own draw share their observed cells, so only pairs of different rows are counted: with
    :math:`h_{ij} = |x_i - y_j| + |x_j - y_i| - |x_i - x_j| - |y_i - y_j|`, the mean of :math:`h_{ij}` over
    :math:`i \ne j`, which is 0 on average when draws are right. The error is that of a U-statistic over the rows.
    """
    from scipy.spatial.distance import cdist

    from mcflow.metrics import Score

    n_rows = len(truth)
    pairs = np.zeros((n_rows, n_rows))
    for rows in draws:
        between = cdist(rows, truth)
        pairs += between + between.T - cdist(rows, rows)
    pairs = pairs / len(draws) - cdist(truth, truth)
    np.fill_diagonal(pairs, 0.0)
    means = pairs.sum(axis=1) / (n_rows - 1)
    return Score(float(means.mean()), float(2 * means.std(ddof=1) / np.sqrt(n_rows)))
