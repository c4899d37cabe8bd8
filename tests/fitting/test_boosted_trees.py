"""Boosted trees as arrays: the same scores after a round trip, and no damaged array is read."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mcflow.errors import ModelFileError
from mcflow.fitting.boosted_trees import (
    TYPES,
    BoostedTrees,
    TreeArrays,
    TreeSettings,
    from_tensors,
    start_boosting,
    to_tensors,
)

SETTINGS = TreeSettings(n_leaves=7, learning_rate=0.3, max_bins=63)
N_FEATURES = 4
N_ROUNDS = 8


def cells(n_rows: int = 400, *, missing: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(n_rows, N_FEATURES)).astype(np.float32)
    inputs[rng.random(inputs.shape) < missing] = np.nan
    return inputs


def grow(inputs: np.ndarray, targets: np.ndarray, **how) -> BoostedTrees:
    model = start_boosting(inputs, targets, SETTINGS, seed=1, **how)
    model.grow_to(N_ROUNDS)
    return model


def of_numbers(missing: float = 0.2, **changes) -> BoostedTrees:
    inputs = cells(missing=missing)
    return grow(inputs, np.nan_to_num(inputs[:, 0]) * np.nan_to_num(inputs[:, 1]), **changes)


def of_categories(n_categories: int = 3) -> BoostedTrees:
    inputs = cells(missing=0.2)
    return grow(inputs, np.nan_to_num(np.abs(inputs[:, 0]) // 0.5) % n_categories, n_categories=n_categories)


def of_a_constant() -> BoostedTrees:
    return grow(cells(), np.full(400, 3.25))


def of_missing_marks() -> BoostedTrees:
    """Trees whose only information is whether an input is missing."""
    inputs = cells(missing=0.4)
    return grow(inputs, np.isnan(inputs[:, 2]) * 5.0)


MODELS = {
    "numbers": of_numbers,
    "complete inputs": lambda: of_numbers(0.0),
    "two categories": lambda: of_categories(2),
    "five categories": lambda: of_categories(5),
    "a constant": of_a_constant,
    "missing marks": of_missing_marks,
}


def read_back(model: BoostedTrees) -> BoostedTrees:
    arrays = {name: array.copy() for name, array in to_tensors("t", [model]).items()}
    (found,) = from_tensors("t", arrays, [(model.n_features, model.n_scores)])
    assert found is not None
    return found


# --- round trips


@pytest.mark.parametrize("kind", MODELS)
def test_arrays_round_trip_to_the_same_scores(kind) -> None:
    model = MODELS[kind]()
    extremes = np.array([[np.nan] * N_FEATURES, [1e30] * N_FEATURES, [-1e30] * N_FEATURES], dtype=np.float32)
    inputs = np.vstack([cells(missing=0.3), extremes])
    scores = model.score(inputs)
    assert scores.shape == (len(inputs), model.n_scores)
    assert scores.dtype == np.float32
    again = read_back(model)
    np.testing.assert_array_equal(again.score(inputs), scores)
    np.testing.assert_array_equal(read_back(again).score(inputs), scores)


def test_trees_learn_their_column() -> None:
    inputs = cells(missing=0.0)
    product = inputs[:, 0] * inputs[:, 1]
    found = of_numbers(0.0).score(inputs)[:, 0]
    assert ((found - product) ** 2).mean() < 0.5 * product.var()


@pytest.mark.parametrize("kind", ["numbers", "five categories"])
@pytest.mark.parametrize("n_rounds", [1, 3])
def test_finished_trees_score_as_their_first_rounds_also_when_read_back(kind, n_rounds) -> None:
    model, inputs = MODELS[kind](), cells(missing=0.3)
    whole = model.score(inputs)
    assert len(model.arrays.n_leaves) == 8 * model.n_scores, "arrays that were asked for earlier do not stay"
    first = model.score(inputs, range(n_rounds))
    model.finish(n_rounds)
    np.testing.assert_array_equal(model.score(inputs), first)
    assert (first != whole).any()
    again = read_back(model)
    np.testing.assert_array_equal(again.score(inputs), first)
    assert len(again.arrays.n_leaves) == n_rounds * model.n_scores


@pytest.mark.parametrize("kind", MODELS)
def test_trees_grown_in_stages_are_those_grown_at_once(kind, monkeypatch) -> None:
    monkeypatch.setitem(globals(), "N_ROUNDS", 3)
    staged, inputs = MODELS[kind](), cells(missing=0.3)
    monkeypatch.undo()
    first = staged.score(inputs)
    staged.grow_to(N_ROUNDS)
    np.testing.assert_array_equal(staged.score(inputs), MODELS[kind]().score(inputs))
    staged.finish(3)
    np.testing.assert_array_equal(staged.score(inputs), first)


@pytest.mark.parametrize("kind", MODELS)
def test_pickled_trees_score_the_same(kind) -> None:
    model, inputs = MODELS[kind](), cells(missing=0.3)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.score(inputs), model.score(inputs))
    assert (again.n_features, again.n_scores) == (model.n_features, model.n_scores)


def test_threads_that_score_different_rounds_do_not_disturb_each_other() -> None:
    model, inputs = of_numbers(), cells(20_000, missing=0.3)
    ranges = [range(first, last) for last in (1, 2, 5, 8) for first in range(last)] * 20
    alone = {rounds: model.score(inputs, rounds) for rounds in set(ranges)}
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda rounds: model.score(inputs, rounds), ranges))
    for rounds, scores in zip(ranges, together, strict=True):
        np.testing.assert_array_equal(scores, alone[rounds])


def test_several_models_are_stored_one_after_the_other() -> None:
    models = [of_numbers(), None, of_categories(), of_a_constant(), None]
    sizes = [(N_FEATURES, 1 if model is None else model.n_scores) for model in models]
    found = from_tensors("t", to_tensors("t", models), sizes)
    assert [model is None for model in found] == [False, True, False, False, True]
    for model, again in zip(models, found, strict=True):
        if model is not None and again is not None:
            np.testing.assert_array_equal(again.score(cells()), model.score(cells()))


def test_no_trees_at_all_are_stored_and_read() -> None:
    assert from_tensors("t", to_tensors("t", [None, None]), [(3, 1), (3, 2)]) == [None, None]


def test_trees_with_a_start_predict_what_is_left() -> None:
    inputs = cells()
    start = np.full(400, 100.0)
    found = grow(inputs, start + inputs[:, 0], start=start).score(inputs)[:, 0]
    assert np.abs(found).max() < 10
    assert np.corrcoef(found, inputs[:, 0])[0, 1] > 0.9


def test_same_seed_gives_the_same_arrays() -> None:
    for one, other in zip(of_numbers().arrays, of_numbers().arrays, strict=True):
        np.testing.assert_array_equal(one, other)


# --- damaged arrays


def stored(model: BoostedTrees) -> dict[str, np.ndarray]:
    return {name.removeprefix("t."): array.copy() for name, array in to_tensors("t", [model]).items()}


def first(arrays: dict[str, np.ndarray], name: str, value: float, at: int = 0) -> None:
    arrays[name][at] = value


def cycle(arrays: dict[str, np.ndarray]) -> None:
    """Let a split be its own descendant."""
    at = int(np.flatnonzero(arrays["left"][: arrays["n_leaves"][0] - 1] > 0)[0])
    arrays["left"][at] = 0


def self_loop(arrays: dict[str, np.ndarray]) -> None:
    at = int(np.flatnonzero(arrays["left"][: arrays["n_leaves"][0] - 1] > 0)[0])
    arrays["left"][at] = at


def two_parents(arrays: dict[str, np.ndarray]) -> None:
    """Let two splits share a leaf."""
    leaves = np.flatnonzero(arrays["left"][: arrays["n_leaves"][0] - 1] < 0)
    arrays["left"][leaves[0]] = arrays["left"][leaves[1]]


def fewer_leaves(arrays: dict[str, np.ndarray]) -> None:
    """Move a leaf from the first tree to the second."""
    arrays["n_leaves"][0] -= 1
    arrays["n_leaves"][1] += 1


DAMAGE = {
    "child cycle": cycle,
    "child that is its parent": self_loop,
    "two parents": two_parents,
    "child out of range": lambda a: first(a, "left", 99),
    "leaf out of range": lambda a: first(a, "right", -99),
    "feature out of range": lambda a: first(a, "features", N_FEATURES),
    "negative feature": lambda a: first(a, "features", -1),
    "threshold not a number": lambda a: first(a, "thresholds", np.nan),
    "infinite threshold": lambda a: first(a, "thresholds", np.inf),
    "leaf not a number": lambda a: first(a, "leaves", np.nan),
    "infinite leaf": lambda a: first(a, "leaves", -np.inf),
    "unknown decision": lambda a: first(a, "decisions", 1),
    "tree without a leaf": lambda a: first(a, "n_leaves", 0),
    "negative number of leaves": lambda a: first(a, "n_leaves", -5),
    "huge number of leaves": lambda a: first(a, "n_leaves", 2**31 - 1),
    "leaf of another tree": fewer_leaves,
    "more trees than there are": lambda a: first(a, "n_trees", 99),
    "negative number of trees": lambda a: first(a, "n_trees", -1),
    "fewer splits": lambda a: a.update(left=a["left"][:-1]),
    "fewer leaf values": lambda a: a.update(leaves=a["leaves"][:-1]),
    "more thresholds": lambda a: a.update(thresholds=np.r_[a["thresholds"], 0.0]),
    "numbers of another model": lambda a: a.update(n_trees=np.r_[a["n_trees"], 0]),
    "leaves in two dimensions": lambda a: a.update(leaves=a["leaves"][:, None]),
    "children that are no integers": lambda a: a.update(left=a["left"] + 0.5),
    "features as text": lambda a: a.update(features=a["features"].astype("S4")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_trees_are_refused_when_there_is_a(damage) -> None:
    model = of_numbers()
    arrays = stored(model)
    DAMAGE[damage](arrays)
    with pytest.raises(ModelFileError, match="trees of this file are damaged"):
        from_tensors("t", {f"t.{name}": array for name, array in arrays.items()}, [(N_FEATURES, 1)])


def test_trees_are_refused_when_their_number_is_no_multiple_of_the_categories() -> None:
    arrays = to_tensors("t", [of_numbers()])
    with pytest.raises(ModelFileError, match="damaged"):
        from_tensors("t", arrays, [(N_FEATURES, 3)])


@pytest.mark.parametrize("name", ["n_trees", *TreeArrays._fields])
def test_trees_are_refused_when_an_array_is_missing(name) -> None:
    arrays = to_tensors("t", [of_numbers()])
    del arrays[f"t.{name}"]
    with pytest.raises((ModelFileError, KeyError)):  # `load` words the latter
        from_tensors("t", arrays, [(N_FEATURES, 1)])


def test_types_hold_the_inputs_of_wide_tables() -> None:
    types = dict(zip(TreeArrays._fields, TYPES, strict=True))
    assert np.iinfo(types["features"]).max > 10**6
