"""Weights of several estimates: least squares with a prior, mixtures, and pruning."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from mcflow.fitting.calibration import MIN_SHARE, blend_weights, pool_weights, prune_weights


def noisy_estimates(n_cells: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=n_cells)
    noise = rng.normal(size=(n_cells, 3)) * [0.5, 1.0, 2.0]
    return truth[:, None] + noise, truth


def test_weights_are_not_below_zero_and_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        estimates, truth = rng.normal(size=(50, 3)) * 10.0 ** rng.integers(-3, 4), rng.normal(size=50)
        weights = blend_weights(estimates, truth, rng.integers(0, 4, 50), 5)
        assert weights.shape == (5, 3)
        assert (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)


def test_weights_of_independent_errors_go_by_their_inverse_variance() -> None:
    estimates, truth = noisy_estimates(40_000)
    weights = blend_weights(estimates, truth, np.zeros(40_000, int), 1)[0]
    inverse = 1 / np.array([0.25, 1.0, 4.0])
    np.testing.assert_allclose(weights, inverse / inverse.sum(), atol=0.02)


def test_weights_equal_a_general_solver_s() -> None:
    estimates, truth = noisy_estimates(3000)
    estimates[:, 2] -= 2 * truth
    weights = blend_weights(estimates, truth, np.zeros(3000, int), 1)[0]
    found = minimize(
        lambda w: ((estimates @ w - truth) ** 2).sum(),
        np.full(3, 1 / 3),
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
    )
    np.testing.assert_allclose(weights, found.x, atol=0.01)


def test_best_estimate_of_one_column_need_not_be_that_of_another() -> None:
    rng = np.random.default_rng(0)
    truth, columns = rng.normal(size=4000), np.repeat([0, 1], 2000)
    estimates = truth[:, None] + rng.normal(size=(4000, 2)) * np.where(columns[:, None] == [0, 1], 0.1, 2.0)
    weights = blend_weights(estimates, truth, columns, 2)
    assert weights[0, 0] > 0.95
    assert weights[1, 1] > 0.95


def test_column_with_few_cells_follows_the_whole_table() -> None:
    estimates, truth = noisy_estimates(4001)
    columns = np.r_[np.zeros(4000, int), 1]
    estimates[-1] = [truth[-1] + 9, truth[-1], truth[-1] - 9]
    weights = blend_weights(estimates, truth, columns, 3)
    np.testing.assert_allclose(weights[2], weights[0], atol=0.02)
    assert weights[1].argmax() == 0, "a single cell does not overrule 4000"


def test_no_cells_give_even_weights() -> None:
    weights = blend_weights(np.empty((0, 2)), np.empty(0), np.empty(0, int), 3)
    np.testing.assert_allclose(weights, 0.5, atol=1e-9)


def test_huge_estimates_of_a_few_cells_leave_weights_finite() -> None:
    estimates, truth = noisy_estimates(100)
    estimates[0, 2] = 1e9
    weights = blend_weights(estimates, truth, np.zeros(100, int), 1)
    assert np.isfinite(weights).all()
    assert weights[0, 2] < 1e-3


def test_no_cells_give_the_prior_and_many_forget_it() -> None:
    prior = np.array([0.0, 0.1, 0.9])
    none = blend_weights(np.empty((0, 3)), np.empty(0), np.empty(0, int), 2, prior)
    np.testing.assert_allclose(none, [prior, prior], atol=1e-9)
    estimates, truth = noisy_estimates()
    columns = np.zeros(4000, int)
    many = blend_weights(estimates, truth, columns, 1, prior)
    np.testing.assert_allclose(many, blend_weights(estimates, truth, columns, 1), atol=0.01)


def test_estimates_that_know_nothing_give_way_to_the_mean_even_from_a_prior_of_zero() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=3000)
    estimates = np.column_stack([rng.normal(size=(3000, 2)), np.zeros(3000)])
    weights = blend_weights(estimates, truth, np.zeros(3000, int), 1, np.array([0.5, 0.5, 0.0]))[0]
    assert weights[2] > 0.9
    error = np.sqrt(((estimates @ weights - truth) ** 2).mean())
    assert error < 1.01 * truth.std()


def test_pool_weights_are_not_below_zero_and_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    for n_cells in (0, 1, 7, 300):
        weights = pool_weights(rng.random((n_cells, 4)))
        assert (weights >= 0).all()
        assert weights.sum() == pytest.approx(1, rel=1e-9)


def test_pool_weights_follow_the_better_estimate_with_the_number_of_cells() -> None:
    likelihoods = np.array([[0.9, 0.2, 0.3]])
    first = [pool_weights(np.tile(likelihoods, (n_cells, 1)))[0] for n_cells in (0, 1, 10, 1000)]
    assert first == sorted(first)
    assert first[0] == pytest.approx(1 / 3)
    assert first[-1] > 0.95


def test_pool_weights_of_estimates_that_know_different_cells_are_even() -> None:
    weights = pool_weights(np.tile([[0.9, 0.1], [0.1, 0.9]], (200, 1)))
    np.testing.assert_allclose(weights, 0.5, atol=0.01)


def test_pool_weights_of_cells_that_no_estimate_expects_are_finite() -> None:
    assert np.isfinite(pool_weights(np.zeros((10, 3)))).all()


def test_weights_below_the_minimum_are_pruned_but_never_those_of_h() -> None:
    np.testing.assert_allclose(prune_weights(np.array([0.01, 0.95, 0.04]), keep=1), [0.01 / 0.96, 0.95 / 0.96, 0])
    np.testing.assert_allclose(
        prune_weights(np.array([0.0, MIN_SHARE, 1 - MIN_SHARE]), keep=1), [0, MIN_SHARE, 1 - MIN_SHARE]
    )
    many = np.full(50, 0.02)
    np.testing.assert_allclose(prune_weights(many, keep=0), many)
