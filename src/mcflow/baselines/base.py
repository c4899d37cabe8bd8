"""Base classes of the baselines."""

from __future__ import annotations

__all__ = ["Baseline", "CodedBaseline", "DrawsMixin"]

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mcflow.columns.codecs import TableCodec
from mcflow.columns.frames import read_where
from mcflow.columns.schema import Column
from mcflow.config import Interval, check_parameter
from mcflow.imputers.base import TableImputer
from mcflow.random import seed_from
from mcflow.typing import Array, FloatArray, RandomState, TableT

MAX_ONE_HOT = 64  #: Maximum number of categories for one-hot encoding; averages of binary codes have no meaning.


@dataclass(kw_only=True, eq=False, repr=False)
class Baseline(TableImputer):
    """Base class of imputers for comparison, with the same interface as `MCFlowImputer`.

    Parameters
    ----------
    schema, kinds, roles, bounds, allowed, rules, unseen, missing_values, decimals, restore_integers, add_indicator
        As for `MCFlowImputer`.
    random_state : int, Generator, RandomState or None, default=None
        Source of randomness.

    Notes
    -----
    A subclass with parameters of its own is a dataclass like this one.
    """

    random_state: RandomState = None


class DrawsMixin(TableImputer):
    """Mixin that implements `draw` for imputers with a method `_draw_values`."""

    @abc.abstractmethod
    def _draw_values(self, values: FloatArray, number: int, seed: int) -> FloatArray:
        """Return the columns that vary, completed by a draw; a row depends on the seed, the number and itself only."""

    def draw(self, X: TableT, m: int = 20, random_state: RandomState = None, *, where: Any = None) -> Iterator[TableT]:
        """Draw completed tables from the distribution of the missing cells given the observed ones.

        Parameters
        ----------
        X, m, random_state, where
            As for `MCFlowImputer.draw`.

        Returns
        -------
        iterator
            m tables of the same type as X, generated one at a time.
        """
        check_is_fitted(self)
        check_parameter("m", m, Interval(int, 1))
        frame, values = self._read(X)
        wanted = None if where is None else read_where(where, frame)
        given, seed = self._seen_by_model(values), seed_from(random_state)
        words = (np.random.SeedSequence([seed, k]).generate_state(1, np.uint64)[0] for k in range(int(m)))
        series = (self._draw_values(given, k, int(word >> np.uint64(1))) for k, word in enumerate(words))
        return self._tables(frame, values, series, where=wanted)


class CodedBaseline(Baseline):
    """Base class of baselines that read encoded rows: numbers scaled to [0, 1], categories one-hot encoded."""

    codec_: TableCodec
    box_: tuple[FloatArray, FloatArray]

    @abc.abstractmethod
    def _fit_rows(self, rows: FloatArray, owner: Array) -> None:
        """Fit to encoded rows (n_rows, n_places), NaN where missing; `owner` is the column of each place."""

    @abc.abstractmethod
    def _fill_rows(self, rows: FloatArray) -> FloatArray:
        """Return the filled rows; observed places are ignored."""

    def _fit_values(self, values: FloatArray, columns: list[Column], low: FloatArray, high: FloatArray) -> None:
        codec = TableCodec.from_values(values, columns, max_one_hot=MAX_ONE_HOT)
        if columns:
            self._fit_rows(codec.encode(values), codec.owner)
        # Assigned last: a fit that fails leaves an earlier one unchanged.
        self.codec_, self.box_ = codec, codec.box(low, high)

    def _fill_values(self, values: FloatArray) -> FloatArray:
        return self._filled_by(self._fill_rows, values)

    def _filled_by(self, fill: Callable[[FloatArray], FloatArray], values: FloatArray) -> FloatArray:
        """Fill codes by a function of encoded rows, within the bounds; observed codes are kept."""
        filled = np.clip(fill(self.codec_.encode(values)), *self.box_)
        return np.where(np.isnan(values), self.codec_.decode(filled), values)
