"""Ranking of methods by the energy-I-Score on tables without ground truth."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mcflow.baselines import make
from mcflow.errors import DataError, ParameterError
from mcflow.evaluation import rank_draws
from mcflow.metrics import energy_i_score


@pytest.fixture(autouse=True)
def swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a Gaussian take the part of mcflow."""

    def stand_in(kind: Any, preset: str, parameters: dict[str, Any]) -> Any:
        return make("em", **{name: value for name, value in parameters.items() if name not in ("max_time", "verbose")})

    monkeypatch.setattr("mcflow.evaluation.methods.build_mcflow", stand_in)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """Three related columns, the first two with missing cells."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 1)) + 0.5 * rng.normal(size=(300, 3))
    values[:60, 0] = np.nan
    values[200:230, 1] = np.nan
    return values


def test_ranking_when_relations_are_linear_then_a_gaussian_beats_forests_and_the_mean(rows) -> None:
    found = rank_draws(rows, methods=["missforest(n_trees=5,max_rounds=1)"], repeats=2)
    assert [one.name for one in found.methods] == ["mcflow", "missforest", "mean"]
    best, _, mean = found.methods
    assert mean.score < best.score < 0
    assert (best.within_noise, mean.within_noise, mean.noise) == (None, False, 0)
    assert len(best.seeds) == 2
    assert best.noise > 0
    weights = np.array([60 * 240, 30 * 270])
    assert list(found.weights.values()) == pytest.approx(weights / weights.sum())
    assert best.score == pytest.approx(np.average(list(best.per_column.values()), weights=weights))
    assert json.loads(json.dumps(found.to_dict()))["methods"][0]["name"] == "mcflow"
    assert str(found).splitlines()[1].startswith("mcflow ")


def test_score_when_one_column_is_incomplete_then_is_that_of_the_formula(rows) -> None:
    table = np.where([False, True, False], np.nan_to_num(rows), rows)
    found = rank_draws(table, methods=[], repeats=1, draws=7, random_state=3)
    imputed = next(make("em", random_state=3).fit(table).draw(table, m=1, random_state=3))
    hidden = imputed.copy()
    hidden[60:, 0] = np.nan
    drawn = np.full((7, *rows.shape), np.nan)
    drawn[:, 60:] = list(make("em", random_state=3).fit(hidden).draw(hidden[60:], m=7, random_state=3))
    assert found.methods[0].score == pytest.approx(energy_i_score(table, drawn).value, rel=1e-9)


def test_ranking_when_methods_are_the_same_then_it_is_within_the_noise(rows) -> None:
    found = rank_draws(rows, methods=["mice(n_chains=1,n_rounds=3)"], repeats=3, draws=5)
    close = {one.name for one in found.methods[1:] if one.within_noise}
    assert close == {"mice", "mcflow"} - {found.methods[0].name}
    assert any("within the noise over 3 seeds" in sentence for sentence in found.verdict)


def test_ranking_with_one_seed_says_that_noise_is_unknown(rows) -> None:
    found = rank_draws(rows, methods=[], repeats=1)
    assert found.methods[0].noise is None
    assert any("One seed" in sentence for sentence in found.verdict)


def test_ranking_of_columns_of_all_kinds_leaves_the_frame_alone(rows) -> None:
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    frame["group"] = pd.Categorical(np.where(frame["c"] > 0, "high", "low")).set_categories(["low", "high", "none"])
    frame["count"] = pd.array(np.arange(300) % 9, dtype="Int64")
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(300) % 50, unit="D")
    frame["text"] = np.where(frame["c"] > 0.5, "x", "y")
    for place, name in enumerate(("group", "count", "day", "text")):
        frame.loc[frame.index[place::7], name] = None
    before = frame.copy()
    found = rank_draws(frame, methods=["missforest(n_trees=3,max_rounds=1)"], repeats=1, draws=3, max_columns=5)
    assert [one.error_message for one in found.methods] == [None] * 3
    assert len(found.weights) == 5
    assert {"group", "count", "day", "text"} < set(found.weights)
    assert all(np.isfinite(list(one.per_column.values())).all() for one in found.methods)
    pd.testing.assert_frame_equal(frame, before)


def test_method_that_fails_is_last_with_its_reason(rows) -> None:
    found = rank_draws(rows, methods=["python:argparse:Namespace"], repeats=2)
    assert found.methods[-1].error_message.startswith("AttributeError")
    assert found.methods[-1].score is None
    assert "failed" in str(found)


def test_table_without_enough_missing_cells_is_refused(rows) -> None:
    with pytest.raises(DataError, match="at least 10 missing"):
        rank_draws(np.nan_to_num(rows))
    with pytest.raises(ParameterError, match="draws"):
        rank_draws(rows, draws=0)
