"""What the analyses of completed tables gave, as arrays: estimates, variances and the names of both."""

from __future__ import annotations

__all__ = ["Estimates", "in_order", "read_estimates"]

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from mcflow.errors import DataError
from mcflow.typing import FloatArray

#: How far a covariance may be from its mirror image, as a share of its largest variance.
ASYMMETRY = 1e-6


@dataclass(frozen=True)
class Estimates:
    """The results of m analyses.

    Parameters
    ----------
    names : tuple of str
        Of the k estimates.
    values : ndarray of shape (m, k)
        The estimates.
    variances : ndarray of shape (m, k)
        Their squared standard errors.
    covariances : ndarray of shape (m, k, k) or None
        With the variances on the diagonal, when they are known.
    """

    names: tuple[str, ...]
    values: FloatArray
    variances: FloatArray
    covariances: FloatArray | None


def read_estimates(estimates: Any, variances: Any, names: Sequence[str] | None = None) -> Estimates:
    """Read and check what a caller gives to be pooled.

    Parameters
    ----------
    estimates : array-like of shape (m, k) or (m,), data frame, or sequence of arrays, Series or dicts
        One entry or row for each completed table.
    variances : array-like of shape (m, k), (m,) or (m, k, k), data frame, or sequence
        Squared standard errors, or covariance matrices. Series, dicts and data frames are matched by name.
    names : sequence of str, optional
        In place of those that the estimates carry.

    Returns
    -------
    Estimates

    Raises
    ------
    DataError
        When there is nothing to pool, sizes or names differ, a number is not finite, or a variance is negative.

    Examples
    --------
    >>> read_estimates([{"age": 1.0}, {"age": 3.0}], [{"age": 0.5}, {"age": 0.5}]).names
    ('age',)
    """
    rows = _rows(estimates, "estimates")
    keys = _shared_keys(rows)
    values = _stacked([_row(row, keys, number, "estimates") for number, row in enumerate(rows, 1)], "estimates")
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or not values.size:
        raise DataError(f"The estimates have shape {values.shape}, but (m, k) with at least one of each is needed.")
    spreads = _rows(variances, "variances")
    spread = _stacked([_row(row, keys, number, "variances") for number, row in enumerate(spreads, 1)], "variances")
    own = _names(names, keys, values.shape[1])
    return _checked(own, values, spread[:, None] if spread.ndim == 1 else spread)


def _rows(given: Any, what: str) -> list[Any]:
    """Return the entries of the m tables."""
    frame = nw.from_native(given, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return list(frame.iter_rows(named=True))
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise DataError(
            f"The {what} are of type {type(given).__name__}. Give one entry for each completed table: an array of "
            "shape (m, k), or a list of m arrays, Series or dicts."
        )
    return list(given)


def _keys(row: Any) -> tuple[Any, ...] | None:
    """Return the names that an entry carries, None when it has none."""
    if isinstance(row, Mapping):
        return tuple(row)
    return tuple(row.index) if hasattr(row, "loc") else None


def _shared_keys(rows: list[Any]) -> tuple[Any, ...] | None:
    return _keys(rows[0]) if rows else None


def _row(row: Any, keys: tuple[Any, ...] | None, number: int, what: str) -> FloatArray:
    """Return an entry as numbers, in the order of the names where it has some."""
    own = _keys(row)
    if own is not None and keys is not None:
        if set(own) != set(keys) or len(own) != len(keys):
            raise DataError(
                f"Entry {number} of the {what} names {_listed(own)}, while the first of the estimates names "
                f"{_listed(keys)}. Every table has to give the same terms."
            )
        row = in_order(row, keys)
    try:
        return np.asarray(row, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"Entry {number} of the {what} cannot be read as numbers: {error}.") from error


def in_order(row: Any, keys: Iterable[Any]) -> Any:
    """Return a dict, Series or covariance of pandas in the order of the given names; anything else as it is."""
    if isinstance(row, Mapping):
        return [row[key] for key in keys]
    if not hasattr(row, "loc"):
        return row
    return row.loc[list(keys), list(keys)] if row.ndim == 2 else row.loc[list(keys)]


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(repr(str(name)) for name in names)


def _stacked(rows: list[FloatArray], what: str) -> FloatArray:
    shapes = sorted({row.shape for row in rows}, key=str)
    if not shapes:
        raise DataError(f"There are no {what} to pool. Give one entry for each completed table.")
    if len(shapes) > 1:
        raise DataError(f"The {what} differ in size: {', '.join(map(str, shapes))}. Every table has to give as many.")
    return np.stack(rows)


def _names(given: Sequence[str] | None, keys: tuple[Any, ...] | None, k: int) -> tuple[str, ...]:
    if given is None and keys is None:
        return tuple(f"term{number}" for number in range(1, k + 1))
    names = tuple(map(str, given if given is not None else keys or ()))
    if len(names) != k or len(set(names)) != k:
        raise DataError(f"There are {k} estimates and the names {_listed(names)}. Give each its own name.")
    return names


def _checked(names: tuple[str, ...], values: FloatArray, spread: FloatArray) -> Estimates:
    m, k = values.shape
    if spread.shape not in ((m, k), (m, k, k)):
        raise DataError(
            f"The estimates have shape {values.shape} and the variances {spread.shape}, but variances have to be of "
            f"shape {(m, k)}, or {(m, k, k)} for covariance matrices."
        )
    full = spread.ndim == 3
    variances = np.diagonal(spread, axis1=1, axis2=2) if full else spread
    _refuse(~np.isfinite(values), names, "an estimate that is not a finite number")
    _refuse(~np.isfinite(spread).all(axis=2) if full else ~np.isfinite(spread), names, "a variance that is not finite")
    _refuse(variances < 0, names, "a negative variance")
    if full and (np.abs(spread - spread.transpose(0, 2, 1)) > ASYMMETRY * variances.max()).any():
        raise DataError("A covariance matrix is not symmetric. Give variances, or covariances of the estimates.")
    return Estimates(names, values, variances.copy(), spread if full else None)


def _refuse(wrong: Any, names: tuple[str, ...], what: str) -> None:
    """Raise an error that says which table gave what cannot be pooled."""
    if wrong.any():
        table, term = np.argwhere(wrong)[0]
        raise DataError(
            f"Table {table + 1} of {len(wrong)} gives {names[term]!r} {what}. See whether the model can be fitted to "
            "that table: terms may be collinear, or a level may be too rare."
        )
