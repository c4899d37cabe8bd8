"""Errors of single values: how far each filled cell is from the truth."""

from __future__ import annotations

__all__ = [
    "Score",
    "by_column",
    "category_error",
    "category_error_by_column",
    "check_table",
    "column_scale",
    "column_span",
    "mae",
    "mean_score",
    "rmse",
    "rmse_by_column",
    "root_score",
    "scored_cells",
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
        Its standard error; NaN where one row alone was scored.

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


def check_table(name: str, given: npt.ArrayLike, n_axes: int = 2) -> FloatArray:
    """Return numbers as float64 with `n_axes` axes, or raise `DataError` with the table's name.

    Examples
    --------
    >>> check_table("truth", [[1, 2]])
    array([[1., 2.]])
    """
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


def scored_cells(mask: npt.ArrayLike, *, endless: bool = False, **tables: npt.ArrayLike) -> list[FloatArray]:
    """Return the scored cells of each table, row by row.

    Parameters
    ----------
    mask : array-like of shape (n_rows, n_columns)
        Boolean, True where a cell is scored.
    endless : bool
        Whether scored cells may be infinite.
    **tables : array-like of shape (n_rows, n_columns)
        Named tables of numbers; their other cells may be NaN.

    Returns
    -------
    list of ndarray of shape (n_cells,)
        One array a table.

    Raises
    ------
    DataError
        When a shape differs from the mask's, a scored cell is not a number, or nothing is scored.

    Examples
    --------
    >>> scored_cells([[True, False]], truth=[[1.0, 2.0]])
    [array([1.])]
    """
    checked = _check_mask(mask)
    cells = []
    for name, given in tables.items():
        table = check_table(name, given)
        if table.shape != checked.shape:
            raise DataError(f"{name} has the shape {table.shape}, but has to have the mask's, {checked.shape}.")
        cells.append(table[checked])
        bad = np.isnan(cells[-1]) if endless else ~np.isfinite(cells[-1])
        if bad.any():
            allowed = "a number" if endless else "a finite number"
            raise DataError(
                f"{name} is {cells[-1][bad][0]} in {bad.sum()} scored cells, but has to be {allowed} there."
            )
    return cells


def column_scale(name: str, scale: npt.ArrayLike, mask: npt.ArrayLike) -> FloatArray:
    """Return the unit of each scored cell from the units of columns.

    Parameters
    ----------
    name : str
        What messages call the units.
    scale : float or array-like of shape (n_columns,)
        One unit for all columns, or one for each.
    mask : array-like of shape (n_rows, n_columns)
        Boolean, True where a cell is scored.

    Returns
    -------
    ndarray of shape (n_cells,)
        Row by row, as `scored_cells` has them.

    Raises
    ------
    ParameterError
        When there is not one unit a column, or a unit that is used is not above 0.

    Examples
    --------
    >>> column_scale("span", [2.0, 5.0], [[True, True], [False, True]])
    array([2., 5., 5.])
    """
    checked = _check_mask(mask)
    units: FloatArray = np.asarray(scale, dtype=np.float64)
    n_columns = checked.shape[1]
    if units.shape not in ((), (n_columns,)):
        raise ParameterError(f"{name} has the shape {units.shape}, but has to be a number or have ({n_columns},).")
    units = np.broadcast_to(units, n_columns)
    wrong = checked.any(axis=0) & ~((units > 0) & np.isfinite(units))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ParameterError(
            f"{name} is {units[first]:g} in column {first}, but has to be a finite number above 0 where cells are "
            f"scored. Give {name}, or leave the column out of mask."
        )
    return units[np.nonzero(checked)[1]]


def column_span(truth: npt.ArrayLike) -> FloatArray:
    """Return the largest minus the smallest number of each column; minus infinity where there is none.

    Examples
    --------
    >>> column_span([[1.0, 5.0], [3.0, 4.0]])
    array([2., 1.])
    """
    table = check_table("truth", truth)
    known = np.isfinite(table)
    high = np.max(table, axis=0, where=known, initial=-np.inf)
    span: FloatArray = high - np.min(table, axis=0, where=known, initial=np.inf)
    return span


def _column_deviation(truth: npt.ArrayLike) -> FloatArray:
    table = check_table("truth", truth)
    known = np.isfinite(table)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.sum(table, axis=0, where=known) / count
    deviation: FloatArray = np.sqrt(np.sum((table - mean) ** 2, axis=0, where=known) / count)
    # Rounding leaves a constant column a deviation of 1e-16 or so; it has to be refused as 0.
    deviation[column_span(table) <= 0] = 0.0
    return deviation


def mean_score(losses: FloatArray, mask: npt.ArrayLike) -> Score:
    r"""Average the losses of cells, with an error that lets cells of one row depend on each other.

    Parameters
    ----------
    losses : ndarray of shape (n_cells,)
        One number a scored cell, row by row.
    mask : array-like of shape (n_rows, n_columns)
        Boolean, True where a cell is scored.

    Returns
    -------
    Score
        The mean and its standard error.

    Notes
    -----
    Rows are the independent units. With :math:`s_i` the sum of the losses in row :math:`i`, :math:`n_i` their number,
    :math:`N = \sum n_i` and :math:`R` rows that have scored cells,

    .. math:: \bar\ell = \frac{1}{N} \sum_i s_i, \qquad
              \mathrm{error}^2 = \frac{R}{R - 1} \frac{1}{N^2} \sum_i (s_i - n_i \bar\ell)^2 .

    With one cell a row this is the usual standard error of a mean.

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


def root_score(square: Score) -> Score:
    r"""Return the square root of a score, with the error :math:`e / (2 \sqrt v)`; zero has none.

    Examples
    --------
    >>> root_score(Score(4.0, 0.4))
    Score(value=2.0, error=0.1)
    """
    root = math.sqrt(square.value)
    return Score(root, square.error / (2 * root) if root > 0 else 0.0)


def by_column(measure: Callable[..., Score], *tables: npt.ArrayLike, mask: npt.ArrayLike, **rest: Any) -> list[Score]:
    """Apply a measure of cells to one column after the other.

    Parameters
    ----------
    measure : callable
        `rmse`, `crps`, `coverage` or any other that takes a mask.
    *tables : array-like
        What the measure takes before the mask. Columns are the last axis.
    mask : array-like of shape (n_rows, n_columns)
        Boolean, True where a cell is scored.
    **rest : object
        What the measure takes after the mask. Arrays of shape (n_columns,) are split as well.

    Returns
    -------
    list of Score
        One for each column; both numbers are NaN where a column has no scored cell.

    Raises
    ------
    DataError
        When a table's last axis is not as long as the mask's.

    Examples
    --------
    >>> truth, filled = np.array([[0.0, 0.0], [2.0, 10.0]]), np.array([[1.0, 0.0], [2.0, 9.0]])
    >>> [score.value for score in by_column(mae, truth, filled, mask=np.ones((2, 2), bool))]
    [0.25, 0.05]
    """
    checked = _check_mask(mask)
    n_columns = checked.shape[1]
    arrays = [np.asarray(table) for table in tables]
    for place, array in enumerate(arrays):
        if array.ndim == 0 or array.shape[-1] != n_columns:
            raise DataError(f"Table {place} has the shape {array.shape}, but its last axis has to be {n_columns} long.")
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
        The true and the filled values.
    mask : array-like of shape (n_rows, n_columns)
        Boolean, True where a cell was hidden and is scored.
    span : float or array-like of shape (n_columns,), optional
        The columns' maximum minus minimum in the complete data; by default that of `truth`. 1 keeps the columns' units.

    Returns
    -------
    Score
        The error and its standard error.

    Raises
    ------
    DataError
        When shapes differ, nothing is scored or a scored cell is not finite.
    ParameterError
        When a scored column has no span.

    Notes
    -----
    With :math:`M` the set of scored cells and :math:`r_j` the span of column :math:`j`,

    .. math:: \mathrm{RMSE} = \sqrt{\frac{1}{|M|} \sum_{(i, j) \in M} \Big(\frac{\hat x_{ij} - x_{ij}}{r_j}\Big)^2} .

    It is the measure of Richardson et al., MCFlow: Monte Carlo Flow Models for Data Imputation, CVPR 2020.

    Examples
    --------
    >>> truth, filled = [[0.0], [4.0]], [[0.0], [2.0]]
    >>> rmse(truth, filled, [[False], [True]]).value
    0.5
    """
    true, guess = scored_cells(mask, truth=truth, filled=filled)
    unit = column_scale("span", column_span(truth) if span is None else span, mask)
    return root_score(mean_score(((guess - true) / unit) ** 2, mask))


def rmse_by_column(
    truth: npt.ArrayLike, filled: npt.ArrayLike, mask: npt.ArrayLike, span: npt.ArrayLike | None = None
) -> list[Score]:
    """Return `rmse` for each column, as a list; NaN where a column has no scored cell.

    Examples
    --------
    >>> [score.value for score in rmse_by_column([[0.0, 1.0], [4.0, 2.0]], [[2.0, 1.0], [2.0, 2.0]], np.eye(2) > 0)]
    [0.5, 0.0]
    """
    return by_column(rmse, truth, filled, mask=mask, span=span)


def standardised_rmse(
    truth: npt.ArrayLike, filled: npt.ArrayLike, mask: npt.ArrayLike, deviation: npt.ArrayLike | None = None
) -> Score:
    r"""Return the root mean squared error in units of each column's standard deviation.

    Parameters
    ----------
    truth, filled : array-like of shape (n_rows, n_columns)
        The true and the filled values.
    mask : array-like of shape (n_rows, n_columns)
        Boolean, True where a cell was hidden and is scored.
    deviation : float or array-like of shape (n_columns,), optional
        The columns' standard deviations in the complete data; by default those of `truth`.

    Returns
    -------
    Score
        The error and its standard error. The column mean as fill scores about 1.

    Raises
    ------
    DataError
        When shapes differ, nothing is scored or a scored cell is not finite.
    ParameterError
        When a scored column does not vary.

    Notes
    -----
    The formula of `rmse` with :math:`r_j` the standard deviation :math:`\sqrt{\frac1n \sum_i (x_{ij} - \bar x_j)^2}`.

    Examples
    --------
    >>> standardised_rmse([[0.0], [4.0]], [[2.0], [2.0]], [[True], [True]]).value
    1.0
    """
    true, guess = scored_cells(mask, truth=truth, filled=filled)
    unit = column_scale("deviation", _column_deviation(truth) if deviation is None else deviation, mask)
    return root_score(mean_score(((guess - true) / unit) ** 2, mask))


def mae(truth: npt.ArrayLike, filled: npt.ArrayLike, mask: npt.ArrayLike, span: npt.ArrayLike | None = None) -> Score:
    r"""Return the mean absolute error in units of each column's range.

    Parameters
    ----------
    truth, filled : array-like of shape (n_rows, n_columns)
        The true and the filled values.
    mask : array-like of shape (n_rows, n_columns)
        Boolean, True where a cell was hidden and is scored.
    span : float or array-like of shape (n_columns,), optional
        As in `rmse`.

    Returns
    -------
    Score
        The error and its standard error.

    Raises
    ------
    DataError
        When shapes differ, nothing is scored or a scored cell is not finite.
    ParameterError
        When a scored column has no span.

    Notes
    -----
    .. math:: \mathrm{MAE} = \frac{1}{|M|} \sum_{(i, j) \in M} \frac{|\hat x_{ij} - x_{ij}|}{r_j} .

    Examples
    --------
    >>> mae([[0.0], [4.0]], [[1.0], [4.0]], [[True], [True]])
    Score(value=0.125, error=0.125)
    """
    true, guess = scored_cells(mask, truth=truth, filled=filled)
    unit = column_scale("span", column_span(truth) if span is None else span, mask)
    return mean_score(np.abs(guess - true) / unit, mask)


def category_error(truth: npt.ArrayLike, filled: npt.ArrayLike, mask: npt.ArrayLike) -> Score:
    r"""Return the share of scored cells with a wrong code.

    Parameters
    ----------
    truth, filled : array-like of shape (n_rows, n_columns)
        The true and the filled codes.
    mask : array-like of shape (n_rows, n_columns)
        Boolean, True where a cell was hidden and is scored; False in all columns of numbers.

    Returns
    -------
    Score
        A share between 0 and 1 and its standard error.

    Raises
    ------
    DataError
        When shapes differ, nothing is scored or a scored cell is not finite.

    Notes
    -----
    .. math:: \frac{1}{|M|} \sum_{(i, j) \in M} 1[\hat x_{ij} \ne x_{ij}] .

    Examples
    --------
    >>> category_error([[0], [1], [2], [2]], [[0], [1], [2], [1]], np.ones((4, 1), bool))
    Score(value=0.25, error=0.25)
    """
    true, guess = scored_cells(mask, truth=truth, filled=filled)
    return mean_score((guess != true).astype(np.float64), mask)


def category_error_by_column(truth: npt.ArrayLike, filled: npt.ArrayLike, mask: npt.ArrayLike) -> list[Score]:
    """Return `category_error` for each column, as a list; NaN where a column has no scored cell.

    Examples
    --------
    >>> [score.value for score in category_error_by_column([[0, 1], [1, 2]], [[0, 1], [1, 1]], np.ones((2, 2), bool))]
    [0.0, 0.5]
    """
    return by_column(category_error, truth, filled, mask=mask)
