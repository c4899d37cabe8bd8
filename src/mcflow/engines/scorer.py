"""Fitted model that fills and draws Arrow tables and keeps their types, and its serialised form."""

from __future__ import annotations

__all__ = ["Scorer", "SerialisedModel", "as_scorer"]

import hashlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from mcflow.errors import DataError
from mcflow.files.parquet import conformed
from mcflow.imputers import MCFlowImputer
from mcflow.imputers.persistence import load_table_model
from mcflow.random import seed_from
from mcflow.typing import RandomState


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
        path : path-like
            Model file.
        device : str, default="auto"
            Device to compute on.

        Returns
        -------
        Scorer

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
        empty = pa.table([pa.nulls(1, field.type) for field in given], schema=_nullable(given))
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
        m : int, default=20
            Number of draws.
        random_state : int, Generator, RandomState or None
            Seed of the draws. Use the same one for all batches of a table.
        row_ids : array-like of shape (n_rows,), optional
            Integers that distinguish equal rows.
        schema : pyarrow.Schema, optional
            Schema of the result; see `fill`.

        Yields
        ------
        pyarrow.Table
        """
        for drawn in self.imputer.draw(table, m, seed_from(random_state), row_ids=row_ids):
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


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema], metadata=schema.metadata)


def as_scorer(model: Scorer | MCFlowImputer | str | Path) -> Scorer:
    """Return the scorer of a model that is given as a scorer, an imputer or a file."""
    if isinstance(model, str | Path):
        return Scorer.from_file(model)
    return Scorer(model) if isinstance(model, MCFlowImputer) else model


@dataclass(frozen=True)
class SerialisedModel:
    """Model file in memory, to be sent to other processes and machines."""

    content: bytes  # bytes of the model file
    device: str = "auto"  # device to compute on

    @classmethod
    def of(cls, scorer: Scorer) -> Self:
        """Serialise a model."""
        with tempfile.TemporaryDirectory(prefix="mcflow-model-") as folder:
            path = Path(folder) / "model.mcflow"
            scorer.imputer.save(path)
            return cls(path.read_bytes(), scorer.imputer.device)

    def scorer(self) -> Scorer:
        """Load the model."""
        with tempfile.TemporaryDirectory(prefix="mcflow-model-") as folder:
            path = Path(folder) / "model.mcflow"
            path.write_bytes(self.content)
            return Scorer.from_file(path, device=self.device)
