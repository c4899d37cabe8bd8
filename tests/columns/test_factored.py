"""A factored density: which factors are chosen, and that cells are drawn from it."""

from __future__ import annotations

import time

import numpy as np
import pytest

from mcflow.columns.factored import N_MEMBERS, FactoredModel, Factors, Layout, Parameters, Sweeps, choose_factors

BOX = np.array([[-8.0] * 3, [8.0] * 3])


def chosen(rows: np.ndarray, sizes: tuple[int, ...]) -> Factors:
    layout = Layout(sizes)
    return choose_factors(layout, layout.moments(layout.features(rows)), len(rows))


def products(factors: Factors, column: int) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for a, b in factors.terms[column] if a > 0}


def interacting(n_rows: int, seed: int) -> np.ndarray:
    """Return y, which depends on the product of the two others, and these."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 2))
    return np.column_stack([x[:, 0] - x[:, 1] + x[:, 0] * x[:, 1] + rng.normal(size=n_rows), x])


def with_missing(rows: np.ndarray, seed: int, share: float = 0.25) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with missing cells, and the same rows with column means in them."""
    values = np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)
    return values, np.where(np.isnan(values), np.nanmean(values, axis=0), values)


def uniforms(rng: np.random.Generator, shape: tuple[int, ...], count: int = 20) -> list[np.ndarray]:
    return [rng.random(shape) for _ in range(count)]


# --- which factors


def test_columns_of_a_gaussian_have_no_products() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4))
    assert chosen(rows / rows.std(axis=0), (0, 0, 0, 0)).n_products == 0


def test_column_with_a_product_comes_after_both_of_its_parts() -> None:
    factors = chosen(interacting(400, 0), (0, 0, 0))
    assert factors.order[-1] == 0
    assert products(factors, 0) == {(2, 3)}


def test_column_that_only_follows_the_outcome_needs_no_product_of_its_own() -> None:
    rows = interacting(600, 1)
    proxy = 0.5 * rows[:, 0] + np.random.default_rng(2).normal(size=600)
    factors = chosen(np.column_stack([proxy, rows]), (0, 0, 0, 0))
    assert factors.order[2:] == (1, 0)
    assert factors.n_products == 1


def test_product_is_found_among_more_columns_than_have_all_their_orders_compared() -> None:
    noise = np.random.default_rng(3).normal(size=(600, 7))
    factors = chosen(np.column_stack([interacting(600, 3), noise]), (0,) * 10)
    assert factors.order[-1] == 0
    assert products(factors, 0) == {(2, 3)}


def test_categories_come_first_and_their_products_with_numbers_can_be_terms() -> None:
    rng = np.random.default_rng(4)
    group, x = rng.integers(3, size=600), rng.normal(size=600)
    rows = np.column_stack([np.where(group == 2, 2 * x, 0) + rng.normal(size=600), x, group])
    factors = chosen(rows, (0, 0, 3))
    assert factors.order[0] == 2
    assert products(factors, 0) == {(2, 4)}, "x times the ones of the third category"
    assert Layout((0, 0, 3)).pairs.tolist().count([3, 4]) == 0


# --- sweeps

#: x0, then x1 given it, then x2 given both.
LINEAR = Factors((0, 1, 2), (np.array([[0, 0]]), np.array([[0, 0], [0, 1]]), np.array([[0, 0], [0, 1], [0, 2]])))


def column(*numbers: float) -> np.ndarray:
    return np.array(numbers)[:, None]


def test_cell_of_a_gaussian_is_drawn_with_its_conditional_mean_and_variance() -> None:
    parameters = Parameters((column(0.3), column(0.1, 0.8), column(-0.2, 0.5, -0.7)), np.array([1.0, 0.6, 0.5]))
    weights = np.array([[1, 0, 0], [0.8, 1, 0], [0.5 - 0.56, -0.7, 1]])
    covariance = weights @ np.diag([1.0, 0.36, 0.25]) @ weights.T
    mean = np.array([0.3, 0.34, -0.2 + 0.15 - 0.7 * 0.34])
    rows = np.tile([0.0, 1.0, -1.0], (40_000, 1))
    missing = np.tile([True, False, False], (40_000, 1))
    numbers = np.random.default_rng(0).random(rows.shape)
    log_densities = Sweeps(Layout((0, 0, 0)), LINEAR, BOX).sweep(
        rows, missing, parameters, numbers, np.full(rows.shape, 0.4)
    )
    slopes = np.linalg.solve(covariance[1:, 1:], covariance[1:, 0])
    centre = mean[0] + slopes @ (np.array([1.0, -1.0]) - mean[1:])
    variance = covariance[0, 0] - slopes @ covariance[1:, 0]
    assert rows[:, 0].mean() == pytest.approx(centre, abs=0.015)
    assert rows[:, 0].var() == pytest.approx(variance, rel=0.03)
    wanted = -0.5 * ((0.4 - centre) ** 2 / variance + np.log(2 * np.pi * variance))
    np.testing.assert_allclose(log_densities[:, 0], wanted, rtol=1e-9)
    assert (rows[:, 1:] == [1.0, -1.0]).all()
    assert not log_densities[:, 1:].any()


def test_two_cells_of_a_row_are_drawn_together_after_some_sweeps() -> None:
    parameters = Parameters((column(0.0), column(0.0, 0.8), column(0.0, 0.5, 0.5)), np.array([1.0, 0.6, 0.5]))
    rows, rng = np.zeros((20_000, 3)), np.random.default_rng(1)
    missing = np.tile([True, True, False], (20_000, 1))
    for numbers in uniforms(rng, rows.shape, 30):
        Sweeps(Layout((0, 0, 0)), LINEAR, BOX).sweep(rows, missing, parameters, numbers)
    precision = np.array([[1 + 0.64 / 0.36 + 1, -0.8 / 0.36 + 1], [-0.8 / 0.36 + 1, 1 / 0.36 + 1]])
    np.testing.assert_allclose(np.cov(rows[:, :2].T), np.linalg.inv(precision), atol=0.02)


def test_cell_under_a_square_is_drawn_from_its_density() -> None:
    terms = (np.array([[0, 0]]), np.array([[0, 0], [1, 1]]))
    parameters = Parameters((column(0.2), column(-1.0, 1.0)), np.array([1.0, 0.3]))
    rows, missing = np.tile([0.0, 0.5], (40_000, 1)), np.tile([True, False], (40_000, 1))
    numbers = np.random.default_rng(2).random(rows.shape)
    sweeps = Sweeps(Layout((0, 0)), Factors((0, 1), terms), BOX[:, :2])
    log_densities = sweeps.sweep(rows, missing, parameters, numbers, np.full(rows.shape, 1.1))
    grid = np.linspace(-6, 6, 200_001)
    density = np.exp(-0.5 * (grid - 0.2) ** 2 - 0.5 * ((0.5 + 1 - grid**2) / 0.3) ** 2)
    density /= density.sum() * (grid[1] - grid[0])
    for power in (1, 2):
        wanted = (density * grid**power).sum() * (grid[1] - grid[0])
        assert (rows[:, 0] ** power).mean() == pytest.approx(wanted, abs=0.03)
    assert log_densities[0, 0] == pytest.approx(np.log(np.interp(1.1, grid, density)), abs=0.02)
    assert (rows[:, 0] > 0).mean() == pytest.approx(density[grid > 0].sum() * (grid[1] - grid[0]), abs=0.02)


def test_category_is_drawn_by_the_rule_of_bayes() -> None:
    layout = Layout((3, 0, 2))
    terms = (np.array([[0, 0]]), np.array([[0, 0], [0, 1], [0, 2]]), np.array([[0, 0], [0, 1], [0, 2]]))
    slopes = (np.array([[0.4, -0.3]]), column(0.0, 1.0, -1.0), column(0.1, 1.0, -0.5))
    parameters = Parameters(slopes, np.array([1.0, 0.8, 1.0]))
    rows, missing = np.tile([0.0, 0.3, 1.0], (40_000, 1)), np.tile([True, False, False], (40_000, 1))
    numbers = np.random.default_rng(3).random(rows.shape)
    sweeps = Sweeps(layout, Factors((0, 2, 1), terms), BOX)
    log_densities = sweeps.sweep(rows, missing, parameters, numbers, np.full(rows.shape, 2.0))
    prior = np.exp([0.0, 0.4, -0.3])
    seen = np.exp(-0.5 * ((0.3 - np.array([0.0, 1.0, -1.0])) / 0.8) ** 2)
    other = 1 / (1 + np.exp(-np.array([0.1, 1.1, -0.4])))
    wanted = prior * seen * other / (prior * seen * other).sum()
    np.testing.assert_allclose(np.bincount(rows[:, 0].astype(int)) / len(rows), wanted, atol=0.01)
    np.testing.assert_allclose(log_densities[:, 0], np.log(wanted[2]), rtol=1e-9)


# --- the fit


@pytest.fixture(scope="module")
def fitted() -> tuple[FactoredModel, np.ndarray, np.ndarray]:
    values, start = with_missing(interacting(400, 5) * [10, 1, 0.1] + [0, 5, 0], 5)
    model = FactoredModel.fit(values, start, (0, 0, 0), np.random.default_rng(0))
    assert model is not None
    return model, values, start


def test_gaussian_table_has_a_density_without_products_and_with_its_covariance() -> None:
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 3))
    values, start = with_missing(rows, 6)
    model = FactoredModel.fit(values, start, (0, 0, 0), rng)
    assert model is not None
    assert model.factors.n_products == 0
    drawn = [model.draw(values, start, number, uniforms(rng, values.shape)) for number in range(10)]
    np.testing.assert_allclose(np.mean([np.corrcoef(one.T) for one in drawn], axis=0), np.corrcoef(rows.T), atol=0.05)


def test_completed_rows_have_the_interaction_of_the_table(fitted) -> None:
    model, values, start = fitted
    found, rng = [], np.random.default_rng(1)
    for number in range(10):
        rows = model.draw(values, start, number, uniforms(rng, values.shape)) / [10, 1, 0.1] - [0, 5, 0]
        y, x1, x2 = rows.T
        found.append(np.linalg.lstsq(np.column_stack([np.ones(400), x1, x2, x1 * x2]), y, rcond=None)[0])
    np.testing.assert_allclose(np.mean(found, axis=0), [0, 1, -1, 1], atol=0.2)
    assert np.std(found, axis=0).min() > 0.005


def test_observed_cells_stay_as_they_are_and_members_take_turns(fitted) -> None:
    model, values, start = fitted
    numbers = uniforms(np.random.default_rng(2), values.shape, 3)
    first, second, again = (model.draw(values, start, k, numbers) for k in (0, 1, N_MEMBERS))
    seen = ~np.isnan(values)
    assert (first[seen] == values[seen]).all()
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(first, again)


def test_same_generator_gives_the_same_bits_and_a_file_keeps_them(fitted) -> None:
    model, values, start = fitted
    arrays = model.tensors()
    for other in (
        FactoredModel.fit(values, start, (0, 0, 0), np.random.default_rng(0)),
        FactoredModel.from_tensors(arrays),
    ):
        assert other is not None
        assert other.tensors().keys() == arrays.keys()
        for name, array in other.tensors().items():
            np.testing.assert_array_equal(array, arrays[name])
    assert FactoredModel.from_tensors({}) is None


def test_categories_and_their_effects_are_found_again() -> None:
    rng = np.random.default_rng(7)
    group = rng.choice(3, size=500, p=[0.5, 0.3, 0.2])
    other = np.where(rng.random(500) < 0.7, group == 2, rng.random(500) < 0.5)
    y = np.array([0.0, 2.0, -2.0])[group] + rng.normal(size=500)
    values = np.where(rng.random((500, 3)) < 0.2, np.nan, np.column_stack([group, y, other]))
    start = np.where(np.isnan(values), 0.0, values)
    model = FactoredModel.fit(values, start, (3, 0, 2), rng)
    assert model is not None
    means, shares = [], []
    for number in range(10):
        rows = model.draw(values, start, number, uniforms(rng, values.shape))
        means.append([rows[rows[:, 0] == category, 1].mean() for category in range(3)])
        shares.append(np.bincount(rows[:, 0].astype(int), minlength=3) / 500)
    np.testing.assert_allclose(np.mean(means, axis=0), [0, 2, -2], atol=0.25)
    np.testing.assert_allclose(np.mean(shares, axis=0), [0.5, 0.3, 0.2], atol=0.06)
    again = FactoredModel.from_tensors(model.tensors())
    assert again is not None
    numbers = uniforms(np.random.default_rng(0), values.shape, 2)
    np.testing.assert_array_equal(again.draw(values, start, 3, numbers), model.draw(values, start, 3, numbers))


def test_log_scores_of_validation_cells_are_their_log_densities() -> None:
    """The density of one column given complete cells of the two others is known."""
    rows = interacting(2000, 8)
    model = FactoredModel.fit(*with_missing(rows, 8), (0, 0, 0), np.random.default_rng(0))
    assert model is not None
    validation = np.zeros(rows.shape, dtype=bool)
    validation[:200, 0] = True
    start = np.where(validation, 0.0, rows)
    log_densities = model.log_scores(rows, start, validation, np.random.default_rng(1))
    y, x1, x2 = rows[:200].T
    wanted = -0.5 * ((y - x1 + x2 - x1 * x2) ** 2 + np.log(2 * np.pi))
    assert log_densities.mean() == pytest.approx(wanted.mean(), abs=0.05)
    assert np.corrcoef(log_densities, wanted)[0, 1] > 0.95


def test_other_rows_give_one_member_near_the_others(fitted) -> None:
    model, values, start = fitted
    sample = np.random.default_rng(3).integers(400, size=400)
    other = model.refit_on(values[sample], start[sample], np.random.default_rng(4))
    assert len(other.members) == 1
    slopes = np.stack([member.slopes[0][:, 0] for member in model.members])
    found = other.members[0].slopes[0][:, 0]
    assert (np.abs(found - slopes.mean(axis=0)) < 6 * slopes.std(axis=0)).all()


def test_fit_whose_time_is_up_gives_nothing(fitted) -> None:
    _, values, start = fitted
    rng = np.random.default_rng(0)
    assert FactoredModel.fit(values, start, (0, 0, 0), rng, deadline=time.perf_counter() - 1) is None
