"""What the command line prints to terminals, and the exit codes that the docs list."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mcflow.cli.app import EXIT_CODES, app, main

pty = pytest.importorskip("pty")
COLOUR = re.compile(r"\x1b\[[0-9;]*(3[0-7]|4[0-7]|9[0-7]|38|48)[0-9;]*m")


def seen_on_a_terminal(*arguments: str, **environment: str) -> str:
    """Run the program with a terminal for all its streams, and return what the terminal got."""
    known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mcflow", *arguments],
        **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
        env=known | environment,
    )
    os.close(theirs)
    pieces = []
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not piece:
            break
        pieces.append(piece)
    process.wait(60)
    os.close(ours)
    return b"".join(pieces).decode()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = "\n".join(f"{k % 7}.5,{k % 5 or ''}" for k in range(60))
    (tmp_path / "in.csv").write_text(f"a,b\n{rows}\n")
    return tmp_path / "in.csv"


def quick(source: Path, *flags: str) -> list[str]:
    fit = ["--max-epochs", "2", "--preset", "paper", "--no-calibrate"]
    return ["impute", str(source), "-o", str(source.with_name("out.csv")), *fit, *flags]


def test_terminal_gets_colours_unless_it_says_otherwise() -> None:
    assert COLOUR.search(seen_on_a_terminal("--help", TERM="xterm-256color"))
    plain = seen_on_a_terminal("--help", TERM="xterm-256color", NO_COLOR="1")
    assert "evaluate" in plain
    assert not COLOUR.search(plain)


def test_dumb_terminal_gets_no_escapes_at_all() -> None:
    for arguments in (("--help",), ("impute",)):
        shown = seen_on_a_terminal(*arguments, TERM="dumb")
        assert shown
        assert "\x1b" not in shown


@pytest.mark.parametrize(("term", "live"), [("xterm-256color", True), ("dumb", False)])
def test_fit_is_live_on_a_terminal_and_in_lines_on_a_dumb_one(source, term, live) -> None:
    shown = seen_on_a_terminal(*quick(source), TERM=term, NO_COLOR="1")
    assert ("\x1b[?25l" in shown) == live, "a live display hides the cursor"
    assert not COLOUR.search(shown)
    assert "trained 2 epochs" in shown
    assert "Filled 12 of 12 missing cells." in shown


def test_documented_exit_codes_are_those_of_the_program() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    part = page.split("## Exit codes")[1].split("\n## ")[0]
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", part, re.MULTILINE)}
    assert listed == {0, *EXIT_CODES.values()}
    named = {int(code) for code in re.findall(r"(\d+) [a-z]", str(app.help_epilogue))}
    assert named == listed


def test_every_flag_and_command_is_on_the_page_of_the_command_line() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    for command in ("impute", "fit", "evaluate", "doctor", "completion", "check", "demo", "serve"):
        assert f"`mcflow {command}" in page, command
    for flag in ("--methods", "--repeats", "--share", "--pattern", "--max-time", "--max-rows", "--level", "--report"):
        assert f"`{flag}`" in page, flag
    for flag in ("--progress", "--install", "--json"):
        assert f"`{flag}" in page, flag


def test_json_progress_is_all_that_standard_error_gets(source, capsys) -> None:
    assert main(quick(source, "--progress", "json")) == 0
    said = capsys.readouterr()
    events = [json.loads(line) for line in said.err.splitlines()]
    kinds = [event["event"] for event in events]
    assert [kind for kind in kinds if kind != "phase"] == ["begin", "epoch", "epoch", "end"]
    assert "Filled 12 of 12 missing cells." in said.out


def test_progress_none_keeps_the_summary_and_quiet_does_not(source, capsys) -> None:
    assert main(quick(source, "--progress", "none")) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "Filled 12 of 12" in said.out
    assert main(quick(source, "--progress", "json", "--quiet")) == 0
    assert capsys.readouterr() == ("", "")


def test_unknown_kind_of_progress_is_wrong_usage(source, capsys) -> None:
    assert main(quick(source, "--progress", "bar")) == 2
    assert "--progress is 'bar', but has to be one of 'auto', 'plain', 'json', 'none'." in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "doctor", "completion"])
def test_help_of_a_command_imports_no_torch(command) -> None:
    code = (
        "import sys; from mcflow.cli.app import main; main(sys.argv[1:]); "
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, command, "--help"], check=True, capture_output=True)
