"""Draws from donors: observed values that follow the other cells of the row, and no damaged array is read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mcflow import MCFlowImputer
from mcflow.errors import ModelFileError
from mcflow.masked.config import MaskedConfig
from mcflow.masked.donors import ARRAYS, Donors, DonorTrees

CONFIG = MaskedConfig(
    width=16, n_members=2, n_knots=8, n_points=12, max_epochs=4, n_trees=10, donor_trees=4, factored=False
)


def incomplete(n_rows: int = 200, seed: int = 0) -> np.ndarray:
    """Two related numbers, and one that is zero in half of the rows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_rows)
    rows = np.column_stack([x, x + 0.3 * rng.normal(size=n_rows), np.where(rng.random(n_rows) < 0.5, 0.0, np.exp(x))])
    rows[rng.random(rows.shape) < 0.25] = np.nan
    return rows


@pytest.fixture(scope="module")
def fitted() -> MCFlowImputer:
    return MCFlowImputer(preset=CONFIG, random_state=0).fit(incomplete())


@pytest.fixture(scope="module")
def drawn(fitted) -> np.ndarray:
    """20 completed copies of the table."""
    return np.stack(list(fitted.draw(incomplete(), m=20, random_state=1)))


def test_drawn_values_are_observed_values_of_their_column(drawn) -> None:
    for k, column in enumerate(incomplete().T):
        assert np.isin(drawn[:, np.isnan(column), k], column[~np.isnan(column)]).all()


def test_observed_cells_stay_as_they_are(drawn) -> None:
    rows = incomplete()
    seen = ~np.isnan(rows)
    assert all(table[seen].tobytes() == rows[seen].tobytes() for table in drawn)


def test_draws_differ_from_each_other_in_every_incomplete_column(drawn) -> None:
    missing = np.isnan(incomplete())
    spread = drawn.std(axis=0)
    for k in range(3):
        assert spread[missing[:, k], k].mean() > 0.05
    assert (drawn.mean(axis=1).std(axis=0) > 0).all(), "estimates of the table differ too"


def test_drawn_values_follow_the_other_cells_of_the_row(drawn) -> None:
    rows = incomplete()
    here = np.isnan(rows[:, 1]) & ~np.isnan(rows[:, 0])
    found = np.corrcoef(np.tile(rows[here, 0], 20), drawn[:, here, 1].ravel())[0, 1]
    assert found > 0.6


def test_point_masses_are_drawn_as_often_as_they_are_observed(drawn) -> None:
    column = incomplete()[:, 2]
    observed = (column[~np.isnan(column)] == 0).mean()
    assert (drawn[:, np.isnan(column), 2] == 0).mean() == pytest.approx(observed, abs=0.12)


def test_new_rows_are_drawn_from_the_same_donors(fitted) -> None:
    before = fitted.model_.donors()
    new = incomplete(40, seed=7)
    found = next(iter(fitted.draw(new, m=1, random_state=1)))
    assert fitted.model_.donors() is before
    for k, column in enumerate(incomplete().T):
        assert np.isin(found[np.isnan(new[:, k]), k], column).all()


def test_donor_trees_see_the_gaussian_s_estimates_of_hidden_cells_and_not_the_cells(fitted) -> None:
    model = fitted.model_
    rows = model._rows
    seen = ~np.isnan(rows)
    hidden = seen & (np.random.default_rng(0).random(rows.shape) < 0.2)
    answers = model.predictor.ask_all(rows, seen & ~hidden, hidden)
    found = model.blend.gaussian_estimates(np.where(hidden, np.nan, rows), hidden)["gaussian"]
    np.testing.assert_allclose(answers.direct, found, rtol=1e-5)
    changed = model.predictor.ask_all(np.where(hidden, rows + 1, rows), seen & ~hidden, hidden)
    for one, other in zip(answers, changed, strict=True):
        np.testing.assert_array_equal(one, other)


def test_donors_are_drawn_in_proportion_to_their_weights() -> None:
    """One leaf with three donors: the first is never drawn, the last three times as often as the second."""
    nodes = {"features": [0], "thresholds": [0.0], "left": [-1], "right": [0], "counts": [3], "donors": [2, 0, 1]}
    arrays = {name: np.array(nodes[name], dtype=kind) for name, kind in ARRAYS.items()}
    trees = DonorTrees(np.array([0], dtype=np.int32), **arrays, values=np.array([10.0, 20.0, 30.0]))
    uniforms = np.stack([np.zeros(4000), (np.arange(4000) + 0.5) / 4000])
    drawn = trees.draw(np.zeros((4000, 1)), uniforms, np.array([1.0, 3.0, 0.0]), 1)
    assert {value: int((drawn == value).sum()) for value in trees.values} == {10.0: 1000, 20.0: 3000, 30.0: 0}


def test_leaves_are_chosen_by_the_mean_weight_of_their_donors() -> None:
    """Two trees of one leaf each: both have two donors, whose weights are 0 and 1, and 3 and 0."""
    nodes = {"features": [0, 0], "thresholds": [0.0] * 2, "left": [-1] * 2, "right": [0, 2], "counts": [2, 2]}
    arrays = {name: np.array((nodes | {"donors": [0, 1, 2, 3]})[name], dtype=kind) for name, kind in ARRAYS.items()}
    trees = DonorTrees(np.array([0, 1], dtype=np.int32), **arrays, values=np.arange(4.0))
    uniforms = np.stack([(np.arange(4000) + 0.5) / 4000, np.full(4000, 0.5)])
    for n_leaves, counts in ((1, [2000, 2000]), (2, [1000, 3000]), (7, [1000, 3000])):
        drawn = trees.draw(np.zeros((4000, 1)), uniforms, np.array([0.0, 1.0, 3.0, 0.0]), n_leaves)
        assert np.unique(drawn, return_counts=True)[1].tolist() == counts


def test_bounds_hold_for_draws() -> None:
    rows = incomplete()
    bounds = {0: (-1.0, 1.0), 2: (0.0, 2.0)}
    inside = rows.copy()
    for k, (low, high) in bounds.items():
        inside[:, k] = np.clip(rows[:, k], low, high)
    for table in (
        MCFlowImputer(preset=CONFIG, bounds=bounds, random_state=0)
        .fit(inside)
        .draw(inside, m=3, row_ids=np.arange(200))
    ):
        for k, (low, high) in bounds.items():
            assert ((table[:, k] >= low) & (table[:, k] <= high)).all()


# --- arrays


def copied(fitted: MCFlowImputer) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in fitted.model_.donors().tensors().items()}


def test_donors_survive_their_arrays(fitted) -> None:
    model = fitted.model_
    again = Donors.from_tensors(copied(fitted), model.ladder.inputs)
    assert again is not None
    assert sorted(again.trees) == [0, 1, 2]
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(50, model.ladder.inputs.width + 1)).astype(np.float32)
    for k, trees in model.donors().trees.items():
        given = inputs, rng.random((2, 50)), rng.exponential(size=len(trees.values)), 3
        np.testing.assert_array_equal(again.trees[k].draw(*given), trees.draw(*given))


def test_arrays_without_donors_give_none(fitted) -> None:
    assert Donors.from_tensors({}, fitted.model_.ladder.inputs) is None


def put(name: str, value: float, *, leaf: bool = False):
    """Return a function that puts a value into the first split or leaf of the first column."""

    def damage(arrays: dict[str, np.ndarray]) -> None:
        at = np.flatnonzero((arrays["donors.0.left"] < 0) == leaf)[0]
        arrays[f"donors.0.{name}"][at] = value

    return damage


def set_to(name: str, change):
    def damage(arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = change(arrays[name])

    return damage


DAMAGE = {
    "child cycle": put("left", 0),
    "child out of range": put("right", 10**6),
    "negative child": put("right", -1),
    "feature out of range": put("features", 4),
    "negative feature": put("features", -1),
    "threshold not a number": put("thresholds", np.nan),
    "leaf without donors": put("counts", 0, leaf=True),
    "negative count": put("counts", -1, leaf=True),
    "count out of range": put("counts", 2**31 - 1, leaf=True),
    "first donor out of range": put("right", 10**6, leaf=True),
    "donor out of range": set_to("donors.0.donors", lambda donors: donors + 10**6),
    "negative donor": set_to("donors.0.donors", lambda donors: donors - 10**6),
    "root out of range": set_to("donors.0.roots", lambda roots: roots + 10**6),
    "value not a number": set_to("donors.0.values", lambda values: values * np.nan),
    "column out of range": set_to("donors.columns", lambda columns: columns + 3),
    "missing array": lambda arrays: arrays.pop("donors.1.counts"),
    "shorter features": set_to("donors.0.features", lambda part: part[:-1]),
    "shorter children": set_to("donors.0.left", lambda part: part[:-1]),
    "shorter counts": set_to("donors.0.counts", lambda part: part[:-1]),
    "longer thresholds": set_to("donors.0.thresholds", lambda part: np.r_[part, part]),
    "no values": set_to("donors.0.values", lambda values: values[:0]),
    "no trees": set_to("donors.0.roots", lambda roots: roots[:0]),
    "second dimension": set_to("donors.0.donors", lambda donors: donors[:, None]),
    "index that is no integer": set_to("donors.0.donors", lambda donors: donors.astype(float)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_donors_are_refused_when_there_is_a(damage, fitted) -> None:
    arrays = copied(fitted)
    DAMAGE[damage](arrays)
    with pytest.raises(ModelFileError, match="donors of this file are damaged"):
        Donors.from_tensors(arrays, fitted.model_.ladder.inputs)


@pytest.mark.parametrize("code", [-1.0, 0.5, 3.0])
def test_donors_of_categories_are_refused_when_a_value_is_no_category(code) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "town": pd.Categorical(rng.choice(list("abc"), 60))})
    frame.loc[::5, "town"] = None
    model = MCFlowImputer(preset=CONFIG, random_state=0).fit(frame).model_
    arrays = {name: array.copy() for name, array in model.donors().tensors().items()}
    (k,) = model.categories
    arrays[f"donors.{k}.values"][0] = code
    with pytest.raises(ModelFileError, match="donors of this file are damaged"):
        Donors.from_tensors(arrays, model.ladder.inputs)
