"""Fitted model that fills and draws Arrow tables: with their types, beside other columns, and in other processes."""

from __future__ import annotations

__all__ = ["DRAW", "RowFiller", "Scorer", "SerialisedModel", "as_scorer"]

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from mcflow.config import Interval, check_parameter
from mcflow.errors import DataError
from mcflow.files.parquet import conformed
from mcflow.imputers import MCFlowImputer
from mcflow.imputers.persistence import load_table_model
from mcflow.typing import RandomState

DRAW = "draw"  #: Name of the column with the number of the draw.


class Scorer:
    """Fill batches of rows with a model that is loaded once.

    Parameters
    ----------
    imputer : MCFlowImputer
        Fitted imputer.

    Notes
    -----
    The filled values of a row do not depend on the other rows of its batch. Different batch sizes give the same values
    up to float32 rounding, and equal batches give identical bits. Draws depend on the seed, the number of the draw and
    the row.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mcflow import MCFlowImputer
    >>> rows = pa.table({"a": [1.0, 2.0, None, 4.0], "b": [2.0, 4.0, 6.0, 8.0]})
    >>> scorer = Scorer(MCFlowImputer(max_epochs=2, random_state=0).fit(rows))
    >>> scorer.fill(rows.slice(2)).column("a").null_count
    0
    """

    def __init__(self, imputer: MCFlowImputer) -> None:
        self.imputer = imputer

    @classmethod
    def from_file(cls, path: str | Path, device: str = "auto") -> Self:
        """Load a model that `mcflow fit` wrote.

        Parameters
        ----------
        path, device
            As for `mcflow.load`.

        Raises
        ------
        ModelFileError
            If the file is not a model of tables.
        """
        return cls(load_table_model(path, device=device))

    def in_order(self, table: pa.Table) -> pa.Table:
        """Return the columns in the order of the fit; a table with other columns is returned unchanged."""
        names = [str(column.name) for column in self.imputer.schema_.columns]
        return table.select(names) if sorted(names) == sorted(table.column_names) else table

    def schema(self, given: pa.Schema) -> pa.Schema:
        """Return the schema that `fill` gives to tables of a schema.

        Columns that the model drops are absent, and types that cannot hold the filled values differ.
        """
        nullable = pa.schema([field.with_nullable(True) for field in given], metadata=given.metadata)
        empty = pa.table([pa.nulls(1, field.type) for field in given], schema=nullable)
        return conformed(self.imputer.transform(empty), empty).schema

    def fill(self, table: pa.Table, schema: pa.Schema | None = None) -> pa.Table:
        """Fill the missing cells of a batch.

        Parameters
        ----------
        table : pyarrow.Table
            Batch with the columns of the fit.
        schema : pyarrow.Schema, optional
            Schema of the result, from `schema`. By default the types of the table, where they can hold the filled
            values.

        Returns
        -------
        pyarrow.Table

        Raises
        ------
        DataError
            If a filled value does not fit the schema.
        """
        return self._as(conformed(self.imputer.transform(table), table), schema)

    def draw(
        self,
        table: pa.Table,
        m: int = 20,
        random_state: RandomState = None,
        *,
        row_ids: Any = None,
        schema: pa.Schema | None = None,
    ) -> Iterator[pa.Table]:
        """Draw completed batches.

        Parameters
        ----------
        table : pyarrow.Table
            Batch with the columns of the fit.
        m, random_state, row_ids
            As for `MCFlowImputer.draw`. Use the same seed for all batches of a table.
        schema : pyarrow.Schema, optional
            Schema of the result; see `fill`.

        Yields
        ------
        pyarrow.Table
        """
        for drawn in self.imputer.draw(table, m, random_state, row_ids=row_ids):
            yield self._as(conformed(drawn, table), schema)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the schema, the constraints and all tensors, in hexadecimal."""
        models = [self.imputer.model_, *self.imputer.other_models_]
        digest = hashlib.sha256(json.dumps(self.imputer.schema_.to_dict(), sort_keys=True).encode())
        digest.update(json.dumps(self.imputer.constraints_.to_dict(), sort_keys=True).encode())
        for name, array in sorted(item for model in models for item in model.tensors().items()):
            digest.update(name.encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    @staticmethod
    def _as(table: pa.Table, schema: pa.Schema | None) -> pa.Table:
        if schema is None or table.schema.equals(schema, check_metadata=True):
            return table
        try:
            return table.cast(schema)
        except (pa.ArrowInvalid, ValueError) as error:
            raise DataError(f"Filled values do not fit the column types of the other parts: {error}.") from error


def as_scorer(model: Scorer | MCFlowImputer | str | Path) -> Scorer:
    """Return the scorer of a model that is given as a scorer, an imputer or a file."""
    if isinstance(model, str | Path):
        return Scorer.from_file(model)
    return Scorer(model) if isinstance(model, MCFlowImputer) else model


class SerialisedModel:
    """Model file in memory, to be sent to other processes and machines."""

    def __init__(self, scorer: Scorer) -> None:
        self.device = scorer.imputer.device
        with tempfile.TemporaryDirectory(prefix="mcflow-model-") as folder:
            path = Path(folder) / "model.mcflow"
            scorer.imputer.save(path)
            self.content = path.read_bytes()

    def scorer(self) -> Scorer:
        """Load the model."""
        with tempfile.TemporaryDirectory(prefix="mcflow-model-") as folder:
            path = Path(folder) / "model.mcflow"
            path.write_bytes(self.content)
            return Scorer.from_file(path, device=self.device)


class RowFiller:
    """Fills batches of rows, or draws each of them several times, and passes other columns through."""

    def __init__(self, names: Sequence[str], scorer: Scorer, draws: int | None = None, seed: int = 0) -> None:
        if draws is not None:
            check_parameter("draws", draws, Interval(int, 1))
            if DRAW in names:
                raise DataError(f"The rows have a column {DRAW!r}, the name for the number of the draw. Rename it.")
        self.known = tuple(_known(names, scorer))  # columns of the model, in the order of the fit
        self.draws, self.seed = draws, seed

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
