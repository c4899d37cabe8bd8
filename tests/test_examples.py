"""Every program of the folder of examples runs and writes its picture."""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"

#: Flags that keep a program tiny, and the ending of what it writes; none when it writes nothing.
TINY = {
    "draws_and_pooling": (["--rows", "80", "--draws", "3", "--max-epochs", "1"], ".svg"),
}


def run_example(name: str, flags: list[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, *flags])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")


def test_every_example_is_listed_here_or_writes_its_page() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {*TINY, "nhanes_regression"}


@pytest.mark.parametrize("name", TINY)
def test_example_runs_and_writes_what_it_says(name, tmp_path, monkeypatch, capsys) -> None:
    flags, ending = TINY[name]
    output = tmp_path / f"{name}{ending}"
    run_example(name, [*flags, "--output", str(output)] if ending else flags, monkeypatch)
    assert capsys.readouterr().out
    assert not ending or output.stat().st_size > 1000


@pytest.mark.slow
def test_regression_on_nhanes_runs_without_writing(monkeypatch, capsys) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)  # R's mice takes minutes
    pages = {path: path.stat().st_mtime_ns for path in (FOLDER.parent / "docs").rglob("nhanes*")}
    run_example("nhanes_regression", ["--max-time", "5", "--draws", "3", "--dry"], monkeypatch)
    assert "smoked_100" in capsys.readouterr().out
    assert pages == {path: path.stat().st_mtime_ns for path in pages}
