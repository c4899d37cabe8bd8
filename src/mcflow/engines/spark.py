"""Spark engine: fill files of any size or a Spark DataFrame, with a model that is broadcast once per session."""

from __future__ import annotations

__all__ = ["BroadcastModel", "broadcast", "impute", "impute_dataset", "need_spark", "worker_errors"]

import contextlib
import hashlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from mcflow.engines.background import call_every
from mcflow.engines.jobs import FillJob, JobOptions, StreamOutcome, open_job, run_job
from mcflow.engines.scorer import DRAW, RowFiller, Scorer, SerialisedModel, as_scorer
from mcflow.errors import (
    DataError,
    EngineError,
    McflowError,
    MissingExtraError,
    OutputError,
    ParameterError,
    error_named,
)
from mcflow.files.partitioned import BATCH_ROWS, TablePart
from mcflow.imputers import MCFlowImputer
from mcflow.installation import install_extra

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

POLL_SECONDS = 1.0  #: Seconds between two counts of the completed parts.
#: Name and message of an mcflow error in the traceback of a worker.
_MCFLOW_ERROR = re.compile(r"^mcflow\.errors\.(\w+): (.*?)(?=\n SQLSTATE|\n\tat |\Z)", re.MULTILINE | re.DOTALL)
#: Name of a module that a worker could not import.
_MISSING_MODULE = re.compile(r"^ModuleNotFoundError: No module named '(\w+)", re.MULTILINE)


def impute(
    df: DataFrame, model: Scorer | MCFlowImputer | str | Path, *, draws: int | None = None, seed: int = 0
) -> DataFrame:
    """Fill the missing cells of a Spark DataFrame.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Rows with the columns of the fit, in any order. Null and NaN are missing. Other columns are passed through.
    model : Scorer, MCFlowImputer or path-like
        Fitted model or model file on the driver. It is sent to each machine once per session and loaded once per
        Python worker.
    draws : int, optional
        Number of draws for multiple imputation. Each row is repeated, with the number of the draw, starting at 1, in a
        last column ``draw``. By default each row is filled once.
    seed : int, default=0
        Seed of the draws.

    Returns
    -------
    pyspark.sql.DataFrame
        Filled rows with the same columns. Column types are kept where they can hold the filled values.

    Raises
    ------
    DataError
        If a column of the fit is absent or has another type.
    MissingExtraError
        If pyspark is not installed.

    Notes
    -----
    The step uses `mapInArrow` and is lazy. Errors in single cells, such as a category that the fit has not seen, are
    raised when the rows are computed, in the message of Spark's exception. Filled values and draws do not depend on
    partitions or batches, up to float32 rounding.

    Examples
    --------
    >>> from mcflow.engines.spark import impute  # doctest: +SKIP
    >>> filled = impute(spark.read.parquet("rows"), "model.mcflow")  # doctest: +SKIP
    >>> filled.write.parquet("filled")  # doctest: +SKIP
    """
    need_spark()
    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise ParameterError(
            "A DataFrame of Spark Connect cannot send a model to its workers. Use a session of this process, or submit "
            "the program with spark-submit."
        )
    scorer = as_scorer(model)
    filler = RowFiller(df.columns, scorer, draws, seed)
    schema = _schema(df, scorer, filler)
    return df.mapInArrow(partial(_filled, broadcast(df.sparkSession.sparkContext, scorer), filler), schema)


def _schema(df: DataFrame, scorer: Scorer, filler: RowFiller) -> StructType:
    """Return the schema of the filled frame; types that cannot hold the filled values differ from the input."""
    from pyspark.sql.types import IntegerType, StructField, StructType

    known = filler.known
    given = df.select([df[f"`{name.replace('`', '``')}`"] for name in known]).limit(0).toArrow().schema
    made = scorer.schema(given)
    other = [k for k, one in enumerate(made) if one.name in known and one.type != given.field(one.name).type]
    for name in (made.field(k).name for k in other):
        if pa.types.is_string(made.field(name).type) != pa.types.is_string(given.field(name).type):
            raise DataError(
                f"Column {name!r} has type {given.field(name).type}, but the model fills it with values of type "
                f"{made.field(name).type}. Convert it to the type that it had at fit."
            )
    types = {one.name: one for one in df.schema}
    for one in df.sparkSession.createDataFrame(made.empty_table().select(other)).schema if other else []:
        types[one.name] = StructField(one.name, one.dataType, types[one.name].nullable)
    dropped = set(known) - set(made.names)
    fields = [types[name] for name in df.columns if name not in dropped]
    return StructType([*fields, StructField(DRAW, IntegerType(), nullable=False)] if filler.draws else fields)


def _filled(model: BroadcastModel, filler: RowFiller, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    scorer, made = _loaded(model), None
    for table in _gathered(batches):
        made = made or scorer.schema(table.select(filler.known).schema)
        for completed in filler.completed(table, scorer, made):
            yield from completed.to_batches()


def _gathered(batches: Iterable[pa.RecordBatch], n_rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
    """Concatenate small batches to tables of up to `n_rows` rows."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if held and sum(one.num_rows for one in held) + batch.num_rows > n_rows:
            yield pa.Table.from_batches(held)
            held = []
        held.append(batch)
    if held:
        yield pa.Table.from_batches(held)


def impute_dataset(
    source: str | Path,
    output: str | Path,
    model: Scorer | MCFlowImputer | str | Path,
    *,
    master: str | None = None,
    listen: Callable[[int, int], None] = lambda done, total: None,
    **options: Unpack[JobOptions],
) -> StreamOutcome:
    """Fill files of any size with the workers of Spark.

    Parameters
    ----------
    source, output, listen, **options
        See `mcflow.engines.impute_dataset`. `listen` is called from another thread; use several parts per core.
    model : Scorer, MCFlowImputer or path-like
        Fitted model or model file.
    master : str, optional
        Master of a new session if this process has none, such as ``local[4]`` or ``spark://host:7077``. By default the
        setting of `spark-submit` or of Spark, else all cores of this machine.

    Returns
    -------
    StreamOutcome

    Raises
    ------
    DataError, OutputError
        See `mcflow.engines.impute_dataset`.
    EngineError
        If Spark does not start or fails.
    MissingExtraError
        If pyspark is not installed, or if mcflow is not installed for Spark's workers.

    Notes
    -----
    Each part is a task. The files are identical to those of `mcflow.engines.impute_dataset`, and each engine resumes
    runs of the other. A task that fails is retried ``spark.task.maxFailures`` times. Rows that cannot be filled do not
    stop the other parts; their error is raised at the end. On several machines, source and output must be on storage
    that all of them mount under the same path.
    """
    need_spark()
    scorer = as_scorer(model)

    def work(job: FillJob, waiting: list[TablePart], notify: Callable[[int], None]) -> None:
        counting = call_every(POLL_SECONDS, _poll(job, waiting, notify))
        with _session(master) as spark, worker_errors("fill all parts"), counting:
            tasks = spark.sparkContext.parallelize(waiting, len(waiting))
            errors = tasks.map(partial(_do, job, broadcast(spark.sparkContext, scorer))).collect()
        for error in filter(None, errors):
            raise error

    places = Path.cwd() / source, Path.cwd() / output
    return run_job(open_job(*places, scorer, **options), work, listen)


def _do(job: FillJob, model: BroadcastModel, part: TablePart) -> McflowError | None:
    """Fill a part and return errors of its rows instead of raising them, which would make Spark retry in vain."""
    # A previous attempt may have died after it had written the whole part.
    if job.is_done(part):
        return None
    try:
        job.do(part, _loaded(model))
    except OutputError:
        raise  # the storage may recover before the next attempt
    except McflowError as error:
        return type(error)(f"{part.output}: {error}")
    return None


def _poll(job: FillJob, waiting: list[TablePart], notify: Callable[[int], None]) -> Callable[[], None]:
    """Return a function that counts the completed parts, since Spark returns nothing before its job ends."""
    left = list(waiting)
    total = sum(part.n_rows for part in waiting)

    def count() -> None:
        before = len(left)
        left[:] = [part for part in left if not job.is_done(part)]
        if len(left) < before:
            notify(total - sum(part.n_rows for part in left))

    return count


def need_spark() -> None:
    """Raise `MissingExtraError` if pyspark is not installed."""
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"Spark needs {error.name}, which is missing: {install_extra('spark')}") from error


@contextlib.contextmanager
def _session(master: str | None = None) -> Iterator[SparkSession]:
    """Yield the session of this process, or start one for the duration of a block."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        yield SparkSession.builder.getOrCreate()
        return
    builder = SparkSession.builder.appName("mcflow").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.log.level", "ERROR")
    builder = builder.master(master) if master else builder
    try:
        with _own_python(master), warnings.catch_warnings():
            # mcflow does not use the pandas interface of pyspark.
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            started = builder.getOrCreate()
    except Exception as error:  # no Java, no answer from the master: the classes differ
        raise EngineError(
            f"Spark does not start: {_reason(str(error))}. Check `java -version` and the address of the master."
        ) from error
    try:
        yield started
    finally:
        started.stop()


def _reason(text: str) -> str:
    """Return the first line of the Java error in a message, else the first line."""
    lines = text.strip().splitlines() or ["no reason was given"]
    java = next((line for line in lines if line.startswith(": ")), lines[0])
    return java.removeprefix(": ").rstrip(". ")


@contextlib.contextmanager
def _own_python(master: str | None) -> Iterator[None]:
    """Set `PYSPARK_PYTHON` to the Python of this process for workers on this machine, unless it is set."""
    # spark-submit sets the port of the gateway.
    is_set = {"PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"} & set(os.environ)
    if is_set or not (master or "local").startswith("local"):
        yield
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        yield
    finally:
        del os.environ["PYSPARK_PYTHON"]


@dataclass(frozen=True)
class BroadcastModel:
    """Model that Spark sends to its workers."""

    key: str  # hash of the model and its parameters
    broadcast: Any = field(compare=False)  # Spark broadcast of a `SerialisedModel`


@lru_cache(maxsize=4)
def _loaded(model: BroadcastModel) -> Scorer:
    """Load a model, once per process."""
    scorer: Scorer = model.broadcast.value.scorer()
    return scorer


_SENT: dict[tuple[str, str], BroadcastModel] = {}  #: Broadcast models by application and key, each sent once.


def broadcast(context: SparkContext, scorer: Scorer) -> BroadcastModel:
    """Broadcast a model, once per session."""
    settings = repr(sorted(scorer.imputer.get_params(deep=False).items()))
    key = hashlib.sha256((scorer.fingerprint() + settings).encode()).hexdigest()
    place = (context.applicationId, key)
    if place not in _SENT:
        for other in [one for one in _SENT if one[0] != context.applicationId]:
            del _SENT[other]  # its session was stopped: a process has one at a time
        _SENT[place] = BroadcastModel(key, context.broadcast(SerialisedModel(scorer)))
    return _SENT[place]


@contextlib.contextmanager
def worker_errors(what: str) -> Iterator[None]:
    """Raise errors of workers as the mcflow errors that they are; `what` names the task in other errors."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _translated(str(error), what) from error


def _translated(text: str, what: str) -> McflowError:
    found = _MCFLOW_ERROR.findall(text)
    if found:
        name, message = found[-1]
        return error_named(name, EngineError)(message.strip())
    missing = _MISSING_MODULE.search(text)
    if missing:
        return MissingExtraError(
            f"The Python of Spark's workers has no module {missing[1]!r}. Install mcflow there, or send an environment "
            "with --archives and set PYSPARK_PYTHON to its Python."
        )
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", " SQLSTATE"))]
    return EngineError(f"Spark could not {what}: {lines[-1] if lines else 'no reason was given'}.")
