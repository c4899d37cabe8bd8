"""Fit on a Ray cluster: Ray Train's workers share every batch, and go on from the last checkpoint when one dies."""

from __future__ import annotations

__all__ = ["fit_dataset"]

import contextlib
import copy
import json
import secrets
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.base import clone

from mcflow.config import Interval, check_parameter
from mcflow.data.files import replacing
from mcflow.data.parts import find_files
from mcflow.data.survey import SAMPLE_ROWS
from mcflow.engines import local_fit
from mcflow.engines.pipeline import repeated
from mcflow.engines.ray_cluster import connected, hushed
from mcflow.errors import McflowError, McflowWarning, ParameterError, TrainingError, error_named
from mcflow.imputers import MCFlowImputer
from mcflow.imputers.fitting import fit_seed
from mcflow.imputers.persistence import load_table_model

#: Files in the folder of a fit: the model, what went wrong, and the lines that show the progress.
MODEL, ERROR, PROGRESS = "model.mcflow", "error.json", "progress.log"

#: Seconds between two looks at the lines that the first worker has written.
LOOK_EVERY = 1.0


def fit_dataset(
    source: str | Path,
    imputer: MCFlowImputer,
    *,
    address: str | None = None,
    workers: int = 2,
    use_gpu: bool = False,
    cpus_per_worker: int = 1,
    storage: str | Path | None = None,
    max_failures: int = 3,
    sample_rows: int = SAMPLE_ROWS,
    folder: str | Path | None = None,
) -> MCFlowImputer:
    """Fit on files of any size with the workers of a Ray cluster.

    Parameters
    ----------
    source : path-like
        A file, a folder or a pattern; see `mcflow.data.parts.find_files`.
    imputer : MCFlowImputer
        With the preset "default"; it is fitted in place.
    address : str, optional
        Of the cluster; see `mcflow.engines.ray_cluster.connected`. "local" starts one on this machine for this call.
    workers : int, default=2
        Processes that share every batch.
    use_gpu : bool, default=False
        Whether each of them gets a GPU of its own.
    cpus_per_worker : int, default=1
        CPUs of each, and threads it computes with.
    storage : path-like, optional
        A folder for the model and the fit's state that all machines of the cluster see; by default the imputer's
        `checkpoint_dir`. On a single machine both can be left out, and a passing folder is used.
    max_failures : int, default=3
        How often workers may die before the fit is given up.
    sample_rows : int
        Rows that each worker keeps in memory; see `mcflow.engines.fit_dataset`.
    folder : path-like, optional
        Where each machine keeps all rows during the fit, with five bytes a cell.

    Returns
    -------
    MCFlowImputer
        The imputer.

    Raises
    ------
    TrainingError
        When workers died too often, or a loss is no longer a number.
    ParameterError
        When there is neither an address nor a connection, or when several machines need a `storage`.

    Notes
    -----
    One worker gives the model that `mcflow.engines.fit_dataset` gives, bit for bit on as many threads; several have the
    same loss curve, to rounding. The checkpoints of the fit are in the imputer's `checkpoint_dir`, by default below
    `storage`. When a worker dies, all of them are started anew and go on from the last one, to the same model. On
    several machines, the source has to be where all of them see it under the same name.
    """
    for name, value in (("workers", workers), ("cpus_per_worker", cpus_per_worker)):
        check_parameter(name, value, Interval(int, 1))
    find_files(source)
    with connected(address, cpus=workers * cpus_per_worker) as ray, contextlib.ExitStack() as stack:
        _look_at(ray, workers, cpus_per_worker, use_gpu)
        home = _home(ray, storage or imputer.checkpoint_dir, stack)
        task = _task(Path.cwd() / source, imputer, home, sample_rows, folder)
        sizes: dict[str, Any] = {"num_workers": workers, "use_gpu": use_gpu}
        sizes["resources_per_worker"] = {"CPU": cpus_per_worker} | ({"GPU": 1} if use_gpu else {})
        stack.enter_context(hushed())
        stack.enter_context(repeated(_copying(home / PROGRESS), LOOK_EVERY))
        _run(task, sizes, max_failures)
        return _taken_over(imputer, home / MODEL)


@dataclass(frozen=True)
class _FitTask:
    """What every worker has to know."""

    source: Path
    imputer: MCFlowImputer
    home: Path
    sample_rows: int
    folder: Path | None


def _look_at(ray: Any, workers: int, cpus: int, use_gpu: bool) -> None:
    """Warn when the cluster has to grow before the fit can begin."""
    there = ray.cluster_resources()
    for name, needed in {"CPU": workers * cpus, "GPU": workers if use_gpu else 0}.items():
        if there.get(name, 0) < needed:
            warnings.warn(
                f"The cluster has {there.get(name, 0):g} {name}s and {workers} workers need {needed}: the fit waits "
                "until it has grown. Give fewer workers if it does not.",
                McflowWarning,
                stacklevel=3,
            )


def _home(ray: Any, storage: str | Path | None, stack: contextlib.ExitStack) -> Path:
    """Return the folder of the fit, without what an earlier one has left there but for its state."""
    if storage is None:
        machines = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        if len(machines) > 1:
            raise ParameterError(
                f"The cluster has {len(machines)} machines, so the fit needs a folder that all of them see. Give "
                "storage= (on the command line --checkpoint-dir)."
            )
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcflow-fit-")))
    home = Path.cwd() / storage
    home.mkdir(parents=True, exist_ok=True)
    for name in (MODEL, ERROR, PROGRESS):
        (home / name).unlink(missing_ok=True)
    return home


def _task(source: Path, imputer: MCFlowImputer, home: Path, sample_rows: int, folder: str | Path | None) -> _FitTask:
    """Return what the workers do, with a seed and a folder for checkpoints that all of them know."""
    state = Path.cwd() / (imputer.checkpoint_dir or home / "state")
    # A fit that goes on from an earlier model has to take it along.
    sent = copy.copy(imputer) if imputer.warm_start else clone(imputer)
    shown = "plain" if imputer.verbose in (True, "auto") else imputer.verbose
    sent.set_params(checkpoint_dir=str(state), random_state=fit_seed(imputer.random_state, state), verbose=shown)
    return _FitTask(source, sent, home, sample_rows, None if folder is None else Path.cwd() / folder)


def _run(task: _FitTask, sizes: dict[str, Any], max_failures: int) -> None:
    """Let Ray Train do a task."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    run = RunConfig(
        name=f"run-{secrets.token_hex(4)}",  # Ray would take up an earlier run of the same name
        storage_path=str(task.home / "ray"),
        failure_config=FailureConfig(max_failures=max_failures),
    )
    trainer = TorchTrainer(
        _fit_together, train_loop_config={"task": task}, scaling_config=ScalingConfig(**sizes), run_config=run
    )
    try:
        trainer.fit()
    except Exception as error:  # Ray has several kinds, which differ from version to version
        _raise_error_in(task.home)
        why = (str(error).strip().splitlines() or [type(error).__name__])[-1].rstrip(". ")
        raise TrainingError(
            f"The workers of the fit died more than {max_failures} times: {why}. With a folder for storage or for "
            "checkpoints, the same call goes on from the last checkpoint."
        ) from error
    _raise_error_in(task.home)


def _fit_together(config: dict[str, Any]) -> None:
    """Be one of the workers."""
    from mcflow.training.parallel import joined

    task: _FitTask = config["task"]
    if (task.home / ERROR).exists():
        return
    try:
        with joined() as workers, _written(task.home / PROGRESS if workers.is_first else None):
            fitted = local_fit.fit_dataset(task.source, task.imputer, sample_rows=task.sample_rows, folder=task.folder)
            if workers.is_first:
                fitted.save(task.home / MODEL)
    except (McflowError, OSError) as error:
        # A worker that lost the others is a matter for Ray. Trying again does not help with anything else.
        if isinstance(error, TrainingError) and error.__cause__ is not None:
            raise
        with replacing(task.home / ERROR) as temporary:
            temporary.write_text(json.dumps({"kind": type(error).__name__, "words": str(error)}))


def _raise_error_in(home: Path) -> None:
    """Raise the error that a worker has left in a folder, if there is one."""
    if (home / ERROR).exists():
        said = json.loads((home / ERROR).read_text())
        raise error_named(said["kind"])(said["words"])


def _taken_over(imputer: MCFlowImputer, path: Path) -> MCFlowImputer:
    """Give an imputer what another one, which is in a file, has learned."""
    fitted, parameters = load_table_model(path, device=imputer.device), imputer.get_params()
    imputer.__dict__.update({name: value for name, value in vars(fitted).items() if name not in parameters})
    return imputer


# ---------------------------------------------------------------- progress


@contextlib.contextmanager
def _written(path: Path | None) -> Iterator[None]:
    """Append what a block writes to standard error to a file."""
    if path is None:
        yield
        return
    with path.open("a", buffering=1) as file, contextlib.redirect_stderr(file):
        yield


def _copying(path: Path) -> Callable[[], None]:
    """Return what copies the new lines of a file that grows to standard error."""
    place = [0]

    def copy_on() -> None:
        if path.exists():
            with path.open() as file:
                file.seek(place[0])
                sys.stderr.write(file.read())
                place[0] = file.tell()

    return copy_on
