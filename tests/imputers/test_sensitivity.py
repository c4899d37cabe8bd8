"""Moved draws and tipping points: closed forms, what stays as it was, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from mcflow import MCFlowImputer
from mcflow.errors import McflowWarning, ParameterError
from mcflow.imputers.sensitivity import Sensitivity, sensitivity, tilt_categories
from mcflow.pool import pool

BOUNDS = {
    "number": (-1e4, 1e4),
    "count": (-1000, 1000),
    "day": (pd.Timestamp("1900-01-01"), pd.Timestamp("2100-01-01")),
}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """120 rows of every kind of column, with rows in which several cells are missing."""
    rng = np.random.default_rng(0)
    number = rng.normal(10, 2, 120)
    steps = number + rng.normal(size=120)
    frame = pd.DataFrame(
        {
            "number": number,
            "near": number + rng.normal(0, 0.2, 120),
            "count": pd.array(rng.poisson(np.exp(number / 5)), dtype="Int64"),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 500, 120), unit="D"),
            "yes": pd.array(steps > 10, dtype="boolean"),
            "grade": pd.Categorical(np.digitize(steps, [8, 10, 12]), ordered=True),
            "pair": np.where(steps > 11, "b", "a"),
            "word": rng.choice(["a", "b", "c"], 120),
            "whole": np.arange(120) % 2 == 0,
        }
    )
    return frame.mask(pd.DataFrame(rng.random(frame.shape) < 0.2).set_axis(frame.columns, axis=1).assign(whole=False))


@pytest.fixture(scope="module")
def imputer(frame: pd.DataFrame) -> MCFlowImputer:
    return MCFlowImputer(max_epochs=3, bounds=BOUNDS, random_state=0).fit(frame)


@pytest.fixture(scope="module")
def drawn(imputer: MCFlowImputer, frame: pd.DataFrame) -> list[pd.DataFrame]:
    return list(imputer.draw(frame, 6, random_state=5))


def both(imputer, frame, column, delta, m=3, drawn=None):
    """Return draws as they are, unless they are given, and draws that are moved."""
    moved = sensitivity(imputer, frame, column, [delta], m=m, random_state=5)
    return (drawn or list(imputer.draw(frame, m, random_state=5)))[:m], list(moved.draws(delta))


@pytest.mark.parametrize(("column", "delta"), [("number", 2.5), ("number", -0.75), ("count", 3)])
def test_mean_when_numbers_are_moved_moves_by_delta_times_the_share_of_missing_cells(
    imputer, frame, drawn, column, delta
) -> None:
    for plain, moved in zip(*both(imputer, frame, column, delta, drawn=drawn), strict=True):
        shift = delta * frame[column].isna().mean()
        assert moved[column].astype(float).mean() - plain[column].astype(float).mean() == pytest.approx(shift)
        assert moved[column].dtype == frame[column].dtype


def test_dates_when_moved_are_later_by_that_many_days(imputer, frame, drawn) -> None:
    missing = frame["day"].isna()
    for plain, moved in zip(*both(imputer, frame, "day", 30, drawn=drawn), strict=True):
        assert ((moved["day"] - plain["day"])[missing] == pd.Timedelta(days=30)).all()


def test_whole_numbers_when_moved_by_a_part_are_moved_by_it_on_average(imputer, frame, drawn) -> None:
    pairs = list(zip(*both(imputer, frame, "count", 0.25, m=6, drawn=drawn), strict=True))
    missing = frame["count"].isna()
    steps = np.concatenate([(moved["count"] - plain["count"])[missing].to_numpy(dtype=float) for plain, moved in pairs])
    assert set(steps) == {0.0, 1.0}
    assert steps.mean() == pytest.approx(0.25, abs=4 * np.sqrt(0.25 * 0.75 / len(steps)))


@pytest.mark.parametrize("column", ["number", "count", "day", "yes", "grade", "pair"])
def test_observed_cells_when_others_are_moved_stay_as_they_are(imputer, frame, drawn, column) -> None:
    _, moved = both(imputer, frame, column, 1.0, m=1, drawn=drawn)
    for table in moved:
        assert not table.isna().any().any()
        pd.testing.assert_frame_equal(table.where(frame.notna()), frame, check_dtype=False)


@pytest.mark.parametrize("column", ["number", "count", "day", "yes", "grade", "pair"])
def test_draws_at_delta_zero_are_those_of_draw_but_for_other_missing_cells_of_the_row(
    imputer, frame, drawn, column
) -> None:
    missing = frame[column].isna()
    for plain, moved in zip(*both(imputer, frame, column, 0.0, m=2, drawn=drawn), strict=True):
        pd.testing.assert_series_equal(moved[column], plain[column])
        pd.testing.assert_frame_equal(moved[~missing], plain[~missing])


def test_rest_of_a_row_when_a_cell_is_moved_follows_it(frame) -> None:
    """Drawn given the moved number, a column that hardly differs from it has to move the same way."""
    slow = MCFlowImputer(max_epochs=30, bounds={"number": (-100, 100)}, random_state=0).fit(frame[["number", "near"]])
    incomplete = frame[["number", "near"]].dropna().head(40).assign(number=np.nan, near=np.nan)
    found = sensitivity(slow, incomplete, "number", [-2, 2], m=5, random_state=0, row_ids=np.arange(40))
    near = {delta: np.mean([table["near"].mean() for table in found.draws(delta)]) for delta in found.deltas}
    assert near[-2] < near[0] - 0.5
    assert near[2] > near[0] + 0.5


def test_rest_of_a_row_gets_the_same_random_numbers_at_every_delta(imputer, frame) -> None:
    found = sensitivity(imputer, frame, "number", [1e-9, 1], m=2, random_state=0)
    for first, second in zip(found.draws(0.0), found.draws(1e-9), strict=True):
        np.testing.assert_allclose(first["near"], second["near"], atol=1e-4)
        assert (first["word"] == second["word"]).all()


def test_draws_when_repeated_are_the_same_whatever_was_asked_before(imputer, frame) -> None:
    found = sensitivity(imputer, frame, "number", [1], m=2, random_state=0)
    first = list(found.draws(1))
    next(found.draws(-1))
    for one, other in zip(first, found.draws(1), strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_models_when_there_are_several_take_turns_as_in_draw(frame) -> None:
    frame, bounds = frame[["number", "near"]], {"number": BOUNDS["number"]}
    several = MCFlowImputer(max_epochs=1, n_models=2, bounds=bounds, random_state=0).fit(frame)
    for drawn, moved in zip(*both(several, frame, "number", 1.0, m=3), strict=True):
        np.testing.assert_allclose((moved["number"] - drawn["number"])[frame["number"].isna()], 1.0)


@pytest.mark.parametrize("delta", [-2.0, 0.7, 3.0])
def test_tilted_categories_when_drawn_by_their_probabilities_have_the_shifted_log_odds(delta) -> None:
    rng = np.random.default_rng(0)
    probabilities = np.repeat([[0.7, 0.3]], 200_000, axis=0)
    categories = tilt_categories((rng.random(200_000) < 0.3).astype(float), probabilities, rng.random(200_000), delta)
    odds = 0.3 / 0.7 * np.exp(delta)
    assert categories.mean() == pytest.approx(odds / (1 + odds), abs=4 * 0.5 / np.sqrt(200_000))


def test_tilted_categories_when_ordered_are_shifted_by_rank() -> None:
    rng = np.random.default_rng(0)
    probabilities = np.array([0.2, 0.5, 0.0, 0.3])
    drawn = rng.choice(4, 200_000, p=probabilities).astype(float)
    categories = tilt_categories(drawn, np.repeat([probabilities], 200_000, axis=0), rng.random(200_000), 0.8)
    expected = probabilities * np.exp(0.8 * np.arange(4))
    np.testing.assert_allclose(np.bincount(categories.astype(int)) / 200_000, expected / expected.sum(), atol=0.005)
    assert (categories >= drawn).all()


@pytest.mark.parametrize(("column", "highest"), [("yes", True), ("pair", "b"), ("grade", 3)])
def test_categories_when_moved_far_are_all_the_last_or_the_first(imputer, frame, column, highest) -> None:
    missing = frame[column].isna()
    found = sensitivity(imputer, frame, column, [60], m=2, random_state=0)
    assert all((table[column][missing] == highest).all() for table in found.draws(60))
    assert all((table[column][missing] != highest).all() for table in found.draws(-60))


def test_booleans_when_moved_have_the_shifted_odds_of_those_that_are_drawn(imputer, frame) -> None:
    incomplete = frame[frame["yes"].isna() & frame.drop(columns="yes").notna().all(axis=1)]
    found = sensitivity(imputer, incomplete, "yes", [1.0], m=150, random_state=0)
    drawn, moved = (
        np.mean([table["yes"].to_numpy(dtype=float) for table in found.draws(delta)], axis=0) for delta in (0.0, 1.0)
    )
    share, probabilities = moved.mean(), np.clip(drawn, 0.001, 0.999)
    odds = probabilities / (1 - probabilities) * np.e
    assert share == pytest.approx((odds / (1 + odds)).mean(), abs=0.05)


def test_rules_when_a_cell_is_moved_bind_the_others_to_it() -> None:
    rng = np.random.default_rng(0)
    low = rng.integers(50, 90, 200).astype(float)
    rows = pd.DataFrame({"low": low, "high": low + rng.integers(1, 50, 200)})
    rows.iloc[:60] = rows.iloc[:60].mask(rng.random((60, 2)) < 0.6)
    rows.iloc[:20] = np.nan
    bounds = {"low": (0, 300), "high": (0, 300)}
    imputer = MCFlowImputer(max_epochs=3, rules=["low <= high"], bounds=bounds, random_state=0).fit(rows)
    ids = np.arange(200)
    drawn = imputer.draw(rows, 3, random_state=0, row_ids=ids)
    found = sensitivity(imputer, rows, "high", [40], m=3, random_state=0, row_ids=ids)
    for before, after in zip(drawn, found.draws(-15), strict=True):
        assert (after["low"] <= after["high"]).all()
        free = rows["high"].isna() & rows["low"].isna()
        assert free.sum() >= 20
        np.testing.assert_array_equal(after["high"][free], before["high"][free] - 15)


def test_column_that_fills_no_other_is_moved_alone(frame) -> None:
    some = frame[["number", "near", "yes"]]
    roles, bounds = {"number": "targets_only"}, {"number": (-100, 100)}
    imputer = MCFlowImputer(max_epochs=1, roles=roles, bounds=bounds, random_state=0).fit(some)
    for drawn, moved in zip(*both(imputer, some, "number", 3.0, m=2), strict=True):
        pd.testing.assert_frame_equal(moved.drop(columns="number"), drawn.drop(columns="number"))
        np.testing.assert_allclose((moved["number"] - drawn["number"])[some["number"].isna()], 3.0)


def test_moved_tables_when_polars_was_given_are_polars(frame) -> None:
    given = pl.from_pandas(frame[["number", "near", "day", "yes", "grade"]])
    imputer = MCFlowImputer(max_epochs=1, random_state=0).fit(given)
    (moved,) = sensitivity(imputer, given, "yes", [1], m=1, random_state=0).draws(1)
    assert isinstance(moved, pl.DataFrame)
    assert moved.schema == given.schema
    assert moved.null_count().sum_horizontal().item() == 0


def test_moved_cells_at_the_bounds_stop_and_are_warned_of(frame) -> None:
    frame = frame[["number", "near"]]
    imputer = MCFlowImputer(max_epochs=2, random_state=0).fit(frame)
    found = sensitivity(imputer, frame, "number", [1000], m=1, random_state=0)
    with pytest.warns(McflowWarning, match="At delta 1000, 100 % of the shifted cells of column 'number'"):
        (table,) = found.draws(1000)
    assert (table["number"][frame["number"].isna()] == frame["number"].max()).all()


def test_paper_preset_when_moved_keeps_the_same_promises(fitted_paper, table) -> None:
    rows = table[:60]
    missing = np.isnan(rows[:, 0])
    found = sensitivity(fitted_paper, rows, 0, [0.1], m=2, random_state=3)
    for drawn, moved in zip(fitted_paper.draw(rows, 2, random_state=3), found.draws(0), strict=True):
        np.testing.assert_array_equal(moved[:, 0], drawn[:, 0])
        np.testing.assert_array_equal(moved[~missing], drawn[~missing])
    for drawn, moved in zip(fitted_paper.draw(rows, 2, random_state=3), found.draws(0.1), strict=True):
        inside = missing & (drawn[:, 0] + 0.1 < np.nanmax(table[:, 0]))
        np.testing.assert_allclose(moved[inside, 0] - drawn[inside, 0], 0.1)
        assert not np.isnan(moved).any()


def test_analysis_when_given_is_pooled_at_every_delta(imputer, frame) -> None:
    found = sensitivity(imputer, frame, "number", [2, -2], analysis="number ~ near", m=3, random_state=0, level=0.9)
    assert found.deltas == (-2.0, 0.0, 2.0)
    assert [result.m for result in found.results.values()] == [3, 3, 3]
    shown = found.table()
    assert list(shown.columns) == ["delta", "term", "estimate", "std.error", "df", "p.value", "5 %", "95 %"]
    assert shown["delta"].tolist() == [-2.0, -2.0, 0.0, 0.0, 2.0, 2.0]
    assert shown["term"].tolist() == ["Intercept", "near"] * 3
    np.testing.assert_allclose(shown["estimate"][:2], found.results[-2.0].estimate)
    assert str(found).splitlines()[0] == "Filled cells of number shifted by -2, 0, 2"


def series(values: dict[float, float], variance: float = 1.0) -> Sensitivity:
    """Results whose only term is as given, with a Gaussian interval."""
    results = {delta: pool([value] * 2, [variance] * 2, names=["age"]) for delta, value in values.items()}
    return Sensitivity("bmi", tuple(values), results)


def test_tipping_point_when_an_interval_end_crosses_zero_is_interpolated() -> None:
    found = series({-2.0: 4.0, -1.0: 3.5, 0.0: 3.0, 1.0: 2.5, 2.0: 1.5}).tipping_point("age")
    assert found.below is None
    assert found.above == pytest.approx(1 + (2.5 - 1.959964), abs=1e-6)
    assert found.delta == found.above
    assert "shifted by 1.54; it holds down to -2" in str(found)


def test_tipping_point_when_a_term_is_below_zero_looks_at_the_upper_end() -> None:
    found = series({-1.0: -1.0, 0.0: -3.0, 1.0: -5.0}).tipping_point("age")
    assert found.below == pytest.approx(-(3 - 1.959964) / 2, abs=1e-6)
    assert found.above is None


def test_tipping_point_when_nothing_is_told_apart_at_zero_is_where_something_is() -> None:
    found = series({-1.0: -3.0, 0.0: 0.0, 1.0: 4.0}).tipping_point("age")
    assert found.below == pytest.approx(-1.959964 / 3, abs=1e-6)
    assert found.above == pytest.approx(1.959964 / 4, abs=1e-6)
    assert found.delta == found.above
    assert "not significantly different from 0 at delta 0" in found.words


def test_tipping_point_when_the_sign_turns_within_a_step_is_where_the_conclusion_is_lost() -> None:
    found = series({0.0: 4.0, 1.0: -4.0}).tipping_point("age")
    assert found.above == pytest.approx((4 - 1.959964) / 8, abs=1e-6)


def test_tipping_point_when_there_is_none_says_how_far_was_looked() -> None:
    found = series({-1.0: 5.0, 0.0: 5.0, 3.0: 5.0}).tipping_point("age")
    assert found.delta is None
    assert found.words.endswith("This holds for all deltas from -1 to 3.")


def test_tipping_point_when_alpha_is_smaller_comes_sooner() -> None:
    given = series({0.0: 3.0, 1.0: 0.0})
    assert given.tipping_point("age", 0.01).above < given.tipping_point("age").above


@pytest.mark.parametrize(
    ("column", "deltas", "options", "words"),
    [
        ("nummber", [1], {}, "There is no column 'nummber'. Did you mean 'number'"),
        ("word", [1], {}, "'word' has 3 unordered categories"),
        ("number", [], {}, "has to be finite numbers"),
        ("number", [1, np.nan], {}, "has to be finite numbers"),
        ("number", "much", {}, "has to be finite numbers"),
        ("number", [1], {"m": 0}, "m is 0"),
        ("number", [1], {"level": 95}, "level is 95"),
        ("number", [1], {"formula": "number ~ near"}, "Pass analysis= as well"),
        ("number", [1], {"row_ids": [1, 2]}, "row_ids has the shape"),
    ],
)
def test_sensitivity_when_it_cannot_be_done_says_what_to_do(imputer, frame, column, deltas, options, words) -> None:
    with pytest.raises(ParameterError, match=words):
        sensitivity(imputer, frame, column, deltas, **options)


def test_column_that_is_not_filled_is_refused(frame) -> None:
    frame = frame[["number", "near"]]
    imputer = MCFlowImputer(max_epochs=1, roles={"near": "predictors_only"}, random_state=0).fit(frame)
    with pytest.raises(ParameterError, match="'near' is continuous with the role 'predictors_only'"):
        sensitivity(imputer, frame, "near", [1])


def test_complete_column_is_warned_of_and_changes_nothing(imputer, frame) -> None:
    with pytest.warns(McflowWarning, match="no delta changes anything"):
        found = sensitivity(imputer, frame, "whole", [1], m=1, random_state=0)
    (drawn,), (moved,) = imputer.draw(frame, 1, random_state=0), found.draws(1)
    pd.testing.assert_frame_equal(moved, drawn)


def test_results_without_an_analysis_are_refused(imputer, frame) -> None:
    found = sensitivity(imputer, frame, "number", [1], m=1)
    assert found.results == {}
    for ask in (found.table, lambda: found.tipping_point("near")):
        with pytest.raises(ParameterError, match="There is no analysis"):
            ask()


def test_unknown_terms_and_strange_alphas_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"There is no term 'agee'.*Did you mean 'age'"):
        series({0.0: 1.0}).tipping_point("agee")
    with pytest.raises(ParameterError, match="alpha is 5"):
        series({0.0: 1.0}).tipping_point("age", 5)
    with pytest.raises(ParameterError, match="results only"):
        series({0.0: 1.0}).draws(1)
