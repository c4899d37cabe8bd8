"""What a fitted imputer knows of its columns."""

from __future__ import annotations

__all__ = ["Column", "TableSchema"]

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mcflow.data.frames import Frame
from mcflow.errors import DataError
from mcflow.typing import BoolArray


@dataclass(frozen=True)
class Column:
    """One column.

    Parameters
    ----------
    name : object
        Its name, or its position.
    dtype : str
        A word for its type.
    role : str
        "model": filled by the model; "constant": filled with its only value; "empty": without an observed
        value; "passed": not a column of numbers, handed through untouched.
    missing : int
        Missing cells at fit.
    value : float
        The only value of a constant column, else zero.
    """

    name: Any
    dtype: str
    role: str
    missing: int = 0
    value: float = 0.0


@dataclass(frozen=True)
class TableSchema:
    """The columns of the table that an imputer was fitted on.

    Parameters
    ----------
    kind : str
        The kind of table: "numpy", "pandas", "polars" or "pyarrow".
    named : bool
        Whether the columns had names.
    columns : tuple of Column
        In the table's order.
    n_rows : int
        Rows at fit.
    """

    kind: str
    named: bool
    columns: tuple[Column, ...]
    n_rows: int

    @classmethod
    def from_frame(cls, frame: Frame) -> TableSchema:
        """Find every column's role.

        Parameters
        ----------
        frame : Frame
            The table to fit on.

        Returns
        -------
        TableSchema

        Raises
        ------
        DataError
            When no column of numbers has an observed value.
        """
        columns = [Column(n, d, "passed") for n, d in zip(frame.names, frame.dtypes, strict=True)]
        for k, position in enumerate(frame.numeric):
            columns[position] = _numeric_column(frame, k, position)
        if all(columns[position].role == "empty" for position in frame.numeric):
            raise DataError(
                "No column of numbers has an observed value, so there is nothing to learn from. "
                "Give a table with at least one observed number."
            )
        return cls(frame.kind, frame.named, tuple(columns), len(frame.values))

    def places(self, *roles: str) -> list[int]:
        """Return the positions of the columns with one of these roles."""
        return [p for p, column in enumerate(self.columns) if column.role in roles]

    @property
    def numeric(self) -> list[int]:
        """Positions of the columns of numbers."""
        return self.places("model", "constant", "empty")

    def among_numeric(self, *roles: str) -> BoolArray:
        """Return a mask over the columns of numbers: those with one of these roles."""
        return np.array([self.columns[p].role in roles for p in self.numeric], dtype=bool)

    def to_dict(self) -> dict[str, Any]:
        """Return plain objects, as JSON holds them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> TableSchema:
        """Undo `to_dict`."""
        return cls(given["kind"], given["named"], tuple(Column(**c) for c in given["columns"]), given["n_rows"])


def _numeric_column(frame: Frame, k: int, position: int) -> Column:
    values = frame.values[:, k]
    seen = values[~np.isnan(values)]
    name, dtype, missing = frame.names[position], frame.dtypes[position], len(values) - len(seen)
    if not len(seen):
        return Column(name, dtype, "empty", missing)
    if seen.min() == seen.max():
        return Column(name, dtype, "constant", missing, float(seen[0]))
    return Column(name, dtype, "model", missing)
