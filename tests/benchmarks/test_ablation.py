"""One thing changed a variant, a seed for every fold, densities against the slow way, and what comes of it."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mcflow import MCFlowImputer
from mcflow.benchmarks import ablation, bench
from mcflow.benchmarks.ablation import ABLATION, QUICK_ABLATION, VARIANTS, ablation_suite, variant
from mcflow.benchmarks.ablation_density import density_scores, measure_densities
from mcflow.benchmarks.ablation_report import MARK, ablation_block
from mcflow.benchmarks.blocks import with_block
from mcflow.benchmarks.methods import MethodSpec
from mcflow.benchmarks.protocol import split_table
from mcflow.benchmarks.store import Store
from mcflow.benchmarks.suite import Cell, Task
from mcflow.cli.app import main
from mcflow.config import PRESETS
from mcflow.errors import ParameterError, TrainingError
from mcflow.flows.marginals import PointMarginals
from mcflow.imputers.blending import SMALL_ROWS
from mcflow.training.density import look

ROOT = Path(__file__).parents[2]


def flat(settings) -> dict[str, object]:
    return {f"{part}.{name}": value for part, own in settings.to_dict().items() for name, value in own.items()}


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    """120 rows of three related columns of numbers and one of whole numbers."""
    rng = np.random.default_rng(5)
    first = rng.normal(size=120)
    columns = [first, first + 0.3 * rng.normal(size=120), rng.normal(size=120), rng.integers(0, 5, 120)]
    return np.stack(columns, axis=1)


@pytest.fixture(scope="module")
def data(values, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    lines = [",".join(map(repr, map(float, row))) for row in values]
    (folder / "small.csv").write_text("a,b,c,d\n" + "\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def split(values):
    return split_table(values, 0, 0.2)


@pytest.fixture(scope="module")
def fitted(split) -> MCFlowImputer:
    return variant("full", max_epochs=6, random_state=0).fit(np.where(split.hidden_train, np.nan, split.train))


@pytest.mark.parametrize("name", list(VARIANTS))
def test_variant_differs_from_its_preset_in_one_setting(name) -> None:
    one = VARIANTS[name]
    own, base = flat(one.settings), flat(VARIANTS[one.against].settings)
    changed = [key for key in own if own[key] != base[key]]
    assert len(changed) == (0 if one.against == name else 1)


def test_variants_take_out_what_they_say_and_have_labels_of_their_own() -> None:
    assert VARIANTS["full"].settings == PRESETS["default"]
    assert VARIANTS["paper"].settings == PRESETS["paper"]
    taken = {"no_hidden": "train.hide_share", "no_mask": "latent.reads_mask", "no_knots": "latent.n_knots"}
    for name, key in taken.items():
        assert not flat(VARIANTS[name].settings)[key]
        assert flat(PRESETS["default"])[key]
    assert VARIANTS["one_member"].settings.latent.n_members == 1
    assert VARIANTS["no_refills"].settings.train.refills is False
    assert {f"hide_{share:g}" for share in ablation.HIDE_SHARES} <= VARIANTS.keys()
    assert len({one.label for one in VARIANTS.values()}) == len(VARIANTS)


@pytest.mark.parametrize("name", list(VARIANTS))
def test_variant_fits_and_fills(name, split) -> None:
    imputer = variant(name, max_epochs=1, random_state=0).fit(np.where(split.hidden_train, np.nan, split.train))
    filled = imputer.transform(np.where(split.hidden_test, np.nan, split.test))
    assert np.isfinite(filled).all()
    assert flat(imputer.settings_)["train.max_epochs"] == 1


def test_variant_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'no_mask'"):
        variant("no_maks")


@pytest.mark.parametrize("name", ["full", "paper"])
def test_table_of_floats_is_taken_as_continuous_without_being_told(name, split) -> None:
    train, test = np.where(split.hidden_train, np.nan, split.train), np.where(split.hidden_test, np.nan, split.test)
    told = MCFlowImputer(
        preset=VARIANTS[name].settings, max_epochs=2, random_state=3, kinds=dict.fromkeys(range(4), "continuous")
    )
    ours = variant(name, max_epochs=2, random_state=3).fit(train).transform(test)
    np.testing.assert_array_equal(ours, told.fit(train).transform(test))


def test_every_cell_has_the_seed_of_its_fold_and_can_be_built() -> None:
    cells = ABLATION.cells(lambda name: (Path(name), "sum"))
    assert len(cells) == 3 * len(VARIANTS)
    assert {(cell.task.fold, cell.task.seed) for cell in cells} == {(0, 0), (1, 1), (2, 2)}
    assert len({cell.task.key for cell in cells}) == len(cells)
    for method in ABLATION.methods:
        spec = MethodSpec.parse(method)
        imputer = spec.build(7, 3)
        assert imputer.preset == VARIANTS[dict(spec.parameters)["name"]].settings
        assert (imputer.random_state, imputer.max_epochs) == (7, dict(spec.parameters)["max_epochs"])


def test_training_rows_are_too_many_for_the_normal() -> None:
    assert ABLATION.rows * 4 // 5 > SMALL_ROWS


def test_density_without_the_flow_is_the_sum_of_each_cell_s_own(fitted, split) -> None:
    scores = density_scores(fitted, split, 0)
    grid, mapper = fitted.model_.grid, fitted.model_.stages[0].mapper
    marginals = PointMarginals(*(torch.from_numpy(part) for part in (grid.points, grid.n_points, grid.atoms)))
    units = torch.from_numpy(grid.units(split.test).astype(np.float32))
    for name, hidden in (("hidden", split.hidden_test), ("rows", np.ones_like(split.hidden_test))):
        p, _ = look(mapper, units, torch.from_numpy(~hidden))
        alone = marginals.log_density(units, p).numpy()[hidden].mean()
        assert scores[f"{name}_independent"].value == pytest.approx(alone, abs=1e-4)
    assert scores["hidden"].value != pytest.approx(scores["hidden_independent"].value, abs=1e-3)


def test_density_of_rows_is_that_of_score_samples(values) -> None:
    split = split_table(values[:, :3], 1, 0.2)  # without columns of few values there is no mass to be somewhere in
    imputer = variant("full", max_epochs=4, random_state=0).fit(np.where(split.hidden_train, np.nan, split.train))
    scores = density_scores(imputer, split, 0)
    rows = imputer.score_samples(split.test) + np.log(imputer.model_.grid.spread).sum()
    assert scores["rows"].value == pytest.approx(rows.mean() / 3, abs=1e-4)
    assert scores["rows"].error == pytest.approx(rows.std() / 3 / np.sqrt(len(rows)), rel=1e-3)


def test_scoring_densities_leaves_the_imputer_as_it_was(fitted, split) -> None:
    before = fitted.score_samples(split.test)
    assert density_scores(fitted, split, 0) == density_scores(fitted, split, 0)
    np.testing.assert_array_equal(fitted.score_samples(split.test), before)


def test_densities_of_the_paper_s_preset_are_refused(split) -> None:
    imputer = variant("paper", max_epochs=1, random_state=0).fit(split.train)
    with pytest.raises(ParameterError, match="preset='default'"):
        density_scores(imputer, split, 0)


def test_fit_that_fails_is_a_row_and_the_next_one_goes_on(fitted, data, tmp_path) -> None:
    cells = [Cell(Task("small", "", None, "mcar", 0.2, fold, "x", fold), data / "small.csv", "x") for fold in (0, 1)]

    def fit(cell, _):
        if cell.task.fold == 0:
            raise TrainingError("no good")
        return fitted

    threads = torch.get_num_threads()
    measure_densities(cells, Store(tmp_path), fit=fit)
    rows = {row["task"]["fold"]: row for row in Store(tmp_path).rows()}
    assert (rows[0]["status"], rows[0]["message"]) == ("error", "TrainingError: no good")
    assert set(rows[1]["scores"]) == {"rmse", "hidden", "rows", "hidden_independent", "rows_independent"}
    assert torch.get_num_threads() == threads


SUITE = replace(ablation_suite(rows=100, max_epochs=4, paper_epochs=8, seeds=(0, 1)), tables=("letter",))


def row(name: str, seed: int, suite=SUITE, status: str = "done", **scores: float) -> dict:
    method = suite.method_of(name)
    task = Task("letter", "", suite.rows, "mcar", 0.2, seed, method, seed)
    return {
        "key": task.key,
        "task": asdict(task),
        "label": method,
        "status": status,
        "message": "" if status == "done" else "ValueError: no.",
        "scores": {key: {"value": value, "error": 0.0} for key, value in scores.items()},
        "fit_s": 2.0,
        "transform_s": 0.5,
        "data": {"rows": 100, "columns": 16},
        "threads": 1,
        "jobs": 2,
        "machine": {"cpu": "C", "cores": 2},
        "versions": {"mcflow": "1", "torch": "2"},
        "date": "2026-01-01",
    }


ROWS = [
    row("full", 0, rmse=0.1),
    row("full", 1, rmse=0.2),
    row("no_mask", 0, rmse=0.11),
    row("no_mask", 1, rmse=0.26),
    row("one_member", 1, rmse=0.3),
    row("one_member", 0, status="error"),
    row("paper", 0, rmse=0.4),
    row("no_refills", 0, rmse=0.8),
]
DENSITIES = [
    row("full", 0, hidden=-1.0, hidden_independent=-1.5, rows=-2.0, rows_independent=-2.25),
    row("full", 1, hidden=-1.0, hidden_independent=-1.7, rows=-2.0, rows_independent=-2.25),
]


def test_tables_of_made_up_results_are_as_expected() -> None:
    text = ablation_block(ROWS, DENSITIES, SUITE)
    own = 100 * PRESETS["default"].train.hide_share
    # Ratios are taken seed by seed: 1.1 and 1.3.
    for line in (
        "### Accuracy on Letter",
        "| variant | RMSE | ratio | time |",
        f"| **default preset, hides {own:g} % of the cells** | 0.1500 ± 0.0707 | 1 | 2.5 s |",
        "| does not read the mask | 0.1850 ± 0.1061 | 1.200 ± 0.141 | 2.5 s |",
        "| one network in place of several | 0.3000 (1 of 2 seeds) | 1.500 | 2.5 s |",
        "| reads a number as it is, not by knots | – | – | – |",
        "| never refills | 0.8000 (1 of 2 seeds) | 2.000 | 2.5 s |",
        "| Letter | hidden cells, given the others of their row | -1.000 ± 0.000 | -1.600 ± 0.141 | +0.600 ± 0.141 |",
        "| Letter | whole rows | -2.000 ± 0.000 | -2.250 ± 0.000 | +0.250 ± 0.000 |",
        "- **Alarm:** one network in place of several, Letter, seed 0: failed (error): ValueError: no.",
    ):
        assert line in text.splitlines()
    assert "Letter 100 × 16 cells" in text
    assert "4 epochs of the default preset, 8 of the paper's" in text
    assert "Measured on C, 2 cores; threads 1, cells at a time 2; mcflow 1, torch 2." in text


def test_results_of_other_epochs_and_rows_are_left_out() -> None:
    other = ablation_suite(rows=100, max_epochs=5, paper_epochs=8, seeds=(0, 1))
    fewer = replace(SUITE, rows=50)
    assert ablation_block([row("full", 0, other, rmse=0.9), row("full", 0, fewer, rmse=0.9)], [], SUITE) == (
        "There are no results yet."
    )
    assert "failed" in ablation_block([row("full", 0, status="error")], [], SUITE)


def test_command_measures_what_is_missing_and_fills_the_page(data, tmp_path, monkeypatch, capsys) -> None:
    small = ablation_suite(rows=100, max_epochs=1, paper_epochs=1, seeds=(2,))
    small = replace(small, tables=("small",), methods=small.methods[:1])
    monkeypatch.setattr(ablation, "QUICK_ABLATION", small)
    monkeypatch.setattr(bench, "check_methods", lambda methods, images: None)  # a process less
    page, output = tmp_path / "page.md", tmp_path / "out"
    page.write_text(f"# A\n\n<!-- result {MARK} -->\n<!-- end -->\n\nB\n")
    flags = ["benchmark", "ablation", "--quick", "-o", str(output), "--page", str(page), "--data", str(data)]
    assert main(flags) == 0
    said = capsys.readouterr()
    assert "1 cells measured now, 0 before, 0 failed" in said.err
    assert f"Tables written to {output / 'table.md'} and {page}." in said.out
    text = page.read_text()
    assert re.search(r"\*\*default preset.*\*\* \| 0\.\d{4} \| 1 \|", text)
    assert re.search(r"\| small \| whole rows \| -?\d", text)
    assert text.endswith("<!-- end -->\n\nB\n")
    (cell,), (density,) = Store(output).rows(), Store(output / "densities").rows()
    assert (cell["task"], cell["task"]["seed"]) == (density["task"], 2)
    assert density["scores"]["rmse"]["value"] == pytest.approx(cell["scores"]["rmse"]["value"], rel=1e-4)
    assert main([*flags, "--quiet"]) == 0
    assert ([cell], [density]) == (Store(output).rows(), Store(output / "densities").rows())
    page.write_text(page.read_text().replace("default preset", "old"))
    assert main([*flags, "--report-only", "--quiet"]) == 0
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--jobs", "0"], 2, "at least 1"),
        (["--report-only"], 3, "There are no results in mcflow-ablation"),
        (["--page", "nothing.md"], 2, "--page is nothing.md, which is not a file"),
        (["--quick", "--data", "no/folder"], 2, "is not a folder"),
    ],
)
def test_wrong_flags_end_in_one_line(flags, code, words, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCFLOW_DATA", raising=False)
    assert main(["benchmark", "ablation", *flags]) == code
    assert words in capsys.readouterr().err.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


def test_page_shows_the_stored_results() -> None:
    text, folder = (ROOT / "docs" / "ablation.md").read_text(), ROOT / "benchmarks" / "ablation"
    assert with_block(text, MARK, "") != text
    if (folder / "cells").is_dir():
        densities = Store(folder / "densities").rows() if (folder / "densities").is_dir() else []
        block = ablation_block(Store(folder).rows(), densities, ABLATION)
        assert with_block(text, MARK, block) == text, "run `make ablation BENCH_FLAGS=--report-only`"


def test_quick_suite_has_all_variants() -> None:
    assert len(QUICK_ABLATION.methods) == len(ABLATION.methods) == len(VARIANTS)
