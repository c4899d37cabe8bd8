"""What a fitted imputer knows of its columns."""

from __future__ import annotations

__all__ = ["KINDS", "LEVEL_KINDS", "MODEL_KINDS", "NUMBER_KINDS", "ROLES", "Column", "TableSchema"]

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mcflow.typing import BoolArray

#: Kinds whose cells are places on a line.
NUMBER_KINDS = ("continuous", "integer", "datetime")
#: Kinds whose cells are one of a few levels.
LEVEL_KINDS = ("boolean", "category", "ordered")
#: Kinds that the model fills.
MODEL_KINDS = (*NUMBER_KINDS, *LEVEL_KINDS)
#: All kinds; the last five need no model or cannot have one.
KINDS = (*MODEL_KINDS, "constant", "empty", "identifier", "text", "other")

#: What a column may be used for.
ROLES = ("fill", "ignore", "predictors_only", "targets_only", "outcome")


@dataclass(frozen=True)
class Column:
    """One column.

    Parameters
    ----------
    name : object
        Its name, or its position.
    dtype : str
        Its Arrow type in words.
    kind : str
        One of `KINDS`.
    role : str
        "fill": used and filled; "ignore": passed through; "predictors_only": used, never filled; "targets_only":
        filled, never used to fill others; "outcome": neither used nor filled.
    missing : int
        Missing cells at fit.
    levels : tuple
        The levels of a column of levels, in order of their codes. For whole numbers and times, their exact smallest and
        largest value (times in nanoseconds) where a float64 cannot hold them.
    low, high : float
        Smallest and largest observed code.
    step : float
        Microseconds a code stands for in a column of dates and times, a part of one for nanoseconds; else 1.
    whole : bool
        Whether only whole codes may be filled in.
    base : str
        For a constant column, the kind it would have otherwise.
    """

    name: Any
    dtype: str
    kind: str
    role: str = "fill"
    missing: int = 0
    levels: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: float = 1.0
    whole: bool = False
    base: str = ""

    @property
    def in_model(self) -> bool:
        """Tell whether the networks see this column."""
        return self.kind in MODEL_KINDS and self.role not in ("ignore", "outcome")

    @property
    def filled(self) -> bool:
        """Tell whether missing cells of this column are filled."""
        return self.kind in (*MODEL_KINDS, "constant") and self.role in ("fill", "targets_only")

    @property
    def coded(self) -> bool:
        """Tell whether cells of this column can be read as numbers."""
        return self.kind in (*MODEL_KINDS, "constant")


@dataclass(frozen=True)
class TableSchema:
    """The columns of the table that an imputer was fitted on.

    Parameters
    ----------
    container : str
        The kind of table: "numpy", "pandas", "polars" or "pyarrow".
    named : bool
        Whether the columns had names.
    columns : tuple of Column
        In the table's order.
    n_rows : int
        Rows at fit.
    """

    container: str
    named: bool
    columns: tuple[Column, ...]
    n_rows: int

    @property
    def coded(self) -> list[int]:
        """Positions of the columns that can be read as numbers; `values` of a table has these columns."""
        return [p for p, column in enumerate(self.columns) if column.coded]

    @property
    def model(self) -> list[int]:
        """Positions of the columns that the networks see."""
        return [p for p, column in enumerate(self.columns) if column.in_model]

    @property
    def empty(self) -> list[int]:
        """Positions of the columns without an observed value."""
        return [p for p, column in enumerate(self.columns) if column.kind == "empty"]

    @property
    def holed(self) -> list[int]:
        """Positions of the columns that had holes at fit and are used or filled: those that get an indicator."""
        return [p for p, c in enumerate(self.columns) if c.missing and (c.coded or c.kind == "empty")]

    def among_coded(self, *, model: bool = False, role: str = "") -> BoolArray:
        """Return a mask over the coded columns: those the networks see, or those with a role."""
        columns = [self.columns[p] for p in self.coded]
        return np.array([c.in_model if model else c.role == role for c in columns], dtype=bool)

    def to_dict(self) -> dict[str, Any]:
        """Return plain objects, as JSON holds them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> TableSchema:
        """Undo `to_dict`."""
        columns = tuple(Column(**column | {"levels": tuple(column["levels"])}) for column in given["columns"])
        return cls(given["container"], given["named"], columns, given["n_rows"])
