"""Rows with columns that the model does not know, which are carried along: filled, or drawn and numbered."""

from __future__ import annotations

__all__ = ["DRAW", "RowFilling"]

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from mcflow.config import Interval, check_parameter
from mcflow.engines.scorer import Scorer
from mcflow.errors import DataError

#: The column that numbers the draws of a row.
DRAW = "draw"


@dataclass(frozen=True)
class RowFilling:
    """What is to be done with batches of rows.

    Parameters
    ----------
    known : tuple of str
        The columns of the model, in the order of the fit.
    draws : int, optional
        How often each row comes, with the number of the draw in a last column; once, filled, when not given.
    seed : int
        Decides the draws.

    Examples
    --------
    >>> from mcflow import MCFlowImputer
    >>> rows = pa.table({"a": [1.0, 2.0, None, 4.0], "b": [2.0, 4.0, 6.0, 8.0]})
    >>> scorer = Scorer(MCFlowImputer(max_epochs=2, random_state=0).fit(rows))
    >>> more = rows.append_column("key", pa.array(["w", "x", "y", "z"]))
    >>> filling = RowFilling.of(more.column_names, scorer, draws=2)
    >>> [(made.column_names, made.num_rows) for made in filling.completed(more, scorer, scorer.schema(rows.schema))]
    [(['a', 'b', 'key', 'draw'], 4), (['a', 'b', 'key', 'draw'], 4)]
    """

    known: tuple[str, ...]
    draws: int | None = None
    seed: int = 0

    @classmethod
    def of(cls, names: Sequence[str], scorer: Scorer, draws: int | None = None, seed: int = 0) -> Self:
        """Look for the columns of a model.

        Parameters
        ----------
        names : sequence of str
            Columns of the rows.
        scorer : Scorer
            The model.
        draws, seed : int
            As of the class.

        Returns
        -------
        RowFilling

        Raises
        ------
        DataError
            When a column of the fit is not there, is there twice, or has the name of that which numbers draws.
        """
        if draws is not None:
            check_parameter("draws", draws, Interval(int, 1))
            if DRAW in names:
                raise DataError(f"The rows have a column {DRAW!r}, which is to number the draws. Rename it.")
        return cls(tuple(_known(names, scorer)), draws, seed)

    def completed(self, table: pa.Table, scorer: Scorer, made: pa.Schema) -> Iterator[pa.Table]:
        """Fill or draw a batch.

        Parameters
        ----------
        table : pyarrow.Table
            The batch.
        scorer : Scorer
            The model.
        made : pyarrow.Schema
            What the model makes of the columns that it knows, from `Scorer.schema`.

        Yields
        ------
        pyarrow.Table
            One, or one for each draw: all columns that the batch has, in their places, but for those that the model
            leaves out.
        """
        rows = table.select(self.known)
        if self.draws is None:
            yield self._together(table, scorer.fill(rows, made))
            return
        for number, drawn in enumerate(scorer.draw(rows, self.draws, self.seed, schema=made), start=1):
            column = pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)
            field = pa.field(DRAW, pa.int32(), nullable=False)
            yield self._together(table, drawn).append_column(field, column)

    def _together(self, table: pa.Table, filled: pa.Table) -> pa.Table:
        kept = [name for name in table.column_names if name in filled.column_names or name not in self.known]
        sources = [filled if name in self.known else table for name in kept]
        fields = [source.schema.field(name) for source, name in zip(sources, kept, strict=True)]
        columns = [source.column(name) for source, name in zip(sources, kept, strict=True)]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields)).combine_chunks()


def _known(names: Sequence[str], scorer: Scorer) -> list[str]:
    """Return the columns that the model knows, in the order of the fit."""
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise DataError(f"Columns are there more than once: {', '.join(twice)}. Rename or drop one of each.")
    schema = scorer.imputer.schema_
    if not schema.named:
        if len(names) != len(schema.columns):
            raise DataError(
                f"The rows have {len(names)} columns, and the model was fitted without names on {len(schema.columns)}. "
                "Give these columns in their order."
            )
        return list(names)
    known = [str(column.name) for column in schema.columns]
    gone = [name for name in known if name not in names]
    if gone:
        raise DataError(
            f"Columns of the fit are not there: {', '.join(gone[:5])}{' …' if len(gone) > 5 else ''}. The rows have: "
            f"{', '.join(names[:20])}{' …' if len(names) > 20 else ''}."
        )
    return known
