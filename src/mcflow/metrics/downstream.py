"""What a fill is worth to the model that is fitted on it."""

from __future__ import annotations

__all__ = ["DownstreamScores", "downstream_score"]

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mcflow.config import Interval, Options
from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.metrics.pointwise import Score, check_table
from mcflow.random import seed_from
from mcflow.typing import Array, FloatArray, RandomState

_CONSTRAINTS: dict[str, Options | Interval] = {
    "task": Options(("auto", "regression", "classification")),
    "model": Options(("boosting", "linear")),
    "n_bootstraps": Interval(int, 2),
}
# More whole values than this are taken for counts, not for classes.
_MOST_CLASSES = 20
_CHUNK = 2**20


@dataclass(frozen=True)
class DownstreamScores:
    """Test scores of a model that was fitted on filled rows.

    Parameters
    ----------
    task : str
        "regression", scored by R², or "classification", scored by the share of right classes.
    plain : Score
        With the filled columns alone.
    indicated : Score or None
        With indicator columns beside them.
    gain : Score or None
        `indicated` less `plain`, its error from the same resamples for both.
    """

    task: str
    plain: Score
    indicated: Score | None = None
    gain: Score | None = None


def downstream_score(
    filled_train: npt.ArrayLike,
    y_train: npt.ArrayLike,
    filled_test: npt.ArrayLike,
    y_test: npt.ArrayLike,
    *,
    task: str = "auto",
    model: str = "boosting",
    indicator: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    n_bootstraps: int = 400,
    random_state: RandomState = None,
) -> DownstreamScores:
    r"""Fit a model on filled rows and score it on other filled rows.

    Parameters
    ----------
    filled_train, filled_test : array-like of shape (n_rows, n_columns)
        Filled rows to fit on and to score on.
    y_train, y_test : array-like of shape (n_rows,)
        What is to be predicted from them.
    task : {"auto", "regression", "classification"}
        "auto" takes words, booleans and at most 20 different whole numbers for classes.
    model : {"boosting", "linear"}
        Boosted trees, or standardised columns with ridge or logistic regression.
    indicator : pair of array-like of shape (n_rows, n_columns), optional
        Boolean, True where a cell was missing, for training and for test rows. With them a second model is fitted that
        sees one more column for each column with missing training cells.
    n_bootstraps : int
        Resamples of the test rows behind the errors, at least 2.
    random_state : int, numpy Generator, numpy RandomState or None
        For the model and for the resamples.

    Returns
    -------
    DownstreamScores
        Scores with and without indicators. Higher is better.

    Raises
    ------
    DataError
        When shapes do not fit each other, cells are not finite, or there is one class alone.
    ParameterError
        When a word or a number is not allowed.

    Notes
    -----
    Classification is scored by the share of right classes, regression by

    .. math:: R^2 = 1 - \frac{\sum_i (y_i - \hat y_i)^2}{\sum_i (y_i - \bar y)^2} .

    Errors are standard deviations over resamples of the test rows. They leave out how a model would change with other
    training rows or another seed.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(80, 2))
    >>> y = rows @ [1.0, 2.0]
    >>> scores = downstream_score(rows[:40], y[:40], rows[40:], y[40:], model="linear", random_state=0)
    >>> scores.task, round(scores.plain.value, 2)
    ('regression', 1.0)
    """
    for name, value in {"task": task, "model": model, "n_bootstraps": n_bootstraps}.items():
        _check_option(name, value)
    train, test = _check_features("filled_train", filled_train), _check_features("filled_test", filled_test)
    if train.shape[1] != test.shape[1]:
        raise DataError(f"filled_train has {train.shape[1]} columns and filled_test {test.shape[1]}, not the same.")
    known, asked = _check_target("y_train", y_train, len(train)), _check_target("y_test", y_test, len(test))
    task = _find_task(known) if task == "auto" else task
    if task == "regression":
        known, asked = _check_numbers("y_train", known), _check_numbers("y_test", asked)
    elif len(np.unique(known)) < 2:
        raise DataError(f"y_train has one class alone, {known[0]!r}, but has to have two or more.")
    seed = seed_from(random_state)
    features = [(train, test)]
    if indicator is not None:
        features.append(_add_indicators(train, test, indicator))
    guesses = [_make_model(task, model, seed).fit(fit_on, known).predict(ask_for) for fit_on, ask_for in features]
    values, resampled = _bootstrap(task, asked, guesses, n_bootstraps, seed)
    return _collect(task, values, resampled)


def _check_option(name: str, value: object) -> None:
    constraint = _CONSTRAINTS[name]
    if not constraint.allows(value):
        hint = did_you_mean(value, constraint.words) if isinstance(constraint, Options) else ""
        raise ParameterError(f"{name} is {value!r}, but has to be {constraint}.{hint}")


def _check_features(name: str, given: npt.ArrayLike) -> FloatArray:
    table = check_table(name, given)
    if len(table) < 2 or table.shape[1] == 0:
        raise DataError(f"{name} has the shape {table.shape}, but has to have 2 rows and 1 column or more.")
    if bad := int((~np.isfinite(table)).sum()):
        raise DataError(f"{name} has {bad} cells that are not finite, but all have to be filled.")
    return table


def _check_target(name: str, given: npt.ArrayLike, n_rows: int) -> Array:
    target: Array = np.asarray(given)
    if target.shape != (n_rows,):
        raise DataError(f"{name} has the shape {target.shape}, but has to have ({n_rows},), one value a row.")
    if target.dtype.kind == "f":
        missing = ~np.isfinite(target)
    else:
        missing = np.array([value is None or (isinstance(value, float) and math.isnan(value)) for value in target])
    if missing.any():
        raise DataError(f"{name} is missing in {missing.sum()} rows, but has to be known. Leave these rows out.")
    return target


def _check_numbers(name: str, target: Array) -> FloatArray:
    numbers = check_table(name, target, n_axes=1)
    if name == "y_test" and np.ptp(numbers) == 0:
        raise DataError(f"{name} is {numbers[0]:g} in every row, but has to vary for R².")
    return numbers


def _find_task(target: Array) -> str:
    if target.dtype.kind not in "iuf":
        return "classification"
    levels = np.unique(target)
    whole = bool((levels == np.round(levels)).all())
    return "classification" if whole and len(levels) <= _MOST_CLASSES else "regression"


def _add_indicators(
    train: FloatArray, test: FloatArray, indicator: tuple[npt.ArrayLike, npt.ArrayLike]
) -> tuple[FloatArray, FloatArray]:
    if not isinstance(indicator, tuple | list) or len(indicator) != 2:
        raise ParameterError(f"indicator is a {type(indicator).__name__}, but has to be a pair: training and test.")
    missing = [np.asarray(part) for part in indicator]
    for part, table, name in zip(missing, (train, test), ("training", "test"), strict=True):
        if part.dtype != np.bool_ or part.shape != table.shape:
            raise DataError(
                f"indicator has the type {part.dtype} and the shape {part.shape} for the {name} rows, but has to be "
                f"boolean of shape {table.shape}."
            )
    used = missing[0].any(axis=0)
    return np.hstack([train, missing[0][:, used]]), np.hstack([test, missing[1][:, used]])


def _make_model(task: str, model: str, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if model == "boosting":
        boosting = HistGradientBoostingRegressor if task == "regression" else HistGradientBoostingClassifier
        return boosting(random_state=seed % 2**32)
    linear = RidgeCV(alphas=np.logspace(-3, 3, 13)) if task == "regression" else LogisticRegression(max_iter=2000)
    return make_pipeline(StandardScaler(), linear)


def _bootstrap(
    task: str, truth: Array, guesses: list[Array], n_bootstraps: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return each guess's score, and its scores over resamples of shape (n_bootstraps, n_guesses)."""
    if task == "regression":
        centred = truth - truth.mean()
        losses = np.stack([(guess - truth) ** 2 for guess in guesses], axis=1)
        terms = np.column_stack([losses, centred, centred**2])  # (n_rows, n_guesses + 2)
    else:
        terms = np.stack([guess == truth for guess in guesses], axis=1).astype(np.float64)
    n_rows, rng = len(truth), np.random.default_rng(seed)
    step = max(1, _CHUNK // n_rows)
    even = np.full(n_rows, 1 / n_rows)
    sums = [
        rng.multinomial(n_rows, even, size=min(step, n_bootstraps - start)) @ terms / n_rows
        for start in range(0, n_bootstraps, step)
    ]
    return _scores(task, terms.mean(axis=0)), _scores(task, np.concatenate(sums))


def _scores(task: str, means: FloatArray) -> FloatArray:
    """Turn means of the terms into scores."""
    if task == "classification":
        return means
    variance = means[..., -1:] - means[..., -2:-1] ** 2
    # A resample of one row over and over has no R².
    variance = np.where(variance > 1e-12 * means[..., -1:], variance, np.nan)
    scores: FloatArray = 1 - means[..., :-2] / variance
    return scores


def _collect(task: str, values: FloatArray, resampled: FloatArray) -> DownstreamScores:
    scores = [Score(float(value), _spread(resampled[:, k])) for k, value in enumerate(values)]
    if len(scores) == 1:
        return DownstreamScores(task, scores[0])
    gain = Score(float(values[1] - values[0]), _spread(resampled[:, 1] - resampled[:, 0]))
    return DownstreamScores(task, scores[0], scores[1], gain)


def _spread(values: FloatArray) -> float:
    usable = values[np.isfinite(values)]
    return float(np.std(usable, ddof=1)) if len(usable) > 1 else math.nan
