"""Ray engine: connect to a cluster, and fill files of any size or the batches of a Ray dataset there."""

from __future__ import annotations

__all__ = ["PartDone", "connected", "fill", "fill_parts", "impute_dataset", "quiet"]

import contextlib
import glob
import inspect
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa

from mcflow.config import Interval, check_parameter
from mcflow.engines.jobs import FillJob, JobOptions, StreamOutcome, open_job, run_job
from mcflow.engines.scorer import RowFiller, Scorer, SerialisedModel, as_scorer
from mcflow.errors import EngineError, McflowError, MissingExtraError, ParameterError, error_named
from mcflow.files.partitioned import BATCH_ROWS, TablePart
from mcflow.imputers import MCFlowImputer
from mcflow.installation import install_extra

MAX_RETRIES = 5  #: Retries of a part whose actor has died before the run fails.
#: Bytes of the object store of a cluster that is started here. It holds the model and the list of parts, no rows.
_OBJECT_STORE = 256 * 2**20
#: Environment of the connection: no usage statistics, and no log lines of Ray's core on the terminal.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}

Model = Scorer | MCFlowImputer | str | Path


def impute_dataset(
    source: str | Path,
    output: str | Path,
    model: Model,
    *,
    address: str | None = None,
    workers: int | None = None,
    use_gpu: bool = False,
    listen: Callable[[int, int], None] = lambda done, total: None,
    **options: Unpack[JobOptions],
) -> StreamOutcome:
    """Fill files of any size with the workers of a Ray cluster.

    Parameters
    ----------
    source, output, listen, **options
        See `mcflow.engines.impute_dataset`. `listen` is called after each part; use several parts per worker.
    model : Scorer, MCFlowImputer or path-like
        Fitted model or model file. It is sent to the workers once, through Ray's object store.
    address : str, optional
        Address of the cluster: ``auto``, ``host:port`` or ``ray://host:port``; ``local`` starts a cluster on this
        machine for this call. By default the current connection or ``RAY_ADDRESS``.
    workers : int, optional
        Number of actors that hold the model and fill parts; by default one per CPU (or GPU) of the cluster.
    use_gpu : bool, default=False
        Whether each actor gets its own GPU.

    Returns
    -------
    StreamOutcome

    Raises
    ------
    DataError, OutputError
        See `mcflow.engines.impute_dataset`.
    ParameterError
        If there is neither an address nor a connection.
    EngineError
        If no cluster answers, or if it fails.

    Notes
    -----
    The files are identical to those of `mcflow.engines.impute_dataset`, and each engine resumes runs of the other. An
    actor that dies is replaced and its part is filled again. On several machines, source and output must be on storage
    that all of them mount under the same path, and mcflow must be installed on all of them.
    """
    scorer = as_scorer(model)

    def work(job: FillJob, waiting: list[TablePart], notify: Callable[[int], None]) -> None:
        rows = 0
        with connected(address, cpus=workers):
            for done in fill_parts(job, waiting, scorer, workers=workers, use_gpu=use_gpu):
                rows += done.part.n_rows
                notify(rows)
        for path in (path for part in waiting for path in job.outputs(part)):
            for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
                left.unlink(missing_ok=True)  # a dead actor had begun it

    places = Path.cwd() / source, Path.cwd() / output
    return run_job(open_job(*places, scorer, **options), work, listen)


@dataclass(frozen=True)
class PartDone:
    """Part that was written, with its worker and its times."""

    part: TablePart  #: The part.
    worker: str  #: Node and process that wrote it.
    began: float  #: Start by the clock of the worker, in seconds since 1970.
    ended: float  #: End by the same clock.


def fill_parts(
    job: FillJob, parts: Sequence[TablePart], scorer: Scorer, *, workers: int | None = None, use_gpu: bool = False
) -> Iterator[PartDone]:
    """Fill parts of a job with actors of the connected cluster, and yield them in the order in which they are written.

    An error names its part; parts that are written stay. See `impute_dataset` for `workers` and `use_gpu`.
    """
    if not parts:
        return
    ray = _need_ray()
    model, work = ray.put(SerialisedModel(scorer)), ray.put((job, list(parts)))
    size = min(_count(workers, use_gpu), len(parts))
    pool = ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=1)
    with quiet():
        places = ray.data.from_items([{"part": k} for k in range(len(parts))], override_num_blocks=len(parts))
        # Versions of Ray that accept no limit on retries retry without limit.
        accepted = "ray_remote_args_fn" in inspect.signature(places.map).parameters
        limit = {"ray_remote_args_fn": lambda: {"max_task_retries": MAX_RETRIES}} if accepted else {}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*ray_remote_args_fn")
            given = {"model": model, "work": work}
            answers = places.map(_PartFiller, fn_constructor_kwargs=given, compute=pool, **_needs(use_gpu), **limit)
        for row in _rows(answers):
            part = parts[row["part"]]
            if row["kind"]:
                raise error_named(row["kind"])(f"{part.output}: {row['message']}")
            yield PartDone(part, row["worker"], row["began"], row["ended"])


def _rows(dataset: Any) -> Iterator[dict[str, Any]]:
    from ray.exceptions import RayError

    try:
        for batch in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from batch.to_pylist()
    except RayError as error:
        why = str(error).strip().rpartition("\n")[2].rstrip(". ")
        raise EngineError(
            f"The Ray cluster could not fill all parts: {why}. Parts that are written stay; run the same call again to "
            "resume."
        ) from error


def _needs(use_gpu: bool) -> dict[str, Any]:
    return {"num_cpus": 1} | ({"num_gpus": 1} if use_gpu else {})


def _count(workers: int | None, use_gpu: bool) -> int:
    """Return the number of workers, by default one per CPU or GPU of the cluster."""
    ray = _need_ray()
    if workers is not None:
        check_parameter("workers", workers, Interval(int, 1))
        return workers
    return max(1, int(ray.cluster_resources().get("GPU" if use_gpu else "CPU", 1)))


class _PartFiller:
    """Actor that holds the model and writes parts."""

    def __init__(self, model: Any, work: Any) -> None:
        import ray

        self._scorer = ray.get(model).scorer()
        self._job, self._parts = ray.get(work)
        self._name = f"{ray.get_runtime_context().get_node_id()}/{os.getpid()}"

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        part, began = self._parts[row["part"]], time.time()
        kind = message = ""
        try:
            # A previous actor may have died after it had written the whole part.
            if not self._job.is_done(part):
                self._job.do(part, self._scorer)
        except (McflowError, OSError, pa.ArrowException) as error:
            kind, message = type(error).__name__, str(error)
        answer = {"part": row["part"], "worker": self._name, "began": began, "ended": time.time()}
        return answer | {"kind": kind, "message": message}


def fill(
    dataset: Any,
    model: Model,
    *,
    draws: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    use_gpu: bool = False,
    batch_rows: int = BATCH_ROWS,
) -> Any:
    """Fill the rows of a Ray dataset, as a step of a Ray pipeline.

    Parameters
    ----------
    dataset : ray.data.Dataset
        Rows with the columns of the fit, in any order. Other columns are passed through.
    model, use_gpu
        As for `impute_dataset`.
    draws : int, optional
        Number of draws for multiple imputation. Each row is repeated, with the number of the draw, starting at 1, in a
        last column ``draw``. By default each row is filled once.
    seed : int, default=0
        Seed of the draws.
    workers : int, optional
        Number of actors that hold the model; by default Ray scales from one to the number of CPUs (or GPUs).
    batch_rows : int
        Maximum number of rows per batch.

    Returns
    -------
    ray.data.Dataset
        Filled rows. Column types are kept where they can hold the filled values.

    Notes
    -----
    The step is lazy, as other steps of Ray Data are. Filled values and draws do not depend on the batches, up to
    float32 rounding.

    Examples
    --------
    >>> import ray  # doctest: +SKIP
    >>> from mcflow.engines.ray import fill  # doctest: +SKIP
    >>> filled = fill(ray.data.read_parquet("rows.parquet"), "model.mcflow")  # doctest: +SKIP
    >>> filled.write_parquet("filled")  # doctest: +SKIP
    """
    ray = _need_ray()
    if draws is not None:
        check_parameter("draws", draws, Interval(int, 1))
    most = _count(workers, use_gpu)
    serialised = ray.put(SerialisedModel(as_scorer(model)))
    pool = ray.data.ActorPoolStrategy(min_size=1 if workers is None else most, max_size=most)
    return dataset.map_batches(
        _BatchFiller,
        batch_size=batch_rows,
        batch_format="pyarrow",
        zero_copy_batch=True,
        fn_constructor_kwargs={"model": serialised, "draws": draws, "seed": seed},
        compute=pool,
        **_needs(use_gpu),
    )


class _BatchFiller:
    """Actor that holds the model and fills batches."""

    def __init__(self, model: Any, draws: int | None, seed: int) -> None:
        import ray

        self._scorer = ray.get(model).scorer()
        self._draws, self._seed = draws, seed
        self._known: dict[pa.Schema, tuple[RowFiller, pa.Schema]] = {}

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        if batch.schema not in self._known:
            filler = RowFiller(batch.column_names, self._scorer, self._draws, self._seed)
            self._known[batch.schema] = filler, self._scorer.schema(batch.select(filler.known).schema)
        filler, made = self._known[batch.schema]
        return filler.completed(batch, self._scorer, made)


@contextlib.contextmanager
def connected(address: str | None = None, *, cpus: int | None = None) -> Iterator[Any]:
    """Use the current connection to Ray, or connect to a cluster for the duration of a block."""
    ray = _need_ray()
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS")
    if not address:
        raise ParameterError(
            "No address of a Ray cluster is given. Give that of a running cluster, such as auto or host:6379, or local "
            "to start one on this machine (in Python address=..., on the command line --address)."
        )
    _connect(ray, address, cpus)
    try:
        yield ray
    finally:
        ray.shutdown()


def _need_ray() -> Any:
    """Import Ray, or raise `MissingExtraError`."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtraError(
            f"The Ray engine needs {error.name}, which is missing: {install_extra('ray')}"
        ) from error
    return ray


def _connect(ray: Any, address: str, cpus: int | None) -> None:
    own: dict[str, Any] = {}
    if address == "local":
        room = max(os.cpu_count() or 1, cpus or 1)
        own = {"num_cpus": room, "object_store_memory": _OBJECT_STORE, "include_dashboard": False}
    try:
        with _silenced():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (OSError, RuntimeError, ValueError) as error:
        if _asks_for_token(error):
            raise EngineError(
                f"The Ray cluster at {address!r} requires a token, and the token is missing or wrong. Set "
                "RAY_AUTH_MODE=token; Ray then reads the token from ~/.ray/auth_token, where `ray start` wrote it on "
                "the head node, or from the file named in RAY_AUTH_TOKEN_PATH."
            ) from error
        why = str(error).strip().partition("\n")[0].rstrip(". ")
        raise EngineError(
            f"No Ray cluster answers at {address!r}: {why}. Check the address, or give local to start one on this "
            "machine."
        ) from error


def _asks_for_token(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes is an authentication error."""
    while error is not None:
        if "AuthenticationError" in f"{type(error).__name__} {error}":
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Set the environment of the connection, and discard the standard error of the process, where Ray's core writes."""
    added = {name: value for name, value in _QUIET.items() if name not in os.environ}
    os.environ.update(added)
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Disable the progress bars and log lines of Ray Data and Ray Train for the duration of a block."""
    from ray.data import DataContext

    context, before = DataContext.get_current(), DataContext.get_current().enable_progress_bars
    loggers = [logging.getLogger(name) for name in ("ray.data", "ray.train")]
    levels = [logger.level for logger in loggers]
    context.enable_progress_bars = False
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        context.enable_progress_bars = before
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
