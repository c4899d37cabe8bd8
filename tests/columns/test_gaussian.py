"""The Gaussian model against slow reference implementations and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mcflow.columns import gaussian
from mcflow.columns.gaussian import GaussianModel, MaskedRows, column_moments
from mcflow.errors import DataError, ParameterError


def spoil(rows: np.ndarray, rate: float, seed: int = 1) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random(rows.shape) < rate, np.nan, rows)


def related(n_rows: int, n_columns: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_rows, n_columns)) @ rng.normal(size=(n_columns, n_columns)) + rng.normal(size=n_columns)


def given_observed(row: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Textbook formula: regression of the missing cells on the observed ones."""
    m = np.isnan(row)
    weights = cov[np.ix_(m, ~m)] @ np.linalg.inv(cov[np.ix_(~m, ~m)])
    return mean[m] + weights @ (row[~m] - mean[~m]), cov[np.ix_(m, m)] - weights @ cov[np.ix_(~m, m)]


def slow_em(rows: np.ndarray, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """EM one row at a time, from the observed means and variances."""
    mean, cov = np.nanmean(rows, axis=0), np.diag(np.nanvar(rows, axis=0))
    for _ in range(n_steps):
        filled, extra = rows.copy(), np.zeros_like(cov)
        for i, row in enumerate(rows):
            m = np.isnan(row)
            filled[i, m], part = given_observed(row, mean, cov)
            extra[np.ix_(m, m)] += part
        mean = filled.mean(axis=0)
        cov = ((filled - mean).T @ (filled - mean) + extra) / len(rows)
    return mean, cov


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return spoil(related(300, 5), 0.3)


@pytest.fixture(scope="module")
def model() -> GaussianModel:
    factor = np.random.default_rng(3).normal(size=(4, 4))
    return GaussianModel(np.array([1.0, -2.0, 0.0, 5.0]), factor @ factor.T + 0.1 * np.eye(4))


def test_fit_after_some_steps_equals_em_row_by_row(rows: np.ndarray) -> None:
    known = rows[~np.isnan(rows).all(axis=1)]
    found = GaussianModel.fit(rows, max_steps=7, tolerance=0, shrinkage=0)
    mean, cov = slow_em(known, 7)
    assert found.n_steps == 7
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.covariance, cov, rtol=1e-8, atol=1e-8)


def test_fit_in_many_small_blocks_is_the_same(rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = GaussianModel.fit(rows)
    monkeypatch.setattr(gaussian, "MAX_BLOCK_CELLS", 7 * 25)
    cut = GaussianModel.fit(rows)
    np.testing.assert_allclose(cut.covariance, whole.covariance, rtol=1e-9)
    np.testing.assert_allclose(cut.conditional(rows), whole.conditional(rows), rtol=1e-9)


def test_fit_of_complete_rows_gives_the_sample_moments() -> None:
    full = related(200, 4)
    found = GaussianModel.fit(full, shrinkage=0)
    np.testing.assert_allclose(found.mean, full.mean(axis=0))
    np.testing.assert_allclose(found.covariance, np.cov(full.T, bias=True))


def test_fit_with_shrinkage_adds_rows_of_unrelated_columns() -> None:
    full = related(50, 3)
    sample = np.cov(full.T, bias=True)
    found = GaussianModel.fit(full, shrinkage=25).covariance
    np.testing.assert_allclose(found, (50 * sample + 25 * np.diag(np.diag(sample))) / 75)


def test_fit_by_default_shrinks_by_columns_squared_over_rows() -> None:
    full = related(50, 3)
    np.testing.assert_allclose(GaussianModel.fit(full).covariance, GaussianModel.fit(full, shrinkage=9 / 50).covariance)


def log_likelihood(model: GaussianModel, rows: np.ndarray) -> float:
    """Log-density of the observed cells of all rows."""
    total = 0.0
    for row in rows:
        o = ~np.isnan(row)
        if o.any():
            total += multivariate_normal(model.mean[o], model.covariance[np.ix_(o, o)]).logpdf(row[o])
    return total


def test_likelihood_of_the_fit_never_falls_with_more_steps(rows: np.ndarray) -> None:
    fits = [GaussianModel.fit(rows, max_steps=k, tolerance=0, shrinkage=0) for k in range(1, 15)]
    likelihoods = np.array([log_likelihood(fit, rows) for fit in fits])
    assert (np.diff(likelihoods) > -1e-9).all()
    assert likelihoods[-1] > likelihoods[0] + 10


def test_fit_stops_when_parameters_change_less_than_the_tolerance(rows: np.ndarray) -> None:
    loose, tight = GaussianModel.fit(rows, tolerance=0.05), GaussianModel.fit(rows, tolerance=1e-7, max_steps=1000)
    assert loose.n_steps < tight.n_steps < 1000
    nearly = GaussianModel.fit(rows, max_steps=tight.n_steps - 1, tolerance=0)
    _, scale = column_moments(rows)
    assert np.abs((nearly.covariance - tight.covariance) / np.outer(scale, scale)).max() < 1e-7


def test_fit_finds_the_truth_when_rows_are_many(model: GaussianModel) -> None:
    full = np.random.default_rng(0).multivariate_normal(model.mean, model.covariance, 40_000)
    found = GaussianModel.fit(spoil(full, 0.3), tolerance=1e-5)
    scale = np.sqrt(np.diag(model.covariance))
    assert np.abs((found.mean - model.mean) / scale).max() < 0.03
    assert np.abs((found.covariance - model.covariance) / np.outer(scale, scale)).max() < 0.05


def test_fit_does_not_depend_on_the_scales_of_columns(rows: np.ndarray) -> None:
    scales = np.array([1e-9, 1e-3, 1.0, 1e4, 1e9])
    plain, scaled = GaussianModel.fit(rows), GaussianModel.fit(rows * scales)
    np.testing.assert_allclose(scaled.covariance / np.outer(scales, scales), plain.covariance, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(scaled.conditional(rows * scales) / scales, plain.conditional(rows), rtol=1e-7)


def test_conditional_and_variance_equal_the_textbook_row_by_row(model: GaussianModel) -> None:
    rows = spoil(related(60, 4), 0.5)
    filled, variance = model.conditional(rows), model.conditional_variance(rows)
    for row, mean, var in zip(rows, filled, variance, strict=True):
        m = np.isnan(row)
        expected, cov = given_observed(row, model.mean, model.covariance)
        np.testing.assert_allclose(mean[m], expected)
        np.testing.assert_allclose(var[m], np.diag(cov))
        assert (mean[~m] == row[~m]).all()
        assert (var[~m] == 0).all()


def test_all_missing_row_gets_the_mean_and_the_whole_variance(model: GaussianModel) -> None:
    empty = np.full((1, 4), np.nan)
    np.testing.assert_allclose(model.conditional(empty)[0], model.mean)
    np.testing.assert_allclose(model.conditional_variance(empty)[0], np.diag(model.covariance))


def test_draws_have_the_conditional_mean_and_covariance(model: GaussianModel) -> None:
    n = 100_000
    row = np.array([2.0, np.nan, np.nan, np.nan])
    drawn = model.draw(np.tile(row, (n, 1)), np.random.default_rng(0).normal(size=(n, 4)))
    mean, cov = given_observed(row, model.mean, model.covariance)
    scale = np.sqrt(np.diag(cov))
    assert (drawn[:, 0] == 2.0).all()
    assert np.abs((drawn[:, 1:].mean(axis=0) - mean) / scale).max() < 5 / np.sqrt(n)
    assert np.abs((np.cov(drawn[:, 1:].T) - cov) / np.outer(scale, scale)).max() < 10 / np.sqrt(n)


def test_draw_of_a_row_does_not_depend_on_the_other_rows(model: GaussianModel) -> None:
    rows, normals = spoil(related(50, 4), 0.5), np.random.default_rng(0).normal(size=(50, 4))
    together = model.draw(rows, normals)
    alone = np.concatenate([model.draw(rows[i : i + 1], normals[i : i + 1]) for i in range(50)])
    np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-9)


def test_draw_with_zero_normals_is_the_conditional_mean(model: GaussianModel) -> None:
    rows = spoil(related(50, 4), 0.5)
    np.testing.assert_allclose(model.draw(rows, np.zeros((50, 4))), model.conditional(rows))


@pytest.mark.parametrize("shrinkage", [None, 0])
def test_collinear_columns_fill_each_other(shrinkage: float | None) -> None:
    rng = np.random.default_rng(0)
    full = rng.normal(size=(400, 3))
    full[:, 2] = full[:, 0] + full[:, 1]
    rows = spoil(full, 0.15)
    found = GaussianModel.fit(rows, tolerance=1e-6, max_steps=300, shrinkage=shrinkage)
    one = np.isnan(rows).sum(axis=1) == 1
    assert np.abs(found.conditional(rows)[one] - full[one]).max() < 0.02
    assert np.isfinite(found.draw(rows, rng.normal(size=rows.shape))).all()


def test_fit_of_fewer_rows_than_columns_is_finite_and_no_worse_than_the_mean() -> None:
    rng = np.random.default_rng(0)
    full = rng.normal(size=(1020, 2)) @ rng.normal(size=(2, 40)) + 0.3 * rng.normal(size=(1020, 40))
    found = GaussianModel.fit(spoil(full[:20], 0.2))
    fresh = spoil(full[20:], 0.2)
    wrong = (found.conditional(fresh) - full[20:])[np.isnan(fresh)]
    assert np.sqrt((wrong**2).mean()) < 0.7 * full.std()
    assert np.linalg.eigvalsh(found.covariance).min() > 0


@pytest.mark.parametrize("given", [np.zeros((0, 3)), np.full((4, 3), np.nan), np.ones((1, 3)), np.ones((5, 3))])
def test_rows_with_little_information_give_a_finite_model(given: np.ndarray) -> None:
    found = GaussianModel.fit(given)
    filled = found.conditional(np.full((2, 3), np.nan))
    assert (filled == (1.0 if given.size and given[0, 0] == 1 else 0.0)).all()


def test_fit_on_a_sample_depends_on_the_seed_alone() -> None:
    rows = spoil(related(500, 3), 0.2)
    first, same, other = (GaussianModel.fit(rows, max_rows=100, seed=seed) for seed in (0, 0, 1))
    assert (first.covariance == same.covariance).all()
    assert (first.covariance != other.covariance).any()
    assert (GaussianModel.fit(rows, max_rows=500).covariance == GaussianModel.fit(rows).covariance).all()


def test_masked_rows_leave_complete_rows_alone() -> None:
    full = related(10, 3)
    assert (MaskedRows(full).fill(np.eye(3)) == full).all()


@pytest.mark.parametrize("wrong", [{"max_steps": 0}, {"tolerance": -1.0}, {"shrinkage": -1.0}, {"max_rows": 0}])
def test_fit_with_a_setting_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        GaussianModel.fit(np.ones((3, 2)), **wrong)


@pytest.mark.parametrize("given", [np.ones(3), np.array([[np.inf, 1.0]])])
def test_fit_of_an_invalid_matrix_is_refused(given: np.ndarray) -> None:
    with pytest.raises(DataError, match="matrix of finite numbers"):
        GaussianModel.fit(given)
