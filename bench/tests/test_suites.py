"""The suites: methods as words, cells in their order, keys, and values that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcflow import MCFlowImputer
from mcflow.errors import ParameterError
from mcflow.evaluation.methods import MethodSpec, split_list
from mcflow.images.masks import mask_images
from mcflow_bench.preflight import WRONG
from mcflow_bench.preflight import main as preflight
from mcflow_bench.suites import (
    IMAGE_SUITES,
    RATES,
    TABLE_SUITES,
    Extra,
    ImageSuite,
    ImageTask,
    Setting,
    TableSuite,
    TableTask,
    mask_word,
    task_from,
)


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
    assert preflight(["methods", "table", "python:sklearn.impute:SimpleImputer", text]) == WRONG
    assert words in capsys.readouterr().out


def test_mcflow_is_built_with_preset_seed_and_continuous_columns() -> None:
    imputer = MethodSpec.parse("mcflow:paper(max_epochs=3)").build(7, 2)
    assert (imputer.preset, imputer.max_epochs, imputer.random_state) == ("paper", 3, 7)
    assert imputer.kinds == {0: "continuous", 1: "continuous"}


def find(name):
    return Path(f"{name}.csv"), f"hash of {name}"


def test_cells_come_fold_by_fold_with_settings_and_extras() -> None:
    suite = TableSuite(
        data=("a", "b"),
        methods=("mean", "slow(n=100)"),
        folds=(0, 1),
        settings=(Setting("b", "slow(n=100)", folds=(1,), parameters={"n": 5}, note="5 only"),),
        extras=(Extra("slow(n=900)", ("a",)),),
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
    task = TableTask("letter", "abc", None, "mcar", 0.2, 0, "mean", 0)
    assert task.key == "117b629378781d18d12e6fba"
    assert task.name == "letter-mcar-0.2-mean-fold0-117b62937878"
    assert task_from(task.settings) == task
    others = [
        TableTask("credit", "abc", None, "mcar", 0.2, 0, "mean", 0),
        TableTask("letter", "abd", None, "mcar", 0.2, 0, "mean", 0),
        TableTask("letter", "abc", 100, "mcar", 0.2, 0, "mean", 0),
        TableTask("letter", "abc", None, "mar", 0.2, 0, "mean", 0),
        TableTask("letter", "abc", None, "mcar", 0.3, 0, "mean", 0),
        TableTask("letter", "abc", None, "mcar", 0.2, 1, "mean", 0),
        TableTask("letter", "abc", None, "mcar", 0.2, 0, "em", 0),
        TableTask("letter", "abc", None, "mcar", 0.2, 0, "mean", 1),
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
        ({"data": ()}, "nothing to measure"),
        ({"rates": ()}, "nothing to measure"),
        ({"methods": ("f(",)}, "is not a method"),
    ],
)
def test_grid_that_cannot_be_is_refused(change, words) -> None:
    with pytest.raises(ParameterError, match=words):
        TableSuite(**{"data": ("a",), "methods": ("mean",), **change}).cells(find)


@pytest.mark.parametrize("name", TABLE_SUITES)
def test_suites_name_what_exists(name) -> None:
    suite = TABLE_SUITES[name]
    assert {setting.method for setting in suite.settings} <= set(suite.methods)
    assert {setting.table for setting in suite.settings} <= set(suite.data)
    for cell in suite.cells(find):
        MethodSpec.parse(cell.task.method).build(0, 2)


@pytest.mark.parametrize("name", ["paper", "quick"])
def test_suites_measure_both_presets(name) -> None:
    made = [MethodSpec.parse(method).build(0, 2) for method in TABLE_SUITES[name].methods]
    assert {imputer.preset for imputer in made if isinstance(imputer, MCFlowImputer)} == {"default", "paper"}


@pytest.mark.parametrize(
    "word", ["0.5", ".50", "pixels:0.5", "blocks:.25", "halves", "halves: left", " halves:random "]
)
def test_mask_words_have_one_form_which_masks_read(word) -> None:
    one = mask_word(word)
    assert mask_word(one) == one
    shape = (20, 10, 10)
    assert (mask_images(shape, one, 3) == mask_images(shape, word.replace(": ", ":"), 3)).all()


@pytest.mark.parametrize("word", ["0", "1", "-0.5", "nan", "half", "blocks", "blocks:1", "halves:up", "pixels:", ""])
def test_mask_words_that_hide_nothing_sensible_are_refused(word) -> None:
    with pytest.raises(ParameterError, match="does not say which pixels are missing"):
        mask_word(word)


def test_grid_is_run_mask_by_mask_then_the_extras_and_nothing_twice() -> None:
    extra = Extra("mean", ("b",), masks=("0.5", "blocks:0.1"), note="why")
    suite = ImageSuite(("a",), ("mean", "gain( max_epochs=2 )"), ("pixels:0.5", "0.9"), extras=(extra, extra))
    cells = suite.cells(lambda name: (Path(name), f"sha-{name}"))
    assert [(c.task.images, c.task.mask, c.label, c.note) for c in cells] == [
        ("a", "0.5", "mean", ""),
        ("a", "0.5", "gain(max_epochs=2)", ""),
        ("a", "0.9", "mean", ""),
        ("a", "0.9", "gain(max_epochs=2)", ""),
        ("b", "0.5", "mean", "why"),
        ("b", "blocks:0.1", "mean", "why"),
    ]
    assert {(c.path, c.task.sha256) for c in cells} == {(Path("a"), "sha-a"), (Path("b"), "sha-b")}
    assert suite.all_data == ("a", "b")


def test_key_depends_on_every_setting() -> None:
    base = {"images": "a", "sha256": "x", "n_train": None, "n_test": None, "mask": "0.5", "method": "mean", "seed": 0}
    others = {"images": "b", "sha256": "y", "n_train": 5, "n_test": 5, "mask": "0.9", "method": "gain", "seed": 1}
    keys = {ImageTask(**base).key, *(ImageTask(**base | {name: value}).key for name, value in others.items())}
    assert len(keys) == 8
    assert ImageTask(**base).words == "a, 0.5, mean"
    assert task_from(base) == ImageTask(**base)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": ()}, "nothing to measure"),
        ({"methods": ("mean(",)}, "is not a method"),
        ({"n_train": 1}, "n_train is 1"),
        ({"time_limit": 0}, "time_limit is 0"),
    ],
)
def test_suites_that_cannot_be_are_refused(change, words) -> None:
    suite = ImageSuite(**{"data": ("a",), "methods": ("mean",)} | change)
    with pytest.raises(ParameterError, match=words):
        suite.check()


def test_suites_are_those_of_the_paper_and_a_quick_look() -> None:
    for suite in IMAGE_SUITES.values():
        suite.check()
        assert {cell.task.mask for cell in suite.cells(find)} <= {*RATES, "blocks:0.25"}
    quick = IMAGE_SUITES["quick"]
    assert (quick.data, quick.masks, quick.n_train, quick.n_test) == (("mnist",), ("0.1", "0.5", "0.9"), 5000, 2000)
    assert IMAGE_SUITES["paper"].masks == RATES == tuple(f"{k / 10:g}" for k in range(1, 10))
