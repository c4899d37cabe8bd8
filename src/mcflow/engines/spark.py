"""Fill tables with Spark: files of any size, or a Spark DataFrame."""

from __future__ import annotations

__all__ = ["impute", "impute_dataset"]

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa

from mcflow.engines.background import call_every
from mcflow.engines.jobs import FillJob, JobOptions, StreamOutcome, open_job, run_job
from mcflow.engines.passthrough import DRAW, RowFiller
from mcflow.engines.scorer import Scorer, as_scorer
from mcflow.engines.spark_session import BroadcastModel, broadcast, context_of, need_spark, session, worker_errors
from mcflow.errors import DataError, McflowError, OutputError
from mcflow.files.partitioned import BATCH_ROWS, TablePart
from mcflow.imputers import MCFlowImputer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: Seconds between two counts of the completed parts.
POLL_SECONDS = 1.0


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
    context = context_of(df)
    scorer = as_scorer(model)
    filler = RowFiller.of(df.columns, scorer, draws, seed)
    schema = _schema(df, scorer, filler)
    return df.mapInArrow(partial(_filled, broadcast(context, scorer), filler), schema)


def _schema(df: DataFrame, scorer: Scorer, filler: RowFiller) -> StructType:
    """Return the schema of the filled frame; types that cannot hold the filled values differ from the input."""
    from pyspark.sql.types import IntegerType, StructField, StructType

    known = filler.known
    given = df.select([df[f"`{name.replace('`', '``')}`"] for name in known]).limit(0).toArrow().schema
    made = scorer.schema(given)
    other = [k for k, field in enumerate(made) if field.name in known and field.type != given.field(field.name).type]
    for name in (made.field(k).name for k in other):
        if pa.types.is_string(made.field(name).type) != pa.types.is_string(given.field(name).type):
            raise DataError(
                f"Column {name!r} has type {given.field(name).type}, but the model fills it with values of type "
                f"{made.field(name).type}. Convert it to the type that it had at fit."
            )
    types = {field.name: field for field in df.schema}
    for field in df.sparkSession.createDataFrame(made.empty_table().select(other)).schema if other else []:
        types[field.name] = StructField(field.name, field.dataType, types[field.name].nullable)
    dropped = set(known) - set(made.names)
    fields = [types[name] for name in df.columns if name not in dropped]
    return StructType([*fields, StructField(DRAW, IntegerType(), nullable=False)] if filler.draws else fields)


def _filled(model: BroadcastModel, filler: RowFiller, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fill the batches of a partition."""
    scorer, made = model.scorer(), None
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
        with session(master) as spark, worker_errors("fill all parts"), counting:
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
        job.do(part, model.scorer())
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
