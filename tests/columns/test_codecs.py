"""Scales, category codes, initial fills and row seeds, on tables that hypothesis makes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mcflow.columns.codecs import MAX_ONE_HOT, CategoryCode, KnotScale, TableCodec, check_ranges
from mcflow.columns.marginals import Marginals
from mcflow.columns.schema import Column
from mcflow.errors import DataError
from mcflow.random import Streams, row_uniforms, seed_from

SCALES = {"range": KnotScale.over_range, "rank": KnotScale.by_rank, "fitting": KnotScale.fitting}

shapes = st.tuples(st.integers(1, 30), st.integers(1, 5))
tables = shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=st.floats(-1e12, 1e12)))
varying = arrays(np.float64, st.integers(2, 200), elements=st.integers(-(10**6), 10**6).map(lambda k: k / 64)).filter(
    lambda values: values.min() < values.max()
)


def with_missing(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """Hide cells, but leave every column one."""
    missing = np.random.default_rng(seed).random(values.shape) < 0.4
    missing[0] = False
    return np.where(missing, np.nan, values)


def hard_columns() -> dict[str, np.ndarray]:
    """Columns whose middle is a small part of their range."""
    rng = np.random.default_rng(0)
    zeros = np.where(rng.random(3000) < 0.9, 0.0, rng.lognormal(size=3000))
    outlier = rng.normal(size=3000)
    outlier[7] = 1e12
    return {"heavy tails": rng.lognormal(sigma=3, size=3000), "many zeros": zeros, "one outlier": outlier}


def easy_columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "normal": rng.normal(size=3000),
        "two values": rng.choice([0.0, 1.0], size=3000),
        "tiny variance": 1e9 + 1e-5 * rng.normal(size=3000),
        "tiny numbers": 1e-200 * rng.normal(size=3000),
    }


@pytest.mark.parametrize("make", SCALES.values(), ids=SCALES)
@given(values=varying)
def test_scale_when_undone_gives_the_number_back(make, values) -> None:
    scale = make(values)
    span = values.max() - values.min()
    outside = np.array([values.min() - 3 * span, values.max() + 3 * span, np.nan])
    given_numbers = np.concatenate([values, outside])
    back = scale.decode(scale.encode(given_numbers))
    np.testing.assert_allclose(back, given_numbers, rtol=1e-13, atol=1e-12 * span)


@pytest.mark.parametrize("make", SCALES.values(), ids=SCALES)
@given(values=varying)
def test_scale_when_numbers_rise_rises_from_0_to_1(make, values) -> None:
    scale = make(values)
    span = values.max() - values.min()
    rising = np.unique(np.concatenate([values, np.linspace(values.min() - span, values.max() + span, 31)]))
    rising = rising[np.diff(rising, prepend=-np.inf) > 1e-9 * span]
    assert (np.diff(scale.encode(rising)) > 0).all()
    assert scale.encode(values).min() == 0
    assert scale.encode(values).max() == 1
    assert np.isnan(scale.encode(np.array([np.nan]))).all()


@pytest.mark.parametrize("make", SCALES.values(), ids=SCALES)
@given(values=varying)
def test_log_slope_when_compared_with_a_difference_agrees(make, values) -> None:
    scale = make(values)
    span = values.max() - values.min()
    knots = np.concatenate([[values.min() - span], scale.x, [values.max() + span]])
    middle = (knots[1:] + knots[:-1]) / 2
    step = np.diff(knots) / 8
    slope = (scale.encode(middle + step) - scale.encode(middle - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(scale.log_slope(middle)), slope, rtol=1e-6)


def test_scale_next_to_a_steep_piece_keeps_the_last_digits() -> None:
    """A value just below a knot that came out just above it would be 1e284 after the way back."""
    rng = np.random.default_rng(3)
    for (before, knot), (early, place) in np.sort(rng.uniform(0.01, 0.99, (2000, 2, 2))):
        scale = KnotScale(np.array([0.0, before, knot, 1e300]), np.array([0.0, early, place, 1.0]))
        near = np.array([np.nextafter(knot, 0), knot])
        np.testing.assert_allclose(scale.decode(scale.encode(near)), near, rtol=1e-14)
        assert scale.encode(near)[1] == place


def test_knots_by_rank_when_values_are_many_are_observed_and_few() -> None:
    values = with_missing(np.random.default_rng(0).normal(size=5000))
    scale = KnotScale.by_rank(values, 32)
    assert 32 <= len(scale.x) <= 32 + 2 * np.log2(5000)
    assert np.isin(scale.x, values).all()
    ranks = np.argsort(np.argsort(values[~np.isnan(values)])) / (np.isfinite(values).sum() - 1)
    np.testing.assert_allclose(scale.encode(values[~np.isnan(values)]), ranks, atol=0.02)


@pytest.mark.parametrize("name", hard_columns())
def test_auto_when_a_column_is_hard_spreads_its_middle(name) -> None:
    values = hard_columns()[name]
    plain, scale = KnotScale.over_range(values), KnotScale.fitting(values)
    early, late = np.quantile(values, [0.05, 0.95])
    assert np.diff(plain.encode(np.array([early, late]))) < 0.25
    assert np.diff(scale.encode(np.array([early, late]))) > 0.4
    np.testing.assert_allclose(scale.decode(scale.encode(values)), values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", hard_columns())
def test_auto_when_a_column_is_hard_gives_no_more_to_its_tail_than_was_seen(name) -> None:
    """Uniform network units decode to the observed quantiles, also the last ones."""
    values = hard_columns()[name]
    if name == "many zeros":
        values = values[values > 0]
    decoded = KnotScale.by_rank(values).decode(np.linspace(0, 1, 100_001))
    for far in np.quantile(values, [0.9, 0.99, 0.999]):
        assert (decoded > far).mean() == pytest.approx((values > far).mean(), rel=0.3, abs=1 / len(values))


def test_float32_units_of_a_column_with_an_outlier_still_tell_all_others_apart() -> None:
    values = hard_columns()["one outlier"]
    scale = KnotScale.fitting(values)
    back = scale.decode(scale.encode(values).astype(np.float32).astype(np.float64))
    others = values < np.sort(values)[-2]
    np.testing.assert_allclose(back[others], values[others], atol=1e-3)


@pytest.mark.parametrize("name", easy_columns())
def test_auto_when_a_column_is_easy_is_the_range(name) -> None:
    values = easy_columns()[name]
    scale = KnotScale.fitting(values)
    assert len(scale.x) == 2
    encoded = scale.encode(values)
    assert (encoded.min(), encoded.max()) == (0, 1)
    span = values.max() - values.min()
    np.testing.assert_allclose(scale.decode(encoded), values, rtol=1e-15, atol=1e-15 * span)


def test_auto_when_nearly_all_are_one_value_still_tells_the_rest() -> None:
    values = np.zeros(1000)
    values[:5] = [1, 2, 3, 4, 1000]
    encoded = KnotScale.fitting(values).encode(np.array([0.0, 1, 2, 3, 4, 1000]))
    assert (np.diff(encoded) > 0).all()


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("count", [2, 3, 9, 10, 11, 16, 17, 64, 65, 300, 1000])
def test_codewords_of_categories_are_distinct_and_come_back(count, ordered) -> None:
    code = CategoryCode(count, ordered)
    assert len(np.unique(code.codewords, axis=0)) == count
    categories = np.tile(np.arange(count, dtype=np.float64), 3)
    np.testing.assert_array_equal(code.decode(code.encode(categories)), categories)
    shape = (len(categories), code.codewords.shape[1])
    almost_one = np.nextafter(1.0, 0.0)
    for noise in (np.zeros(shape), np.full(shape, almost_one), np.random.default_rng(0).random(shape)):
        encoded = code.encode(categories, noise)
        assert encoded.min() >= 0
        assert encoded.max() <= 1
        np.testing.assert_array_equal(code.decode(encoded), categories)


@pytest.mark.parametrize(("count", "places"), [(2, 1), (3, 3), (16, 16), (17, 5), (300, 9), (1000, 10), (1024, 10)])
def test_many_categories_take_as_many_places_as_their_number_has_bits(count, places) -> None:
    assert CategoryCode(count).codewords.shape == (count, places)
    assert CategoryCode(count, ordered=True).codewords.shape == (count, 1)
    assert places <= max(MAX_ONE_HOT, np.log2(count) + 1)


def test_ordered_categories_keep_their_order() -> None:
    encoded = CategoryCode(7, ordered=True).encode(np.arange(7.0))[:, 0]
    assert (np.diff(encoded) > 0).all()


def test_missing_level_is_a_word_of_nan() -> None:
    encoded = CategoryCode(4).encode(np.array([np.nan, 2.0]))
    assert np.isnan(encoded[0]).all()
    assert np.isfinite(encoded[1]).all()


def test_nearest_level_is_found_when_the_networks_are_a_bit_off() -> None:
    rng = np.random.default_rng(0)
    for code in (CategoryCode(2), CategoryCode(5), CategoryCode(200)):
        categories = rng.integers(0, code.n_categories, 500).astype(np.float64)
        encoded = code.encode(categories)
        np.testing.assert_array_equal(code.decode(encoded + rng.uniform(-0.3, 0.3, encoded.shape)), categories)


def test_decoding_many_rows_of_many_categories_holds_few_distances_at_once() -> None:
    code = CategoryCode(900)
    categories = np.random.default_rng(0).integers(0, 900, 20_000).astype(np.float64)
    encoded = code.encode(categories)
    tracemalloc.start()
    decoded = code.decode(encoded)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(decoded, categories)
    assert peak < 20_000 * 900 * 8 / 4, f"{peak / 1e6:.0f} MB for a matrix of 144 MB"


COLUMNS = (
    Column("age", "double", "continuous", low=0, high=90),
    Column("sex", "bool", "boolean", categories=(False, True)),
    Column("city", "string", "category", categories=tuple("abcde")),
    Column("zip", "int64", "category", categories=tuple(range(40))),
    Column("grade", "string", "ordered", categories=("low", "mid", "high")),
    Column("day", "date32[day]", "datetime", low=100, high=900, whole=True),
)
PLACES = [1, 1, 5, 6, 1, 1]


@pytest.fixture
def codes() -> np.ndarray:
    rng = np.random.default_rng(0)
    tops = [2, 5, 40, 3]
    categories = [rng.integers(0, top, 400) for top in tops]
    values = np.column_stack([rng.gamma(2, size=400), *categories, rng.integers(100, 900, 400)]).astype(np.float64)
    values[rng.random(values.shape) < 0.2] = np.nan
    return values


@pytest.mark.parametrize("scaling", ["range", "auto"])
def test_table_when_encoded_and_decoded_is_the_same(codes, scaling) -> None:
    codec = TableCodec.from_values(codes, COLUMNS, scaling)
    full = np.where(np.isnan(codes), 0, codes)
    assert codec.n_places == sum(PLACES)
    assert codec.owner.tolist() == np.repeat(range(6), PLACES).tolist()
    for rng in (None, np.random.default_rng(1)):
        encoded = codec.encode(full, rng)
        assert encoded.shape == (400, codec.n_places)
        np.testing.assert_allclose(codec.decode(encoded), full, rtol=1e-12, atol=1e-12)


def test_table_when_cells_are_missing_is_missing_in_all_their_places(codes) -> None:
    codec = TableCodec.from_values(codes, COLUMNS)
    missing = codec.spread(np.isnan(codes))
    for rng in (None, np.random.default_rng(1)):
        encoded = codec.encode(codes, rng)
        np.testing.assert_array_equal(np.isnan(encoded), missing)
        assert encoded[~missing].min() >= 0
        assert encoded[~missing].max() <= 1


def test_noise_of_categories_when_the_seed_is_the_same_is_the_same(codes) -> None:
    codec = TableCodec.from_values(codes, COLUMNS)
    one, same, other = (codec.encode(codes, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    numbers = np.isin(codec.owner, [0, 5])
    np.testing.assert_array_equal(one[:, numbers], other[:, numbers])
    assert (one[:, ~numbers] != other[:, ~numbers]).any()


def test_box_when_bounds_are_given_has_their_place_in_network_units(codes) -> None:
    codec = TableCodec.from_values(codes, COLUMNS, "auto")
    low = np.array([-1.0, 5, 5, 5, 5, -np.inf])
    high = np.array([np.inf, 7, 7, 7, 7, 900.0])
    lowest, highest = codec.box(low, high)
    assert lowest[0] == codec.scales[0].encode(np.array([-1.0]))[0]
    assert highest[0] == np.inf
    assert lowest[-1] == -np.inf
    assert highest[-1] == codec.scales[5].encode(np.array([900.0]))[0]
    assert (lowest[1:-1] == 0).all()
    assert (highest[1:-1] == 1).all()


def test_box_when_a_bound_is_further_than_floats_reach_is_open() -> None:
    columns = [Column("x", "double", "continuous", low=0, high=1e-200)]
    codec = TableCodec.from_values(np.array([[0.0], [1e-200]]), columns)
    low, high = codec.box(np.array([0.0]), np.array([1e300]))
    assert low[0] == 0
    assert high[0] == np.inf


def test_slope_of_a_table_is_the_sum_over_its_numbers(codes) -> None:
    codec = TableCodec.from_values(codes, COLUMNS, "auto")
    full = np.where(np.isnan(codes), 1, codes)
    expected = codec.scales[0].log_slope(full[:, 0]) + codec.scales[5].log_slope(full[:, 5])
    np.testing.assert_allclose(codec.log_slope(full), expected)


@pytest.mark.parametrize("scaling", ["range", "auto"])
def test_codec_when_kept_as_tensors_is_the_same(codes, scaling) -> None:
    codec = TableCodec.from_values(codes, COLUMNS, scaling)
    again = TableCodec.from_tensors(COLUMNS, codec.tensors())
    np.testing.assert_array_equal(again.encode(codes), codec.encode(codes))
    units = np.random.default_rng(0).random((50, codec.n_places))
    np.testing.assert_array_equal(again.decode(units), codec.decode(units))


def test_codec_when_there_are_no_columns_is_empty() -> None:
    codec = TableCodec.from_values(np.empty((3, 0)), [])
    assert codec.encode(np.empty((3, 0))).shape == (3, 0)
    assert codec.decode(np.empty((3, 0))).shape == (3, 0)
    assert codec.tensors() == {}


def test_only_observed_values_decide_the_range() -> None:
    columns = [Column(name, "double", "continuous") for name in "ab"]
    codec = TableCodec.from_values(np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, 6.0]]), columns)
    np.testing.assert_array_equal(codec.encode(np.array([[1.0, 5.0], [3.0, 6.0]])), [[0, 0], [1, 1]])
    np.testing.assert_allclose(codec.log_slope(np.array([[2.0, 5.5]])), [-np.log(2)])


def test_range_that_no_float_can_hold_is_refused_by_name() -> None:
    columns = [Column("wide", "double", "continuous", low=-1e308, high=1e308)]
    with pytest.raises(DataError, match="'wide' ranges from -1e\\+308 to 1e\\+308"):
        TableCodec.from_values(np.array([[-1e308], [1e308]]), columns)


@given(tables, st.integers(0, 2**62))
def test_first_fill_takes_observed_values_of_the_same_column(values, seed) -> None:
    incomplete = with_missing(values)
    filled = Marginals.from_values(incomplete).fill_rows(incomplete, seed)
    seen = ~np.isnan(incomplete)
    assert (filled[seen] == incomplete[seen]).all()
    for column in range(incomplete.shape[1]):
        assert np.isin(filled[:, column], incomplete[seen[:, column], column]).all()


def test_first_fill_follows_the_observed_distribution() -> None:
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.choice([0.0, 1.0, 2.0], p=[0.6, 0.3, 0.1], size=9000), rng.exponential(size=9000)])
    incomplete = np.where(rng.random(values.shape) < 0.5, np.nan, values)
    marginals = Marginals.from_values(incomplete)
    assert len(marginals.quantiles) == 2048
    filled = marginals.fill(incomplete, rng.random(values.shape))
    missing = np.isnan(incomplete)
    shares = [(filled[missing[:, 0], 0] == v).mean() for v in (0, 1, 2)]
    np.testing.assert_allclose(shares, [0.6, 0.3, 0.1], atol=0.03)
    assert np.median(filled[missing[:, 1], 1]) == pytest.approx(np.log(2), abs=0.05)


@given(tables, st.integers(0, 2**63 - 1))
def test_row_numbers_depend_on_seed_and_row_alone(values, seed) -> None:
    incomplete = with_missing(values)
    uniforms = row_uniforms(incomplete, seed)
    assert ((uniforms >= 0) & (uniforms < 1)).all()
    order = np.random.default_rng(1).permutation(len(incomplete))
    assert (row_uniforms(incomplete[order], seed) == uniforms[order]).all()
    assert (row_uniforms(incomplete[:1], seed) == uniforms[:1]).all()
    assert (row_uniforms(incomplete, (seed + 1) % 2**63) != uniforms).any()


def test_row_numbers_are_uniform_and_independent() -> None:
    rows = np.arange(20_000, dtype=float)[:, None] * np.ones((1, 3))
    uniforms = row_uniforms(rows, 0)
    counts = np.histogram(uniforms, bins=20, range=(0, 1))[0]
    assert ((counts - 3000) ** 2 / 3000).sum() < 45, "chi-squared with 19 degrees of freedom"
    assert np.abs(np.corrcoef(uniforms.T) - np.eye(3)).max() < 0.03
    assert abs(np.corrcoef(uniforms[:-1, 0], uniforms[1:, 0])[0, 1]) < 0.03


def test_nan_of_any_kind_and_signed_zero_seed_alike() -> None:
    strange = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)[0]
    assert (row_uniforms(np.array([[strange, 0.0]]), 1) == row_uniforms(np.array([[np.nan, -0.0]]), 1)).all()


def test_streams_of_one_seed_differ_from_each_other_and_from_other_seeds() -> None:
    one, same, other = Streams(1), Streams(1), Streams(2)
    a, b, c = (torch.rand(5, generator=s.weights) for s in (one, same, other))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert not torch.equal(a, torch.rand(5, generator=one.order))


def test_seed_of_none_is_fresh_every_time() -> None:
    assert seed_from(None) != seed_from(None)
    assert seed_from(np.int64(5)) == 5


def test_ranges_that_a_float_can_hold_are_let_through() -> None:
    check_ranges([Column("x", "double", "continuous", low=-1e300, high=1e300), *COLUMNS])
    check_ranges([])


@pytest.mark.parametrize("kind", ["continuous", "integer"])
def test_range_that_no_float_can_hold_is_refused_with_the_column_s_name(kind) -> None:
    columns = [COLUMNS[0], Column("wide", "double", kind, low=-1e308, high=1.5e308)]
    with pytest.raises(DataError, match=r"'wide' ranges from -1e\+308 to 1.5e\+308.*Divide the column"):
        check_ranges(columns)
    with pytest.raises(DataError, match="'wide'"):
        TableCodec.from_values(np.array([[1.0, -1e308], [2.0, 1.5e308]]), columns)
