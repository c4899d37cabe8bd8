"""Planning of a table: schema, constraints, and the settings that are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mcflow.columns.frames import read_frame
from mcflow.columns.inspection import inspect_columns
from mcflow.columns.planning import ColumnSettings, plan_table
from mcflow.columns.schema import MissingValues
from mcflow.errors import DataError, McflowWarning, ParameterError

DAY = 86_400_000_000


def frame() -> pd.DataFrame:
    """One column of every kind, 30 rows."""
    count = np.arange(30)
    return pd.DataFrame(
        {
            "weight": 50 + count * 0.5,
            "zip": 10_000 + count % 4,
            "sex": count % 2 == 0,
            "city": np.array(["Bonn", "Graz", "Bern"])[count % 3],
            "grade": pd.Categorical(np.array(["low", "mid", "high"])[count % 3], ["low", "mid", "high"], ordered=True),
            "start": pd.Timestamp("2020-01-01") + pd.to_timedelta(count % 7, unit="D"),
            "end": pd.Timestamp("2020-02-01 10:30:15") + pd.to_timedelta(count * 977, unit="s"),
            "stay": pd.to_timedelta(count * 12, unit="h"),
            "seen": (pd.Timestamp("2020-06-01 12:00") + pd.to_timedelta(count, unit="h")).tz_localize("Europe/Berlin"),
            "blank": np.full(30, np.nan),
            "one": 3.0,
        }
    )


def plan(table=None, **settings):
    return plan_table(read_frame(frame() if table is None else table), ColumnSettings(**settings))


def column(schema, name):
    return next(c for c in schema.columns if c.name == name)


def refusal(table=None, **settings) -> str:
    with pytest.raises(ParameterError) as caught:
        plan(table, **settings)
    return str(caught.value)


def bounds_of(name, table=None, **settings) -> tuple[float, float]:
    _, constraints = plan(table, **settings)
    k = constraints.names.index(name)
    return float(constraints.low[k]), float(constraints.high[k])


# --- kinds and roles


def test_kinds_when_nothing_is_given_are_found() -> None:
    schema, constraints = plan()
    kinds = {c.name: c.kind for c in schema.columns}
    assert kinds == {
        "weight": "continuous",
        "zip": "integer",
        "sex": "boolean",
        "city": "category",
        "grade": "ordered",
        "start": "datetime",
        "end": "datetime",
        "stay": "datetime",
        "seen": "datetime",
        "blank": "empty",
        "one": "constant",
    }
    assert column(schema, "grade").categories == ("low", "mid", "high")
    assert column(schema, "city").categories == ("Bern", "Bonn", "Graz")
    assert column(schema, "start").step == DAY
    assert column(schema, "end").step == 1_000_000
    assert constraints.names == tuple(name for name in kinds if name != "blank")
    assert constraints.whole.tolist() == [name != "weight" for name in constraints.names]


def test_kind_when_given_replaces_the_found_one() -> None:
    given = {"zip": "category", "city": "text", "start": "text", "weight": "integer"}
    schema, constraints = plan(kinds=given)
    assert {name: column(schema, name).kind for name in given} == given
    assert column(schema, "zip").categories == (10_000, 10_001, 10_002, 10_003)
    assert (column(schema, "zip").low, column(schema, "zip").high) == (0, 3)
    assert "city" not in constraints.names


@pytest.mark.parametrize(("name", "kind"), [("city", "continuous"), ("weight", "datetime"), ("city", "integer")])
def test_kind_when_it_does_not_fit_the_cells_is_refused(name, kind) -> None:
    with pytest.raises(DataError, match=f"'{name}' has the type .* cannot be read as {kind}"):
        plan(kinds={name: kind})


@pytest.mark.parametrize(
    ("name", "kind", "words"), [("start", "category", "cannot be the categories"), ("city", "boolean", "two")]
)
def test_kind_of_categories_when_the_cells_cannot_be_categories_is_refused(name, kind, words) -> None:
    with pytest.raises(DataError, match=f"'{name}' .* {words}"):
        plan(kinds={name: kind})


def test_counter_of_rows_is_not_used_unless_its_kind_is_given() -> None:
    table = frame().assign(id=np.arange(1, 31))
    with pytest.warns(McflowWarning, match="'id' has a different whole number in every row"):
        schema, _ = plan(table)
    assert column(schema, "id").kind == "identifier"
    schema, _ = plan(table, kinds={"id": "integer"})
    assert column(schema, "id").kind == "integer"


@pytest.mark.parametrize("setting", ["kinds", "roles", "bounds", "allowed"])
def test_setting_for_a_column_that_is_not_there_is_refused_with_a_close_name(setting) -> None:
    text = refusal(**{setting: {"wieght": "fill"}})
    assert f"{setting} names the column 'wieght', which the table does not have." in text
    assert "Did you mean 'weight'?" in text


@pytest.mark.parametrize("setting", ["kinds", "roles", "bounds", "allowed"])
def test_setting_that_is_no_dictionary_is_refused(setting) -> None:
    assert f"{setting} is ['weight'], but has to be a dictionary" in refusal(**{setting: ["weight"]})


def test_unknown_kind_or_role_is_refused_with_what_is_allowed() -> None:
    text = refusal(kinds={"zip": "categorie"})
    assert "kinds['zip'] is 'categorie', but has to be one of continuous, integer, datetime, boolean" in text
    assert "Did you mean 'category'?" in text
    text = refusal(roles={"zip": "ignored"})
    assert "has to be one of fill, ignore, predictors_only, targets_only, outcome." in text
    assert "Did you mean 'ignore'?" in text


def test_columns_of_arrays_go_by_their_positions() -> None:
    table = np.column_stack([frame()["weight"], frame()["weight"] * 3])
    schema, constraints = plan(table, roles={1: "targets_only"}, bounds={0: (0, None)}, rules=["x0 <= x1"])
    assert [c.role for c in schema.columns] == ["fill", "targets_only"]
    assert constraints.names == ("x0", "x1")
    assert constraints.low[0] == 0
    assert "names the column 'x0'" in refusal(table, bounds={"x0": (0, 1)})


def test_columns_without_a_use_are_not_read() -> None:
    schema, constraints = plan(roles={"weight": "ignore", "zip": "outcome", "sex": "predictors_only"})
    assert not column(schema, "weight").coded
    assert not column(schema, "zip").coded
    assert column(schema, "sex").in_model
    assert not column(schema, "sex").filled
    assert "weight" not in constraints.names


# --- bounds


def test_bounds_when_nothing_is_given_are_the_observed_range() -> None:
    assert bounds_of("weight") == (50, 64.5)
    assert bounds_of("zip") == (10_000, 10_003)


def test_bounds_when_given_replace_the_range_and_none_is_open() -> None:
    assert bounds_of("weight", bounds={"weight": (0, None)}) == (0, np.inf)
    assert bounds_of("weight", bounds={"weight": [None, 200]}) == (-np.inf, 200)
    assert bounds_of("one", bounds={"one": (0, 5)}) == (0, 5), "a constant column has bounds, too"


@pytest.mark.parametrize("given", [5, (1,), (1, 2, 3), None, "ab", {"low": 1}, {1, 2}])
def test_bounds_of_another_shape_are_refused(given) -> None:
    assert "has to be a pair such as (0, 120) or (0, None)" in refusal(bounds={"weight": given})


@pytest.mark.parametrize("given", [(5, 5), (100, 0)])
def test_bounds_that_leave_nothing_are_refused(given) -> None:
    assert "the lower bound has to be below the upper one" in refusal(bounds={"weight": given})


@pytest.mark.parametrize("value", ["heavy", object(), np.nan, [1], date(2020, 1, 1), 10**400])
def test_bounds_that_are_no_numbers_are_refused(value) -> None:
    text = refusal(bounds={"weight": (value, None)})
    assert "is not a value for column 'weight' of type double; give a number." in text


@pytest.mark.parametrize("given", [(51, None), (None, 60), (0, 64.4)])
def test_bounds_that_observed_values_break_are_refused(given) -> None:
    with pytest.raises(DataError, match=r"'weight' has observed values outside bounds .*Observed cells are never"):
        plan(bounds={"weight": given})


@pytest.mark.parametrize("name", ["sex", "city", "grade"])
def test_bounds_and_lists_for_categories_are_refused(name) -> None:
    assert f"bounds names '{name}', a column of kind" in refusal(bounds={name: (0, 1)})
    assert f"allowed names '{name}', a column of kind" in refusal(allowed={name: [0, 1]})


def test_bounds_for_text_are_refused_and_for_columns_without_a_use_passed_over() -> None:
    assert "bounds names 'city', a column of kind text" in refusal(kinds={"city": "text"}, bounds={"city": (0, 1)})
    plan(bounds={"blank": (0, 1)})
    plan(roles={"weight": "ignore"}, bounds={"weight": (0, 1)})


@pytest.mark.parametrize(
    "low",
    [
        "2019-12-31",
        "2019-12-31T00:00:00",
        date(2019, 12, 31),
        datetime(2019, 12, 31),
        pd.Timestamp("2019-12-31"),
        np.datetime64("2019-12-31"),
    ],
)
def test_bounds_of_times_may_be_texts_dates_or_times(low) -> None:
    days = (date(2019, 12, 31) - date(1970, 1, 1)).days
    assert bounds_of("start", bounds={"start": (low, None)}) == (days, np.inf)
    assert bounds_of("end", bounds={"end": (low, "2020-12")}) == (days * 86_400, 18_597 * 86_400)


@pytest.mark.parametrize("value", [0, 18_000.0, True, "soon", "2020-13-01", pd.NaT, np.datetime64("NaT"), timedelta(1)])
def test_bounds_of_times_that_are_no_times_are_refused(value) -> None:
    text = refusal(bounds={"start": (value, None)})
    assert "is not a value for column 'start' of type timestamp" in text
    assert "give a date or time such as '2020-01-31'" in text


def test_bounds_of_times_that_observed_ones_break_are_refused() -> None:
    with pytest.raises(DataError, match="'start' has observed values outside bounds"):
        plan(bounds={"start": ("2020-01-02", None)})


def test_bounds_of_times_with_a_zone_are_those_of_the_zone_unless_they_name_another() -> None:
    hours = (datetime(2020, 5, 31, 22, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(hours=1)
    summer = timezone(timedelta(hours=2))
    for low in ("2020-06-01", datetime(2020, 6, 1), "2020-05-31T22:00Z", datetime(2020, 6, 1, tzinfo=summer)):
        assert bounds_of("seen", bounds={"seen": (low, None)}) == (hours, np.inf)
    assert "without a time zone" in refusal(bounds={"start": (datetime(2019, 1, 1, tzinfo=UTC), None)})


def test_bounds_of_durations_are_durations() -> None:
    for low in (timedelta(days=-1), np.timedelta64(-1, "D"), pd.Timedelta(days=-1)):
        assert bounds_of("stay", bounds={"stay": (low, None)}) == (-24, np.inf)
    assert "give a timedelta" in refusal(bounds={"stay": (0, None)})


# --- lists


def test_list_when_given_is_sorted_and_bounds_the_fills() -> None:
    _, constraints = plan(allowed={"weight": [60, 40.5, 60, 70]})
    np.testing.assert_array_equal(constraints.allowed[0], [40.5, 60, 70])
    assert (constraints.low[0], constraints.high[0]) == (40.5, 70)
    assert bounds_of("weight", allowed={"weight": [40, 70]}, bounds={"weight": (0, None)}) == (0, np.inf)


def test_list_of_observed_values_is_read_off_the_table() -> None:
    table = frame()
    table.loc[3:, "weight"] = np.where(np.arange(27) % 2 == 0, np.nan, 55)
    _, constraints = plan(table, allowed={"weight": "observed", "start": "observed"})
    np.testing.assert_array_equal(constraints.allowed[0], [50, 50.5, 51, 55])
    assert len(constraints.allowed[constraints.names.index("start")]) == 7


def test_list_of_times_is_read_like_bounds() -> None:
    _, constraints = plan(allowed={"start": ["2020-01-02", date(2020, 1, 5)]})
    np.testing.assert_array_equal(constraints.allowed[constraints.names.index("start")], [18_263, 18_266])


@pytest.mark.parametrize("given", [[], "seen", 5, {1, 2}, None])
def test_list_of_another_shape_is_refused(given) -> None:
    assert "has to be a list of values or 'observed'" in refusal(allowed={"weight": given})


@pytest.mark.parametrize("given", [[1, "x"], [1, np.nan], [1, None], [1, np.inf]])
def test_list_with_something_else_is_refused(given) -> None:
    assert "weight" in refusal(allowed={"weight": given})


def test_list_without_a_value_that_fits_is_refused() -> None:
    assert "allowed value" in refusal(allowed={"zip": [0.5, 1.5]})
    assert "allowed value" in refusal(allowed={"weight": [500, 600]}, bounds={"weight": (0, 100)})


# --- rules


def test_rule_with_a_number_narrows_the_bounds() -> None:
    assert bounds_of("weight", bounds={"weight": (0, 200)}, rules=["weight >= 18", "weight <= 100"]) == (18, 100)
    assert bounds_of("weight", bounds={"weight": (0, 200)}, rules="18 <= weight <= 100") == (18, 100)


def test_rules_that_are_no_list_are_refused() -> None:
    assert "rules is 5, but has to be a list of strings" in refusal(rules=5)
    assert "rules is {'weight': 1}, but has to be a list of strings" in refusal(rules={"weight": 1})


def test_rule_with_a_column_that_is_not_there_is_refused_with_a_close_name() -> None:
    assert "Did you mean 'weight'?" in refusal(rules=["wieght <= zip"])


def test_rule_between_times_of_different_steps_gives_both_the_finer_one() -> None:
    schema, constraints = plan(rules=["start <= end"])
    start, end = column(schema, "start"), column(schema, "end")
    assert start.step == end.step == 1_000_000
    assert start.low * start.step == pd.Timestamp("2020-01-01").value / 1000
    k = constraints.names.index("start")
    assert constraints.low[k] == start.low
    np.testing.assert_array_equal(constraints.allowed[k] % 86_400, 0)
    assert len(constraints.allowed[k]) == 7


def test_steps_when_rules_make_a_chain_are_all_the_same() -> None:
    table = pd.DataFrame(
        {
            name: pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(30) % 7, unit=unit)
            for name, unit in zip("abcdef", ["D", "D", "D", "D", "D", "us"], strict=True)
        }
    )
    for rules in ("a <= b <= c <= d <= e <= f", "f <= e <= d <= c <= b <= a"):
        schema, _ = plan(table, rules=[rules])
        assert {c.step for c in schema.columns} == {1}


def test_days_among_seconds_when_they_are_too_many_are_not_listed() -> None:
    table = frame()[["start", "end"]]
    _, constraints = plan(table, rules=["start <= end"], bounds={"start": (None, "2021-01-01")})
    assert constraints.allowed == (None, None)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("start <= weight", "compares a time with a number"),
        ("zip <= end", "compares a number with a time"),
        ("start >= 5", "compares a time with a number"),
        ("start <= stay", "compares a time with a duration"),
        ("start <= seen", "compares a time with a time with a time zone"),
        ("stay <= 5", "compares a duration with a number"),
    ],
)
def test_rule_between_cells_that_measure_different_things_is_refused(rule, words) -> None:
    assert words in refusal(rules=[rule])


@pytest.mark.parametrize("rule", ["city <= weight", "sex <= 1", "grade <= weight"])
def test_rule_with_categories_is_refused(rule) -> None:
    assert "only numbers and times can be compared" in refusal(rules=[rule])


@pytest.mark.parametrize("role", ["ignore", "outcome"])
def test_rule_with_a_column_that_is_not_read_is_refused(role) -> None:
    text = refusal(rules=["weight <= zip"], roles={"zip": role})
    assert f"names 'zip', which has the role '{role}'" in text


def test_rule_with_an_empty_column_is_passed_over() -> None:
    _, constraints = plan(rules=["weight <= blank", "weight <= zip"])
    assert [str(rule) for rule in constraints.rules] == ["weight <= zip"]


def test_rule_that_bounds_leave_no_room_for_is_refused() -> None:
    assert "there is none" in refusal(rules=["zip <= weight"])


# --- whole numbers among floats


def whole_of(table, **settings) -> dict[str, bool]:
    """Return, by column, whether only whole numbers may be filled in."""
    schema, constraints = plan(table, **settings)
    found = dict(zip(constraints.names, constraints.whole.tolist(), strict=True))
    assert all(found[c.name] == c.whole for c in schema.columns if c.name in found and c.kind != "constant")
    return found


def floats(**more) -> pd.DataFrame:
    count = np.arange(30.0)
    return pd.DataFrame({"x": count / 7, "few": count % 5, "edge": count % 50 * 50 / 29 // 1} | more)


def test_whole_floats_of_a_narrow_range_among_floats_may_be_filled_in_between() -> None:
    assert whole_of(floats()) == {"x": False, "few": False, "edge": True}, "from 0 to 50 is not narrow"
    schema, _ = plan(floats())
    assert column(schema, "few").kind == "integer", "the kind is what it was"
    assert whole_of(floats(narrow=np.arange(30.0) % 2 * 49))["narrow"] is False
    assert whole_of(floats(wide=np.arange(30.0) % 2 * 51))["wide"] is True


@pytest.mark.parametrize("scale", [1.0, -1.0])
def test_whole_floats_go_by_their_range_not_by_their_size(scale) -> None:
    far = scale * (1e6 + np.arange(30.0) % 4)
    assert whole_of(floats(far=far))["far"] is False


@pytest.mark.parametrize(
    "other",
    [
        np.arange(30) % 3,
        pd.array([1, None] * 15, dtype="Int64"),
        np.arange(30) % 2 == 0,
        ["u", "v"] * 15,
        pd.Categorical(["u", "v"] * 15),
        pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(30) % 7, unit="D"),
        pd.Series([1, "a", 2.5] * 10, dtype=object),
    ],
    ids=["int", "nullable", "bool", "text", "category", "date", "mixed types"],
)
def test_whole_floats_beside_a_column_of_another_type_are_integers_with_holes(other) -> None:
    assert whole_of(floats(other=other))["few"] is True


def test_whole_floats_beside_an_ignored_column_of_another_type_are_integers_with_holes() -> None:
    assert whole_of(floats(other=["u", "v"] * 15), roles={"other": "ignore"})["few"] is True


def test_whole_floats_are_whole_when_that_is_said() -> None:
    assert whole_of(floats(), kinds={"few": "integer"}) == {"x": False, "few": True, "edge": True}
    assert whole_of(floats(), whole=True) == {"x": False, "few": True, "edge": True}
    assert whole_of(floats(), kinds={"few": "category"})["few"] is True, "codes of categories are whole"


def test_whole_floats_of_an_array_go_by_the_same_rule() -> None:
    for dtype in (np.float64, np.float32):
        assert whole_of(floats().to_numpy(dtype=dtype)) == {"x0": False, "x1": False, "x2": True}
    assert set(whole_of((np.arange(60) % 7).reshape(30, 2)).values()) == {True}


# --- tables that cannot be learned from


def test_table_without_a_column_to_learn_from_is_refused() -> None:
    with pytest.raises(DataError, match=r"None of the 2 columns can be filled .*\(their kinds: empty, other\)"):
        plan(pd.DataFrame({"a": [np.nan, np.nan], "b": [[1], [2]]}))


def test_arrow_dates_are_days() -> None:
    table = pa.table({"x": [1.5, 2.5, 3.5], "day": pa.array([0, 1, 5], pa.int32()).cast(pa.date32())})
    schema, constraints = plan(table, bounds={"day": ("1970-01-01", "1970-01-11")})
    assert column(schema, "day").step == DAY
    assert (constraints.low[1], constraints.high[1]) == (0, 10)


def test_inspection_says_what_every_column_is_and_why() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "price": [f"${v:,.2f}" for v in rng.lognormal(8, 1, 40)],
            "age": [-999 if k % 9 == 0 else 30 + k for k in range(40)],
            "city": ["Oslo", "Rome"] * 20,
            "id": [f"k{k}" for k in range(40)],
            "left": None,
        }
    )
    found = inspect_columns(read_frame(table), ColumnSettings(roles={"city": "ignore"}))
    kinds = [one["kind"] for one in found]
    assert kinds == ["continuous", "integer", "other", "identifier", "empty"]
    assert "may stand for missing cells: -999 (5 cells)" in found[1]["why"]
    assert [one["share"] for one in found] == [0, 0, 0, 0, 1]
    assert "role given" in found[2]["why"]


def test_missing_values_are_parsed_as_the_command_line_gives_them() -> None:
    found = MissingValues.parse(["-999", "age=-9,refused", "auto"])
    assert found == MissingValues(("-999",), {"age": ("-9", "refused")}, auto=True)
    assert MissingValues.of({"age": [-9, "refused"]}).of_column("age") == (-9, "refused")
