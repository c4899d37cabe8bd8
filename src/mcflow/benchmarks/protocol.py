"""The protocol of a comparison: five folds, cells hidden, a fit on the training rows, scores on the test rows."""

from __future__ import annotations

__all__ = ["Split", "draw_scores", "point_scores", "split_table"]

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


def draw_scores(split: Split, imputer: Any, seed: int) -> dict[str, Score]:
    """Score draws of the first test rows.

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
    dict of Score
        crps in units of the range; coverage_90, the share of cells between the 5 % and 95 % points of the draws.

    Notes
    -----
    The k-th smallest of m draws is taken for their :math:`k / (m + 1)` point, so that draws that are right hold 90 % of
    the truths between both points, however few they are.
    """
    from mcflow import metrics

    truth, mask = split.test[:MOST_ROWS], split.hidden_test[:MOST_ROWS]
    rows = np.where(mask, np.nan, truth)
    draws = np.stack([np.asarray(table, dtype=np.float64) for table in imputer.draw(rows, N_DRAWS, seed)])
    low, high = np.quantile(draws, [0.05, 0.95], axis=0, method="weibull")
    return {
        "crps": metrics.crps(truth, draws, mask, split.span),
        "coverage_90": metrics.coverage(truth, low, high, mask),
    }
