"""A fit that was killed goes on and ends with the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mcflow import MCFlowImputer
from mcflow.errors import CheckpointError, ModelFileError
from mcflow.training.checkpoint import FILE_NAME
from mcflow.training.loop import Trainer

SCRIPT = """
import sys, numpy as np
from mcflow import MCFlowImputer
table = np.load(sys.argv[1])
imputer = MCFlowImputer(max_epochs=600, tolerance=0, random_state=5, checkpoint_dir=sys.argv[2]).fit(table)
imputer.save(sys.argv[3])
"""


def weights(imputer: MCFlowImputer) -> list[np.ndarray]:
    return [t.detach().numpy() for s in imputer.stages_ for t in (s.flow.theta, s.mapper.phi, s.flow.masks)]


def assert_same_bits(one: MCFlowImputer, other: MCFlowImputer) -> None:
    assert len(one.stages_) == len(other.stages_)
    for mine, theirs in zip(weights(one), weights(other), strict=True):
        assert (mine == theirs).all()


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("n_epochs", [1, 3, 4, 6])
def test_stopped_fit_goes_on_to_the_same_bits(table, tmp_path, monkeypatch, n_epochs) -> None:
    whole = MCFlowImputer(max_epochs=7, random_state=1).fit(table)
    resumable = MCFlowImputer(max_epochs=7, random_state=1, checkpoint_dir=tmp_path)
    run = Trainer._run_epoch

    def stopping(self: Trainer) -> None:
        if self.epoch >= n_epochs:
            raise StoppedError
        run(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_run_epoch", stopping)
        with pytest.raises(StoppedError):
            resumable.fit(table)
    counted = []

    def counting(self: Trainer) -> None:
        counted.append(self.epoch)
        run(self)

    monkeypatch.setattr(Trainer, "_run_epoch", counting)
    resumable.fit(table)
    assert counted[0] > 0, "the fit went on instead of beginning anew"
    assert_same_bits(whole, resumable)
    assert (whole.transform(table) == resumable.transform(table)).all()
    assert whole.history_.column("flow_loss") == resumable.history_.column("flow_loss")


def test_killed_process_goes_on_to_the_same_bits(table, tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", table)
    folder = tmp_path / "checkpoints"
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "table.npy")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, str(folder), str(tmp_path / "killed.mcflow")], env=environment)
    deadline = time.monotonic() + 60
    while not (folder / FILE_NAME).is_file():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed.mcflow").exists()
    subprocess.run([*command, str(folder), str(tmp_path / "resumed.mcflow")], env=environment, check=True)
    subprocess.run([*command, str(tmp_path / "other"), str(tmp_path / "whole.mcflow")], env=environment, check=True)
    from mcflow import load

    resumed, whole = load(tmp_path / "resumed.mcflow"), load(tmp_path / "whole.mcflow")
    assert_same_bits(resumed, whole)
    assert not list(folder.glob(".*"))


def test_finished_fit_is_not_done_again(table, tmp_path, monkeypatch) -> None:
    first = MCFlowImputer(max_epochs=3, random_state=1, checkpoint_dir=tmp_path).fit(table)
    monkeypatch.setattr(Trainer, "_run_epoch", lambda self: pytest.fail("trained again"))
    again = MCFlowImputer(max_epochs=3, random_state=1, checkpoint_dir=tmp_path).fit(table)
    assert_same_bits(first, again)


def test_fit_without_a_seed_goes_on_with_the_seed_it_had(table, tmp_path) -> None:
    first = MCFlowImputer(max_epochs=2, checkpoint_dir=tmp_path).fit(table)
    again = MCFlowImputer(max_epochs=2, checkpoint_dir=tmp_path).fit(table)
    assert first.seed_ == again.seed_
    assert_same_bits(first, again)


@pytest.mark.parametrize(
    "change", [{"random_state": 2}, {"max_epochs": 4}, {"learning_rate": 0.01}, {"bounds": {0: (-9, 9)}}]
)
def test_checkpoint_of_other_settings_is_refused(table, tmp_path, change) -> None:
    settings = {"max_epochs": 3, "random_state": 1, "checkpoint_dir": tmp_path}
    MCFlowImputer(**settings).fit(table)
    with pytest.raises(CheckpointError, match="another table or with other settings"):
        MCFlowImputer(**settings | change).fit(table)


def test_checkpoint_of_another_table_is_refused(table, tmp_path) -> None:
    imputer = MCFlowImputer(max_epochs=2, random_state=1, checkpoint_dir=tmp_path).fit(table)
    other = table.copy()
    other[np.unravel_index(np.nanargmax(other), other.shape)] += 1
    with pytest.raises(CheckpointError, match="Choose another checkpoint_dir"):
        imputer.fit(other)


def test_broken_checkpoint_is_named(table, tmp_path) -> None:
    imputer = MCFlowImputer(max_epochs=2, random_state=1, checkpoint_dir=tmp_path).fit(table)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-9])
    filled = imputer.transform(table)
    with pytest.raises(ModelFileError, match=FILE_NAME):
        imputer.fit(table)
    assert (imputer.transform(table) == filled).all(), "a fit that fails leaves the earlier one as it was"


def test_stopped_fit_of_levels_goes_on_to_the_same_probabilities(tmp_path, monkeypatch) -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=200), "town": rng.choice(["a", "b", "c"], 200)})
    frame.loc[::5, "town"] = None
    whole = MCFlowImputer(max_epochs=4, random_state=1).fit(frame)
    resumable = MCFlowImputer(max_epochs=4, random_state=1, checkpoint_dir=tmp_path)
    run = Trainer._run_epoch

    def stopping(self: Trainer) -> None:
        if self.epoch >= 2:
            raise StoppedError
        run(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_run_epoch", stopping)
        with pytest.raises(StoppedError):
            resumable.fit(frame)
    resumable.fit(frame)
    pd.testing.assert_frame_equal(whole.predict_proba(frame)["town"], resumable.predict_proba(frame)["town"])
