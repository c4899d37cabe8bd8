"""Every measure against a closed form or a slow and obvious version, and its error against repetition."""

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
from mcflow.metrics import Score, distribution, downstream_score

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
    """Compare the error that is told with the spread over repetitions; return the values."""
    rng = np.random.default_rng(7)
    scores = [measure(rng) for _ in range(repeats)]
    values = np.array([score.value for score in scores])
    told = math.sqrt(np.mean([score.error**2 for score in scores]))
    assert told == pytest.approx(values.std(ddof=1), rel=rtol)
    return values


# Cells


def test_rmse_and_mae_are_what_loops_compute() -> None:
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


def test_category_error_is_the_share_of_wrong_codes() -> None:
    rng = np.random.default_rng(0)
    truth, filled = rng.integers(0, 3, (2, 40, 2))
    mask = rng.random((40, 2)) < 0.6
    slow = slow_mean(lambda i, j: float(truth[i, j] != filled[i, j]), mask)
    assert metrics.category_error(truth, filled, mask).value == pytest.approx(slow)


def test_crps_is_what_all_pairs_compute(monkeypatch) -> None:
    truth, _, mask, draws = make_cells(1)
    m = len(draws)

    def slow(i: int, j: int) -> float:
        x = draws[:, i, j]
        return np.abs(x - truth[i, j]).mean() - np.abs(x[:, None] - x).sum() / (2 * m * (m - 1))

    expected = slow_mean(slow, mask)
    score = metrics.crps(truth, draws, mask, span=1)
    assert score.value == pytest.approx(expected)
    monkeypatch.setattr(distribution, "_CHUNK", 17)
    assert metrics.crps(truth, draws, mask, span=1) == score


@pytest.mark.parametrize("n_draws", [2, 5, 30])
def test_crps_of_normal_draws_is_the_closed_form_whatever_their_number(n_draws) -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(20_000, 1))
    draws = 0.5 + 2 * rng.normal(size=(n_draws, 20_000, 1))
    z = (truth - 0.5) / 2
    closed = 2 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    score = metrics.crps(truth, draws, np.ones_like(truth, dtype=bool), span=1)
    assert abs(score.value - closed.mean()) < 4 * score.error


def test_pinball_integrates_to_crps() -> None:
    truth = np.array([[0.3], [-1.2], [2.0]])
    mask = np.ones((3, 1), dtype=bool)
    levels = (np.arange(2000) + 0.5) / 2000
    losses = [metrics.pinball(truth, np.full((3, 1), stats.norm.ppf(t)), mask, t, span=1).value for t in levels]
    closed = truth * (2 * stats.norm.cdf(truth) - 1) + 2 * stats.norm.pdf(truth) - 1 / math.sqrt(math.pi)
    assert 2 * np.mean(losses) == pytest.approx(closed.mean(), rel=1e-3)


def test_pinball_at_one_half_is_half_the_absolute_error() -> None:
    truth, filled, mask, _ = make_cells(2)
    half = metrics.pinball(truth, filled, mask, 0.5)
    assert 2 * half.value == pytest.approx(metrics.mae(truth, filled, mask).value)


def test_coverage_and_width_are_what_loops_compute_and_the_error_is_binomial() -> None:
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


def test_by_column_scores_each_column_as_if_it_were_alone() -> None:
    truth, filled, mask, draws = make_cells(4)
    mask[:, 1] = False
    span = np.array([2.0, 3.0, 4.0])
    low, high = filled - 1, filled + 1
    split = {
        "rmse": metrics.rmse_by_column(truth, filled, mask, span),
        "crps": metrics.crps_by_column(truth, draws, mask),
        "coverage": metrics.coverage_by_column(truth, low, high, mask),
        "category": metrics.category_error_by_column(truth, filled, mask),
        "pinball": metrics.by_column(metrics.pinball, truth, filled, mask=mask, level=0.2, span=span),
        "width": metrics.by_column(metrics.width, low, high, mask=mask, span=span),
    }
    for scores in split.values():
        assert math.isnan(scores[1].value)
        assert math.isnan(scores[1].error)
    one = np.s_[:, 2:]
    assert split["rmse"][2] == metrics.rmse(truth[one], filled[one], mask[one], 4.0)
    assert split["crps"][2] == metrics.crps(truth[one], draws[:, :, 2:], mask[one])
    assert split["coverage"][2] == metrics.coverage(truth[one], low[one], high[one], mask[one])
    assert split["pinball"][2] == metrics.pinball(truth[one], filled[one], mask[one], 0.2, span=4)
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


def test_energy_distance_within_one_distribution_is_0_on_average_and_its_error_cautious() -> None:
    rng = np.random.default_rng(0)
    scores = [normal_energy(rng, 0.0) for _ in range(400)]
    values = np.array([score.value for score in scores])
    assert abs(values.mean()) < 4 * values.std() / 20
    assert 0.9 * values.std() < np.median([score.error for score in scores]) < 1.4 * values.std()


def test_error_of_sliced_wasserstein_is_over_directions() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=(20, 4)) * [1, 2, 3, 4]
    check_error(lambda rng: metrics.sliced_wasserstein(x, y, 50, rng))


def test_error_of_correlation_error_holds() -> None:
    def score(rng: np.random.Generator) -> Score:
        truth = rng.normal(size=(150, 3))
        truth[:, 1] += truth[:, 0]
        return metrics.correlation_error(truth, truth + 1.5 * rng.normal(size=truth.shape) * [1, 0, 0])

    check_error(score)


# Samples of rows


def test_energy_distance_is_what_all_pairs_compute(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(23, 3)), rng.normal(0.5, 2, size=(31, 3))
    cross = [math.dist(a, b) for a in x for b in y]
    own = [[math.dist(a, b) for i, a in enumerate(z) for j, b in enumerate(z) if i != j] for z in (x, y)]
    slow = 2 * np.mean(cross) - np.mean(own[0]) - np.mean(own[1])
    score = metrics.energy_distance(x, y)
    assert score.value == pytest.approx(slow)
    monkeypatch.setattr(distribution, "_CHUNK", 40)
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
    assert distribution._centred_square(sums, (d**2).sum()) == pytest.approx(expected)


def test_sliced_wasserstein_of_one_column_is_that_of_sorted_values(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 1)), rng.normal(size=(8, 1))
    # Repeating each value brings both samples to 24 rows without changing their distributions.
    both = np.sort(np.repeat(x, 2)), np.sort(np.repeat(y, 3))
    expected = math.sqrt(np.mean((both[0] - both[1]) ** 2))
    score = metrics.sliced_wasserstein(x, y, 5, 0)
    assert score.value == pytest.approx(expected)
    assert score.error == pytest.approx(0, abs=1e-12)
    wide = metrics.sliced_wasserstein(np.hstack([x, x**2]), np.hstack([y, y**2]), 9, 3)
    monkeypatch.setattr(distribution, "_CHUNK", 45)
    chunked = metrics.sliced_wasserstein(np.hstack([x, x**2]), np.hstack([y, y**2]), 9, 3)
    assert chunked.value == pytest.approx(wide.value)


def test_sliced_wasserstein_of_a_shift_is_its_length_over_the_root_of_columns() -> None:
    x = np.random.default_rng(0).normal(size=(20, 4))
    score = metrics.sliced_wasserstein(x, x + np.array([3, 0, 0, 4]), 4000, 0)
    assert abs(score.value - 5 / 2) < 4 * score.error


def test_correlation_error_is_what_loops_compute() -> None:
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
    before, after = metrics.pinball(truth, filled, mask, 0.3), metrics.pinball(move(truth), move(filled), mask, 0.3)
    assert after.value == pytest.approx(before.value, rel=1e-6)


@quick
@given(seed=seeds)
def test_measures_of_cells_stay_when_rows_and_draws_change_places(seed) -> None:
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
    sliced = metrics.sliced_wasserstein(x, y, 8, 0)
    after = metrics.sliced_wasserstein(shift + scale * x[p], shift + scale * y[q], 8, 0)
    assert after.value == pytest.approx(scale * sliced.value, rel=1e-6)
    assert metrics.sliced_wasserstein(y, x, 8, 0).value == pytest.approx(sliced.value)


@quick
@given(seed=seeds, shift=st.floats(-100, 100), scale=st.floats(0.01, 100))
def test_correlation_error_stays_when_columns_are_moved_and_rows_change_places(seed, shift, scale) -> None:
    rng = np.random.default_rng(seed)
    truth, filled = rng.normal(size=(2, 20, 3))
    rows = rng.permutation(20)
    before = metrics.correlation_error(truth, filled)
    after = metrics.correlation_error(truth[rows], shift + scale * filled[rows])
    assert (after.value, after.error) == pytest.approx((before.value, before.error), rel=1e-6)


# Models


def make_task(seed: int = 0, n_rows: int = 400):
    """Rows whose first column is missing by a rule that tells of y, filled with zero."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, 2))
    missing = np.zeros((n_rows, 2), dtype=bool)
    missing[:, 0] = rng.random(n_rows) < 0.4
    y = rows[:, 1] + 2.0 * missing[:, 0] + 0.3 * rng.normal(size=n_rows)
    half = n_rows // 2
    filled = np.where(missing, 0, rows)
    return filled[:half], y[:half], filled[half:], y[half:], (missing[:half], missing[half:])


def test_downstream_score_of_regression_is_r2_and_indicators_gain() -> None:
    from sklearn.linear_model import RidgeCV
    from sklearn.metrics import r2_score
    from sklearn.preprocessing import StandardScaler

    *data, missing = make_task()
    scores = downstream_score(*data, model="linear", indicator=missing, random_state=0)
    scaler = StandardScaler().fit(data[0])
    ridge = RidgeCV(alphas=np.logspace(-3, 3, 13)).fit(scaler.transform(data[0]), data[1])
    assert scores.task == "regression"
    assert scores.plain.value == pytest.approx(r2_score(data[3], ridge.predict(scaler.transform(data[2]))))
    assert scores.gain.value == pytest.approx(scores.indicated.value - scores.plain.value)
    assert scores.gain.value > 5 * scores.gain.error
    assert downstream_score(*data, model="linear", indicator=missing, random_state=0) == scores


@pytest.mark.parametrize("model", ["boosting", "linear"])
@pytest.mark.parametrize("kind", [str, int, bool])
def test_downstream_score_of_classes_is_accuracy_with_a_binomial_error(model, kind) -> None:
    train, y_train, test, y_test, _ = make_task()
    y_train, y_test = (y_train > 0.5).astype(kind), (y_test > 0.5).astype(kind)
    scores = downstream_score(train, y_train, test, y_test, model=model, n_bootstraps=2000, random_state=1)
    p = scores.plain.value
    assert scores.task == "classification"
    assert scores.indicated is None
    assert 0.6 < p < 1
    assert scores.plain.error == pytest.approx(math.sqrt(p * (1 - p) / len(y_test)), rel=0.1)


def test_downstream_score_with_boosting_learns_what_a_line_cannot() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, size=(600, 1))
    y = rows[:, 0] ** 2
    data = rows[:300], y[:300], rows[300:], y[300:]
    assert downstream_score(*data, random_state=0).plain.value > 0.9
    assert downstream_score(*data, model="linear", random_state=0).plain.value < 0.2


def test_bootstrap_error_of_r2_holds_over_test_sets() -> None:
    train, y_train, _, _, _ = make_task(n_rows=200)

    def score(rng: np.random.Generator) -> Score:
        _, _, test, y_test, _ = make_task(int(rng.integers(2**32)), n_rows=200)
        return downstream_score(train, y_train, test, y_test, model="linear", n_bootstraps=100, random_state=0).plain

    check_error(score, repeats=150, rtol=0.2)


# Refusals

ONE = np.ones((4, 2))
ALL = ONE > 0
HOLE = np.where(np.eye(4, 2) > 0, np.nan, 1.0)
RAMP = np.arange(8.0).reshape(4, 2)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: metrics.rmse(RAMP, RAMP[:3], ALL), DataError, r"filled has the shape \(3, 2\).*\(4, 2\)"),
        (lambda: metrics.rmse(RAMP, RAMP, ONE), DataError, "float64.*has to be boolean"),
        (lambda: metrics.rmse(RAMP, RAMP, ~ALL), DataError, "no True among its 8 cells"),
        (lambda: metrics.rmse(RAMP, HOLE, ALL), DataError, "filled is nan in 2 scored cells"),
        (lambda: metrics.rmse(RAMP / 0.1, np.full((4, 2), np.inf), ALL), DataError, "filled is inf in 8 scored"),
        (lambda: metrics.rmse(RAMP[0], RAMP[0], ALL), DataError, r"truth has the shape \(2,\)"),
        (lambda: metrics.rmse([["a"]], [["b"]], [[True]]), DataError, "truth has to be an array of numbers"),
        (lambda: metrics.rmse(ONE, ONE, ALL), ParameterError, "span is 0 in column 0"),
        (lambda: metrics.rmse(RAMP, RAMP, ALL, [1, 2, 3]), ParameterError, r"span has the shape \(3,\)"),
        (lambda: metrics.standardised_rmse(ONE / 3, ONE, ALL), ParameterError, "deviation is 0 in column 0"),
        (lambda: metrics.by_column(metrics.mae, RAMP[:, :1], mask=ALL), DataError, "last axis has to be 2"),
        (lambda: metrics.crps(RAMP, RAMP, ALL), DataError, r"draws has the shape \(4, 2\).*n_draws"),
        (lambda: metrics.crps(RAMP, RAMP[None], ALL), DataError, r"\(1, 4, 2\).*at least 2"),
        (lambda: metrics.crps(RAMP, np.stack([HOLE, ONE]), ALL), DataError, "draws has scored cells"),
        (lambda: metrics.pinball(RAMP, RAMP, ALL, 1), ParameterError, "level is 1,.*above 0 and below 1"),
        (lambda: metrics.pinball(RAMP, RAMP, ALL, "0.5"), ParameterError, "level is '0.5'"),
        (lambda: metrics.coverage(RAMP, RAMP + 1, RAMP, ALL), DataError, "low is above high in 8"),
        (lambda: metrics.width(RAMP, RAMP + np.inf, ALL, 1), DataError, "high is inf in 8"),
        (lambda: metrics.energy_distance(RAMP[:3], RAMP), DataError, r"x has the shape \(3, 2\).*4 rows"),
        (lambda: metrics.energy_distance(RAMP, RAMP[:, :1]), DataError, r"x and y have \[2, 1\] columns"),
        (lambda: metrics.energy_distance(RAMP, HOLE), DataError, "y has 2 cells that are not finite"),
        (lambda: metrics.sliced_wasserstein(RAMP, RAMP, 1), ParameterError, "n_projections is 1,.*at least 2"),
        (lambda: metrics.sliced_wasserstein(RAMP, RAMP, 2, "x"), ParameterError, "random_state is 'x'"),
        (lambda: metrics.correlation_error(RAMP, RAMP[:3]), DataError, r"\(4, 2\) and filled \(3, 2\)"),
        (lambda: metrics.correlation_error(RAMP, ONE), DataError, "filled does not vary in column 0"),
    ],
)
def test_measures_when_given_what_they_cannot_use_say_what_is_allowed(call, error, words) -> None:
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"task": "regresion"}, ParameterError, "Did you mean 'regression'"),
        ({"model": "forest"}, ParameterError, "model is 'forest'.*'boosting', 'linear'"),
        ({"n_bootstraps": 1}, ParameterError, "n_bootstraps is 1.*at least 2"),
        ({"filled_train": HOLE}, DataError, "filled_train has 2 cells"),
        ({"filled_train": RAMP[:1]}, DataError, r"filled_train has the shape \(1, 2\)"),
        ({"filled_test": RAMP[:, :1]}, DataError, "2 columns and filled_test 1"),
        ({"y_train": [0, 1]}, DataError, r"y_train has the shape \(2,\).*\(4,\)"),
        ({"y_train": [0, 1, 1, np.nan]}, DataError, "y_train is missing in 1 rows"),
        ({"y_train": ["a", "b", None, "a"]}, DataError, "y_train is missing in 1 rows"),
        ({"y_train": [1, 1, 1, 1]}, DataError, "one class alone"),
        ({"y_test": [2.0] * 4, "task": "regression"}, DataError, "y_test is 2 in every row"),
        ({"y_train": list("abab"), "task": "regression"}, DataError, "y_train has to be an array of numbers"),
        ({"indicator": ALL}, ParameterError, "ndarray, but has to be a pair"),
        ({"indicator": (ALL, ALL[:2])}, DataError, r"\(2, 2\) for the test rows"),
    ],
)
def test_downstream_score_when_given_what_it_cannot_use_says_what_is_allowed(changed, error, words) -> None:
    given = {"filled_train": RAMP, "y_train": [0, 1, 0, 1], "filled_test": RAMP, "y_test": [0, 1, 0, 1]}
    with pytest.raises(error, match=words):
        downstream_score(**(given | changed), random_state=0)


def test_package_exports_what_it_lists_in_order() -> None:
    assert metrics.__all__ == sorted(metrics.__all__)
    assert all(getattr(metrics, name).__doc__ for name in metrics.__all__)
