"""Chained regressions: posterior draws in closed form, coverage, and independence of rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from mcflow.baselines import mice
from mcflow.baselines.mice import CategoryRegression, Design, MiceImputer, NumberRegression, _Categories, _Filling
from mcflow.columns.schema import Column

COVARIANCE = np.array([[1.0, 0.8, 0.5, 0.2], [0.8, 1.0, 0.4, 0.1], [0.5, 0.4, 1.0, 0.6], [0.2, 0.1, 0.6, 1.0]])


def normal_rows(n_rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).multivariate_normal([1, 2, 3, 4], COVARIANCE, size=n_rows)


def with_missing(rows: np.ndarray, seed: int, rate: float = 0.25) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random(rows.shape) < rate, np.nan, rows)


@pytest.fixture(scope="module")
def fitted() -> MiceImputer:
    return MiceImputer(n_chains=10, random_state=0).fit(with_missing(normal_rows(2000, 0), 1))


@pytest.fixture(scope="module")
def mixed() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    x = rng.normal(size=600)
    code = np.digitize(x + 0.2 * rng.normal(size=600), [-0.5, 0.5])
    frame = pd.DataFrame({"x": x, "c": pd.Categorical.from_codes(code, ["low", "mid", "top"]), "y": code + 0.1 * x})
    frame["c"] = frame["c"].mask(rng.random(600) < 0.2)
    frame["x"] = frame["x"].mask(rng.random(600) < 0.2)
    return frame


def test_draws_of_a_normal_table_cover_as_often_as_they_say(fitted):
    complete = normal_rows(800, 5)
    rows = with_missing(complete, 6)
    hidden = np.isnan(rows)
    draws = np.stack([table[hidden] for table in fitted.draw(rows, m=100, random_state=7)])
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    assert 0.86 <= ((low <= complete[hidden]) & (complete[hidden] <= high)).mean() <= 0.94


def nearly_equal(row: list[float], n_rows: int) -> np.ndarray:
    """Return rows that have draws of their own; equal rows have equal ones."""
    return np.array([row]) * (1 + 1e-9 * np.arange(n_rows)[:, None])


def test_draws_within_a_row_have_the_conditional_covariance(fitted):
    given = nearly_equal([1.5, np.nan, np.nan, 4.5], 300)
    draws = np.vstack(list(fitted.draw(given, m=10, random_state=1)))[:, 1:3]
    known, asked = [0, 3], [1, 2]
    gain = COVARIANCE[np.ix_(asked, known)] @ np.linalg.inv(COVARIANCE[np.ix_(known, known)])
    np.testing.assert_allclose(draws.mean(axis=0), np.array([2, 3]) + gain @ [0.5, 0.5], atol=0.08)
    expected = COVARIANCE[np.ix_(asked, asked)] - gain @ COVARIANCE[np.ix_(known, asked)]
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.06)


def test_transform_of_a_normal_table_is_the_conditional_mean(fitted):
    complete = normal_rows(300, 8)
    rows = np.where([False, True, False, False], np.nan, complete)
    known = [0, 2, 3]
    gain = np.linalg.solve(COVARIANCE[np.ix_(known, known)], COVARIANCE[known, 1])
    expected = 2 + (complete[:, known] - [1, 3, 4]) @ gain
    np.testing.assert_allclose(fitted.transform(rows)[:, 1], expected, atol=0.12)


def test_transform_with_two_cells_missing_is_the_average_of_draws(fitted):
    rows = nearly_equal([1.5, np.nan, np.nan, 4.5], 300)
    average = np.vstack(list(fitted.draw(rows, m=10, random_state=2))).mean(axis=0)
    np.testing.assert_allclose(fitted.transform(rows).mean(axis=0), average, atol=0.04)


def test_posterior_draws_of_a_regression_have_the_closed_form_moments():
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(50), rng.normal(size=(50, 2))])
    y = x @ [1.0, 2.0, -1.0] + 0.5 * rng.normal(size=50)
    z = np.column_stack([x, y])
    uses = np.array([True, True, True, False])
    draws = [NumberRegression.sample(z.T @ z, 3, uses, 1e-9, rng) for _ in range(4000)]
    best, residual, *_ = np.linalg.lstsq(x, y)
    betas, sigmas = np.array([b for b, _ in draws]), np.array([s for _, s in draws])
    variance = residual[0] / (50 - 3 - 2)
    np.testing.assert_allclose((sigmas**2).mean(), variance, rtol=0.02)
    np.testing.assert_allclose(betas[:, :3].mean(axis=0), best, atol=0.006)
    np.testing.assert_allclose(np.cov(betas[:, :3].T), variance * np.linalg.inv(x.T @ x), atol=4e-4)
    assert (betas[:, 3] == 0).all()


def test_category_weights_are_those_of_a_penalised_logistic_regression():
    rng = np.random.default_rng(0)
    rows = np.column_stack([np.ones(400), rng.normal(size=(400, 3))])
    groups = np.argmax(rows @ rng.normal(size=(4, 3)) + rng.gumbel(size=(400, 3)), axis=1)
    uses = np.array([True, True, True, False])
    weight = CategoryRegression.fit(rows, groups, uses, np.zeros((4, 3)))
    expected = LogisticRegression(C=1.0, tol=1e-8).fit(rows[:, 1:3], groups)
    found = CategoryRegression(weight, _Categories(np.arange(3), np.ones(3))).expect(rows)
    np.testing.assert_allclose(found, expected.predict_proba(rows[:, 1:3]), atol=0.01)
    assert (weight[3] == 0).all()


def test_drawn_categories_follow_their_probabilities():
    regression = CategoryRegression(np.zeros((1, 3)), _Categories(np.arange(3), np.ones(3)))
    uniforms = (np.arange(1000) + 0.5) / 1000
    drawn = regression.draw(np.tile([0.2, 0.0, 0.8], (1000, 1)), uniforms)
    np.testing.assert_array_equal(np.bincount(drawn.astype(int), minlength=3), [200, 0, 800])


def test_rare_categories_share_a_group_by_their_frequency():
    codes = np.repeat(np.arange(40.0), np.r_[np.full(31, 9), np.arange(1, 10)])
    part = _Categories.fitting(codes, 40)
    assert part.n_groups == 32
    assert (part.group[31:] == 31).all()
    np.testing.assert_allclose(part.share[31:], np.arange(1, 10) / 45)
    np.testing.assert_array_equal(part.share[:31], 1)


def test_gram_matrix_of_a_chain_stays_that_of_its_rows(mixed):
    codes = np.column_stack([mixed["x"], mixed["c"].cat.codes.replace(-1, np.nan), mixed["y"]])
    columns = [Column("x", "double", "continuous"), Column("c", "", "category", categories=("low", "mid", "top"))]
    design = Design(codes, [*columns, Column("y", "double", "continuous")], np.full(3, -9.0), np.full(3, 9.0))
    filling = _Filling(design, codes, 0.01, np.random.default_rng(0))
    for _ in range(3):
        filling.round(last=True)
    np.testing.assert_allclose(filling.gram, filling.predictors.T @ filling.predictors, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(filling.predictors, design.predictors(filling.cells), atol=1e-12)
    seen = ~np.isnan(codes)
    np.testing.assert_allclose(design.write(filling.cells)[seen], codes[seen], rtol=1e-12)


def test_categories_that_others_tell_apart_are_filled_right(mixed):
    filled = MiceImputer(n_chains=3, n_rounds=5, random_state=0).fit_transform(mixed)
    truth = (mixed["y"] - 0.1 * mixed["x"]).round()
    known = mixed["c"].isna() & mixed["x"].notna()
    codes = filled["c"].cat.codes
    assert known.sum() > 50
    assert (codes[known] == truth[known]).mean() > 0.95
    assert set(filled["c"].unique()) <= {"low", "mid", "top"}


def test_drawn_categories_of_unrelated_columns_have_their_frequencies():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=3000), "c": rng.choice(["a", "b"], p=[0.7, 0.3], size=3000)})
    frame["c"] = frame["c"].mask(rng.random(3000) < 0.5).astype("category")
    drawn = next(MiceImputer(n_chains=1, n_rounds=2, random_state=0).fit(frame).draw(frame, m=1, random_state=0))
    assert (drawn["c"][frame["c"].isna()] == "a").mean() == pytest.approx(0.7, abs=0.05)


def test_a_row_alone_or_in_any_piece_is_filled_the_same(mixed, monkeypatch):
    imputer = MiceImputer(n_chains=2, n_rounds=3, random_state=0).fit(mixed)
    whole, drawn = imputer.transform(mixed), next(imputer.draw(mixed, m=1, random_state=3))
    monkeypatch.setattr(mice, "BATCH_ROWS", 7)
    pd.testing.assert_frame_equal(imputer.transform(mixed), whole, rtol=1e-9)
    alone = mixed.iloc[[11]]
    pd.testing.assert_frame_equal(next(imputer.draw(alone, m=1, random_state=3)), drawn.iloc[[11]], rtol=1e-9)


def test_same_seed_gives_the_same_bits_and_another_seed_other_chains(mixed):
    first, again, other = (MiceImputer(n_chains=2, n_rounds=2, random_state=s).fit_transform(mixed) for s in (0, 0, 1))
    pd.testing.assert_frame_equal(first, again, check_exact=True)
    assert not first["x"].equals(other["x"])


def test_column_of_targets_only_is_no_predictor():
    rows = with_missing(normal_rows(300, 0), 1)
    imputer = MiceImputer(n_chains=2, n_rounds=2, roles={1: "targets_only"}, random_state=0).fit(rows)
    block = imputer.design_.blocks[1]
    assert all(not regression.beta[block].any() for chain in imputer.chains_ for regression in chain)
    assert all(chain[1].beta[1] != 0 for chain in imputer.chains_)


def test_columns_that_determine_each_other_stay_within_bounds_and_near():
    rng = np.random.default_rng(0)
    heavy = np.exp(2 * rng.normal(size=1000))
    rows = np.column_stack([heavy, 2 * heavy + 1, 1e9 * heavy, 1e-9 * rng.normal(size=1000)])
    incomplete = with_missing(rows, 2)
    filled = MiceImputer(n_chains=3, random_state=0).fit_transform(incomplete)
    single = np.isnan(incomplete[:, 1]) & ~np.isnan(incomplete[:, 0]) & ~np.isnan(incomplete[:, 2])
    low, high = np.nanmin(incomplete, axis=0), np.nanmax(incomplete, axis=0)
    expected = np.clip(rows[single, 1], low[1], high[1])
    np.testing.assert_allclose(filled[single, 1], expected, rtol=0.03, atol=0.05 * rows[:, 1].std())
    assert (filled >= low).all()
    assert (filled <= high).all()


@pytest.mark.parametrize("n_rows", [2, 3, 5])
def test_fewer_rows_than_columns_are_filled(n_rows):
    rows = np.random.default_rng(0).normal(size=(n_rows, 8))
    rows[0, :3] = np.nan
    new = np.full((2, 8), np.nan)
    new[1, 0] = 1e300
    filled = MiceImputer(n_chains=2, n_rounds=3, random_state=0).fit(rows).transform(np.vstack([rows, new]))
    assert np.isfinite(filled).all()


def test_a_single_column_is_filled_by_about_its_mean():
    rows = normal_rows(500, 0)[:, :1]
    rows[::5] = np.nan
    filled = MiceImputer(random_state=0).fit_transform(rows)
    np.testing.assert_allclose(filled[::5], np.nanmean(rows), atol=0.1)
