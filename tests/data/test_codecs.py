"""Scaling, first fills and row seeds, on tables that hypothesis makes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mcflow.data.codecs import RangeCodec
from mcflow.masks import Marginals
from mcflow.random import Streams, row_uniforms, seed_from

shapes = st.tuples(st.integers(1, 30), st.integers(1, 5))
tables = shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=st.floats(-1e12, 1e12)))


def with_holes(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """Hide cells, but leave every column one."""
    holes = np.random.default_rng(seed).random(values.shape) < 0.4
    holes[0] = False
    return np.where(holes, np.nan, values)


@given(tables)
def test_encoded_cells_are_within_the_unit_and_come_back(values) -> None:
    holed = with_holes(values)
    codec = RangeCodec.from_values(holed)
    encoded = codec.encode(holed)
    seen = ~np.isnan(holed)
    assert (encoded[seen] >= 0).all()
    assert (encoded[seen] <= 1).all()
    assert (np.isnan(encoded) == ~seen).all()
    np.testing.assert_allclose(codec.decode(encoded)[seen], holed[seen], rtol=1e-9, atol=1e-3)


def test_only_observed_values_decide_the_range() -> None:
    codec = RangeCodec.from_values(np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, 5.0]]))
    assert codec.low.tolist() == [1, 5]
    assert codec.span.tolist() == [2, 1]
    assert codec.log_volume() == pytest.approx(np.log(2))


@given(tables, st.integers(0, 2**62))
def test_first_fill_takes_observed_values_of_the_same_column(values, seed) -> None:
    holed = with_holes(values)
    filled = Marginals.from_values(holed).fill_rows(holed, seed)
    seen = ~np.isnan(holed)
    assert (filled[seen] == holed[seen]).all()
    for column in range(holed.shape[1]):
        assert np.isin(filled[:, column], holed[seen[:, column], column]).all()


def test_first_fill_follows_the_observed_distribution() -> None:
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.choice([0.0, 1.0, 2.0], p=[0.6, 0.3, 0.1], size=9000), rng.exponential(size=9000)])
    holed = np.where(rng.random(values.shape) < 0.5, np.nan, values)
    marginals = Marginals.from_values(holed)
    assert len(marginals.quantiles) == 2048
    filled = marginals.fill(holed, rng.random(values.shape))
    holes = np.isnan(holed)
    shares = [(filled[holes[:, 0], 0] == v).mean() for v in (0, 1, 2)]
    np.testing.assert_allclose(shares, [0.6, 0.3, 0.1], atol=0.03)
    assert np.median(filled[holes[:, 1], 1]) == pytest.approx(np.log(2), abs=0.05)


@given(tables, st.integers(0, 2**63 - 1))
def test_row_numbers_depend_on_seed_and_row_alone(values, seed) -> None:
    holed = with_holes(values)
    uniforms = row_uniforms(holed, seed)
    assert ((uniforms >= 0) & (uniforms < 1)).all()
    order = np.random.default_rng(1).permutation(len(holed))
    assert (row_uniforms(holed[order], seed) == uniforms[order]).all()
    assert (row_uniforms(holed[:1], seed) == uniforms[:1]).all()
    assert (row_uniforms(holed, (seed + 1) % 2**63) != uniforms).any()


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
    import torch

    one, same, other = Streams(1), Streams(1), Streams(2)
    a, b, c = (torch.rand(5, generator=s.weights) for s in (one, same, other))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert not torch.equal(a, torch.rand(5, generator=one.order))


def test_seed_of_none_is_fresh_every_time() -> None:
    assert seed_from(None) != seed_from(None)
    assert seed_from(np.int64(5)) == 5
