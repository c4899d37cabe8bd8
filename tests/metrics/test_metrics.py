"""Every measure against a closed form or a slow reference, and its standard error against repetitions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mcflow import metrics
from mcflow.errors import DataError, ParameterError
from mcflow.metrics import Score

seeds = st.integers(0, 2**32 - 1)
quick = settings(max_examples=20)


def make_cells(seed: int, n_rows: int = 30, n_columns: int = 3, n_draws: int = 5):
    """A truth, a fill, a mask and draws; cells that are not scored are NaN in the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n_rows, n_columns)) * [1, 10, 0.1][:n_columns]
    mask = rng.random(truth.shape) < 0.5
    mask[:2] = True
    filled = truth + rng.normal(size=truth.shape)
    draws = truth + rng.normal(size=(n_draws, *truth.shape))
    truth[~mask & (rng.random(truth.shape) < 0.3)] = np.nan
    return truth, filled, mask, draws


def slow_mean(loss: Callable[[int, int], float], mask: np.ndarray) -> float:
    return float(np.mean([loss(i, j) for i in range(mask.shape[0]) for j in range(mask.shape[1]) if mask[i, j]]))


def check_error(measure: Callable[[np.random.Generator], Score], repeats: int = 400, rtol: float = 0.15) -> np.ndarray:
    """Compare the reported error with the standard deviation over repetitions; return the values."""
    rng = np.random.default_rng(7)
    scores = [measure(rng) for _ in range(repeats)]
    values = np.array([score.value for score in scores])
    reported = math.sqrt(np.mean([score.error**2 for score in scores]))
    assert reported == pytest.approx(values.std(ddof=1), rel=rtol)
    return values


# Cells


def test_rmse_and_mae_equal_a_loop() -> None:
    truth, filled, mask, _ = make_cells(0)
    span = [np.nanmax(truth[:, j]) - np.nanmin(truth[:, j]) for j in range(3)]
    deviation = [np.nanstd(truth[:, j]) for j in range(3)]
    square = slow_mean(lambda i, j: ((filled[i, j] - truth[i, j]) / span[j]) ** 2, mask)
    assert metrics.rmse(truth, filled, mask).value == pytest.approx(math.sqrt(square))
    square = slow_mean(lambda i, j: ((filled[i, j] - truth[i, j]) / deviation[j]) ** 2, mask)
    assert metrics.standardised_rmse(truth, filled, mask).value == pytest.approx(math.sqrt(square))
    assert metrics.standardised_rmse(truth, filled, mask, deviation).value == pytest.approx(math.sqrt(square))
    absolute = slow_mean(lambda i, j: abs(filled[i, j] - truth[i, j]) / span[j], mask)
    assert metrics.mae(truth, filled, mask).value == pytest.approx(absolute)
    assert metrics.mae(truth, filled, mask, span).value == pytest.approx(absolute)


def test_category_error_is_the_fraction_of_wrong_codes() -> None:
    rng = np.random.default_rng(0)
    truth, filled = rng.integers(0, 3, (2, 40, 2))
    mask = rng.random((40, 2)) < 0.6
    slow = slow_mean(lambda i, j: float(truth[i, j] != filled[i, j]), mask)
    assert metrics.category_error(truth, filled, mask).value == pytest.approx(slow)


def test_crps_equals_a_loop_over_pairs(monkeypatch) -> None:
    truth, _, mask, draws = make_cells(1)
    m = len(draws)

    def slow(i: int, j: int) -> float:
        x = draws[:, i, j]
        return np.abs(x - truth[i, j]).mean() - np.abs(x[:, None] - x).sum() / (2 * m * (m - 1))

    expected = slow_mean(slow, mask)
    score = metrics.crps(truth, draws, mask, span=1)
    assert score.value == pytest.approx(expected)
    monkeypatch.setattr(metrics, "MAX_CHUNK", 17)
    assert metrics.crps(truth, draws, mask, span=1) == score


@pytest.mark.parametrize("n_draws", [2, 5, 30])
def test_crps_of_normal_draws_is_the_closed_form_for_any_number(n_draws) -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(20_000, 1))
    draws = 0.5 + 2 * rng.normal(size=(n_draws, 20_000, 1))
    z = (truth - 0.5) / 2
    closed = 2 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    score = metrics.crps(truth, draws, np.ones_like(truth, dtype=bool), span=1)
    assert abs(score.value - closed.mean()) < 4 * score.error


def test_coverage_and_width_equal_a_loop_and_the_error_is_binomial() -> None:
    truth, filled, mask, _ = make_cells(3)
    low, high = filled - 0.7, filled + 0.9
    slow = slow_mean(lambda i, j: float(low[i, j] <= truth[i, j] <= high[i, j]), mask)
    assert metrics.coverage(truth, low, high, mask).value == pytest.approx(slow)
    slow = slow_mean(lambda i, j: 1.6 / [1, 2, 4][j], mask)
    assert metrics.width(low, high, mask, [1, 2, 4]).value == pytest.approx(slow)
    one = np.arange(100.0)[:, None]
    score = metrics.coverage(one, np.full_like(one, -np.inf), np.full_like(one, 79.0), one >= 0)
    assert score.value == 0.8
    assert score.error == pytest.approx(math.sqrt(0.8 * 0.2 / 99))


def test_by_column_scores_each_column_separately() -> None:
    truth, filled, mask, draws = make_cells(4)
    mask[:, 1] = False
    span = np.array([2.0, 3.0, 4.0])
    low, high = filled - 1, filled + 1
    split = {
        "rmse": metrics.by_column(metrics.rmse, truth, filled, mask=mask, span=span),
        "crps": metrics.by_column(metrics.crps, truth, draws, mask=mask),
        "coverage": metrics.by_column(metrics.coverage, truth, low, high, mask=mask),
        "category": metrics.by_column(metrics.category_error, truth, filled, mask=mask),
        "width": metrics.by_column(metrics.width, low, high, mask=mask, span=span),
    }
    for scores in split.values():
        assert math.isnan(scores[1].value)
        assert math.isnan(scores[1].error)
    one = np.s_[:, 2:]
    assert split["rmse"][2] == metrics.rmse(truth[one], filled[one], mask[one], 4.0)
    assert split["crps"][2] == metrics.crps(truth[one], draws[:, :, 2:], mask[one])
    assert split["coverage"][2] == metrics.coverage(truth[one], low[one], high[one], mask[one])
    assert split["width"][2].value == pytest.approx(0.5)
    counts = mask.sum(axis=0)[[0, 2]]
    pooled = np.average([split["crps"][0].value, split["crps"][2].value], weights=counts)
    assert metrics.crps(truth, draws, mask).value == pytest.approx(pooled)


def test_a_single_scored_row_has_no_error() -> None:
    score = metrics.mae([[1.0, 2.0]], [[2.0, 2.0]], [[True, True]], span=1)
    assert score.value == 0.5
    assert math.isnan(score.error)
    assert float(score) == 0.5


# Errors by repetition


def test_errors_of_cell_measures_hold_when_cells_of_a_row_depend_on_each_other() -> None:
    def cells(rng: np.random.Generator):
        truth = rng.normal(size=(80, 3))
        shared = rng.normal(size=(80, 1))
        mask = rng.random((80, 3)) < 0.6
        return truth, truth + shared + 0.3 * rng.normal(size=(80, 3)), mask

    check_error(lambda rng: metrics.rmse(*cells(rng), span=1))
    check_error(lambda rng: metrics.mae(*cells(rng), span=1))

    def covered(rng: np.random.Generator) -> Score:
        truth, filled, mask = cells(rng)
        return metrics.coverage(truth, filled - 1, filled + 1, mask)

    check_error(covered)


def test_error_of_crps_holds() -> None:
    def score(rng: np.random.Generator) -> Score:
        draws, truth = rng.normal(size=(4, 100, 1)), rng.normal(size=(100, 1))
        return metrics.crps(truth, draws, np.ones((100, 1), dtype=bool), span=1)

    values = check_error(score)
    # Two independent standard normals: E|X - Y| / 2 is the expected score.
    assert values.mean() == pytest.approx(1 / math.sqrt(math.pi), abs=4 * values.std() / 20)


def normal_energy(rng: np.random.Generator, shift: float) -> Score:
    return metrics.energy_distance(rng.normal(size=(40, 1)), shift + rng.normal(size=(60, 1)))


@pytest.mark.parametrize("shift", [0.5, 1.0])
def test_energy_distance_of_two_normals_is_unbiased_and_its_error_holds(shift) -> None:
    values = check_error(lambda rng: normal_energy(rng, shift))
    expected = 2 * stats.norm(shift, math.sqrt(2)).expect(abs) - 4 / math.sqrt(math.pi)
    assert values.mean() == pytest.approx(expected, abs=4 * values.std() / 20)


def test_energy_distance_within_one_distribution_is_0_on_average_and_its_error_conservative() -> None:
    rng = np.random.default_rng(0)
    scores = [normal_energy(rng, 0.0) for _ in range(400)]
    values = np.array([score.value for score in scores])
    assert abs(values.mean()) < 4 * values.std() / 20
    assert 0.9 * values.std() < np.median([score.error for score in scores]) < 1.4 * values.std()


def test_error_of_correlation_error_holds() -> None:
    def score(rng: np.random.Generator) -> Score:
        truth = rng.normal(size=(150, 3))
        truth[:, 1] += truth[:, 0]
        return metrics.correlation_error(truth, truth + 1.5 * rng.normal(size=truth.shape) * [1, 0, 0])

    check_error(score)


# Samples of rows


def test_energy_distance_equals_a_loop_over_pairs(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(23, 3)), rng.normal(0.5, 2, size=(31, 3))
    cross = [math.dist(a, b) for a in x for b in y]
    own = [[math.dist(a, b) for i, a in enumerate(z) for j, b in enumerate(z) if i != j] for z in (x, y)]
    slow = 2 * np.mean(cross) - np.mean(own[0]) - np.mean(own[1])
    score = metrics.energy_distance(x, y)
    assert score.value == pytest.approx(slow)
    monkeypatch.setattr(metrics, "MAX_CHUNK", 40)
    chunked = metrics.energy_distance(x, y)
    assert (chunked.value, chunked.error) == pytest.approx((score.value, score.error))


def test_centred_square_is_that_of_the_centred_matrix() -> None:
    x = np.random.default_rng(0).normal(size=(12, 2))
    d = np.linalg.norm(x[:, None] - x, axis=2)
    n = len(d)
    sums = d.sum(axis=1)
    centred = d - (sums[:, None] + sums) / (n - 2) + d.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(centred, 0)
    expected = (centred**2).sum() / (n * (n - 3))
    assert metrics._centred_square(sums, (d**2).sum()) == pytest.approx(expected)


def test_correlation_error_equals_a_loop() -> None:
    rng = np.random.default_rng(0)
    truth, filled = rng.normal(size=(2, 30, 4))
    gaps = [
        np.corrcoef(filled[:, j], filled[:, k])[0, 1] - np.corrcoef(truth[:, j], truth[:, k])[0, 1]
        for j in range(4)
        for k in range(j)
    ]
    assert metrics.correlation_error(truth, filled).value == pytest.approx(math.sqrt(np.mean(np.square(gaps))))
    assert metrics.correlation_error(truth, truth) == Score(0.0, 0.0)


# Invariances


@quick
@given(seed=seeds, shift=st.floats(-100, 100), scale=st.floats(0.01, 100))
def test_measures_of_cells_stay_when_columns_are_shifted_and_scaled(seed, shift, scale) -> None:
    truth, filled, mask, draws = make_cells(seed)

    def move(table: np.ndarray) -> np.ndarray:
        return shift + scale * table

    for measure in (metrics.rmse, metrics.standardised_rmse, metrics.mae):
        before, after = measure(truth, filled, mask), measure(move(truth), move(filled), mask)
        assert (after.value, after.error) == pytest.approx((before.value, before.error), rel=1e-6)
    before, after = metrics.crps(truth, draws, mask), metrics.crps(move(truth), move(draws), mask)
    assert (after.value, after.error) == pytest.approx((before.value, before.error), rel=1e-6, abs=1e-9)


@quick
@given(seed=seeds)
def test_measures_of_cells_stay_when_rows_and_draws_are_permuted(seed) -> None:
    truth, filled, mask, draws = make_cells(seed)
    rng = np.random.default_rng(seed)
    rows, order = rng.permutation(len(truth)), rng.permutation(len(draws))
    for measure, table in [(metrics.rmse, filled), (metrics.mae, filled), (metrics.category_error, filled)]:
        before, after = measure(truth, table, mask), measure(truth[rows], table[rows], mask[rows])
        assert (after.value, after.error) == pytest.approx((before.value, before.error))
    before, after = metrics.crps(truth, draws, mask), metrics.crps(truth[rows], draws[order][:, rows], mask[rows])
    assert (after.value, after.error) == pytest.approx((before.value, before.error))


@quick
@given(seed=seeds)
def test_measures_of_cells_do_not_read_cells_outside_the_mask(seed) -> None:
    truth, filled, mask, draws = make_cells(seed)
    other = np.where(mask, filled, np.nan)
    assert metrics.rmse(truth, other, mask) == metrics.rmse(truth, filled, mask)
    assert metrics.crps(truth, np.where(mask, draws, np.inf), mask) == metrics.crps(truth, draws, mask)


@quick
@given(seed=seeds, shift=st.floats(-100, 100), scale=st.floats(0.01, 100))
def test_distances_shift_scale_and_keep_the_order_of_rows_and_samples(seed, shift, scale) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(9, 2)), rng.normal(size=(7, 2))
    p, q = rng.permutation(9), rng.permutation(7)
    before = metrics.energy_distance(x, y)
    after = metrics.energy_distance(shift + scale * x[p], shift + scale * y[q])
    assert (after.value, after.error) == pytest.approx((scale * before.value, scale * before.error), rel=1e-6, abs=1e-8)
    swapped = metrics.energy_distance(y, x)
    assert (swapped.value, swapped.error) == pytest.approx((before.value, before.error))


@quick
@given(seed=seeds, shift=st.floats(-100, 100), scale=st.floats(0.01, 100))
def test_correlation_error_stays_when_columns_are_moved_and_rows_are_permuted(seed, shift, scale) -> None:
    rng = np.random.default_rng(seed)
    truth, filled = rng.normal(size=(2, 20, 3))
    rows = rng.permutation(20)
    before = metrics.correlation_error(truth, filled)
    after = metrics.correlation_error(truth[rows], shift + scale * filled[rows])
    assert (after.value, after.error) == pytest.approx((before.value, before.error), rel=1e-6)


# Refusals

ONE = np.ones((4, 2))
ALL = ONE > 0
GAPS = np.where(np.eye(4, 2) > 0, np.nan, 1.0)
RAMP = np.arange(8.0).reshape(4, 2)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: metrics.rmse(RAMP, RAMP[:3], ALL), DataError, r"filled has the shape \(3, 2\).*\(4, 2\)"),
        (lambda: metrics.rmse(RAMP, RAMP, ONE), DataError, "float64.*has to be boolean"),
        (lambda: metrics.rmse(RAMP, RAMP, ~ALL), DataError, "no True among its 8 cells"),
        (lambda: metrics.rmse(RAMP, GAPS, ALL), DataError, "filled is nan in 2 scored cells"),
        (lambda: metrics.rmse(RAMP / 0.1, np.full((4, 2), np.inf), ALL), DataError, "filled is inf in 8 scored"),
        (lambda: metrics.rmse(RAMP[0], RAMP[0], ALL), DataError, r"truth has the shape \(2,\)"),
        (lambda: metrics.rmse([["a"]], [["b"]], [[True]]), DataError, "truth has to be an array of numbers"),
        (lambda: metrics.rmse(ONE, ONE, ALL), ParameterError, "span is 0 in column 0"),
        (lambda: metrics.rmse(RAMP, RAMP, ALL, [1, 2, 3]), ParameterError, r"span has the shape \(3,\)"),
        (lambda: metrics.standardised_rmse(ONE / 3, ONE, ALL), ParameterError, "deviation is 0 in column 0"),
        (lambda: metrics.by_column(metrics.mae, RAMP[:, :1], mask=ALL), DataError, "last axis has to be 2"),
        (lambda: metrics.crps(RAMP, RAMP, ALL), DataError, r"draws has the shape \(4, 2\).*n_draws"),
        (lambda: metrics.crps(RAMP, RAMP[None], ALL), DataError, r"\(1, 4, 2\).*at least 2"),
        (lambda: metrics.crps(RAMP, np.stack([GAPS, ONE]), ALL), DataError, "draws has scored cells"),
        (lambda: metrics.coverage(RAMP, RAMP + 1, RAMP, ALL), DataError, "low is above high in 8"),
        (lambda: metrics.width(RAMP, RAMP + np.inf, ALL, 1), DataError, "high is inf in 8"),
        (lambda: metrics.energy_distance(RAMP[:3], RAMP), DataError, r"x has the shape \(3, 2\).*4 rows"),
        (lambda: metrics.energy_distance(RAMP, RAMP[:, :1]), DataError, r"x and y have \[2, 1\] columns"),
        (lambda: metrics.energy_distance(RAMP, GAPS), DataError, "y has 2 cells that are not finite"),
        (lambda: metrics.correlation_error(RAMP, RAMP[:3]), DataError, r"\(4, 2\) and filled \(3, 2\)"),
        (lambda: metrics.correlation_error(RAMP, ONE), DataError, "filled does not vary in column 0"),
    ],
)
def test_measures_with_invalid_input_raise_what_is_allowed(call, error, words) -> None:
    with pytest.raises(error, match=words):
        call()


def test_package_exports_what_it_lists_in_order() -> None:
    assert metrics.__all__ == sorted(metrics.__all__)
    assert all(getattr(metrics, name).__doc__ for name in metrics.__all__)
