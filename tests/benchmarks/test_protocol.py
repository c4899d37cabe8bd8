"""The split, the scores and the words for methods."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mcflow import MCFlowImputer
from mcflow.benchmarks.methods import MethodSpec, split_list
from mcflow.benchmarks.methods import main as check_methods
from mcflow.benchmarks.protocol import draw_rows, draw_scores, point_scores, split_table
from mcflow.benchmarks.suite import MECHANISMS, SUITES, Extra, Setting, Suite, Task
from mcflow.errors import ParameterError

VALUES = np.arange(103 * 4.0).reshape(103, 4) ** 1.5


def plain_split(values, fold, rate):
    """The protocol once more, row by row."""
    rng = np.random.default_rng(fold)
    order = rng.permutation(len(values))
    hidden = rng.random(values.shape) < rate
    size = len(values) // 5
    inside = [k for k in range(len(values)) if fold * size <= k < (fold + 1) * size]
    outside = [k for k in range(len(values)) if k not in inside]
    rows = [values[place] for place in order]
    return (
        np.array([rows[k] for k in outside]),
        np.array([rows[k] for k in inside]),
        hidden[outside],
        hidden[inside],
    )


@pytest.mark.parametrize("fold", range(5))
def test_split_equals_the_plain_protocol(fold) -> None:
    split = split_table(VALUES, fold, 0.2)
    for ours, plain in zip(split[:4], plain_split(VALUES, fold, 0.2), strict=True):
        np.testing.assert_array_equal(ours, plain)
    np.testing.assert_array_equal(split.span, VALUES.max(axis=0) - VALUES.min(axis=0))


@pytest.mark.parametrize(("fold", "digest"), [(0, "a70c2c24a97d953c"), (3, "cc27bccfd081db6b")])
def test_split_hides_the_same_cells_on_every_machine(fold, digest) -> None:
    parts = split_table(VALUES, fold, 0.2)[:4]
    found = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()
    assert found.startswith(digest)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_hides_about_the_rate_and_the_same_cells_again(mechanism) -> None:
    values = np.random.default_rng(1).normal(size=(500, 8))
    split, again = (split_table(values, 2, 0.3, mechanism) for _ in range(2))
    hidden = np.vstack([split.hidden_train, split.hidden_test])
    assert abs(hidden.mean() - 0.3) < 0.03
    np.testing.assert_array_equal(split.hidden_test, again.hidden_test)


def test_scores_equal_their_formulas() -> None:
    split = split_table(VALUES, 0, 0.3)
    filled = np.where(
        split.hidden_test, np.nanmean(np.where(split.hidden_train, np.nan, split.train), axis=0), split.test
    )
    scores = point_scores(split, filled)
    gap = (filled - split.test)[split.hidden_test]
    span = np.broadcast_to(np.ptp(VALUES, axis=0), split.test.shape)[split.hidden_test]
    spread = np.broadcast_to(VALUES.std(axis=0), split.test.shape)[split.hidden_test]
    assert scores["rmse"].value == pytest.approx(np.sqrt(np.mean((gap / span) ** 2)))
    assert scores["mae"].value == pytest.approx(np.mean(np.abs(gap) / span))
    assert scores["standardised_rmse"].value == pytest.approx(np.sqrt(np.mean((gap / spread) ** 2)))
    assert set(scores) == {"rmse", "mae", "standardised_rmse", "correlation_error", "energy_distance"}


def test_column_that_does_not_vary_over_test_rows_costs_only_the_correlations() -> None:
    values = VALUES.copy()
    values[:, 0] = 0.0
    values[-1, 0] = 1.0
    split = next(s for s in (split_table(values, fold, 0.2) for fold in range(5)) if np.ptp(s.test[:, 0]) == 0)
    assert "correlation_error" not in point_scores(split, split.test)


def test_draws_that_are_right_cover_ninety_percent() -> None:
    class Normal:
        def draw(self, X, m, random_state):
            rng = np.random.default_rng(random_state)
            for _ in range(m):
                yield np.where(np.isnan(X), rng.normal(size=X.shape), X)

    split = split_table(np.random.default_rng(5).normal(size=(5000, 6)), 1, 0.5)
    scores = draw_scores(split, Normal(), draw_rows(split, Normal(), 0))
    assert scores["coverage_90"] == scores["draw_coverage_90"]
    assert abs(scores["coverage_90"].value - 0.9) < 4 * scores["coverage_90"].error
    expected = 1 / np.sqrt(np.pi)  # of a standard normal truth under its own distribution
    assert scores["crps"].value * split.span.mean() == pytest.approx(expected, rel=0.1)


def test_methods_are_read_written_and_split() -> None:
    assert split_list(" mean,f(a=(1,2),b=[3,4]), ,g ") == ["mean", "f(a=(1,2),b=[3,4])", "g"]
    for text in ("mean", "mcflow:paper(max_epochs=64)", "python:a.b:C(x='y',z=None)"):
        assert str(MethodSpec.parse(text)) == text
    assert MethodSpec.parse("f(b=1, a=2)") == MethodSpec.parse("f(a=2,b=1)")


@pytest.mark.parametrize("text", ["", "f(", "f(1)", "f(**x)", "f(a=b)", "f(a=1) g", "f(a=__import__('os'))"])
def test_method_that_cannot_be_read_is_refused(text) -> None:
    with pytest.raises(ParameterError, match="is not a method"):
        MethodSpec.parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("meen", "Did you mean 'mean'"),
        ("mean(n=1)", "has no argument 'n'"),
        ("mcflow:papr", "Did you mean 'paper'"),
        ("mcflow:paper(max_epoch=1)", "Did you mean 'max_epochs'"),
        ("python:no.such:thing", "No module named 'no'"),
        ("python:json:thing", "has no attribute 'thing'"),
    ],
)
def test_method_that_does_not_exist_is_named(text, words, capsys) -> None:
    with pytest.raises(ParameterError, match=words):
        MethodSpec.parse(text).build(0, 3)
    assert check_methods(["python:sklearn.impute:SimpleImputer", text]) == 2
    assert words in capsys.readouterr().out


def test_mcflow_is_built_with_preset_seed_and_continuous_columns() -> None:
    imputer = MethodSpec.parse("mcflow:paper(max_epochs=3)").build(7, 2)
    assert (imputer.preset, imputer.max_epochs, imputer.random_state) == ("paper", 3, 7)
    assert imputer.kinds == {0: "continuous", 1: "continuous"}


def find(name):
    from pathlib import Path

    return Path(f"{name}.csv"), f"hash of {name}"


def test_cells_come_fold_by_fold_with_settings_and_extras() -> None:
    suite = Suite(
        tables=("a", "b"),
        methods=("mean", "slow(n=100)"),
        folds=(0, 1),
        settings=(Setting("b", "slow(n=100)", folds=(1,), parameters={"n": 5}, note="5 only"),),
        extras=(Extra("slow(n=900)", tables=("a",)),),
    )
    cells = suite.cells(find)
    assert [(c.task.fold, c.task.method, c.task.table) for c in cells] == [
        (0, "mean", "a"),
        (0, "mean", "b"),
        (0, "slow(n=100)", "a"),
        (1, "mean", "a"),
        (1, "mean", "b"),
        (1, "slow(n=100)", "a"),
        (1, "slow(n=5)", "b"),
        (0, "slow(n=900)", "a"),
    ]
    assert (cells[6].label, cells[6].note, cells[6].asked_folds) == ("slow(n=100)", "5 only", 2)
    assert cells[0].task.sha256 == "hash of a"


def test_keys_are_stable_and_differ_by_every_setting() -> None:
    task = Task("letter", "abc", None, "mcar", 0.2, 0, "mean", 0)
    assert task.key == "117b629378781d18d12e6fba"
    others = [
        Task("credit", "abc", None, "mcar", 0.2, 0, "mean", 0),
        Task("letter", "abd", None, "mcar", 0.2, 0, "mean", 0),
        Task("letter", "abc", 100, "mcar", 0.2, 0, "mean", 0),
        Task("letter", "abc", None, "mar", 0.2, 0, "mean", 0),
        Task("letter", "abc", None, "mcar", 0.3, 0, "mean", 0),
        Task("letter", "abc", None, "mcar", 0.2, 1, "mean", 0),
        Task("letter", "abc", None, "mcar", 0.2, 0, "em", 0),
        Task("letter", "abc", None, "mcar", 0.2, 0, "mean", 1),
    ]
    assert len({task.key, *(other.key for other in others)}) == 9
    assert len({task.name, *(other.name for other in others)}) == 9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mechanisms": ("mcra",)}, "Did you mean 'mcar'"),
        ({"rates": (1.0,)}, "above 0 and below 1"),
        ({"folds": (5,)}, "from 0 to 4"),
        ({"rows": 3}, "at least 10"),
        ({"tables": ()}, "nothing to measure"),
        ({"methods": ("f(",)}, "is not a method"),
    ],
)
def test_grid_that_cannot_be_is_refused(change, words) -> None:
    with pytest.raises(ParameterError, match=words):
        Suite(**{"tables": ("a",), "methods": ("mean",), **change}).cells(find)


@pytest.mark.parametrize("name", SUITES)
def test_suites_name_what_exists(name) -> None:
    suite = SUITES[name]
    assert {setting.method for setting in suite.settings} <= set(suite.methods)
    assert {setting.table for setting in suite.settings} <= set(suite.tables)
    for cell in suite.cells(find):
        MethodSpec.parse(cell.task.method).build(0, 2)


@pytest.mark.parametrize("name", ["paper", "quick"])
def test_suites_measure_both_presets(name) -> None:
    made = [MethodSpec.parse(method).build(0, 2) for method in SUITES[name].methods]
    assert {imputer.preset for imputer in made if isinstance(imputer, MCFlowImputer)} == {"default", "paper"}


def test_threads_of_a_cell_become_jobs_unless_these_were_given(monkeypatch) -> None:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.impute import SimpleImputer

    from mcflow.benchmarks.process import with_threads

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert with_threads(RandomForestRegressor()).n_jobs == 3
    assert with_threads(RandomForestRegressor(n_jobs=1)).n_jobs == 1
    assert isinstance(with_threads(SimpleImputer()), SimpleImputer)
