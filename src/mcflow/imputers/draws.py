"""Multiple imputation for imputers that draw one completed table at a time."""

from __future__ import annotations

__all__ = ["DrawsMixin"]

import abc
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mcflow.columns.frames import read_where
from mcflow.config import Interval, check_parameter
from mcflow.imputers.base import TableImputer
from mcflow.random import seed_from
from mcflow.typing import FloatArray, RandomState, TableT


class DrawsMixin(TableImputer):
    """Mixin that implements `draw` for imputers with a method `_draw_values`."""

    @abc.abstractmethod
    def _draw_values(self, values: FloatArray, number: int, seed: int) -> FloatArray:
        """Return the columns that vary, completed by draw `number` of a series.

        The result for a row may depend on the seed, the number and the row only.
        """

    def _draws(self, values: FloatArray, m: int, seed: int) -> Iterator[FloatArray]:
        """Yield the completed columns that vary, once per draw."""
        for number in range(m):
            yield self._draw_values(values, number, _seed_of(seed, number))

    def draw(self, X: TableT, m: int = 20, random_state: RandomState = None, *, where: Any = None) -> Iterator[TableT]:
        """Draw completed tables from the distribution of the missing cells given the observed ones.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.
        m : int, default=20
            Number of tables to draw.
        random_state : int, Generator, RandomState or None
            Seed of the draws. The draws of a row depend on the seed and on the row only.
        where : array-like or data frame of bool, optional
            Missing cells to fill, as for `transform`.

        Returns
        -------
        iterator
            m tables of the same type as X, generated one at a time.

        Raises
        ------
        ParameterError
            If m is not a positive integer.
        DataError
            If the columns differ from those of the fit.
        """
        check_is_fitted(self)
        check_parameter("m", m, Interval(int, 1))
        frame, values = self._read(X)
        wanted = None if where is None else read_where(where, frame)
        series = self._draws(self._seen_by_model(values), int(m), seed_from(random_state))
        return self._tables(frame, values, series, where=wanted)


def _seed_of(seed: int, number: int) -> int:
    """Return the seed of one draw of a series."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> np.uint64(1))
