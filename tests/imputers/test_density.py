"""Densities and samples, and when the flow of the default preset is fitted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from mcflow import MCFlowImputer, load
from mcflow.errors import DataError, ParameterError
from mcflow.masked.config import MaskedConfig

#: A small network for which a table of 300 rows is large, so that the flow gives the draws.
LARGE = MaskedConfig(width=16, n_members=2, n_knots=6, n_points=10, max_epochs=3, small_rows=50)


def test_score_is_the_flow_s_log_density_in_the_table_s_units(fitted_paper, table) -> None:
    filled = fitted_paper.transform(table)
    low, high = np.nanmin(table, axis=0), np.nanmax(table, axis=0)
    scaled = torch.from_numpy((filled - low) / (high - low)).float()
    expected = fitted_paper.model_.stages[-1].flow.log_prob(scaled).detach().numpy() - np.log(high - low).sum()
    np.testing.assert_allclose(fitted_paper.score_samples(filled), expected, atol=1e-4)


def test_missing_cells_are_filled_before_they_are_scored(fitted, table) -> None:
    np.testing.assert_array_equal(fitted.score_samples(table), fitted.score_samples(fitted.transform(table)))


def test_far_rows_are_less_probable(fitted, table) -> None:
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
    rows = rng.normal([0.0, 5.0], [1.0, 0.1], size=(1500, 2))
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


# --- when the flow is fitted


@pytest.fixture(scope="module")
def by_density(table) -> dict[object, MCFlowImputer]:
    """Fits with every value of `density`; tests must not use the flow of "auto"."""
    return {
        given: MCFlowImputer(preset=LARGE, density=given, random_state=0).fit(table) for given in ("auto", True, False)
    }


def of_flow(imputer: MCFlowImputer, table: np.ndarray) -> list[np.ndarray]:
    """Return everything that the flow gives."""
    return [imputer.score_samples(table), imputer.sample(9, random_state=1)]


@pytest.mark.parametrize("first", ["score_samples", "sample", "save"])
def test_flow_when_fitted_at_its_first_use_then_gives_the_bits_of_one_fitted_at_once(
    by_density, table, tmp_path, first
) -> None:
    lazy = MCFlowImputer(preset=LARGE, random_state=0).fit(table)
    assert lazy.model_._flow is None
    {
        "score_samples": lambda: lazy.score_samples(table[:2]),
        "sample": lambda: lazy.sample(1, random_state=0),
        "save": lambda: lazy.save(tmp_path / "lazy.mcflow"),
    }[first]()
    assert lazy.model_._flow is not None
    for found, wanted in zip(of_flow(lazy, table), of_flow(by_density[True], table), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("preset", [LARGE, "default"])
def test_fit_transform_by_default_fits_no_flow(table, preset, monkeypatch) -> None:
    monkeypatch.setattr("mcflow.masked.flow.JointDensity.fit", lambda *_, **__: pytest.fail("the flow was fitted"))
    imputer = MCFlowImputer(preset=preset, max_epochs=1, random_state=0)
    filled = imputer.fit_transform(table)
    np.testing.assert_array_equal(imputer.transform(table), filled)
    assert (imputer.interval(table)[0] <= imputer.interval(table)[1]).all()


@pytest.mark.parametrize("preset", [LARGE, "default"])
def test_draws_fit_no_flow(table, preset, monkeypatch) -> None:
    monkeypatch.setattr("mcflow.masked.flow.JointDensity.fit", lambda *_, **__: pytest.fail("the flow was fitted"))
    for given in ("auto", False):
        imputer = MCFlowImputer(preset=preset, max_epochs=1, density=given, random_state=0).fit(table)
        assert all(np.isfinite(drawn).all() for drawn in imputer.draw(table, 2, random_state=0))


def test_fills_and_intervals_do_not_depend_on_density(by_density, table) -> None:
    wanted = by_density[True].transform(table), *by_density[True].interval(table)
    for given in ("auto", False):
        found = by_density[given].transform(table), *by_density[given].interval(table)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def test_imputer_without_density_refuses_what_needs_the_flow(by_density, table, tmp_path) -> None:
    imputer = by_density[False]
    imputer.save(tmp_path / "none.mcflow")
    for one in (imputer, load(tmp_path / "none.mcflow")):
        for act in (lambda one=one: one.score_samples(table), lambda one=one: one.sample(1)):
            with pytest.raises(ParameterError, match=r"density=False.*density='auto' or True"):
                act()
        np.testing.assert_array_equal(one.transform(table), by_density[True].transform(table))
        for found, wanted in zip(
            one.draw(table, 2, random_state=2), by_density[True].draw(table, 2, random_state=2), strict=True
        ):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("given", ["auto", True, False])
def test_file_has_the_flow_unless_density_is_false(by_density, table, tmp_path, given) -> None:
    imputer = MCFlowImputer(preset=LARGE, density=given, n_models=2, random_state=0).fit(table)
    imputer.save(tmp_path / "m.mcflow")
    loaded = load(tmp_path / "m.mcflow")
    assert loaded.density == given
    for model in (loaded.model_, *loaded.other_models_):
        assert any(name.startswith("flow.") for name in model.tensors()) == (given is not False)
    if given is not False:
        for found, wanted in zip(of_flow(loaded, table), of_flow(imputer, table), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_paper_preset_has_its_flow_whatever_density_is(table) -> None:
    scores = [
        MCFlowImputer(preset="paper", max_epochs=1, density=given, random_state=0).fit(table).score_samples(table)
        for given in ("auto", True, False)
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])


@pytest.mark.parametrize("given", ["never", None, 2])
def test_density_that_is_no_option_is_refused(table, given) -> None:
    with pytest.raises(ParameterError, match="density"):
        MCFlowImputer(density=given).fit(table)
