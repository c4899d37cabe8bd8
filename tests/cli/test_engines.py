"""`--engine` and its flags: who is asked to fit and to fill, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from mcflow import MCFlowImputer
from mcflow.cli.app import main
from mcflow.engines import StreamOutcome


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(80, 3)), columns=list("abc")).mask(rng.random((80, 3)) < 0.2)
    rows.to_parquet(folder / "rows.parquet")
    MCFlowImputer(max_epochs=1, random_state=0).fit(rows).save(folder / "m.mcflow")
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-o", "out", "--engine", "rai"], "--engine is 'rai', but has to be one of 'local', 'ray', 'spark'"),
        (["-o", "out", "--workers", "2"], "--workers has no effect with --engine local"),
        (["-o", "out", "--address", "auto"], "--address has no effect with --engine local"),
        (["-o", "out", "--engine", "spark", "--workers", "2"], "--address 'local[4]'"),
        (["-o", "out", "--engine", "ray", "--workers", "0"], "--workers is 0"),
        (["-o", "out.parquet", "--engine", "ray"], "--engine ray fills files part by part into a folder"),
        (["-o", "out.parquet", "--engine", "spark"], "--engine spark fills files part by part into a folder"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(place, capsys, flags, words) -> None:
    assert main(["impute", "rows.parquet", "--model", "m.mcflow", *flags]) == 2
    assert words in capsys.readouterr().err
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--engine", "spark"], "--engine spark fills tables but does not fit models"),
        (["--workers", "2"], "--workers has no effect with --engine local"),
        (["--engine", "ray", "--report", "r.html"], "--report needs the whole table"),
    ],
)
def test_flags_that_do_not_go_with_a_fit_are_refused(place, capsys, flags, words) -> None:
    assert main(["fit", "rows.parquet", "-o", "n.mcflow", *flags]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", [["impute", "-o", "out", "--model", "m.mcflow"], ["fit", "-o", "n.mcflow"]])
def test_ray_without_an_address_starts_nothing_and_says_how_to(place, capsys, monkeypatch, command) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'mcflow-impute[ray]'")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("started a cluster"))
    assert main([command[0], "rows.parquet", *command[1:], "--engine", "ray"]) == 2
    said = capsys.readouterr().err
    assert "local to start one on this machine" in said
    assert "--address" in said


@pytest.mark.parametrize(
    ("flags", "module", "wanted"),
    [
        (["--engine", "ray", "--address", "h:1", "--workers", "3"], "ray", {"address": "h:1", "workers": 3}),
        (["--engine", "spark", "--address", "local[3]"], "spark", {"master": "local[3]"}),
        (["--engine", "spark"], "spark", {"master": None}),
    ],
)
def test_the_engine_that_is_named_fills(place, monkeypatch, capsys, flags, module, wanted) -> None:
    asked = {}

    def fill(source, output, scorer, **given):
        asked.update(given, source=source, output=output)
        return StreamOutcome(1, 0, 80, 2.0)

    monkeypatch.setattr(f"mcflow.engines.{module}.impute_dataset", fill)
    command = ["impute", "rows.parquet", "-o", "out", "--model", "m.mcflow", "--draws", "2", "--seed", "4"]
    assert main([*command, *flags]) == 0
    assert "40 rows per second" in capsys.readouterr().out
    assert {name: asked[name] for name in wanted} == wanted
    assert (asked["draws"], asked["seed"], str(asked["source"]), str(asked["output"])) == (2, 4, "rows.parquet", "out")


def test_ray_fits_with_two_workers_and_its_model_is_saved(place, monkeypatch) -> None:
    from mcflow.engines import fit_dataset

    asked = {}

    def fit(source, imputer, **given):
        asked.update(given)
        return fit_dataset(source, imputer)

    monkeypatch.setattr("mcflow.engines.ray_fit.fit_dataset", fit)
    flags = ["--max-epochs", "1", "-q", "--checkpoint-dir", "state"]
    assert main(["fit", "rows.parquet", "-o", "n.mcflow", "--engine", "ray", "--address", "auto", *flags]) == 0
    assert asked == {"address": "auto", "workers": 2}
    assert (place / "n.mcflow").is_file()


def test_engines_are_imported_without_those_of_others() -> None:
    script = "import sys, mcflow.engines, mcflow.cli.options; print({'ray', 'pyspark'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
