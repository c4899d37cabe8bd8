"""Fill or draw batches of rows and pass columns through that the model does not know."""

from __future__ import annotations

__all__ = ["DRAW", "RowFiller"]

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from mcflow.config import Interval, check_parameter
from mcflow.engines.scorer import Scorer
from mcflow.errors import DataError

#: Name of the column with the number of the draw.
DRAW = "draw"


@dataclass(frozen=True)
class RowFiller:
    """Fills batches of rows, or draws each of them several times."""

    known: tuple[str, ...]  # columns of the model, in the order of the fit
    draws: int | None = None  # draws of each row; None fills each row once
    seed: int = 0  # seed of the draws

    @classmethod
    def of(cls, names: Sequence[str], scorer: Scorer, draws: int | None = None, seed: int = 0) -> Self:
        """Find the columns of a model among the columns of a table."""
        if draws is not None:
            check_parameter("draws", draws, Interval(int, 1))
            if DRAW in names:
                raise DataError(f"The rows have a column {DRAW!r}, the name for the number of the draw. Rename it.")
        return cls(tuple(_known(names, scorer)), draws, seed)

    def completed(self, table: pa.Table, scorer: Scorer, made: pa.Schema) -> Iterator[pa.Table]:
        """Fill a batch once, or draw it with the draw number in a last column."""
        rows = table.select(self.known)
        if self.draws is None:
            yield self._joined(table, scorer.fill(rows, made))
            return
        for number, drawn in enumerate(scorer.draw(rows, self.draws, self.seed, schema=made), start=1):
            column = pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)
            field = pa.field(DRAW, pa.int32(), nullable=False)
            yield self._joined(table, drawn).append_column(field, column)

    def _joined(self, table: pa.Table, filled: pa.Table) -> pa.Table:
        """Replace the model's columns of a batch by the filled ones, in the order of the batch."""
        kept = [name for name in table.column_names if name in filled.column_names or name not in self.known]
        sources = [filled if name in self.known else table for name in kept]
        fields = [source.schema.field(name) for source, name in zip(sources, kept, strict=True)]
        columns = [source.column(name) for source, name in zip(sources, kept, strict=True)]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields)).combine_chunks()


def _known(names: Sequence[str], scorer: Scorer) -> list[str]:
    """Return the columns of the model, in the order of the fit."""
    duplicates = sorted({name for name in names if list(names).count(name) > 1})
    if duplicates:
        raise DataError(f"Column names occur more than once: {', '.join(duplicates)}. Rename or drop one of each.")
    schema = scorer.imputer.schema_
    if not schema.named:
        if len(names) != len(schema.columns):
            raise DataError(
                f"The rows have {len(names)} columns, but the model was fitted without names on {len(schema.columns)}. "
                "Give these columns in their order."
            )
        return list(names)
    known = [str(column.name) for column in schema.columns]
    absent = [name for name in known if name not in names]
    if absent:
        raise DataError(
            f"Columns of the fit are absent: {', '.join(absent[:5])}{' …' if len(absent) > 5 else ''}. The rows have: "
            f"{', '.join(names[:20])}{' …' if len(names) > 20 else ''}."
        )
    return known
