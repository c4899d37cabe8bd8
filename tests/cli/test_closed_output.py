"""Commands whose standard output is closed: all files are written, and nothing is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mcflow.cli.app import main


@pytest.fixture
def quick() -> list[str]:
    return ["--max-epochs", "1"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).normal(size=(60, 3)).round(3)
    path = tmp_path / "in.csv"
    path.write_text("a,b,c\n" + "".join(f"{a},{b},{c if k % 5 else ''}\n" for k, (a, b, c) in enumerate(rows)))
    return path


PIPE = """
import os, sys
from mcflow.cli.app import run
sys.argv = ["mcflow", *sys.argv[1:]]
run()
"""


@pytest.mark.parametrize("closed", ["reader", "stdout"])
@pytest.mark.parametrize("output", ["out.csv", "-"])
def test_closed_standard_output_loses_no_file(source, tmp_path, quick, closed, output) -> None:
    files = [tmp_path / name for name in ("model.mcflow", "report.html")]
    where = str(tmp_path / output) if output != "-" else "-"
    command = ["impute", str(source), "-o", where, "--save", str(files[0]), "--report", str(files[1]), *quick]
    if closed == "stdout" and output == "-":
        pytest.skip("a table cannot go to a closed output")
    read, write = os.pipe()
    os.close(read)
    shell = ["sh", "-c", 'exec "$@" >&-', "sh"] if closed == "stdout" else []
    words = [*shell, sys.executable, "-c", PIPE, *command]
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert all(file.stat().st_size for file in files)
    assert output == "-" or (tmp_path / output).stat().st_size


def test_fit_to_a_closed_standard_output_writes_the_report(source, tmp_path, quick) -> None:
    read, write = os.pipe()
    os.close(read)
    report = tmp_path / "report.html"
    words = ["fit", str(source), "-o", str(tmp_path / "m.mcflow"), "--report", str(report), *quick]
    done = subprocess.run([sys.executable, "-c", PIPE, *words], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode == 0
    assert report.stat().st_size


def test_calibration_is_not_announced_when_it_is_turned_off(source, tmp_path, capsys, quick) -> None:
    rest = [word for word in quick if word != "--no-calibrate"]
    words = ["impute", str(source), "-o", str(tmp_path / "out.csv"), "--progress", "json", *rest]
    assert main([*words, "--no-calibrate"]) == 0
    assert "calibrating" not in capsys.readouterr().err
    assert main(words) == 0
    assert "calibrating" in capsys.readouterr().err
