"""Fit on a Ray cluster: workers of Ray Train share every batch and restart from the last checkpoint."""

from __future__ import annotations

__all__ = ["fit_dataset"]

import contextlib
import copy
import json
import secrets
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sklearn.base import clone

from mcflow.config import Interval, check_parameter
from mcflow.engines import local
from mcflow.engines.background import call_every
from mcflow.engines.ray import connected, quiet
from mcflow.errors import McflowError, McflowWarning, ParameterError, TrainingError, error_named
from mcflow.files.atomic import write_text
from mcflow.files.partitioned import find_files
from mcflow.files.survey import SAMPLE_ROWS
from mcflow.imputers import MCFlowImputer
from mcflow.imputers.persistence import load_table_model
from mcflow.imputers.presets import fit_seed

MODEL = "model.mcflow"  #: File of the fitted model in the folder of a fit.
ERROR = "error.json"  #: File of an error that a worker has raised.
PROGRESS = "progress.log"  #: File of the progress lines that the first worker writes.


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
    source, imputer, sample_rows, folder
        See `mcflow.engines.fit_dataset`. Each worker holds `sample_rows` rows in memory, and each machine has its
        own `folder`.
    address : str, optional
        Address of the cluster; see `mcflow.engines.ray.impute_dataset`.
    workers : int, default=2
        Number of processes that share every batch.
    use_gpu : bool, default=False
        Whether each worker gets its own GPU.
    cpus_per_worker : int, default=1
        CPUs and threads per worker.
    storage : path-like, optional
        Folder for the model and the checkpoints that all machines of the cluster can access; by default the imputer's
        `checkpoint_dir`. On a single machine both can be omitted; a temporary folder is used then.
    max_failures : int, default=3
        Number of worker failures after which the fit fails.

    Returns
    -------
    MCFlowImputer
        The imputer.

    Raises
    ------
    TrainingError
        If workers failed too often, or a loss is not finite.
    ParameterError
        If there is neither an address nor a connection, or if a cluster of several machines has no `storage`.

    Notes
    -----
    One worker gives the model of `mcflow.engines.fit_dataset`, identical bits on the same number of threads; several
    workers have the same loss curve up to rounding. Checkpoints are in the imputer's `checkpoint_dir`, by default below
    `storage`. When a worker dies, all workers restart from the last checkpoint and reach the same model. On several
    machines, all of them must see the source under the same path.
    """
    for name, value in (("workers", workers), ("cpus_per_worker", cpus_per_worker)):
        check_parameter(name, value, Interval(int, 1))
    find_files(source)
    with connected(address, cpus=workers * cpus_per_worker) as ray, contextlib.ExitStack() as stack:
        _check_resources(ray, workers, cpus_per_worker, use_gpu)
        home = _home(ray, storage or imputer.checkpoint_dir, stack)
        fit: dict[str, Any] = {"source": Path.cwd() / source, "imputer": _to_send(imputer, home)}
        fit |= {"sample_rows": sample_rows, "folder": None if folder is None else Path.cwd() / folder}
        sizes: dict[str, Any] = {"num_workers": workers, "use_gpu": use_gpu}
        sizes["resources_per_worker"] = {"CPU": cpus_per_worker} | ({"GPU": 1} if use_gpu else {})
        stack.enter_context(quiet())
        stack.enter_context(call_every(1.0, _follow(home / PROGRESS)))
        _run(home, fit, sizes, max_failures)
        fitted, parameters = load_table_model(home / MODEL, device=imputer.device), imputer.get_params()
        imputer.__dict__.update({name: value for name, value in vars(fitted).items() if name not in parameters})
        return imputer


def _check_resources(ray: Any, workers: int, cpus: int, use_gpu: bool) -> None:
    """Warn if the cluster has fewer resources than the workers need."""
    there = ray.cluster_resources()
    for name, needed in {"CPU": workers * cpus, "GPU": workers if use_gpu else 0}.items():
        if there.get(name, 0) < needed:
            warnings.warn(
                f"The cluster has {there.get(name, 0):g} {name}s and {workers} workers need {needed}. The fit waits "
                "until the cluster has scaled up. Use fewer workers if it does not scale.",
                McflowWarning,
                stacklevel=3,
            )


def _home(ray: Any, storage: str | Path | None, stack: contextlib.ExitStack) -> Path:
    """Return the folder of the fit, and delete the files of an earlier fit except its checkpoints."""
    if storage is None:
        machines = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        if len(machines) > 1:
            raise ParameterError(
                f"The cluster has {len(machines)} machines, so the fit needs a folder that all of them can access. "
                "Give storage= (on the command line --checkpoint-dir)."
            )
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcflow-fit-")))
    home = Path.cwd() / storage
    home.mkdir(parents=True, exist_ok=True)
    for name in (MODEL, ERROR, PROGRESS):
        (home / name).unlink(missing_ok=True)
    return home


def _to_send(imputer: MCFlowImputer, home: Path) -> MCFlowImputer:
    """Return the imputer for the workers, with a common seed and checkpoint folder."""
    state = Path.cwd() / (imputer.checkpoint_dir or home / "state")
    # With `warm_start` the fitted state has to be sent too.
    sent = copy.copy(imputer) if imputer.warm_start else clone(imputer)
    shown = "plain" if imputer.verbose in (True, "auto") else imputer.verbose
    sent.set_params(checkpoint_dir=str(state), random_state=fit_seed(imputer.random_state, state), verbose=shown)
    return sent


def _run(home: Path, fit: dict[str, Any], sizes: dict[str, Any], max_failures: int) -> None:
    """Run a fit, given as the arguments of `mcflow.engines.fit_dataset`, with Ray Train."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    run = RunConfig(
        name=f"run-{secrets.token_hex(4)}",  # Ray would resume an earlier run of the same name
        storage_path=str(home / "ray"),
        failure_config=FailureConfig(max_failures=max_failures),
    )
    config = {"home": home, "fit": fit}
    trainer = TorchTrainer(_fit_worker, train_loop_config=config, scaling_config=ScalingConfig(**sizes), run_config=run)
    try:
        trainer.fit()
    except Exception as error:  # the classes differ between versions of Ray
        _raise_error_in(home)
        why = (str(error).strip().splitlines() or [type(error).__name__])[-1].rstrip(". ")
        raise TrainingError(
            f"The workers of the fit failed more than {max_failures} times: {why}. With `storage` or `checkpoint_dir`, "
            "the same call resumes from the last checkpoint."
        ) from error
    _raise_error_in(home)


def _fit_worker(config: dict[str, Any]) -> None:
    from mcflow.fitting.distributed import joined

    home: Path = config["home"]
    if (home / ERROR).exists():
        return
    try:
        with joined() as workers, contextlib.ExitStack() as stack:
            if workers.is_first:
                progress = stack.enter_context((home / PROGRESS).open("a", buffering=1))
                stack.enter_context(contextlib.redirect_stderr(progress))
            fitted = local.fit_dataset(**config["fit"])
            if workers.is_first:
                fitted.save(home / MODEL)
    except (McflowError, OSError) as error:
        # Ray restarts workers that lost the connection to the others. Other errors would only repeat.
        if isinstance(error, TrainingError) and error.__cause__ is not None:
            raise
        write_text(home / ERROR, json.dumps({"kind": type(error).__name__, "message": str(error)}))


def _raise_error_in(home: Path) -> None:
    """Raise the error that a worker has stored in a folder, if any."""
    if (home / ERROR).exists():
        stored = json.loads((home / ERROR).read_text())
        raise error_named(stored["kind"])(stored["message"])


def _follow(path: Path) -> Callable[[], None]:
    """Return a function that copies new lines of a file to standard error."""
    place = [0]

    def copy_new() -> None:
        if path.exists():
            with path.open() as file:
                file.seek(place[0])
                sys.stderr.write(file.read())
                place[0] = file.tell()

    return copy_new
