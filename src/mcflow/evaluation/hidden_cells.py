"""Choose the known cells that an evaluation hides, and build the table that the methods fill."""

from __future__ import annotations

__all__ = ["EvaluationTable", "HiddenCells", "MaskedTable", "choose_cells", "codes_in", "copies_patterns", "place_in"]

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcflow.columns.frames import Frame, read_frame, take_rows
from mcflow.columns.planning import USER_KINDS, ColumnSettings, column_settings, plan_table
from mcflow.columns.schema import TableSchema
from mcflow.errors import DataError
from mcflow.evaluation.wording import listed
from mcflow.missingness.hiding import hide
from mcflow.typing import Array, BoolArray, FloatArray

PATTERNS = ("auto", "own", "random")  #: Allowed values of `pattern`.
MIN_INCOMPLETE_ROWS = 10  #: Incomplete rows that a table needs for "auto" to copy its own missingness patterns.
MIN_OBSERVED = 5  #: Minimum number of observed cells that stay in every column.
MAX_RANDOM_SHARE = 0.5  #: Maximum share of a column's known cells that is hidden at random.
MAX_PATTERN_SHARE = 0.5  #: Maximum share of the rows that receive the missingness pattern of another row.


def copies_patterns(missing: BoolArray, pattern: str) -> bool:
    """Tell whether hidden cells follow the missingness patterns of the table; `missing` is (n_rows, n_columns)."""
    enough = len(_donors(missing)) >= (MIN_INCOMPLETE_ROWS if pattern == "auto" else 1)
    return pattern != "random" and enough


def choose_cells(missing: BoolArray, share: float, *, own: bool, rng: np.random.Generator) -> BoolArray:
    """Choose known cells to hide, with `own` in the missingness patterns of other rows; (n_rows, n_columns)."""
    hidden = _copied_patterns(missing, share, rng) if own else (rng.random(missing.shape) < share) & ~missing
    hidden[(hidden | missing).all(axis=1)] = False
    return _limited(hidden, missing, share if own else MAX_RANDOM_SHARE, rng)


def _donors(missing: BoolArray) -> BoolArray:
    """Return the patterns of the rows that have both missing and observed cells."""
    return missing[missing.any(axis=1) & ~missing.all(axis=1)]


def _copied_patterns(missing: BoolArray, share: float, rng: np.random.Generator) -> BoolArray:
    """Hide cells of so many rows that the column of the median missing cell loses `share` of its known cells."""
    donors = _donors(missing)
    # Share of the donors that lack this column.
    counts = np.sort(donors.sum(axis=0))
    typical = counts[np.searchsorted(np.cumsum(counts), counts.sum() / 2)] / len(donors)
    n_rows = round(min(MAX_PATTERN_SHARE, share / float(typical)) * len(missing))
    rows = rng.choice(len(missing), n_rows, replace=False)
    hidden = np.zeros(missing.shape, dtype=bool)
    hidden[rows] = donors[rng.integers(len(donors), size=n_rows)] & ~missing[rows]
    return hidden


def _limited(hidden: BoolArray, missing: BoolArray, share: float, rng: np.random.Generator) -> BoolArray:
    """Unhide cells of columns that would lose too many, in one random order of rows for all columns."""
    order = rng.permutation(len(hidden))
    known = (~missing).sum(axis=0)
    limits = np.minimum(np.floor(share * known), np.maximum(known - MIN_OBSERVED, 0)).astype(np.int64)
    for column in np.flatnonzero(hidden.sum(axis=0) > limits):
        rows = order[hidden[order, column]]
        hidden[rows[limits[column] :], column] = False
    return hidden


@dataclass(frozen=True)
class HiddenCells:
    """Cells that are hidden from an imputer, and their true values; all arrays have shape (n_cells,)."""

    schema: TableSchema  # of the table before cells were hidden
    rows: Array  # rows in the table that the imputer fills
    positions: Array  # columns
    truth: FloatArray  # codes

    def read(self, completed: Any) -> FloatArray:
        """Return the codes of these cells in a table that an imputer returned, NaN where it has none; (n_cells,)."""
        table = read_frame(completed)
        found = np.full(len(self.rows), np.nan)
        for position in np.unique(self.positions).tolist():
            here = self.positions == position
            found[here] = codes_in(table, self.schema, position)[self.rows[here]]
        return found


def codes_in(completed: Frame, schema: TableSchema, position: int) -> FloatArray:
    """Return the codes of a column in a table that an imputer returned, (n_rows,)."""
    return completed.column_codes(place_in(completed, schema, position), schema.columns[position], "missing")


def place_in(completed: Frame, schema: TableSchema, position: int) -> int:
    """Return the position of a column in a completed table, which may lack empty columns and end with indicators."""
    name = schema.columns[position].name
    if completed.container != "numpy" and name in completed.names:
        return completed.names.index(name)
    if completed.container == "numpy" or not schema.named:  # by position, whatever names the output was given
        kept = [p for p, column in enumerate(schema.columns) if column.kind != "empty"]
        whole = len(completed.names) >= len(schema.columns)
        if whole or (len(completed.names) >= len(kept) and position in kept):
            return position if whole else kept.index(position)
    raise DataError(f"The completed table lacks column {name!r}. Give the result of transform or draw for this table.")


@dataclass(frozen=True)
class MaskedTable:
    """A table with hidden cells."""

    table: Any  # all rows, without the hidden cells
    incomplete: Any  # the rows of `table` that have hidden cells
    cells: HiddenCells  # in the rows of `incomplete`
    rows: Array  # (n_cells,) row of each hidden cell in `table`


@dataclass(frozen=True)
class EvaluationTable:
    """The rows that an evaluation uses, with the schema of their columns."""

    frame: Frame  # all rows of the table, or a sample
    schema: TableSchema  # of the whole table
    settings: ColumnSettings  # column settings given by the user
    codes: FloatArray  # (n_rows, n_model_columns), NaN where missing
    n_given: int  # rows of the whole table

    @classmethod
    def prepare(cls, frame: Frame, table: Mapping[str, Any], max_rows: int | None, seed: int) -> EvaluationTable:
        """Plan the columns and sample the rows."""
        given = {name: value for name, value in table.items() if name not in ("unseen", "schema")}
        settings = column_settings(frame, table.get("schema"), **given)
        schema, _ = plan_table(frame, settings)
        n_given = frame.n_rows
        if max_rows is not None and n_given > max_rows:
            rows = np.sort(np.random.default_rng([seed, 0, 0]).choice(n_given, max_rows, replace=False))
            frame = read_frame(take_rows(frame, rows))
        used = cls(frame, schema, settings, frame.codes(schema)[:, schema.model_among_coded], n_given)
        if not used.scored.any():
            raise DataError("The table has no column that is filled by a model, so there is nothing to evaluate.")
        return used

    @property
    def missing(self) -> BoolArray:
        """Mask of the missing cells, (n_rows, n_model_columns)."""
        return np.isnan(self.codes)

    @property
    def scored(self) -> BoolArray:
        """Mask of the model columns that are filled, (n_model_columns,)."""
        return np.array([self.schema.columns[p].filled for p in self.schema.model], dtype=bool)

    def mask(self, hidden: BoolArray) -> MaskedTable:
        """Return the table without the hidden cells; `hidden` is (n_rows, n_model_columns)."""
        positions = np.array(self.schema.model)
        whole = np.zeros((self.frame.n_rows, len(self.schema.columns)), dtype=bool)
        whole[:, positions] = hidden
        table = hide(self.frame.native, whole)
        rows, columns = (hidden & self.scored).nonzero()
        if not len(rows):
            raise DataError(
                "No known cell can be hidden: columns with missing cells have too few known cells, or only columns "
                'that are not filled have missing cells. Give more rows, a larger share, or pattern="random".'
            )
        used, places = np.unique(rows, return_inverse=True)
        incomplete = take_rows(read_frame(table), used)
        cells = HiddenCells(self.schema, places, positions[columns], self.codes[rows, columns])
        return MaskedTable(table, incomplete, cells, rows)

    def kinds_for(self, table: Any) -> dict[Any, str]:
        """Return the kinds to declare so that fewer rows and cells do not change the kind of a column."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            now, _ = plan_table(read_frame(table), self.settings)
        changed = {
            before.name: before.kind
            for before, after in zip(self.schema.columns, now.columns, strict=True)
            if before.kind != after.kind and before.kind in USER_KINDS and after.kind not in ("constant", "empty")
        }
        return dict(self.settings.kinds) | changed

    def notes(self, own: bool, share: float, n_cells: int, repeats: int) -> list[str]:
        """Describe which rows were used and how cells were hidden."""
        n_rows = self.frame.n_rows
        sampled = [f"A sample of {n_rows:,} of {self.n_given:,} rows."] if n_rows < self.n_given else []
        if own:
            how = f"in the missingness patterns of other rows, at most {share:.0%} of the known cells of a column"
        else:
            how = f"at random, {share:.0%} of the known cells of every column"
            if self.missing.any(axis=1).sum() < MIN_INCOMPLETE_ROWS:
                how += ", because the table has too few incomplete rows to copy their patterns"
        times = f" over {repeats} repeats" if repeats > 1 else ""
        left = [str(c.name) for c in self.schema.columns if c.kind in ("identifier", "text", "other")]
        unfilled = [f"Columns that no method fills: {listed(left)}."] if left else []
        return [*sampled, f"{n_cells:,} known cells were hidden{times}: {how}.", *unfilled]
