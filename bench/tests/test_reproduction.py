"""Choices that change one thing, errors by stage, and the report of the reproduction."""

from __future__ import annotations

import itertools
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mcflow.cli.app import main
from mcflow.errors import ParameterError
from mcflow.paper import algorithm, model, networks
from mcflow.paper.algorithm import Box
from mcflow.paper.config import PaperConfig
from mcflow_bench import paper_variants, reproduction, runner
from mcflow_bench.protocol import Split, split_table, stage_errors
from mcflow_bench.report.blocks import with_block
from mcflow_bench.report.published import AUTHORS_PROGRAM
from mcflow_bench.report.reproduction import MARKS, Stored, draw_curves, reproduction_blocks
from mcflow_bench.reproduction import (
    CHOICES,
    QUICK_REPRODUCTION,
    REPRODUCTION,
    choice,
    method_of,
    reproduction_suites,
)
from mcflow_bench.store import Store
from mcflow_bench.suites import TableTask

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def split() -> Split:
    rng = np.random.default_rng(4)
    first = rng.normal(size=(150, 2))
    return split_table(np.hstack([first, first @ rng.normal(size=(2, 3)) + 0.2 * rng.normal(size=(150, 3))]), 0, 0.2)


def fitted(name: str, split: Split, max_epochs: int = 4):
    return choice(name, max_epochs=max_epochs, random_state=0).fit(split.incomplete_train)


def learned(imputer) -> bytes:
    """Return the bits of the model, which show changes that are lost in the rounding of the fills."""
    return b"".join(array.tobytes() for _, array in sorted(imputer.model_.tensors().items()))


@pytest.mark.parametrize("name", list(CHOICES))
def test_choice_when_fitted_then_learns_differently_and_leaves_the_package_as_it_was(name, split) -> None:
    parts = model.Trainer, algorithm.fold, algorithm.draw_masks, networks.AffineCoupling
    chosen = fitted(name, split)
    assert np.isfinite(chosen.transform(split.incomplete_test)).all()
    assert (model.Trainer, algorithm.fold, algorithm.draw_masks, networks.AffineCoupling) == parts
    same = learned(chosen) == learned(fitted("paper", split))
    assert same == (name == "paper"), "a choice that changes nothing is no row"


def test_unchanged_choice_is_the_preset_and_every_other_changes_one_thing() -> None:
    assert CHOICES["paper"].config(16) == PaperConfig()
    assert len({(one.subject, one.label) for one in CHOICES.values()}) == len(CHOICES)
    assert all(
        sum(map(bool, (one.changes, one.weight_by_width, one.patches))) == 1 for one in list(CHOICES.values())[1:]
    )


@pytest.mark.parametrize(("columns", "authors", "width"), [(16, 1.22e-3, 1e-3), (23, 8.5e-4, 6.96e-4)])
def test_likelihood_weights_follow_the_number_of_columns(columns, authors, width) -> None:
    assert CHOICES["lambda_authors"].config(columns).likelihood_weight == pytest.approx(authors, rel=0.01)
    assert CHOICES["lambda_width"].config(columns).likelihood_weight == pytest.approx(width, rel=0.01)


def test_choice_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'batch_64'"):
        choice("batch_46")


def test_flow_restarts_as_the_choice_says(split) -> None:
    same, new = ([stage.flow.masks for stage in fitted(name, split).model_.stages] for name in ("paper", "new_weights"))
    assert all(torch.equal(masks, same[0]) for masks in same)
    assert not all(torch.equal(masks, new[0]) for masks in new)
    stages = fitted("no_restart", split).model_.stages
    assert len({id(stage.flow) for stage in stages}) == len(stages)
    thetas = [stage.flow.theta.detach() for stage in stages]
    assert not any(torch.equal(one, other) for one, other in itertools.pairwise(thetas))


def test_late_refill_has_one_stage_less(split) -> None:
    assert [stage["epoch"] for stage in stage_errors(split, fitted("late_refill", split, 5))] == [2, 4, 5]
    assert [stage["epoch"] for stage in stage_errors(split, fitted("paper", split, 5))] == [1, 2, 4, 5]


def test_half_masks_keep_half_and_clipping_ends_at_the_bounds() -> None:
    masks = paper_variants.half_masks(6, 7, torch.Generator().manual_seed(0))
    assert masks.sum(1).tolist() == [3, 4, 3, 4, 3, 4]
    assert torch.equal(masks[0], ~masks[1])
    box = Box(torch.zeros(3), torch.ones(3))
    assert paper_variants.clip(torch.tensor([[-0.5, 0.5, 1.5]]), box).tolist() == [[0.0, 0.5, 1.0]]


def test_first_stages_are_those_of_a_shorter_fit(split) -> None:
    long, short = (stage_errors(split, fitted("paper", split, epochs)) for epochs in (8, 2))
    assert long[:2] == short
    assert len(long) == 4


def test_errors_by_stage_end_at_those_of_the_fit_and_restore_it(split) -> None:
    imputer = fitted("paper", split)
    before = imputer.transform(split.incomplete_test)
    last = stage_errors(split, imputer)[-1]
    error = ((before - split.test) / split.span)[split.hidden_test]
    assert last["test"] == pytest.approx(np.sqrt(np.square(error).mean()))
    counts = split.hidden_train.sum(axis=0)
    assert last["train"] ** 2 == pytest.approx(np.average(np.square(last["columns"]), weights=counts), rel=1e-4)
    np.testing.assert_array_equal(imputer.transform(split.incomplete_test), before)


def test_methods_without_stages_have_no_errors_by_stage(split) -> None:
    assert stage_errors(split, object()) == []


def table_row(table, method, fold, rmse, stages=()) -> dict:
    task = TableTask(table, "", None, "mcar", 0.2, fold, method, 0)
    return _row(task, method, rmse, list(stages))


def choice_row(table, name, fold, train, test, status="done", epochs=64) -> dict:
    task = TableTask(table, "", None, "mcar", 0.2, fold, method_of(name, epochs), fold)
    return _row(task, task.method, test, [{"epoch": 64, "train": train, "test": test, "columns": [0.7, 0.1]}], status)


def _row(task, label, rmse, stages, status="done") -> dict:
    return {
        "key": task.key,
        "task": asdict(task),
        "label": label,
        "status": status,
        "message": "" if status == "done" else "ValueError: no.",
        "scores": {"rmse": {"value": rmse, "error": 0.0}},
        "stages": stages,
        "columns": ["a", "b"],
        "threads": 1,
        "jobs": 1,
        "load": [0.5, 1.0],
        "machine": {"cpu": "C", "cores": 2, "ram_gib": 8.0},
        "versions": {"mcflow": "1", "torch": "2"},
        "date": "2026-01-01",
    }


def stage(epoch, test, *columns) -> dict:
    return {"epoch": epoch, "test": test, "train": 0.5, "columns": list(columns)}


PAPER, BATCH = "mcflow:paper(max_epochs=500)", "mcflow:paper(batch_size=64,max_epochs=500)"
TABLES = [
    table_row("letter", PAPER, 0, 0.12, [stage(64, 0.14, 0.1, 0.1), stage(500, 0.12, 0.1, 0.1)]),
    table_row("letter", PAPER, 1, 0.14, [stage(64, 0.16, 0.1, 0.1), stage(500, 0.14, 0.1, 0.1)]),
    table_row("letter", BATCH, 0, 0.11, [stage(500, 0.11, 0.1, 0.1)]),
    table_row("credit", PAPER, 0, 0.15, [stage(64, 0.14, 0.3, 0.4), stage(500, 0.15, 0.6, 0.1)]),
    table_row("letter", "mean", 0, 0.1551),
]
CHOSEN = [
    choice_row("letter", "paper", 0, 0.13, 0.14),
    choice_row("letter", "paper", 1, 0.15, 0.16),
    choice_row("letter", "batch_64", 0, 0.12, 0.15),
    choice_row("letter", "batch_64", 1, 0.12, 0.17),
    choice_row("letter", "lambda_1", 0, 0.12, 0.15, status="error"),
    choice_row("letter", "lambda_0", 0, 0.9, 0.9, epochs=3),
    choice_row("credit", "lambda_0", 0, 0.9, 0.9, epochs=256),
]


def test_blocks_of_made_up_results_are_as_expected() -> None:
    blocks = reproduction_blocks(Stored(TABLES, CHOSEN), REPRODUCTION, "pictures/x.svg")
    assert tuple(blocks) == MARKS
    table, curves, credit, choices = blocks.values()
    assert "| MCFlow, published | .1033 ± .0017 | .1233 ± .0012 | .1760 ± .0032 |" in table
    assert '| `preset="paper"`, 500 epochs | .1300 ± .0141 (2) | .1500 (1) | not measured |' in table
    assert "relative to the published figure | +26 % | +22 % | – |" in table
    assert "![RMSE on test rows" in curves
    assert "| epoch | Letter, batch 128 | Credit, batch 128 | Letter, batch 64 | Letter, authors' program |" in curves
    assert f"| 64 | .1500 | .1400 | – | {AUTHORS_PROGRAM[64]:.4f}".replace("0.", ".") in curves
    assert "2 folds of Letter, batch 128, 1 fold of Credit, batch 128" in curves
    assert "| epoch | all columns | `a` | all other columns | all columns, λ = 0 | share of `a` |" in credit
    assert "| 64 | .3536 | .3000 | .4000 | .5000 | 36 % |" in credit
    assert "| 500 | .4301 | .6000 | .1000 | – | 97 % |" in credit
    assert "### Letter, 64 epochs" in choices
    assert "### Credit" not in choices
    assert "| batch | 64 rows | .1200 ± .0000 (2) | −.0200 ± .0141 | .1600 ± .0141 (2) | +.0100 ± .0000 |" in choices
    assert "| λ | 0 | not measured | – | not measured | – |" in choices
    assert "- **Alarm:** λ, 1, Letter, fold 0: failed (error): ValueError: no." in choices


def test_plot_has_a_panel_for_each_table_with_a_curve() -> None:
    drawn = draw_curves(Stored(TABLES, []))
    assert drawn is not None
    assert drawn == draw_curves(Stored(TABLES, []))
    for words in ("Letter", "Credit", "published", "batch 64", "column mean"):
        assert f">{words}<" in drawn
    assert ">News<" not in drawn


def test_nothing_measured_is_said() -> None:
    found = Stored([], [])
    assert set(reproduction_blocks(found, REPRODUCTION, "x.svg").values()) == {"There are no results yet."}
    assert draw_curves(found) is None


def test_suites_have_every_choice_with_the_seed_of_the_fold() -> None:
    cells = [cell for suite in REPRODUCTION for cell in suite.cells(lambda name: (Path(name), "sum"))]
    assert {dict_name(cell.task.method) for cell in cells} == CHOICES.keys()
    assert all(cell.task.fold == cell.task.seed for cell in cells)
    assert [len(suite.methods) for suite in QUICK_REPRODUCTION] == [len(suite.methods) for suite in REPRODUCTION]


def dict_name(method: str) -> str:
    found = re.search(r"name='(\w+)'", method)
    assert found is not None
    return found[1]


def test_command_measures_what_is_missing_and_fills_the_page(small, tmp_path, monkeypatch, capsys) -> None:
    suite = replace(reproduction_suites(max_epochs=1, folds=(2,), rows=60)[0], data=("small",))
    suite = replace(suite, methods=suite.methods[:1])
    monkeypatch.setattr(reproduction, "QUICK_REPRODUCTION", (suite, suite))
    monkeypatch.setattr(runner, "check_methods", lambda methods, kind: None)  # saves a process
    page, output, tables = tmp_path / "page.md", tmp_path / "out", tmp_path / "tables"
    page.write_text("# A\n" + "".join(f"\n<!-- result {mark} -->\n<!-- end -->\n" for mark in MARKS))
    for made in TABLES:
        Store(tables).add(TableTask(**made["task"]), made)
    flags = ["benchmark", "reproduction", "--quick", "-o", str(output), "--tables", str(tables), "--data", str(small)]
    assert main([*flags, "--page", str(page)]) == 0
    assert "1 cells measured now, 0 before, 0 failed" in capsys.readouterr().err
    text = page.read_text()
    assert "pictures/reproduction.svg" in text
    assert (tmp_path / "pictures" / "reproduction.svg").read_text() == (output / "reproduction.svg").read_text()
    (cell,) = Store(output).rows()
    assert [one["epoch"] for one in cell["stages"]] == [1]
    assert cell["columns"] == ["a", "b", "c"]
    assert main([*flags, "--page", str(page), "--report-only", "--quiet"]) == 0
    assert page.read_text() == text


def test_page_without_a_mark_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page.md").write_text(f"<!-- result {MARKS[0]} -->\n<!-- end -->\n")
    assert main(["benchmark", "reproduction", "--page", "page.md"]) == 3
    assert MARKS[1] in capsys.readouterr().err
    assert not Path("mcflow-reproduction").exists()


def test_page_shows_the_stored_results() -> None:
    text, results = (ROOT / "docs" / "reproduction.md").read_text(), ROOT / "bench" / "results"
    found = Stored(Store(results / "tables").rows(), Store(results / "reproduction").rows())
    for mark, block in reproduction_blocks(found, REPRODUCTION, "pictures/reproduction.svg").items():
        assert with_block(text, mark, block) == text, "run `make reproduction BENCH_FLAGS=--report-only`"
