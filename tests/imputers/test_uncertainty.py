"""Draws, quantiles and intervals of both presets."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest

from mcflow import MCFlowImputer, load
from mcflow.errors import DataError, McflowWarning, ParameterError
from mcflow.masked.config import MaskedConfig
from mcflow.masked.draws import CellDraws

COVARIANCE = np.array([[1.0, 0.7, 0.3], [0.7, 1.0, 0.5], [0.3, 0.5, 1.0]])

#: Networks that are small enough to be quick.
SMALL = MaskedConfig(width=32, n_members=2, n_knots=12, n_points=24, max_epochs=30)
PRESETS_HERE = pytest.mark.parametrize("preset", ["default", "paper"])


def gaussian_rows(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of a Gaussian, and the same with missing cells, of which no row has three."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, 3)) @ np.linalg.cholesky(COVARIANCE).T
    missing = rng.random(rows.shape) < 0.3
    missing[missing.all(axis=1), 2] = False
    return rows, np.where(missing, np.nan, rows)


@pytest.fixture(scope="module")
def fitted() -> MCFlowImputer:
    return MCFlowImputer(preset=SMALL, random_state=0).fit(gaussian_rows(800, 0)[1])


@pytest.fixture(scope="module")
def by_preset(fitted) -> dict[str, MCFlowImputer]:
    paper = MCFlowImputer(preset="paper", max_epochs=12, random_state=0).fit(gaussian_rows(300, 0)[1])
    return {"default": fitted, "paper": paper}


@pytest.fixture(scope="module")
def large() -> MCFlowImputer:
    """Return a fit on a table that is too large for the factored density."""
    rows = gaussian_rows(SMALL.small_rows + 1000, 3)[1]
    return MCFlowImputer(preset=replace(SMALL, max_epochs=60), random_state=0).fit(rows)


def stack(imputer: MCFlowImputer, rows: np.ndarray, m: int, seed: int = 1) -> np.ndarray:
    return np.stack(list(imputer.draw(rows, m, seed)))


# --- the contract of draws


@PRESETS_HERE
def test_draws_fill_every_missing_cell_and_leave_observed_cells_alone(by_preset, preset) -> None:
    rows, incomplete = gaussian_rows(60, 1)
    drawn = stack(by_preset[preset], incomplete, 5)
    assert drawn.shape == (5, 60, 3)
    assert not np.isnan(drawn).any()
    seen = ~np.isnan(incomplete)
    assert (drawn[:, seen] == rows[seen]).all()
    assert (drawn[0] != drawn[1])[~seen].mean() > 0.95


@PRESETS_HERE
def test_draws_of_a_row_do_not_depend_on_order_or_company(by_preset, preset) -> None:
    incomplete = gaussian_rows(90, 2)[1]
    whole = stack(by_preset[preset], incomplete, 4)
    order = np.random.default_rng(0).permutation(90)
    np.testing.assert_allclose(stack(by_preset[preset], incomplete[order], 4), whole[:, order], rtol=1e-4, atol=1e-5)
    parts = [stack(by_preset[preset], part, 4) for part in np.array_split(incomplete, 4)]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, rtol=1e-4, atol=1e-5)


@PRESETS_HERE
def test_same_seed_gives_the_same_bits_and_more_draws_begin_with_the_same(by_preset, preset) -> None:
    incomplete = gaussian_rows(40, 3)[1]
    first = stack(by_preset[preset], incomplete, 9)
    np.testing.assert_array_equal(stack(by_preset[preset], incomplete, 9), first)
    np.testing.assert_array_equal(stack(by_preset[preset], incomplete, 3), first[:3])
    # Draws from donors are observed values, of which two draws may have the same.
    assert (stack(by_preset[preset], incomplete, 3, seed=2) != first[:3])[:, np.isnan(incomplete)].mean() > 0.8


def test_draws_are_made_when_they_are_asked_for(fitted, monkeypatch) -> None:
    calls: list[int] = []
    original = CellDraws._drawn_cells

    def counted(self, values, hashes, numbers):
        calls.append(len(numbers))
        return original(self, values, hashes, numbers)

    monkeypatch.setattr(CellDraws, "_drawn_cells", counted)
    monkeypatch.setattr("mcflow.masked.draws.MAX_TABLES", 2)
    series = fitted.draw(gaussian_rows(20, 4)[1], 6, 0)
    assert calls == []
    next(series)
    assert calls == [2]


def test_groups_of_draws_are_the_same_as_all_at_once(fitted, monkeypatch) -> None:
    incomplete = gaussian_rows(40, 3)[1]
    whole = stack(fitted, incomplete, 7)
    monkeypatch.setattr("mcflow.masked.draws.MAX_TABLES", 3)
    np.testing.assert_allclose(stack(fitted, incomplete, 7), whole, rtol=1e-5, atol=1e-6)


# --- whether they are right


@pytest.mark.parametrize("which", ["fitted", "large"])
def test_draws_have_the_conditional_mean_spread_and_correlation(which, request) -> None:
    imputer = request.getfixturevalue(which)
    rng = np.random.default_rng(5)
    rows = np.column_stack([np.full((400, 2), np.nan), rng.normal(size=400) * 1.2])
    drawn = stack(imputer, rows, 60)
    third = rows[:, 2]
    residual = drawn[:, :, :2] - third[:, None] * np.array([0.3, 0.5])
    expected = COVARIANCE[:2, :2] - np.outer([0.3, 0.5], [0.3, 0.5])
    inner = np.abs(third) < 2
    found = np.cov(residual[:, inner].reshape(-1, 2).T)
    np.testing.assert_allclose(residual[:, inner].mean(axis=(0, 1)), 0, atol=0.12)
    np.testing.assert_allclose(found, expected, atol=0.17)
    assert found[0, 1] / np.sqrt(found[0, 0] * found[1, 1]) == pytest.approx(0.64, abs=0.12)


def test_mean_of_many_draws_is_what_transform_gives(large) -> None:
    incomplete = gaussian_rows(300, 6)[1]
    missing = np.isnan(incomplete)
    drawn = stack(large, incomplete, 300)
    deviation = drawn.std(axis=0)[missing].mean()
    away = (drawn.mean(axis=0) - large.transform(incomplete))[missing]
    # A leaf has few donors: the mean of a cell's draws is off by a fraction of its deviation, but not on average.
    assert np.sqrt(np.mean(away**2)) < 0.4 * deviation
    assert abs(away.mean()) < 0.05 * deviation


@pytest.mark.parametrize("which", ["fitted", "large"])
def test_intervals_cover_as_often_as_they_say(which, request) -> None:
    imputer = request.getfixturevalue(which)
    rows, incomplete = gaussian_rows(3000, 7)
    missing = np.isnan(incomplete)
    for level, least, most in ((0.5, 0.47, 0.6), (0.9, 0.87, 0.95)):
        low, high = imputer.interval(incomplete, level)
        inside = ((low <= rows) & (rows <= high))[missing]
        assert least < inside.mean() < most
        assert (low <= high).all()
        assert (low == high)[~missing].all()


def test_intervals_of_the_paper_preset_cover_at_least_nearly_as_often_as_they_say(by_preset) -> None:
    rows, incomplete = gaussian_rows(400, 8)
    missing = np.isnan(incomplete)
    low, high = by_preset["paper"].interval(incomplete, 0.9)
    assert 0.82 < ((low <= rows) & (rows <= high))[missing].mean() < 0.99


def test_column_with_few_values_is_covered_as_asked_and_drawn_from_its_values() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=4000)
    whole = np.clip(np.rint(hidden * 1.5), -3, 3)
    coin = (hidden + rng.normal(size=4000) > 0).astype(float)
    rows = np.column_stack([whole, coin, hidden + 0.5 * rng.normal(size=4000)])
    missing = rng.random(rows.shape) < 0.25
    imputer = MCFlowImputer(preset=SMALL, random_state=0).fit(np.where(missing, np.nan, rows)[:3000])
    test, gaps = rows[3000:], missing[3000:]
    low, high = imputer.interval(np.where(gaps, np.nan, test), 0.9)
    inside = (low <= test) & (test <= high)
    for k in range(3):
        assert 0.83 < inside[gaps[:, k], k].mean() < 0.97
    for table in imputer.draw(np.where(gaps, np.nan, test), 3, 0, row_ids=range(1000)):
        assert set(np.unique(table[:, 0])) <= set(np.arange(-3.0, 4.0))
        assert set(np.unique(table[:, 1])) == {0.0, 1.0}


def test_value_that_many_cells_share_is_drawn_exactly_and_as_often() -> None:
    rng = np.random.default_rng(0)
    amount = np.where(rng.random(3000) < 0.4, 0.0, rng.lognormal(size=3000))
    rows = np.column_stack([amount, rng.normal(size=3000)])
    missing = rng.random(rows.shape) < 0.3
    imputer = MCFlowImputer(preset=SMALL, random_state=0).fit(np.where(missing, np.nan, rows))
    gaps = np.column_stack([np.full(2000, np.nan), rng.normal(size=2000)])
    zeros = [(table[:, 0] == 0).mean() for table in imputer.draw(gaps, 5, 0)]
    assert np.mean(zeros) == pytest.approx(0.4, abs=0.06)


# --- small tables that suit the factored density


def interacting(n_rows: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return y with its features, x1, x2, their product and a group, and the same with missing cells."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.normal(size=(2, n_rows))
    group = rng.choice(["a", "b", "c"], size=n_rows, p=[0.4, 0.35, 0.25])
    y = 1 + x1 + x1 * x2 + 2 * (group == "b") + rng.normal(size=n_rows)
    rows = pd.DataFrame({"x1": x1, "x2": x2, "group": group, "y": y})
    return rows, rows.mask(rng.random(rows.shape) < 0.2)


@pytest.fixture(scope="module")
def factored() -> MCFlowImputer:
    return MCFlowImputer(preset=SMALL, random_state=0).fit(interacting(400, 0)[1])


def test_pooled_analysis_of_draws_finds_the_product_and_the_group(factored) -> None:
    incomplete = interacting(400, 0)[1]
    assert factored.model_.blend.factored.used.all()
    found = []
    for table in factored.draw(incomplete, 10, 0):
        terms = np.column_stack([np.ones(400), table["x1"], table["x1"] * table["x2"], table["group"] == "b"])
        found.append(np.linalg.lstsq(terms.astype(float), table["y"].to_numpy(), rcond=None)[0])
    np.testing.assert_allclose(np.mean(found, axis=0), [1, 1, 1, 2], atol=0.3)


def test_draws_of_a_row_with_a_product_do_not_depend_on_order_or_company(factored) -> None:
    incomplete = interacting(60, 1)[1]
    incomplete.iloc[0] = None
    whole = list(factored.draw(incomplete, 3, 0))
    order = np.random.default_rng(0).permutation(60)
    parts = [
        list(factored.draw(part, 3, 0)) for part in (incomplete.iloc[:1], incomplete.iloc[1:23], incomplete.iloc[23:])
    ]
    for k, table in enumerate(factored.draw(incomplete.iloc[order], 3, 0)):
        pd.testing.assert_frame_equal(table, whole[k].iloc[order], rtol=1e-6)
        pd.testing.assert_frame_equal(pd.concat([part[k] for part in parts]), whole[k], rtol=1e-6)


def test_draws_with_a_product_survive_a_file_and_leave_observed_cells_alone(factored, tmp_path) -> None:
    incomplete = interacting(50, 2)[1]
    factored.save(tmp_path / "factored.mcflow")
    again = list(load(tmp_path / "factored.mcflow").draw(incomplete, 3, 0))
    for table, other in zip(factored.draw(incomplete, 3, 0), again, strict=True):
        pd.testing.assert_frame_equal(table, other)
        pd.testing.assert_frame_equal(table.where(incomplete.notna()), incomplete)
        assert not table.isna().any(axis=None)


def test_fills_are_the_same_whatever_gives_the_draws(factored) -> None:
    incomplete = interacting(50, 3)[1]
    filled, blend = factored.transform(incomplete), factored.model_.blend
    kept, blend.factored = blend.factored, None
    pd.testing.assert_frame_equal(factored.transform(incomplete), filled)
    blend.factored = kept


def test_models_of_resampled_rows_have_densities_of_their_own() -> None:
    incomplete = interacting(200, 4)[1]
    imputer = MCFlowImputer(preset=SMALL, n_models=2, max_epochs=4, random_state=0).fit(incomplete)
    drawn = [table["y"][incomplete["y"].isna()] for table in imputer.draw(incomplete, 4, 0)]
    assert all(np.isfinite(part).all() for part in drawn)
    assert all(not np.allclose(drawn[0], part) for part in drawn[1:])


def test_pooled_analysis_of_draws_of_a_gaussian_table_finds_its_slopes(fitted) -> None:
    """Donors would draw the slopes towards zero."""
    rows, incomplete = gaussian_rows(800, 0)
    assert fitted.model_.blend.factored.used.all()

    def slopes(table: np.ndarray) -> np.ndarray:
        terms = np.column_stack([np.ones(800), table[:, :2]])
        return np.linalg.lstsq(terms, table[:, 2], rcond=None)[0]

    found = np.mean([slopes(table) for table in fitted.draw(incomplete, 10, 0)], axis=0)
    np.testing.assert_allclose(found, slopes(rows), atol=0.08)


# --- quantiles


@PRESETS_HERE
def test_quantiles_rise_and_the_interval_is_two_of_them(by_preset, preset) -> None:
    incomplete = gaussian_rows(30, 9)[1]
    tables = by_preset[preset].quantile(incomplete, [0.05, 0.5, 0.95])
    low, high = by_preset[preset].interval(incomplete, 0.9)
    assert (tables[0] <= tables[1]).all()
    assert (tables[1] <= tables[2]).all()
    np.testing.assert_array_equal(tables[0], low)
    np.testing.assert_array_equal(tables[2], high)
    np.testing.assert_array_equal(
        by_preset[preset].quantile(incomplete, 0.5), by_preset[preset].quantile(incomplete, [0.5])[0]
    )


def test_outermost_quantiles_are_the_ends_of_the_range(fitted) -> None:
    seen = gaussian_rows(800, 0)[1]
    incomplete = np.array([[np.nan, 0.0, 0.0]])
    low, high = fitted.quantile(incomplete, [0, 1])
    np.testing.assert_allclose([low[0, 0], high[0, 0]], [np.nanmin(seen[:, 0]), np.nanmax(seen[:, 0])], rtol=1e-5)


@pytest.mark.parametrize("q", [-0.1, 1.1, [], [[0.5]], np.nan])
def test_quantile_of_what_is_no_probability_is_refused(fitted, q) -> None:
    with pytest.raises(ParameterError, match="from 0 to 1"):
        fitted.quantile(gaussian_rows(5, 0)[1], q)


@pytest.mark.parametrize("level", [0, 1, -0.5, 90, "0.9"])
def test_level_of_an_interval_is_checked(fitted, level) -> None:
    with pytest.raises(ParameterError, match="level is"):
        fitted.interval(gaussian_rows(5, 0)[1], level)


# --- frames, kinds and constraints


@pytest.fixture(scope="module")
def mixed() -> tuple[pd.DataFrame, MCFlowImputer]:
    rng = np.random.default_rng(0)
    age = rng.integers(18, 80, 500)
    low = age + rng.normal(0, 5, 500)
    frame = pd.DataFrame(
        {
            "age": age,
            "low": low,
            "high": low + rng.exponential(10, 500),
            "smokes": np.where(rng.random(500) < 0.3, "yes", "no"),
            "grade": pd.Categorical.from_codes(rng.integers(0, 3, 500), ["a", "b", "c"], ordered=True),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 500), unit="D"),
        }
    )
    for name in frame.columns:
        frame[name] = frame[name].astype("Int64") if name == "age" else frame[name]
        frame.loc[rng.random(500) < 0.2, name] = None
    imputer = MCFlowImputer(preset=SMALL, rules=["low <= high"], bounds={"age": (18, 80)}, random_state=0).fit(frame)
    return frame, imputer


def test_draws_keep_kinds_bounds_and_rules(mixed) -> None:
    frame, imputer = mixed
    for table in imputer.draw(frame, 3, 0):
        assert list(table.columns) == list(frame.columns)
        assert table.dtypes.equals(frame.dtypes)
        assert not table.isna().any().any()
        assert table["age"].between(18, 80).all()
        both = frame[["low", "high"]].isna().any(axis=1)
        assert (table["low"] <= table["high"])[both].all()
        assert set(table["smokes"]) == {"yes", "no"}
        pd.testing.assert_index_equal(table.index, frame.index)
        for name in frame.columns:
            seen = frame[name].notna()
            pd.testing.assert_series_equal(table.loc[seen, name], frame.loc[seen, name])


def test_categories_are_drawn_as_often_as_they_are_likely(mixed) -> None:
    frame, imputer = mixed
    missing = frame["smokes"].isna()
    probability = imputer.predict_proba(frame)["smokes"]["yes"][missing].mean()
    shares = [(table.loc[missing, "smokes"] == "yes").mean() for table in imputer.draw(frame, 20, 0)]
    assert np.mean(shares) == pytest.approx(probability, abs=0.08)


def test_intervals_leave_unordered_categories_open_and_bound_the_rest(mixed) -> None:
    frame, imputer = mixed
    low, high = imputer.interval(frame)
    assert low["smokes"].isna().equals(frame["smokes"].isna())
    for name in ("age", "low", "day", "grade"):
        assert not low[name].isna().any()
        assert (low[name] <= high[name]).all()
    assert low.dtypes.equals(frame.dtypes)


def test_polars_frame_gets_polars_draws_and_bounds(fitted) -> None:
    incomplete = pl.DataFrame(gaussian_rows(30, 1)[1], schema=["a", "b", "c"]).fill_nan(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the fit had no names
        (table,) = fitted.draw(incomplete, 1, 0)
        low, _ = fitted.interval(incomplete)
    assert isinstance(table, pl.DataFrame)
    assert low.columns == ["a", "b", "c"]
    assert table.null_count().sum_horizontal().item() == 0


# --- equal rows


def test_equal_rows_get_equal_draws_and_a_warning(fitted) -> None:
    rows = np.tile([[0.5, np.nan, np.nan]], (40, 1))
    with pytest.warns(McflowWarning, match="row_ids"):
        (table,) = fitted.draw(rows, 1, 0)
    assert (table == table[0]).all()


def test_numbers_of_rows_tell_equal_rows_apart(fitted) -> None:
    rows = np.tile([[0.5, np.nan, np.nan]], (40, 1))
    (table,) = fitted.draw(rows, 1, 0, row_ids=np.arange(40))
    assert len(np.unique(table[:, 1])) > 10, "some of the 40 may have the same donor"
    (back,) = fitted.draw(rows, 1, 0, row_ids=np.arange(40)[::-1])
    np.testing.assert_allclose(back[::-1], table, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("ids", "words"), [(np.arange(3), "shape"), (np.arange(5) / 2, "whole numbers")])
def test_numbers_of_rows_are_checked(fitted, ids, words) -> None:
    with pytest.raises(ParameterError, match=words):
        fitted.draw(gaussian_rows(5, 0)[1], 1, 0, row_ids=ids)


# --- several models, calibration, files


@PRESETS_HERE
def test_models_of_resampled_rows_take_turns_and_survive_a_file(tmp_path, preset) -> None:
    incomplete = gaussian_rows(60, 0)[1]
    given = {"preset": SMALL if preset == "default" else preset, "max_epochs": 4, "random_state": 0}
    one = MCFlowImputer(**given).fit(incomplete)
    three = MCFlowImputer(**given, n_models=3).fit(incomplete)
    np.testing.assert_array_equal(three.transform(incomplete), one.transform(incomplete))
    drawn = stack(three, incomplete, 7)
    np.testing.assert_array_equal(drawn[::3], stack(one, incomplete, 3))
    assert not np.allclose(drawn[1], stack(one, incomplete, 2)[1])
    three.save(tmp_path / "three.mcflow")
    np.testing.assert_array_equal(stack(load(tmp_path / "three.mcflow"), incomplete, 7), drawn)


def test_means_of_analyses_vary_more_with_models_of_resampled_rows() -> None:
    incomplete = gaussian_rows(40, 0)[1]
    spreads = []
    for n_models in (1, 8):
        imputer = MCFlowImputer(preset=SMALL, n_models=n_models, max_epochs=20, random_state=0).fit(incomplete)
        spreads.append(stack(imputer, np.tile([[np.nan, np.nan, 0.0]], (400, 1)) + 1e-6 * np.arange(400)[:, None], 16))
    between = [np.var(drawn[:, :, 0].mean(axis=1)) for drawn in spreads]
    assert between[1] > between[0]


def test_without_calibration_there_is_none(tmp_path) -> None:
    incomplete = gaussian_rows(100, 0)[1]
    imputer = MCFlowImputer(preset=SMALL, max_epochs=2, calibrate=False, random_state=0).fit(incomplete)
    assert imputer.model_.calibration is None
    imputer.save(tmp_path / "raw.mcflow")
    again = load(tmp_path / "raw.mcflow")
    np.testing.assert_array_equal(again.interval(incomplete), imputer.interval(incomplete))
    assert (again.interval(incomplete)[0] <= again.interval(incomplete)[1]).all()


def test_intervals_after_a_file_are_the_same_bits(fitted, tmp_path) -> None:
    incomplete = gaussian_rows(50, 1)[1]
    fitted.save(tmp_path / "model.mcflow")
    again = load(tmp_path / "model.mcflow")
    np.testing.assert_array_equal(again.interval(incomplete), fitted.interval(incomplete))
    np.testing.assert_array_equal(stack(again, incomplete, 3), stack(fitted, incomplete, 3))


# --- small, odd and wrong tables


@pytest.mark.parametrize("n_rows", [2, 3, 5])
def test_few_rows_give_draws_and_intervals(n_rows) -> None:
    incomplete = np.random.default_rng(0).normal(size=(n_rows, 3))
    incomplete[0, 1] = incomplete[1, 2] = np.nan
    imputer = MCFlowImputer(max_epochs=2, random_state=0).fit(incomplete)
    assert not np.isnan(stack(imputer, incomplete, 2)).any()
    low, high = imputer.interval(incomplete)
    assert (low <= high).all()


def test_complete_table_is_its_own_draw(fitted) -> None:
    rows = gaussian_rows(20, 0)[0]
    np.testing.assert_array_equal(stack(fitted, rows, 2), np.stack([rows, rows]))
    np.testing.assert_array_equal(fitted.interval(rows)[0], rows)


def test_constant_columns_alone_can_be_drawn() -> None:
    rows = np.array([[1.0, 2.0], [1.0, np.nan], [np.nan, 2.0]])
    imputer = MCFlowImputer(random_state=0).fit(rows)
    np.testing.assert_array_equal(stack(imputer, rows, 2)[1], np.tile([[1.0, 2.0]], (3, 1)))


@pytest.mark.parametrize("m", [0, -1, 1.5, "2", True])
def test_number_of_draws_is_checked(fitted, m) -> None:
    with pytest.raises(ParameterError, match="m is"):
        fitted.draw(gaussian_rows(5, 0)[1], m)


def test_draw_of_another_table_is_refused(fitted) -> None:
    with pytest.raises(DataError, match="features"):
        fitted.draw(np.zeros((4, 2)), 2)
