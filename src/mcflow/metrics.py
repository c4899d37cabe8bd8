"""Measures of imputation quality for point fills, draws and intervals.

Tables are arrays of numbers, with categories as codes. `mask` is a boolean array of the table's shape that is True in
the cells to score; other cells may be NaN. Every table measure returns a `Score`, whose error treats rows as
independent and allows for dependence between the cells of a row. `span` is the range (maximum minus minimum) of each
column in the complete data; it is the unit of the errors, and 1 keeps the units of the columns.
"""

from __future__ import annotations

__all__ = [
    "Score",
    "by_column",
    "category_error",
    "correlation_error",
    "coverage",
    "crps",
    "energy_by_column",
    "energy_distance",
    "energy_i_score",
    "energy_losses",
    "mae",
    "rmse",
    "standardised_rmse",
    "width",
]

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist
from sklearn.utils import gen_batches

from mcflow.errors import DataError, ParameterError
from mcflow.typing import Array, BoolArray, FloatArray

MAX_CHUNK = 2**20  # maximum size of a temporary array: 8 MB of float64


@dataclass(frozen=True)
class Score:
    """A measured value with its Monte-Carlo standard error.

    Examples
    --------
    >>> score = Score(0.25, 0.01)
    >>> float(score), str(score)
    (0.25, '0.25 ± 0.01')
    """

    value: float  #: The measure.
    error: float  #: Its standard error; NaN when only one row was scored.

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.error:.2g}"


def _as_numbers(name: str, given: npt.ArrayLike, n_axes: int = 2) -> FloatArray:
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


def _scored_cells(mask: npt.ArrayLike, *, allow_infinite: bool = False, **tables: npt.ArrayLike) -> list[FloatArray]:
    """Return the scored cells (n_cells,) of each named table, row by row."""
    checked = _check_mask(mask)
    cells = []
    for name, given in tables.items():
        table = _as_numbers(name, given)
        if table.shape != checked.shape:
            raise DataError(f"{name} has the shape {table.shape}, but has to have the mask's, {checked.shape}.")
        cells.append(table[checked])
        bad = np.isnan(cells[-1]) if allow_infinite else ~np.isfinite(cells[-1])
        if bad.any():
            allowed = "a number" if allow_infinite else "a finite number"
            found = f"{cells[-1][bad][0]} in {bad.sum()} scored cells"
            raise DataError(f"{name} is {found}, but has to be {allowed} there.")
    return cells


def _cell_units(name: str, units: npt.ArrayLike, mask: npt.ArrayLike) -> FloatArray:
    """Return the unit of each scored cell (n_cells,), given one unit for all columns or one per column."""
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


def _span_units(truth: npt.ArrayLike, span: npt.ArrayLike | None, mask: npt.ArrayLike) -> FloatArray:
    """Return the range of each scored cell's column (n_cells,), taken from `truth` unless `span` is given."""
    return _cell_units("span", _column_span(truth) if span is None else span, mask)


def _column_span(truth: npt.ArrayLike) -> FloatArray:
    """Return the range of each column, minus infinity for a column without numbers."""
    table = _as_numbers("truth", truth)
    known = np.isfinite(table)
    low, high = table.min(axis=0, where=known, initial=np.inf), table.max(axis=0, where=known, initial=-np.inf)
    return np.asarray(high - low)


def _column_deviation(truth: npt.ArrayLike) -> FloatArray:
    table = _as_numbers("truth", truth)
    known = np.isfinite(table)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.sum(table, axis=0, where=known) / count
    deviation: FloatArray = np.sqrt(np.sum((table - mean) ** 2, axis=0, where=known) / count)
    # Rounding gives a constant column a deviation of about 1e-16, which has to count as 0.
    deviation[_column_span(table) <= 0] = 0.0
    return deviation


def _mean_score(losses: FloatArray, mask: npt.ArrayLike) -> Score:
    r"""Average the losses (n_cells,) of scored cells, with a standard error that is robust to dependence within rows.

    With the sum :math:`s_i` of the :math:`n_i` losses of row :math:`i` and their mean :math:`\bar\ell`, it is the root
    of :math:`\frac{R}{R - 1} \frac{1}{N^2} \sum_i (s_i - n_i \bar\ell)^2` for N cells in R rows.
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
    square = _mean_score(errors**2, mask)
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
            given = f"Table {number} has the shape {array.shape}"
            raise DataError(f"{given}, but its last axis has to be {n_columns} long.")
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
    true, fill = _scored_cells(mask, truth=truth, filled=filled)
    return _root_mean_square((fill - true) / _span_units(truth, span, mask), mask)


def standardised_rmse(
    truth: npt.ArrayLike, filled: npt.ArrayLike, mask: npt.ArrayLike, deviation: npt.ArrayLike | None = None
) -> Score:
    r"""Return the root mean squared error in units of each column's standard deviation.

    Parameters
    ----------
    truth, filled, mask
        As for `rmse`, as are the result and the errors. Mean imputation scores about 1.
    deviation : float or array-like of shape (n_columns,), optional
        Standard deviation of each column in the complete data, by default in `truth`.

    Notes
    -----
    The formula of `rmse` with :math:`r_j` the standard deviation :math:`\sqrt{\frac1n \sum_i (x_{ij} - \bar x_j)^2}`.

    Examples
    --------
    >>> standardised_rmse([[0.0], [4.0]], [[2.0], [2.0]], [[True], [True]]).value
    1.0
    """
    true, fill = _scored_cells(mask, truth=truth, filled=filled)
    units = _cell_units("deviation", _column_deviation(truth) if deviation is None else deviation, mask)
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
    true, fill = _scored_cells(mask, truth=truth, filled=filled)
    return _mean_score(np.abs(fill - true) / _span_units(truth, span, mask), mask)


def category_error(truth: npt.ArrayLike, filled: npt.ArrayLike, mask: npt.ArrayLike) -> Score:
    r"""Return the fraction of scored cells with a wrong category.

    Parameters
    ----------
    truth, filled, mask
        As for `rmse`, as are the result and the errors; scored cells are codes of categories.

    Notes
    -----
    .. math:: \frac{1}{|M|} \sum_{(i, j) \in M} 1[\hat x_{ij} \ne x_{ij}] .

    Examples
    --------
    >>> category_error([[0], [1], [2], [2]], [[0], [1], [2], [1]], np.ones((4, 1), bool))
    Score(value=0.25, error=0.25)
    """
    true, fill = _scored_cells(mask, truth=truth, filled=filled)
    return _mean_score((fill != true).astype(np.float64), mask)


def crps(truth: npt.ArrayLike, draws: npt.ArrayLike, mask: npt.ArrayLike, span: npt.ArrayLike | None = None) -> Score:
    r"""Return the fair continuous ranked probability score of draws, in units of each column's range.

    Parameters
    ----------
    truth, mask, span
        As for `rmse`, as are the result, the mean over cells, and the errors. Lower is better.
    draws : array-like of shape (n_draws, n_rows, n_columns)
        At least two independent draws of every scored cell.

    Notes
    -----
    For one cell with the truth :math:`y` and :math:`m` draws, sorted as :math:`x_{(1)} \le \dots \le x_{(m)}`,

    .. math:: \frac1m \sum_k |x_k - y| - \frac{1}{2 m (m - 1)} \sum_{k, l} |x_k - x_l|, \qquad
              \sum_{k, l} |x_k - x_l| = 2 \sum_k (2 k - m - 1)\, x_{(k)} .

    Division by :math:`m (m - 1)` instead of :math:`m^2` makes the expectation independent of the number of draws, so
    that methods with different numbers of draws can be compared (Ferro, Fair scores for ensemble forecasts, 2014).
    The score of a single cell can be negative.

    Examples
    --------
    >>> crps([[0.0], [4.0]], [[[1.0], [4.0]], [[3.0], [4.0]]], [[True], [True]], span=1).value
    0.5
    """
    checked = _as_numbers("draws", draws, n_axes=3)
    (true,) = _scored_cells(mask, truth=truth)
    where = np.asarray(mask)
    if checked.shape[1:] != where.shape or len(checked) < 2:
        raise DataError(f"draws has the shape {checked.shape}, but has to have {('at least 2', *where.shape)}.")
    units = _span_units(truth, span, mask)
    rows, columns = np.nonzero(where)
    losses, n_draws = np.empty(len(true)), len(checked)
    weights = np.arange(1 - n_draws, n_draws, 2) / (n_draws * (n_draws - 1))
    for part in gen_batches(len(true), max(1, MAX_CHUNK // n_draws)):
        cells = checked[:, rows[part], columns[part]].T  # (n_cells, n_draws)
        if not np.isfinite(cells).all():
            raise DataError("draws has scored cells that are not finite, but has to have numbers where mask is True.")
        ranked = np.sort(cells - true[part, None], axis=1)
        losses[part] = np.abs(ranked).mean(axis=1) - ranked @ weights
    return _mean_score(losses / units, mask)


def _check_ends(low: FloatArray, high: FloatArray) -> None:
    if crossed := int((low > high).sum()):
        raise DataError(f"low is above high in {crossed} scored cells, but has to be at most high.")


def coverage(truth: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, mask: npt.ArrayLike) -> Score:
    r"""Return the fraction of scored cells whose interval contains the truth.

    Parameters
    ----------
    truth, low, high : array-like of shape (n_rows, n_columns)
        True values and the closed intervals. Ends may be infinite.
    mask : array-like of bool of shape (n_rows, n_columns)
        Cells to score.

    Returns
    -------
    Score
        A fraction between 0 and 1, ideally the level of the intervals, and its standard error.

    Raises
    ------
    DataError
        When shapes differ, no cell is scored, a scored cell is NaN, or a lower end is above its upper end.

    Notes
    -----
    .. math:: c = \frac{1}{|M|} \sum_{(i, j) \in M} 1[l_{ij} \le x_{ij} \le h_{ij}] .

    With one scored cell in each of :math:`n` rows, the error is binomial: :math:`\sqrt{c (1 - c) / (n - 1)}`.

    Examples
    --------
    >>> truth = np.array([[0.0], [1.0], [2.0], [9.0]])
    >>> coverage(truth, np.zeros((4, 1)), np.full((4, 1), 3.0), np.ones((4, 1), bool))
    Score(value=0.75, error=0.25)
    """
    true, floor, ceiling = _scored_cells(mask, allow_infinite=True, truth=truth, low=low, high=high)
    _check_ends(floor, ceiling)
    return _mean_score(((floor <= true) & (true <= ceiling)).astype(np.float64), mask)


def width(low: npt.ArrayLike, high: npt.ArrayLike, mask: npt.ArrayLike, span: npt.ArrayLike) -> Score:
    r"""Return the mean width of intervals in units of each column's range.

    Parameters
    ----------
    low, high, mask, span
        As for `coverage` and `rmse`, as are the result and the errors; ends are finite.

    Notes
    -----
    .. math:: \frac{1}{|M|} \sum_{(i, j) \in M} \frac{h_{ij} - l_{ij}}{r_j} .

    Of two methods with the same coverage, the one with narrower intervals is better.

    Examples
    --------
    >>> width([[0.0], [0.0]], [[1.0], [3.0]], [[True], [True]], span=4)
    Score(value=0.5, error=0.25)
    """
    floor, ceiling = _scored_cells(mask, low=low, high=high)
    _check_ends(floor, ceiling)
    return _mean_score((ceiling - floor) / _cell_units("span", span, mask), mask)


def _check_rows(least: int, **tables: npt.ArrayLike) -> list[FloatArray]:
    checked = [_as_numbers(name, given) for name, given in tables.items()]
    for name, table in zip(tables, checked, strict=True):
        if len(table) < least or table.shape[1] == 0:
            raise DataError(f"{name} has the shape {table.shape}, but has to have at least {least} rows and 1 column.")
        if bad := int((~np.isfinite(table)).sum()):
            raise DataError(f"{name} has {bad} cells that are not finite, but all have to be numbers.")
    widths = [table.shape[1] for table in checked]
    if len(set(widths)) > 1:
        raise DataError(f"{' and '.join(tables)} have {widths} columns, but have to have the same number.")
    return checked


def energy_distance(x: npt.ArrayLike, y: npt.ArrayLike) -> Score:
    r"""Return the unbiased energy distance between two samples of rows.

    Parameters
    ----------
    x : array-like of shape (n_rows, n_columns)
        A sample of at least four rows.
    y : array-like of shape (m_rows, n_columns)
        A second sample, independent of the first, with columns in the same units.

    Returns
    -------
    Score
        The distance and its standard error. Its expectation is 0 for samples of one distribution, so it can be
        negative.

    Raises
    ------
    DataError
        When there are too few rows, the columns of `x` and `y` differ, or a cell is not finite.

    Notes
    -----
    .. math:: D = \frac{2}{n m} \sum_{i, j} |x_i - y_j| - \frac{1}{n (n - 1)} \sum_{i \ne j} |x_i - x_j|
                  - \frac{1}{m (m - 1)} \sum_{i \ne j} |y_i - y_j| .

    The error is that of a U-statistic. Let :math:`a_i` and :math:`b_j` be twice the mean distance of a row to the
    other sample minus twice that to its own sample, and :math:`A`, :math:`B`, :math:`C` the mean squares of the doubly
    centred distances within x, between x and y, and within y. Then

    .. math:: \mathrm{error}^2 = \frac{\mathrm{var}(a)}{n} + \frac{\mathrm{var}(b)}{m}
              - \frac{4 B}{n m} - \frac{2 A}{n (n - 1)} - \frac{2 C}{m (m - 1)},

    and at least the sum of the absolute values of the last three terms, the second-order part, which alone remains
    when both distributions are equal. This lower bound makes the error conservative near 0.

    Distances are computed in chunks: time grows as :math:`(n + m)^2`, memory as :math:`n + m`. Reference: Székely and
    Rizzo, Energy statistics, 2013.

    Examples
    --------
    >>> rows = np.arange(8.0).reshape(4, 2)
    >>> near, far = energy_distance(rows, rows[::-1] + 0.5), energy_distance(rows, rows + 9)
    >>> bool(near.value < far.value)
    True
    """
    first, second = _check_rows(4, x=x, y=y)
    n, m = len(first), len(second)
    own_x, _, squares_x = _distance_sums(first, first)
    own_y, _, squares_y = _distance_sums(second, second)
    cross_x, cross_y, squares = _distance_sums(first, second)
    value = 2 * cross_x.sum() / (n * m) - own_x.sum() / (n * (n - 1)) - own_y.sum() / (m * (m - 1))
    between = squares - cross_x @ cross_x / m - cross_y @ cross_y / n + cross_x.sum() ** 2 / (n * m)
    second_order = 4 * max(between, 0.0) / ((n - 1) * (m - 1) * n * m)
    second_order += 2 * _centred_square(own_x, squares_x) / (n * (n - 1))
    second_order += 2 * _centred_square(own_y, squares_y) / (m * (m - 1))
    linear = np.var(2 * (cross_x / m - own_x / (n - 1)), ddof=1) / n
    linear += np.var(2 * (cross_y / n - own_y / (m - 1)), ddof=1) / m
    variance = max(linear - second_order, second_order)
    return Score(float(value), math.sqrt(variance))


def _distance_sums(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return the sums of distances per row of `x` and per row of `y`, and the sum of squared distances."""
    by_x, by_y, squares = np.empty(len(x)), np.zeros(len(y)), 0.0
    for batch in gen_batches(len(x), max(1, MAX_CHUNK // len(y))):
        distances = cdist(x[batch], y)  # (n_batch, m_rows)
        by_x[batch] = distances.sum(axis=1)
        by_y += distances.sum(axis=0)
        squares += float(np.vdot(distances, distances))
    return by_x, by_y, squares


def _centred_square(sums: FloatArray, squares: float) -> float:
    """Return the unbiased mean square of the doubly centred distances within one sample."""
    n = len(sums)
    total = squares - 2 / (n - 2) * float(sums @ sums) + float(sums.sum()) ** 2 / ((n - 1) * (n - 2))
    return max(total, 0.0) / (n * (n - 3))


def energy_by_column(truth: npt.ArrayLike, filled: npt.ArrayLike, categorical: Collection[int] = ()) -> FloatArray:
    r"""Return the energy distance between a complete and an imputed table as parts of the columns.

    Parameters
    ----------
    truth, filled : array-like of shape (n_rows, n_columns)
        The complete and the imputed table, with the same rows.
    categorical : collection of int, optional
        Positions of the columns that hold codes of categories.

    Returns
    -------
    ndarray of shape (n_columns,)
        Parts that add up to the distance; lower is better. A large part means that the cells of this column, or its
        relations to others, differ from the complete table. Parts of columns without missing cells can be negative.

    Raises
    ------
    DataError, ParameterError
        When shapes differ, a cell is not finite, no column of `truth` varies, or `categorical` is no position.

    Notes
    -----
    Categories become indicators, and columns are standardised by `truth`. With complete rows :math:`x_i` and imputed
    rows :math:`y_i`, the distance is that of Grzesiak, Muller, Josse and Näf, Do we need dozens of methods for real
    world missing value imputation? (2025), and distances of rows are split by columns:

    .. math:: E = \frac{1}{2 n} \sum_{i, k} \bigl(2 |x_i - y_k| - |x_i - x_k| - |y_i - y_k|\bigr), \qquad
              |a - b| = \sum_j \frac{(a_j - b_j)^2}{|a - b|} .

    Draws with the right spread and relations are closer than the best point fill. Use `energy_distance` for two
    independent samples.

    Examples
    --------
    >>> truth = np.random.default_rng(0).normal(size=(100, 3))
    >>> int(energy_by_column(truth, truth * [1, 1, 0]).argmax())
    2
    """
    true, fill = _check_rows(2, truth=truth, filled=filled)
    if true.shape != fill.shape:
        raise DataError(f"truth has the shape {true.shape} and filled {fill.shape}, but both have to have the same.")
    _check_positions(categorical, true.shape[1])
    codes = [(k, code) for k, cells in enumerate(true.T) for code in (np.unique(cells) if k in categorical else [None])]
    x, y = (np.column_stack([t[:, k] if c is None else t[:, k] == c for k, c in codes]) * 1.0 for t in (true, fill))
    varies = np.ptp(x, axis=0) > 0
    if not varies.any():
        raise DataError("No column of truth varies, so there is no unit for a distance.")
    centre, spread = x.mean(axis=0)[varies], x[:, varies].std(axis=0, ddof=1)
    x, y = (x[:, varies] - centre) / spread, (y[:, varies] - centre) / spread
    parts = (2 * _split_distances(x, y) - _split_distances(x, x) - _split_distances(y, y)) / (2 * len(x))
    by_column: FloatArray = np.zeros(true.shape[1])
    np.add.at(by_column, np.array([k for k, _ in codes])[varies], parts)
    return by_column


def _split_distances(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the sum over all pairs of rows of the squared difference in a column over the distance, (n_columns,)."""
    found = np.zeros(x.shape[1])
    for batch in gen_batches(len(x), max(1, MAX_CHUNK // len(y))):
        part = x[batch]
        distances = cdist(part, y)  # (n_batch, n_rows)
        inverse = np.divide(1.0, distances, out=np.zeros_like(distances), where=distances > 0)
        found += inverse.sum(axis=1) @ part**2 + inverse.sum(axis=0) @ y**2 - 2 * (part * (inverse @ y)).sum(axis=0)
    return found


def _check_positions(categorical: Collection[int], n_columns: int) -> None:
    if wrong := [k for k in categorical if k not in range(n_columns)]:
        raise ParameterError(f"categorical has {wrong[0]!r}, but has to hold positions from 0 to {n_columns - 1}.")


def energy_i_score(values: npt.ArrayLike, draws: npt.ArrayLike, categorical: Collection[int] = ()) -> Score:
    r"""Return the energy-I-Score of draws of observed cells, which needs no complete table.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_columns)
        The incomplete table, NaN where a cell is missing.
    draws : array-like of shape (n_draws, n_rows, n_columns)
        Draws of the observed cells of incomplete columns, each column from a fit in which its observed cells were
        hidden and its missing cells were imputed, as in `mcflow.evaluation.rank_draws`. Columns of NaN are left out.
    categorical : collection of int, optional
        Positions of the columns that hold codes of categories.

    Returns
    -------
    Score
        The weighted mean over columns, at most 0, and its standard error over rows. Higher is better.

    Raises
    ------
    DataError, ParameterError
        When shapes differ, a scored draw is not finite, no column can be scored, or `categorical` is no position.

    Notes
    -----
    An observed cell :math:`x` with the draws :math:`\tilde x_1, \dots, \tilde x_N` has the score

    .. math:: - \frac1N \sum_k |\tilde x_k - x| + \frac{1}{2 N^2} \sum_{k, l} |\tilde x_k - \tilde x_l| ,

    in units of the standard deviation of the observed cells; categories are compared as indicators, in units of their
    total standard deviation. A column with the fraction :math:`p` of missing cells has the weight :math:`p (1 - p)`.
    Reference: Näf, Grzesiak and Scornet, How to rank imputation methods? (2025).

    Examples
    --------
    >>> values = np.array([[0.0], [2.0], [4.0], [np.nan]])
    >>> energy_i_score(values, [values]).value, energy_i_score(values, [values + 2]).value
    (0.0, -1.0)
    """
    cells, drawn = _as_numbers("values", values), _as_numbers("draws", draws, n_axes=3)
    if drawn.shape[1:] != cells.shape or not len(drawn):
        raise DataError(f"draws has the shape {drawn.shape}, but has to have {('n_draws', *cells.shape)}.")
    _check_positions(categorical, cells.shape[1])
    known = ~np.isnan(cells)
    weights = known.mean(axis=0) * (1 - known.mean(axis=0)) * ~np.isnan(drawn).all(axis=(0, 1))
    if not weights.any():
        raise DataError("No column has missing cells, observed cells and draws, so there is nothing to score.")
    value, residuals = 0.0, np.zeros(len(cells))
    for k in np.flatnonzero(weights):
        here, share = known[:, k], weights[k] / weights.sum()
        losses = energy_losses(cells[here, k], drawn[:, here, k], categorical=k in categorical)
        value -= share * losses.mean()
        residuals[here] += share * (losses - losses.mean()) / len(losses)
    n = len(cells)
    return Score(float(value), math.sqrt(n / (n - 1) * float(residuals @ residuals)))


def energy_losses(cells: FloatArray, draws: FloatArray, *, categorical: bool) -> FloatArray:
    """Return the negated energy score of each observed cell of one column in standardised units.

    Parameters
    ----------
    cells : ndarray of shape (n_cells,)
        The observed values.
    draws : ndarray of shape (n_draws, n_cells)
        Draws of the same cells.
    categorical : bool
        Whether the values are codes of categories.

    Returns
    -------
    ndarray of shape (n_cells,)
        Smaller is better.
    """
    if not np.isfinite(draws).all():
        raise DataError("draws has scored cells that are not finite, but has to have numbers where cells are observed.")
    if categorical:
        codes, counts = np.unique(cells, return_counts=True)
        unit = math.sqrt((1 - float(((counts / len(cells)) ** 2).sum())) / 2)
        shares = [(draws == code).mean(axis=0) for code in np.union1d(codes, draws)]
        losses = (draws != cells).mean(axis=0) - (1 - np.square(shares).sum(axis=0)) / 2
    else:
        unit = float(np.std(cells, ddof=1)) if len(cells) > 1 else 0.0
        weights = np.arange(1 - len(draws), len(draws), 2) / len(draws) ** 2
        losses = np.abs(draws - cells).mean(axis=0) - weights @ np.sort(draws, axis=0)
    return np.asarray(losses / (unit or 1.0))


def correlation_error(truth: npt.ArrayLike, filled: npt.ArrayLike) -> Score:
    r"""Return the root mean squared difference between the correlations of two tables.

    Parameters
    ----------
    truth, filled : array-like of shape (n_rows, n_columns)
        The true and the filled table, with the same rows and at least two columns.

    Returns
    -------
    Score
        The difference over all pairs of columns, and its standard error.

    Raises
    ------
    DataError
        When shapes differ, a cell is not finite, a column is constant, or there are too few rows or columns.

    Notes
    -----
    With :math:`\Delta = \hat R - R` and :math:`d` columns,

    .. math:: e = \sqrt{ \frac{2}{d (d - 1)} \sum_{j < k} \Delta_{jk}^2 } .

    The error follows from the delta method: with :math:`z` a standardised row, the influence of a row on
    :math:`R_{jk}` is :math:`z_j z_k - R_{jk} (z_j^2 + z_k^2) / 2`. Rows are paired. The error is approximate when
    :math:`e` is close to 0.

    Examples
    --------
    >>> truth = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    >>> round(correlation_error(truth, truth * [1, -1]).value, 6)
    2.0
    """
    true, fill = _check_rows(3, truth=truth, filled=filled)
    if true.shape != fill.shape or true.shape[1] < 2:
        raise DataError(
            f"truth has the shape {true.shape} and filled {fill.shape}, but both have to have the same rows and at "
            "least 2 columns."
        )
    before, after = _standardise("truth", true), _standardise("filled", fill)
    n_rows, n_columns = true.shape
    difference = (after.T @ after - before.T @ before) / n_rows
    np.fill_diagonal(difference, 0.0)
    n_pairs = n_columns * (n_columns - 1)
    value = math.sqrt(float(np.vdot(difference, difference)) / n_pairs)
    if value == 0:
        return Score(0.0, 0.0)
    influence = (_influence(after, difference) - _influence(before, difference)) / (n_pairs * value)
    return Score(value, float(np.std(influence, ddof=1)) / math.sqrt(n_rows))


def _standardise(name: str, table: FloatArray) -> FloatArray:
    constant = np.ptp(table, axis=0) == 0
    if constant.any():
        raise DataError(f"{name} does not vary in column {int(np.argmax(constant))}, so it has no correlations there.")
    return np.asarray((table - table.mean(axis=0)) / table.std(axis=0))


def _influence(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the influence of each row on the weighted sum of the correlations, (n_rows,)."""
    correlations = rows.T @ rows / len(rows)
    return np.asarray(((rows @ weights) * rows).sum(axis=1) - rows**2 @ (weights * correlations).sum(axis=1))
