"""MissForest and boosted trees: the chain, its convergence, and the input of the models."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from mcflow.baselines import make
from mcflow.baselines.trees import Chain, CompactForest, Constant, Layout, differences, has_converged
from mcflow.columns.schema import Column

QUICK = {"missforest": {"n_trees": 10, "max_rounds": 2}, "boosted": {"n_iter": 20, "max_rounds": 2}}
NAMES = tuple(QUICK)


class Recorder:
    """Factory of models with scripted predictions, which records its calls."""

    reads_missing = False

    def __init__(self, script=()):
        self.script = list(script)
        self.calls = []

    def fit(self, layout, column, rows, target, seed):
        self.calls.append((column, rows.copy(), target.copy(), seed))
        return Constant(self.script.pop(0) if self.script else 0.0)


class MissingRecorder(Recorder):
    reads_missing = True


def numbers(n, role="fill"):
    return [Column(name=k, dtype="double", kind="continuous", role=role) for k in range(n)]


def chain_of(values, learner, columns=None, max_rounds=10):
    columns = columns or numbers(values.shape[1])
    bounds = np.full(values.shape[1], -np.inf), np.full(values.shape[1], np.inf)
    layout = Layout(values, columns, *bounds)
    chain = Chain(layout, reads_missing=learner.reads_missing, max_rounds=max_rounds, seed=3)
    return chain.fit(values, learner.fit)


def incomplete_pair():
    return np.array([[np.nan, 2.0], [-1.0, 0.0], [1.0, 1.0], [-1.0, 3.0], [1.0, 4.0]])


def test_chain_when_change_rises_then_keeps_the_round_before():
    chain = chain_of(incomplete_pair(), Recorder([1.0, 1.4, 1.5, 2.5, 2.5]))
    assert [list(change) for change in chain.changes] == [["numbers"]] * 4
    assert chain.changes[0]["numbers"] > chain.changes[1]["numbers"] > chain.changes[2]["numbers"]
    assert chain.changes[3]["numbers"] > chain.changes[2]["numbers"]
    assert [models[0].value for models in chain.rounds] == [1.0, 1.4, 1.5]
    # The column's mean is 0 and its deviation 1, so scaled and own units are the same.
    assert chain.fill(incomplete_pair())[0, 0] == pytest.approx(1.5)


def test_chain_when_change_keeps_falling_then_ends_with_the_last_round():
    chain = chain_of(incomplete_pair(), Recorder([1.0, 1.4, 1.5, 1.55]), max_rounds=3)
    assert [models[0].value for models in chain.rounds] == [1.0, 1.4, 1.5]


def test_convergence_when_one_type_still_falls_then_goes_on():
    assert not has_converged({"numbers": 1.0, "categories": 0.5}, {"numbers": 0.5, "categories": 0.6})
    assert has_converged({"numbers": 1.0, "categories": 0.6}, {"numbers": 0.5, "categories": 0.6})
    assert not has_converged({"numbers": 1.0}, None)


def test_differences_when_a_type_has_no_missing_cells_then_leaves_it_out():
    new, old = np.array([[1.0, 2.0, 1.0]]), np.array([[1.0, 0.0, 1.0]])
    found = differences(new, old, np.array([[False, True, False]]), np.array([False, False, True]))
    assert found == {"numbers": pytest.approx(4 / 5)}


def test_order_when_counts_differ_then_visits_fewest_missing_first():
    values = np.random.default_rng(0).normal(size=(20, 4))
    values[:9, 0] = values[:2, 1] = values[:5, 3] = np.nan
    learner = Recorder()
    chain_of(values, learner, max_rounds=1)
    # The complete column comes after the loop: nothing in the table depends on its model.
    assert [column for column, *_ in learner.calls] == [1, 3, 0, 2]


def test_chain_when_columns_are_visited_then_later_ones_read_the_new_fill():
    values = np.array([[np.nan, 5.0, np.nan], [np.nan, np.nan, 1.0], [3.0, 2.0, 4.0], [5.0, 1.0, 0.0]])
    learner = Recorder([0.25, 0.5, 0.75])
    chain_of(values, learner, max_rounds=1)
    (first, _, target, one), (second, rows, _, two), _ = learner.calls
    assert (first, second) == (1, 2)
    assert len(target) == 3  # only rows where the column is observed
    # Column 2 is fitted on rows 1 to 3 and reads columns 0 and 1; the missing cell of column 1 holds its new fill.
    assert rows[0].tolist() == [0.0, 0.25]
    assert one != two


def test_chain_when_models_read_missing_cells_then_only_the_first_round_reads_them():
    values = np.random.default_rng(1).normal(size=(30, 3))
    values[:5, 0] = values[5:12, 1] = np.nan
    learner = MissingRecorder([0.1, 0.2, 0.11, 0.21])
    chain = chain_of(values, learner, max_rounds=2)
    incomplete = [bool(np.isnan(rows).any()) for _, rows, _, _ in learner.calls]
    assert incomplete == [True, True, False, False, False]
    assert chain.fill(values)[0, 0] == pytest.approx(np.nanmean(values[:, 0]) + 0.11 * np.nanstd(values[:, 0]))


class ReadsMissing:
    """Predict by whether a row is incomplete; models of later rounds are far off."""

    reads_missing = True

    def __init__(self):
        self.n_models = 0

    def fit(self, layout, column, rows, target, seed):
        self.n_models += 1
        return self if self.n_models <= 2 else Constant(50.0)

    def predict(self, rows):
        return np.where(np.isnan(rows).any(axis=1), 1.0, 2.0)


def test_chain_when_only_the_round_that_reads_missing_cells_is_kept_then_repeats_read_them_too():
    values = np.random.default_rng(1).normal(size=(30, 2))
    values[:5, 0] = values[3:12, 1] = np.nan
    chain = chain_of(values, ReadsMissing())
    assert len(chain.rounds) == 1
    filled = chain.layout.scaled(chain.fill(values))
    np.testing.assert_allclose(filled[3:5], 1.0)
    np.testing.assert_allclose(filled[:3, 0], 2.0)


def test_chain_when_a_column_is_targets_only_then_no_model_reads_it():
    values = np.random.default_rng(2).normal(size=(30, 3))
    values[:5, 0] = values[5:12, 1] = np.nan
    columns = [*numbers(2), Column(name=2, dtype="double", kind="continuous", role="targets_only")]
    learner = Recorder()
    chain = chain_of(values, learner, columns, max_rounds=2)
    widths = {column: rows.shape[1] for column, rows, *_ in learner.calls}
    assert widths == {0: 1, 1: 1, 2: 2}
    assert [column for column, *_ in learner.calls].count(2) == 1
    assert not np.isnan(chain.fill(np.full((2, 3), np.nan))).any()


@pytest.mark.parametrize("name", NAMES)
def test_targets_only_when_its_cells_change_then_other_fills_stay(name):
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.normal(size=(120, 3)), columns=list("abc"))
    table["c"] = table["a"] * 2
    incomplete = table.mask(rng.random(table.shape) < 0.2)
    imputer = make(name, random_state=0, roles={"c": "targets_only"}, **QUICK[name]).fit(incomplete)
    other = incomplete.assign(c=incomplete["c"] + 100)
    assert imputer.transform(incomplete)[["a", "b"]].equals(imputer.transform(other)[["a", "b"]])
    gaps = incomplete["c"].isna() & incomplete["a"].notna()
    filled = imputer.transform(incomplete)
    assert (
        np.abs(filled["c"] - table["c"])[gaps].mean() < 0.5 * np.abs(table["c"] - incomplete["c"].mean())[gaps].mean()
    )


def curve(n=1500, seed=4):
    """Return points of a curve that does not meet itself: columns follow from the others, most not linearly."""
    t = np.random.default_rng(seed).uniform(-1, 1, n)
    return np.column_stack([t, t**3, np.exp(2 * t), np.sin(6 * t)])


@pytest.mark.parametrize("name", NAMES)
def test_fill_when_columns_follow_nonlinearly_then_beats_the_mean_by_far(name):
    rows = curve()
    incomplete = np.where(np.random.default_rng(5).random(rows.shape) < 0.15, np.nan, rows)
    train, test, truth = incomplete[:1200], incomplete[1200:], rows[1200:]
    gaps = np.isnan(test)
    filled = make(name, random_state=0, **QUICK[name]).fit(train).transform(test)
    plain = make("mean").fit(train).transform(test)
    ours, means = (np.sqrt(np.mean((found - truth)[gaps] ** 2)) for found in (filled, plain))
    assert ours < 0.2 * means


def mixed(n=600, seed=6):
    rng = np.random.default_rng(seed)
    kind = rng.choice(["oak", "ash", "elm", "fir"], n, p=[0.4, 0.3, 0.2, 0.1])
    height = pd.Series(kind).map({"oak": 1.0, "ash": 3.0, "elm": 2.0, "fir": 4.0}) + rng.normal(0, 0.1, n)
    return pd.DataFrame({"kind": kind, "height": height, "tall": height > 2.5, "noise": rng.normal(size=n)})


@pytest.mark.parametrize("name", NAMES)
def test_fill_when_categories_follow_from_numbers_then_beats_the_most_frequent(name):
    table = mixed()
    incomplete = table.mask(np.random.default_rng(7).random(table.shape) < 0.2)
    incomplete["tall"] = incomplete["tall"].astype("boolean")
    filled = make(name, random_state=0, **QUICK[name]).fit_transform(incomplete)
    gaps = incomplete["kind"].isna() & incomplete["height"].notna()
    assert set(filled["kind"]) <= set(table["kind"])
    assert (filled["kind"] == table["kind"])[gaps].mean() > 0.9
    gaps = incomplete["height"].isna() & incomplete["kind"].notna()
    assert np.abs(filled["height"] - table["height"])[gaps].mean() < 0.2


@pytest.mark.parametrize("name", NAMES)
def test_transform_when_a_column_was_complete_at_fit_then_predicts_it(name):
    rows = curve(600)
    train = rows.copy()
    train[:80, 1] = np.nan
    imputer = make(name, random_state=0, **QUICK[name]).fit(train)
    test = curve(100, seed=8)
    incomplete = test.copy()
    incomplete[:, 2] = np.nan
    assert np.sqrt(np.mean((imputer.transform(incomplete) - test)[:, 2] ** 2)) < 0.2 * test[:, 2].std()


@pytest.mark.parametrize("name", NAMES)
def test_transform_when_the_fit_had_no_hole_then_predicts_every_column(name):
    imputer = make(name, random_state=0, **QUICK[name]).fit(curve(600))
    test = curve(100, seed=9)
    for column in range(4):
        incomplete = test.copy()
        incomplete[:, column] = np.nan
        error = (imputer.transform(incomplete) - test)[:, column]
        assert np.sqrt(np.mean(error**2)) < 0.4 * test[:, column].std()


@pytest.mark.parametrize("name", NAMES)
def test_fit_when_all_but_one_or_two_cells_are_missing_then_fills_with_what_was_seen(name):
    rows = np.random.default_rng(10).normal(size=(50, 4))
    rows[1:, 0] = np.nan
    rows[2:, 1] = np.nan
    filled = make(name, random_state=0, **QUICK[name]).fit_transform(rows)
    assert (filled[:, 0] == rows[0, 0]).all()
    assert filled[:, 1].min() >= rows[:2, 1].min()
    assert filled[:, 1].max() <= rows[:2, 1].max()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (30, 1)])
def test_fit_when_the_table_is_tiny_then_fills_every_cell(name, shape):
    rows = np.random.default_rng(11).normal(size=shape)
    imputer = make(name, random_state=0, **QUICK[name]).fit(rows)
    filled = imputer.transform(np.full((2, shape[1]), np.nan))
    assert (filled >= rows.min(axis=0) - 1e-12).all()
    assert (filled <= rows.max(axis=0) + 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
def test_fill_when_columns_are_rescaled_then_only_units_change(name):
    rows = curve(400)
    incomplete = np.where(np.random.default_rng(12).random(rows.shape) < 0.2, np.nan, rows)
    units = np.array([2.0**-30, 2.0**30, 1.0, 2.0**-10])
    plain = make(name, random_state=0, **QUICK[name]).fit_transform(incomplete)
    scaled = make(name, random_state=0, **QUICK[name]).fit_transform(incomplete * units)
    np.testing.assert_allclose(scaled / units, plain, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_fill_when_seed_is_the_same_then_same_bits_and_rows_stand_alone(name):
    rows = curve(300)
    incomplete = np.where(np.random.default_rng(13).random(rows.shape) < 0.3, np.nan, rows)
    once = make(name, random_state=5, **QUICK[name]).fit(incomplete)
    again = make(name, random_state=5, **QUICK[name]).fit(incomplete).transform(incomplete)
    assert (once.transform(incomplete) == again).all()
    alone = np.concatenate([once.transform(incomplete[[k]]) for k in range(20)])
    np.testing.assert_allclose(alone, again[:20], atol=1e-12)


def test_missforest_when_seed_or_jobs_change_then_only_the_seed_matters():
    rows = curve(300)
    incomplete = np.where(np.random.default_rng(14).random(rows.shape) < 0.3, np.nan, rows)
    first, jobs, seed = (
        make("missforest", random_state=s, n_jobs=j, **QUICK["missforest"]).fit_transform(incomplete)
        for s, j in ((0, None), (0, 2), (1, None))
    )
    assert (first == jobs).all()
    assert (first != seed).any()


def test_missforest_when_rows_are_limited_then_trees_are_smaller():
    rows = curve(600)
    incomplete = np.where(np.random.default_rng(15).random(rows.shape) < 0.2, np.nan, rows)
    small, large = (
        make("missforest", random_state=0, max_rows=m, n_trees=5, max_rounds=1).fit(incomplete) for m in (50, None)
    )
    nodes = [len(found.chain_.rounds[0][0].cut) for found in (small, large)]
    assert nodes[0] < 0.2 * nodes[1]


def test_compact_forest_when_compared_with_sklearn_then_predicts_the_same():
    rng = np.random.default_rng(16)
    rows = rng.normal(size=(500, 4)).round(2).astype(np.float32)
    target = rows[:, 0] * rows[:, 1]
    forest = RandomForestRegressor(20, random_state=0).fit(rows, target)
    ours = CompactForest.from_forest(forest)
    np.testing.assert_allclose(ours.predict(rows), forest.predict(rows), rtol=1e-5, atol=1e-6)
    codes = np.digitize(target, [-0.5, 0.1, 0.5]) * 2  # codes 1, 3 and 5 are never seen
    voting = RandomForestClassifier(20, random_state=0).fit(rows, codes)
    votes = np.array([voting.classes_[tree.predict(rows).astype(int)] for tree in voting.estimators_])
    slow = [np.bincount(row, minlength=7).argmax() for row in votes.T]
    assert CompactForest.from_forest(voting, 7).predict(rows).tolist() == slow


def test_compact_forest_when_a_cut_is_no_float32_then_rows_at_the_cut_go_the_same_way():
    rows = np.array([[1.0], [np.nextafter(np.float32(1), np.float32(2))]], dtype=np.float32)
    rows = np.repeat(rows, 10, axis=0)
    target = np.repeat([0.0, 1.0], 10)
    forest = RandomForestRegressor(10, random_state=0).fit(rows, target)
    assert CompactForest.from_forest(forest).predict(rows).tolist() == forest.predict(rows).tolist()
