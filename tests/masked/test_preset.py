"""The default preset: how well it fills, what it bears, how long it takes, and where it begins."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from mcflow import MCFlowImputer, load
from mcflow.baselines.em import GaussianImputer
from mcflow.errors import McflowWarning, ParameterError
from mcflow.masked.blend import ESTIMATES
from mcflow.masked.config import MaskedConfig
from mcflow.masked.encoding import MAX_PLACES
from mcflow.masked.model import MaskedModel
from mcflow.masked.network import MaskedTrainer
from mcflow.paper.config import PaperConfig
from mcflow.paper.model import PaperModel

#: A small configuration, so that tests are quick.
SMALL = MaskedConfig(
    width=16, n_members=2, n_knots=6, n_points=10, max_epochs=3, n_trees=10, category_trees=20, donor_trees=4
)
#: The same with as many epochs as a table deserves.
PLAIN = MaskedConfig(n_members=2, n_trees=30, donor_trees=4)


def small(**parameters) -> MCFlowImputer:
    return MCFlowImputer(**{"preset": SMALL, "random_state": 0} | parameters)


def error_of(filled: np.ndarray, rows: np.ndarray, missing: np.ndarray) -> float:
    """Return the root of the mean squared error over the missing cells, in standard deviations of the columns."""
    return float(np.sqrt((((filled - rows) / rows.std(axis=0))[missing] ** 2).mean()))


# --- what it is


def test_imputer_without_a_parameter_has_the_mask_aware_model(table) -> None:
    imputer = MCFlowImputer(max_epochs=1, random_state=0).fit(table[:40])
    assert isinstance(imputer.model_, MaskedModel)
    assert isinstance(imputer.config_, MaskedConfig)
    assert isinstance(MCFlowImputer(preset="paper", max_epochs=1).fit(table[:40]).model_, PaperModel)


def test_config_after_a_fit_has_no_size_left_open(table) -> None:
    imputer = MCFlowImputer(max_epochs=1, random_state=0).fit(table[:40])
    config = imputer.config_
    assert min(config.width, config.n_members, config.n_knots, config.n_points) > 0


def test_observed_cells_keep_their_bits_on_every_scale() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 4)) * [1e-9, 1.0, 1e9, 1e-200] + [0, 1e6, 0, 0]
    rows[rng.random(rows.shape) < 0.2] = np.nan
    filled = small().fit_transform(rows)
    seen = ~np.isnan(rows)
    assert filled[seen].tobytes() == rows[seen].tobytes()
    assert np.isfinite(filled).all()


def test_answer_of_a_row_does_not_depend_on_the_others(table) -> None:
    imputer = small().fit(table)
    whole = imputer.transform(table)
    alone = np.vstack([imputer.transform(row[None]) for row in table[:60]])
    np.testing.assert_allclose(alone, whole[:60], rtol=0, atol=1e-5)


# --- how well it fills


def nonlinear(n_rows: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, n_rows)
    rows = np.column_stack([x, x**2, np.sin(2 * x), np.abs(x) - x**3 / 4]) + 0.05 * rng.normal(size=(n_rows, 4))
    return rows, rng.random(rows.shape) < 0.2


def gaussian(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(100, 2)) @ rng.normal(size=(2, 6)) + 0.5 * rng.normal(size=(100, 6))
    return rows, rng.random(rows.shape) < 0.2


@pytest.fixture(scope="module")
def curved() -> tuple[MCFlowImputer, np.ndarray, np.ndarray, np.ndarray]:
    """An imputer of the first 600 of 900 rows; the rows, their mask, and the incomplete rows."""
    rows, missing = nonlinear(900)
    incomplete = np.where(missing, np.nan, rows)
    return MCFlowImputer(preset=PLAIN, max_epochs=60, random_state=0).fit(incomplete[:600]), rows, missing, incomplete


def test_curved_table_is_filled_much_better_than_by_means_or_a_line(curved) -> None:
    imputer, rows, missing, incomplete = curved
    learned = rows[:600], missing[:600]
    error = error_of(imputer.transform(incomplete[:600]), *learned)
    mean = error_of(np.where(missing, np.nanmean(incomplete[:600], axis=0), rows)[:600], *learned)
    line = error_of(GaussianImputer().fit_transform(incomplete[:600]), *learned)
    assert error < 0.5 * mean
    assert error < 0.8 * line


def test_new_rows_of_a_curved_table_are_filled_as_well(curved) -> None:
    imputer, rows, missing, incomplete = curved
    new = slice(600, None)
    error = error_of(imputer.transform(incomplete[new]), rows[new], missing[new])
    mean = error_of(np.where(missing, np.nanmean(incomplete, axis=0), rows)[new], rows[new], missing[new])
    assert error < 0.5 * mean


def test_small_gaussian_table_is_filled_nearly_as_well_as_by_the_gaussian() -> None:
    """100 rows from a multivariate Gaussian: the maximum likelihood estimate is hard to beat."""
    ours, best = [], []
    for seed in range(3):
        rows, missing = gaussian(seed)
        incomplete = np.where(missing, np.nan, rows)
        ours.append(
            error_of(
                MCFlowImputer(preset=PLAIN, max_epochs=30, random_state=0).fit_transform(incomplete), rows, missing
            )
        )
        best.append(error_of(GaussianImputer().fit_transform(incomplete), rows, missing))
    assert np.mean(ours) <= 1.05 * np.mean(best)


def test_categories_that_a_number_decides_are_filled_right() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 600)
    full = pd.DataFrame({"x": x, "town": np.where(np.abs(x) < 0.5, "in", np.where(x > 0, "east", "west"))})
    missing = rng.random(600) < 0.2
    filled = MCFlowImputer(preset=PLAIN, max_epochs=40, random_state=0).fit_transform(
        full.assign(town=full["town"].mask(pd.Series(missing)))
    )
    assert (filled["town"] == full["town"])[missing].mean() > 0.9


@pytest.mark.parametrize("seed", range(2))
def test_columns_of_pure_noise_are_filled_no_worse_than_by_their_means(seed) -> None:
    """The column mean is among what is blended, so a network that has learned nothing does no harm."""
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.normal(size=500), rng.exponential(size=500), rng.random(500)])
    missing = rng.random(rows.shape) < 0.2
    incomplete = np.where(missing, np.nan, rows)
    imputer = MCFlowImputer(preset=PLAIN, max_epochs=40, learning_rate=0.01, random_state=0).fit(incomplete)
    mean = np.where(missing, np.nanmean(incomplete, axis=0), rows)
    filled = imputer.transform(incomplete)
    for k in range(3):
        here = missing & (np.arange(3) == k)
        assert error_of(filled, rows, here) < 1.03 * error_of(mean, rows, here)


def test_noise_beside_what_can_be_learned_spoils_neither() -> None:
    rng = np.random.default_rng(0)
    rows, missing = nonlinear(500)
    rows, missing = np.column_stack([rows, rng.normal(size=500)]), np.column_stack([missing, rng.random(500) < 0.2])
    incomplete = np.where(missing, np.nan, rows)
    filled = MCFlowImputer(preset=PLAIN, max_epochs=40, random_state=0).fit_transform(incomplete)
    mean = np.where(missing, np.nanmean(incomplete, axis=0), rows)
    is_noise = np.arange(5) == 4
    assert error_of(filled, rows, missing & is_noise) < 1.03 * error_of(mean, rows, missing & is_noise)
    assert error_of(filled, rows, missing & ~is_noise) < 0.5 * error_of(mean, rows, missing & ~is_noise)


def test_blend_weighs_all_estimates_and_its_means_are_those_of_the_columns(table) -> None:
    model = small().fit(table).model_
    assert model.blend.weights.shape == (4, len(ESTIMATES))
    assert (model.blend.weights >= 0).all()
    np.testing.assert_allclose(model.blend.weights.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(model.grid.codes_of(model.blend.means[None])[0], np.nanmean(table, axis=0), rtol=1e-9)


def test_fill_is_the_blend_of_its_estimates(table) -> None:
    """With all the weight on one of them, the fill is that one."""
    imputer = small(bounds=dict.fromkeys(range(4), (None, None))).fit(table)
    model, missing = imputer.model_, np.isnan(table)
    columns, eye = missing.nonzero()[1], np.eye(len(ESTIMATES))
    names = ["mean", "direct", "column", "gaussian", *model.ladder.rungs]
    parts = {}
    for name in names:
        model.blend.weights = np.tile(eye[ESTIMATES.index(name)], (4, 1))
        parts[name] = imputer.transform(table)[missing]
    np.testing.assert_allclose(parts["column"], np.nanmean(table, axis=0)[columns], rtol=1e-9)
    gaussian = model.blend.codec.decode(model.blend.gaussian.conditional(model.blend.codec.encode(table)))[missing]
    np.testing.assert_allclose(parts["gaussian"], gaussian, rtol=1e-9, atol=1e-12)
    shares = np.random.default_rng(0).dirichlet(np.ones(len(names)), size=4)
    model.blend.weights = shares @ np.stack([eye[ESTIMATES.index(name)] for name in names])
    blended = sum(shares[columns, k] * parts[name] for k, name in enumerate(names))
    np.testing.assert_allclose(imputer.transform(table)[missing], blended, rtol=1e-6, atol=1e-9)


def test_more_categories_than_places_have_probabilities_by_frequency() -> None:
    rng = np.random.default_rng(0)
    counts = np.r_[np.full(MAX_PLACES, 4), np.full(10, 2), np.full(10, 1)]
    town = pd.Series(rng.permutation(np.repeat([f"t{k:03}" for k in range(len(counts))], counts)), dtype="category")
    frame = pd.DataFrame({"x": rng.normal(size=len(town)), "town": town})
    frame.loc[::10, "town"] = None
    seen = frame["town"].value_counts()
    imputer = small(max_epochs=1).fit(frame)
    probabilities = imputer.predict_proba(frame[frame["town"].isna()])["town"]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    # The most frequent ones have a place of their own; those of the last place split it by their counts.
    (last,) = [k for k, places in enumerate(imputer.model_.grid.places) if places is not None]
    places = imputer.model_.grid.places[last]
    categories = list(imputer.model_.columns[last].categories)
    together = [categories[k] for k in np.flatnonzero(places == MAX_PLACES - 1)]
    assert len(together) == len(categories) - MAX_PLACES + 1
    split = probabilities[together].to_numpy()
    wanted = seen[together].to_numpy() / seen[together].sum()
    np.testing.assert_allclose(split / split.sum(axis=1, keepdims=True), np.tile(wanted, (len(split), 1)), atol=1e-6)
    filled = imputer.transform(frame)
    assert filled["town"].notna().all()


# --- what it bears


def wild_tables() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(60, 4))
    base[:, 1] += base[:, 0]
    missing = rng.random(base.shape) < 0.2
    missing[:4] = False
    incomplete = np.where(missing, np.nan, base)
    outliers, nearly, single, empty, wide = (
        incomplete.copy(),
        incomplete.copy(),
        incomplete.copy(),
        incomplete.copy(),
        None,
    )
    outliers[0], outliers[1, 2] = 1e6, -1e6
    nearly[:, 1] = np.where(np.isnan(nearly[:, 1]), np.nan, 5.0)
    nearly[3, 1] = 5.0 + 1e-9
    single[:, 1] = np.nan
    single[0, 1] = 3.0
    empty[10:20] = np.nan
    wide = rng.normal(size=(20, 60))
    wide[rng.random(wide.shape) < 0.2] = np.nan
    return {
        "outliers of a million times the spread": outliers,
        "a column that is nearly constant": nearly,
        "a column with one observed value": single,
        "rows without an observed cell": empty,
        "scales from 1e-9 to 1e9": incomplete * [1e-9, 1e9, 1.0, 1e-9],
        "far from zero": incomplete + 1e12,
        "one column": incomplete[:, :1],
        "two rows": np.array([[1.0, 2.5, 0.1], [3.0, np.nan, 0.7]]),
        "three rows of one column": np.array([[1.0], [2.5], [np.nan]]),
        "two complete rows": np.array([[1.0, 2.5], [3.0, 4.5]]),
        "more columns than rows": wide,
        "two equal columns": np.column_stack([incomplete[:, 0], incomplete[:, 0], incomplete[:, 2]]),
        "a column of zeros and ones": np.column_stack([incomplete, np.where(missing[:, 0], np.nan, base[:, 0] > 0)]),
    }


@pytest.mark.parametrize("case", wild_tables())
def test_table_is_filled_within_its_bounds_when_it_has(case) -> None:
    rows = wild_tables()[case]
    imputer = small()
    filled = imputer.fit_transform(rows)
    assert filled.shape == rows.shape
    assert np.isfinite(filled).all()
    seen = ~np.isnan(rows)
    assert filled[seen].tobytes() == rows[seen].tobytes()
    assert (filled >= np.nanmin(rows, axis=0)).all()
    assert (filled <= np.nanmax(rows, axis=0)).all()
    blank = imputer.transform(np.full((2, rows.shape[1]), np.nan))
    assert np.isfinite(blank).all()
    span = np.nanmax(rows, axis=0) - np.nanmin(rows, axis=0)
    assert (np.abs(blank[0] - blank[1]) <= 1e-6 * span).all()
    assert np.isfinite(imputer.score_samples(rows)).all()
    assert np.isfinite(imputer.sample(5, random_state=0)).all()


@pytest.mark.filterwarnings("ignore:.*may stand for missing cells:mcflow.errors.McflowWarning")
def test_outliers_do_not_spoil_the_other_cells() -> None:
    rows, missing = nonlinear(400)
    rows[:3, 0], missing[:3] = 1e6, False
    incomplete = np.where(missing, np.nan, rows)
    filled = MCFlowImputer(preset=PLAIN, max_epochs=40, random_state=0).fit_transform(incomplete)
    missing[:, 0] = False
    mean = np.where(missing, np.nanmean(incomplete, axis=0), rows)
    assert error_of(filled, rows, missing) < 0.7 * error_of(mean, rows, missing)


def test_bounds_hold_for_fills_and_samples(table) -> None:
    bounds = {0: (-10, 10), 2: (0, None)}
    imputer = small(bounds=bounds).fit(table)
    for found in (imputer.transform(table), imputer.sample(200, random_state=0)):
        assert ((found[:, 0] >= -10) & (found[:, 0] <= 10)).all()
        assert (found[:, 2] >= 0).all()


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_fit_that_diverges_once_warns_and_fills(table, monkeypatch, loss) -> None:
    step, calls = MaskedTrainer._step, []

    def failing(self: MaskedTrainer, part: int, batch: object) -> object:
        calls.append(self.rate)
        found = step(self, part, batch)
        return found * loss if len(calls) == 2 else found

    monkeypatch.setattr(MaskedTrainer, "_step", failing)
    imputer = small()
    with pytest.warns(McflowWarning, match="restarts with a learning rate of 0.001"):
        filled = imputer.fit_transform(table)
    assert np.isfinite(filled).all()
    assert calls[-1] == pytest.approx(calls[0] / 4)
    assert imputer.n_epochs_ == 3


def test_fit_that_diverges_shows_its_progress_all_the_same(table, monkeypatch, capsys) -> None:
    learn, calls = MaskedTrainer._learn, []

    def failing(self: MaskedTrainer) -> float:
        calls.append(1)
        return float("nan") if len(calls) == 1 else learn(self)

    monkeypatch.setattr(MaskedTrainer, "_learn", failing)
    with pytest.warns(McflowWarning, match="restarts"):
        small(verbose=True).fit(table)
    assert "trained 3 epochs" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::mcflow.errors.McflowWarning")
def test_largest_learning_rate_gives_finite_fills(table) -> None:
    filled = small(learning_rate=1.0, max_epochs=10).fit_transform(table)
    assert np.isfinite(filled).all()
    assert (filled >= np.nanmin(table, axis=0)).all()
    assert (filled <= np.nanmax(table, axis=0)).all()


# --- how long it takes


def test_fit_ends_when_its_time_is_up_and_is_a_finished_one() -> None:
    """Without the limit this fit would take many minutes."""
    rows, missing = nonlinear(2500)
    incomplete = np.where(missing, np.nan, rows)
    imputer = MCFlowImputer(max_epochs=100_000, max_time=2.0, random_state=0)
    start = time.perf_counter()
    imputer.fit(incomplete)
    assert time.perf_counter() - start < 2 + 10
    assert imputer.history_.ending in ("max_time", "early_stopping")
    assert imputer.model_.calibration is not None
    np.testing.assert_allclose(imputer.model_.blend.weights.sum(axis=1), 1)
    mean = np.where(missing, np.nanmean(incomplete, axis=0), rows)
    assert error_of(imputer.transform(incomplete), rows, missing) < 0.8 * error_of(mean, rows, missing)


def test_time_limit_is_kept_by_the_paper_s_preset_too(table) -> None:
    start = time.perf_counter()
    imputer = MCFlowImputer(preset="paper", max_epochs=100_000, max_time=1.0, tolerance=0, random_state=0).fit(table)
    assert time.perf_counter() - start < 1 + 10
    assert imputer.history_.ending == "max_time"
    assert np.isfinite(imputer.transform(table)).all()


def test_time_limit_that_no_epoch_fits_in_gives_a_model_all_the_same(table) -> None:
    imputer = small(max_time=1e-6).fit(table)
    assert np.isfinite(imputer.transform(table)).all()
    assert np.isfinite(imputer.score_samples(table)).all()


# --- where it begins


def first_loss(imputer: MCFlowImputer) -> float:
    return float(imputer.history_.epochs[0].latent_loss)


def test_warm_start_goes_on_from_what_was_learned() -> None:
    rows, missing = nonlinear(400)
    incomplete = np.where(missing, np.nan, rows)
    warm = small(warm_start=True, max_epochs=60).fit(incomplete[:200])
    cold, last = first_loss(warm), warm.history_.epochs[-1].latent_loss
    warm.fit(incomplete)
    assert first_loss(small().fit(incomplete)) == pytest.approx(cold, rel=0.2), "that is where others begin"
    assert first_loss(warm) < cold - 0.5 * (cold - last)


def test_warm_start_on_other_columns_begins_anew(table) -> None:
    warm = small(warm_start=True).fit(table[:, :3])
    warm.fit(table)
    np.testing.assert_array_equal(warm.transform(table), small().fit(table).transform(table))


def test_first_fit_with_warm_start_is_like_any_other(table) -> None:
    one, two = (small(warm_start=given).fit_transform(table) for given in (True, False))
    np.testing.assert_array_equal(one, two)


def test_fit_without_warm_start_forgets_what_was_learned(table) -> None:
    imputer = small().fit(table)
    first = imputer.transform(table)
    np.testing.assert_array_equal(imputer.fit(table).transform(table), first)


def test_warm_start_of_a_loaded_model_goes_on(tmp_path) -> None:
    rows, missing = nonlinear(200)
    incomplete = np.where(missing, np.nan, rows)
    small(warm_start=True, max_epochs=60, density=False).fit(incomplete).save(tmp_path / "m.mcflow")
    loaded = load(tmp_path / "m.mcflow")
    assert loaded.warm_start
    loaded.fit(incomplete)
    assert first_loss(loaded) < first_loss(small().fit(incomplete)) - 0.2


def test_warm_start_of_the_paper_s_preset_is_refused_and_the_earlier_fit_stays(table) -> None:
    with pytest.raises(ParameterError, match="warm_start=True needs preset='default'"):
        MCFlowImputer(preset="paper", warm_start=True, max_epochs=1).fit(table)
    imputer = small().fit(table)
    before = imputer.transform(table)
    with pytest.raises(ParameterError):
        imputer.set_params(preset="paper", warm_start=True).fit(table)
    np.testing.assert_array_equal(imputer.transform(table), before)


# --- parameters of the other preset


@pytest.mark.parametrize("given", [{"scaling": "auto"}, {"likelihood_weight": 0.1}, {"tolerance": 0.01}])
def test_parameter_that_only_the_paper_s_preset_uses_is_said_to_have_no_effect(table, given) -> None:
    plain = small().fit_transform(table)
    with pytest.warns(
        McflowWarning, match=rf"^{next(iter(given))} has no effect with this preset; preset='paper' uses"
    ):
        filled = small(**given).fit_transform(table)
    np.testing.assert_array_equal(filled, plain)


def test_parameters_of_the_paper_s_preset_are_no_news_to_it(table) -> None:
    imputer = MCFlowImputer(preset="paper", max_epochs=1, scaling="auto", likelihood_weight=0.1, tolerance=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        imputer.fit(table)


# --- configuration objects


def test_config_as_preset_are_used_and_overridden_by_parameters(table) -> None:
    imputer = small(max_epochs=2, n_couplings=2).fit(table)
    config = imputer.config_
    assert (config.width, config.n_members, config.n_knots, config.n_points) == (16, 2, 6, 10)
    assert (config.max_epochs, config.n_couplings) == (2, 2)
    assert imputer.n_epochs_ == 2
    assert SMALL.max_epochs == 3


def test_config_as_preset_survive_clone_and_file(table, tmp_path) -> None:
    imputer = small(kinds={0: "continuous"})
    copied = clone(imputer)
    assert copied.get_params()["preset"] == SMALL
    filled = imputer.fit_transform(table)
    np.testing.assert_array_equal(copied.fit_transform(table), filled)
    imputer.save(tmp_path / "m.mcflow")
    loaded = load(tmp_path / "m.mcflow")
    assert loaded.preset == SMALL
    assert loaded.config_ == imputer.config_
    np.testing.assert_array_equal(loaded.transform(table), filled)
    np.testing.assert_array_equal(loaded.score_samples(table), imputer.score_samples(table))
    np.testing.assert_array_equal(clone(loaded).fit_transform(table), filled)


def test_paper_config_as_preset_makes_the_paper_s_model(table) -> None:
    own = PaperConfig(max_epochs=2)
    imputer = MCFlowImputer(preset=own, random_state=0).fit(table)
    assert isinstance(imputer.model_, PaperModel)
    named = MCFlowImputer(preset="paper", max_epochs=2, random_state=0).fit(table)
    np.testing.assert_array_equal(imputer.transform(table), named.transform(table))


def test_paper_s_schedule_without_refills_keeps_one_stage(table) -> None:
    own = PaperConfig(max_epochs=5, refills=False)
    assert len(MCFlowImputer(preset=own, random_state=0).fit(table).model_.stages) == 1
    assert len(MCFlowImputer(preset="paper", max_epochs=5, random_state=0).fit(table).model_.stages) == 4


CHANGES: dict[str, dict[str, object]] = {
    "reads numbers as they are": {"n_knots": 0},
    "is trained on visible cells": {"hide_share": 0.0},
    "has no block": {"n_blocks": 0},
    "has no coupling": {"n_couplings": 0},
    "has no validation cells": {"validation_share": 0.0},
}


@pytest.mark.parametrize("change", CHANGES)
def test_variant_fills_otherwise_and_survives_its_file_when_it(change, table, tmp_path) -> None:
    imputer = small(preset=replace(SMALL, **CHANGES[change])).fit(table)
    filled = imputer.transform(table)
    assert np.isfinite(filled).all()
    plain = small().fit(table)
    same = change == "has no coupling"  # then the fills are the same, and the density is another
    assert (filled == plain.transform(table)).all() == same
    assert (imputer.score_samples(table) != plain.score_samples(table)).any()
    imputer.save(tmp_path / "m.mcflow")
    np.testing.assert_array_equal(load(tmp_path / "m.mcflow").transform(table), filled)
