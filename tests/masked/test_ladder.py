"""The default preset with trees and donors: what the rungs bring, which are kept, and any table fits."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from mcflow import MCFlowImputer, load
from mcflow.errors import ModelFileError
from mcflow.files.atomic import read_tensors, write_tensors
from mcflow.imputers.persistence import KIND
from mcflow.masked.blend import ESTIMATES, RUNGS
from mcflow.masked.config import MaskedConfig
from mcflow.masked.ladder import (
    COMPLETED_BY,
    MAX_CATEGORIES,
    MIN_TARGETS,
    ColumnCells,
    Estimates,
    Ladder,
    ask_track,
)

CONFIG = MaskedConfig(
    width=16, n_members=2, n_knots=8, n_points=12, max_epochs=4, n_trees=20, category_trees=40, donor_trees=4
)


def imputer(**parameters: Any) -> MCFlowImputer:
    return MCFlowImputer(**{"preset": CONFIG, "random_state": 0} | parameters)


def steps(n_rows: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Two inputs and a third column that is an interaction of their signs; rows and mask."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, 2))
    rows = np.column_stack([x, 3.0 * (x[:, 0] > 0.3) * np.sign(x[:, 1]) + 0.1 * rng.normal(size=n_rows)])
    missing = rng.random(rows.shape) < 0.15
    return rows, missing


def mixed(n_rows: int = 240) -> pd.DataFrame:
    """A number, a category that it decides, and a boolean, each with missing cells."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=n_rows)
    frame = pd.DataFrame(
        {
            "x": x,
            "y": np.where(x > 0, x, 0.0) + 0.1 * rng.normal(size=n_rows),
            "town": pd.Categorical(np.where(x > 0.5, "east", np.where(x < -0.5, "west", "mid"))),
            "yes": pd.array(x + rng.normal(size=n_rows) > 0, dtype="boolean"),
        }
    )
    for k in range(4):
        frame.iloc[rng.random(n_rows) < 0.2, k] = pd.NA if k == 3 else None if k == 2 else np.nan
    return frame


def results(fitted: MCFlowImputer, rows: Any) -> list[np.ndarray]:
    """Return fills, draws, intervals and probabilities as arrays."""
    ids = np.arange(len(rows))
    tables = [fitted.transform(rows), *fitted.draw(rows, m=3, random_state=1, row_ids=ids), *fitted.interval(rows, 0.8)]
    if fitted.model_.categories:
        tables += list(fitted.predict_proba(rows).values())
    return [np.asarray(pd.DataFrame(table).astype(object).fillna("").to_numpy()) for table in tables]


def assert_same(one: list[np.ndarray], other: list[np.ndarray]) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def fitted() -> MCFlowImputer:
    return imputer().fit(mixed())


# --- what the rungs bring


def test_trees_fill_a_table_of_steps_no_worse_than_without_them() -> None:
    rows, missing = steps()
    incomplete = np.where(missing, np.nan, rows)
    missing[:, :2] = False
    with_trees = imputer().fit(incomplete)
    errors = [
        float((((found.transform(incomplete) - rows)[missing]) ** 2).mean())
        for found in (with_trees, imputer(preset=replace(CONFIG, trees=False)).fit(incomplete))
    ]
    assert errors[0] < 0.7 * errors[1]
    assert with_trees.model_.ladder.rungs


def test_rung_that_no_column_needs_is_dropped() -> None:
    """Independent noise: trees have nothing to add to the column mean."""
    rows = np.random.default_rng(0).normal(size=(150, 3))
    rows[::4, 0] = np.nan
    for table in (rows, steps()[0][:150]):
        model = imputer().fit(table).model_
        kept = list(model.ladder.rungs)
        used = [name for name in RUNGS if (model.blend.weights[:, ESTIMATES.index(name)] > 0).any()]
        sources = {COMPLETED_BY[name] for name in used}
        assert kept == [name for name in COMPLETED_BY if name in used or name in sources]


@pytest.mark.parametrize("useless", ["chained", "again"])
def test_rung_that_only_does_harm_is_dropped(useless, monkeypatch) -> None:
    write = ColumnCells.write

    def harmed(self: ColumnCells, estimates: Estimates) -> None:
        write(self, estimates)
        if self.trees in grown.get(useless, []):
            estimates.means[self.here] += 1e3

    grown: dict[str, list[Any]] = {}
    start_all = Ladder._start_all

    def remembered(self: Ladder, name: str, *given: Any) -> None:
        start_all(self, name, *given)
        grown[name] = [trees for of_track in self.rungs[name] for trees in of_track]

    rows, missing = steps()
    with monkeypatch.context() as patched:
        patched.setattr(ColumnCells, "write", harmed)
        patched.setattr(Ladder, "_start_all", remembered)
        every = replace(CONFIG, min_gain=-1e9, max_network_error=1e9, min_network_error=0.0)
        model = imputer(preset=every).fit(np.where(missing, np.nan, rows)).model_
    assert grown[useless]
    assert useless not in model.ladder.rungs
    assert not model.blend.weights[:, ESTIMATES.index(useless)].any()


def test_second_pass_is_not_made_when_the_first_one_gains_too_little() -> None:
    rows, missing = steps(200)
    table = np.where(missing, np.nan, rows)
    assert "again" not in imputer(preset=replace(CONFIG, min_gain=1.0)).fit(table).model_.ladder.rungs


def test_model_without_trees_has_no_rung(fitted) -> None:
    model = imputer(preset=replace(CONFIG, trees=False)).fit(mixed()).model_
    assert not model.ladder.rungs
    assert fitted.model_.ladder.rungs


def test_columns_with_few_training_cells_or_many_categories_have_no_trees() -> None:
    rng = np.random.default_rng(0)
    towns = rng.permutation(np.repeat(np.arange(MAX_CATEGORIES + 2), 3))
    frame = pd.DataFrame({"x": rng.normal(size=len(towns)), "town": pd.Categorical(towns), "y": np.nan})
    frame.loc[: MIN_TARGETS - 2, "y"] = rng.normal(size=MIN_TARGETS - 1)
    frame.loc[::7, "town"] = None
    grown: list[list[bool]] = []

    def watching(self: Ladder, *given: Any) -> None:
        start_all(self, *given)
        grown.extend([[trees is not None for trees in of_track] for of_track in self.rungs[given[0]]])

    start_all = Ladder._start_all
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ladder, "_start_all", watching)
        found = imputer().fit(frame)
    assert [column.name for column in found.model_.columns] == ["x", "town", "y"]
    assert set(map(tuple, grown)) == {(True, False, False)}
    assert found.transform(frame).notna().all(axis=None)


# --- time


def test_columns_of_a_wide_table_share_the_trees() -> None:
    rows = np.random.default_rng(0).normal(size=(80, 3))
    rows[::5, 0] = np.nan
    for max_trees, expected in ((36, 12), (6, 10), (6_000, 20)):
        config = replace(CONFIG, max_trees=max_trees)
        assert imputer(preset=config).fit(rows).model_.ladder._most_rounds == expected


def test_rung_for_which_there_is_no_time_is_left_out() -> None:
    rows, missing = steps(300)
    found = imputer(preset=replace(CONFIG, max_time=1e-3)).fit(np.where(missing, np.nan, rows))
    assert not {"chained", "completed", "again"} & set(found.model_.ladder.rungs)
    assert np.isfinite(found.transform(np.where(missing, np.nan, rows))).all()


# --- the same bits


def test_same_seed_gives_the_same_bits_with_one_and_two_threads(fitted) -> None:
    before, found = torch.get_num_threads(), []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            found.append(results(imputer().fit(mixed()), mixed()))
    finally:
        torch.set_num_threads(before)
    assert_same(*found)
    assert_same(found[0], results(fitted, mixed()))
    other = imputer(random_state=1).fit(mixed())
    assert (other.transform(mixed())["x"] != fitted.transform(mixed())["x"]).any()


def test_file_gives_the_same_fills_draws_intervals_and_probabilities(fitted, tmp_path) -> None:
    fitted.save(tmp_path / "m.mcflow")
    assert_same(results(load(tmp_path / "m.mcflow"), mixed()), results(fitted, mixed()))


def test_model_saved_twice_gives_the_same_arrays(fitted, tmp_path) -> None:
    fitted.save(tmp_path / "one.mcflow")
    load(tmp_path / "one.mcflow").save(tmp_path / "two.mcflow")
    one, two = (read_tensors(tmp_path / f"{name}.mcflow", KIND)[2] for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name], err_msg=name)


def test_pickle_gives_the_same_results(fitted) -> None:
    assert_same(results(pickle.load(io.BytesIO(pickle.dumps(fitted))), mixed()), results(fitted, mixed()))


@pytest.mark.parametrize("damage", ["leaves", "thresholds"])
def test_file_with_damaged_trees_is_refused(damage, fitted, tmp_path) -> None:
    fitted.save(tmp_path / "m.mcflow")
    _, header, arrays = read_tensors(tmp_path / "m.mcflow", KIND)
    name = next(name for name in arrays if name.startswith("trees.") and name.endswith(damage))
    arrays[name] = np.full_like(arrays[name], np.nan)
    write_tensors(tmp_path / "bad.mcflow", KIND, header, arrays)
    with pytest.raises(ModelFileError, match=r"trees of this file are damaged|not finite"):
        load(tmp_path / "bad.mcflow")


def test_results_of_a_row_do_not_depend_on_the_others(fitted) -> None:
    rows = mixed()
    whole = fitted.transform(rows)
    (drawn,) = fitted.draw(rows, m=1, random_state=1, row_ids=np.arange(len(rows)))
    some = [5, 17, 3, 100]
    alone = fitted.transform(rows.iloc[some])
    (drawn_alone,) = fitted.draw(rows.iloc[some], m=1, random_state=1, row_ids=np.array(some))
    for name in ("x", "y"):
        np.testing.assert_allclose(alone[name], whole[name].iloc[some], rtol=0, atol=1e-5)
        np.testing.assert_allclose(drawn_alone[name], drawn[name].iloc[some], rtol=0, atol=1e-5)
    for name in ("town", "yes"):
        assert (alone[name] == whole[name].iloc[some]).all()
        assert (drawn_alone[name] == drawn[name].iloc[some]).all()


# --- any table fits, fills and draws


def blocks() -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 1)) + 0.5 * rng.normal(size=(150, 5))
    rows[rng.random(150) < 0.4, 2:] = np.nan
    return rows


def of_categories(n_rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    one = rng.integers(3, size=n_rows)
    other = np.where(rng.random(n_rows) < 0.8, one, rng.integers(3, size=n_rows))
    names = np.array(["a", "b", "c"])
    frame = pd.DataFrame({"one": pd.Categorical(names[one]), "two": pd.Categorical(names[other])})
    frame.loc[::6, "one"], frame.loc[3::7, "two"] = None, None
    return frame


def with_constants() -> pd.DataFrame:
    frame = mixed(80)[["x", "town"]].assign(same=3.5, word=pd.Categorical(["only"] * 80))
    frame.loc[::5, "same"], frame.loc[1::5, "word"] = np.nan, None
    return frame


def many_categories() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    towns = rng.permutation(np.repeat([f"t{k:02}" for k in range(60)], 3))
    frame = pd.DataFrame({"x": rng.normal(size=180), "town": pd.Categorical(towns)})
    frame.loc[::9, "town"], frame.loc[4::9, "x"] = None, np.nan
    return frame


def one_column() -> pd.DataFrame:
    return mixed(60)[["x"]]


TABLES = {
    "categories only": of_categories,
    "one column of numbers": one_column,
    "one column of categories": lambda: of_categories()[["one"]],
    "constant columns": with_constants,
    "only constant columns": lambda: with_constants()[["same", "word"]],
    "cells missing together": lambda: pd.DataFrame(blocks(), columns=list("abcde")),
    "more categories than trees allow": many_categories,
    "ten rows": lambda: mixed(10),
    "ten rows of numbers": lambda: pd.DataFrame(blocks()[:10], columns=list("abcde")),
    "one incomplete row": lambda: (
        mixed(60).dropna().reset_index(drop=True).assign(y=lambda frame: frame["y"].mask(frame.index == 3))
    ),
    "no missing cell": lambda: mixed(60).dropna().reset_index(drop=True),
    "no validation cells": lambda: pd.DataFrame(steps(120)[0], columns=list("abc")).mask(steps(120)[1]),
    "scales of any size": lambda: pd.DataFrame(blocks() * [1e-200, 1e150, 1.0, 1e9, 1e-9], columns=list("abcde")),
}


@pytest.mark.parametrize("case", TABLES)
def test_table_is_fitted_filled_drawn_and_saved_when_it_has(case, tmp_path) -> None:
    frame = TABLES[case]()
    share = 0.0 if case == "no validation cells" else 0.1
    found = imputer(preset=replace(CONFIG, validation_share=share)).fit(frame)
    ids = np.arange(len(frame))
    drawn = list(found.draw(frame, m=4, random_state=1, row_ids=ids))
    for table in (found.transform(frame), *drawn):
        assert table.shape == frame.shape
        assert table.notna().all(axis=None)
        for name in frame.columns:
            seen = frame[name].notna()
            assert (table[name][seen] == frame[name][seen]).all()
            if isinstance(frame[name].dtype, pd.CategoricalDtype):
                assert set(table[name]) <= set(frame[name].dropna())
            if pd.api.types.is_float_dtype(frame[name]):
                assert table[name].between(frame[name].min(), frame[name].max()).all()
    found.save(tmp_path / "m.mcflow")
    again = load(tmp_path / "m.mcflow")
    assert_same(results(again, frame), results(found, frame))


@pytest.mark.parametrize("case", ["categories only", "cells missing together", "one column of numbers"])
def test_draws_differ_from_each_other_when_the_table_has(case) -> None:
    frame = TABLES[case]()
    drawn = list(imputer().fit(frame).draw(frame, m=6, random_state=1, row_ids=np.arange(len(frame))))
    for name in frame.columns[frame.isna().any()]:
        missing = frame[name].isna()
        assert len({tuple(table[name][missing]) for table in drawn}) > 1


def test_category_that_was_never_seen_is_never_drawn() -> None:
    frame = of_categories()
    frame["one"] = frame["one"].cat.add_categories(["never"])
    found = imputer().fit(frame)
    for table in found.draw(frame, m=10, random_state=1, row_ids=np.arange(len(frame))):
        assert not (table["one"] == "never").any()


def test_estimates_while_trees_grow_are_those_of_finished_trees() -> None:
    rows, missing = steps()
    model = imputer().fit(np.where(missing, np.nan, rows)).model_
    ladder = model.ladder
    name = next(iter(ladder.rungs))
    units = model.grid.units(np.where(missing, np.nan, rows)).astype(np.float32)
    answers = ask_track(model.predictor.tracks[0], units, ~missing, missing)
    before = None if name == "observed" else ladder.of_track(answers)
    given = (name, 0, (units, ~missing), answers, before)
    few, every = ladder.of_track(answers), ladder.of_track(answers)
    counts = {trees: trees.n_rounds for trees in ladder.rungs[name][0] if trees is not None}
    for cells in ladder.cells(*given):
        cells.trees.n_rounds = 2
        cells.write(few)
        cells.trees.n_rounds = counts[cells.trees]
        cells.write(every)
    np.testing.assert_allclose(every.means, ladder.estimates(*given).means, atol=1e-6)
    ladder.finish(name, 2)
    np.testing.assert_allclose(few.means, ladder.estimates(*given).means, atol=1e-6)
    assert (few.means != every.means).any()


def test_trees_stop_growing_when_validation_shows_no_gain() -> None:
    """Independent noise: the first stage is the best one, and two more are grown."""
    rows = np.random.default_rng(0).normal(size=(300, 3))
    rows[::4, 0] = np.nan
    grown: list[int] = []
    grow_to = Ladder.grow_to

    def noted(self: Ladder, name: str, n_rounds: int) -> None:
        grown.append(n_rounds)
        grow_to(self, name, n_rounds)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ladder, "grow_to", noted)
        imputer(preset=replace(CONFIG, n_trees=100)).fit(rows)
    assert max(grown) < 100
