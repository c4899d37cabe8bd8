"""Draws of MissForest: values from leaves, with the variance and the frequencies of the truth."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from mcflow.baselines import make
from mcflow.baselines.trees import CompactForest, Donors

QUICK = {"n_trees": 30, "max_rounds": 2, "random_state": 0}


def line(n=3000, seed=0, noise=0.5):
    """Return rows of Gaussian x1 and x2 = x1 + noise."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=n)
    return np.column_stack([first, first + noise * rng.normal(size=n)])


def hidden(rows, column):
    incomplete = rows.copy()
    incomplete[:, column] = np.nan
    return incomplete


def slow_donors(forest, target, rows, new):
    """Return for every new row and tree the training values of its leaf, as often as the tree's sample has them."""
    found = []
    for tree, sample in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        own, leaves = tree.apply(rows[sample]), tree.apply(new)
        found.append([sorted(np.float32(target[sample][own == leaf]).tolist()) for leaf in leaves])
    return [list(each) for each in zip(*found, strict=True)]


@pytest.mark.parametrize("min_leaf", [1, 4])
def test_forest_draws_when_trees_are_asked_then_every_donor_of_the_leaf_is_as_likely(min_leaf):
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 4, size=(60, 2)).astype(np.float32)  # few distinct rows: leaves of several values
    target = rng.normal(size=60)
    forest = RandomForestRegressor(3, min_samples_leaf=min_leaf, random_state=0).fit(rows, target)
    donors = Donors.from_forest(forest, rows, target)
    compact = CompactForest.from_forest(forest, donors=donors)
    new = rows[:10]
    for row, per_tree in zip(new, slow_donors(forest, target, rows, new), strict=True):
        for k, values in enumerate(per_tree):
            if len(values) > 8:  # a random few are kept of a large leaf
                continue
            middle = (np.arange(len(values)) + 0.5) / len(values)
            drawn = compact.draw(np.tile(row, (len(values), 1)), (k + middle) / 3)
            np.testing.assert_allclose(np.sort(drawn), values, rtol=1e-6)


def test_forest_donors_when_leaves_hold_one_value_then_nothing_is_kept():
    rows = line(400).astype(np.float32)
    forest = RandomForestRegressor(10, random_state=0).fit(rows[:, :1], rows[:, 1])
    assert len(Donors.from_forest(forest, rows[:, :1], rows[:, 1]).values) == 0
    # Several rows of one value are one value, however its mean was rounded.
    tenths = np.round(rows[:, 0]) / 10 + 7.3
    forest = RandomForestRegressor(10, random_state=0).fit(rows[:, :1], tenths)
    assert len(Donors.from_forest(forest, rows[:, :1], tenths).values) == 0


def test_forest_donors_when_a_leaf_is_large_then_a_few_with_its_distribution_are_kept():
    rows = np.zeros((5000, 1), dtype=np.float32)
    codes = (np.arange(5000) % 10 < 3).astype(np.int64)
    forest = RandomForestClassifier(200, random_state=0).fit(rows, codes)
    donors = Donors.from_forest(forest, rows, codes)
    assert len(donors.values) == 200 * 8
    assert donors.values.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 1600))


def test_forest_predictions_when_donors_are_there_then_the_same_bits():
    rng = np.random.default_rng(2)
    rows, target = rng.integers(0, 5, size=(300, 3)).astype(np.float32), rng.normal(size=300)
    forest = RandomForestRegressor(20, random_state=0).fit(rows, target)
    plain = CompactForest.from_forest(forest)
    ready = CompactForest.from_forest(forest, donors=Donors.from_forest(forest, rows, target))
    assert plain.predict(rows).tobytes() == ready.predict(rows).tobytes()
    assert len(ready.donors.values) > 0


@pytest.mark.parametrize("min_leaf", [1, 10])
def test_draws_when_the_conditional_is_known_then_have_its_mean_and_variance(min_leaf):
    imputer = make("missforest", min_leaf=min_leaf, **QUICK).fit(line())
    rows = hidden(line(1500, seed=1), 1)
    draws = np.stack([table[:, 1] for table in imputer.draw(rows, m=8, random_state=0)])
    inside = np.abs(rows[:, 0]) < 1.5  # at the ends there are few donors
    error = (draws - rows[:, 0])[:, inside]
    assert error.mean() == pytest.approx(0.0, abs=0.03)
    assert error.var() == pytest.approx(0.25, rel=0.12)


def test_draws_when_all_is_missing_then_pairs_belong_together():
    imputer = make("missforest", **QUICK).fit(line())
    # Equal rows have equal draws, so one empty row is drawn many times.
    drawn = np.vstack([*imputer.draw(np.full((1, 2), np.nan), m=600, random_state=0)])
    assert np.corrcoef(drawn.T)[0, 1] == pytest.approx(1 / np.sqrt(1.25), abs=0.05)
    assert drawn.std(axis=0) == pytest.approx([1.0, np.sqrt(1.25)], rel=0.1)


def test_draws_when_categories_are_missing_then_have_the_right_frequencies():
    rng = np.random.default_rng(3)
    group = rng.integers(0, 2, 3000)
    chance = np.where(group == 0, 0.8, 0.3)
    frame = pd.DataFrame(
        {
            "group": pd.Categorical(np.array(["a", "b"])[group]),
            "tree": pd.Categorical(np.where(rng.random(3000) < chance, "oak", rng.choice(["ash", "elm"], 3000))),
        }
    )
    imputer = make("missforest", **QUICK).fit(frame)
    rows = pd.DataFrame(
        {
            "group": pd.Categorical(["a", "b"], categories=["a", "b"]),
            "tree": pd.Categorical([None, None], categories=frame["tree"].cat.categories),
        }
    )
    drawn = np.array([table["tree"].to_numpy() for table in imputer.draw(rows, m=800, random_state=0)])
    for k, oaks in enumerate((0.8, 0.3)):
        share = {name: (drawn[:, k] == name).mean() for name in ("oak", "ash", "elm")}
        assert share == pytest.approx({"oak": oaks, "ash": (1 - oaks) / 2, "elm": (1 - oaks) / 2}, abs=0.06)


@pytest.fixture(scope="module")
def incomplete():
    rows = np.column_stack([line(500, seed=4), np.round(4 * line(500, seed=4)[:, 1]) / 10])
    return np.where(np.random.default_rng(5).random(rows.shape) < 0.25, np.nan, rows)


@pytest.fixture(scope="module")
def fitted(incomplete):
    return make("missforest", **QUICK).fit(incomplete)


def test_draws_when_cells_are_observed_then_leave_them_and_fill_with_observed_values(fitted, incomplete):
    (drawn,) = fitted.draw(incomplete, m=1, random_state=0)
    seen = ~np.isnan(incomplete)
    assert drawn[seen].tobytes() == incomplete[seen].tobytes()
    for k in range(3):
        assert set(drawn[:, k]) <= set(incomplete[seen[:, k], k].tolist()), "to the last bit"


def test_draws_when_rows_are_reordered_or_split_then_the_same_bits(fitted, incomplete):
    (whole,) = fitted.draw(incomplete, m=1, random_state=7)
    order = np.random.default_rng(6).permutation(len(incomplete))
    (mixed,) = fitted.draw(incomplete[order], m=1, random_state=7)
    assert mixed.tobytes() == whole[order].tobytes()
    parts = [next(fitted.draw(part, m=1, random_state=7)) for part in np.array_split(incomplete, [1, 40, 41])]
    assert np.vstack(parts).tobytes() == whole.tobytes()


def test_draws_when_the_seed_is_the_same_then_the_same_bits_also_after_a_pickle(fitted, incomplete):
    first = [*fitted.draw(incomplete, m=2, random_state=3)]
    again = [*pickle.loads(pickle.dumps(fitted)).draw(incomplete, m=2, random_state=3)]
    refitted = [*make("missforest", **QUICK).fit(incomplete).draw(incomplete, m=2, random_state=3)]
    for one, two, three in zip(first, again, refitted, strict=True):
        assert one.tobytes() == two.tobytes() == three.tobytes()
    assert (first[0] != first[1]).any()
    (other,) = fitted.draw(incomplete, m=1, random_state=4)
    assert (other != first[0]).any()


def test_draws_when_nothing_predicts_a_column_then_are_its_observed_values():
    rows = np.arange(40.0)[:, None]
    drawn = np.array([t[0, 0] for t in make("missforest", **QUICK).fit(rows).draw([[np.nan]], m=300, random_state=0)])
    assert set(drawn) <= set(rows[:, 0])
    assert drawn.mean() == pytest.approx(19.5, abs=2.5)
    assert drawn.std() == pytest.approx(rows.std(), rel=0.1)


def test_fit_when_rounds_are_several_then_only_the_last_keeps_donors():
    rng = np.random.default_rng(7)
    rows = rng.integers(0, 3, size=(300, 4)).astype(np.float64)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    kinds = dict.fromkeys(range(4), "continuous")
    imputer = make("missforest", min_leaf=5, kinds=kinds, **QUICK).fit(rows)
    first, last = imputer.chain_.rounds
    assert all(model.donors is None for model in first.values())
    assert all(len(model.donors.values) for model in last.values())
