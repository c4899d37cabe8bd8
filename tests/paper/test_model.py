"""Tests of draws and quantiles of tables: observed cells, reproducibility, distribution and coverage."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import mcflow
from mcflow import MCFlowImputer
from mcflow.columns.schema import Column
from mcflow.fitting.distributed import share_out
from mcflow.paper import model as module
from mcflow.paper.chain import Chain, ChainTrace
from mcflow.paper.config import PaperConfig
from mcflow.paper.model import PaperModel
from mcflow.random import Streams, hash_rows

BURN_IN, THINNING = PaperConfig().burn_in, PaperConfig().thinning


@pytest.fixture(scope="module")
def model(fitted_paper: MCFlowImputer) -> PaperModel:
    return fitted_paper.model_


@pytest.fixture(scope="module")
def rows(table: np.ndarray) -> np.ndarray:
    return table[:60]


@pytest.fixture(scope="module")
def drawn(model: PaperModel, rows: np.ndarray) -> list[np.ndarray]:
    return list(model.draws(rows, 3, 5))


@pytest.fixture(scope="module")
def mixed() -> tuple[PaperModel, np.ndarray]:
    """A model of numbers, columns of three, of two and of ordered categories, and counts, with its codes."""
    import pandas as pd

    rng = np.random.default_rng(0)
    number = rng.normal(size=400)
    grade = np.digitize(number + rng.normal(scale=0.5, size=400), [-0.7, 0.0, 0.7])
    frame = pd.DataFrame(
        {
            "number": number,
            "word": np.array(["a", "b", "c"])[np.clip(grade, 0, 2)],
            "yes": number > 0.3,
            "grade": pd.Categorical(grade, ordered=True),
            "count": rng.poisson(2 + 2 * (number > 0)),
        }
    ).astype({"yes": object, "count": "Float64"})
    frame = frame.mask(rng.random(frame.shape) < 0.2)
    frame["count"] = frame["count"].astype("Int64")
    imputer = MCFlowImputer(preset="paper", max_epochs=8, random_state=0).fit(frame)
    return imputer.model_, imputer._read(frame)[1]


def test_draws_fill_every_missing_cell_and_keep_observed_cells(drawn, rows) -> None:
    seen = ~np.isnan(rows)
    for one in drawn:
        np.testing.assert_array_equal(one[seen], rows[seen])
        assert not np.isnan(one).any()
    for one, other in itertools.combinations(drawn, 2):
        assert (one[~seen] != other[~seen]).mean() > 0.9


def test_draws_lie_inside_the_observed_range(drawn, table) -> None:
    for one in drawn:
        assert (one >= np.nanmin(table, axis=0) - 1e-9).all()
        assert (one <= np.nanmax(table, axis=0) + 1e-9).all()


def test_draws_of_a_seed_are_the_same_bits_and_a_longer_series_begins_with_a_shorter(model, rows, drawn) -> None:
    for one, other in zip(model.draws(rows, 2, 5), drawn, strict=False):
        np.testing.assert_array_equal(one, other)
    other = next(model.draws(rows, 1, 6))
    assert (other != drawn[0])[np.isnan(rows)].all()


def test_draws_of_a_row_do_not_depend_on_the_rows_it_comes_with(model, rows, drawn, monkeypatch) -> None:
    some = np.random.default_rng(0).permutation(len(rows))[:23]
    monkeypatch.setattr(module, "ROWS_TOGETHER", 7)
    for one, whole in zip(model.draws(rows[some], 3, 5), drawn, strict=True):
        np.testing.assert_allclose(one, whole[some], atol=1e-8)


def test_equal_rows_get_different_draws_when_they_have_ids(model) -> None:
    rows = np.tile([0.5, np.nan, 1.0, np.nan], (2, 1))
    alike, apart = next(model.draws(rows, 1, 0)), next(model.draws(rows, 1, 0, np.array([0.0, 1.0])))
    np.testing.assert_allclose(alike[0], alike[1])
    assert apart[0, 1] != apart[1, 1]


def test_draws_are_made_when_they_are_asked_for(model, rows, monkeypatch) -> None:
    moves: list[int] = []
    monkeypatch.setattr(Chain, "advance", lambda chain, n_moves: moves.append(n_moves))
    series = model.draws(rows, 1_000_000, 0)
    assert not moves
    next(series)
    next(series)
    n_chains = len(share_out(np.flatnonzero(np.isnan(rows).any(axis=1)), module.ROWS_TOGETHER))
    assert sorted(moves) == sorted([BURN_IN, THINNING, THINNING] * n_chains)


def test_complete_rows_need_no_chain(model) -> None:
    rows = np.ones((2, 4))
    for answer in (*model.draws(rows, 2, 0), *model.quantiles(rows, np.array([0.1]))):
        np.testing.assert_array_equal(answer, rows)


@pytest.mark.parametrize("rows", [np.array([[1.0], [np.nan], [3.0]]), np.array([[1.0, 2.0], [2.0, np.nan]])])
def test_smallest_tables_are_drawn_and_read(rows) -> None:
    model = MCFlowImputer(preset="paper", max_epochs=2, random_state=0, keep_empty_features=True).fit(rows).model_
    values = np.full((1, len(model.codec.columns)), np.nan)
    low, high = model.quantiles(values, np.array([0.05, 0.95]))
    drawn = next(model.draws(values, 1, 0))
    ends = rows[:, : values.shape[1]]
    assert (np.nanmin(ends) <= low).all()
    assert (low <= high).all()
    assert ((np.nanmin(ends) <= drawn) & (drawn <= np.nanmax(ends))).all()


def test_categories_alone_have_draws_and_no_quantiles() -> None:
    words = np.array(["a", "b", "b", "c"] * 10, dtype=object)[:, None].repeat(2, axis=1)
    words[::5, 1] = None
    imputer = MCFlowImputer(preset="paper", max_epochs=2, random_state=0).fit(words)
    codes = imputer._read(words)[1]
    assert imputer.model_.calibration is None
    assert np.isnan(next(imputer.model_.quantiles(codes, np.array([0.5]))))[::5, 1].all()
    assert set(next(imputer.model_.draws(codes, 1, 0))[::5, 1]) <= {0.0, 1.0, 2.0}


def test_trace_of_complete_rows_is_empty(model) -> None:
    trace = model.trace(np.ones((2, 4)), 0, 6)
    assert trace.log_density.shape == (6, 0)
    assert trace.values.shape == (6, 0)


def test_fit_without_calibration_has_none(table) -> None:
    model = PaperModel.prepare(*_parts_of(table))
    model.calibrates = False
    model.fit(table, Streams(0), torch.device("cpu"))
    assert model.calibration is None


def _parts_of(table: np.ndarray) -> tuple:
    columns = [
        Column(k, "double", "continuous", low=c.min(), high=c.max()) for k, c in enumerate(np.nan_to_num(table.T))
    ]
    box = np.nanmin(table, axis=0), np.nanmax(table, axis=0)
    return table, columns, box, 0, PaperConfig(max_epochs=1)


def test_missing_row_is_drawn_like_the_table(model, table) -> None:
    rows = np.full((300, 4), np.nan)
    drawn = next(model.draws(rows, 1, 0, np.arange(300.0)))
    flow = model.sample(3000, 0)
    low, high = np.nanmin(table, axis=0), np.nanmax(table, axis=0)
    inside = flow[((flow >= low) & (flow <= high)).all(axis=1)]
    error = inside.std(axis=0) * np.sqrt(1 / 300 + 1 / len(inside))
    assert (np.abs(drawn.mean(axis=0) - inside.mean(axis=0)) < 4 * error).all()
    np.testing.assert_allclose(drawn.std(axis=0), inside.std(axis=0), rtol=0.2)


def test_trace_follows_the_chains_of_the_draws(model, rows, drawn) -> None:
    trace = model.trace(rows, 5, BURN_IN + THINNING)
    incomplete = np.flatnonzero(np.isnan(rows).any(axis=1))
    assert isinstance(trace, ChainTrace)
    assert trace.log_density.shape == trace.accepted.shape == (BURN_IN + THINNING, len(incomplete))
    assert len(trace.moves) == BURN_IN + THINNING
    np.testing.assert_array_equal(trace.rows, incomplete)
    assert np.isnan(rows[tuple(trace.cells.T)]).all()
    np.testing.assert_allclose(trace.values[-1], drawn[0][tuple(trace.cells.T)], atol=1e-8)
    stays = ~trace.accepted[1:]
    np.testing.assert_array_equal(trace.log_density[1:][stays], trace.log_density[:-1][stays])
    assert 0.1 < trace.accepted[-30:].mean() < 0.95


def test_categories_are_drawn_with_the_probabilities_of_their_head(mixed) -> None:
    model, values = mixed
    chains = module.TableChains(model)
    incomplete = values[np.isnan(values[:, 1])]
    chain = chains.chain(np.repeat(incomplete[:1], 3000, axis=0), np.arange(3000, dtype=np.uint64) * np.uint64(977))
    drawn = chains.codes(chain)[:, 1]
    expected = model.heads[1].probabilities(torch.from_numpy(chain.rows[:1]).float())[0].numpy()
    np.testing.assert_allclose(np.bincount(drawn.astype(int), minlength=3) / 3000, expected, atol=0.035)


def test_mixed_table_is_drawn_and_read_by_kind(mixed) -> None:
    model, values = mixed
    rows = values[:80]
    missing = np.isnan(rows)
    for one in model.draws(rows, 2, 0):
        assert not np.isnan(one).any()
        for k, n_categories in model.categories.items():
            assert set(one[:, k]) <= set(range(n_categories))
    low, high = model.quantiles(rows, np.array([0.05, 0.95]))
    nominal = np.array([column.kind in ("boolean", "category") for column in model.codec.columns])
    assert nominal.sum() == 2
    assert (np.isnan(low) == (missing & nominal)).all()
    cells = missing & ~nominal
    assert (low[cells] <= high[cells]).all()
    whole = cells & np.array([column.kind in ("ordered", "integer") for column in model.codec.columns])
    assert whole.any()
    np.testing.assert_array_equal(low[whole], np.rint(low[whole]))


def test_quantiles_rise_and_repeat(model, rows) -> None:
    first, middle, last = model.quantiles(rows, np.array([0.1, 0.5, 0.9]))
    assert (first <= middle).all()
    assert (middle <= last).all()
    assert (first < last)[np.isnan(rows)].all()
    np.testing.assert_array_equal(next(model.quantiles(rows, np.array([0.9]))), last)


def test_quantiles_without_calibration_are_those_of_the_states(model, rows, monkeypatch) -> None:
    monkeypatch.setattr(model, "calibration", None)
    incomplete = rows[np.isnan(rows).any(axis=1)][:5]
    sampler = module.TableChains(model).sampler(incomplete, hash_rows(incomplete, model.seed))
    states = sampler.states(np.arange(5))[0][1:-1]
    assert len(states) == model.config.n_states
    found = next(model.quantiles(incomplete, np.array([0.25])))[np.isnan(incomplete)]
    np.testing.assert_allclose(found, np.quantile(states, 0.25, axis=0, method="weibull"), atol=1e-8)


def test_calibrated_intervals_cover_what_they_say() -> None:
    rng = np.random.default_rng(0)
    rows = np.exp(rng.normal(size=(700, 1)) + 0.5 * rng.normal(size=(700, 3)))  # far from what two epochs can learn
    incomplete = np.where(rng.random(rows.shape) < 0.2, np.nan, rows)
    model = MCFlowImputer(preset="paper", max_epochs=2, random_state=0).fit(incomplete[:400]).model_
    cells = np.isnan(incomplete[400:])
    low, high = model.quantiles(incomplete[400:], np.array([0.1, 0.9]))
    inside = ((rows[400:] >= low) & (rows[400:] <= high))[cells]
    assert inside.mean() == pytest.approx(0.8, abs=0.09)


def test_saved_model_has_the_same_draws_and_quantiles_bit_for_bit(fitted_paper, model, rows, tmp_path) -> None:
    fitted_paper.save(tmp_path / "model.mcflow")
    again = mcflow.load(tmp_path / "model.mcflow", device="cpu").model_
    assert again.calibration is not None
    np.testing.assert_array_equal(next(again.draws(rows, 1, 0)), next(model.draws(rows, 1, 0)))
    quantiles = [next(m.quantiles(rows, np.array([0.05]))) for m in (again, model)]
    np.testing.assert_array_equal(*quantiles)
