"""Which columns a diagnostic looks at, and which cells it hides."""

from __future__ import annotations

__all__ = [
    "check_share",
    "columns_of",
    "filled_positions",
    "hide_column",
    "named_positions",
    "place_in",
    "take_rows",
    "widest",
]

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mcflow.data.frames import Frame, take_rows
from mcflow.data.kinds import find_column
from mcflow.data.schema import TableSchema
from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.masks import hide
from mcflow.typing import Array


def columns_of(table: Frame, imputer: Any = None) -> TableSchema:
    """Return what the columns of a table are: as an imputer learned them, or as they look.

    Parameters
    ----------
    table : Frame
        The table.
    imputer : object, optional
        With `schema_` if it is one of this package.

    Returns
    -------
    TableSchema

    Raises
    ------
    DataError
        When the imputer was fitted on another number of columns.

    Examples
    --------
    >>> from mcflow.data.frames import read_frame
    >>> [column.kind for column in columns_of(read_frame(np.array([[0.5, 1.0], [2.0, 2.0]]))).columns]
    ['continuous', 'integer']
    """
    known: TableSchema | None = getattr(imputer, "schema_", None)
    if known is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of identifiers, which are left out here in any case
            found = [find_column(name, table.arrow(p), None, "fill") for p, name in enumerate(table.names)]
        return TableSchema(table.container, table.named, tuple(found), table.n_rows)
    if len(known.columns) != len(table.names):
        raise DataError(
            f"frame has {len(table.names)} columns, but the imputer was fitted on {len(known.columns)}. Give the "
            "columns that it was fitted on."
        )
    return known


def named_positions(table: Frame, columns: Any) -> list[int] | None:
    """Return the positions of the columns that a caller names, None where none are named.

    Parameters
    ----------
    table : Frame
        The table.
    columns : list of str, or of int for arrays, or None
        Names.

    Returns
    -------
    list of int or None

    Raises
    ------
    ParameterError
        When it is not a list of names, or the table has no such column.

    Examples
    --------
    >>> from mcflow.data.frames import read_frame
    >>> named_positions(read_frame(np.zeros((2, 3))), [2, 0])
    [2, 0]
    """
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise ParameterError(f"columns is {columns!r}, but has to be a list of column names, such as [{columns!r}].")
    wanted = list(dict.fromkeys(columns))
    if not wanted:
        raise ParameterError("columns is empty. Name a column, or leave it out to look at all.")
    for name in wanted:
        if name not in table.names:
            words = [str(known) for known in table.names]
            raise ParameterError(f"columns names {name!r}, which the table does not have.{did_you_mean(name, words)}")
    return [table.names.index(name) for name in wanted]


def filled_positions(table: Frame, imputer: Any, columns: Any = None) -> list[int]:
    """Return the positions of the columns that an imputer fills, all or those that a caller names.

    Parameters
    ----------
    table : Frame
        The table.
    imputer : object
        Fitted.
    columns : list of str, or of int for arrays, or None
        Names.

    Returns
    -------
    list of int

    Raises
    ------
    ParameterError
        When it is no imputer, or does not fill a column that is named.
    DataError
        When there is no such column.

    Examples
    --------
    >>> from mcflow.data.frames import read_frame
    >>> from mcflow.baselines import make
    >>> rows = np.array([[0.5, 1.0], [2.5, 1.0], [3.5, 1.0]])
    >>> filled_positions(read_frame(rows), make("em").fit(rows))
    [0]
    """
    if not hasattr(imputer, "transform"):
        raise ParameterError(f"imputer is {imputer!r}, but has to be a fitted imputer, such as MCFlowImputer.")
    if hasattr(type(imputer), "__sklearn_tags__"):
        check_is_fitted(imputer)
    schema = columns_of(table, imputer)
    usable = [p for p, column in enumerate(schema.columns) if column.in_model and column.filled]
    wanted = named_positions(table, columns)
    for p in wanted or ():
        if p not in usable:
            column = schema.columns[p]
            raise ParameterError(
                f"columns names {column.name!r}, which the imputer does not fill by a model: it is of kind "
                f"{column.kind} and role {column.role}. Name others."
            )
    if not usable:
        raise DataError("The imputer fills no column by a model, so there is nothing to look at.")
    return usable if wanted is None else wanted


def place_in(completed: Frame, schema: TableSchema, position: int) -> int:
    """Return where a column is in a completed table, which may lack empty columns and have indicators at its end.

    Parameters
    ----------
    completed : Frame
        What `transform` or `draw` gave back.
    schema : TableSchema
        The columns of the table that went in.
    position : int
        Of the column among them.

    Returns
    -------
    int

    Raises
    ------
    DataError
        When the completed table has no such column.

    Examples
    --------
    >>> from mcflow.data.frames import read_frame
    >>> empty_first = read_frame(np.array([[np.nan, 1.0], [np.nan, 2.0]]))
    >>> place_in(read_frame(np.array([[1.0], [2.0]])), columns_of(empty_first), 1)
    0
    """
    name = schema.columns[position].name
    if completed.container != "numpy" and name in completed.names:
        return completed.names.index(name)
    if completed.container == "numpy" or not schema.named:  # by place, whatever the names that the output was given
        kept = [p for p, column in enumerate(schema.columns) if column.kind != "empty"]
        whole = len(completed.names) >= len(schema.columns)
        if whole or (len(completed.names) >= len(kept) and position in kept):
            return position if whole else kept.index(position)
    raise DataError(f"The completed table lacks column {name!r}. Give what transform or draw returned for this table.")


def widest(positions: Sequence[int], sizes: Sequence[float], most: int) -> list[int]:
    """Return the positions with the largest sizes, at most so many, in the order they came in.

    Examples
    --------
    >>> widest([4, 5, 6], [10, 30, 20], most=2)
    [5, 6]
    """
    order = sorted(range(len(positions)), key=lambda place: -sizes[place])[:most]
    return [positions[place] for place in sorted(order)]


def check_share(name: str, value: Any) -> float:
    """Return a number above 0 and below 1, or raise `ParameterError`.

    Examples
    --------
    >>> check_share("level", 0.9)
    0.9
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < 1:
        raise ParameterError(f"{name} is {value!r}, but has to be a number above 0 and below 1.")
    return float(value)


def hide_column(table: Frame, rows: Array, position: int) -> Any:
    """Return some rows with one column missing and the others as they are.

    Examples
    --------
    >>> from mcflow.data.frames import read_frame
    >>> hide_column(read_frame(np.array([[1.0, 2.0], [3.0, 4.0]])), np.array([1]), 0)
    array([[nan,  4.]])
    """
    mask = np.zeros((len(rows), len(table.names)), dtype=bool)
    mask[:, position] = True
    return hide(take_rows(table, rows), mask)
