"""Spark sessions, models broadcast once per session, and errors of workers as mcflow errors."""

from __future__ import annotations

__all__ = ["BroadcastModel", "broadcast", "context_of", "need_spark", "session", "worker_errors"]

import contextlib
import hashlib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mcflow.engines.scorer import Scorer, SerialisedModel
from mcflow.errors import EngineError, McflowError, MissingExtraError, ParameterError, error_named
from mcflow.installation import install_extra

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

#: Name and message of an mcflow error in the traceback of a worker.
_MCFLOW_ERROR = re.compile(r"^mcflow\.errors\.(\w+): (.*?)(?=\n SQLSTATE|\n\tat |\Z)", re.MULTILINE | re.DOTALL)

#: Name of a module that a worker could not import.
_MISSING_MODULE = re.compile(r"^ModuleNotFoundError: No module named '(\w+)", re.MULTILINE)


def need_spark() -> None:
    """Raise `MissingExtraError` if pyspark is not installed."""
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"Spark needs {error.name}, which is missing: {install_extra('spark')}") from error


def context_of(df: DataFrame) -> SparkContext:
    """Return the Spark context of a frame, which broadcasts models."""
    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise ParameterError(
            "A DataFrame of Spark Connect cannot send a model to its workers. Use a session of this process, or submit "
            "the program with spark-submit."
        )
    return df.sparkSession.sparkContext


@contextlib.contextmanager
def session(master: str | None = None) -> Iterator[SparkSession]:
    """Yield the session of this process, or start one for the duration of a block."""
    need_spark()
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

    def scorer(self) -> Scorer:
        """Load the model, once per process."""
        return _loaded(self)


@lru_cache(maxsize=4)
def _loaded(model: BroadcastModel) -> Scorer:
    scorer: Scorer = model.broadcast.value.scorer()
    return scorer


#: Broadcast models by application and key, so that each is sent once.
_SENT: dict[tuple[str, str], BroadcastModel] = {}


def broadcast(context: SparkContext, scorer: Scorer) -> BroadcastModel:
    """Broadcast a model, once per session."""
    settings = repr(sorted(scorer.imputer.get_params(deep=False).items()))
    key = hashlib.sha256((scorer.fingerprint() + settings).encode()).hexdigest()
    place = (context.applicationId, key)
    if place not in _SENT:
        for other in [one for one in _SENT if one[0] != context.applicationId]:
            del _SENT[other]  # its session was stopped: a process has one at a time
        _SENT[place] = BroadcastModel(key, context.broadcast(SerialisedModel.of(scorer)))
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
