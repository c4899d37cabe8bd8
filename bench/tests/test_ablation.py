"""Variants that change one setting, a seed for every fold, densities against a slow version, and the report."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mcflow import MCFlowImputer
from mcflow.cli.app import main
from mcflow.errors import ParameterError, TrainingError
from mcflow.evaluation.methods import MethodSpec
from mcflow.fitting.initialisation import draw_masks
from mcflow.imputers.presets import PRESETS
from mcflow.masked.climb import Climb
from mcflow.masked.flow import JointDensity
from mcflow.masked.ladder import Ladder
from mcflow.paper.algorithm import gradients, seen_weights
from mcflow.paper.networks import LatentMapper, RealNVP
from mcflow_bench import ablation, ablation_speed, runner
from mcflow_bench.ablation import (
    ABLATION,
    QUICK_ABLATION,
    VARIANTS,
    ablation_suite,
    density_scores,
    measure_densities,
    method_of,
    variant,
)
from mcflow_bench.ablation_speed import SPEEDS, Speed, autograd_gradients
from mcflow_bench.protocol import split_table
from mcflow_bench.report.ablation import MARK, ablation_block
from mcflow_bench.report.blocks import with_block
from mcflow_bench.store import Store
from mcflow_bench.suites import Cell, TableTask

ROOT = Path(__file__).parents[2]


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
    return variant("full", max_epochs=6, random_state=0).fit(split.incomplete_train)


@pytest.mark.parametrize("name", list(VARIANTS))
def test_variant_when_built_then_differs_from_its_preset_in_what_it_names(name) -> None:
    one = VARIANTS[name]
    own, base = asdict(one.settings), asdict(VARIANTS[one.against].settings)
    changed = {key for key in own if own[key] != base[key]}
    assert changed == set(one.changes), "a change that changes nothing is no row"
    assert bool(changed) == (one.against != name)


def test_variants_take_out_what_they_say_and_have_labels_of_their_own() -> None:
    assert VARIANTS["full"].settings == PRESETS["default"]
    assert VARIANTS["paper"].settings == PRESETS["paper"]
    taken = {"no_hidden": "hide_share", "no_knots": "n_knots"}
    taken |= {"no_gaussian": "gaussian", "no_factored": "factored"}
    for name, key in taken.items():
        assert not getattr(VARIANTS[name].settings, key)
        assert getattr(PRESETS["default"], key)
    assert VARIANTS["one_member"].settings.n_members == 1
    for name, key in {"no_trees": "trees", "no_observed": "observed_trees"}.items():
        assert getattr(PRESETS["default"], key)
        assert not getattr(VARIANTS[name].settings, key)
    assert VARIANTS["no_refills"].settings.refills is False
    assert {f"hide_{share:g}" for share in ablation.HIDE_SHARES} <= VARIANTS.keys()
    assert len({one.label for one in VARIANTS.values()}) == len(VARIANTS)


@pytest.mark.parametrize("name", list(VARIANTS))
def test_variant_fits_and_fills(name, split) -> None:
    imputer = variant(name, max_epochs=1, random_state=0).fit(split.incomplete_train)
    filled = imputer.transform(split.incomplete_test)
    assert np.isfinite(filled).all()
    assert imputer.model_.config.max_epochs == 1


@pytest.mark.parametrize(
    ("name", "rungs"),
    [
        ("full", {"observed", "chained", "completed", "again"}),
        ("no_trees", set()),
        ("no_observed", {"completed", "again"}),
        ("no_chained", {"observed", "completed", "again"}),
        ("no_again", {"observed", "chained", "completed"}),
    ],
)
def test_variant_without_a_rung_never_grows_it(name, rungs, split, monkeypatch) -> None:
    grown = set()
    plain = Ladder._start_all
    monkeypatch.setattr(Ladder, "_start_all", lambda ladder, rung, *more: (grown.add(rung), plain(ladder, rung, *more)))
    monkeypatch.setattr(Climb, "_network_error", lambda climb: float("observed" in climb.found))  # H is as good as they
    monkeypatch.setattr(Climb, "_error", iter([1.0, 0.5]).__next__)  # the first pass of trees halves the error
    variant(name, max_epochs=1, random_state=0).fit(split.incomplete_train)
    assert grown == rungs


def test_one_member_has_one_track(split) -> None:
    imputer = variant("one_member", max_epochs=1, random_state=0).fit(split.incomplete_train)
    assert {len(tracks) for tracks in imputer.model_.ladder.rungs.values()} <= {1}


def test_variant_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'no_knots'"):
        variant("no_knosts")


@pytest.mark.parametrize("name", ["full", "paper"])
def test_table_of_floats_is_taken_as_continuous_without_being_told(name, split) -> None:
    train, test = split.incomplete_train, split.incomplete_test
    told = MCFlowImputer(
        preset=VARIANTS[name].settings, max_epochs=2, random_state=3, kinds=dict.fromkeys(range(4), "continuous")
    )
    ours = variant(name, max_epochs=2, random_state=3).fit(train).transform(test)
    np.testing.assert_array_equal(ours, told.fit(train).transform(test))


def test_every_cell_has_the_seed_of_its_fold_and_can_be_built() -> None:
    cells = [cell for suite in ABLATION for cell in suite.cells(lambda name: (Path(name), "sum"))]
    assert len(cells) == 3 * (len(VARIANTS) + 1), "the default preset is measured with many and with few rows"
    assert {(cell.task.fold, cell.task.seed) for cell in cells} == {(0, 0), (1, 1), (2, 2)}
    assert len({cell.task.key for cell in cells}) == len(cells)
    for method in (method for suite in ABLATION for method in suite.methods):
        spec = MethodSpec.parse(method)
        imputer = spec.build(7, 3)
        assert imputer.preset == VARIANTS[dict(spec.parameters)["name"]].settings
        assert (imputer.random_state, imputer.max_epochs) == (7, dict(spec.parameters)["max_epochs"])


def test_training_rows_are_too_many_for_the_gaussian_unless_it_is_taken_out() -> None:
    many, few = (suite.rows * 4 // 5 for suite in ABLATION)
    assert few < PRESETS["default"].small_rows < many


def test_density_without_the_flow_is_the_sum_of_each_cell_s_own(fitted, split) -> None:
    scores = density_scores(fitted, split, 0)
    grid, network = fitted.model_.grid, fitted.model_.network
    marginals = grid.marginals(torch.device("cpu"))
    units = torch.from_numpy(grid.units(split.test).astype(np.float32))
    for name, hidden in (("hidden", split.hidden_test), ("rows", np.ones_like(split.hidden_test))):
        p, _ = JointDensity(network, marginals, fitted.model_.flow()).predict_points(units, torch.from_numpy(~hidden))
        alone = marginals.log_density(units, p).numpy()[hidden].mean()
        assert scores[f"{name}_independent"].value == pytest.approx(alone, abs=1e-4)
    assert scores["hidden"].value != pytest.approx(scores["hidden_independent"].value, abs=1e-3)


def test_density_of_rows_is_that_of_score_samples(values) -> None:
    split = split_table(values[:, :3], 1, 0.2)  # without columns of few values there is no mass to be somewhere in
    imputer = variant("full", max_epochs=4, random_state=0).fit(split.incomplete_train)
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
    cells = [
        Cell(TableTask("small", "", None, "mcar", 0.2, fold, "x", fold), data / "small.csv", "x") for fold in (0, 1)
    ]

    def fit(task, _):
        if task.fold == 0:
            raise TrainingError("no good")
        return fitted

    threads = torch.get_num_threads()
    measure_densities(cells, Store(tmp_path), fit=fit)
    rows = {row["task"]["fold"]: row for row in Store(tmp_path).rows()}
    assert (rows[0]["status"], rows[0]["message"]) == ("error", "TrainingError: no good")
    assert set(rows[1]["scores"]) == {"rmse", "hidden", "rows", "hidden_independent", "rows_independent"}
    assert torch.get_num_threads() == threads


SUITE = ablation_suite(rows=100, max_epochs=4, paper_epochs=8, seeds=(0, 1))
FEW = ablation_suite(rows=50, max_epochs=4, seeds=(0, 1), few_rows=True)
SUITES = (SUITE, FEW)


def row(name: str, seed: int, suite=SUITE, status: str = "done", **scores: float) -> dict:
    method = method_of(suite, name)
    task = TableTask("letter", "", suite.rows, "mcar", 0.2, seed, method, seed)
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
    row("no_knots", 0, rmse=0.11),
    row("no_knots", 1, rmse=0.26),
    row("one_member", 1, rmse=0.3),
    row("one_member", 0, status="error"),
    row("paper", 0, rmse=0.4),
    row("no_refills", 0, rmse=0.8),
    row("full", 0, FEW, rmse=0.1, crps=0.04, draw_energy_distance=0.001),
    row("no_gaussian", 0, FEW, rmse=0.12, crps=0.05, draw_energy_distance=0.002),
]
DENSITIES = [
    row("full", 0, hidden=-1.0, hidden_independent=-1.5, rows=-2.0, rows_independent=-2.25),
    row("full", 1, hidden=-1.0, hidden_independent=-1.7, rows=-2.0, rows_independent=-2.25),
]


def speed_row(name: str, status: str = "done") -> dict:
    scores = {"with": {"value": 0.001}, "without": {"value": 0.0025}, "ratio": {"value": 2.5}}
    return {"key": name, "label": name, "status": status, "message": "TrainingError: no.", "scores": scores}


def test_tables_of_made_up_results_are_as_expected() -> None:
    text = ablation_block(ROWS, DENSITIES, [speed_row("gradients")], SUITES)
    own = 100 * PRESETS["default"].hide_share
    # Ratios are taken seed by seed: 1.1 and 1.3.
    for line in (
        "### Accuracy on Letter, 100 rows",
        "| variant | RMSE | ratio | time |",
        f"| **default preset, hides {own:g} % of the cells** | 0.1500 ± 0.0707 | 1 | 2.5 s |",
        "| reads numbers without knots | 0.1850 ± 0.1061 | 1.200 ± 0.141 | 2.5 s |",
        "| one network, so one track, instead of several | 0.3000 (1 of 2 seeds) | 1.500 | 2.5 s |",
        "| no trees, H alone | not measured | – | – |",
        "| never refills | 0.8000 (1 of 2 seeds) | 2.000 | 2.5 s |",
        "| Letter | hidden cells, given the others of their row | -1.000 ± 0.000 | -1.600 ± 0.141 | +0.600 ± 0.141 |",
        "| Letter | whole rows | -2.000 ± 0.000 | -2.250 ± 0.000 | +0.250 ± 0.000 |",
        "### Accuracy on Letter, 50 rows",
        "| variant | RMSE | ratio | CRPS of draws | ratio | energy distance of draws | time |",
        "| no Gaussian in the blend | 0.1200 (1 of 2 seeds) | 1.200 | 0.0500 | 1.250 | 0.0020 | 2.5 s |",
        "| no factored density | not measured | – | – | – | – | – |",
        "| gradients of the paper's preset written by hand | autograd | 1 ms | 2.5 ms | 2.50 |",
        "| gradients of two processes averaged in shared memory | torch's gloo | not measured | – | – |",
        "- **Alarm:** one network, so one track, instead of several, Letter, seed 0: failed (error): ValueError: no.",
    ):
        assert line in text.splitlines()
    assert "Letter 100 × 16 cells" in text
    assert "epochs: 4 of the default preset, 8 of the paper's preset" in text
    assert "Measured on C, 2 cores; threads 1, cells at a time 2; mcflow 1, torch 2." in text


def test_results_of_other_epochs_and_rows_are_left_out() -> None:
    other = ablation_suite(rows=100, max_epochs=5, paper_epochs=8, seeds=(0, 1))
    fewer = replace(SUITE, rows=50)
    rows = [row("full", 0, other, rmse=0.9), row("full", 0, fewer, rmse=0.9)]
    assert ablation_block(rows, [], [], [SUITE]) == "There are no results yet."
    assert "failed" in ablation_block([row("full", 0, status="error")], [], [], SUITES)


def test_rows_without_results_are_listed_as_not_measured() -> None:
    text = ablation_block([], [], [speed_row("barrier", "error")], SUITES)
    for name, one in VARIANTS.items():
        label = f"**{one.label}**" if name == one.against else one.label
        assert f"| {label} | not measured |" in text
    assert "| torch's gloo | failed | – | – |" in text
    assert "- **Alarm:** Time of gradients of two processes averaged in shared memory: failed: " in text


def test_gradients_by_autograd_are_those_written_by_hand() -> None:
    generator = torch.Generator().manual_seed(0)
    flow = RealNVP(draw_masks(6, 5, generator), generator=generator)
    mapper, rows = LatentMapper(5, generator=generator), torch.rand(32, 5, generator=generator)
    weights = seen_weights(torch.rand(32, 5, generator=generator) < 0.3)
    ours = gradients(flow, mapper, rows, weights, 0.1)
    by_hand = flow.gradient.clone(), mapper.gradient.clone()
    torch.testing.assert_close(autograd_gradients(flow, mapper, rows, weights, 0.1), ours)
    torch.testing.assert_close((flow.gradient, mapper.gradient), by_hand, rtol=1e-4, atol=1e-6)


def test_times_are_measured_once_and_a_failure_is_a_row(tmp_path, monkeypatch) -> None:
    calls = []

    def measure(rounds: int) -> list[tuple[float, float]]:
        calls.append(rounds)
        return [(1.0, 2.0), (1.0, 4.0), (1.0, 3.0)]

    def fail(_: int) -> list[tuple[float, float]]:
        raise TrainingError("no good")

    speeds = {"fast": Speed("a", "b", measure), "broken": Speed("c", "d", fail)}
    monkeypatch.setattr(ablation_speed, "SPEEDS", speeds)
    for _ in range(2):
        ablation_speed.run_speeds(tmp_path, 3)
    rows = {row["label"]: row for row in Store(tmp_path).rows()}
    assert calls == [3]
    assert {name: score["value"] for name, score in rows["fast"]["scores"].items()} == {
        "with": 1.0,
        "without": 3.0,
        "ratio": 3.0,
    }
    assert (rows["broken"]["status"], rows["broken"]["message"]) == ("error", "TrainingError: no good")


@pytest.mark.parametrize("name", list(SPEEDS))
def test_both_sides_of_a_speed_are_timed_in_every_round(name) -> None:
    times = SPEEDS[name].measure(2, n_steps=2)
    assert len(times) == 2
    assert all(seconds > 0 for pair in times for seconds in pair)


def test_command_measures_what_is_missing_and_fills_the_page(data, tmp_path, monkeypatch, capsys) -> None:
    small = ablation_suite(rows=100, max_epochs=1, paper_epochs=1, seeds=(2,))
    small = replace(small, data=("small",), methods=small.methods[:1])
    monkeypatch.setattr(ablation, "QUICK_ABLATION", (small,))
    monkeypatch.setattr(ablation_speed, "SPEEDS", {"gradients": SPEEDS["gradients"]})
    monkeypatch.setattr(runner, "check_methods", lambda methods, kind: None)  # saves a process
    page, output = tmp_path / "page.md", tmp_path / "out"
    page.write_text(f"# A\n\n<!-- result {MARK} -->\n<!-- end -->\n\nB\n")
    flags = ["benchmark", "ablation", "--quick", "-o", str(output), "--page", str(page), "--data", str(data)]
    assert main(flags) == 0
    said = capsys.readouterr()
    assert "1 cells measured now, 0 before, 0 failed" in said.err
    assert f"Tables written to {output / 'table.md'} and {page}." in said.out
    text = page.read_text()
    assert re.search(r"\*\*default preset.*\*\* \| 0\.\d{4} \| 1 \|", text)
    assert re.search(r"\| Small \| whole rows \| -?\d", text)
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
    text, folder = (ROOT / "docs" / "ablation.md").read_text(), ROOT / "bench" / "results" / "ablation"
    assert with_block(text, MARK, "") != text
    if (folder / "cells").is_dir():
        others = [Store(folder / n).rows() if (folder / n).is_dir() else [] for n in ("densities", "speed")]
        block = ablation_block(Store(folder).rows(), *others, ABLATION)
        assert with_block(text, MARK, block) == text, "run `make ablation BENCH_FLAGS=--report-only`"


def test_quick_suite_has_all_variants() -> None:
    for quick, whole in zip(QUICK_ABLATION, ABLATION, strict=True):
        assert len(quick.methods) == len(whole.methods)
    assert {name for name in VARIANTS if any(method_of(suite, name) for suite in ABLATION)} == VARIANTS.keys()
