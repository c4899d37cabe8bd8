"""Units, knots and points against slow versions, and the marginal distributions over the points."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mcflow.columns.schema import Column
from mcflow.masked.encoding import MAX_PLACES, MAX_SCORE, MIN_DENSITY, POINT_SHARE, TAILS, PointMarginals, TableGrid

# --- units, knots and points


def number(name: str = "x") -> Column:
    return Column(name, "double", "continuous")


def categories(n_categories: int, name: str = "town") -> Column:
    return Column(name, "string", "category", categories=tuple(f"t{k}" for k in range(n_categories)))


def grid_of(*columns: np.ndarray, n_knots: int = 16, n_points: int = 32) -> TableGrid:
    values = np.column_stack(columns)
    return TableGrid.from_values(values, [number(str(k)) for k in range(values.shape[1])], n_knots, n_points)


def discrete(grid: TableGrid) -> list[bool]:
    return grid.marginals(torch.device("cpu")).discrete.tolist()


def own(grid: TableGrid, part: str, column: int = 0) -> np.ndarray:
    """Return a column's knots or points, without the padding."""
    return getattr(grid, part)[column, : getattr(grid, f"n_{part}")[column]]


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1.0, 1e9, 1e200])
def test_units_have_mean_zero_and_spread_one_on_any_scale(scale) -> None:
    values = scale * np.random.default_rng(0).normal(3, 2, size=(400, 1))
    values[::7] = np.nan
    units = grid_of(values).units(values)
    assert np.isnan(units[::7]).all()
    assert abs(np.nanmean(units)) < 0.05
    assert np.nanstd(units) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_codes_undo_units(scale) -> None:
    values = scale * np.random.default_rng(1).exponential(size=(300, 2))
    grid = grid_of(*values.T)
    np.testing.assert_allclose(grid.codes_of(grid.units(values)), values, rtol=1e-12, atol=1e-12 * scale)


def test_column_with_an_outlier_keeps_a_spread_that_tells_the_others_apart() -> None:
    values = np.random.default_rng(0).normal(size=(1000, 1))
    plain = grid_of(values)
    values[5] = 1e6
    wild = grid_of(values)
    assert wild.spread[0] == pytest.approx(plain.spread[0], rel=0.1)
    assert own(wild, "knots")[-1] > 1e5, "and the outlier is on the grid"


def test_column_that_is_equal_but_for_one_cell_has_a_spread() -> None:
    values = np.full((1000, 1), 7.0)
    values[3] = 8.0
    grid = grid_of(values)
    assert 0 < grid.spread[0] < 1
    assert np.isfinite(grid.units(values)).all()
    assert len(own(grid, "points")) == 2


def test_points_of_few_values_are_all_of_them_and_count_as_discrete() -> None:
    values = np.random.default_rng(0).choice([1.0, 2.0, 5.0, 9.0], size=(200, 1))
    grid = grid_of(values)
    np.testing.assert_allclose(own(grid, "points"), (np.array([1, 2, 5, 9]) - grid.centre[0]) / grid.spread[0])
    np.testing.assert_array_equal(own(grid, "knots"), own(grid, "points"))
    assert discrete(grid) == [True]


def test_points_of_many_values_are_quantiles_that_were_observed() -> None:
    values = np.random.default_rng(0).normal(size=(501, 1))
    grid = grid_of(values, n_points=11)
    points = grid.codes_of(own(grid, "points")[:, None])[:, 0]
    ranks = np.unique(np.rint(500 * np.r_[np.linspace(0, 1, 11), TAILS]).astype(int))
    np.testing.assert_allclose(points, np.sort(values[:, 0])[ranks], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(grid.codes[0], np.sort(values[:, 0])[ranks])
    assert discrete(grid) == [False]
    assert (np.diff(own(grid, "points")) > 0).all()


def test_value_that_many_cells_share_has_its_neighbours_as_knots() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(2000) < 0.3, 0.0, rng.exponential(size=2000))[:, None]
    grid = grid_of(values, n_knots=8)
    knots = grid.codes_of(own(grid, "knots")[:, None])[:, 0]
    smallest = values[values > 0].min()
    assert np.abs(knots).min() < 1e-12
    assert np.abs(knots - smallest).min() < 1e-12, "zero stands apart from what is next to it"


def test_point_mass_in_the_middle_has_a_knot_on_either_side() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(2000) < POINT_SHARE + 0.01, 0.5, rng.normal(size=2000))[:, None]
    grid = grid_of(values, n_knots=8)
    knots = grid.codes_of(own(grid, "knots")[:, None])[:, 0]
    wanted = [values[values < 0.5].max(), 0.5, values[values > 0.5].min()]
    place = int(np.abs(knots - 0.5).argmin())
    np.testing.assert_allclose(knots[place - 1 : place + 2], wanted, rtol=1e-9)
    assert len(knots) <= 8 + 3


def test_values_of_few_cells_get_no_knots_of_their_own() -> None:
    rng = np.random.default_rng(0)
    values = np.r_[np.full(10, 0.5), rng.normal(size=1990)][:, None]
    assert grid_of(values, n_knots=8).n_knots.tolist() == [8]


def test_grid_without_knots_has_no_interval() -> None:
    values = np.random.default_rng(0).normal(size=(90, 1))
    grid = grid_of(values, n_knots=0)
    assert grid.n_knots.tolist() == [1]
    assert 32 <= grid.n_points[0] <= 32 + len(TAILS)


def test_shorter_columns_are_padded_with_their_last_value() -> None:
    rng = np.random.default_rng(0)
    grid = grid_of(rng.choice([0.0, 1.0], 100), rng.normal(size=100))
    assert grid.points.shape[1] == grid.n_points[1] >= 32
    assert grid.n_points[0] == 2
    assert (grid.points[0, 1:] == grid.points[0, 1]).all()


def test_value_that_many_cells_share_is_a_point_mass_among_numbers() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(3000) < 0.3, 0.5, rng.normal(size=3000))[:, None]
    grid = grid_of(values)
    (place,) = np.flatnonzero(grid.point_masses[0])
    assert grid.codes[0, place] == 0.5
    # Cells beside it belong to it in part; quantiles stand so near to it that most of its cells are at the value.
    assert 0.9 < grid.point_masses[0, place] < 1
    assert discrete(grid) == [False]
    assert not grid_of(rng.normal(size=3000)).point_masses.any()


def test_share_of_a_point_mass_is_that_of_its_cells_by_counting() -> None:
    values = np.r_[np.zeros(40), np.full(20, 0.25), np.linspace(1, 100, 500)][:, None]
    grid = grid_of(values, n_points=8)
    points = grid.codes[0, : grid.n_points[0]]
    between = values[(values > points[0]) & (values < points[1])]
    expected = 40 / (40 + ((points[1] - between) / (points[1] - points[0])).sum())
    assert points[0] == 0
    np.testing.assert_allclose(grid.point_masses[0, 0], expected, rtol=1e-12)


def test_categories_have_their_codes_as_units_and_back() -> None:
    codes = np.array([[0.0], [2.0], [np.nan], [1.0]])
    grid = TableGrid.from_values(codes, [categories(3)], 16, 32)
    np.testing.assert_array_equal(grid.units(codes), codes)
    np.testing.assert_array_equal(own(grid, "points"), [0, 1, 2])
    np.testing.assert_array_equal(grid.answers[0], [0, 1, 2])
    assert discrete(grid) == [True]


def test_more_categories_than_places_keep_the_most_frequent_apart() -> None:
    n_categories = MAX_PLACES + 30
    codes = np.repeat(np.arange(n_categories), np.arange(n_categories, 0, -1))[::-1].astype(float)[:, None]
    grid = TableGrid.from_values(codes, [categories(n_categories)], 16, 32)
    places, answers = grid.places[0], grid.answers[0]
    np.testing.assert_array_equal(answers, np.arange(MAX_PLACES))
    np.testing.assert_array_equal(places[:MAX_PLACES], np.arange(MAX_PLACES))
    assert (places[MAX_PLACES:] == MAX_PLACES - 1).all()
    assert set(grid.units(codes)[:, 0]) == set(range(MAX_PLACES))


def test_categories_that_share_a_place_share_its_probability_by_frequency() -> None:
    n_categories = MAX_PLACES + 3
    counts = np.r_[np.full(MAX_PLACES - 1, 9), 3, 2, 1, 0]
    codes = np.repeat(np.arange(n_categories), counts).astype(float)[:, None]
    grid = TableGrid.from_values(codes, [categories(n_categories)], 16, 32)
    np.testing.assert_array_equal(grid.shares[0][: MAX_PLACES - 1], 1)
    np.testing.assert_allclose(grid.shares[0][MAX_PLACES - 1 :], [1 / 2, 1 / 3, 1 / 6, 0], atol=1e-6)
    np.testing.assert_allclose(np.bincount(grid.places[0], weights=grid.shares[0]), 1, rtol=1e-12)


def test_categories_with_a_place_each_have_all_of_its_probability() -> None:
    codes = np.arange(MAX_PLACES, dtype=float)[:, None]
    grid = TableGrid.from_values(codes, [categories(MAX_PLACES)], 16, 32)
    np.testing.assert_array_equal(grid.places[0], np.arange(MAX_PLACES))
    np.testing.assert_array_equal(grid.shares[0], 1)


def test_grid_survives_its_arrays() -> None:
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(size=50), rng.integers(0, 3, 50)])
    grid = TableGrid.from_values(values, [number(), categories(3)], 16, 32)
    again = TableGrid.from_tensors(grid.tensors())
    assert (again.places[0], again.answers[0], again.shares[0]) == (None, None, None)
    for name, array in grid.tensors().items():
        np.testing.assert_array_equal(again.tensors()[name], array)
    np.testing.assert_array_equal(again.units(values), grid.units(values))


def test_table_without_columns_has_an_empty_grid() -> None:
    grid = TableGrid.from_values(np.empty((5, 0)), [], 16, 32)
    assert grid.points.shape[0] == 0
    assert grid.units(np.empty((5, 0))).shape == (5, 0)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_asinh_transform_of_a_skewed_column_is_its_logarithm_whatever_the_scale(scale) -> None:
    values = scale * np.exp(np.random.default_rng(0).normal(3, 2, 4000))[:, None]
    grid = TableGrid.from_values(values, [Column("x", "double", "continuous")], 8, 8)
    slope, shift, centre, spread = grid.asinh_params[0]
    read = (np.arcsinh(slope * grid.units(values)[:, 0] + shift) - centre) / spread
    assert abs(read.mean()) < 1e-6
    assert abs(read.std() - 1) < 1e-6
    assert np.corrcoef(read, np.log(values[:, 0]))[0, 1] > 0.99


def test_asinh_transform_of_tiny_and_large_numbers_is_finite_in_single_precision() -> None:
    values = np.array([8e-131, 1.0, 1.0, 8e-131, 1e300])[:, None]
    grid = TableGrid.from_values(values, [Column("x", "double", "continuous")], 8, 8)
    slope, shift, centre, spread = grid.asinh_params[0].astype(np.float32)
    read = (np.arcsinh(slope * grid.units(values)[:, 0].astype(np.float32) + shift) - centre) / spread
    assert np.isfinite(read).all()


# --- marginal distributions


#: A continuous column with all points, one with padding, a discrete one with padding.
POINTS = torch.tensor([[-2.0, -1.0, 0.5, 0.75, 3.0], [0.0, 1.0, 5.0, 5.0, 5.0], [0.0, 1.0, 2.0, 2.0, 2.0]])
N_POINTS = torch.tensor([5, 3, 3])
DISCRETE = torch.tensor([False, False, True])


@pytest.fixture
def marginals() -> PointMarginals:
    return PointMarginals(POINTS, N_POINTS, DISCRETE)


@pytest.fixture
def p() -> Tensor:
    return torch.tensor([[[0.1, 0.2, 0.4, 0.2, 0.1], [0.5, 0.2, 0.3, 0.0, 0.0], [0.2, 0.7, 0.1, 0.0, 0.0]]])


def along(marginals: PointMarginals, p: Tensor, column: int, n_cells: int = 20_001) -> tuple[Tensor, Tensor]:
    """Return cells from the first to the last point of a column, and their densities, in float64."""
    cells = torch.linspace(POINTS[column, 0], POINTS[column, -1], n_cells, dtype=torch.float64)
    units = torch.zeros(n_cells, 3, dtype=torch.float64)
    units[:, column] = cells
    density = marginals.double().log_density(units, p.double().expand(n_cells, -1, -1)).exp()
    return units, density[:, column]


@pytest.mark.parametrize("column", [0, 1])
def test_density_of_a_continuous_column_integrates_to_one(marginals, p, column) -> None:
    units, density = along(marginals, p, column)
    assert float(torch.trapezoid(density, units[:, column])) == pytest.approx(1, abs=1e-6)


def test_density_at_the_points_is_the_height_of_their_triangles(marginals, p) -> None:
    units = torch.zeros(5, 3)
    units[:, 0] = POINTS[0]
    heights = marginals.log_density(units, p.expand(5, -1, -1))[:, 0].exp()
    expected = [2 * 0.1 / 1, 2 * 0.2 / 2.5, 2 * 0.4 / 1.75, 2 * 0.2 / 2.5, 2 * 0.1 / 2.25]
    assert heights.tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("column", [0, 1])
def test_scores_of_a_continuous_column_are_the_integral_of_its_density(marginals, p, column) -> None:
    units, density = along(marginals, p, column)
    below = torch.cumulative_trapezoid(density, units[:, column])
    uniforms = torch.zeros_like(units)
    scores, log_slope = marginals.scores(units, p.double().expand(len(units), -1, -1), uniforms)
    torch.testing.assert_close(torch.special.ndtr(scores[1:, column]), below, atol=1e-6, rtol=0)
    normal = -0.5 * (scores[:, column].square() + math.log(2 * math.pi))
    torch.testing.assert_close(log_slope[:, column] + normal, density.log())


def test_slope_is_the_derivative_of_the_scores_in_a_continuous_column(marginals, p) -> None:
    units = torch.tensor([[-1.7, 2.0, 1.0], [0.6, 4.4, 1.0]], dtype=torch.float64, requires_grad=True)
    scores, log_slope = marginals.double().scores(units, p.double().expand(2, -1, -1), torch.rand(2, 3).double())
    (slope,) = torch.autograd.grad(scores[:, :2].sum(), units)
    torch.testing.assert_close(slope[:, :2].log(), log_slope[:, :2])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-12)])
def test_round_trip_returns_the_units(generator, dtype, tolerance) -> None:
    points = torch.rand(4, 12, generator=generator).cumsum(1)
    discrete = torch.tensor([False, False, True, False])
    marginals = PointMarginals(points, torch.full((4,), 12), discrete).to(dtype)
    p = torch.randn(500, 4, 12, generator=generator).softmax(-1).to(dtype)
    share, uniforms = torch.rand(2, 500, 4, generator=generator).to(dtype)
    units = marginals.points[:, 0] + share * (marginals.points[:, -1] - marginals.points[:, 0])
    units[:, 2] = marginals.points[2, (share[:, 2] * 12).long()]
    back = marginals.places_at(marginals.scores(units, p, uniforms)[0], p)[1]
    torch.testing.assert_close(back[:, ~discrete], units[:, ~discrete], atol=tolerance, rtol=0)
    # a score at the very edge of an atom may round into its neighbour, so the uniform numbers keep off it
    inner = (uniforms[:, 2] > 1e-3) & (uniforms[:, 2] < 1 - 1e-3)
    assert torch.equal(back[inner, 2], units[inner, 2])


def test_scores_of_both_tails_are_mirror_images_in_float32() -> None:
    points = torch.tensor([[-1.0, 0.0, 1.0]])
    marginals = PointMarginals(points, torch.tensor([3]), torch.tensor([False]))
    cells = torch.tensor([[1e-4], [1e-3], [0.3]])
    p = torch.tensor([[[0.05, 0.9, 0.05]]]).expand(3, -1, -1)
    low, _ = marginals.scores(cells - 1, p, torch.zeros(3, 1))
    high, _ = marginals.scores(1 - cells, p, torch.zeros(3, 1))
    torch.testing.assert_close(low, -high, atol=2e-4, rtol=0)
    exact = 0.1 * cells.double() + 0.8 * cells.double().square() / 2
    torch.testing.assert_close(low.double(), torch.special.ndtri(exact), atol=1e-3, rtol=0)


def test_point_masses_are_drawn_as_often_as_their_masses_say(marginals, p, generator) -> None:
    n_draws = 100_000
    scores = torch.randn(n_draws, 3, generator=generator)
    drawn = marginals.places_at(scores, p.expand(n_draws, -1, -1))[1]
    counts = torch.bincount(drawn[:, 2].long(), minlength=3) / n_draws
    torch.testing.assert_close(counts, torch.tensor([0.2, 0.7, 0.1]), atol=0.01, rtol=0)
    assert set(drawn[:, 2].tolist()) == {0.0, 1.0, 2.0}


def test_draws_of_a_continuous_column_have_its_mean(marginals, p, generator) -> None:
    scores = torch.randn(200_000, 3, generator=generator)
    drawn = marginals.places_at(scores, p.expand(len(scores), -1, -1))[1]
    assert drawn[:, 1].min() >= 0
    assert drawn[:, 1].max() <= 5
    # the mean of a hat is the mean of its three corners, and of a half hat a third of the way in
    centres = torch.tensor([1 / 3, 2.0, 5 - 4 / 3])
    assert float(drawn[:, 1].mean()) == pytest.approx(float(p[0, 1, :3] @ centres), abs=0.02)


def test_point_masses_have_their_mass_and_spread_it_by_the_uniform_numbers(marginals, p) -> None:
    units = torch.tensor([[0.0, 0.0, 1.0]]).expand(3, -1)
    p = p.expand(3, -1, -1)
    uniforms = torch.tensor([0.0, 0.5, 1.0])[:, None].expand(-1, 3)
    scores, log_slope = marginals.scores(units, p, uniforms)
    torch.testing.assert_close(torch.special.ndtr(scores[:, 2]), torch.tensor([0.2, 0.55, 0.9]))
    log_normal = -0.5 * (scores[:, 2].square() + math.log(2 * math.pi))
    torch.testing.assert_close((log_slope[:, 2] + log_normal).exp(), torch.full((3,), 0.7))
    torch.testing.assert_close(marginals.log_density(units, p)[:, 2].exp(), torch.full((3,), 0.7))


def test_point_mass_of_no_mass_is_never_drawn(generator) -> None:
    marginals = PointMarginals(torch.arange(4.0)[None], torch.tensor([4]), torch.tensor([True]))
    p = torch.tensor([[[0.0, 0.5, 0.0, 0.5]]]).expand(10_000, -1, -1)
    drawn = marginals.places_at(torch.randn(10_000, 1, generator=generator) * 3, p)[1]
    assert set(drawn[:, 0].tolist()) == {1.0, 3.0}


def test_padding_when_it_is_cut_off_changes_nothing(marginals, p, generator) -> None:
    alone = PointMarginals(POINTS[1:2, :3], N_POINTS[1:2], DISCRETE[1:2])
    units = 5 * torch.rand(50, 1, generator=generator)
    scores, log_slope = alone.scores(units, p[:, 1:2, :3].expand(50, -1, -1), units)
    wide = torch.cat([torch.zeros(50, 1), units, torch.zeros(50, 1)], 1)
    torch.testing.assert_close(marginals.scores(wide, p.expand(50, -1, -1), wide)[0][:, 1:2], scores)
    torch.testing.assert_close(marginals.scores(wide, p.expand(50, -1, -1), wide)[1][:, 1:2], log_slope)
    noisy = p.clone()
    noisy[:, 1:, 3:] = 7.0
    torch.testing.assert_close(marginals.scores(wide, noisy.expand(50, -1, -1), wide)[0][:, 1:2], scores)


def test_cells_beyond_the_points_have_the_smallest_density_and_the_largest_score(marginals, p) -> None:
    units = torch.tensor([[-9.0, 99.0, 1.4], [-2.0, 5.0, 99.0]])
    p = p.expand(2, -1, -1)
    log_density = marginals.log_density(units, p)
    assert log_density[0, :2].exp().tolist() == pytest.approx([MIN_DENSITY] * 2, rel=1e-4)
    assert log_density[1].exp().tolist() == pytest.approx([0.2, 2 * 0.3 / 4, 0.1], rel=1e-4)
    scores, _ = marginals.scores(units, p, torch.ones(2, 3))
    assert scores[:, 0].tolist() == pytest.approx([-MAX_SCORE] * 2, abs=1e-3)
    assert scores[:, 1].tolist() == pytest.approx([MAX_SCORE] * 2, abs=1e-3)
    assert float(scores[0, 2]) == pytest.approx(float(torch.special.ndtri(torch.tensor(0.9))), abs=1e-4)


def test_column_with_one_point_is_a_point_mass() -> None:
    marginals = PointMarginals(torch.tensor([[4.0]]), torch.tensor([1]), torch.tensor([False]))
    p = torch.ones(2, 1, 1)
    units = torch.full((2, 1), 4.0)
    assert torch.equal(marginals.log_density(units, p), torch.zeros(2, 1))
    assert torch.equal(marginals.places_at(torch.tensor([[-2.0], [3.0]]), p)[1], units)


def test_gradients_are_finite_at_points_ends_and_masses_of_zero(marginals) -> None:
    units = torch.cat([POINTS.T, torch.tensor([[-9.0, 9.0, 9.0]])]).requires_grad_()
    logits = torch.full((6, 3, 5), -200.0)
    logits[:, :, 0] = 0.0
    logits[:, 1:, 3:] = -1e4
    logits.requires_grad_()
    scores, log_slope = marginals.scores(units, logits.softmax(-1), torch.linspace(0, 1, 18).reshape(6, 3))
    assert scores.isfinite().all()
    assert log_slope.isfinite().all()
    (scores.square().sum() + log_slope.sum()).backward()
    assert units.grad.isfinite().all()
    assert logits.grad.isfinite().all()


def test_units_are_finite_for_scores_far_out(marginals, p) -> None:
    scores = torch.tensor([[-40.0] * 3, [40.0] * 3, [0.0] * 3])
    drawn = marginals.places_at(scores, p.expand(3, -1, -1))[1]
    torch.testing.assert_close(drawn[:2], torch.stack([POINTS[:, 0], POINTS[:, -1]]))
    assert drawn.isfinite().all()


# --- numbers of which some stand at one value


@pytest.fixture
def mixed() -> tuple[PointMarginals, Tensor]:
    """Return a column whose third point is an atom in most of its cells, and probabilities."""
    points = torch.tensor([[-2.0, -1.0, 0.5, 0.75, 3.0]])
    point_masses = torch.tensor([[0.0, 0.0, 0.8, 0.0, 0.0]])
    return PointMarginals(points, torch.tensor([5]), point_masses), torch.tensor([[[0.1, 0.2, 0.4, 0.2, 0.1]]])


def test_mass_of_a_point_mass_and_the_density_around_it_make_one(mixed) -> None:
    marginals, p = mixed
    marginals = marginals.double()
    cells = torch.linspace(-2, 3, 50_001, dtype=torch.float64)[:, None] + 1e-5
    density = marginals.log_density(cells, p.double().expand(len(cells), -1, -1)).exp()
    between = torch.trapezoid(density[:, 0], cells[:, 0])
    at = marginals.log_density(torch.tensor([[0.5]]).double(), p.double()).exp()
    assert float(at) == pytest.approx(0.4 * 0.8, rel=1e-6)
    assert float(between) == pytest.approx(1 - 0.4 * 0.8, abs=1e-4)


def test_scores_within_a_point_mass_run_through_its_mass_and_come_back_to_it(mixed) -> None:
    marginals, p = mixed
    uniforms = torch.tensor([[0.0], [0.5], [1.0]])
    units, many = torch.full((3, 1), 0.5), p.expand(3, -1, -1)
    scores, _ = marginals.scores(units, many, uniforms)
    reached = torch.special.ndtr(scores)[:, 0]
    assert float(reached[2] - reached[0]) == pytest.approx(0.32, abs=1e-5)
    places, back = marginals.places_at(scores[1:2], p)
    assert (int(places), float(back)) == (2, 0.5)


def test_cells_beside_a_point_mass_have_no_place_and_come_back(mixed) -> None:
    marginals, p = mixed
    units = torch.tensor([[-1.7], [0.3], [0.6], [2.5]])
    scores, _ = marginals.scores(units, p.expand(4, -1, -1), torch.rand(4, 1))
    places, back = marginals.places_at(scores, p.expand(4, -1, -1))
    torch.testing.assert_close(back, units, atol=1e-4, rtol=0)
    assert (places == -1).all()
    assert marginals.at_point_masses(units).sum() == 0


def test_shares_at_a_point_mass_are_those_of_many_draws(mixed) -> None:
    marginals, p = mixed
    scores = torch.special.ndtri((torch.arange(20_000) + 0.5) / 20_000)[:, None]
    drawn = marginals.places_at(scores, p.expand(len(scores), -1, -1))[1]
    assert float((drawn == 0.5).float().mean()) == pytest.approx(0.32, abs=1e-3)
    assert float(drawn.mean()) == pytest.approx(float((p[0] * marginals.means()).sum()), abs=1e-3)
    assert (drawn.diff(dim=0) >= 0).all()
