"""Imputation with one value per column: the mean, the median or the most frequent category."""

from __future__ import annotations

__all__ = ["MeanImputer", "MedianImputer"]

from typing import ClassVar

import numpy as np

from mcflow.baselines.base import Baseline
from mcflow.columns.schema import CATEGORY_KINDS, Column
from mcflow.typing import FloatArray


class _ConstantImputer(Baseline):
    """Fill the missing cells of a column with one value."""

    statistic: ClassVar[str]  # numpy's function of observed numbers that fills a numeric column
    fill_: FloatArray

    def _fit_values(self, values: FloatArray, columns: list[Column], low: FloatArray, high: FloatArray) -> None:
        fill = np.empty(len(columns))
        for k, column in enumerate(columns):
            seen = values[~np.isnan(values[:, k]), k]
            if column.kind in CATEGORY_KINDS:
                fill[k] = np.bincount(seen.astype(np.int64)).argmax()
            else:
                # Scaling by a power of two is exact, and keeps sums of numbers near the float64 limit finite.
                exponent = int(np.frexp(np.abs(seen).max())[1])
                centre = np.ldexp(getattr(np, self.statistic)(np.ldexp(seen, -exponent)), exponent)
                fill[k] = np.clip(centre, low[k], high[k])
        self.fill_ = fill

    def _fill_values(self, values: FloatArray) -> FloatArray:
        return np.where(np.isnan(values), self.fill_, values)


class MeanImputer(_ConstantImputer):
    r"""Imputer that fills numbers with the mean of their column and categories with the most frequent one.

    The parameters are those of `Baseline`.

    Attributes
    ----------
    fill_ : ndarray of shape (n_columns,)
        Codes of the fills, for the columns that vary.

    Notes
    -----
    The mean of the observed cells, :math:`\bar x_j = \sum_{i \in O_j} x_{ij} / |O_j|`, is the constant with the
    smallest squared error. Among equally frequent categories, the first in order is taken.

    Examples
    --------
    >>> from mcflow.baselines.simple import MeanImputer
    >>> MeanImputer().fit_transform(np.array([[1.5, 2.0], [np.nan, 4.0], [3.5, 5.0]]))
    array([[1.5, 2. ],
           [2.5, 4. ],
           [3.5, 5. ]])
    """

    statistic = "mean"


class MedianImputer(_ConstantImputer):
    """Imputer that fills numbers with the median of their column and categories with the most frequent one.

    Parameters and attributes are those of `MeanImputer`.

    Notes
    -----
    The median is the constant with the smallest absolute error, and is robust to outliers.

    Examples
    --------
    >>> from mcflow.baselines.simple import MedianImputer
    >>> MedianImputer().fit_transform(np.array([[1.5], [np.nan], [2.5], [99.5]])).ravel()
    array([ 1.5,  2.5,  2.5, 99.5])
    """

    statistic = "median"
