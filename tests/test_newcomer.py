"""The first steps of a new user: clone the repository, install it, and run what the README shows first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parent.parent


def first_blocks() -> tuple[list[str], str]:
    """Return the commands of the README's installation section, and the program of its quick start."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    install = text[text.index("## Install") : text.index("## Quick start")]
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert program is not None
    return re.findall(r"^\$ (.+)$", install, re.MULTILINE), program[1]


def test_first_screen_fills_a_table_that_is_in_the_repository() -> None:
    commands, _ = first_blocks()
    assert [command.split()[0] for command in commands] == ["pip", "mcflow"]
    assert (ROOT / commands[1].split()[2]).is_file()
    assert (ROOT / "constraints.txt").is_file()


@pytest.mark.slow
def test_newcomer_s_path_runs_as_written_in_a_fresh_clone(tmp_path) -> None:
    clone, commands = tmp_path / "mcflow", first_blocks()[0]
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "environment")], check=True)
    path = f"{tmp_path / 'environment' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PIP_QUIET": "1"}

    def run(words: list[str]) -> str:
        done = subprocess.run(words, cwd=clone, env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for command in commands:
        run(["bash", "-c", command])
    table, filled = (pd.read_csv(clone / "examples" / name) for name in ("nhanes.csv", "nhanes.filled.csv"))
    assert not filled.isna().any(axis=None)
    observed = table.notna()
    pd.testing.assert_frame_equal(filled[observed], table[observed], check_dtype=False)
    shown = run(["python", "-c", first_blocks()[1]])
    assert shown.split()[:7] == ["age", "gender", "bmi", "waist_cm", "filled", "low", "high"]
