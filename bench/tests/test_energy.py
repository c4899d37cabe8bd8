"""The energy distance of draws: masks, cells, R's mice on the same masks, and the page that shows them."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mcflow.cli.app import main
from mcflow.errors import DataError, ParameterError
from mcflow.evaluation.methods import MethodSpec
from mcflow_bench.energy import hidden_cells, hide_frame, measure_energy
from mcflow_bench.report.blocks import Figure, to_markdown, with_block
from mcflow_bench.report.energy import FIGURE, MARK, EnergyTable, Peers, Place, draw_ratios, energy_blocks
from mcflow_bench.rivals import rmice
from mcflow_bench.rivals.rmice import R_METHODS, RMiceImputer, available, build_method, mice_version
from mcflow_bench.runner import run_suite
from mcflow_bench.store import Store
from mcflow_bench.suites import ENERGY_SUITES, EnergyTask, task_from

ROOT = Path(__file__).parents[2]
SUITE = ENERGY_SUITES["energy"]
needs_r = pytest.mark.skipif(
    len(available(list(R_METHODS))) < len(R_METHODS), reason="R with mice, rpart, ranger and nnet is not installed"
)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=120)
    group = pd.Categorical.from_codes((x > 0).astype(int) + (x > 1), ["low", "mid", "high"])
    return pd.DataFrame({"x": x, "y": 3 * x + rng.normal(size=120), "n": rng.poisson(4, 120), "g": group})


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory) -> Path:
    """A data folder whose folder energy has one table and figures of other methods."""
    data = tmp_path_factory.mktemp("data")
    energy = data / "energy"
    energy.mkdir()
    frame.to_parquet(energy / "made.parquet")
    (energy / "mice_same_masks.csv").write_text(
        "set_id,ratio,seed,method,energy_std,seconds,cells_left_missing\n"
        "made,0.2,0,mice_cart,2.0,1,0\nmade,0.2,1,mice_cart,4.0,1,0\nmade,0.2,0,mice_rf,,1,3\nmade,0.2,7,mice_cart,99,1,0\n"
    )
    (energy / "published.csv").write_text(
        "set_id,mechanism,ratio,method,energy_std,seconds\nmade,mcar,0.2,best,0.5,1\nmade,mcar,0.2,worst,50,1\n"
    )
    return data


def row(method: str, value: float | None, mask: int = 0, *, mechanism: str = "mcar", rate: float = 0.2, **more) -> dict:
    task = EnergyTask("made", "", mechanism, rate, mask, 4, method)
    scores = {"energy": {"value": value, "error": 0.1}, "fill_energy": {"value": 9.0, "error": 0.1}}
    about = {"status": "done", "message": "", "fit_s": 1.0, "draw_s": 0.5, "columns": {"x": 1.0, "y": 3.0, "n": -0.1}}
    return {"key": task.key, "task": asdict(task), "label": method, "scores": scores} | about | more


def table(rows, peers=None, **changes) -> EnergyTable:
    suite = replace(SUITE, **{"data": ("made",), "rates": (0.2,), "masks": (0, 1)} | changes)
    return EnergyTable.gather(rows, suite, peers or Peers())


def test_mask_when_mcar_then_is_that_of_the_stored_figures(frame) -> None:
    hidden = hidden_cells(frame, "mcar", 0.2, 3)
    expected = np.random.default_rng(1003).random(frame.shape) < 0.2
    expected[expected.all(axis=1)] = False
    np.testing.assert_array_equal(hidden, expected)


def test_mask_when_mar_then_some_columns_stay_complete_and_seeds_differ(frame) -> None:
    hidden = hidden_cells(frame, "mar", 0.2, 0)
    assert (~hidden.any(axis=0)).sum() == 1
    assert hidden.mean() == pytest.approx(0.2, abs=0.06)
    assert (hidden != hidden_cells(frame, "mar", 0.2, 1)).any()
    incomplete = hide_frame(frame, hidden)
    np.testing.assert_array_equal(incomplete.isna().to_numpy(), hidden)


def test_cell_when_the_method_is_the_mean_then_scores_are_of_the_completed_table(frame, folder) -> None:
    task = EnergyTask("made", "", "mcar", 0.2, 0, 4, "mean")
    found = measure_energy(task, folder / "energy" / "made.parquet")
    assert found["scores"]["energy"]["value"] == pytest.approx(found["scores"]["fill_energy"]["value"])
    assert sum(found["columns"].values()) == pytest.approx(found["scores"]["energy"]["value"], abs=1e-3)
    assert list(found["columns"]) == list(frame.columns)
    drawn = measure_energy(replace(task, method="missforest(n_trees=5,max_rounds=1)"), folder / "energy/made.parquet")
    assert drawn["scores"]["energy"]["value"] < found["scores"]["energy"]["value"]
    assert task_from(task.settings) == task


def test_suite_when_complete_then_asks_for_every_table_rate_mask_and_mechanism() -> None:
    cells = SUITE.cells(lambda name: (Path(name), ""))
    assert len(cells) == 6 * 2 * 3 * 4 * 4
    assert {cell.task.draws for cell in cells} == {4}
    with pytest.raises(ParameterError, match="Known are mcar, mar"):
        replace(SUITE, mechanisms=("mnar_self",)).check()
    with pytest.raises(ParameterError, match="masks"):
        replace(SUITE, masks=(-1,)).check()


def test_run_when_folders_or_tables_are_missing_then_says_where_they_belong(tmp_path, folder, monkeypatch) -> None:
    monkeypatch.delenv("MCFLOW_DATA", raising=False)
    suite = replace(ENERGY_SUITES["quick"], methods=("mean",))
    with pytest.raises(DataError, match="MCFLOW_DATA"):
        run_suite(suite, tmp_path, quiet=True)
    with pytest.raises(DataError, match="has no folder energy"):
        run_suite(suite, tmp_path, data=tmp_path, quiet=True)
    with pytest.raises(ParameterError, match=r"no table 'nels88' .* Known are made"):
        run_suite(suite, tmp_path, data=folder, quiet=True)


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="process groups and wait4 are those of POSIX")
def test_command_writes_its_page_and_continues(folder, tmp_path) -> None:
    page, output = tmp_path / "page.md", tmp_path / "out"
    page.write_text(f"<!-- result {MARK} -->\n<!-- end -->\n")
    flags = [f"--data={folder}", f"--output={output}", f"--page={page}", "--tables=made", "--rates=0.2", "--folds=0"]
    command = ["benchmark", "draws", "--energy", *flags, "--methods=mcflow(max_epochs=2)", "--mechanisms=mcar", "-q"]
    assert main(command) == 0
    (found,) = Store(output).rows()
    assert found["status"] == "done"
    assert "| made | 20 % |" in page.read_text()
    assert "2.000* " in page.read_text(), "stored figures stand in for R's mice"
    assert "(best .500)" in page.read_text()
    assert (tmp_path / "pictures" / FIGURE).read_text().startswith("<svg")
    assert main(command) == 0
    assert [one["date"] for one in Store(output).rows()] == [found["date"]]


def test_command_when_flags_do_not_fit_then_says_so(folder, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(rmice, "_packages", dict)
    assert main(["benchmark", "draws", "--energy", "--rows", "50", "-o", str(tmp_path)]) == 2
    assert "--rows" in capsys.readouterr().err
    assert main(["benchmark", "draws", "--energy", "--methods", "R:mice.cart", "-o", str(tmp_path)]) == 2
    assert "apt-get install r-cran-mice" in capsys.readouterr().err
    assert main(["benchmark", "draws", "--energy", "--report-only", f"--data={folder}", "-o", str(tmp_path)]) == 3
    assert "R:mice.cart, R:mice.pmm, R:mice.rf left out" in capsys.readouterr().err


def test_report_when_mice_was_measured_then_ratios_are_of_means_over_masks() -> None:
    rows = [row("mcflow", 1.0), row("mcflow", 2.0, 1), row("R:mice.cart", 1.0), row("R:mice.cart", 1.0, 1)]
    found = table([*rows, row("R:mice.rf", 3.0), row("mcflow", 77.0, 9)])
    place = Place("made", "mcar", 0.2)
    assert found.ratio(place, ("R:mice.cart",)) == pytest.approx(1.5)
    text = to_markdown(energy_blocks(found))
    assert "| made | 20 % | 1.500 ± .500 | 9.000 | 1.000 | – | 3.000 | **1.50** | 1.50 | – |" in text
    assert "`R:mice.rf`, mcar: 1 of 2 masks so far on made 20 %." in text
    assert "`y` 77 %, `x` 26 %, `n` -3 %" in text
    assert text.count("**not met**") == 3


def test_report_when_mice_is_not_installed_then_shows_stored_figures_of_the_same_masks(folder) -> None:
    rows = [row("mcflow", 1.0), row("mcflow", 2.0, 1), row("mcflow", 1.0, mechanism="mar")]
    found = table(rows, Peers.read(folder / "energy"))
    text = to_markdown(energy_blocks(found))
    assert "| made | 20 % | 1.500 ± .500 | 9.000 | 3.000* | – | – | .50 | .50 | 2 of 3 (best .500) |" in text
    assert "Figures with * are stored ones" in text
    assert "R's mice has no figures here." in text  # for MAR
    assert text.count("**met**") == 3
    assert (draw_ratios(found) or "").startswith("<svg")


def test_report_when_masks_are_left_then_one_alarm_names_the_tables_and_rates_of_a_method() -> None:
    rows = [row("mcflow", 1.0), row("mcflow", 1.0, rate=0.3), row("mcflow", 1.0, mechanism="mar")]
    rows += [row("R:mice.rf", 1.0, mask) for mask in (0, 1)]
    text = to_markdown(energy_blocks(table(rows, rates=(0.2, 0.3), mechanisms=("mcar", "mar"))))
    assert "- **Alarm:** `mcflow`, mcar: 1 of 2 masks so far on made 20, 30 %." in text
    assert "- **Alarm:** `mcflow`, mar: 1 of 2 masks so far on made 20 %." in text
    assert text.count("masks so far") == 2


def test_report_when_a_cell_failed_then_is_an_alarm_and_nothing_is_drawn() -> None:
    found = table([row("mcflow", None, status="timeout", message="not done after 9 s", scores={})], masks=(0,))
    assert "- **Alarm:** `mcflow` on made, mcar 20 %, mask 0: not done after 9 s." in to_markdown(energy_blocks(found))
    assert draw_ratios(found) is None
    assert to_markdown(energy_blocks(table([]))) == "There are no results yet."


def test_page_shows_the_stored_results(data_folder) -> None:
    text = (ROOT / "docs" / "energy.md").read_text()
    stored = ROOT / "bench" / "results" / "energy"
    rows = Store(stored).rows() if stored.is_dir() else []
    found = EnergyTable.gather(rows, SUITE, Peers.read(data_folder / "energy"))
    words = "Energy distance of draws relative to R's mice with cart"
    figures = [Figure(f"pictures/{FIGURE}", "", words)] if draw_ratios(found) else []
    block = to_markdown(energy_blocks(found, figures))
    assert with_block(text, MARK, block) == text, "run `mcflow benchmark draws --energy --report-only`"


def test_methods_of_r_when_unknown_then_are_refused() -> None:
    for text, words in (("R:mice.crat", "Did you mean"), ("R:mice.cart(n=1)", "It has maxit")):
        with pytest.raises(ParameterError, match=words):
            build_method(MethodSpec.parse(text), 0)
    assert build_method(MethodSpec.parse("mean"), 0).fit_transform(np.array([[1.0], [np.nan]]))[1, 0] == 1


@needs_r
@pytest.mark.parametrize("method", ["norm", "default", "pmm", "cart", "rf"])
def test_mice_when_cells_are_missing_then_fills_them_alone(frame, method) -> None:
    incomplete = hide_frame(frame, hidden_cells(frame, "mcar", 0.3, 0))
    first, second = RMiceImputer(method, maxit=1).fit(incomplete).draw(incomplete, m=2, random_state=4)
    again = next(RMiceImputer(method, maxit=1).draw(incomplete, m=2, random_state=4))
    pd.testing.assert_frame_equal(first, again)
    assert not first.isna().any().any()
    assert not first.equals(second)
    assert list(first.dtypes) == list(incomplete.dtypes)
    seen = incomplete.notna()
    pd.testing.assert_frame_equal(first[seen], incomplete)
    if method != "norm":  # the others take values of other rows
        assert set(first["y"]) <= set(incomplete["y"].dropna())
    assert mice_version() is not None


@needs_r
def test_mice_when_columns_are_collinear_then_is_asked_again() -> None:
    x = np.random.default_rng(0).normal(size=60)
    table = pd.DataFrame({"a": x, "b": 2 * x, "c": x + 0.1 * np.random.default_rng(1).normal(size=60)})
    table.loc[:20, "b"] = np.nan
    assert not RMiceImputer("pmm", maxit=1).fit(table).transform(table).isna().any().any()


def test_mice_when_not_installed_then_says_how_to_install_it(monkeypatch, frame) -> None:
    monkeypatch.setattr(rmice, "_packages", dict)
    with pytest.raises(DataError, match="apt-get install r-cran-mice"):
        RMiceImputer("cart").fit(frame)
    assert available(["mean", "R:mice.cart"]) == ["mean"]
