"""A sample of a table of any size, with its extreme values and all categories, collected in one pass."""

from __future__ import annotations

__all__ = ["SAMPLE_ROWS", "Survey"]

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.errors import DataError
from mcflow.random import hash_rows
from mcflow.typing import Array

SAMPLE_ROWS = 200_000  # default number of rows of the sample
MAX_CATEGORIES = 2_000  # maximum number of categories of a column that are represented; more are free text


class _RequiredRow(NamedTuple):
    """A row that is added to the sample for a value of one of its columns."""

    value: Any
    position: int  # in the whole table
    row: pa.Table


@dataclass
class Survey:
    """A sample of a table that is collected in one pass, with the rows that a fit must not miss.

    The sample is the rows with the lowest priorities, which are hashes of the seed and the position. It is uniform and
    does not depend on how the table is cut into batches, and surveys of parts can be merged. Required rows are added
    for what must be exact: for each column rows with the minimum, the maximum, a fraction, and each category.
    """

    n_rows: int = SAMPLE_ROWS  # maximum size of the sample, without required rows
    seed: int = 0
    total: int = 0  # number of surveyed rows
    missing: dict[str, int] = field(default_factory=dict)  # number of missing cells by column
    _sample: pa.Table | None = None
    _positions: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    _priorities: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    _required: dict[tuple[str, Any], _RequiredRow] = field(default_factory=dict)
    _categories: dict[str, set[Any]] = field(default_factory=dict)
    _limit: int = 2**64 - 1

    def add(self, table: pa.Table, first: int) -> None:
        """Survey a batch of rows, the first of which has the position `first` in the table."""
        positions = np.arange(first, first + table.num_rows)
        self.total += table.num_rows
        for name, column in zip(table.column_names, table.columns, strict=True):
            n_missing = int(pc.sum(column.is_null(nan_is_null=True)).as_py() or 0)
            self.missing[name] = self.missing.get(name, 0) + n_missing
            for key, value, row in _required_rows(column, self._categories.setdefault(name, set())):
                self._require((name, key), value, first + row, table, row)
        self._keep(table, positions, self.priorities(positions))

    def expect(self, total: int) -> None:
        """Keep little more rows than a part contributes to the sample of a table with `total` rows."""
        enough = self.n_rows + 8 * self.n_rows**0.5 + 64  # 8 standard deviations: too few for one table in 10^15
        if total > enough:
            self._limit = min(self._limit, int(2**64 * (enough / total)))

    def priorities(self, positions: Array) -> npt.NDArray[np.uint64]:
        """Return the priorities of rows. Shapes: `positions` (n_rows,), returns (n_rows,)."""
        return hash_rows(positions[:, None].astype(np.float64), self.seed)

    def _keep(self, table: pa.Table, positions: Array, priorities: npt.NDArray[np.uint64]) -> None:
        """Add the rows with low priorities to the sample."""
        low = np.flatnonzero(priorities <= self._limit)
        some = table.take(pa.array(low))  # a slice would keep the whole batch in memory
        self._sample = some if self._sample is None else pa.concat_tables([self._sample, some])
        self._priorities = np.concatenate([self._priorities, priorities[low]])
        self._positions = np.concatenate([self._positions, positions[low]])
        if len(self._priorities) > 2 * self.n_rows:  # not after every batch, as it copies the sample
            self._cut()

    def _cut(self) -> None:
        """Keep only the rows with the lowest priorities."""
        if self._sample is None or len(self._priorities) <= self.n_rows:
            return
        best = np.argsort(self._priorities, kind="stable")[: self.n_rows]
        best = best[np.argsort(self._positions[best])]
        self._sample = self._sample.take(pa.array(best)).combine_chunks()
        self._priorities, self._positions = self._priorities[best], self._positions[best]
        self._limit = int(self._priorities.max())

    def _require(self, key: tuple[str, Any], value: Any, position: int, table: pa.Table, row: int = 0) -> None:
        """Keep the row with the most extreme value, or the earliest one of several with the same value."""
        known = self._required.get(key)
        if known is not None and (value == known.value or key[1] not in ("low", "high")):
            better = position < known.position
        else:
            better = known is None or bool(value < known.value if key[1] == "low" else value > known.value)
        if better:
            self._required[key] = _RequiredRow(value, position, table.take([row]))

    def merge(self, other: Survey) -> None:
        """Merge the survey of other rows of the same table."""
        if other._sample is None:
            return
        if self._sample is not None and not self._sample.schema.equals(other._sample.schema):
            raise DataError("The parts of the table have other columns or types. Survey parts of one table.")
        self.total += other.total
        for name, count in other.missing.items():
            self.missing[name] = self.missing.get(name, 0) + count
        for key, found in other._required.items():
            self._require(key, found.value, found.position, found.row)
            if isinstance(key[1], tuple):
                self._categories.setdefault(key[0], set()).add(key[1][1])
        for name, categories in self._categories.items():  # one pass over all rows would keep those that come first
            keys = [(name, ("category", category)) for category in categories]
            keys.sort(key=lambda key: self._required[key].position)
            for key in keys[MAX_CATEGORIES + 1 :]:
                del self._required[key]
                categories.remove(key[1][1])
        self._keep(other._sample, other._positions, other._priorities)

    def __getstate__(self) -> dict[str, Any]:
        """Serialise the required rows as one table, as single rows would repeat names and types."""
        rows = {found.position: found.row for found in self._required.values()}
        order = {position: k for k, position in enumerate(rows)}
        keys = {key: (found.value, found.position, order[found.position]) for key, found in self._required.items()}
        table = pa.concat_tables(rows.values()).unify_dictionaries().combine_chunks() if rows else None
        return self.__dict__ | {"_required": (keys, table)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        keys, table = state["_required"]
        found = {key: _RequiredRow(value, position, table.slice(k, 1)) for key, (value, position, k) in keys.items()}
        self.__dict__.update(state | {"_required": found})

    def others(self, batches: Iterable[tuple[int, pa.Table]]) -> Iterator[pa.Table]:
        """Yield batches without the rows of `table`, given each batch with the position of its first row."""
        taken = self.positions
        for first, table in batches:
            chosen = np.isin(np.arange(first, first + table.num_rows), taken)
            yield table.filter(pa.array(~chosen))

    @property
    def positions(self) -> Array:
        """Return the positions, in the whole table, of the rows of `table`."""
        self._cut()
        others = sorted({found.position for found in self._required.values()} - set(self._positions.tolist()))
        return np.concatenate([np.sort(self._positions), np.array(others, np.int64)])

    def table(self) -> pa.Table:
        """Return the sample in the order of the table, followed by the required rows that are not in it."""
        if self._sample is None:
            raise DataError("There are no rows to learn from.")
        self._cut()
        rows = {found.position: found.row for found in self._required.values()}
        sample = self._sample.take(pa.array(np.argsort(self._positions)))
        others = [rows[position] for position in self.positions[len(self._positions) :].tolist()]
        return pa.concat_tables([sample, *others]).unify_dictionaries().combine_chunks()


def _required_rows(column: pa.ChunkedArray, known: set[Any]) -> list[tuple[Any, Any, int]]:
    """Return the key, the value and the index of each required row of a batch, and add new categories to `known`."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return _extremes(column)
    if len(known) > MAX_CATEGORIES or pa.types.is_nested(kind):
        return []
    words = column.combine_chunks()
    new = [word for word in words.unique().drop_null().to_pylist() if word not in known]
    new = new[: MAX_CATEGORIES + 1 - len(known)]  # in the order of the rows, so that batches do not matter
    known.update(new)
    return [(("category", word), word, words.index(word).as_py()) for word in new]


def _extremes(column: pa.ChunkedArray) -> list[tuple[Any, Any, int]]:
    """Return rows with the lowest and the highest finite number, and a row with a fraction."""
    if column.null_count and pa.types.is_integer(column.type):
        column = column.cast(pa.float64())
    numbers: Array = column.to_numpy()
    if numbers.dtype.kind in "iuf":
        floats = numbers.astype(np.float64)
    else:  # times as numbers, NaN where missing
        floats = numbers.astype(np.int64).astype(np.float64)
        floats = np.where(np.isnat(numbers), np.nan, floats) if numbers.dtype.kind in "mM" else floats
    seen = np.flatnonzero(np.isfinite(floats))
    if not len(seen):
        return []
    low, high = seen[floats[seen].argmin()], seen[floats[seen].argmax()]
    found = [("low", float(floats[low]), int(low)), ("high", float(floats[high]), int(high))]
    fractions = seen[floats[seen] % 1 != 0] if numbers.dtype.kind == "f" else seen[:0]
    return [*found, *(("fraction", None, int(row)) for row in fractions[:1])]
