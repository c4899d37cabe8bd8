"""The Gaussian baseline: exact conditional means and draws in the units of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mcflow.baselines import em
from mcflow.baselines.em import GaussianImputer
from mcflow.columns.gaussian import GaussianModel
from mcflow.errors import ParameterError

SCALES = np.array([1e-9, 1.0, 1e9])


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """Three related columns on very different scales, a fifth missing."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(600, 3)) @ np.array([[1.0, 0.8, 0.0], [0.0, 1.0, -0.7], [0.0, 0.0, 1.0]])
    values[rng.random(values.shape) < 0.2] = np.nan
    return values * SCALES


def test_transform_equals_the_conditional_mean_within_the_observed_range(rows: np.ndarray) -> None:
    filled = GaussianImputer(tolerance=1e-8, random_state=0).fit_transform(rows)
    expected = GaussianModel.fit(rows / SCALES, tolerance=1e-8).conditional(rows / SCALES)
    expected = np.clip(expected, np.nanmin(rows / SCALES, axis=0), np.nanmax(rows / SCALES, axis=0))
    np.testing.assert_allclose(filled / SCALES, expected, atol=1e-6)


def test_draws_scatter_around_the_conditional_mean_by_the_conditional_variance(rows: np.ndarray) -> None:
    open_ends = dict.fromkeys(range(3), (-1e12, 1e12))
    imputer = GaussianImputer(bounds=open_ends, random_state=0).fit(rows)
    drawn = np.stack(list(imputer.draw(rows, m=400, random_state=1))) / SCALES
    model = GaussianModel.fit(rows / SCALES)
    missing = np.isnan(rows)
    spread = np.sqrt(model.conditional_variance(rows / SCALES)[missing])
    scores = (drawn[:, missing] - model.conditional(rows / SCALES)[missing]) / spread
    assert abs(scores.mean()) < 0.02
    assert abs(scores.std() - 1) < 0.02
    assert np.abs(scores.mean(axis=0)).max() < 5 / np.sqrt(400)
    assert (drawn[:, ~missing] == (rows / SCALES)[~missing]).all()


def test_draw_of_a_row_depends_on_the_seed_and_the_row_alone(rows: np.ndarray) -> None:
    imputer = GaussianImputer(random_state=0).fit(rows)
    together = next(imputer.draw(rows, m=1, random_state=1)) / SCALES
    turned = next(imputer.draw(rows[::-1][:50], m=1, random_state=1)) / SCALES
    other = next(imputer.draw(rows, m=1, random_state=2)) / SCALES
    np.testing.assert_allclose(together[::-1][:50], turned, atol=1e-8)
    assert (together != other)[np.isnan(rows)].mean() > 0.95


def test_draw_when_a_uniform_is_zero_stays_finite(rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    imputer = GaussianImputer(bounds=dict.fromkeys(range(3), (-1e12, 1e12)), random_state=0).fit(rows)
    monkeypatch.setattr(em, "row_uniforms", lambda values, seed: np.zeros_like(values))
    drawn = next(imputer.draw(rows, m=1)) / SCALES
    assert np.abs(drawn).max() < 20


def mixed(n_rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A table in which the word follows from the number, with missing words; and the words."""
    rng = np.random.default_rng(0)
    number = rng.normal(size=n_rows)
    words = np.where(number > 0, "high", "low")
    shown = np.where(rng.random(n_rows) < 0.3, None, words)
    return pd.DataFrame({"number": number, "word": pd.Series(shown, dtype=object)}), words


def test_transform_of_categories_takes_the_nearest_word() -> None:
    table, words = mixed(400)
    filled = GaussianImputer(random_state=0).fit_transform(table)
    missing = table["word"].isna().to_numpy()
    assert (filled["word"].to_numpy() == words)[missing].mean() > 0.9
    assert set(filled["word"]) == {"high", "low"}


def test_draws_of_categories_show_both_words_where_the_number_is_near_the_border() -> None:
    table, _ = mixed(400)
    imputer = GaussianImputer(random_state=0).fit(table)
    asked = pd.DataFrame({"number": [0.0, 2.5], "word": pd.Series([None, None], dtype=object)})
    words = np.array([drawn["word"] for drawn in imputer.draw(asked, m=200, random_state=0)])
    assert 0.3 < (words[:, 0] == "high").mean() < 0.7
    assert (words[:, 1] == "high").mean() > 0.95


@pytest.mark.parametrize("n_rows", [1, 2])
def test_fit_of_very_few_rows_fills_within_what_was_seen(n_rows: int) -> None:
    seen = np.array([[1.0, 2.0, 3.0], [2.0, 5.0, 3.5]])[:n_rows]
    filled = GaussianImputer(random_state=0).fit(seen).transform(np.array([[1.5, np.nan, np.nan], [np.nan] * 3]))
    assert (filled >= np.minimum(seen.min(axis=0), [1.5, np.inf, np.inf])).all()
    assert (filled <= np.maximum(seen.max(axis=0), [1.5, -np.inf, -np.inf])).all()


def test_empty_row_and_single_column_get_the_mean() -> None:
    column = np.array([[1.0], [2.0], [6.0], [np.nan]])
    np.testing.assert_allclose(GaussianImputer().fit_transform(column)[3], 3.0)


def test_shrinkage_that_is_huge_gives_column_means(rows: np.ndarray) -> None:
    filled = GaussianImputer(shrinkage=1e12, random_state=0).fit_transform(rows)
    means = np.broadcast_to(np.nanmean(rows, axis=0), rows.shape)
    np.testing.assert_allclose((filled / SCALES)[np.isnan(rows)], (means / SCALES)[np.isnan(rows)], atol=1e-5)


def test_fit_with_max_rows_learns_from_a_sample_that_the_seed_decides(rows: np.ndarray) -> None:
    first, same, other = (GaussianImputer(max_rows=50, random_state=s).fit(rows).model_.mean for s in (0, 0, 1))
    assert (first == same).all()
    assert (first != other).all()


@pytest.mark.parametrize("wrong", [{"max_steps": 0}, {"tolerance": -1}, {"shrinkage": -0.1}, {"max_rows": 0}])
def test_fit_with_a_parameter_out_of_range_says_so(wrong: dict[str, Any], rows: np.ndarray) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        GaussianImputer(**wrong).fit(rows)
