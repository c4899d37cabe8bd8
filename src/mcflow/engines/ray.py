"""Fill tables on a Ray cluster: parts of files that actors write whole, or batches of a Ray dataset."""

from __future__ import annotations

__all__ = ["PartDone", "fill", "fill_parts", "impute_dataset"]

import glob
import inspect
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mcflow.config import Interval, check_parameter
from mcflow.data.parts import BATCH_ROWS, PART_ROWS, TablePart
from mcflow.engines.carried import RowFilling
from mcflow.engines.jobs import FillJob, StreamOutcome, run_job
from mcflow.engines.packed import PackedModel, as_scorer
from mcflow.engines.ray_cluster import connected, hushed, need_ray
from mcflow.engines.scorer import Scorer
from mcflow.errors import EngineError, McflowError, error_named
from mcflow.imputers import MCFlowImputer

#: How often a part is tried again whose actor has died, before the run is given up.
RETRIES = 5

Model = Scorer | MCFlowImputer | str | Path


def impute_dataset(
    source: str | Path,
    output: str | Path,
    model: Model,
    *,
    draws: int | None = None,
    seed: int = 0,
    address: str | None = None,
    workers: int | None = None,
    use_gpu: bool = False,
    part_rows: int = PART_ROWS,
    listen: Callable[[int, int], None] = lambda done, total: None,
) -> StreamOutcome:
    """Fill files of any size with the workers of a Ray cluster.

    Parameters
    ----------
    source : path-like
        A file, a folder or a pattern; see `mcflow.data.parts.find_files`.
    output : path-like
        The folder of the result.
    model : Scorer, MCFlowImputer or path-like
        Fitted, or the file of a fitted one. It goes to the workers through Ray's object store, once.
    draws : int, optional
        Multiple imputation: write this many tables, in folders ``draw=1``, ``draw=2`` and so on.
    seed : int, default=0
        Decides the draws.
    address : str, optional
        Of the cluster; see `mcflow.engines.ray_cluster.connected`. "local" starts one on this machine for this call.
    workers : int, optional
        Actors that hold the model and fill parts; by default one for each CPU (or GPU) of the cluster.
    use_gpu : bool, default=False
        Whether each of them gets a GPU of its own.
    part_rows : int
        Rows after which a part ends; by default two million. There should be several parts for each worker.
    listen : callable, optional
        Called with the rows that are done and all rows, after each part.

    Returns
    -------
    StreamOutcome

    Raises
    ------
    DataError
        When files differ in their columns, or a file is damaged.
    OutputError
        When the folder holds something else.
    ParameterError
        When there is neither an address nor a connection.
    EngineError
        When no cluster answers, or when it fails.

    Notes
    -----
    The files are those of `mcflow.engines.impute_dataset`, byte for byte, and each engine goes on where the other was
    stopped. An actor that dies is replaced, and its part is done again. On several machines, source and output have to
    be on storage that all of them see under the same name, and mcflow has to be installed on all of them.
    """
    scorer = as_scorer(model)

    def work(job: FillJob, waiting: list[TablePart], tell: Callable[[int], None]) -> None:
        rows = 0
        with connected(address, cpus=workers):
            for done in fill_parts(job, waiting, scorer, workers=workers, use_gpu=use_gpu):
                rows += done.part.n_rows
                tell(rows)
        _clean(path for part in waiting for path in job.outputs(part))

    places = Path.cwd() / source, Path.cwd() / output
    return run_job(*places, scorer, work, draws=draws, seed=seed, part_rows=part_rows, listen=listen)


def _clean(paths: Iterable[Path]) -> None:
    """Remove what actors that died have left of files that are whole now."""
    for path in paths:
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            left.unlink(missing_ok=True)


@dataclass(frozen=True)
class PartDone:
    """A part that was written.

    Parameters
    ----------
    part : TablePart
        Which one.
    worker : str
        Who did it.
    began, ended : float
        When, by that worker's clock, in seconds since 1970.
    """

    part: TablePart
    worker: str
    began: float
    ended: float


def fill_parts(
    job: FillJob, parts: Sequence[TablePart], scorer: Scorer, *, workers: int | None = None, use_gpu: bool = False
) -> Iterator[PartDone]:
    """Hand parts to actors of the cluster that this process is connected to.

    Parameters
    ----------
    job : FillJob
        From `mcflow.engines.open_job`.
    parts : sequence of TablePart
        Those to do.
    scorer : Scorer
        The model that the job was opened with.
    workers : int, optional
        How many actors; by default one for each CPU (or GPU) of the cluster.
    use_gpu : bool, default=False
        Whether each of them gets a GPU.

    Yields
    ------
    PartDone
        In the order in which they are written.

    Raises
    ------
    McflowError
        When a part cannot be done, with its name; those that are written stay.
    """
    if not parts:
        return
    ray = need_ray()
    model, work = ray.put(PackedModel.of(scorer)), ray.put((job, list(parts)))
    size = min(_count(workers, use_gpu), len(parts))
    pool = ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=1)
    with hushed():
        places = ray.data.from_items([{"part": k} for k in range(len(parts))], override_num_blocks=len(parts))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*ray_remote_args_fn")
            said = places.map(
                _PartFiller,
                fn_constructor_kwargs={"model": model, "work": work},
                compute=pool,
                **_needs(use_gpu),
                **_limit(places.map),
            )
        for row in _rows(said):
            part = parts[row["part"]]
            if row["kind"]:
                raise error_named(row["kind"])(f"{part.output}: {row['words']}")
            yield PartDone(part, row["worker"], row["began"], row["ended"])


def _rows(dataset: Any) -> Iterator[dict[str, Any]]:
    """Yield what actors say as soon as they say it."""
    from ray.exceptions import RayError

    try:
        for batch in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from batch.to_pylist()
    except RayError as error:
        why = str(error).strip().rpartition("\n")[2].rstrip(". ")
        raise EngineError(
            f"The Ray cluster could not do all parts: {why}. Those that are written stay; run the same again to go on."
        ) from error


def _limit(step: Any) -> dict[str, Any]:
    """Say how often a part may take its actor with it, to versions of Ray that can be told; others try for ever."""
    told = "ray_remote_args_fn" in inspect.signature(step).parameters
    return {"ray_remote_args_fn": _retries} if told else {}


def _retries() -> dict[str, Any]:
    return {"max_task_retries": RETRIES}


def _needs(use_gpu: bool) -> dict[str, Any]:
    return {"num_cpus": 1} | ({"num_gpus": 1} if use_gpu else {})


def _count(workers: int | None, use_gpu: bool) -> int:
    """Return how many workers there are to be, by default as many as the cluster has room for."""
    ray = need_ray()
    if workers is not None:
        check_parameter("workers", workers, Interval(int, 1))
        return workers
    return max(1, int(ray.cluster_resources().get("GPU" if use_gpu else "CPU", 1)))


class _PartFiller:
    """An actor that holds the model, and fills and writes one part after the other."""

    def __init__(self, model: Any, work: Any) -> None:
        import ray

        self._scorer = ray.get(model).scorer()
        self._job, self._parts = ray.get(work)
        self._name = f"{ray.get_runtime_context().get_node_id()}/{os.getpid()}"

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        part, began = self._parts[row["part"]], time.time()
        kind = words = ""
        try:
            # The actor before this one may have died after the last byte was written.
            if not self._job.is_done(part):
                self._job.do(part, self._scorer)
        except (McflowError, OSError, pa.ArrowException) as error:
            kind, words = type(error).__name__, str(error)
        said = {"part": row["part"], "worker": self._name, "began": began, "ended": time.time()}
        return said | {"kind": kind, "words": words}


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
    """Fill the rows of a Ray dataset, as a step of a pipeline of your own.

    Parameters
    ----------
    dataset : ray.data.Dataset
        With the columns of the fit, in any order. Columns that the model does not know are carried along.
    model : Scorer, MCFlowImputer or path-like
        Fitted, or the file of a fitted one. It goes to the workers through Ray's object store, once.
    draws : int, optional
        Multiple imputation: each row comes this many times, with the number of the draw, from 1, in a last column
        ``draw``.
    seed : int, default=0
        Decides the draws.
    workers : int, optional
        Actors that hold the model; by default from one up to the CPUs (or GPUs) of the cluster, as there is work.
    use_gpu : bool, default=False
        Whether each of them gets a GPU of its own.
    batch_rows : int
        Rows that are filled together, at most.

    Returns
    -------
    ray.data.Dataset
        With the types of the columns, wherever they can hold what is filled in.

    Notes
    -----
    Like other steps it is done when the rows are asked for. Cells and draws do not depend on the batches, to the
    rounding of float32.

    Examples
    --------
    >>> import ray  # doctest: +SKIP
    >>> from mcflow.engines.ray import fill  # doctest: +SKIP
    >>> filled = fill(ray.data.read_parquet("rows.parquet"), "model.mcflow")  # doctest: +SKIP
    >>> filled.write_parquet("filled")  # doctest: +SKIP
    """
    ray = need_ray()
    if draws is not None:
        check_parameter("draws", draws, Interval(int, 1))
    most = _count(workers, use_gpu)
    packed = ray.put(PackedModel.of(as_scorer(model)))
    pool = ray.data.ActorPoolStrategy(min_size=1 if workers is None else most, max_size=most)
    return dataset.map_batches(
        _BatchFiller,
        batch_size=batch_rows,
        batch_format="pyarrow",
        zero_copy_batch=True,
        fn_constructor_kwargs={"model": packed, "draws": draws, "seed": seed},
        compute=pool,
        **_needs(use_gpu),
    )


class _BatchFiller:
    """An actor that holds the model, and fills one batch after the other."""

    def __init__(self, model: Any, draws: int | None, seed: int) -> None:
        import ray

        self._scorer = ray.get(model).scorer()
        self._draws, self._seed = draws, seed
        self._known: dict[pa.Schema, tuple[RowFilling, pa.Schema]] = {}

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        if batch.schema not in self._known:
            work = RowFilling.of(batch.column_names, self._scorer, self._draws, self._seed)
            self._known[batch.schema] = work, self._scorer.schema(batch.select(work.known).schema)
        work, made = self._known[batch.schema]
        return work.completed(batch, self._scorer, made)
