"""`--report` on the command line: written beside the other files, refused before any work."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mcflow.cli.app import main
from mcflow.cli.options import ColumnOptions, DrawOptions, FitOptions
from mcflow.cli.outputs import command_line
from mcflow.imputers import MCFlowImputer
from mcflow.installation import install_extra


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(80, 1)) + 0.3 * rng.normal(size=(80, 3)), columns=["a", "b", "c"])
    frame = frame.mask(rng.random(frame.shape) < 0.15)
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def never_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*_: Any, **__: Any) -> None:
        raise AssertionError("fitted before the report was checked")

    monkeypatch.setattr(MCFlowImputer, "fit", fit)


def run(*words: object) -> int:
    return main([str(word) for word in words])


def test_impute_with_a_report_writes_the_same_table_and_a_page(source: Path, capsys: Any) -> None:
    out, again, report = (source.parent / name for name in ("filled.csv", "again.csv", "report.html"))
    assert run("impute", source, "-o", out, "--max-epochs", 2, "-q") == 0
    assert run("impute", source, "-o", again, "--max-epochs", 2, "--report", report) == 0
    assert out.read_bytes() == again.read_bytes()
    page = report.read_text("utf-8")
    assert "80 rows and 3 columns" in page
    assert f"mcflow impute {source} --output {again} --report {report} --seed 0 --max-epochs 2" in page
    assert f"Report written to {report}" in capsys.readouterr().err


def test_fit_with_a_report_writes_model_and_page(source: Path) -> None:
    model, report = source.parent / "m.mcflow", source.parent / "report.html"
    assert run("fit", source, "-o", model, "--max-epochs", 2, "--report", report, "-q") == 0
    assert model.is_file()
    assert "trained for 2 epochs" in report.read_text("utf-8")


def test_report_goes_with_a_model_draws_and_intervals(source: Path) -> None:
    folder = source.parent
    model = folder / "m.mcflow"
    assert run("fit", source, "-o", model, "--max-epochs", 2, "-q") == 0
    loaded = ["impute", source, "-o", folder / "out.csv", "--model", model, "-q"]
    assert run(*loaded, "--draws", 3, "--report", folder / "files.html") == 0
    assert run(*loaded, "--draws", 3, "--long", "--report", folder / "long.html") == 0
    assert run(*loaded, "--interval", 0.8, "--report", folder / "interval.html") == 0
    files, long, interval = ((folder / f"{name}.html").read_text() for name in ("files", "long", "interval"))
    assert "3 draws are shown" in files
    assert "3 draws are shown" in long
    assert "best estimates" in interval
    assert "trained for 2 epochs" in interval
    assert "--interval 0.8" in interval


def test_report_beside_standard_output_leaves_the_table_alone(source: Path, capsysbinary: Any) -> None:
    report = source.parent / "report.html"
    assert run("impute", source, "-o", "-", "--max-epochs", 2, "--report", report) == 0
    out, err = capsysbinary.readouterr()
    assert len(out.splitlines()) == 81
    assert b"Report written" in err
    assert report.is_file()


@pytest.mark.usefixtures("never_fits")
@pytest.mark.parametrize(
    ("report", "code", "words"),
    [
        ("filled.csv", 4, "is given twice"),
        ("rows.csv", 4, "is given twice"),
        ("m.mcflow", 4, "is given twice"),
        ("no/report.html", 4, "is not a folder"),
        (".", 4, "is a folder"),
    ],
)
def test_report_that_cannot_be_written_is_refused_before_the_fit(
    source: Path, capsys: Any, report: str, code: int, words: str
) -> None:
    folder = source.parent
    names = ["-o", folder / "filled.csv", "--save", folder / "m.mcflow"]
    assert run("impute", source, *names, "--report", folder / report) == code
    assert words in capsys.readouterr().err
    assert list(folder.iterdir()) == [source]
    if report != "filled.csv":
        assert run("fit", source, "-o", folder / "m.mcflow", "--report", folder / report) == code


@pytest.mark.usefixtures("never_fits")
@pytest.mark.parametrize("command", ["impute", "fit"])
def test_missing_extra_is_said_before_the_fit(
    source: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    out = source.parent / "out.csv"
    assert run(command, source, "-o", out, "--report", source.parent / "r.html") == 3
    assert install_extra("report") in capsys.readouterr().err
    assert not out.exists()


def test_phases_are_told_to_programs_that_watch(source: Path, capsys: Any) -> None:
    folder = source.parent
    flags = ["--max-epochs", 2, "--progress", "json", "--report", folder / "r.html"]
    assert run("impute", source, "-o", folder / "out.csv", *flags) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    names = [line["name"] for line in lines if line["event"] == "phase"]
    assert names[-2:] == ["filling", "writing the report"]


def test_command_line_repeats_flags_that_matter() -> None:
    fit = FitOptions(seed=3, max_time=2.5, calibrate=False, quiet=True, progress="none")
    columns = ColumnOptions(rule=("a <= b", "b >= 0"))
    found = command_line("impute", Path("my rows.csv"), {"--output": Path("o.csv"), "--model": None}, fit, columns)
    assert found == (
        "mcflow impute 'my rows.csv' --output o.csv --seed 3 --max-time 2.5 --no-calibrate --rule 'a <= b' "
        "--rule 'b >= 0'"
    )
    assert (
        command_line("impute", Path("a.csv"), {}, DrawOptions(draws=3, long=True))
        == "mcflow impute a.csv --draws 3 --long"
    )
