"""Every mechanism: its rate, what its missing cells depend on, any kind of table, and its seed."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import mcflow.missingness as masks
from mcflow.columns.frames import read_frame
from mcflow.errors import DataError, ParameterError
from mcflow.missingness.hiding import hide
from mcflow.missingness.mechanisms import mar, mcar, mnar_logistic, mnar_quantile, mnar_self, probabilities

MECHANISMS = ["mcar", "mar", "mnar_self", "mnar_logistic", "mnar_quantile"]
LOGISTIC = ["mar", "mnar_self", "mnar_logistic"]
N_ROWS = 20_000
#: Five standard deviations of the correlation of independent columns.
NOISE = 5 / np.sqrt(N_ROWS)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """Four columns: the second is the first and noise, the third is skewed, the fourth has missing cells."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(N_ROWS, 4))
    values[:, 1] += values[:, 0]
    values[:, 2] = np.exp(values[:, 2])
    values[rng.random(N_ROWS) < 0.3, 3] = np.nan
    return values


@pytest.fixture(scope="module")
def columns() -> pa.Table:
    """A column of each type that tables often have, each with a missing cell, in two chunks."""
    rng = np.random.default_rng(1)
    n = 60
    table = pa.table(
        {
            "number": rng.normal(size=n),
            "whole": pa.array(rng.integers(0, 9, n), pa.int32()),
            "flag": rng.random(n) < 0.5,
            "word": rng.choice(["a", "b", "c"], n),
            "view": pa.array(list(rng.choice(["a", "b"], n)), pa.string_view()),
            "level": pa.array(rng.choice(["lo", "hi"], n)).dictionary_encode(),
            "day": pa.array(rng.integers(0, 999, n).astype(np.int32)).cast(pa.date32()),
            "time": pa.array(rng.integers(0, 10**18, n)).cast(pa.timestamp("ns", "UTC")),
            "clock": pa.array(rng.integers(0, 10**9, n)).cast(pa.time64("us")),
            "list": pa.array([[int(k)] for k in rng.integers(0, 9, n)]),
        }
    )
    table = hide(table, np.eye(n, table.num_columns, dtype=bool))
    return pa.concat_tables([table.slice(0, 25), table.slice(25)])


def containers(table: pa.Table) -> dict[str, object]:
    plain = table.drop_columns(["view"])
    return {
        "pyarrow": table,
        "polars": pl.DataFrame(table),
        "pandas": plain.to_pandas(),
        "pandas-arrow": plain.to_pandas(types_mapper=pd.ArrowDtype),
        "numpy": plain.to_pandas().to_numpy(dtype=object),
    }


def missing(table) -> np.ndarray:
    frame = read_frame(table)
    return np.column_stack([frame.missing(p) for p in range(len(frame.names))])


def correlation(mask, values) -> float:
    return float(np.corrcoef(mask, values)[0, 1])


@pytest.mark.parametrize("name", MECHANISMS)
def test_mask_of_a_rate_hides_that_share_of_observed_cells_only(name, rows) -> None:
    mask = getattr(masks, name)(rows, 0.3, 0)
    observed = ~np.isnan(rows)
    assert mask.shape == rows.shape
    assert mask.dtype == bool
    assert not mask[~observed].any()
    assert mask[observed].mean() == pytest.approx(0.3, abs=5 * np.sqrt(0.3 * 0.7 / observed.sum()))


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "mar"])
@pytest.mark.parametrize("rate", [0.001, 0.3, 0.5])
def test_probabilities_of_a_column_have_the_rate_as_mean(name, rate, rows) -> None:
    found = probabilities(name, rows, rate, 0)
    assert (found[np.isnan(rows)] == 0).all()
    for place in range(rows.shape[1]):
        assert found[~np.isnan(rows[:, place]), place].mean() == pytest.approx(rate, abs=1e-9)


@pytest.mark.parametrize("strength", [0, 1, -3, 100])
def test_mar_probabilities_make_up_for_columns_that_stay_complete(strength, rows) -> None:
    found = probabilities("mar", rows, 0.3, 0, observed=[0, 2], strength=strength)
    observed = ~np.isnan(rows)
    assert (found[:, [0, 2]] == 0).all()
    assert found[observed].mean() == pytest.approx(0.3, abs=1e-9)
    means = [found[observed[:, p], p].mean() for p in (1, 3)]
    assert means[0] == pytest.approx(means[1], abs=1e-9)


@pytest.mark.parametrize("name", MECHANISMS)
def test_mask_is_drawn_from_the_probabilities_of_the_same_seed(name, rows) -> None:
    found = probabilities(name, rows, 0.3, 7)
    mask = getattr(masks, name)(rows, 0.3, 7)
    variance = found * (1 - found)
    excess = (mask - found).sum(axis=0)
    assert (np.abs(excess) <= 5 * np.sqrt(variance.sum(axis=0)) + 1e-9).all()
    assert not mask[found == 0].any()


def test_mcar_mask_does_not_depend_on_values(rows) -> None:
    mask = mcar(rows, 0.3, 0)
    assert all(abs(correlation(mask[:, j], rows[:, k])) < NOISE for j in range(3) for k in range(3))


def test_mar_mask_depends_on_the_driver_and_not_on_its_own_value_given_it(rows) -> None:
    mask = mar(rows, 0.3, 0, observed=[0], strength=3)
    noise = rows[:, 1] - rows[:, 0]
    assert abs(correlation(mask[:, 1], rows[:, 0])) > 0.4
    assert abs(correlation(mask[:, 1], rows[:, 1])) > 0.3
    assert abs(correlation(mask[:, 1], noise)) < NOISE
    other = rows.copy()
    other[:, 1:3] = 0
    before, after = (probabilities("mar", x, 0.3, 0, observed=[0], strength=3) for x in (rows, other))
    np.testing.assert_array_equal(before, after)


def test_self_masking_rises_with_the_value(rows) -> None:
    up, down = (probabilities("mnar_self", rows, 0.3, 0, strength=s)[:, 1] for s in (2, -2))
    order = np.argsort(rows[:, 1])
    assert (np.diff(up[order]) >= 0).all()
    assert (np.diff(down[order]) <= 0).all()
    mask = mnar_self(rows, 0.3, 0, strength=2)
    assert correlation(mask[:, 1], rows[:, 1] - rows[:, 0]) > 0.2
    thirds = np.array_split(mask[order, 1], 3)
    assert thirds[0].mean() < thirds[1].mean() < thirds[2].mean()


def test_logistic_probabilities_are_logistic_in_the_standardised_value(rows) -> None:
    found = probabilities("mnar_self", rows, 0.3, 0, strength=2)[:, 0]
    slope = np.polyfit((rows[:, 0] - rows[:, 0].mean()) / rows[:, 0].std(), np.log(found / (1 - found)), 1)[0]
    assert slope == pytest.approx(2)
    driven = probabilities("mar", rows, 0.3, 0, observed=[0], strength=2)[:, 1]
    assert np.log(driven / (1 - driven)).std() == pytest.approx(2)


def test_mnar_logistic_hides_drivers_at_random_and_others_by_them(rows) -> None:
    mask = mnar_logistic(rows, 0.3, 0, observed=[0], strength=3)
    assert mask.any(axis=0).all()
    assert abs(correlation(mask[:, 0], rows[:, 0])) < NOISE
    assert abs(correlation(mask[:, 1], rows[:, 0])) > 0.4


@pytest.mark.parametrize(("side", "inside"), [("upper", (0.8, 1)), ("lower", (0, 0.2)), ("both", (0.1, 0.9))])
def test_quantile_mask_lies_in_the_tail(side, inside, rows) -> None:
    mask = mnar_quantile(rows, 0.1, 0, tail=0.2, side=side)
    low, high = np.nanquantile(rows, inside, axis=0)
    if side == "both":
        outside = (rows > low) & (rows < high)
        assert (mask & (rows <= low)).any(axis=0).all()
        assert (mask & (rows >= high)).any(axis=0).all()
    else:
        outside = (rows < low) | (rows > high)
    assert not mask[outside].any()


def test_quantile_probabilities_are_shared_by_equal_values_at_the_end_of_the_tail() -> None:
    flags = np.array([[True]] * 2 + [[False]] * 8)
    found = probabilities("mnar_quantile", flags, 0.3, tail=0.6)
    np.testing.assert_allclose(found[:, 0], [0.5] * 2 + [0.25] * 8)


@given(
    values=arrays(
        np.float64, st.tuples(st.integers(1, 12), st.integers(2, 5)), elements=st.floats() | st.sampled_from([0.0, 1.0])
    ),
    rate=st.floats(0, 0.5),
    strength=st.floats(-100, 100),
    seed=st.integers(0, 2**40),
    name=st.sampled_from(MECHANISMS),
)
def test_any_numbers_give_probabilities_of_the_rate_and_the_same_mask_twice(values, rate, strength, seed, name) -> None:
    options = {"strength": strength} if name in LOGISTIC else {}
    observed = ~np.isnan(values)
    try:
        found = probabilities(name, values, rate, seed, **options)
    except ParameterError:
        assert name == "mar"
        return
    assert ((found >= 0) & (found <= 1)).all()
    assert (found[~observed] == 0).all()
    if observed.any():
        assert found[observed].mean() == pytest.approx(rate, abs=1e-9)
    mask = getattr(masks, name)(values, rate, seed, **options)
    assert mask.shape == values.shape
    assert not (mask & ~observed).any()
    np.testing.assert_array_equal(mask, getattr(masks, name)(values, rate, seed, **options))
    np.testing.assert_array_equal(np.isnan(hide(values, mask)), mask | ~observed)


@pytest.mark.parametrize("name", ["mcar", "mnar_self", "mnar_logistic"])
def test_rates_of_none_and_all_hide_none_and_all(name, rows) -> None:
    assert not getattr(masks, name)(rows, 0, 0).any()
    np.testing.assert_array_equal(getattr(masks, name)(rows, 1, 0), ~np.isnan(rows))


@pytest.mark.parametrize("name", MECHANISMS)
def test_same_seed_gives_the_same_mask_and_leaves_global_state_alone(name, rows) -> None:
    draw, few = getattr(masks, name), rows[:500]
    before = np.random.get_state()[1].copy()
    np.testing.assert_array_equal(draw(few, 0.3, 5), draw(few, 0.3, np.int64(5)))
    assert (draw(few, 0.3, 5) != draw(few, 0.3, 6)).any()
    generator = np.random.default_rng(0)
    assert (draw(few, 0.3, generator) != draw(few, 0.3, generator)).any()
    assert (draw(few, 0.3) != draw(few, 0.3)).any()
    np.testing.assert_array_equal(before, np.random.get_state()[1])


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("kind", ["pyarrow", "polars", "pandas", "pandas-arrow", "numpy"])
def test_mask_hides_cells_of_any_table_and_type(name, kind, columns) -> None:
    table = containers(columns)[kind]
    before = missing(table)
    assert before.any()
    mask = getattr(masks, name)(table, 0.3, 0)
    hidden = hide(table, mask)
    assert type(hidden) is type(table)
    assert mask.any()
    assert not (mask & before).any()
    np.testing.assert_array_equal(missing(hidden), mask | before)
    np.testing.assert_array_equal(missing(table), before)


def test_mask_is_the_same_whatever_the_container(columns) -> None:
    table = columns.select(["number", "whole", "flag", "word", "level", "day", "time"])
    expected = mnar_self(table, 0.4, 0, strength=2)
    for other in (pl.DataFrame(table), table.to_pandas(), table.to_pandas(types_mapper=pd.ArrowDtype)):
        np.testing.assert_array_equal(mnar_self(other, 0.4, 0, strength=2), expected)


def test_categories_count_by_their_order() -> None:
    categories = pd.Categorical(["low", "high", "mid"] * 20, ["low", "mid", "high"], ordered=True)
    ordered = probabilities("mnar_self", pd.DataFrame({"x": categories}), 0.3)[:3, 0]
    assert ordered[0] < ordered[2] < ordered[1]
    times = pd.DataFrame({"x": pd.to_datetime(["2020-01-01", None, "2022-01-01", "2021-01-01"])})
    early, none, late, middle = probabilities("mnar_self", times, 0.3)[:, 0]
    assert none == 0 < early < middle < late


def test_columns_of_mixed_cells_and_without_cells_work() -> None:
    cells = np.array([[1, None, "a"], ["b", None, 2.5], [None, None, "c"]], dtype=object)
    assert (probabilities("mnar_self", cells, 0.5)[[0, 1, 2], [1, 1, 0]] == 0).all()
    np.testing.assert_array_equal(mcar(cells, 1), ~missing(cells))
    assert not mar(np.full((3, 2), np.nan), 0.5).any()


@pytest.mark.parametrize("kind", ["pyarrow", "polars", "pandas-arrow"])
def test_hide_keeps_types_and_all_other_cells(kind, columns) -> None:
    table = containers(columns)[kind]
    mask = mcar(table, 0.4, 0)
    hidden = hide(table, mask)
    if kind == "pandas-arrow":
        assert (hidden.dtypes == table.dtypes).all()
    else:
        assert hidden.schema == table.schema
    frame, other = read_frame(table), read_frame(hidden)
    for p in range(len(frame.names)):
        kept = pa.array(~mask[:, p])
        assert frame.arrow(p).filter(kept).to_pylist() == other.arrow(p).filter(kept).to_pylist()


def test_hide_gives_pandas_columns_that_can_be_missing_and_keeps_the_rest() -> None:
    frame = pd.DataFrame(
        {
            "i": np.array([1, 2], "int32"),
            "u": np.array([1, 2], "uint8"),
            "b": [True, False],
            "f": [1.0, 2.0],
            "k": [1, 2],
        },
        index=["x", "y"],
    )
    mask = np.array([[True] * 4 + [False], [False] * 5])
    hidden = hide(frame, pd.DataFrame(mask))
    assert [str(kind) for kind in hidden.dtypes] == ["Int32", "UInt8", "boolean", "float64", "int64"]
    assert hidden.loc["x"].isna().tolist() == mask[0].tolist()
    assert hidden.loc["y"].tolist() == frame.loc["y"].tolist()
    assert not frame.isna().any().any()


def test_hide_lets_arrow_columns_that_may_not_be_missing_be_so() -> None:
    schema = pa.schema([pa.field("x", pa.int8(), nullable=False, metadata={"unit": "cm"})], {"owner": "me"})
    hidden = hide(pa.table({"x": [1, 2]}, schema=schema), [[True], [False]])
    assert hidden.column("x").to_pylist() == [None, 2]
    hidden.validate(full=True)
    assert hidden.schema.field("x").type == pa.int8()
    assert hidden.schema.field("x").metadata == {b"unit": b"cm"}
    assert hidden.schema.metadata == {b"owner": b"me"}


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ("float16", "float16"),
        ("float32", "float32"),
        ("int64", "float64"),
        ("bool", "float64"),
        ("object", "object"),
        ("datetime64[D]", "datetime64[D]"),
    ],
)
def test_hide_makes_arrays_that_can_be_missing(given, dtype) -> None:
    values = np.array([[0, 1], [1, 0]]).astype(given)
    mask = np.array([[True, False], [False, False]])
    hidden = hide(values, mask)
    assert hidden.dtype == dtype
    assert pd.isna(hidden).tolist() == mask.tolist()
    assert (hidden[~mask] == values[~mask]).all()
    unchanged = hide(values, np.zeros_like(mask))
    assert unchanged.dtype == values.dtype
    assert unchanged is not values


def test_drivers_are_columns_that_vary_when_there_are_some() -> None:
    values = np.zeros((50, 5))
    values[:, 3] = np.arange(50)
    for seed in range(10):
        assert not mar(values, 0.5, seed, observed=0.2)[:, 3].any()


def test_probabilities_take_the_defaults_of_the_functions(rows) -> None:
    for name in MECHANISMS:
        parameters = inspect.signature(getattr(masks, name)).parameters
        options = {key: p.default for key, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
        np.testing.assert_array_equal(
            probabilities(name, rows[:50], 0.2, 0), probabilities(name, rows[:50], 0.2, 0, **options)
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: mcar(x, 1.2), "rate is 1.2, but has to be a number of at least 0 and at most 1. Give"),
        (lambda x: mcar(x, float("nan")), "rate is nan"),
        (lambda x: mcar(x, True), "rate is True"),
        (lambda x: mcar(x, 0.2, -1), "random_state is -1"),
        (lambda x: mar(x, 0.8, observed=[0, 1]), "rate is 0.8, but with 2 of 4 columns .* Lower rate or observed"),
        (lambda x: mar(x, 0.2, observed=0), "observed is 0, but has to be a number above 0"),
        (lambda x: mar(x, 0.2, observed=1.0), "which is 4 of the table's 4 column"),
        (lambda x: mar(x, 0.2, observed=[]), "which is 0 of the table's 4 column"),
        (lambda x: mar(x, 0.2, observed="0"), "observed is '0'"),
        (lambda x: mar(pd.DataFrame({"age": [1], "b": [2]}), 0.2, observed=["agee"]), "Did you mean 'age'"),
        (lambda x: mar(x[:, :1], 0.2), "the table's 1 column"),
        (lambda x: mnar_self(x, 0.2, strength=float("inf")), "strength is inf"),
        (lambda x: mnar_quantile(x, 0.6), "rate is 0.6, but only tail=0.5"),
        (lambda x: mnar_quantile(x, 0.1, tail=0), "tail is 0"),
        (lambda x: mnar_quantile(x, 0.1, side="uper"), "side is 'uper', .* Did you mean 'upper'"),
        (lambda x: probabilities("mra", x, 0.1), "Did you mean 'mar'"),
        (lambda x: probabilities("mar", x, 0.1, stength=2), "Did you mean 'strength'"),
        (lambda x: probabilities("mcar", x, 0.1, strength=2), "it has none"),
        (lambda x: hide(x, np.zeros((2, 2), dtype=bool)), r"shape \(2, 2\), but has to be .* \(20000, 4\)"),
        (lambda x: hide(x, np.zeros(x.shape)), "mask is of type float64"),
    ],
)
def test_parameters_out_of_range_are_refused_with_what_to_do(call, message, rows) -> None:
    with pytest.raises(ParameterError, match=message):
        call(rows)


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(DataError):
        mcar(np.zeros(3), 0.2)
    with pytest.raises(DataError):
        hide(pd.DataFrame(), np.zeros((0, 0), dtype=bool))
