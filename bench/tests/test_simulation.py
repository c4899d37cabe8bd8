"""Designs with known coefficients, missing cells that depend on z alone, and the report of replications."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from mcflow.errors import DataError, OutputError, ParameterError
from mcflow_bench.commands import RunOptions, simulation
from mcflow_bench.report.blocks import with_block
from mcflow_bench.report.simulation import MARK, simulation_block, summarise_study
from mcflow_bench.rivals import rmice
from mcflow_bench.rivals.rmice import available
from mcflow_bench.simulation import (
    DESIGNS,
    METHODS,
    PROXY,
    REPLICATIONS,
    SimulationStore,
    Study,
    hide,
    replicate,
    run_simulation,
    simulate,
    study_of,
)

ROOT = Path(__file__).parents[2]


def slow_fit(design: str, columns: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Least squares, or the likeliest logistic model, and its intervals, written out."""
    x = {
        "logistic": lambda c: [c["x1"], c["x2"]],
        "square": lambda c: [c["x1"], c["x2"], c["x1"] ** 2],
        "skewed": lambda c: [c["x1"], c["x2"]],
        "clustered": lambda c: [c["x1"], c["x2"], *(c["site"] == site for site in np.unique(c["site"])[1:])],
        "linear": lambda c: [c["x1"], c["x2"]],
        "interaction": lambda c: [c["x1"], c["x2"], c["x1"] * c["x2"]],
        "category": lambda c: [c["x1"], c["g"] == "b", c["g"] == "c"],
    }[design](columns)
    matrix = np.column_stack([np.ones(len(columns["y"])), *x])
    if design == "logistic":
        values = np.zeros(3)
        for _ in range(20):
            chance = 1 / (1 + np.exp(-matrix @ values))
            inverse = np.linalg.inv(matrix.T @ (matrix * (chance * (1 - chance))[:, None]))
            values = values + inverse @ matrix.T @ ((columns["y"] == "yes") - chance)
        half = stats.t(len(matrix) - 3).ppf(0.975) * np.sqrt(np.diag(inverse))
        return values, np.stack([values - half, values + half], axis=1)
    values = np.linalg.lstsq(matrix, columns["y"], rcond=None)[0]
    df = len(matrix) - matrix.shape[1]
    noise = ((columns["y"] - matrix @ values) ** 2).sum() / df
    errors = np.sqrt(noise * np.diag(np.linalg.inv(matrix.T @ matrix)))
    half = stats.t(df).ppf(0.975) * errors
    kept = slice(1, 3) if design == "clustered" else slice(None)
    return values[kept], np.stack([values - half, values + half], axis=1)[kept]


@pytest.mark.parametrize("design", list(DESIGNS))
def test_design_has_the_coefficients_that_it_says(design) -> None:
    values, ends = slow_fit(design, simulate(design, 200_000, 0))
    truth = list(DESIGNS[design].truth.values())
    np.testing.assert_allclose(values, truth, atol=0.02)
    # Noise of variance 1: in a table of 500 times as many rows intervals are as narrow as that makes them.
    assert (np.diff(ends) < 0.05).all()


@pytest.mark.parametrize("design", list(DESIGNS))
def test_full_data_are_analysed_by_the_model_of_the_design(design) -> None:
    found = replicate(Study(design, "full", rows=200), 3)
    values, ends = slow_fit(design, simulate(design, 200, 3))
    np.testing.assert_allclose(found["estimate"], values, rtol=1e-6)
    np.testing.assert_allclose(np.column_stack([found["low"], found["high"]]), ends, rtol=1e-5)
    assert found["tables"] == 1


def test_full_data_cover_the_truth_at_the_level_of_the_intervals() -> None:
    rows = {number: replicate(Study("linear", "full", rows=60), number) for number in range(200)}
    row = {"study": {"design": "linear"}, "terms": ["Intercept", "x1", "x2"], "replications": rows}
    for one in summarise_study(row):
        assert abs(one.bias) < 4 * one.bias_error
        assert one.coverage == pytest.approx(0.95, abs=0.06)


@pytest.mark.parametrize("design", list(DESIGNS))
def test_missing_cells_have_their_rate_and_depend_on_z_alone(design) -> None:
    columns = simulate(design, 100_000, 1)
    y = (columns["y"] == "yes").astype(float) if DESIGNS[design].binary else columns["y"]
    assert np.corrcoef(y, columns["z"])[0, 1] == pytest.approx(PROXY, abs=0.02)
    table = hide(design, columns, 0.3, 1)
    assert table.column_names == list(columns)
    assert table["z"].null_count == 0
    slopes = []
    for name in DESIGNS[design].incomplete:
        missing = table[name].is_null().to_numpy()
        assert missing.mean() == pytest.approx(0.3, abs=0.01)
        slopes.append(np.corrcoef(missing, columns["z"])[0, 1])
        # Within a narrow band of z, rows with and without a missing cell have the same outcome on average.
        band = np.abs(columns["z"]) < 0.1
        gap = y[band & missing].mean() - y[band & ~missing].mean()
        assert abs(gap) < 0.15
        kept = table[name].drop_null().to_numpy(zero_copy_only=False)
        np.testing.assert_array_equal(kept, columns[name][~missing])
    assert np.sign(slopes).tolist() == [1, -1, 1]


def test_complete_cases_are_biased_because_missingness_depends_on_a_proxy_of_the_outcome() -> None:
    columns = simulate("linear", 50_000, 0)
    table = hide("linear", columns, 0.3, 0).drop_null()
    values, _ = slow_fit("linear", {name: table[name].to_numpy() for name in table.column_names})
    assert abs(values[0] - 1) > 0.1 or abs(values[1] - 1) > 0.05


def test_replication_is_the_same_every_time_and_others_differ() -> None:
    study = Study("category", "em", rows=80, m=3)
    first, again, other = (replicate(study, number) for number in (0, 0, 1))
    assert "error" not in first
    assert first["estimate"] == again["estimate"] != other["estimate"]
    assert first["tables"] == 3
    wide = replicate(Study("category", "full", rows=80), 0)
    assert np.all(np.array(first["high"]) - first["low"] > 0)
    assert wide["estimate"] != first["estimate"]


@pytest.mark.parametrize("design", list(DESIGNS))
@pytest.mark.parametrize("method", ["mice(n_chains=2,n_rounds=2)", "mean", "complete"])
def test_methods_fill_every_design(design, method) -> None:
    found = replicate(Study(design, method, rows=100, m=2), 0)
    assert "error" not in found
    assert len(found["estimate"]) == len(DESIGNS[design].truth)
    assert found["tables"] == (2 if method.startswith("mice") else 1)


def test_failing_method_is_a_result() -> None:
    found = replicate(Study("linear", "python:argparse:Namespace", rows=60), 0)
    assert found["error"].startswith("AttributeError")


@pytest.mark.parametrize(
    ("design", "method", "sizes", "words"),
    [
        ("linaer", "full", {}, "Did you mean 'linear'"),
        ("linear", "mise", {}, "mice"),
        ("linear", "mice(chains=2)", {}, "n_chains"),
        ("linear", "full", {"rows": 10}, "50 rows"),
        ("linear", "full", {"m": 0}, "1 draw"),
    ],
)
def test_study_that_cannot_be_is_refused(design, method, sizes, words) -> None:
    with pytest.raises(ParameterError, match=words):
        study_of(design, method, **sizes)


def test_keys_tell_studies_apart() -> None:
    studies = [Study(d, m, rows=r) for d in DESIGNS for m in ("full", "em") for r in (100, 200)]
    assert len({study.key for study in studies}) == len({study.name for study in studies}) == 28
    assert str(study_of("linear", "mice( n_rounds=3, n_chains=2 )").method) == "mice(n_chains=2,n_rounds=3)"


def made_up(study: Study, estimates: list[float], half: float, **more) -> dict:
    ones = {
        str(number): {"estimate": [e] * 3, "low": [e - half] * 3, "high": [e + half] * 3, "tables": 20, "seconds": 0.5}
        for number, e in enumerate(estimates)
    }
    return {
        "key": study.key,
        "study": {"design": study.design, "method": study.method},
        "terms": ["Intercept", "x1", "x2"],
        "replications": ones | more,
        "machine": {"cpu": "C", "cores": 2},
        "versions": {"mcflow": "1", "numpy": "2", "torch": "3"},
    }


def test_summary_is_as_worked_out_by_hand() -> None:
    row = made_up(Study("linear", "em"), [0.9, 1.3, 1.1, 1.5], 0.35)
    _, one, _ = summarise_study(row)
    assert (one.truth, one.count, one.coverage) == (1.0, 4, 0.75)
    assert one.bias == pytest.approx(0.2)
    assert one.percent == pytest.approx(20)
    assert one.bias_error == pytest.approx(np.std([0.9, 1.3, 1.1, 1.5], ddof=1) / 2)
    assert one.coverage_error == pytest.approx(math.sqrt(0.75 * 0.25 / 3))
    assert (one.width, one.width_error) == (pytest.approx(0.7), pytest.approx(0, abs=1e-12))
    assert summarise_study(row, replications=2)[1].bias == pytest.approx(0.1)
    assert math.isnan(summarise_study(row, replications=1)[1].bias_error)
    assert summarise_study(row | {"replications": {"0": {"error": "no"}}}) == []


def test_page_shows_made_up_results() -> None:
    em, full = Study("linear", "em"), Study("linear", "full")
    rows = [made_up(em, [0.9, 1.3, 1.1, 1.5], 0.35, **{"4": {"error": "E: no."}}), made_up(full, [1.0, 1.0], 0.1)]
    text = simulation_block(rows, [full, em, Study("category", "em")], 5)
    lines = text.splitlines()
    for line in (
        "### Linear: `y ~ x1 + x2`",
        "| bias / coverage | linear | time |",
        "| `em` | **-340.0 %** / **0.0 %** | 0.50 s |",
        "True coefficients: `Intercept` 1, `x1` 1, `x2` -0.5. Mean estimates from the full data: `Intercept` 1.000, "
        "`x1` 1.000, `x2` 1.000.",
        "|  | `x1` | 1 | +0.200 ± 0.129 | +20.0 % ± 12.9 | 75.0 % ± 25.0 | 0.700 ± 0.000 |",
        "|  | `x2` | -0.5 | +1.700 ± 0.129 | **-340.0 % ± 25.8** | **0.0 % ± 0.0** | 0.700 ± 0.000 |",
        "- **Alarm:** linear, em: 1 of 5 failed, the first with E: no.",
        "- **Alarm:** linear, full: 2 of 5 replications so far.",
    ):
        assert line in lines
    assert text.index("full data") < text.index("`em`")
    assert "5 replications of 400 rows, 20 draws each, 30 % of the cells" in text
    assert simulation_block([], [em], 5) == "There are no results yet."


def test_requirements_when_mcflow_is_off_then_the_best_of_mice_decides() -> None:
    own, mice = Study("linear", "mcflow"), Study("linear", "R:mice.norm")
    rows = {study: made_up(study, [1.0, 1.0], half) for study, half in ((own, 0.1), (mice, 0.1))}
    text = simulation_block(list(rows.values()), [own, mice], 2)  # all three terms are estimated by 1
    assert "linear: **met** (`Intercept` coverage 100.0 %, mice at best 100.0 %" in text
    rows[mice] = made_up(mice, [-0.4, -0.4], 0.1)
    text = simulation_block(list(rows.values()), [own, mice], 2)
    assert "linear: **not met**" in text
    assert "`x2` bias -300.0 %, mice at best 20.0 %" in text
    assert "Requirements" not in simulation_block([rows[mice]], [mice], 2)


def test_command_when_r_is_not_installed_then_leaves_its_methods_out_unless_named(
    monkeypatch, tmp_path, capsys
) -> None:
    monkeypatch.setattr(rmice, "_packages", dict)
    with pytest.raises(ParameterError, match="apt-get install r-cran-mice"):
        simulation(methods=("R:mice.pmm",), output=tmp_path)
    monkeypatch.setattr("mcflow_bench.simulation.METHODS", ("full", "R:mice.pmm"))
    simulation(output=tmp_path, replications=1, designs=("linear",), options=RunOptions(jobs=1))
    assert "R:mice.pmm left out" in capsys.readouterr().err


@pytest.mark.skipif(available(list(METHODS)) != list(METHODS), reason="R with mice, rpart and nnet is not installed")
@pytest.mark.parametrize("design", ["category", "logistic", "clustered"])
@pytest.mark.parametrize("method", ["norm", "default", "cart"])
def test_mice_of_r_fills_designs_with_categories(design, method) -> None:
    found = replicate(Study(design, f"R:mice.{method}(maxit=1)", rows=100, m=2), 0)
    assert found.get("error") is None
    assert found["tables"] == 2


def test_method_without_draws_is_marked() -> None:
    study = Study("linear", "mean")
    row = made_up(study, [1.0, 1.1], 0.1)
    for one in row["replications"].values():
        one["tables"] = 1
    assert "`mean`, one fill" in simulation_block([row], [study], 2)


def test_second_run_continues(tmp_path) -> None:
    studies = [Study("linear", "full", rows=60), Study("linear", "em", rows=60, m=2)]
    said: list[str] = []
    first = run_simulation(studies, 2, tmp_path, jobs=1, say=said.append)
    assert (first.found, first.done, first.failed) == (0, 4, 0)
    assert any(line.startswith("linear, em: 2/2") for line in said)
    store = SimulationStore(tmp_path)
    kept = store.read(studies[1])
    again = run_simulation(studies, 3, tmp_path, jobs=1)
    assert (again.found, again.done) == (4, 2)
    assert {n: store.read(studies[1])[n] for n in (0, 1)} == kept
    assert sorted(store.read(studies[1])) == [0, 1, 2]
    assert store.read(Study("linear", "em", rows=61, m=2)) == {}


def test_several_processes_give_the_same_as_one(tmp_path) -> None:
    study = Study("interaction", "mice(n_chains=2,n_rounds=2)", rows=60, m=2)
    for jobs in (1, 2):
        run_simulation([study], 2, tmp_path / str(jobs), jobs=jobs)
    one, two = (SimulationStore(tmp_path / str(jobs)).read(study) for jobs in (1, 2))
    assert [two[n]["estimate"] for n in range(2)] == [one[n]["estimate"] for n in range(2)]


def test_failures_are_kept_and_done_again_when_asked(tmp_path) -> None:
    study = Study("linear", "python:argparse:Namespace", rows=60)
    assert run_simulation([study], 2, tmp_path, jobs=1).failed == 2
    assert run_simulation([study], 2, tmp_path, jobs=1).done == 0
    assert run_simulation([study], 2, tmp_path, jobs=1, retry=True).done == 2


def test_file_that_is_damaged_is_done_again(tmp_path) -> None:
    study = Study("linear", "full", rows=60)
    run_simulation([study], 1, tmp_path, jobs=1)
    (path,) = (tmp_path / "cells").glob("*.json")
    assert json.loads(path.read_text())["study"]["design"] == "linear"
    path.write_text(path.read_text()[:50])
    assert SimulationStore(tmp_path).rows() == []
    assert run_simulation([study], 1, tmp_path, jobs=1).done == 1


def test_folder_that_cannot_be_made_is_told(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be made"):
        SimulationStore(tmp_path / "file" / "folder")


def test_command_runs_reports_and_fills_the_page(tmp_path, capsys) -> None:
    page, output = tmp_path / "page.md", tmp_path / "out"
    page.write_text(f"# A\n\n<!-- result {MARK} -->\n<!-- end -->\n\nB\n")
    how = {"output": output, "page": page, "designs": ("linear",), "methods": ("full, em",), "rows": 60, "draws": 2}
    simulation(**how, replications=2, options=RunOptions(jobs=1))
    said = capsys.readouterr()
    assert "4 replications measured now, 0 before, 0 failed." in said.err
    assert f"Tables written to {output / 'table.md'} and {page}." in said.out
    text = page.read_text()
    assert "### Linear" in text
    assert text.endswith("<!-- end -->\n\nB\n")
    page.write_text(text.replace("full data", "old"))
    simulation(**how, replications=2, options=RunOptions(report_only=True, quiet=True))
    assert page.read_text() == text
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"options": RunOptions(jobs=0)}, ParameterError, "at least 1"),
        ({"replications": 0}, ParameterError, "at least 1"),
        ({"designs": ("no",)}, ParameterError, "no design 'no'"),
        ({"page": Path("nothing.md")}, ParameterError, "--page is nothing.md"),
        ({"options": RunOptions(report_only=True), "methods": ("full",)}, DataError, "There are no results"),
    ],
)
def test_wrong_flags_are_told_before_anything_is_done(how, error, words, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words):
        simulation(**how)
    assert list(tmp_path.iterdir()) == []


def test_documentation_shows_the_stored_results() -> None:
    text, folder = (ROOT / "docs" / "simulation.md").read_text(), ROOT / "bench" / "results" / "simulation"
    assert with_block(text, MARK, "") != text
    if (folder / "cells").is_dir():
        studies = [Study(design, method) for design in DESIGNS for method in METHODS]
        block = simulation_block(SimulationStore(folder).rows(), studies, REPLICATIONS)
        assert with_block(text, MARK, block) == text, "run `mcflow benchmark simulation --report-only`"
