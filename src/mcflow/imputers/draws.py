"""Multiple imputation: completed tables drawn one after the other."""

from __future__ import annotations

__all__ = ["DrawsMixin"]

import abc
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mcflow.config import Interval, check_parameter
from mcflow.imputers.base import TableImputer
from mcflow.random import seed_from
from mcflow.typing import FloatArray, RandomState


class DrawsMixin(TableImputer):
    """Give an imputer `draw`; it says in `_draw_values` how one draw is made."""

    @abc.abstractmethod
    def _draw_values(self, values: FloatArray, number: int, seed: int) -> FloatArray:
        """Return the columns that vary without a hole, as draw `number` of a series has them.

        A row's answer may depend on the seed, the number and the row alone.
        """

    def _draws(self, values: FloatArray, m: int, seed: int) -> Iterator[FloatArray]:
        """Yield the columns that vary without a hole, once for every draw."""
        for number in range(m):
            yield self._draw_values(values, number, _seed_of(seed, number))

    def draw(self, X: Any, m: int = 20, random_state: RandomState = None) -> Iterator[Any]:
        """Draw completed tables from the distribution of the missing cells given the observed ones.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.
        m : int, default=20
            Tables to draw.
        random_state : int, Generator, RandomState or None
            Decides the draws. A row's draws depend on it and on the row alone.

        Returns
        -------
        iterator
            Of m tables of the same kind as X. They are made one at a time, so they need not fit in memory together.

        Raises
        ------
        ParameterError
            When m is not a whole number of at least 1.
        DataError
            When the columns are not those of the fit.
        """
        check_is_fitted(self)
        check_parameter("m", m, Interval(int, 1))
        frame, values = self._read(X)
        return self._tables(frame, values, self._draws(self._seen_by_model(values), int(m), seed_from(random_state)))


def _seed_of(seed: int, number: int) -> int:
    """Return the seed of one draw of a series."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> np.uint64(1))
