"""Errors of point fills: the distance of each filled cell from the truth."""

from __future__ import annotations

__all__ = [
    "Score",
    "as_numbers",
    "by_column",
    "category_error",
    "cell_units",
    "mae",
    "mean_score",
    "rmse",
    "scored_cells",
    "span_units",
    "standardised_rmse",
]

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mcflow.errors import DataError, ParameterError
from mcflow.typing import Array, BoolArray, FloatArray


@dataclass(frozen=True)
class Score:
    """A measured value with its Monte-Carlo standard error.

    Parameters
    ----------
    value : float
        The measure.
    error : float
        Its standard error; NaN when only one row was scored.

    Examples
    --------
    >>> score = Score(0.25, 0.01)
    >>> float(score), str(score)
    (0.25, '0.25 ± 0.01')
    """

    value: float
    error: float

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.error:.2g}"


def as_numbers(name: str, given: npt.ArrayLike, n_axes: int = 2) -> FloatArray:
    """Return an array-like as float64 with `n_axes` axes; errors name it `name`."""
    try:
        table: FloatArray = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} has to be an array of numbers: {error}. Give categories as codes.") from error
    if table.ndim != n_axes:
        allowed = "(n_draws, n_rows, n_columns)" if n_axes == 3 else "(n_rows, n_columns)"
        raise DataError(f"{name} has the shape {table.shape}, but has to have the shape {allowed}.")
    return table


def _check_mask(given: npt.ArrayLike) -> BoolArray:
    mask: Array = np.asarray(given)
    if mask.dtype != np.bool_ or mask.ndim != 2:
        raise DataError(
            f"mask has the type {mask.dtype} and the shape {mask.shape}, but has to be boolean of shape "
            "(n_rows, n_columns), True where a cell is scored."
        )
    if not mask.any():
        raise DataError(f"mask has no True among its {mask.size} cells, but at least one cell has to be scored.")
    return mask


def scored_cells(mask: npt.ArrayLike, *, allow_infinite: bool = False, **tables: npt.ArrayLike) -> list[FloatArray]:
    """Return the scored cells of each named table, row by row.

    Shapes: `mask` and each table (n_rows, n_columns), returns (n_cells,) per table.

    Examples
    --------
    >>> scored_cells([[True, False]], truth=[[1.0, 2.0]])
    [array([1.])]
    """
    checked = _check_mask(mask)
    cells = []
    for name, given in tables.items():
        table = as_numbers(name, given)
        if table.shape != checked.shape:
            raise DataError(f"{name} has the shape {table.shape}, but has to have the mask's, {checked.shape}.")
        cells.append(table[checked])
        bad = np.isnan(cells[-1]) if allow_infinite else ~np.isfinite(cells[-1])
        if bad.any():
            allowed = "a number" if allow_infinite else "a finite number"
            raise DataError(
                f"{name} is {cells[-1][bad][0]} in {bad.sum()} scored cells, but has to be {allowed} there."
            )
    return cells


def cell_units(name: str, units: npt.ArrayLike, mask: npt.ArrayLike) -> FloatArray:
    """Return the unit of each scored cell (n_cells,), given one unit for all columns or one per column.

    Examples
    --------
    >>> cell_units("span", [2.0, 5.0], [[True, True], [False, True]])
    array([2., 5., 5.])
    """
    checked = _check_mask(mask)
    per_column: FloatArray = np.asarray(units, dtype=np.float64)
    n_columns = checked.shape[1]
    if per_column.shape not in ((), (n_columns,)):
        raise ParameterError(f"{name} has the shape {per_column.shape}, but has to be a number or have ({n_columns},).")
    per_column = np.broadcast_to(per_column, n_columns)
    wrong = checked.any(axis=0) & ~((per_column > 0) & np.isfinite(per_column))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ParameterError(
            f"{name} is {per_column[first]:g} in column {first}, but has to be a finite number above 0 where cells are "
            f"scored. Give {name}, or leave the column out of mask."
        )
    return per_column[np.nonzero(checked)[1]]


def span_units(truth: npt.ArrayLike, span: npt.ArrayLike | None, mask: npt.ArrayLike) -> FloatArray:
    """Return the range of each scored cell's column (n_cells,), taken from `truth` unless `span` is given."""
    return cell_units("span", _column_span(truth) if span is None else span, mask)


def _column_span(truth: npt.ArrayLike) -> FloatArray:
    """Return the range of each column, minus infinity for a column without numbers."""
    table = as_numbers("truth", truth)
    known = np.isfinite(table)
    high = np.max(table, axis=0, where=known, initial=-np.inf)
    span: FloatArray = high - np.min(table, axis=0, where=known, initial=np.inf)
    return span


def _column_deviation(truth: npt.ArrayLike) -> FloatArray:
    table = as_numbers("truth", truth)
    known = np.isfinite(table)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.sum(table, axis=0, where=known) / count
    deviation: FloatArray = np.sqrt(np.sum((table - mean) ** 2, axis=0, where=known) / count)
    # Rounding gives a constant column a deviation of about 1e-16, which has to count as 0.
    deviation[_column_span(table) <= 0] = 0.0
    return deviation


def mean_score(losses: FloatArray, mask: npt.ArrayLike) -> Score:
    r"""Average the losses (n_cells,) of scored cells, with a standard error that is robust to dependence within rows.

    With :math:`s_i` the sum of the losses in row :math:`i`, :math:`n_i` their number, :math:`N = \sum n_i` and
    :math:`R` rows with scored cells,

    .. math:: \bar\ell = \frac{1}{N} \sum_i s_i, \qquad
              \mathrm{error}^2 = \frac{R}{R - 1} \frac{1}{N^2} \sum_i (s_i - n_i \bar\ell)^2 .

    With one cell per row this is the usual standard error of a mean.

    Examples
    --------
    >>> mean_score(np.array([1.0, 3.0]), [[True], [True]])
    Score(value=2.0, error=1.0)
    """
    rows = np.nonzero(_check_mask(mask))[0]
    value = float(losses.mean())
    residuals = np.bincount(rows, losses - value)
    n_rows = len(np.unique(rows))
    if n_rows == 1:
        return Score(value, math.nan)
    variance = n_rows / (n_rows - 1) * float(residuals @ residuals) / len(losses) ** 2
    return Score(value, math.sqrt(variance))


def _root_mean_square(errors: FloatArray, mask: npt.ArrayLike) -> Score:
    """Return the root mean square of the errors, with its standard error by the delta method."""
    square = mean_score(errors**2, mask)
    root = math.sqrt(square.value)
    return Score(root, square.error / (2 * root) if root > 0 else 0.0)


def by_column(measure: Callable[..., Score], *tables: npt.ArrayLike, mask: npt.ArrayLike, **rest: Any) -> list[Score]:
    """Apply a measure to each column separately.

    Parameters
    ----------
    measure : callable
        A measure that takes a mask, such as `rmse`, `crps` or `coverage`.
    *tables : array-like
        Arguments of the measure before the mask, with columns as the last axis.
    mask : array-like of bool of shape (n_rows, n_columns)
        Cells to score.
    **rest : object
        Arguments of the measure after the mask. Arrays of shape (n_columns,) are split by column.

    Returns
    -------
    list of Score
        One score per column; value and error are NaN for a column without scored cells.

    Raises
    ------
    DataError
        When the last axis of a table differs from that of the mask.

    Examples
    --------
    >>> truth, filled = np.array([[0.0, 0.0], [2.0, 10.0]]), np.array([[1.0, 0.0], [2.0, 9.0]])
    >>> [score.value for score in by_column(mae, truth, filled, mask=np.ones((2, 2), bool))]
    [0.25, 0.05]
    """
    checked = _check_mask(mask)
    n_columns = checked.shape[1]
    arrays = [np.asarray(table) for table in tables]
    for number, array in enumerate(arrays):
        if array.ndim == 0 or array.shape[-1] != n_columns:
            raise DataError(
                f"Table {number} has the shape {array.shape}, but its last axis has to be {n_columns} long."
            )
    split = {name: np.asarray(value) for name, value in rest.items() if np.shape(value) == (n_columns,)}

    def score(column: int) -> Score:
        part = slice(column, column + 1)
        if not checked[:, part].any():
            return Score(math.nan, math.nan)
        own = rest | {name: values[part] for name, values in split.items()}
        return measure(*(array[..., part] for array in arrays), mask=checked[:, part], **own)

    return [score(column) for column in range(n_columns)]


def rmse(truth: npt.ArrayLike, filled: npt.ArrayLike, mask: npt.ArrayLike, span: npt.ArrayLike | None = None) -> Score:
    r"""Return the root mean squared error in units of each column's range.

    Parameters
    ----------
    truth, filled : array-like of shape (n_rows, n_columns)
        True and filled values.
    mask : array-like of bool of shape (n_rows, n_columns)
        Cells to score.
    span : float or array-like of shape (n_columns,), optional
        Range of each column in the complete data, by default in `truth`.

    Returns
    -------
    Score
        The error and its standard error.

    Raises
    ------
    DataError
        When shapes differ, no cell is scored, or a scored cell is not finite.
    ParameterError
        When the range of a scored column is not positive.

    Notes
    -----
    With :math:`M` the set of scored cells and :math:`r_j` the range of column :math:`j`,

    .. math:: \mathrm{RMSE} = \sqrt{\frac{1}{|M|} \sum_{(i, j) \in M} \Big(\frac{\hat x_{ij} - x_{ij}}{r_j}\Big)^2} .

    This is the measure of Richardson et al., MCFlow: Monte Carlo Flow Models for Data Imputation, CVPR 2020.

    Examples
    --------
    >>> truth, filled = [[0.0], [4.0]], [[0.0], [2.0]]
    >>> rmse(truth, filled, [[False], [True]]).value
    0.5
    """
    true, fill = scored_cells(mask, truth=truth, filled=filled)
    return _root_mean_square((fill - true) / span_units(truth, span, mask), mask)


def standardised_rmse(
    truth: npt.ArrayLike, filled: npt.ArrayLike, mask: npt.ArrayLike, deviation: npt.ArrayLike | None = None
) -> Score:
    r"""Return the root mean squared error in units of each column's standard deviation.

    Parameters
    ----------
    truth, filled, mask
        As for `rmse`, as are the errors.
    deviation : float or array-like of shape (n_columns,), optional
        Standard deviation of each column in the complete data, by default in `truth`.

    Returns
    -------
    Score
        The error and its standard error. Mean imputation scores about 1.

    Notes
    -----
    The formula of `rmse` with :math:`r_j` the standard deviation :math:`\sqrt{\frac1n \sum_i (x_{ij} - \bar x_j)^2}`.

    Examples
    --------
    >>> standardised_rmse([[0.0], [4.0]], [[2.0], [2.0]], [[True], [True]]).value
    1.0
    """
    true, fill = scored_cells(mask, truth=truth, filled=filled)
    units = cell_units("deviation", _column_deviation(truth) if deviation is None else deviation, mask)
    return _root_mean_square((fill - true) / units, mask)


def mae(truth: npt.ArrayLike, filled: npt.ArrayLike, mask: npt.ArrayLike, span: npt.ArrayLike | None = None) -> Score:
    r"""Return the mean absolute error in units of each column's range.

    Parameters
    ----------
    truth, filled, mask, span
        As for `rmse`, as are the result and the errors.

    Notes
    -----
    .. math:: \mathrm{MAE} = \frac{1}{|M|} \sum_{(i, j) \in M} \frac{|\hat x_{ij} - x_{ij}|}{r_j} .

    Examples
    --------
    >>> mae([[0.0], [4.0]], [[1.0], [4.0]], [[True], [True]])
    Score(value=0.125, error=0.125)
    """
    true, fill = scored_cells(mask, truth=truth, filled=filled)
    return mean_score(np.abs(fill - true) / span_units(truth, span, mask), mask)


def category_error(truth: npt.ArrayLike, filled: npt.ArrayLike, mask: npt.ArrayLike) -> Score:
    r"""Return the fraction of scored cells with a wrong category.

    Parameters
    ----------
    truth, filled, mask
        As for `rmse`, as are the errors; scored cells are codes of categories.

    Returns
    -------
    Score
        A fraction between 0 and 1 and its standard error.

    Notes
    -----
    .. math:: \frac{1}{|M|} \sum_{(i, j) \in M} 1[\hat x_{ij} \ne x_{ij}] .

    Examples
    --------
    >>> category_error([[0], [1], [2], [2]], [[0], [1], [2], [1]], np.ones((4, 1), bool))
    Score(value=0.25, error=0.25)
    """
    true, fill = scored_cells(mask, truth=truth, filled=filled)
    return mean_score((fill != true).astype(np.float64), mask)
