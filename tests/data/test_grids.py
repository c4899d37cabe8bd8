"""Units, knots and points: against slow versions, whatever the scale of a column."""

from __future__ import annotations

import numpy as np
import pytest

from mcflow.data.grids import ATOM_SHARE, MAX_PLACES, TAILS, TableGrid
from mcflow.data.schema import Column


def number(name: str = "x") -> Column:
    return Column(name, "double", "continuous")


def levels(n_levels: int, name: str = "town") -> Column:
    return Column(name, "string", "category", levels=tuple(f"t{k}" for k in range(n_levels)))


def grid_of(*columns: np.ndarray, n_knots: int = 16, n_points: int = 32) -> TableGrid:
    values = np.column_stack(columns)
    return TableGrid.from_values(values, [number(str(k)) for k in range(values.shape[1])], n_knots, n_points)


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
def test_numbers_undo_units(scale) -> None:
    values = scale * np.random.default_rng(1).exponential(size=(300, 2))
    grid = grid_of(*values.T)
    np.testing.assert_allclose(grid.numbers(grid.units(values)), values, rtol=1e-12, atol=1e-12 * scale)


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
    assert grid.discrete.tolist() == [True]


def test_points_of_many_values_are_quantiles_that_were_observed() -> None:
    values = np.random.default_rng(0).normal(size=(501, 1))
    grid = grid_of(values, n_points=11)
    points = grid.numbers(own(grid, "points")[:, None])[:, 0]
    ranks = np.unique(np.rint(500 * np.r_[np.linspace(0, 1, 11), TAILS]).astype(int))
    np.testing.assert_allclose(points, np.sort(values[:, 0])[ranks], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(grid.codes[0], np.sort(values[:, 0])[ranks])
    assert grid.discrete.tolist() == [False]
    assert (np.diff(own(grid, "points")) > 0).all()


def test_value_that_many_cells_share_has_its_neighbours_as_knots() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(2000) < 0.3, 0.0, rng.exponential(size=2000))[:, None]
    grid = grid_of(values, n_knots=8)
    knots = grid.numbers(own(grid, "knots")[:, None])[:, 0]
    smallest = values[values > 0].min()
    assert np.abs(knots).min() < 1e-12
    assert np.abs(knots - smallest).min() < 1e-12, "zero stands apart from what is next to it"


def test_atom_in_the_middle_has_a_knot_on_either_side() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(2000) < ATOM_SHARE + 0.01, 0.5, rng.normal(size=2000))[:, None]
    grid = grid_of(values, n_knots=8)
    knots = grid.numbers(own(grid, "knots")[:, None])[:, 0]
    wanted = [values[values < 0.5].max(), 0.5, values[values > 0.5].min()]
    place = int(np.abs(knots - 0.5).argmin())
    np.testing.assert_allclose(knots[place - 1 : place + 2], wanted, rtol=1e-9)
    assert len(knots) <= 8 + 3


def test_values_of_few_cells_get_no_knots_of_their_own() -> None:
    rng = np.random.default_rng(0)
    values = np.r_[np.full(10, 0.5), rng.normal(size=1990)][:, None]
    assert grid_of(values, n_knots=8).n_knots.tolist() == [8]


def test_grid_without_knots_has_no_piece_between_any() -> None:
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


def test_value_that_many_cells_share_is_an_atom_among_numbers() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(3000) < 0.3, 0.5, rng.normal(size=3000))[:, None]
    grid = grid_of(values)
    (place,) = np.flatnonzero(grid.atoms[0])
    assert grid.codes[0, place] == 0.5
    # Cells beside it belong to it in part; quantiles stand so near to it that most of its cells are at the value.
    assert 0.9 < grid.atoms[0, place] < 1
    assert not grid.discrete[0]
    assert not grid_of(rng.normal(size=3000)).atoms.any()


def test_share_of_an_atom_is_that_of_its_cells_by_counting() -> None:
    values = np.r_[np.zeros(40), np.full(20, 0.25), np.linspace(1, 100, 500)][:, None]
    grid = grid_of(values, n_points=8)
    points = grid.codes[0, : grid.n_points[0]]
    between = values[(values > points[0]) & (values < points[1])]
    expected = 40 / (40 + ((points[1] - between) / (points[1] - points[0])).sum())
    assert points[0] == 0
    np.testing.assert_allclose(grid.atoms[0, 0], expected, rtol=1e-12)


def test_levels_have_their_codes_as_units_and_back() -> None:
    codes = np.array([[0.0], [2.0], [np.nan], [1.0]])
    grid = TableGrid.from_values(codes, [levels(3)], 16, 32)
    np.testing.assert_array_equal(grid.units(codes), codes)
    np.testing.assert_array_equal(own(grid, "points"), [0, 1, 2])
    np.testing.assert_array_equal(grid.answers[0], [0, 1, 2])
    assert grid.discrete.tolist() == [True]


def test_more_levels_than_places_keep_the_commonest_apart() -> None:
    n_levels = MAX_PLACES + 30
    codes = np.repeat(np.arange(n_levels), np.arange(n_levels, 0, -1))[::-1].astype(float)[:, None]
    grid = TableGrid.from_values(codes, [levels(n_levels)], 16, 32)
    places, answers = grid.places[0], grid.answers[0]
    np.testing.assert_array_equal(answers, np.arange(MAX_PLACES))
    np.testing.assert_array_equal(places[:MAX_PLACES], np.arange(MAX_PLACES))
    assert (places[MAX_PLACES:] == MAX_PLACES - 1).all()
    assert set(grid.units(codes)[:, 0]) == set(range(MAX_PLACES))


def test_levels_that_share_a_place_share_its_chance_as_they_were_seen() -> None:
    n_levels = MAX_PLACES + 3
    counts = np.r_[np.full(MAX_PLACES - 1, 9), 3, 2, 1, 0]
    codes = np.repeat(np.arange(n_levels), counts).astype(float)[:, None]
    grid = TableGrid.from_values(codes, [levels(n_levels)], 16, 32)
    np.testing.assert_array_equal(grid.shares[0][: MAX_PLACES - 1], 1)
    np.testing.assert_allclose(grid.shares[0][MAX_PLACES - 1 :], [1 / 2, 1 / 3, 1 / 6, 0], atol=1e-6)
    np.testing.assert_allclose(np.bincount(grid.places[0], weights=grid.shares[0]), 1, rtol=1e-12)


def test_levels_with_a_place_each_have_all_of_its_chance() -> None:
    codes = np.arange(MAX_PLACES, dtype=float)[:, None]
    grid = TableGrid.from_values(codes, [levels(MAX_PLACES)], 16, 32)
    np.testing.assert_array_equal(grid.places[0], np.arange(MAX_PLACES))
    np.testing.assert_array_equal(grid.shares[0], 1)


def test_grid_survives_its_arrays() -> None:
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(size=50), rng.integers(0, 3, 50)])
    grid = TableGrid.from_values(values, [number(), levels(3)], 16, 32)
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
def test_second_reading_of_a_skewed_column_is_its_logarithm_whatever_the_scale(scale) -> None:
    values = scale * np.exp(np.random.default_rng(0).normal(3, 2, 4000))[:, None]
    grid = TableGrid.from_values(values, [Column("x", "double", "continuous")], 8, 8)
    slope, shift, centre, spread = grid.bends[0]
    read = (np.arcsinh(slope * grid.units(values)[:, 0] + shift) - centre) / spread
    assert abs(read.mean()) < 1e-6
    assert abs(read.std() - 1) < 1e-6
    assert np.corrcoef(read, np.log(values[:, 0]))[0, 1] > 0.99


def test_second_reading_of_tiny_and_large_numbers_stays_a_number_in_single_precision() -> None:
    values = np.array([8e-131, 1.0, 1.0, 8e-131, 1e300])[:, None]
    grid = TableGrid.from_values(values, [Column("x", "double", "continuous")], 8, 8)
    slope, shift, centre, spread = grid.bends[0].astype(np.float32)
    read = (np.arcsinh(slope * grid.units(values)[:, 0].astype(np.float32) + shift) - centre) / spread
    assert np.isfinite(read).all()
