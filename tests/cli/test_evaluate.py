"""`mcflow evaluate`: a file in, tables and a verdict out."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mcflow
from mcflow.baselines import make
from mcflow.cli.app import main
from mcflow.cli.evaluate import EvaluateOptions
from mcflow.evaluation import rank_draws
from mcflow.installation import install_extra


@pytest.fixture(autouse=True)
def swift(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let a normal distribution take the part of mcflow; return what mcflow would have been given."""
    given: list[dict[str, Any]] = []

    def stand_in(kind: Any, preset: str, parameters: dict[str, Any]) -> Any:
        given.append(parameters)
        known = {name: value for name, value in parameters.items() if name not in ("max_time", "verbose")}
        return make("em", **known)

    monkeypatch.setattr("mcflow.evaluation.methods.build_mcflow", stand_in)
    return given


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    frame = pd.DataFrame({"x": x, "y": 5 * x + rng.normal(size=300), "noise": rng.normal(size=300)})
    frame.loc[::6, "y"] = None
    frame.loc[1::6, "noise"] = None
    frame.to_csv(tmp_path / "in.csv", index=False)
    return tmp_path / "in.csv"


def run(source: Path, *flags: str) -> int:
    return main(["evaluate", str(source), "--methods", "mean", *flags])


def test_tables_and_verdict_go_to_standard_output_and_progress_to_standard_error(source, capsys) -> None:
    assert run(source) == 0
    said = capsys.readouterr()
    assert "known cells were hidden: in the missingness patterns of other rows" in said.out
    assert "the error of mcflow is" in said.out
    assert "could not be predicted from the others" in said.out
    assert "[1/2] mean" in said.err
    assert "[1/2]" not in said.out
    assert list(source.parent.iterdir()) == [source], "nothing is written unless asked for"


def test_output_is_the_whole_result_as_json(source, tmp_path, capsys) -> None:
    output = tmp_path / "found.json"
    assert run(source, "-o", str(output), "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    found = json.loads(output.read_text())
    frame = pd.read_csv(source)
    expected = mcflow.evaluate(frame, methods=["mean"]).verdict
    for here, there in zip(found["verdict"], expected, strict=True):
        assert here == there or "fitted in" in here

    assert [column["name"] for column in found["per_column"]] == ["y", "noise"]


def test_json_on_standard_output_sends_the_tables_to_standard_error(source, capsys) -> None:
    assert run(source, "-o", "-") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["rows"] == 300
    assert "the error of mcflow is" in said.err


def test_flags_reach_the_function(source, swift, capsys) -> None:
    flags = [
        "--repeats",
        "2",
        "--share",
        "0.1",
        "--max-time",
        "7",
        "--level",
        "0.8",
        "--max-rows",
        "200",
        "--seed",
        "4",
    ]
    assert run(source, *flags, "--pattern", "random", "--role", "noise=ignore", "-o", "-", "--progress", "none") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["repeats"], found["level"], found["rows"]) == (2, 0.8, 200)
    assert found["settings"]["share"] == 0.1
    assert found["settings"]["pattern"] == "random"
    assert found["settings"]["random_state"] == 4
    assert [column["name"] for column in found["per_column"]] == ["x", "y"]
    assert {given["max_time"] for given in swift} == {7}
    assert swift[-1]["random_state"] == 5


def test_zero_lifts_the_limits_of_time_and_rows(source, swift, capsys) -> None:
    assert run(source, "--max-time", "0", "--max-rows", "0", "-o", "-") == 0
    assert json.loads(capsys.readouterr().out)["settings"]["max_rows"] is None
    assert swift[0]["max_time"] is None


def test_defaults_are_those_of_the_function() -> None:
    flags = {field.name: field.default for field in dataclasses.fields(EvaluateOptions)}
    arguments = inspect.signature(mcflow.evaluate).parameters
    ranking = inspect.signature(rank_draws).parameters
    for name in ("methods", "share", "pattern", "max_time", "max_rows", "level"):
        assert flags[name] == arguments[name].default
    for name in ("methods", "max_time", "max_rows", "draws", "max_columns"):
        assert flags[name] == ranking[name].default
    assert flags["seed"] == arguments["random_state"].default == ranking["random_state"].default
    assert EvaluateOptions().parameters()["repeats"] == arguments["repeats"].default
    assert EvaluateOptions(score="energy").parameters()["repeats"] == ranking["repeats"].default


def test_score_energy_ranks_methods_and_says_what_is_noise(source, tmp_path, capsys) -> None:
    output = tmp_path / "found.json"
    assert run(source, "--score", "energy", "--repeats", "2", "--draws", "5", "-o", str(output)) == 0
    said = capsys.readouterr().out
    assert said.index("mcflow") < said.index("mean")
    assert "mcflow has the best score over 2 columns" in said
    assert "noise over 2 seeds" in said
    found = json.loads(output.read_text())
    assert [method["name"] for method in found["methods"]] == ["mcflow", "mean"]
    assert set(found["weights"]) == {"y", "noise"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--score", "crps"], "energy"),
        (["--score", "energy", "--share", "0.1"], "--share has no effect with --score energy"),
        (["--max-columns", "3"], "--max-columns has no effect with --score error"),
        (["--score", "energy", "--draws", "0"], "draws is 0"),
        (["--score", "energy", "--report", "report.html"], "--report"),
    ],
)
def test_score_when_flags_do_not_fit_then_says_so(source, capsys, flags, words) -> None:
    assert run(source, *flags) == 2
    assert words in capsys.readouterr().err


def test_methods_with_brackets_are_one_each(source, capsys) -> None:
    assert main(["evaluate", str(source), "--methods", "mean,mice(n_chains=1,n_rounds=2)", "-o", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [method["name"] for method in found["methods"]] == ["mcflow", "mean", "mice"]


def test_report_is_asked_for_with_what_was_found(source, tmp_path, monkeypatch, capsys) -> None:
    asked = []
    monkeypatch.setattr("mcflow.report.write_report", lambda *given, **more: asked.append((given, more)), raising=False)
    assert run(source, "--report", str(tmp_path / "report.html")) == 0
    (path, imputer, before), more = asked[0]
    assert path == tmp_path / "report.html"
    assert imputer is None
    assert before.num_rows == 300
    assert more["evaluation"]["rows"] == 300
    assert more["command"] == f"mcflow evaluate {source} --report {tmp_path}/report.html --methods mean --seed 0"
    assert "Report written to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--methods", "forest"], 2, "There is no baseline 'forest'"),
        (["--share", "0.9"], 2, "share is 0.9"),
        (["--progress", "loud"], 2, "--progress is 'loud'"),
        (["--kind", "x"], 2, "NAME=VALUE"),
        (["-o", "nowhere/found.json"], 4, "cannot be written"),
        (["--report", "nowhere/report.html"], 4, "cannot be written"),
    ],
)
def test_bad_flags_end_in_one_line_before_any_work(source, capsys, swift, flags, code, words) -> None:
    assert main(["evaluate", str(source), *flags]) == code
    said = capsys.readouterr()
    assert words in said.err
    assert len(said.err.splitlines()) == 1
    assert not swift


def test_report_without_its_libraries_is_refused_with_the_line_that_installs_them(source, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert run(source, "--report", "report.html") == 3
    assert install_extra("report") in capsys.readouterr().err


def test_file_that_is_not_there_is_unusable_input(tmp_path, capsys) -> None:
    assert run(tmp_path / "no.csv") == 3
    assert "There is no file" in capsys.readouterr().err
