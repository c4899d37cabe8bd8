"""A fitted model that fills Arrow tables, one batch after the other, and gives back the types it was given."""

from __future__ import annotations

__all__ = ["Scorer"]

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from mcflow.data.parquet_tables import conformed
from mcflow.errors import DataError
from mcflow.imputers import MCFlowImputer
from mcflow.imputers.persistence import load_table_model
from mcflow.random import seed_from
from mcflow.typing import RandomState


class Scorer:
    """Fill batches of rows with a model that is loaded once.

    Parameters
    ----------
    imputer : MCFlowImputer
        Fitted.

    Notes
    -----
    A row's answer does not depend on the rows it comes with, so it does not matter how a table is cut into batches: the
    cells are the same to the rounding of float32, and the same bits where the batches are equal. Draws depend on the
    seed, the number of the draw, and the row.

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
            The file.
        device : str, default="auto"
            Where to compute.

        Returns
        -------
        Scorer

        Raises
        ------
        ModelFileError
            When it is no model of tables.
        """
        return cls(load_table_model(path, device=device))

    def in_order(self, table: pa.Table) -> pa.Table:
        """Put columns into the order of the fit, where they are the same ones.

        Parameters
        ----------
        table : pyarrow.Table
            Rows to fill.

        Returns
        -------
        pyarrow.Table
        """
        names = [str(column.name) for column in self.imputer.schema_.columns]
        return table.select(names) if sorted(names) == sorted(table.column_names) else table

    def schema(self, given: pa.Schema) -> pa.Schema:
        """Return names and types of what `fill` makes of tables of a schema.

        Parameters
        ----------
        given : pyarrow.Schema
            Of the tables with holes.

        Returns
        -------
        pyarrow.Schema
            The same, but for columns that the model leaves out and for types that cannot hold what is filled in.
        """
        empty = pa.table([pa.nulls(1, field.type) for field in given], schema=_nullable(given))
        return conformed(self.imputer.transform(empty), empty).schema

    def fill(self, table: pa.Table, schema: pa.Schema | None = None) -> pa.Table:
        """Fill the holes of a batch.

        Parameters
        ----------
        table : pyarrow.Table
            The columns of the fit, in any number of rows.
        schema : pyarrow.Schema, optional
            What to give back, from `schema`; by default that of the table wherever it can hold the filled cells.

        Returns
        -------
        pyarrow.Table

        Raises
        ------
        DataError
            When a filled cell does not fit the schema.
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
            The columns of the fit.
        m : int, default=20
            How often.
        random_state : int, Generator, RandomState or None
            Decides the draws; the same for all batches of a table.
        row_ids : array-like of shape (n_rows,), optional
            Whole numbers that tell equal rows apart.
        schema : pyarrow.Schema, optional
            As for `fill`.

        Yields
        ------
        pyarrow.Table
        """
        for drawn in self.imputer.draw(table, m, seed_from(random_state), row_ids=row_ids):
            yield self._as(conformed(drawn, table), schema)

    def fingerprint(self) -> str:
        """Return a word that differs from one model to the next.

        Returns
        -------
        str
        """
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
            raise DataError(f"Filled cells do not fit the columns of the other parts: {error}.") from error


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema], metadata=schema.metadata)
