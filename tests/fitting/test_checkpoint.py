"""An interrupted fit resumes and ends with the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mcflow import MCFlowImputer, load
from mcflow.errors import CheckpointError, ModelFileError
from mcflow.fitting.checkpoint import FILE_NAME, Checkpointer
from mcflow.masked.config import MaskedConfig
from mcflow.masked.network import MaskedTrainer
from mcflow.paper.algorithm import Trainer

SCRIPT = """
import sys, numpy as np
from mcflow import MCFlowImputer
from mcflow.fitting.checkpoint import Checkpointer
preset, table = sys.argv[1], np.load(sys.argv[2])
if preset == "default":
    Checkpointer.__init__.__defaults__ = (0.0,)
more = {"max_epochs": 60, "tolerance": 0} if preset == "paper" else {"max_epochs": 10}
for folder, model in zip(sys.argv[3::2], sys.argv[4::2]):
    MCFlowImputer(preset=preset, random_state=5, checkpoint_dir=folder, **more).fit(table).save(model)
"""


@pytest.fixture
def trainer(preset: str, monkeypatch: pytest.MonkeyPatch) -> type[Trainer] | type[MaskedTrainer]:
    """The preset's trainer; one without refills writes after every epoch instead of now and then."""
    if preset == "paper":
        return Trainer
    monkeypatch.setattr(Checkpointer.__init__, "__defaults__", (0.0,))
    return MaskedTrainer


def assert_same_bits(one: MCFlowImputer, other: MCFlowImputer) -> None:
    assert one.model_.is_fitted
    mine, theirs = one.model_.tensors(), other.model_.tensors()
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert mine[name].tobytes() == theirs[name].tobytes(), name


def stop_after(trainer: type[Trainer] | type[MaskedTrainer], n_epochs: int, patch: pytest.MonkeyPatch) -> None:
    run = trainer._run_epoch

    def stopping(self: Trainer | MaskedTrainer) -> None:
        if self.epoch >= n_epochs:
            raise StoppedError
        run(self)

    patch.setattr(trainer, "_run_epoch", stopping)


class StoppedError(Exception):
    pass


@pytest.fixture(scope="module")
def whole(table, quick) -> MCFlowImputer:
    """A fit that was not stopped."""
    return quick(max_epochs=7).fit(table)


@pytest.mark.parametrize("n_epochs", [1, 3, 4, 6])
def test_stopped_fit_resumes_to_the_same_bits(table, whole, tmp_path, monkeypatch, n_epochs, quick, trainer) -> None:
    resumable = quick(max_epochs=7, checkpoint_dir=tmp_path)
    with monkeypatch.context() as patch:
        stop_after(trainer, n_epochs, patch)
        with pytest.raises(StoppedError):
            resumable.fit(table)
    counted, run = [], trainer._run_epoch

    def counting(self: Trainer | MaskedTrainer) -> None:
        counted.append(self.epoch)
        run(self)

    monkeypatch.setattr(trainer, "_run_epoch", counting)
    resumable.fit(table)
    assert counted[0] > 0, "the fit went on instead of starting again"
    assert_same_bits(whole, resumable)
    assert (whole.transform(table) == resumable.transform(table)).all()
    for name in ("flow_loss", "latent_loss", "validation_error"):
        assert whole.history_.column(name) == resumable.history_.column(name)


@pytest.mark.slow_for_paper
def test_killed_process_resumes_to_the_same_bits(table, tmp_path: Path, preset) -> None:
    np.save(tmp_path / "table.npy", table)
    folder = tmp_path / "checkpoints"
    command = [sys.executable, "-c", SCRIPT, preset, str(tmp_path / "table.npy"), str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, str(tmp_path / "killed.mcflow")], env=environment)
    deadline = time.monotonic() + 60
    while not (folder / FILE_NAME).is_file():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed.mcflow").exists()
    resumed, whole = tmp_path / "resumed.mcflow", tmp_path / "whole.mcflow"
    subprocess.run([*command, str(resumed), str(tmp_path / "other"), str(whole)], env=environment, check=True)
    assert_same_bits(load(resumed), load(whole))
    assert not list(folder.glob(".*"))


def test_finished_fit_is_not_done_again(table, tmp_path, monkeypatch, quick, trainer) -> None:
    first = quick(checkpoint_dir=tmp_path).fit(table)
    monkeypatch.setattr(trainer, "_run_epoch", lambda self: pytest.fail("trained again"))
    again = quick(checkpoint_dir=tmp_path).fit(table)
    assert_same_bits(first, again)


def test_fit_without_a_seed_resumes_with_the_seed_it_had(table, tmp_path, quick) -> None:
    first = quick(random_state=None, checkpoint_dir=tmp_path).fit(table)
    again = quick(random_state=None, checkpoint_dir=tmp_path).fit(table)
    assert first.seed_ == again.seed_
    assert_same_bits(first, again)


@pytest.mark.parametrize(
    "change",
    [{"random_state": 2}, {"max_epochs": 4}, {"batch_size": 7}, {"learning_rate": 0.01}, {"bounds": {0: (-9, 9)}}],
)
def test_checkpoint_of_other_settings_is_refused(table, tmp_path, change, quick) -> None:
    quick(checkpoint_dir=tmp_path).fit(table)
    with pytest.raises(CheckpointError, match="another table or with other settings"):
        quick(checkpoint_dir=tmp_path, **change).fit(table)


def test_checkpoint_of_another_preset_is_refused(table, tmp_path) -> None:
    MCFlowImputer(preset="paper", max_epochs=2, random_state=1, checkpoint_dir=tmp_path).fit(table)
    with pytest.raises(CheckpointError, match="another table or with other settings"):
        MCFlowImputer(max_epochs=2, random_state=1, checkpoint_dir=tmp_path).fit(table)


def test_checkpoint_of_another_table_is_refused(table, tmp_path, quick) -> None:
    imputer = quick(checkpoint_dir=tmp_path).fit(table)
    other = table.copy()
    other[np.unravel_index(np.nanargmax(other), other.shape)] += 1
    with pytest.raises(CheckpointError, match="Choose another checkpoint_dir"):
        imputer.fit(other)


def test_broken_checkpoint_is_named(table, tmp_path, quick) -> None:
    imputer = quick(checkpoint_dir=tmp_path).fit(table)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-9])
    filled = imputer.transform(table)
    with pytest.raises(ModelFileError, match=FILE_NAME):
        imputer.fit(table)
    assert (imputer.transform(table) == filled).all(), "a fit that fails leaves the earlier one as it was"


def test_stopped_fit_of_categories_resumes_to_the_same_probabilities(tmp_path, monkeypatch, quick, trainer) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=200), "town": rng.choice(["a", "b", "c"], 200)})
    frame.loc[::5, "town"] = None
    whole = quick(max_epochs=4).fit(frame)
    resumable = quick(max_epochs=4, checkpoint_dir=tmp_path)
    with monkeypatch.context() as patch:
        stop_after(trainer, 2, patch)
        with pytest.raises(StoppedError):
            resumable.fit(frame)
    resumable.fit(frame)
    pd.testing.assert_frame_equal(whole.predict_proba(frame)["town"], resumable.predict_proba(frame)["town"])


def test_fit_stopped_in_the_flow_resumes_to_the_same_bits(table, tmp_path, monkeypatch) -> None:
    """The flow of the default preset is fitted after H, when the checkpoint has all of H."""
    settings = {"max_epochs": 3, "random_state": 1, "density": True}
    whole = MCFlowImputer(**settings).fit(table)

    def stop(*_: object, **__: object) -> None:
        raise StoppedError

    resumable = MCFlowImputer(**settings, checkpoint_dir=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("mcflow.masked.flow.JointDensity.fit", stop)
        with pytest.raises(StoppedError):
            resumable.fit(table)
    monkeypatch.setattr(MaskedTrainer, "_run_epoch", lambda self: pytest.fail("H was trained again"))
    assert_same_bits(whole, resumable.fit(table))


def test_fit_that_stops_early_resumes_to_the_same_bits(tmp_path, monkeypatch) -> None:
    """Noise: the validation error does not improve, and the best state is kept, not the last one."""
    rows = np.random.default_rng(0).normal(size=(60, 3))
    settings = {
        "preset": MaskedConfig(width=16, n_members=2),
        "max_epochs": 80,
        "learning_rate": 0.05,
        "random_state": 1,
    }
    whole = MCFlowImputer(**settings).fit(rows)
    assert whole.history_.ending == "early_stopping"
    monkeypatch.setattr(Checkpointer.__init__, "__defaults__", (0.0,))
    resumable = MCFlowImputer(**settings, checkpoint_dir=tmp_path)
    with monkeypatch.context() as patch:
        stop_after(MaskedTrainer, whole.n_epochs_ - 2, patch)
        with pytest.raises(StoppedError):
            resumable.fit(rows)
    assert_same_bits(whole, resumable.fit(rows))
    assert resumable.n_epochs_ == whole.n_epochs_
