"""One pass over a table of any size: a sample of its rows, and rows that show what a sample would miss."""

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

#: Rows of the sample.
SAMPLE_ROWS = 200_000

#: Different texts of a column that are shown; one with more is text or names, not levels.
MOST_LEVELS = 2_000


class _Witness(NamedTuple):
    """A value of a column, and where in the table it is."""

    value: Any
    place: int
    row: pa.Table | None


@dataclass
class Survey:
    r"""What a fit has to know of a table before it sees the rows.

    Parameters
    ----------
    n_rows : int
        Rows of the sample, at most.
    seed : int
        Decides which.

    Attributes
    ----------
    total : int
        Rows that were looked at.
    missing : dict of int
        Missing cells by column.

    Notes
    -----
    Every row has a number drawn from the seed and its place in the table; the sample is the rows with the lowest
    numbers. It is a uniform sample, it does not depend on how the table was cut into batches, and the surveys of two
    parts of a table make that of both, so that parts may be looked at anywhere. Quantiles of the sample are off by
    about :math:`1 / \sqrt{n}` of a rank. What has to be exact is shown by witnesses: a row with the lowest and one with
    the highest value of each column, one with a fraction where there is any, and one for each of its levels.

    Examples
    --------
    >>> survey = Survey(n_rows=2)
    >>> survey.add(pa.table({"a": [5.0, 9.0, None, 7.0, 1.0]}), 0)
    >>> survey.total, survey.missing["a"], pc.min_max(survey.table()["a"]).as_py()
    (5, 1, {'min': 1.0, 'max': 9.0})
    """

    n_rows: int = SAMPLE_ROWS
    seed: int = 0
    total: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    _sample: pa.Table | None = None
    _places: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    _numbers: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    _witnesses: dict[tuple[str, Any], _Witness] = field(default_factory=dict)
    _levels: dict[str, set[Any]] = field(default_factory=dict)
    _limit: int = 2**64 - 1

    def add(self, table: pa.Table, first: int) -> None:
        """Look at rows.

        Parameters
        ----------
        table : pyarrow.Table
            The next batch; all have the same columns.
        first : int
            The place of its first row in the whole table.
        """
        places = np.arange(first, first + table.num_rows)
        self.total += table.num_rows
        for name, column in zip(table.column_names, table.columns, strict=True):
            gone = int(pc.sum(column.is_null(nan_is_null=True)).as_py() or 0)
            self.missing[name] = self.missing.get(name, 0) + gone
            for key, value, row in _witnesses(column, self._levels.setdefault(name, set())):
                self._show((name, key), _Witness(value, int(places[row]), None), table, row)
        self._keep(table, places, self.numbers(places))

    def expect(self, total: int) -> None:
        """Keep little more than a part's share of the sample, as the rest would be cut when the parts are merged.

        Parameters
        ----------
        total : int
            Rows of all parts of the table together.
        """
        enough = self.n_rows + 8 * self.n_rows**0.5 + 64  # eight deviations: one table in 10^15 would have too few
        if total > enough:
            self._limit = min(self._limit, int(2**64 * (enough / total)))

    def numbers(self, places: Array) -> npt.NDArray[np.uint64]:
        """Return the numbers of rows by their places in the table."""
        return hash_rows(places[:, None].astype(np.float64), self.seed)

    def _keep(self, table: pa.Table, places: Array, numbers: npt.NDArray[np.uint64]) -> None:
        low = np.flatnonzero(numbers <= self._limit)
        some = table.take(pa.array(low))  # a slice would keep all of the batch in memory
        whole = some if self._sample is None else pa.concat_tables([self._sample, some])
        self._sample = whole
        self._numbers = np.concatenate([self._numbers, numbers[low]])
        self._places = np.concatenate([self._places, places[low]])
        if len(self._numbers) > 2 * self.n_rows:  # not at every batch: it copies the sample
            self._cut()

    def _cut(self) -> None:
        """Leave only the rows with the lowest numbers."""
        if self._sample is None or len(self._numbers) <= self.n_rows:
            return
        best = np.argsort(self._numbers, kind="stable")[: self.n_rows]
        best = best[np.argsort(self._places[best])]
        self._sample = self._sample.take(pa.array(best)).combine_chunks()
        self._numbers, self._places = self._numbers[best], self._places[best]
        self._limit = int(self._numbers.max())

    def _show(self, key: tuple[str, Any], found: _Witness, table: pa.Table, row: int = 0) -> None:
        known = self._witnesses.get(key)
        if known is None or _beats(key[1], found, known):
            self._witnesses[key] = _Witness(found.value, found.place, table.take([row]))

    def merge(self, other: Survey) -> None:
        """Take in the survey of other rows of the same table.

        Parameters
        ----------
        other : Survey
            With the same seed and size.

        Raises
        ------
        DataError
            When it has other columns.
        """
        if other._sample is None:
            return
        if self._sample is not None and not self._sample.schema.equals(other._sample.schema):
            raise DataError("The parts of the table have other columns or types. Survey parts of one table.")
        self.total += other.total
        for name, count in other.missing.items():
            self.missing[name] = self.missing.get(name, 0) + count
        for key, found in other._witnesses.items():
            self._show(key, found, found.row)
            if isinstance(key[1], tuple):
                self._levels.setdefault(key[0], set()).add(key[1][1])
        self._forget_late_levels()
        self._keep(other._sample, other._places, other._numbers)

    def _forget_late_levels(self) -> None:
        """Show no more levels than one pass over all rows would: those that come first."""
        for name, levels in self._levels.items():
            if len(levels) > MOST_LEVELS + 1:
                keys = [(name, ("level", level)) for level in levels]
                keys.sort(key=lambda key: self._witnesses[key].place)
                for key in keys[MOST_LEVELS + 1 :]:
                    del self._witnesses[key]
                    levels.remove(key[1][1])

    def __getstate__(self) -> dict[str, Any]:
        """Put the rows of all witnesses into one table: each on its own would carry names and types along."""
        rows = {shown.place: shown.row for shown in self._witnesses.values()}
        order = {place: k for k, place in enumerate(rows)}
        shown = {key: (found.value, found.place, order[found.place]) for key, found in self._witnesses.items()}
        table = pa.concat_tables(rows.values()).unify_dictionaries().combine_chunks() if rows else None
        return self.__dict__ | {"_witnesses": (shown, table)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        shown, table = state["_witnesses"]
        found = {key: _Witness(value, place, table.slice(k, 1)) for key, (value, place, k) in shown.items()}
        self.__dict__.update(state | {"_witnesses": found})

    def others(self, batches: Iterable[tuple[int, pa.Table]]) -> Iterator[pa.Table]:
        """Leave out the rows of `table`.

        Parameters
        ----------
        batches : iterable of (int, pyarrow.Table)
            All rows again, with the place of the first one of each batch.

        Yields
        ------
        pyarrow.Table
            The other rows of each batch.
        """
        taken = self.places
        for first, table in batches:
            chosen = np.isin(np.arange(first, first + table.num_rows), taken)
            yield table.filter(pa.array(~chosen))

    @property
    def places(self) -> Array:
        """Return the places, in the whole table, of the rows of `table`."""
        self._cut()
        others = sorted({shown.place for shown in self._witnesses.values()} - set(self._places.tolist()))
        return np.concatenate([np.sort(self._places), np.array(others, np.int64)])

    def table(self) -> pa.Table:
        """Return the sample in the order of the table, and after it the witnesses that are not in it.

        Returns
        -------
        pyarrow.Table

        Raises
        ------
        DataError
            When no row was looked at.
        """
        if self._sample is None:
            raise DataError("There are no rows to learn from.")
        self._cut()
        rows = {shown.place: shown.row for shown in self._witnesses.values()}
        sample = self._sample.take(pa.array(np.argsort(self._places)))
        others = [rows[place] for place in self.places[len(self._places) :].tolist()]
        return pa.concat_tables([sample, *others]).unify_dictionaries().combine_chunks()


def _beats(key: Any, found: _Witness, known: _Witness) -> bool:
    """Tell whether a witness is better than the one that is there; of equal ones the earlier row stays."""
    if key == "low" and found.value != known.value:
        return bool(found.value < known.value)
    if key == "high" and found.value != known.value:
        return bool(found.value > known.value)
    return found.place < known.place


def _witnesses(column: pa.ChunkedArray, known: set[Any]) -> list[tuple[Any, Any, int]]:
    """Return what a batch of a column shows: a key, the value, and the row."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return _ends(column)
    if len(known) > MOST_LEVELS or pa.types.is_nested(kind):
        return []
    words = column.combine_chunks()
    new = [level for level in words.unique().drop_null().to_pylist() if level not in known]
    new = new[: MOST_LEVELS + 1 - len(known)]  # in the order of the rows, so that batches do not matter
    known.update(new)
    return [(("level", level), level, words.index(level).as_py()) for level in new]


def _ends(column: pa.ChunkedArray) -> list[tuple[Any, Any, int]]:
    """Return rows with the lowest and the highest finite number, and with a fraction."""
    numbers: Array = column.to_numpy() if not column.null_count else column.cast(_with_holes(column.type)).to_numpy()
    floats = numbers.astype(np.float64) if numbers.dtype.kind in "iuf" else _steps(numbers)
    seen = np.flatnonzero(np.isfinite(floats))
    if not len(seen):
        return []
    low, high = seen[floats[seen].argmin()], seen[floats[seen].argmax()]
    found = [("low", float(floats[low]), int(low)), ("high", float(floats[high]), int(high))]
    broken = seen[floats[seen] % 1 != 0] if numbers.dtype.kind == "f" else seen[:0]
    return [*found, *(("fraction", None, int(row)) for row in broken[:1])]


def _with_holes(kind: pa.DataType) -> pa.DataType:
    """Return a type whose missing cells numpy can hold."""
    return pa.float64() if pa.types.is_integer(kind) else kind


def _steps(times: Array) -> npt.NDArray[np.float64]:
    """Return times as numbers, NaN where missing."""
    whole = times.astype(np.int64).astype(np.float64)
    return np.where(np.isnat(times), np.nan, whole) if times.dtype.kind in "mM" else whole
