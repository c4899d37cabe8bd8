"""Errors of distributions: draws and intervals for cells, and samples of rows."""

from __future__ import annotations

__all__ = [
    "correlation_error",
    "coverage",
    "coverage_by_column",
    "crps",
    "crps_by_column",
    "energy_distance",
    "pinball",
    "sliced_wasserstein",
    "width",
]

import math

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from mcflow.config import Interval
from mcflow.errors import DataError, ParameterError
from mcflow.metrics.pointwise import (
    Score,
    by_column,
    check_table,
    column_scale,
    column_span,
    mean_score,
    root_score,
    scored_cells,
)
from mcflow.random import seed_from
from mcflow.typing import FloatArray, RandomState

# Numbers in a temporary array: 8 MB of float64.
_CHUNK = 2**20


def crps(truth: npt.ArrayLike, draws: npt.ArrayLike, mask: npt.ArrayLike, span: npt.ArrayLike | None = None) -> Score:
    r"""Return the fair continuous ranked probability score of draws, in units of each column's range.

    Parameters
    ----------
    truth : array-like of shape (n_rows, n_columns)
        The true values.
    draws : array-like of shape (n_draws, n_rows, n_columns)
        At least two independent draws of every scored cell.
    mask : array-like of shape (n_rows, n_columns)
        Boolean, True where a cell was hidden and is scored.
    span : float or array-like of shape (n_columns,), optional
        The columns' maximum minus minimum in the complete data; by default that of `truth`. 1 keeps the columns' units.

    Returns
    -------
    Score
        The mean over cells and its standard error. Lower is better.

    Raises
    ------
    DataError
        When shapes differ, nothing is scored, a scored cell is not finite or there are fewer than two draws.
    ParameterError
        When a scored column has no span.

    Notes
    -----
    For one cell with the truth :math:`y` and :math:`m` draws, sorted as :math:`x_{(1)} \le \dots \le x_{(m)}`,

    .. math:: \frac1m \sum_k |x_k - y| - \frac{1}{2 m (m - 1)} \sum_{k, l} |x_k - x_l|, \qquad
              \sum_{k, l} |x_k - x_l| = 2 \sum_k (2 k - m - 1)\, x_{(k)} .

    Dividing by :math:`m (m - 1)`, not by :math:`m^2`, makes the expectation that of infinitely many draws, so that
    methods with different numbers of draws compare fairly (Ferro, Fair scores for ensemble forecasts, 2014). A single
    cell's score may be negative.

    Examples
    --------
    >>> crps([[0.0], [4.0]], [[[1.0], [4.0]], [[3.0], [4.0]]], [[True], [True]], span=1).value
    0.5
    """
    checked = check_table("draws", draws, n_axes=3)
    (true,) = scored_cells(mask, truth=truth)
    where = np.asarray(mask)
    if checked.shape[1:] != where.shape or len(checked) < 2:
        raise DataError(f"draws has the shape {checked.shape}, but has to have {('at least 2', *where.shape)}.")
    unit = column_scale("span", column_span(truth) if span is None else span, mask)
    rows, columns = np.nonzero(where)
    losses = np.empty(len(true))
    step = max(1, _CHUNK // len(checked))
    for start in range(0, len(true), step):
        part = slice(start, start + step)
        cells = checked[:, rows[part], columns[part]].T  # (n_cells, n_draws)
        if not np.isfinite(cells).all():
            raise DataError("draws has scored cells that are not finite, but has to have numbers where mask is True.")
        losses[part] = _fair_crps(cells - true[part, None])
    return mean_score(losses / unit, mask)


def _fair_crps(gaps: FloatArray) -> FloatArray:
    """Score each row of draws from which the truth was subtracted."""
    n_draws = gaps.shape[1]
    ranked = np.sort(gaps, axis=1)
    weights = np.arange(1 - n_draws, n_draws, 2) / (n_draws * (n_draws - 1))
    losses: FloatArray = np.abs(ranked).mean(axis=1) - ranked @ weights
    return losses


def crps_by_column(
    truth: npt.ArrayLike, draws: npt.ArrayLike, mask: npt.ArrayLike, span: npt.ArrayLike | None = None
) -> list[Score]:
    """Return `crps` for each column, as a list; NaN where a column has no scored cell.

    Examples
    --------
    >>> truth, draws = np.zeros((1, 2)), np.array([[[1.0, 0.0]], [[3.0, 0.0]]])
    >>> [score.value for score in crps_by_column(truth, draws, np.ones((1, 2), bool), span=1)]
    [1.0, 0.0]
    """
    return by_column(crps, truth, draws, mask=mask, span=span)


def pinball(
    truth: npt.ArrayLike,
    quantiles: npt.ArrayLike,
    mask: npt.ArrayLike,
    level: float,
    span: npt.ArrayLike | None = None,
) -> Score:
    r"""Return the pinball loss of one quantile, in units of each column's range.

    Parameters
    ----------
    truth, quantiles : array-like of shape (n_rows, n_columns)
        The true values and the quantiles that were foretold.
    mask : array-like of shape (n_rows, n_columns)
        Boolean, True where a cell was hidden and is scored.
    level : float
        The quantiles' level, between 0 and 1.
    span : float or array-like of shape (n_columns,), optional
        As in `crps`.

    Returns
    -------
    Score
        The mean over cells and its standard error. Lower is better.

    Raises
    ------
    DataError
        When shapes differ, nothing is scored or a scored cell is not finite.
    ParameterError
        When the level is not between 0 and 1 or a scored column has no span.

    Notes
    -----
    With the level :math:`\tau`, the truth :math:`y` and its quantile :math:`q`,

    .. math:: \ell_\tau(y, q) = \max\big(\tau (y - q),\, (\tau - 1) (y - q)\big), \qquad
              \mathrm{CRPS} = 2 \int_0^1 \ell_\tau(y, q_\tau)\, d\tau .

    Examples
    --------
    >>> pinball([[0.0], [4.0]], [[1.0], [3.0]], [[True], [True]], level=0.9, span=1).value
    0.5
    """
    if not Interval(float, 0, 1, low_open=True).allows(level) or level == 1:
        raise ParameterError(f"level is {level!r}, but has to be a number above 0 and below 1.")
    true, quantile = scored_cells(mask, truth=truth, quantiles=quantiles)
    unit = column_scale("span", column_span(truth) if span is None else span, mask)
    gap = (true - quantile) / unit
    return mean_score(np.maximum(level * gap, (level - 1) * gap), mask)


def _check_ends(low: FloatArray, high: FloatArray) -> None:
    if crossed := int((low > high).sum()):
        raise DataError(f"low is above high in {crossed} scored cells, but has to be at most high.")


def coverage(truth: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, mask: npt.ArrayLike) -> Score:
    r"""Return the share of scored cells whose interval holds the truth.

    Parameters
    ----------
    truth, low, high : array-like of shape (n_rows, n_columns)
        The true values and both ends of their intervals, which count as inside. Ends may be infinite.
    mask : array-like of shape (n_rows, n_columns)
        Boolean, True where a cell was hidden and is scored.

    Returns
    -------
    Score
        A share between 0 and 1, at best the intervals' level, and its standard error.

    Raises
    ------
    DataError
        When shapes differ, nothing is scored, a scored cell is NaN or an interval's low end is above its high end.

    Notes
    -----
    .. math:: c = \frac{1}{|M|} \sum_{(i, j) \in M} 1[l_{ij} \le x_{ij} \le h_{ij}] .

    With one scored cell in each of :math:`n` rows the error is the binomial one, :math:`\sqrt{c (1 - c) / (n - 1)}`.

    Examples
    --------
    >>> truth = np.array([[0.0], [1.0], [2.0], [9.0]])
    >>> coverage(truth, np.zeros((4, 1)), np.full((4, 1), 3.0), np.ones((4, 1), bool))
    Score(value=0.75, error=0.25)
    """
    true, floor, ceiling = scored_cells(mask, endless=True, truth=truth, low=low, high=high)
    _check_ends(floor, ceiling)
    return mean_score(((floor <= true) & (true <= ceiling)).astype(np.float64), mask)


def coverage_by_column(
    truth: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, mask: npt.ArrayLike
) -> list[Score]:
    """Return `coverage` for each column, as a list; NaN where a column has no scored cell.

    Examples
    --------
    >>> truth = np.array([[0.0, 5.0], [1.0, 0.5]])
    >>> [score.value for score in coverage_by_column(truth, 0 * truth, 0 * truth + 2, truth >= 0)]
    [1.0, 0.5]
    """
    return by_column(coverage, truth, low, high, mask=mask)


def width(low: npt.ArrayLike, high: npt.ArrayLike, mask: npt.ArrayLike, span: npt.ArrayLike) -> Score:
    r"""Return the mean width of intervals in units of each column's range.

    Parameters
    ----------
    low, high : array-like of shape (n_rows, n_columns)
        Both ends of the intervals.
    mask : array-like of shape (n_rows, n_columns)
        Boolean, True where a cell was hidden and is scored.
    span : float or array-like of shape (n_columns,)
        The columns' maximum minus minimum in the complete data. 1 keeps the columns' units.

    Returns
    -------
    Score
        The mean over cells and its standard error. Of two methods with the same coverage, the narrower is better.

    Raises
    ------
    DataError
        When shapes differ, nothing is scored, or a scored cell's ends are not finite or change places.
    ParameterError
        When a scored column has no span.

    Notes
    -----
    .. math:: \frac{1}{|M|} \sum_{(i, j) \in M} \frac{h_{ij} - l_{ij}}{r_j} .

    Examples
    --------
    >>> width([[0.0], [0.0]], [[1.0], [3.0]], [[True], [True]], span=4)
    Score(value=0.5, error=0.25)
    """
    floor, ceiling = scored_cells(mask, low=low, high=high)
    _check_ends(floor, ceiling)
    return mean_score((ceiling - floor) / column_scale("span", span, mask), mask)


def _check_rows(least: int, **tables: npt.ArrayLike) -> list[FloatArray]:
    checked = [check_table(name, given) for name, given in tables.items()]
    for name, table in zip(tables, checked, strict=True):
        if len(table) < least or table.shape[1] == 0:
            raise DataError(f"{name} has the shape {table.shape}, but has to have {least} rows and 1 column or more.")
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
        Another, independent of the first. Bring the columns of both to one unit before.

    Returns
    -------
    Score
        The distance and its standard error. It is 0 on average for samples of one distribution, so it may be negative.

    Raises
    ------
    DataError
        When there are too few rows, other columns in `y` than in `x`, or cells that are not finite.

    Notes
    -----
    .. math:: D = \frac{2}{n m} \sum_{i, j} |x_i - y_j| - \frac{1}{n (n - 1)} \sum_{i \ne j} |x_i - x_j|
                  - \frac{1}{m (m - 1)} \sum_{i \ne j} |y_i - y_j| .

    The error is that of a U-statistic. With :math:`a_i` and :math:`b_j` twice the mean distance of a row to the other
    sample less twice that to its own, and :math:`A`, :math:`B`, :math:`C` the mean squares of the doubly centred
    distances within x, between x and y, and within y,

    .. math:: \mathrm{error}^2 = \frac{\mathrm{var}(a)}{n} + \frac{\mathrm{var}(b)}{m}
              - \frac{4 B}{n m} - \frac{2 A}{n (n - 1)} - \frac{2 C}{m (m - 1)},

    and no less than its second-order part, the last three terms without their sign, which alone remains when both
    distributions are the same. This floor makes the error cautious near 0.

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
    """Return the sums of distances by row of `x` and by row of `y`, and the sum of their squares."""
    by_x, by_y, squares = np.empty(len(x)), np.zeros(len(y)), 0.0
    step = max(1, _CHUNK // len(y))
    for start in range(0, len(x), step):
        distances = cdist(x[start : start + step], y)  # (step, m_rows)
        by_x[start : start + step] = distances.sum(axis=1)
        by_y += distances.sum(axis=0)
        squares += float(np.vdot(distances, distances))
    return by_x, by_y, squares


def _centred_square(sums: FloatArray, squares: float) -> float:
    """Return the unbiased mean square of the centred distances within one sample."""
    n = len(sums)
    total = squares - 2 / (n - 2) * float(sums @ sums) + float(sums.sum()) ** 2 / ((n - 1) * (n - 2))
    return max(total, 0.0) / (n * (n - 3))


def sliced_wasserstein(
    x: npt.ArrayLike, y: npt.ArrayLike, n_projections: int = 128, random_state: RandomState = None
) -> Score:
    r"""Return the sliced Wasserstein distance of order 2 between two samples of rows.

    Parameters
    ----------
    x : array-like of shape (n_rows, n_columns)
        A sample of rows.
    y : array-like of shape (m_rows, n_columns)
        Another. Bring the columns of both to one unit before.
    n_projections : int
        Random directions, at least 2.
    random_state : int, numpy Generator, numpy RandomState or None
        Where the directions come from.

    Returns
    -------
    Score
        The distance, and its standard error over directions; the samples are taken as they are.

    Raises
    ------
    DataError
        When there are no rows, other columns in `y` than in `x`, or cells that are not finite.
    ParameterError
        When there are fewer than two projections, or the random state is of another type.

    Notes
    -----
    With :math:`F_\theta^{-1}` and :math:`G_\theta^{-1}` the quantile functions of both samples along a direction,

    .. math:: \mathrm{SW}_2 = \sqrt{ \mathbb{E}_\theta \int_0^1
              \big( F_\theta^{-1}(u) - G_\theta^{-1}(u) \big)^2 du } .

    The integral is exact, whatever the numbers of rows. Samples of one distribution have a distance above 0 that
    shrinks as they grow; compare with the distance between two halves of the truth.

    Examples
    --------
    >>> rows = np.arange(6.0).reshape(3, 2)
    >>> sliced_wasserstein(rows, rows, random_state=0).value
    0.0
    """
    first, second = _check_rows(1, x=x, y=y)
    allowed = Interval(int, 2)
    if not allowed.allows(n_projections):
        raise ParameterError(f"n_projections is {n_projections!r}, but has to be {allowed}.")
    rng = np.random.default_rng(seed_from(random_state))
    directions = rng.normal(size=(n_projections, first.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    step = max(1, _CHUNK // (len(first) + len(second)))
    chunks = [directions[start : start + step] for start in range(0, n_projections, step)]
    squares = np.concatenate([_squared_distances(first @ chunk.T, second @ chunk.T) for chunk in chunks])
    return root_score(mean_score(squares, np.ones((n_projections, 1), dtype=np.bool_)))


def _squared_distances(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the squared Wasserstein distance of order 2 between each column of `x` and that of `y`."""
    n, m = len(x), len(y)
    # Both quantile functions are steps; in units of 1 / nm every step begins at a whole number.
    ends = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    begins = ends[:-1]
    gaps = np.sort(x, axis=0)[begins // m] - np.sort(y, axis=0)[begins // n]
    squares: FloatArray = np.diff(ends) @ gaps**2 / (n * m)
    return squares


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
        When shapes differ, a cell is not finite, a column does not vary, or there are too few rows or columns.

    Notes
    -----
    With :math:`\Delta = \hat R - R` and :math:`d` columns,

    .. math:: e = \sqrt{ \frac{2}{d (d - 1)} \sum_{j < k} \Delta_{jk}^2 } .

    The error is the delta method's: with :math:`z` a standardised row, the influence of a row on :math:`R_{jk}` is
    :math:`z_j z_k - R_{jk} (z_j^2 + z_k^2) / 2`. It takes the rows as paired, and :math:`e` as well above 0: close to
    0 it is rough.

    Examples
    --------
    >>> truth = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    >>> round(correlation_error(truth, truth * [1, -1]).value, 6)
    2.0
    """
    true, guess = _check_rows(3, truth=truth, filled=filled)
    if true.shape != guess.shape or true.shape[1] < 2:
        raise DataError(
            f"truth has the shape {true.shape} and filled {guess.shape}, but both have to have the same rows and at "
            "least 2 columns."
        )
    before, after = _standardise("truth", true), _standardise("filled", guess)
    n_rows, n_columns = true.shape
    gap = (after.T @ after - before.T @ before) / n_rows
    np.fill_diagonal(gap, 0.0)
    n_pairs = n_columns * (n_columns - 1)
    value = math.sqrt(float(np.vdot(gap, gap)) / n_pairs)
    if value == 0:
        return Score(0.0, 0.0)
    influence = (_influence(after, gap) - _influence(before, gap)) / (n_pairs * value)
    return Score(value, float(np.std(influence, ddof=1)) / math.sqrt(n_rows))


def _standardise(name: str, table: FloatArray) -> FloatArray:
    constant = np.ptp(table, axis=0) == 0
    if constant.any():
        raise DataError(f"{name} does not vary in column {int(np.argmax(constant))}, so it has no correlations there.")
    scaled: FloatArray = (table - table.mean(axis=0)) / table.std(axis=0)
    return scaled


def _influence(rows: FloatArray, gap: FloatArray) -> FloatArray:
    """Return each row's influence on the correlations, summed with the weights `gap`."""
    correlations = rows.T @ rows / len(rows)
    influence: FloatArray = ((rows @ gap) * rows).sum(axis=1) - rows**2 @ (gap * correlations).sum(axis=1)
    return influence
