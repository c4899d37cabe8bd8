"""Predictions of several models as one: their mean and how far they are apart."""

from __future__ import annotations

__all__ = ["pool_predictions"]

from collections.abc import Iterable
from typing import Any, Literal, overload

import numpy as np

from mcflow.errors import DataError
from mcflow.typing import FloatArray


@overload
def pool_predictions(predictions: Iterable[Any], *, return_std: Literal[False] = ...) -> FloatArray: ...


@overload
def pool_predictions(predictions: Iterable[Any], *, return_std: bool) -> Any: ...


def pool_predictions(predictions: Iterable[Any], *, return_std: bool = False) -> Any:
    """Average the predictions of several models.

    Parameters
    ----------
    predictions : iterable of array-like
        Numbers or probabilities, all of one shape. They are read one after the other.
    return_std : bool, default=False
        Also return the standard deviation between the models, cell by cell.

    Returns
    -------
    mean : ndarray
        Of the shape of one prediction.
    std : ndarray
        When asked for; NaN for a single model.

    Raises
    ------
    DataError
        When there is nothing to average, shapes differ, or predictions are not numbers.

    Notes
    -----
    The standard deviation is what the missing cells bring to the prediction. It holds neither the uncertainty of a
    single model nor the noise of an outcome.

    Examples
    --------
    >>> mean, std = pool_predictions([[0.2, 0.8], [0.4, 0.6]], return_std=True)
    >>> mean.round(2), std.round(3)
    (array([0.3, 0.7]), array([0.141, 0.141]))
    """
    count, mean, squares = 0, np.zeros(0), np.zeros(0)
    for prediction in predictions:
        values = _numbers(prediction, count + 1)
        if not count:
            mean, squares = np.zeros(values.shape), np.zeros(values.shape)
        if values.shape != mean.shape:
            raise DataError(f"Prediction {count + 1} has shape {values.shape}, and those before it {mean.shape}.")
        count += 1
        step = values - mean
        mean = mean + step / count
        squares = squares + step * (values - mean)
    if not count:
        raise DataError("There are no predictions to pool. Give one array for each model.")
    if not return_std:
        return mean
    return mean, np.sqrt(squares / (count - 1)) if count > 1 else np.full(mean.shape, np.nan)


def _numbers(prediction: Any, number: int) -> FloatArray:
    try:
        return np.asarray(prediction, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"Prediction {number} cannot be averaged: {error}. Give numbers; for classes give their probabilities."
        ) from error
