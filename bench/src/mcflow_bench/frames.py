"""Tables with categories: their split, the form that a method takes them in, and the scores of what it fills in."""

from __future__ import annotations

__all__ = ["FrameSplit", "built_for"]

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mcflow.evaluation.methods import MethodSpec
from mcflow.typing import BoolArray, FloatArray
from mcflow_bench.data.catalog import MixedTable, NumberTable
from mcflow_bench.protocol import Split, split_table
from mcflow_bench.rivals.environments import EnvironmentImputer

if TYPE_CHECKING:
    import pyarrow as pa

    from mcflow.metrics import Score


@dataclass(frozen=True)
class FrameSplit:
    """A split of a table of codes, and the names and categories of its columns."""

    split: Split
    names: list[str]
    categories: dict[int, list[str]]

    @classmethod
    def of(cls, table: MixedTable | NumberTable, n_rows: int | None, fold: int, rate: float) -> FrameSplit:
        """Split the first rows of a table as `split_table` does."""
        categories = table.categories if isinstance(table, MixedTable) else {}
        return cls(split_table(table.values[:n_rows], fold, rate), table.names, categories)

    @property
    def n_rows(self) -> int:
        """Number of training and test rows."""
        return len(self.split.train) + len(self.split.test)

    def table(self, values: FloatArray, hidden: BoolArray) -> pa.Table:
        """Return rows as an Arrow table with text in the categorical columns and nulls in the hidden cells."""
        import pyarrow as pa

        columns = {}
        for k, name in enumerate(self.names):
            cells: Any = values[:, k]
            if k in self.categories:
                cells = np.array(self.categories[k], dtype=object)[cells.astype(np.int64)]
            columns[name] = pa.array(cells, mask=hidden[:, k])
        return pa.table(columns)

    def codes(self, filled: Any) -> FloatArray:
        """Return filled rows, an array of codes or an Arrow table, as codes."""
        if not hasattr(filled, "column"):
            return np.asarray(filled, dtype=np.float64)
        parts = []
        for k, name in enumerate(self.names):
            cells = filled.column(name).to_pylist()
            places = {text: code for code, text in enumerate(self.categories.get(k, ()))}
            parts.append([places.get(cell, np.nan) for cell in cells] if places else cells)
        return np.array(parts, dtype=np.float64).T

    def scores(self, filled: FloatArray) -> dict[str, Score]:
        """Return the RMSE of numbers in units of their ranges, and the fraction of wrong categories.

        Shapes: `filled` (n_test_rows, n_columns).
        """
        from mcflow import metrics

        split = self.split
        of_categories = np.isin(np.arange(len(self.names)), list(self.categories))
        numbers = split.hidden_test & ~of_categories
        span = np.where(of_categories, 1.0, split.span)
        scores = {"rmse": metrics.rmse(split.test, filled, numbers, span)}
        if self.categories:
            hidden = split.hidden_test & of_categories
            scores["category_error"] = metrics.category_error(split.test, filled, hidden)
        return scores


def built_for(spec: MethodSpec, frame: FrameSplit, seed: int) -> tuple[Any, Any, Any]:
    """Return an unfitted imputer, and the training and test rows in the form that it takes.

    Numbers are continuous for all methods. Methods of mcflow take categories as text, those of other environments as
    codes that they are given.
    """
    split = frame.split
    if not frame.categories or spec.name.startswith("python:"):
        imputer = spec.build(seed, len(frame.names))
        if isinstance(imputer, EnvironmentImputer):
            imputer.categories = {k: len(words) for k, words in frame.categories.items()}
        return imputer, split.incomplete_train, split.incomplete_test
    kinds = {name: "category" if k in frame.categories else "continuous" for k, name in enumerate(frame.names)}
    # A rare category may occur in test rows only.
    imputer = spec.build_with(seed, {"kinds": kinds, "unseen": "missing"})
    return imputer, frame.table(split.train, split.hidden_train), frame.table(split.test, split.hidden_test)
