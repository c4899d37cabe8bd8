"""One value a column: its mean or its median, its commonest level."""

from __future__ import annotations

__all__ = ["MeanImputer", "MedianImputer"]

import abc

import numpy as np

from mcflow.baselines.base import Baseline
from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.typing import FloatArray


class _ConstantImputer(Baseline):
    """Fill every hole of a column with the same value."""

    fill_: FloatArray

    @staticmethod
    @abc.abstractmethod
    def _centre(seen: FloatArray) -> float:
        """Return the value that stands for the observed numbers of a column."""

    def _fit_values(self, values: FloatArray, columns: list[Column], low: FloatArray, high: FloatArray) -> None:
        fill = np.empty(len(columns))
        for k, column in enumerate(columns):
            seen = values[~np.isnan(values[:, k]), k]
            fill[k] = _commonest(seen) if column.kind in LEVEL_KINDS else np.clip(self._centre(seen), low[k], high[k])
        self.fill_ = fill

    def _fill_values(self, values: FloatArray) -> FloatArray:
        return np.where(np.isnan(values), self.fill_, values)


def _commonest(codes: FloatArray) -> float:
    """Return the code that is there most often, the smallest of several."""
    return float(np.bincount(codes.astype(np.int64)).argmax())


class MeanImputer(_ConstantImputer):
    r"""Fill numbers with their column's mean, levels with their column's commonest.

    Parameters
    ----------
    **table
        The arguments of `Baseline`: kinds, roles, bounds, allowed, rules, unseen, restore_integers, add_indicator,
        keep_empty_features, random_state.

    Attributes
    ----------
    fill_ : ndarray of shape (n_columns,)
        The codes that holes are filled with, for the columns that vary.

    Notes
    -----
    The mean of the observed cells, :math:`\bar x_j = \sum_{i \in O_j} x_{ij} / |O_j|`, is the single number with the
    smallest squared error. Of levels that are equally common, the first in order is taken.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines.simple import MeanImputer
    >>> MeanImputer().fit_transform(np.array([[1.5, 2.0], [np.nan, 4.0], [3.5, 5.0]]))
    array([[1.5, 2. ],
           [2.5, 4. ],
           [3.5, 5. ]])
    """

    @staticmethod
    def _centre(seen: FloatArray) -> float:
        # Powers of two change no digit, and keep the sum of numbers near the largest float64 finite.
        exponent = int(np.frexp(np.abs(seen).max())[1])
        return float(np.ldexp(np.ldexp(seen, -exponent).mean(), exponent))


class MedianImputer(_ConstantImputer):
    """Fill numbers with their column's median, levels with their column's commonest.

    Parameters
    ----------
    **table
        The arguments of `Baseline`: kinds, roles, bounds, allowed, rules, unseen, restore_integers, add_indicator,
        keep_empty_features, random_state.

    Attributes
    ----------
    fill_ : ndarray of shape (n_columns,)
        The codes that holes are filled with, for the columns that vary.

    Notes
    -----
    The median is the single number with the smallest absolute error, and outliers do not move it.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow.baselines.simple import MedianImputer
    >>> MedianImputer().fit_transform(np.array([[1.5], [np.nan], [2.5], [99.5]])).ravel()
    array([ 1.5,  2.5,  2.5, 99.5])
    """

    @staticmethod
    def _centre(seen: FloatArray) -> float:
        exponent = int(np.frexp(np.abs(seen).max())[1])
        return float(np.ldexp(np.median(np.ldexp(seen, -exponent)), exponent))
