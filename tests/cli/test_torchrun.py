"""`mcflow fit` under torchrun: the model of one process, and no harm when a worker is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mcflow import MCFlowImputer, load
from mcflow.cli.app import main

EPOCHS = 5

#: The command line, with a state kept after every epoch; a worker notes where its first epoch begins and is killed
#: before the fourth, if this is its first life.
KILLED = f"""
import os, signal, sys
from pathlib import Path
from mcflow.cli.app import run
from mcflow.fitting.checkpoint import Checkpointer
from mcflow.masked.network import MaskedTrainer

Checkpointer.__init__.__defaults__ = (0.0,)
life, rank, folder = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"], Path(sys.argv.pop(1))
run_epoch = MaskedTrainer._run_epoch

def watched(self):
    note = folder / f"life-{{life}}-rank-{{rank}}"
    if not note.exists():
        note.write_text(str(self.epoch))
    if (life, rank, self.epoch) == ("0", "1", 3):
        os.kill(os.getpid(), signal.{signal.SIGKILL.name})
    run_epoch(self)

MaskedTrainer._run_epoch = watched
run()
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(90, 1)) + 0.4 * rng.normal(size=(90, 3))
    cells = np.where(rng.random(values.shape) < 0.2, "", values.astype(str))
    path = tmp_path_factory.mktemp("torchrun") / "table.csv"
    path.write_text("\n".join(["a,b,c", *(",".join(row) for row in cells)]) + "\n")
    return path


def torchrun(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.fixture(scope="module")
def killed(table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[MCFlowImputer, str, dict[str, int]]:
    """What two workers fit of which one is killed, what they print, and the first epoch of each worker and life."""
    folder = tmp_path_factory.mktemp("killed")
    script, model = folder / "killed.py", folder / "killed.mcflow"
    script.write_text(KILLED)
    flags = ["--max-epochs", EPOCHS, "--checkpoint-dir", folder / "state", "--progress", "none"]
    done = torchrun("--max-restarts", 3, script, folder, "fit", table, "-o", model, *flags)
    assert done.returncode == 0, done.stderr
    notes = {path.name: int(path.read_text()) for path in folder.glob("life-*")}
    return load(model), done.stdout, notes


def test_fit_when_a_worker_is_killed_then_goes_on_from_the_last_state(killed) -> None:
    _, printed, notes = killed
    assert printed.count("Model written to") == 1, "only one of them prints"
    assert notes.keys() == {f"life-{life}-rank-{rank}" for life in (0, 1) for rank in (0, 1)}
    assert notes["life-1-rank-0"] == notes["life-1-rank-1"] >= 2, "it went on instead of beginning anew"


def test_fit_when_torchrun_starts_two_workers_then_is_that_of_one(table, killed) -> None:
    path = table.with_name("one.mcflow")
    assert main(["fit", str(table), "-o", str(path), "--max-epochs", str(EPOCHS), "-q"]) == 0
    one, two = load(path), killed[0]
    losses = [imputer.history_.column("latent_loss") for imputer in (one, two)]
    np.testing.assert_allclose(*losses, rtol=1e-4)
    mine, theirs = one.model_.tensors(), two.model_.tensors()
    for name in (name for name in mine if name.startswith(("mapper", "flow"))):
        np.testing.assert_allclose(mine[name], theirs[name], rtol=2e-3, atol=2e-3, err_msg=name)


@pytest.mark.slow
def test_fit_when_a_worker_is_killed_then_is_that_of_two_undisturbed_ones_bit_for_bit(table, killed) -> None:
    model = table.with_name("two.mcflow")
    done = torchrun("-m", "mcflow", "fit", table, "-o", model, "--max-epochs", EPOCHS, "--progress", "none")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Model written to") == 1, "only one of them prints"
    mine, whole = killed[0].model_.tensors(), load(model).model_.tensors()
    assert mine.keys() == whole.keys()
    for name, array in mine.items():
        assert array.tobytes() == whole[name].tobytes(), name
    assert killed[0].history_.column("validation_error") == load(model).history_.column("validation_error")


@pytest.fixture
def under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the second of two workers."""
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("command", ["impute", "evaluate", "impute-images"])
def test_other_commands_under_torchrun_are_refused(table, tmp_path, capsys, under_torchrun, command) -> None:
    assert main([command, str(table), "-o", str(tmp_path / "out.csv")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"mcflow: worker 2 of 2: torchrun has started 2 processes of `mcflow {command}`")
    assert not list(tmp_path.iterdir())


def test_fit_of_standard_input_under_torchrun_is_refused(tmp_path, capsys, under_torchrun) -> None:
    assert main(["fit", "-", "-o", str(tmp_path / "model.mcflow")]) == 2
    assert "Standard input cannot be read by several processes" in capsys.readouterr().err


def test_command_when_torchrun_starts_a_single_process_then_works(monkeypatch, capsys) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert main(["completion", "--help"]) == 0
    assert capsys.readouterr().out
