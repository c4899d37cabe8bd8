"""Fits on a Ray cluster: the model of a fit without it, and the same one after a worker was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcflow import MCFlowImputer
from mcflow.engines import Scorer, fit_dataset, ray_fit
from mcflow.errors import DataError, McflowWarning, ParameterError, TrainingError
from mcflow.fitting.checkpoint import Checkpointer

# Ray warns of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Careful(MCFlowImputer):
    """Writes a checkpoint after every epoch."""

    def _listeners(self, *given):
        found = super()._listeners(*given)
        for one in found:
            if isinstance(one, Checkpointer):
                one._every = 0.0
        return found


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(300, 1))
    values = base + 0.5 * rng.normal(size=(300, 4))
    missing = rng.random(values.shape) < 0.2
    table = pa.table({f"c{k}": pa.array(values[:, k], mask=missing[:, k]) for k in range(4)})
    path = tmp_path_factory.mktemp("source") / "rows.parquet"
    pq.write_table(table, path)
    return path


def fingerprint(imputer: MCFlowImputer) -> str:
    return Scorer(imputer).fingerprint()


def losses(imputer: MCFlowImputer) -> np.ndarray:
    return np.array([epoch.latent_loss for epoch in imputer.history_.epochs])


@pytest.mark.slow
def test_one_worker_gives_the_model_of_a_fit_without_ray(ray_cluster, source, capsys) -> None:
    wanted = fit_dataset(source, MCFlowImputer(max_epochs=2, random_state=3), sample_rows=200)
    imputer = MCFlowImputer(max_epochs=2, random_state=3, verbose="json")
    found = ray_fit.fit_dataset(source, imputer, workers=1, sample_rows=200)
    assert found is imputer
    assert fingerprint(found) == fingerprint(wanted)
    assert found.checkpoint_dir is None
    assert '"event": "epoch"' in capsys.readouterr().err


@pytest.fixture(scope="module")
def of_two(ray_cluster, source) -> MCFlowImputer:
    return ray_fit.fit_dataset(source, MCFlowImputer(max_epochs=6, random_state=3), workers=2)


def test_two_workers_have_the_loss_curve_of_one(of_two, source) -> None:
    alone = fit_dataset(source, MCFlowImputer(max_epochs=6, random_state=3))
    np.testing.assert_allclose(losses(of_two), losses(alone), rtol=0.02)
    assert len(losses(of_two)) > 0
    rows = pq.read_table(source)
    ours, theirs = (np.column_stack(list(one.transform(rows).to_pydict().values())) for one in (of_two, alone))
    np.testing.assert_allclose(ours, theirs, atol=0.05)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="finds the worker by /proc")
def test_killed_worker_is_replaced_and_the_fit_goes_on_to_the_same_model(
    ray_cluster, ray_processes, of_two, source, tmp_path
) -> None:
    ray_cluster.cloudpickle.register_pickle_by_value(sys.modules[Careful.__module__])
    progress, killed = tmp_path / "fit" / ray_fit.PROGRESS, []

    def epochs() -> int:
        return progress.read_text().count('"event": "epoch"') if progress.exists() else 0

    def kill() -> None:
        deadline = time.monotonic() + 120
        while epochs() < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        killed.append(ray_processes("TrainWorker")[-1])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    imputer = Careful(max_epochs=6, random_state=3, verbose="json")
    found = ray_fit.fit_dataset(source, imputer, workers=2, storage=tmp_path / "fit")
    killer.join()
    assert killed
    assert progress.read_text().count('"event": "begin"') == 2, "began again"
    assert epochs() < 2 * 6, "but not from the beginning"
    assert fingerprint(found) == fingerprint(of_two)


# ---------------------------------------------------------------- without a cluster


class Machines:
    """A Ray with machines, of which nothing is asked but how many there are."""

    def __init__(self, machines: int, cpus: int) -> None:
        self.found, self.cpus = machines, cpus

    def nodes(self):
        return [{"NodeManagerAddress": str(k), "Alive": True} for k in range(self.found)]

    def cluster_resources(self):
        return {"CPU": float(self.cpus)}


def test_error_of_a_worker_comes_back_as_it_is_and_is_not_tried_again(source, tmp_path) -> None:
    fit = {
        "source": source,
        "imputer": ray_fit._to_send(MCFlowImputer(bounds={"c0": (5, 6)}), tmp_path),
        "sample_rows": 1000,
    }
    ray_fit._fit_worker({"home": tmp_path, "fit": fit})
    before = (tmp_path / ray_fit.ERROR).stat().st_mtime_ns
    with pytest.raises(DataError, match="c0"):
        ray_fit._raise_error_in(tmp_path)
    ray_fit._fit_worker({"home": tmp_path, "fit": fit})
    assert (tmp_path / ray_fit.ERROR).stat().st_mtime_ns == before


def test_worker_that_lost_the_others_is_left_to_ray(source, tmp_path, monkeypatch) -> None:
    def lose(*_, **__):
        raise TrainingError("lost the others") from RuntimeError("connection closed")

    monkeypatch.setattr(ray_fit.local, "fit_dataset", lose)
    fit = {"source": source, "imputer": ray_fit._to_send(MCFlowImputer(random_state=0), tmp_path), "sample_rows": 1000}
    with pytest.raises(TrainingError, match="lost the others"):
        ray_fit._fit_worker({"home": tmp_path, "fit": fit})
    assert not (tmp_path / ray_fit.ERROR).exists()


def test_several_machines_need_a_folder_that_all_see(tmp_path) -> None:
    with contextlib.ExitStack() as stack:
        with pytest.raises(ParameterError, match="2 machines, so the fit needs a folder"):
            ray_fit._home(Machines(2, 4), None, stack)
        passing = ray_fit._home(Machines(1, 4), None, stack)
        assert passing.is_dir()
        (tmp_path / ray_fit.ERROR).touch()
        assert ray_fit._home(Machines(2, 4), tmp_path, stack) == tmp_path
    assert not list(tmp_path.iterdir())
    assert not passing.exists()


def test_more_workers_than_the_cluster_has_room_for_are_said() -> None:
    with pytest.warns(McflowWarning, match="has 4 CPUs and 3 workers need 6"):
        ray_fit._check_resources(Machines(1, 4), 3, 2, False)


def test_workers_that_die_too_often_end_the_fit_with_what_to_do(source, tmp_path, monkeypatch) -> None:
    pytest.importorskip("ray")
    from ray.train.torch import TorchTrainer

    def fail(self):
        raise RuntimeError("Training failed\nWorker 1 was gone.")

    monkeypatch.setattr(TorchTrainer, "fit", fail)
    fit = {"source": source, "imputer": ray_fit._to_send(MCFlowImputer(random_state=0), tmp_path), "sample_rows": 10}
    with pytest.raises(TrainingError, match=r"failed more than 3 times: Worker 1 was gone\. With `storage`"):
        ray_fit._run(tmp_path, fit, {"num_workers": 1}, 3)
