"""Base classes of the baselines."""

from __future__ import annotations

__all__ = ["Baseline", "CodedBaseline"]

import abc
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcflow.columns.codecs import TableCodec
from mcflow.columns.schema import Column
from mcflow.imputers.base import TableImputer
from mcflow.typing import Array, FloatArray, RandomState

#: Maximum number of categories for one-hot encoding; averages of binary codes would decode to unrelated categories.
MAX_ONE_HOT = 64


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
    A subclass names its own parameters in `__init__` and passes the others on as keywords; `get_params` returns both.
    """

    def __init__(
        self,
        *,
        schema: str | Path | Mapping[str, Any] | None = None,
        kinds: Mapping[Any, str] | None = None,
        roles: Mapping[Any, str] | None = None,
        bounds: Mapping[Any, tuple[Any, Any]] | None = None,
        allowed: Mapping[Any, Any] | None = None,
        rules: Sequence[str] | None = None,
        unseen: str = "missing",
        missing_values: Any = None,
        decimals: str | None = None,
        restore_integers: bool = False,
        add_indicator: bool = False,
        keep_empty_features: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.schema = schema
        self.kinds = kinds
        self.roles = roles
        self.bounds = bounds
        self.allowed = allowed
        self.rules = rules
        self.unseen = unseen
        self.missing_values = missing_values
        self.decimals = decimals
        self.restore_integers = restore_integers
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features
        self.random_state = random_state

    def __init_subclass__(cls, **given: Any) -> None:
        """Set the signature of a subclass to its own and inherited parameters, for scikit-learn's introspection."""
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
        """Fill codes by a function of encoded rows, within the bounds."""
        return self._decoded(values, np.clip(fill(self.codec_.encode(values)), *self.box_))

    def _decoded(self, values: FloatArray, filled: FloatArray) -> FloatArray:
        """Decode filled rows, keeping observed codes."""
        return np.where(np.isnan(values), self.codec_.decode(filled), values)
