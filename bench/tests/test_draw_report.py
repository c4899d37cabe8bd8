"""Scores of draws and intervals against closed forms, their suite, and the page that shows them."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from mcflow.cli.app import main
from mcflow.metrics import energy_distance
from mcflow_bench.data.catalog import CATALOG
from mcflow_bench.protocol import Split, _energy, draw_rows, draw_scores, split_table
from mcflow_bench.report.blocks import to_markdown, with_block
from mcflow_bench.report.draws import MARK, checks_of, draws_block
from mcflow_bench.report.summary import sections_of
from mcflow_bench.report.tables import report_blocks
from mcflow_bench.store import Store
from mcflow_bench.suites import TABLE_SUITES, TableTask

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NEW = {"draw_coverage_90", "lowest_coverage", "highest_coverage", "interval_width", "draw_energy_distance"}


class Normals:
    """Draw standard normals."""

    def draw(self, X, m, random_state):
        rng = np.random.default_rng(random_state)
        for _ in range(m):
            yield np.where(np.isnan(X), rng.normal(size=X.shape), X)


class Intervals(Normals):
    """Normals that tell intervals, too wide in the first column and too narrow in the second."""

    def interval(self, X, level):
        assert level == 0.9
        half = np.array([9.0, 0.5, 1.6449, 1.6449])
        return tuple(np.where(np.isnan(X), sign * half, X) for sign in (-1, 1))


@pytest.fixture(scope="module")
def split() -> Split:
    values = np.random.default_rng(5).normal(size=(10_000, 4))
    values[:, 3] = np.round(values[:, 3])
    return split_table(values, 1, 0.3)


def score(split, imputer):
    return draw_scores(split, imputer, draw_rows(split, imputer, 0))


def test_draws_when_there_are_many_rows_then_the_first_thousand_are_drawn_twenty_times(split) -> None:
    draws = draw_rows(split, Normals(), 3)
    assert draws.shape == (20, 1000, 4)
    shown = ~split.hidden_test[:1000]
    assert (draws[:, shown] == split.test[:1000][shown]).all()
    assert (draws == draw_rows(split, Normals(), 3)).all()


def test_scores_without_intervals_are_those_of_the_draws_by_column(split) -> None:
    scores = score(split, Normals())
    draws = draw_rows(split, Normals(), 0)
    truth, mask = split.test[:1000], split.hidden_test[:1000]
    ordered = np.sort(draws, axis=0)  # the 5 % point of 20 draws is 5 % of the way from the first to the second
    low = ordered[0] + 0.05 * (ordered[1] - ordered[0])
    high = ordered[-1] - 0.05 * (ordered[-1] - ordered[-2])
    inside = [((low <= truth) & (truth <= high))[mask[:, k], k].mean() for k in range(4)]
    assert scores["lowest_coverage"].value == pytest.approx(min(inside))
    assert scores["highest_coverage"].value == pytest.approx(max(inside))
    assert scores["few_values_coverage"].value == pytest.approx(inside[3])
    assert scores["coverage_90"] == scores["draw_coverage_90"]
    assert scores["interval_width"].value == pytest.approx(((high - low) / split.span)[mask].mean())


def test_scores_with_intervals_are_those_of_the_intervals_over_all_test_rows(split) -> None:
    scores, drawn = score(split, Intervals()), score(split, Normals())
    truth, mask = split.test, split.hidden_test
    assert len(truth) == 2000
    inside = np.abs(truth) <= np.array([9.0, 0.5, 1.6449, 1.6449])
    assert scores["coverage_90"].value == pytest.approx(inside[mask].mean())
    assert scores["highest_coverage"].value == 1.0
    assert scores["lowest_coverage"].value == pytest.approx(0.383, abs=0.06)
    assert scores["few_values_coverage"].value == pytest.approx(inside[mask[:, 3], 3].mean())
    half = np.broadcast_to([9.0, 0.5, 1.6449, 1.6449] / split.span, truth.shape)
    assert scores["interval_width"].value == pytest.approx(2 * half[mask].mean())
    for same in ("crps", "draw_coverage_90", "draw_energy_distance"):
        assert scores[same] == drawn[same]


def test_scores_without_a_column_of_few_values_leave_it_out() -> None:
    split = split_table(np.random.default_rng(6).normal(size=(300, 3)), 0, 0.3)
    assert set(score(split, Normals())) == NEW | {"crps", "coverage_90"}


def test_few_values_are_counted_among_shown_training_cells_alone() -> None:
    values = np.repeat(np.arange(20.0), 50)[:, None] * [1.0, 1.0]
    split = split_table(values, 0, 0.3)
    place = np.flatnonzero(split.hidden_train[:, 0])[0]
    split.train[place, 0] = 77.0  # the 21st value, in a hidden cell
    shown = np.flatnonzero(~split.hidden_train[:, 1])[0]
    split.train[shown, 1] = 77.0
    draws = draw_rows(split, Normals(), 0)
    only_first = split._replace(hidden_test=split.hidden_test & [True, False])
    found = draw_scores(split, Normals(), draws)["few_values_coverage"]
    assert found == draw_scores(only_first, Normals(), draws)["coverage_90"]


def test_energy_when_computed_pair_by_pair_then_the_same() -> None:
    rng = np.random.default_rng(0)
    truth, draws = rng.normal(size=(12, 3)), rng.normal(size=(2, 12, 3)) + 0.3
    total = 0.0
    for rows in draws:
        for i in range(12):
            for j in range(12):
                if i != j:
                    gaps = (rows[i] - truth[j], rows[j] - truth[i], rows[i] - rows[j], truth[i] - truth[j])
                    total += np.linalg.norm(gaps, axis=1) @ [1, 1, -1, -1]
    assert _energy(draws, truth).value == pytest.approx(total / (2 * 12 * 11))


def test_energy_when_rows_share_cells_with_their_draws_then_right_draws_are_at_zero() -> None:
    rng = np.random.default_rng(1)
    found, errors, plain = [], [], []
    for _ in range(60):
        truth = rng.normal(size=(60, 2))
        draws = truth + np.array([0.0, 1.0]) * (rng.normal(size=(3, 60, 2)) - truth)  # only the second cell is drawn
        found.append(_energy(draws, truth).value)
        errors.append(_energy(draws, truth).error)
        plain.append(energy_distance(draws[0], truth).value)
    assert abs(np.mean(found)) < 3 * np.std(found) / np.sqrt(60)
    assert np.mean(plain) < -10 * np.std(found) / np.sqrt(60), "which counts a row and its own draw"
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.6)


def test_energy_when_draws_are_shifted_then_agrees_with_the_plain_distance() -> None:
    rng = np.random.default_rng(2)
    truth = rng.normal(size=(800, 2))
    draws = rng.normal(size=(2, 800, 2)) + 1.0
    assert _energy(draws, truth).value == pytest.approx(energy_distance(draws[0], truth).value, rel=0.1)


def test_suite_when_asked_by_name_then_has_five_tables_of_the_catalog_and_one_fold() -> None:
    suite = TABLE_SUITES["draws"]
    assert set(suite.data) == {"letter", "credit", "news", "bean", "california"} <= set(CATALOG)
    assert set(suite.methods) == {"mcflow", "mice", "em", "missforest"}
    assert (suite.folds, suite.rates, suite.mechanisms) == ((0,), (0.2,), ("mcar",))
    cells = suite.cells(lambda name: (Path(name), ""))
    assert len(cells) == 20
    slow = {cell.task.table: cell.task.method for cell in cells if cell.label == "missforest"}
    assert slow["credit"] == "missforest(max_rounds=4)"
    assert slow["letter"] == "missforest"


def row(table, method, *, crps=0.05, cover=0.9, lowest=0.85, highest=0.95, few=0.9, energy=0.001, **more) -> dict:
    task = TableTask(table, "", more.pop("rows", None), "mcar", 0.2, 0, method, 0)
    values = {
        "rmse": 0.1,
        "crps": crps,
        "coverage_90": cover,
        "lowest_coverage": lowest,
        "highest_coverage": highest,
        "few_values_coverage": few,
        "interval_width": 0.25,
        "draw_energy_distance": energy,
    }
    scores = {name: {"value": value, "error": 0.001} for name, value in values.items() if value is not None}
    about = {"status": "done", "message": "", "note": "", "fit_s": 1.0, "transform_s": 1.0, "draw_s": 2.5}
    return {"key": task.key, "task": asdict(task), "label": method, "scores": scores} | about | more


TABLES = ("letter", "credit")
GOOD = [
    row(table, method, crps=crps)
    for table in TABLES
    for method, crps in (("mcflow", 0.03), ("mice", 0.05), ("em", 0.04), ("missforest", 0.03))
]


def checks(rows, tables=TABLES) -> list[bool | None]:
    (section,) = sections_of(rows)
    return [check.met for check in checks_of(section, tables)]


def test_checks_when_all_is_right_then_are_met() -> None:
    assert checks(GOOD) == [True] * 8


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"cover": 0.87}, {0}),
        ({"cover": 0.93}, {0}),
        ({"lowest": 0.79}, {1}),
        ({"highest": 0.99}, {2}),
        ({"few": 0.87}, {3}),
        ({"crps": 0.031}, {6}),
        ({"crps": 0.049}, {5, 6}),
        ({"crps": 0.06}, {4, 5, 6}),
        ({"energy": 0.0011}, {7}),
    ],
)
def test_checks_when_one_table_is_wrong_then_name_it(change, broken) -> None:
    rows = [*GOOD[1:], row("letter", "mcflow", **{"crps": 0.03} | change)]
    assert [place for place, met in enumerate(checks(rows)) if met is False] == sorted(broken)
    text = draws_block(rows, TABLES)
    assert text.count("**not met**") == len(broken)
    if broken.isdisjoint({4, 5}):
        assert re.search(r"\*\*not met\*\* \(Letter \*\*", text)


def test_checks_when_crps_is_a_fifth_lower_on_average_only_then_that_is_enough() -> None:
    rows = [*GOOD[1:], row("letter", "mcflow", crps=0.045)]
    assert checks(rows)[4] is True  # 0.9 and 0.6 of mice's
    assert checks(rows)[5] is False  # 1.125 and 0.75 of em's


def test_checks_when_a_table_or_a_score_is_missing_then_are_not_measured() -> None:
    assert checks(GOOD, (*TABLES, "news")) == [None] * 8
    assert checks([r for r in GOOD if r["label"] != "mice"]) == [True] * 4 + [None, True, True, None]
    old = {name: GOOD[0]["scores"][name] for name in ("rmse", "crps", "coverage_90")}
    assert checks([GOOD[0] | {"scores": old}, *GOOD[1:]]) == [True, None, None, None, True, True, True, None]


def test_checks_when_a_table_has_no_column_of_few_values_then_the_others_decide() -> None:
    rows = [*GOOD[1:], row("letter", "mcflow", crps=0.03, few=None)]
    assert checks(rows)[3] is True
    assert "values: **met** (Credit .900)." in draws_block(rows, TABLES)


def test_block_of_a_made_up_store_is_as_expected() -> None:
    failed = row("credit", "missforest", status="timeout", message="not done after 9 s", scores={}, note="4 rounds")
    text = draws_block([*GOOD[:-1], failed], TABLES)
    head = "| table | method | CRPS | / mice | / em | / missforest | covers | lowest column | highest column "
    assert text.startswith(head + "| few values | width | energy distance | draws |\n")
    line = "| Letter | `mcflow` | .0300 | .600 | .750 | 1.000 | .900 | .850 | .950 | .900 | .250 | .00100 | 2.5 s |"
    assert line in text
    assert "| Letter | `mice` | .0500 | – | 1.250 | 1.667 |" in text
    assert "| Credit | `missforest` | – | – | – | – | – | – | – | – | – | – | – |" in text
    assert "- `missforest` on Credit: 4 rounds." in text
    assert "- **Alarm:** `missforest` on Credit, fold 0: not done after 9 s." in text
    assert "`mice`, the mean of the ratios over the tables: **met** (.600 over 2 tables)." in text
    assert draws_block([]) == "There are no results yet."


def test_block_with_parameters_of_methods_compares_by_name() -> None:
    rows = [row("letter", "mcflow(max_epochs=8)", crps=0.03, rows=1000), row("letter", "mice(n_chains=2)", rows=1000)]
    assert checks(rows, ("letter",))[4] is True


def test_results_without_the_new_scores_are_still_reported() -> None:
    kept = ("rmse", "crps", "coverage_90")
    old = [{k: v for k, v in r.items() if k != "draw_s"} for r in GOOD]
    old = [r | {"scores": {name: r["scores"][name] for name in kept}} for r in old]
    assert "| `mice` | .1000 | – | – | – | – | .0500 | .9000 |" in to_markdown(report_blocks(old))
    text = draws_block(old, TABLES)
    assert "| Letter | `mice` | .0500 | – | 1.250 | 1.667 | .900 | – | – | – | – | – | – |" in text


def test_stored_results_can_all_be_read() -> None:
    rows = (
        Store(ROOT / "bench" / "results" / "tables").rows() if (ROOT / "bench" / "results" / "tables").is_dir() else []
    )
    text = draws_block(rows)
    assert text.count("\n| Letter |") == len({r["label"] for r in rows if r["task"]["table"] == "letter"})


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="process groups and wait4 are those of POSIX")
def test_command_writes_its_page_and_continues(small, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    page, output = tmp_path / "page.md", tmp_path / "out"
    page.write_text(f"<!-- result {MARK} -->\n<!-- end -->\n")
    flags = [f"--data={small}", "--quiet", f"--output={output}", "--tables=small", "--jobs=2"]
    command = ["benchmark", "draws", *flags, "--methods=python:fakes:Drawn,python:fakes:Drawn(seconds=0.1)"]
    assert main([*command, f"--page={page}"]) == 0
    rows = Store(output).rows()
    assert [r["label"] for r in rows] == ["python:fakes:Drawn", "python:fakes:Drawn(seconds=0.1)"]
    for found in rows:
        assert found["message"] == ""
        assert found["scores"].keys() >= NEW
        assert found["draw_s"] >= 0
    assert "| Small | `python:fakes:Drawn` |" in page.read_text()
    assert page.read_text().splitlines()[2] in (output / "table.md").read_text()
    dates = [r["date"] for r in rows]
    assert main(command) == 0
    assert [r["date"] for r in Store(output).rows()] == dates


def test_command_when_the_page_has_other_marks_or_nothing_is_stored_then_says_so(tmp_path, capsys) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- result benchmark-tables -->\n<!-- end -->\n")
    assert main(["benchmark", "draws", "--page", str(page), "-o", str(tmp_path)]) == 3
    assert f"result {MARK}" in capsys.readouterr().err
    assert main(["benchmark", "draws", "--report-only", "-o", str(tmp_path)]) == 3


def test_page_shows_the_stored_results() -> None:
    text = (ROOT / "docs" / "calibration.md").read_text()
    folder = ROOT / "bench" / "results" / "draws"
    block = draws_block(Store(folder).rows() if folder.is_dir() else [])
    assert with_block(text, MARK, block) == text, "run `mcflow benchmark draws --report-only`"
