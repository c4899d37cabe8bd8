"""`mcflow doctor` and `mcflow completion`."""

from __future__ import annotations

import builtins
import json
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from mcflow import MCFlowImputer
from mcflow.cli import doctor
from mcflow.cli.app import main
from mcflow.cli.doctor import Check
from mcflow.errors import MissingExtraError
from mcflow.installation import install_extra


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the small fit out, which takes seconds."""
    monkeypatch.setattr(doctor, "_fit", lambda: Check("small fit", "left out", essential=True))


def found(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    said = json.loads(capsys.readouterr().out)
    return {check["name"]: check for check in said["checks"]} | {"all": said}


def test_all_is_well_here_and_the_small_fit_works(capsys) -> None:
    assert main(["doctor", "--json"]) == 0
    checks = found(capsys)
    assert checks["all"]["good"] is True
    assert "50 rows fitted and filled" in str(checks["small fit"]["found"])
    assert checks["torch"]["found"] == metadata.version("torch")
    assert "5,265 rows" in str(checks["demo table"]["found"])
    assert "cores" in str(checks["threads"]["found"])
    assert checks["trees"]["good"] is True


@pytest.mark.usefixtures("hasty")
def test_lines_are_marked_and_plain_without_a_terminal(capsys) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert any(line.split()[:2] == ["✓", "torch"] for line in said.splitlines())


@pytest.mark.usefixtures("hasty")
def test_missing_package_is_broken_and_ends_with_3(monkeypatch, capsys) -> None:
    monkeypatch.setattr(doctor, "REQUIRED", ("numpy", "no-such-package"))
    assert main(["doctor"]) == 3
    said = capsys.readouterr()
    assert "not installed; pip install no-such-package" in " ".join(said.out.split())
    assert said.err.startswith("mcflow: mcflow does not work here: no-such-package.")


@pytest.mark.usefixtures("hasty")
def test_missing_extra_is_said_with_the_line_that_installs_it_and_breaks_nothing(monkeypatch, capsys) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"report": (("no_such_module",), "reports")})
    assert main(["doctor", "--json"]) == 0
    check = found(capsys)["[report]"]
    assert check["good"] is False
    assert check["advice"] == install_extra("report")


@pytest.fixture
def no_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the import of LightGBM fail as it does without the system's OpenMP library."""
    plain = builtins.__import__

    def import_without(name: str, *arguments: object, **more: object) -> object:
        if name == "lightgbm":
            raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")
        return plain(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", import_without)


OPENMP_LINES = ("apt-get install libgomp1", "dnf install libgomp", "brew install libomp")


@pytest.mark.usefixtures("hasty", "no_openmp")
def test_lightgbm_that_cannot_be_loaded_is_broken_and_the_line_that_installs_openmp_is_named(capsys) -> None:
    assert main(["doctor", "--json"]) == 3
    checks = found(capsys)
    assert checks["trees"]["good"] is False
    assert "libgomp.so.1" in str(checks["trees"]["found"])
    assert all(line in str(checks["trees"]["advice"]) for line in OPENMP_LINES)
    assert checks["lightgbm"]["found"] == metadata.version("lightgbm")


@pytest.mark.usefixtures("no_openmp")
def test_fit_without_openmp_names_the_line_that_installs_it() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    rows[::5, 1] = np.nan
    with pytest.raises(MissingExtraError, match="LightGBM cannot be loaded") as raised:
        MCFlowImputer(max_epochs=1, random_state=0).fit(rows)
    assert all(line in str(raised.value) for line in OPENMP_LINES)


def test_check_that_raises_is_broken_and_the_others_go_on(monkeypatch, capsys) -> None:
    def fall() -> Check:
        raise RuntimeError("no luck")

    fall.__name__ = "_fit"
    monkeypatch.setattr(doctor, "_fit", fall)
    assert main(["doctor", "--json"]) == 3
    checks = found(capsys)
    assert checks["fit"]["found"] == "RuntimeError: no luck"
    assert checks["torch"]["good"] is True
    assert checks["all"]["good"] is False


@pytest.mark.usefixtures("hasty")
def test_folders_are_looked_at(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MCFLOW_CACHE", str(tmp_path / "file" / "cache"))
    assert main(["doctor", "--json"]) == 0
    checks = found(capsys)
    assert "cannot be written" in str(checks["cache"]["found"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_knows_the_commands(shell, capsys) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("evaluate", "doctor", "max-time"):
        assert word in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "answer"), [(["ev"], "evaluate"), (["evaluate", "--max-r"], "--max-rows"), (["doc"], "doctor")]
)
def test_bash_completes_commands_and_flags(tmp_path, capsys, words, answer) -> None:
    main(["completion", "bash"])
    (tmp_path / "complete").write_text(capsys.readouterr().out)
    line = " ".join(["mcflow", *words])
    asked = f"source complete; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _mcflow; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert answer in done.stdout.split()


def test_installed_completion_is_where_the_shell_looks(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert main(["completion", "fish", "--install"]) == 0
    script = tmp_path / ".config" / "fish" / "completions" / "mcflow.fish"
    assert "evaluate" in script.read_text()
    assert str(script) in capsys.readouterr().out.replace("\n", "")


def test_completion_that_cannot_be_written_ends_with_4(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "file")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert main(["completion", "fish", "--install"]) == 4
    assert "Without --install the script is printed" in capsys.readouterr().err


def test_unknown_shell_is_wrong_usage(capsys) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "tcsh" in capsys.readouterr().err
