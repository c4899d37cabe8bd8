"""Weights of estimates and of probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from mcflow.columns.schema import Column
from mcflow.masked.blend import ESTIMATES, POOLED, Blend
from mcflow.masked.config import MaskedConfig
from mcflow.masked.encoding import TableGrid


def category_blend(n_points: int = 3) -> Blend:
    column = Column("town", "string", "category", categories=tuple("abc"[:n_points]))
    values = np.repeat(np.arange(float(n_points)), 10)[:, None]
    return Blend([column], TableGrid.from_values(values, [column], 4, 8), MaskedConfig())


def test_pooled_probabilities_sum_to_one_and_follow_the_better_estimate() -> None:
    blend, rng = category_blend(), np.random.default_rng(0)
    truth = rng.integers(3, size=400)
    good = 0.05 + 0.85 * np.eye(3)[truth]
    poor = rng.dirichlet(np.ones(3), size=400)
    blend.fit_pool({"mean": {0: poor}, "completed": {0: good}}, {0: truth})
    assert blend.pooled[0, POOLED.index("completed")] > 0.9
    assert blend.pooled[0].sum() == pytest.approx(1)
    pooled = blend.pool({"mean": poor, "completed": good}, 0)
    np.testing.assert_allclose(pooled.sum(axis=1), 1, rtol=1e-9)
    assert (pooled.argmax(axis=1) == truth).mean() > 0.95
    assert blend.needs("completed", 0)
    assert not blend.needs("again", 0)


def test_rungs_of_little_weight_are_left_out_and_the_others_sum_to_one() -> None:
    blend, rng = category_blend(), np.random.default_rng(0)
    truth = rng.integers(3, size=2000)
    good, poor = 0.01 + 0.97 * np.eye(3)[truth], np.full((2000, 3), 1 / 3)
    blend.fit_pool({"mean": {0: good}, "observed": {0: poor}, "completed": {0: poor}}, {0: truth})
    np.testing.assert_allclose(blend.pooled[0], np.eye(len(POOLED))[0])
    assert not blend.needs("observed", 0)


def test_estimate_that_a_column_does_without_may_be_missing() -> None:
    columns = [Column("a", "double", "continuous"), Column("b", "double", "continuous")]
    values = np.random.default_rng(0).normal(size=(30, 2))
    blend = Blend(columns, TableGrid.from_values(values, columns, 4, 8), MaskedConfig())
    blend.weights = np.zeros((2, len(ESTIMATES)))
    blend.weights[0, ESTIMATES.index("mean")] = 1.0
    blend.weights[1, [ESTIMATES.index("mean"), ESTIMATES.index("observed")]] = 0.5
    found = blend.blended({"mean": np.array([1.0, 2.0]), "observed": np.array([np.nan, 4.0])}, np.array([0, 1]))
    np.testing.assert_allclose(found, [1.0, 3.0])
    assert [blend.needs("observed", k) for k in range(2)] == [False, True]
