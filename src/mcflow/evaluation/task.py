"""The table of an evaluation: which rows are used, and what is asked of the methods."""

from __future__ import annotations

__all__ = ["Task"]

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcflow.data.frames import Frame, read_frame, take_rows
from mcflow.data.planning import SAYABLE, Wishes, plan_table
from mcflow.data.schema import TableSchema
from mcflow.errors import DataError
from mcflow.evaluation.contenders import Question
from mcflow.evaluation.hiding import FEWEST_DONORS
from mcflow.evaluation.verdict import listed
from mcflow.masks import hide
from mcflow.typing import Array, FloatArray


@dataclass(frozen=True)
class Task:
    """The rows that are used, and the columns whose cells are hidden and filled.

    Parameters
    ----------
    frame : Frame
        The rows, perhaps a sample.
    schema : TableSchema
        Of the whole table.
    wishes : Wishes
        What its owner says of the columns.
    codes : ndarray of shape (n_rows, n_columns)
        Of the columns that the model sees, NaN where missing.
    n_given : int
        Rows of the whole table.
    """

    frame: Frame
    schema: TableSchema
    wishes: Wishes
    codes: FloatArray
    n_given: int

    @classmethod
    def prepare(cls, frame: Frame, table: Mapping[str, Any], max_rows: int | None, seed: int) -> Task:
        """Read a table, of many rows a sample.

        Parameters
        ----------
        frame : Frame
            The whole table.
        table : mapping
            What its owner says of the columns.
        max_rows : int or None
            Rows that are used at most.
        seed : int
            Decides which.

        Returns
        -------
        Task

        Raises
        ------
        DataError
            When there is nothing to fill.
        """
        said = {name: value for name, value in table.items() if value is not None and name != "unseen"}
        wishes = Wishes(**said)
        schema, _ = plan_table(frame, wishes)
        n_given = frame.n_rows
        if max_rows is not None and n_given > max_rows:
            rows = np.sort(np.random.default_rng([seed, 0, 0]).choice(n_given, max_rows, replace=False))
            frame = read_frame(take_rows(frame, rows))
        task = cls(frame, schema, wishes, frame.codes(schema)[:, schema.among_coded(model=True)], n_given)
        if not task.scored.any():
            raise DataError("The table has no column that is filled by a model, so there is nothing to evaluate.")
        return task

    @property
    def missing(self) -> Array:
        """Where cells are missing in the columns that the model sees."""
        return np.isnan(self.codes)

    @property
    def scored(self) -> Array:
        """Which of the columns that the model sees are filled."""
        return np.array([self.schema.columns[p].filled for p in self.schema.model], dtype=bool)

    def question(self, hidden: Array, level: float) -> tuple[Question, FloatArray, Array]:
        """Return the table without the hidden cells, what they were, and the numbers of their rows."""
        positions = np.array(self.schema.model)
        whole = np.zeros((self.frame.n_rows, len(self.schema.columns)), dtype=bool)
        whole[:, positions] = hidden
        table = hide(self.frame.native, whole)
        rows, places = (hidden & self.scored).nonzero()
        if not len(rows):
            raise DataError(
                "No known cell can be hidden: columns with holes have too few known cells, or holes lie only in "
                'columns that are not filled. Give more rows, a larger share, or pattern="random".'
            )
        used, among = np.unique(rows, return_inverse=True)
        part = take_rows(read_frame(table), used)
        asked = Question(table, part, self.schema, among, positions[places], level)
        return asked, self.codes[rows, places], rows

    def kinds_for(self, table: Any) -> dict[Any, str]:
        """Return the kinds that have to be said so that columns stay what they were with fewer rows and cells."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            now, _ = plan_table(read_frame(table), self.wishes)
        changed = {
            before.name: before.kind
            for before, after in zip(self.schema.columns, now.columns, strict=True)
            if before.kind != after.kind and before.kind in SAYABLE and after.kind not in ("constant", "empty")
        }
        return dict(self.wishes.kinds) | changed

    def notes(self, own: bool, share: float, n_cells: int, repeats: int) -> list[str]:
        """Say what was done."""
        n_rows = self.frame.n_rows
        notes = [f"A sample of {n_rows:,} of {self.n_given:,} rows."] if n_rows < self.n_given else []
        times = f", over {repeats} repeats" if repeats > 1 else ""
        if own:
            way = f"they lie as the holes of other rows do, at most {share:.0%} of a column's known cells"
        else:
            few = (
                "" if self.missing.any(axis=1).sum() >= FEWEST_DONORS else "the table has too few holes to follow, so "
            )
            way = f"{few}{share:.0%} of the known cells are hidden at random in every column"
        left = [str(c.name) for c in self.schema.columns if c.kind in ("identifier", "text", "other")]
        alone = [f"Left alone, as no method fills them: {listed(left)}."] if left else []
        return [*notes, f"{n_cells:,} known cells were hidden{times}: {way}.", *alone]
