"""Density and samples, of the last stage or around the answers of H."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from mcflow import MCFlowImputer
from mcflow.errors import DataError


def test_score_is_the_flow_s_log_density_in_the_table_s_units(fitted_paper, table) -> None:
    filled = fitted_paper.transform(table)
    low, high = np.nanmin(table, axis=0), np.nanmax(table, axis=0)
    scaled = torch.from_numpy((filled - low) / (high - low)).float()
    expected = fitted_paper.stages_[-1].flow.log_prob(scaled).detach().numpy() - np.log(high - low).sum()
    np.testing.assert_allclose(fitted_paper.score_samples(filled), expected, atol=1e-4)


def test_holes_are_filled_before_they_are_scored(fitted, table) -> None:
    np.testing.assert_array_equal(fitted.score_samples(table), fitted.score_samples(fitted.transform(table)))


def test_far_rows_are_less_likely(fitted, table) -> None:
    near = fitted.score_samples(fitted.transform(table))
    assert fitted.score_samples(np.full((1, 4), 50.0))[0] < near.min()


def test_unit_of_measure_changes_the_density_by_its_volume(table, quick) -> None:
    one = quick().fit(table)
    scaled = quick().fit(table * 10)
    filled = one.transform(table)
    np.testing.assert_allclose(one.score_samples(filled) - scaled.score_samples(filled * 10), 4 * np.log(10), atol=1e-3)


@pytest.mark.slow_for_paper
def test_sample_draws_rows_like_the_table(preset) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal([0.0, 5.0], [1.0, 0.1], size=(3000, 2))
    more = {"max_epochs": 64, "learning_rate": 3e-3} if preset == "paper" else {"max_epochs": 20}
    imputer = MCFlowImputer(preset=preset, random_state=0, **more).fit(rows)
    drawn = imputer.sample(5000, random_state=1)
    np.testing.assert_allclose(drawn.mean(axis=0), [0, 5], atol=0.15)
    np.testing.assert_allclose(drawn.std(axis=0), [1, 0.1], rtol=0.25)
    assert (drawn == imputer.sample(5000, random_state=1)).all()
    assert (drawn != imputer.sample(5000, random_state=2)).any()


def test_sample_comes_as_the_kind_seen_at_fit(table, quick) -> None:
    frame = pd.DataFrame(table, columns=list("abcd")).assign(text="x", one=3.0, whole=np.arange(300) % 9)
    for given, kind in ((frame, pd.DataFrame), (pl.from_pandas(frame), pl.DataFrame)):
        drawn = quick().fit(given).sample(5, random_state=0)
        assert isinstance(drawn, kind)
        assert list(drawn.columns) == ["a", "b", "c", "d", "text", "one", "whole"]
        assert set(drawn["text"]) == {"x"}
        assert (np.asarray(drawn["one"]) == 3).all()
        assert np.asarray(drawn["whole"]).dtype == np.int64


def test_constant_table_has_no_density(quick) -> None:
    imputer = quick().fit(np.ones((5, 2)))
    with pytest.raises(DataError, match="no density"):
        imputer.sample(1)
    with pytest.raises(DataError, match="no density"):
        imputer.score_samples(np.ones((5, 2)))
