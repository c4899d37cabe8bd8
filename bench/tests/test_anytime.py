"""Error against time: tables with categories, methods of other environments, the figure, and the command."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mcflow.cli.app import main
from mcflow.errors import EngineError, MissingExtraError, ParameterError
from mcflow.evaluation.methods import MethodSpec
from mcflow_bench import anytime, runner
from mcflow_bench.anytime import ANYTIME, PEERS, QUICK_ANYTIME, AnytimeSuite, labels
from mcflow_bench.data.catalog import read_mixed, read_numbers
from mcflow_bench.frames import FrameSplit, built_for
from mcflow_bench.protocol import split_table
from mcflow_bench.report.anytime import MARK, anytime_block, draw_anytime, readme_block
from mcflow_bench.report.blocks import with_block
from mcflow_bench.rivals.environments import EnvironmentImputer
from mcflow_bench.rivals.loops import LOOPS, loop
from mcflow_bench.store import Store
from mcflow_bench.suites import FrameTask, task_from

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A folder with mixed.csv: two related numbers, a category, an incomplete row; and with numbers.csv."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    first = rng.normal(size=90)
    lines = [f"{a!r},{'yes' if a > 0 else 'no'},{2 * a + 0.1!r}" for a in map(float, first)]
    (folder / "mixed.csv").write_text("\n".join(["a,word,b", *lines, "1.0,,2.0", ""]))
    (folder / "numbers.csv").write_text("\n".join(["a,b", *(f"{a!r},{2 * a!r}" for a in map(float, first)), ""]))
    return folder


@pytest.fixture
def frame(data) -> FrameSplit:
    return FrameSplit.of(read_mixed(data / "mixed.csv", "mixed"), None, 0, 0.2)


@pytest.fixture
def environments(tmp_path) -> Path:
    """Environments in which miceforest takes each column's middle value, and hyperimpute fails."""
    package = tmp_path / "packages" / "miceforest"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "class ImputationKernel:\n"
        "    def __init__(self, rows, **settings):\n"
        "        self.rows, self.settings = rows, settings\n"
        "    def mice(self, rounds):\n"
        "        assert rounds == 5 and self.settings['mean_match_candidates'] == 0\n"
        "    def complete_data(self, dataset):\n"
        "        return self.rows.apply(lambda column: column.fillna(middle(column.dropna().sort_values())))\n"
        "def middle(cells):\n"
        "    return cells.iloc[len(cells) // 2]\n"
    )
    for name in ("miceforest", "hyperimpute"):
        python = tmp_path / "environments" / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        # The first word is -I, which would leave out the package above.
        python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={package.parent} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
    return tmp_path / "environments"


def test_mixed_table_when_read_then_text_is_codes_and_incomplete_rows_are_left_out(data) -> None:
    table = read_mixed(data / "mixed.csv", "mixed")
    assert table.names == ["a", "word", "b"]
    assert table.categories == {1: ["no", "yes"]}
    assert table.values.shape == (90, 3)
    np.testing.assert_array_equal(table.values[:, 1], table.values[:, 0] > 0)
    assert read_numbers(data / "mixed.csv", "mixed").names == ["a", "b"], "numbers alone have all rows"


def test_split_of_numbers_is_that_of_the_benchmark(data) -> None:
    table = read_numbers(data / "numbers.csv", "numbers")
    frame = FrameSplit.of(table, None, 0, 0.2)
    for ours, theirs in zip(frame.split, split_table(table.values, 0, 0.2), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert frame.scores(frame.split.test).keys() == {"rmse"}


def test_frame_when_turned_into_a_table_and_back_then_only_hidden_cells_are_lost(frame) -> None:
    split = frame.split
    table = frame.table(split.test, split.hidden_test)
    assert [field.type for field in table.schema][1] == "string"
    np.testing.assert_array_equal(frame.codes(table), split.incomplete_test)


def test_scores_are_the_rmse_of_numbers_and_the_fraction_of_wrong_categories(frame) -> None:
    split = frame.split
    filled = split.test.copy()
    filled[:, 1] = 1 - filled[:, 1]
    filled[:, 2] += np.where(split.hidden_test[:, 2], 0.5 * split.span[2], 0)
    scores = frame.scores(filled)
    share = split.hidden_test[:, 2].sum() / split.hidden_test[:, [0, 2]].sum()
    assert scores["rmse"].value == pytest.approx(0.5 * np.sqrt(share))
    assert scores["category_error"].value == 1.0


@pytest.mark.parametrize("method", ["mice(n_chains=1,n_rounds=1)", "mcflow(max_epochs=1)"])
def test_method_of_mcflow_takes_text_and_fills_it(method, frame) -> None:
    imputer, train, test = built_for(MethodSpec.parse(method), frame, 0)
    filled = frame.codes(imputer.fit(train).transform(test))
    np.testing.assert_array_equal(filled[~frame.split.hidden_test], frame.split.test[~frame.split.hidden_test])
    assert set(filled[:, 1]) <= {0.0, 1.0}


@pytest.mark.parametrize("name", LOOPS)
def test_loop_when_built_then_has_the_rounds_of_the_protocol(name) -> None:
    assert loop(name).max_iter == (20 if name == "ridge" else 4)


def test_loop_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'forest'"):
        loop("forrest")


def test_method_of_another_environment_fills_training_and_test_rows_together(frame, environments) -> None:
    spec = MethodSpec("python:mcflow_bench.rivals.environments:EnvironmentImputer")
    spec = spec.with_parameters({"name": "miceforest", "folder": str(environments / "miceforest")})
    imputer, train, test = built_for(spec, frame, 0)
    assert imputer.categories == {1: 2}
    filled = imputer.fit(train).transform(test)
    known = np.sort(np.concatenate([train, test])[:, 0])
    known = known[~np.isnan(known)]
    np.testing.assert_array_equal(filled[frame.split.hidden_test[:, 0], 0], known[len(known) // 2])
    np.testing.assert_array_equal(filled[~frame.split.hidden_test], test[~frame.split.hidden_test])
    assert imputer.cost_["fit_s"] > 0
    assert imputer.cost_["transform_s"] == 0


def test_environment_that_is_missing_or_fails_is_said(environments, tmp_path) -> None:
    rows = np.ones((4, 2))
    with pytest.raises(MissingExtraError, match=r"is not installed in .*nowhere. `make anytime` installs it"):
        EnvironmentImputer(name="miceforest", folder=str(tmp_path / "nowhere")).fit(rows).transform(rows)
    with pytest.raises(EngineError, match="hyperimpute ended with code 1: ModuleNotFoundError: No module named 'hyper"):
        EnvironmentImputer(name="hyperimpute", folder=str(environments / "hyperimpute")).fit(rows).transform(rows)


def test_suite_has_every_budget_and_peer_on_every_table_once() -> None:
    cells = ANYTIME.cells(lambda name: (Path(name), "sum"))
    assert len(cells) == len({cell.task.key for cell in cells}) == 4 * (6 + 1 + 5)
    assert {cell.task.mixed for cell in cells if cell.task.dataset == "adult"} == {True}
    assert {cell.task.mixed for cell in cells if cell.task.dataset != "adult"} == {False}
    assert all(task_from(cell.task.settings) == cell.task for cell in cells)
    for cell in cells:
        MethodSpec.parse(cell.task.method).build(0, 3)


@pytest.mark.parametrize(
    ("changes", "words"), [({"methods": ("mcflow", "forrest")}, "Did you mean 'forest'"), ({"rows": 3}, "at least 10")]
)
def test_suite_with_an_impossible_value_is_refused(changes, words) -> None:
    with pytest.raises(ParameterError, match=words):
        replace(ANYTIME, **changes).check()


def row(table: str, method: str, seconds: float, status: str = "done", **scores: float) -> dict:
    task = FrameTask(table, "", None, table == "adult", 0.2, 0, method, 0)
    return {
        "key": task.key,
        "task": task.settings,
        "label": method,
        "status": status,
        "message": "" if status == "done" else "no luck.",
        "scores": {name: {"value": value, "error": 0.0} for name, value in scores.items()},
        "fit_s": seconds,
        "transform_s": 0.5,
        "data": {"rows": 20000, "columns": 16, "categorical": 9 * (table == "adult")},
        "threads": 2,
        "jobs": 1,
        "load": [0.1, 0.2],
        "machine": {"cpu": "C", "cores": 2, "ram_gib": 8},
        "versions": {"mcflow": "1"},
        "date": "2026-01-01",
    }


ROWS = [
    row("letter", "mcflow(max_time=2.0)", 2.0, rmse=0.08),
    row("letter", "mcflow", 99.6, rmse=0.055),
    row("letter", "forest", 50.0, rmse=0.0625),
    row("adult", "mcflow", 90.0, rmse=0.09, category_error=0.18),
    row("adult", "hyperimpute", 0.0, status="timeout"),
]


def test_page_of_made_up_results_is_as_expected() -> None:
    text = anytime_block(ROWS, ANYTIME, "pictures/anytime.svg")
    for line in (
        "| method | Letter | Credit | California | Adult |",
        "| mcflow, `max_time=2` | .0800 in 2.5 s | not measured | not measured | not measured |",
        "| mcflow, no limit | .0550 in 100 s | not measured | not measured | .0900 / .1800 in 90.5 s |",
        "| forest loop | .0625 in 50.5 s | not measured | not measured | not measured |",
        "| HyperImpute | not measured | not measured | not measured | failed |",
        "- **Alarm:** HyperImpute on Adult: failed (timeout): no luck.",
    ):
        assert line in text.splitlines()
    assert "](pictures/anytime.svg)" in text
    assert "HyperImpute: one shot." in text
    assert "`missforest` of `mcflow.baselines`" in text
    assert "](docs/pictures/anytime.svg)" in readme_block(ROWS, ANYTIME, "docs/pictures/anytime.svg")


def test_results_of_other_rows_are_left_out() -> None:
    assert anytime_block(ROWS, replace(ANYTIME, rows=500), "x.svg") == "There are no results yet."
    assert draw_anytime(ROWS, replace(ANYTIME, rows=500)) is None


def test_figure_has_a_panel_for_each_table_and_score_and_is_the_same_twice() -> None:
    drawn = draw_anytime(ROWS, ANYTIME)
    assert drawn == draw_anytime(ROWS, ANYTIME)
    assert [drawn.count(f">{words}</text>") for words in ("Letter", "Adult", "wrong categories", "forest loop")] == [
        1,
        2,
        1,
        1,
    ]


def test_command_measures_what_is_missing_and_fills_both_pages(
    data, environments, tmp_path, monkeypatch, capsys
) -> None:
    small = AnytimeSuite(("numbers", "mixed"), labels((1.0,), ("ridge", *PEERS[-2:])), mixed=("mixed",), rows=60)
    monkeypatch.setattr(anytime, "QUICK_ANYTIME", small)
    monkeypatch.setattr(anytime, "_LOOPS", anytime._LOOPS | {"ridge": "mice(n_chains=1,n_rounds=1)"})
    monkeypatch.setattr(runner, "check_methods", lambda methods, kind: None)  # saves a process
    (tmp_path / "docs").mkdir()
    page, readme = tmp_path / "docs" / "page.md", tmp_path / "README.md"
    for path in (page, readme):
        path.write_text(f"# A\n\n<!-- result {MARK} -->\n<!-- end -->\n\nB\n")
    flags = ["benchmark", "anytime", "--quick", "-o", str(tmp_path / "out"), "--page", str(page), "--data", str(data)]
    flags += ["--readme", str(readme), "--environments", str(environments), "--threads", "1"]
    assert main(flags) == 0
    assert "10 cells measured now, 0 before, 2 failed" in capsys.readouterr().err
    text = page.read_text()
    assert re.search(r"\| mcflow, `max_time=1` \| \.\d{4} in \d\.\d s \| \.\d{4} / \.\d{4} in \d\.\d s \|", text)
    assert re.search(r"\| miceforest \| \.\d{4} in", text)
    assert "- **Alarm:** HyperImpute on Mixed: failed (error): EngineError: hyperimpute ended with code 1" in text
    assert "](pictures/anytime.svg)" in text
    assert "](docs/pictures/anytime.svg)" in readme.read_text()
    assert (tmp_path / "docs" / "pictures" / "anytime.svg").read_text().lstrip().startswith("<?xml")
    rows = Store(tmp_path / "out").rows()
    assert main([*flags, "--quiet"]) == 0
    assert Store(tmp_path / "out").rows() == rows
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--jobs", "2"], 2, "times are compared"),
        (["--threads", "0"], 2, "at least 1"),
        (["--budgets", "soon"], 2, "--budgets has 'soon'"),
        (["--methods", "forrest"], 2, "Did you mean 'forest'"),
        (["--report-only"], 3, "There are no results in mcflow-anytime"),
        (["--readme", "nothing.md"], 2, "--readme is nothing.md, which is not a file"),
    ],
)
def test_wrong_flags_end_in_one_line(flags, code, words, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", "anytime", *flags]) == code
    assert words in capsys.readouterr().err.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


def test_quick_suite_is_part_of_the_full_one() -> None:
    assert set(QUICK_ANYTIME.data) <= set(ANYTIME.data)
    assert set(QUICK_ANYTIME.methods) <= set(ANYTIME.methods)


def test_pages_show_the_stored_results_and_the_target_installs_what_is_pinned() -> None:
    folder, page, readme = ROOT / "bench/results/anytime", ROOT / "docs/anytime.md", ROOT / "README.md"
    rows = Store(folder).rows() if (folder / "cells").is_dir() else []
    for path, block in (
        (page, anytime_block(rows, ANYTIME, "pictures/anytime.svg")),
        (readme, readme_block(rows, ANYTIME, "docs/pictures/anytime.svg")),
    ):
        text = path.read_text()
        assert with_block(text, MARK, block) == text, "run `make anytime BENCH_FLAGS=--report-only`"
    for name in PEERS[-2:]:
        assert f"{name}==" in (ROOT / "bench" / "environments" / f"{name}.txt").read_text()
        assert name in (ROOT / "Makefile").read_text()
