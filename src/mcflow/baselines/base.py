"""What the baselines share: the arguments of every imputer, and rows of plain numbers for those that need them."""

from __future__ import annotations

__all__ = ["Baseline", "CodedBaseline"]

import abc
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mcflow.data.codecs import TableCodec
from mcflow.data.schema import Column
from mcflow.imputers.base import TableImputer
from mcflow.typing import Array, FloatArray, RandomState

#: Levels up to which each has a place of its own: an average of binary words would be a word of another level.
MAX_PLACES = 64


class Baseline(TableImputer):
    """An imputer to compare with, under the same contract as `MCFlowImputer`.

    Parameters
    ----------
    kinds, roles, bounds, allowed, rules, unseen, restore_integers, add_indicator, keep_empty_features
        As for `MCFlowImputer`.
    random_state : int, Generator, RandomState or None, default=None
        Decides everything that is random.

    Notes
    -----
    A subclass names its own arguments in `__init__` and hands the others up as keywords; `get_params` knows both.
    """

    def __init__(
        self,
        *,
        kinds: Mapping[Any, str] | None = None,
        roles: Mapping[Any, str] | None = None,
        bounds: Mapping[Any, tuple[Any, Any]] | None = None,
        allowed: Mapping[Any, Any] | None = None,
        rules: Sequence[str] | None = None,
        unseen: str = "error",
        restore_integers: bool = False,
        add_indicator: bool = False,
        keep_empty_features: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.kinds = kinds
        self.roles = roles
        self.bounds = bounds
        self.allowed = allowed
        self.rules = rules
        self.unseen = unseen
        self.restore_integers = restore_integers
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features
        self.random_state = random_state

    def __init_subclass__(cls, **given: Any) -> None:
        """Say which arguments a class takes, with those it hands up: scikit-learn looks at one class only."""
        super().__init_subclass__(**given)
        found: dict[str, inspect.Parameter] = {}
        for parent in cls.__mro__:
            if issubclass(parent, Baseline) and "__init__" in vars(parent):
                named = inspect.signature(vars(parent)["__init__"]).parameters
                found = {n: p for n, p in named.items() if p.kind == p.KEYWORD_ONLY} | found
        cls.__signature__ = inspect.Signature(list(found.values()))

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(inspect.signature(cls).parameters)


class CodedBaseline(Baseline):
    """A baseline that learns from rows of numbers: numbers scaled to [0, 1], levels written as zeros and ones."""

    codec_: TableCodec
    box_: tuple[FloatArray, FloatArray]

    @abc.abstractmethod
    def _fit_rows(self, rows: FloatArray, owner: Array) -> None:
        """Learn from rows of shape (n_rows, n_places), NaN where missing; `owner` is each place's column."""

    @abc.abstractmethod
    def _fill_rows(self, rows: FloatArray) -> FloatArray:
        """Return the rows without a hole; observed places may differ, they are not looked at."""

    def _fit_values(self, values: FloatArray, columns: list[Column], low: FloatArray, high: FloatArray) -> None:
        codec = TableCodec.from_values(values, columns, max_places=MAX_PLACES)
        if columns:
            self._fit_rows(codec.encode(values), codec.owner)
        # Assigned at the end: a fit that fails leaves an earlier one as it was.
        self.codec_, self.box_ = codec, codec.box(low, high)

    def _fill_values(self, values: FloatArray) -> FloatArray:
        return self._filled_by(self._fill_rows, values)

    def _filled_by(self, fill: Callable[[FloatArray], FloatArray], values: FloatArray) -> FloatArray:
        """Return codes filled by a function of rows, within the bounds, with observed ones as they were."""
        return self._decoded(values, np.clip(fill(self.codec_.encode(values)), *self.box_))

    def _decoded(self, values: FloatArray, filled: FloatArray) -> FloatArray:
        """Return the codes that filled rows stand for, with observed ones as they were."""
        return np.where(np.isnan(values), self.codec_.decode(filled), values)
