"""What mcflow needs of Spark: a session, a model that is sent once, and errors of workers as errors of mcflow."""

from __future__ import annotations

__all__ = ["SentModel", "context_of", "need_spark", "send", "session", "told"]

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

from mcflow.engines.packed import PackedModel
from mcflow.engines.scorer import Scorer
from mcflow.errors import EngineError, McflowError, MissingExtraError, ParameterError, error_named

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

#: The line of a worker's traceback that names one of our errors, and the words after it.
_OURS = re.compile(r"^mcflow\.errors\.(\w+): (.*?)(?=\n SQLSTATE|\n\tat |\Z)", re.MULTILINE | re.DOTALL)

#: A module that a worker could not import.
_LACKING = re.compile(r"^ModuleNotFoundError: No module named '(\w+)", re.MULTILINE)


def need_spark() -> None:
    """Make sure that pyspark is there.

    Raises
    ------
    MissingExtraError
        With the line that installs it.
    """
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"Spark needs {error.name}, which is missing: pip install 'mcflow[spark]'") from error


def context_of(df: DataFrame) -> SparkContext:
    """Return what a frame's models are sent with.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Of a session whose driver is this process.

    Returns
    -------
    pyspark.SparkContext

    Raises
    ------
    ParameterError
        When it is a frame of Spark Connect, whose driver is elsewhere.
    """
    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise ParameterError(
            "This is a frame of Spark Connect, which cannot send a model to its workers. Use a session of this "
            "process, or submit the program with spark-submit."
        )
    return df.sparkSession.sparkContext


@contextlib.contextmanager
def session(master: str | None = None) -> Iterator[SparkSession]:
    """Give the session of this process, or start one for the time of a block.

    Parameters
    ----------
    master : str, optional
        Where to start it, such as ``local[4]`` or ``spark://host:7077``; by default what `spark-submit` or Spark's own
        settings say, else all cores of this machine.

    Yields
    ------
    pyspark.sql.SparkSession

    Raises
    ------
    EngineError
        When Spark does not start.
    MissingExtraError
        When pyspark is not installed.
    """
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
            # Of what pyspark can do with new versions of pandas, nothing is used here.
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            started = builder.getOrCreate()
    except Exception as error:  # Java that is not there, a master that does not answer: each has a class of its own
        raise EngineError(
            f"Spark does not start: {_reason(str(error))}. Check Java with `java -version`, and the address of the "
            "master."
        ) from error
    try:
        yield started
    finally:
        started.stop()


def _reason(text: str) -> str:
    """Return the line of an error that says most: the first of Java's own, if it comes from there."""
    lines = text.strip().splitlines() or ["no reason was given"]
    java = next((line for line in lines if line.startswith(": ")), lines[0])
    return java.removeprefix(": ").rstrip(". ")


@contextlib.contextmanager
def _own_python(master: str | None) -> Iterator[None]:
    """Have workers on this machine run the Python of this process, where nobody has said another."""
    said = {"PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"} & set(os.environ)  # the second: started by spark-submit
    if said or not (master or "local").startswith("local"):
        yield
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        yield
    finally:
        del os.environ["PYSPARK_PYTHON"]


@dataclass(frozen=True)
class SentModel:
    """A model that Spark hands to its workers.

    Parameters
    ----------
    key : str
        Differs from one model to the next.
    packed : pyspark.Broadcast
        Of a `PackedModel`; Spark sends it to each machine once.
    """

    key: str
    packed: Any = field(compare=False)

    def scorer(self) -> Scorer:
        """Build the model, once in each process.

        Returns
        -------
        Scorer
        """
        return _built(self)


@lru_cache(maxsize=4)
def _built(model: SentModel) -> Scorer:
    scorer: Scorer = model.packed.value.scorer()
    return scorer


#: Models by application and key, so that each goes to the machines once.
_SENT: dict[tuple[str, str], SentModel] = {}


def send(context: SparkContext, scorer: Scorer) -> SentModel:
    """Hand a model to Spark, once in a session.

    Parameters
    ----------
    context : pyspark.SparkContext
        Of the session.
    scorer : Scorer
        The fitted model.

    Returns
    -------
    SentModel
    """
    settings = repr(sorted(scorer.imputer.get_params(deep=False).items()))
    key = hashlib.sha256((scorer.fingerprint() + settings).encode()).hexdigest()
    place = (context.applicationId, key)
    if place not in _SENT:
        for other in [one for one in _SENT if one[0] != context.applicationId]:
            del _SENT[other]  # of a session that was stopped: a process has one at a time
        _SENT[place] = SentModel(key, context.broadcast(PackedModel.of(scorer)))
    return _SENT[place]


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Raise an error of a worker as the error of mcflow that it is.

    Parameters
    ----------
    what : str
        What Spark was to do, for the message.

    Raises
    ------
    McflowError
        Of the class that the worker raised, `EngineError` for anything else.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _translated(str(error), what) from error


def _translated(text: str, what: str) -> McflowError:
    ours = _OURS.findall(text)
    if ours:
        name, words = ours[-1]
        return error_named(name, EngineError)(words.strip())
    lacking = _LACKING.search(text)
    if lacking:
        return MissingExtraError(
            f"The Python of Spark's workers has no module {lacking[1]!r}. Install mcflow there, or send an environment "
            "with --archives, and name its Python in PYSPARK_PYTHON."
        )
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", " SQLSTATE"))]
    return EngineError(f"Spark could not {what}: {lines[-1] if lines else 'no reason was given'}.")
