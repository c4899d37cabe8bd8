"""Kinds, roles and constraints from end to end: what goes into a fit shows in what comes out."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import beta, expon, norm

from mcflow import MCFlowImputer
from mcflow.errors import DataError, ParameterError

FRAMES = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Four related columns of numbers and one of categories, a fifth of the cells missing."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=120)
    table = pd.DataFrame(
        {
            "a": base,
            "b": 2 * base + rng.normal(size=120),
            "c": rng.exponential(size=120),
            "city": np.array(["Bern", "Bonn", "Graz"])[np.digitize(base, [-0.5, 0.5])],
            "y": base + rng.normal(size=120),
        }
    )
    return table.mask(rng.random(table.shape) < 0.2)


# --- roles


@pytest.mark.parametrize("role", ["ignore", "outcome"])
@pytest.mark.parametrize("name", ["y", "city"])
def test_column_that_is_not_used_passes_through_and_changes_no_other_fill(frame, role, name, quick) -> None:
    filled = quick(roles={name: role}).fit_transform(frame)
    pd.testing.assert_series_equal(filled[name], frame[name])
    assert filled[name].isna().any()
    without = quick().fit_transform(frame.drop(columns=name))
    pd.testing.assert_frame_equal(filled.drop(columns=name), without)


def test_column_that_is_ignored_may_hold_anything(frame, quick) -> None:
    strange = frame.assign(y=[[k] if k % 2 else "x" for k in range(120)])
    filled = quick(roles={"y": "ignore"}).fit_transform(strange)
    pd.testing.assert_series_equal(filled["y"], strange["y"])
    infinite = frame.assign(y=np.inf)
    assert np.isinf(quick(roles={"y": "outcome"}).fit_transform(infinite)["y"]).all()


@pytest.mark.parametrize("name", ["y", "city"])
def test_predictor_is_used_and_its_holes_stay(frame, name, quick) -> None:
    imputer = quick(roles={name: "predictors_only"}).fit(frame)
    filled = imputer.transform(frame)
    pd.testing.assert_series_equal(filled[name], frame[name])
    others = filled.drop(columns=name)
    assert not others.isna().any().any()
    turned = imputer.transform(frame.assign(**{name: frame[name].to_numpy()[::-1]}))
    missing = frame["b"].isna()
    assert (turned["b"] != filled["b"])[missing].any(), "other values of a predictor give other fills"
    assert name not in imputer.predict_proba(frame)


@pytest.mark.parametrize("name", ["y", "city"])
def test_target_is_filled_and_its_cells_change_no_other_fill(frame, name, quick) -> None:
    imputer = quick(roles={name: "targets_only"}).fit(frame)
    filled = imputer.transform(frame)
    assert not filled.isna().any().any()
    seen = frame[name].notna()
    assert (filled[name][seen] == frame[name][seen]).all()
    for other in (frame[name].to_numpy()[::-1], np.where(seen, frame[name].dropna().iloc[0], None), None):
        changed = frame.assign(**{name: pd.Series(other, index=frame.index, dtype=frame[name].dtype)})
        again = imputer.transform(changed)
        pd.testing.assert_frame_equal(again.drop(columns=name), filled.drop(columns=name))
        assert not again.isna().any().any()


def test_target_s_fills_follow_the_other_columns(frame, quick) -> None:
    imputer = quick(roles={"y": "targets_only"}).fit(frame)
    missing = frame["y"].isna()
    turned = imputer.transform(frame.assign(a=-frame["a"], b=-frame["b"]))
    assert (turned["y"] != imputer.transform(frame)["y"])[missing].any()


def test_target_s_cells_play_no_part_in_probabilities_of_others(frame, quick) -> None:
    imputer = quick(roles={"y": "targets_only"}).fit(frame)
    before = imputer.predict_proba(frame)["city"]
    pd.testing.assert_frame_equal(imputer.predict_proba(frame.assign(y=5.0))["city"], before)


def test_roles_of_array_columns_go_by_position(table, quick) -> None:
    filled = quick(roles={1: "ignore", 3: "predictors_only"}).fit_transform(table)
    np.testing.assert_array_equal(filled[:, [1, 3]], table[:, [1, 3]])
    assert not np.isnan(filled[:, [0, 2]]).any()


def test_wish_that_cannot_be_met_is_refused_at_fit(frame, quick) -> None:
    for wish in ({"roles": {"z": "ignore"}}, {"kinds": {"a": "nominal"}}, {"rules": ["a < z"]}):
        with pytest.raises(ParameterError):
            quick(**wish).fit(frame)
    with pytest.raises(DataError, match="outside bounds"):
        quick(bounds={"a": (0, None)}).fit(frame)


# --- kinds


def test_numbers_that_are_called_categories_are_filled_with_seen_ones(quick) -> None:
    rng = np.random.default_rng(0)
    codes = rng.choice([10_115, 20_095, 80_331], 200)
    table = pd.DataFrame({"zip": pd.array(codes, dtype="Int64"), "x": codes / 1e5 + rng.normal(size=200) / 50})
    table.loc[::6, "zip"] = pd.NA
    imputer = quick(kinds={"zip": "category"}).fit(table)
    filled = imputer.transform(table)
    assert filled["zip"].dtype == "Int64"
    assert set(filled["zip"]) == {10_115, 20_095, 80_331}
    assert list(imputer.predict_proba(table)["zip"].columns) == [10_115, 20_095, 80_331]
    assert not set(quick().fit_transform(table)["zip"]) <= {10_115, 20_095, 80_331}, "as numbers there are others"


def test_column_that_is_called_text_is_left_alone(frame, quick) -> None:
    filled = quick(kinds={"city": "text"}).fit_transform(frame)
    pd.testing.assert_series_equal(filled["city"], frame["city"])


@pytest.mark.parametrize("kind", FRAMES)
def test_whole_numbers_get_whole_numbers_and_integers_on_request(kind, quick) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"count": rng.poisson(3, 200).astype("float64"), "x": rng.normal(size=200)})
    table.loc[::4, ["count", "x"]] = np.nan
    table["k"] = np.arange(200) % 7
    given = FRAMES[kind](table)
    plain = quick().fit_transform(given)
    values = np.asarray(plain["count"], dtype=np.float64)
    assert (values == np.rint(values)).all()
    assert values.min() >= 0
    restored = quick(restore_integers=True).fit_transform(given)
    types = {
        "pandas": lambda t: str(t["count"].dtype) == "Int64" and str(t["x"].dtype) == "float64",
        "polars": lambda t: dict(t.schema) == {"count": pl.Int64, "x": pl.Float64, "k": pl.Int64},
        "pyarrow": lambda t: t.schema.types == [pa.int64(), pa.float64(), pa.int64()],
    }
    assert types[kind](restored)
    np.testing.assert_array_equal(np.asarray(restored["count"], dtype=np.float64), values)


def test_few_whole_floats_among_floats_are_filled_in_between_unless_said_otherwise(quick) -> None:
    rng = np.random.default_rng(0)
    count = rng.poisson(3, 200)
    table = pd.DataFrame({"count": count.astype("float64"), "x": count + rng.normal(size=200)})
    table.loc[::4, "count"] = np.nan
    missing = table["count"].isna()
    assert not (quick().fit_transform(table)["count"][missing] % 1 == 0).any()
    assert not (quick().fit_transform(table.to_numpy())[missing, 0] % 1 == 0).any()
    whole = {
        "said": quick(kinds={"count": "integer"}).fit_transform(table),
        "restored": quick(restore_integers=True).fit_transform(table),
        "text beside": quick().fit_transform(table.assign(word=["u", "v"] * 100)),
        "a wide range": quick().fit_transform(table.assign(count=table["count"] * 10)),
    }
    for case, filled in whole.items():
        assert (filled["count"][missing] % 1 == 0).all(), case
        assert filled["count"].between(0, 10 * count.max()).all()


@pytest.mark.parametrize("kind", FRAMES)
def test_integers_that_stay_missing_are_restored_as_nullable(kind, quick) -> None:
    table = FRAMES[kind](pd.DataFrame({"count": [1.0, 2.0, np.nan, 4.0] * 10, "x": np.linspace(0, 1, 40)}))
    filled = quick(restore_integers=True, roles={"count": "predictors_only"}).fit_transform(table)
    cells = filled["count"].to_pylist() if kind == "pyarrow" else filled["count"].to_list()
    assert [None if cell is pd.NA else cell for cell in cells] == [1, 2, None, 4] * 10
    assert "int64" in str(filled["count"].dtype if kind != "pyarrow" else filled["count"].type).lower()


# --- bounds


def skewed(seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A normal variable, a copy with noise, and an exponential and a beta variable that follow it; 30 % missing."""
    rng = np.random.default_rng(seed)
    base, noise = rng.normal(size=1500), rng.normal(size=(3, 1500))
    table = pd.DataFrame(
        {
            "base": base,
            "copy": base + 0.2 * noise[0],
            "wait": expon.ppf(norm.cdf(0.97 * base + 0.24 * noise[1])),
            "share": beta.ppf(norm.cdf(0.24 * noise[2] - 0.97 * base), 0.7, 3),
        }
    )
    missing = rng.random(table.shape) < 0.3
    return table, missing


#: The presets, and the scalings of the one that scales.
SCALED = [("default", None), ("paper", "range"), ("paper", "auto")]


@pytest.mark.parametrize(("preset", "scaling"), SCALED)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_bounded_skewed_columns_when_filled_have_no_heap_at_a_bound(seed, scaling, preset) -> None:
    table, missing = skewed(seed)
    incomplete = table.mask(missing)
    bounds = {"wait": (0, None), "share": (0, 1)}
    more = {"max_epochs": 32, "learning_rate": 5e-3, "tolerance": 0} if preset == "paper" else {"max_epochs": 20}
    imputer = MCFlowImputer(preset=preset, random_state=0, scaling=scaling, bounds=bounds, **more)
    filled = imputer.fit_transform(incomplete)
    for name, bound in (("wait", 0), ("share", 0), ("share", 1)):
        seen, fills = incomplete[name].dropna(), filled[name][incomplete[name].isna()]
        near = 0.01 * (seen.max() - seen.min())
        assert fills.std() > 0.3 * seen.std(), "a fit that says the same everywhere shows nothing"
        share, before = ((cells - bound).abs() < near for cells in (fills, seen))
        assert share.mean() <= 2 * before.mean() + 0.01
        assert (fills == bound).sum() <= 1, "clipped answers would all be equal"
    assert (filled["wait"] >= 0).all()
    assert filled["share"].between(0, 1).all()


@pytest.mark.parametrize(("preset", "scaling"), SCALED)
def test_bounds_hold_for_all_fills_and_open_ones_let_fills_out_of_the_range(frame, preset, scaling) -> None:
    quick = partial(MCFlowImputer, preset=preset, max_epochs=2, calibrate=False, random_state=0)
    low, high = frame["a"].min() - 0.05, frame["a"].max() + 0.01
    wide = {"a": (low, high), "c": (0, None)}
    imputer = quick(bounds=wide, scaling=scaling, learning_rate=0.05).fit(frame)
    filled = imputer.transform(frame)
    assert filled["a"].between(low, high).all()
    assert (filled["c"] >= 0).all()
    narrow = quick(scaling=scaling, learning_rate=0.05).fit_transform(frame)
    for name in "abc":
        assert narrow[name].between(frame[name].min(), frame[name].max()).all(), "the observed range by default"
    drawn = imputer.sample(500, random_state=0)
    assert drawn["a"].between(low, high).all()
    assert (drawn["c"] >= 0).all()


@pytest.mark.parametrize("given", [[0.0, 0.5, 3.0], "observed"])
def test_listed_values_are_the_only_fills(frame, given, quick) -> None:
    filled = quick(allowed={"c": given}).fit_transform(frame)
    missing = frame["c"].isna()
    options = given if isinstance(given, list) else frame["c"].dropna()
    assert filled["c"][missing].isin(options).all()
    assert (filled["c"][~missing] == frame["c"][~missing]).all()


def test_bounds_of_dates_hold(quick) -> None:
    rng = np.random.default_rng(0)
    day = pd.Series(pd.Timestamp("2020-03-01") + pd.to_timedelta(rng.integers(0, 60, 200), unit="D"))
    table = pd.DataFrame({"day": day.mask(rng.random(200) < 0.3), "x": rng.normal(size=200)})
    filled = quick(bounds={"day": ("2020-02-25", pd.Timestamp("2020-05-02"))}, learning_rate=0.05).fit_transform(table)
    assert filled["day"].between("2020-02-25", "2020-05-02").all()
    assert (filled["day"] == filled["day"].dt.normalize()).all(), "a column of days gets days"


# --- rules


def test_rules_hold_in_every_row_whose_observed_cells_agree(quick) -> None:
    rng = np.random.default_rng(0)
    low = rng.normal(70, 8, 400)
    table = pd.DataFrame({"low": low, "high": low + rng.exponential(20, 400) + 1, "age": rng.integers(18, 90, 400)})
    table["age"] = table["age"].astype("float64")
    table.loc[:9, "high"] = table.loc[:9, "low"] - 5
    missing = rng.random(table.shape) < 0.3
    missing[:5] = False
    incomplete = table.mask(missing)
    filled = quick(rules=["low < high", "age >= 18"], learning_rate=0.05).fit_transform(incomplete)
    against = incomplete["low"] >= incomplete["high"]
    assert 5 <= against.sum() <= 10
    assert (filled["low"] < filled["high"])[~against].all()
    assert (filled["age"] >= 18).all()
    pd.testing.assert_frame_equal(filled[against][["low", "high"]], incomplete[against][["low", "high"]])


@pytest.mark.parametrize("whole", [True, False])
def test_rules_hold_along_a_chain_with_whole_numbers(quick, whole) -> None:
    rng = np.random.default_rng(1)
    parts = np.sort(rng.integers(0, 30, (300, 3)), axis=1).astype("float64")
    incomplete = pd.DataFrame(parts, columns=list("abc")).mask(rng.random(parts.shape) < 0.4)
    filled = quick(rules=["a <= b <= c"], learning_rate=0.05, restore_integers=whole).fit_transform(incomplete)
    assert (filled["a"] <= filled["b"]).all()
    assert (filled["b"] <= filled["c"]).all()
    assert (filled == filled.round()).all().all() == whole, "few whole floats among floats are filled in between"


@pytest.mark.parametrize("rule", ["day <= time", "day >= time", "time < day", "day < time"])
def test_rules_hold_between_days_and_times(rule, quick) -> None:
    """A day is midnight: what is filled in has to keep the rule after it became a day."""
    rng = np.random.default_rng(0)
    start = np.datetime64("2020-01-01T00:00:00")
    days = rng.integers(0, 30, 300)
    later = rule in ("day <= time", "day < time")
    seconds = rng.integers(1, 5 * 86_400, 300) * (1 if later else -1)
    time = start + days * np.timedelta64(1, "D") + seconds * np.timedelta64(1, "s")
    table = pa.table(
        {
            "day": pa.array(
                (start + days * np.timedelta64(1, "D")).astype("datetime64[D]"), mask=rng.random(300) < 0.4
            ),
            "time": pa.array(time, mask=rng.random(300) < 0.4),
            "x": days + rng.normal(size=300),
        }
    )
    filled = quick(rules=[rule], learning_rate=0.05).fit_transform(table)
    assert filled.schema == table.schema
    day = filled["day"].to_numpy().astype("datetime64[s]")
    moment = filled["time"].to_numpy().astype("datetime64[s]")
    holds = {"day <= time": day <= moment, "day >= time": day >= moment, "time < day": moment < day}
    assert holds.get(rule, day < moment).all()


def test_rules_hold_between_durations(quick) -> None:
    rng = np.random.default_rng(0)
    short = rng.integers(1, 50, 200)
    table = pl.DataFrame(
        {
            "short": [timedelta(hours=int(k)) if rng.random() > 0.3 else None for k in short],
            "long": [timedelta(hours=int(k), minutes=30) if rng.random() > 0.3 else None for k in short],
        }
    )
    filled = quick(rules=["short <= long"], learning_rate=0.05).fit_transform(table)
    assert filled.null_count().sum_horizontal().item() == 0
    assert (filled["short"] <= filled["long"]).all()


def test_rules_bind_sampled_rows(frame, quick) -> None:
    drawn = quick(rules=["a <= c"], bounds={"a": (-9, 9), "c": (-9, 9)}).fit(frame).sample(400, random_state=0)
    assert (drawn["a"] <= drawn["c"]).all()
