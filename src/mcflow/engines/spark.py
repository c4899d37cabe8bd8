"""Fill tables with Spark: a DataFrame as a step of a job, or files in parts that are written whole."""

from __future__ import annotations

__all__ = ["impute", "impute_dataset"]

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mcflow.data.parts import BATCH_ROWS, PART_ROWS, TablePart
from mcflow.engines.carried import DRAW, RowFilling
from mcflow.engines.jobs import FillJob, StreamOutcome, run_job
from mcflow.engines.packed import as_scorer
from mcflow.engines.pipeline import repeated
from mcflow.engines.scorer import Scorer
from mcflow.engines.spark_session import SentModel, context_of, need_spark, send, session, told
from mcflow.errors import DataError, McflowError, OutputError
from mcflow.imputers import MCFlowImputer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: Seconds between two looks at which parts are there.
LOOK_EVERY = 1.0


def impute(
    df: DataFrame, model: Scorer | MCFlowImputer | str | Path, *, draws: int | None = None, seed: int = 0
) -> DataFrame:
    """Fill the holes of a Spark DataFrame.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        With the columns of the fit, in any order. Null and NaN are missing. Columns that the model does not know are
        carried along as they are.
    model : Scorer, MCFlowImputer or path-like
        Fitted, or the file of a fitted one, as the driver sees it. It is sent to each machine once in a session, and
        built once in each Python worker.
    draws : int, optional
        Multiple imputation: each row comes this many times, with the number of the draw, from 1, in a last column
        ``draw``.
    seed : int, default=0
        Decides the draws.

    Returns
    -------
    pyspark.sql.DataFrame
        With the columns, their order and their types, wherever these can hold what is filled in.

    Raises
    ------
    DataError
        When a column of the fit is not there, or is of another type.
    MissingExtraError
        When pyspark is not installed.

    Notes
    -----
    Like other steps it is done when the rows are asked for, by `mapInArrow`. What is wrong with single cells, such as a
    level that the fit did not see, shows only then, in the message of Spark's own exception. Cells and draws do not
    depend on partitions or batches, to the rounding of float32.

    Examples
    --------
    >>> from mcflow.engines.spark import impute  # doctest: +SKIP
    >>> filled = impute(spark.read.parquet("rows"), "model.mcflow")  # doctest: +SKIP
    >>> filled.write.parquet("filled")  # doctest: +SKIP
    """
    need_spark()
    context = context_of(df)
    scorer = as_scorer(model)
    work = RowFilling.of(df.columns, scorer, draws, seed)
    schema = _schema(df, scorer, work)
    return df.mapInArrow(partial(_filled, send(context, scorer), work), schema)


def _schema(df: DataFrame, scorer: Scorer, work: RowFilling) -> StructType:
    """Return names and types of what comes out: those of the rows, but for types that cannot hold what is filled in."""
    from pyspark.sql.types import IntegerType, StructField, StructType

    known = work.known
    given = df.select([df[f"`{name.replace('`', '``')}`"] for name in known]).limit(0).toArrow().schema
    made = scorer.schema(given)
    other = [k for k, field in enumerate(made) if field.name in known and field.type != given.field(field.name).type]
    for name in (made.field(k).name for k in other):
        if pa.types.is_string(made.field(name).type) != pa.types.is_string(given.field(name).type):
            raise DataError(
                f"Column {name!r} is of type {given.field(name).type}, and the model fills it with values of type "
                f"{made.field(name).type}. Convert it to the type that it had at fit."
            )
    types = {field.name: field for field in df.schema}
    for field in df.sparkSession.createDataFrame(made.empty_table().select(other)).schema if other else []:
        types[field.name] = StructField(field.name, field.dataType, types[field.name].nullable)
    dropped = set(known) - set(made.names)
    fields = [types[name] for name in df.columns if name not in dropped]
    return StructType([*fields, StructField(DRAW, IntegerType(), nullable=False)] if work.draws else fields)


def _filled(model: SentModel, work: RowFilling, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fill the batches of a partition."""
    scorer, made = model.scorer(), None
    for table in _gathered(batches):
        made = made or scorer.schema(table.select(work.known).schema)
        for completed in work.completed(table, scorer, made):
            yield from completed.to_batches()


def _gathered(batches: Iterable[pa.RecordBatch], n_rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
    """Put batches together until there are rows enough to be worth a pass through the networks."""
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
    draws: int | None = None,
    seed: int = 0,
    master: str | None = None,
    part_rows: int = PART_ROWS,
    listen: Callable[[int, int], None] = lambda done, total: None,
) -> StreamOutcome:
    """Fill files of any size with the workers of Spark.

    Parameters
    ----------
    source : path-like
        A file, a folder or a pattern; see `mcflow.data.parts.find_files`.
    output : path-like
        The folder of the result.
    model : Scorer, MCFlowImputer or path-like
        Fitted, or the file of a fitted one.
    draws : int, optional
        Multiple imputation: write this many tables, in folders ``draw=1``, ``draw=2`` and so on.
    seed : int, default=0
        Decides the draws.
    master : str, optional
        Where to start a session when this process has none, such as ``local[4]`` or ``spark://host:7077``; by default
        what `spark-submit` or Spark's own settings say, else all cores of this machine.
    part_rows : int
        Rows after which a part ends; by default two million. There should be several parts for each core.
    listen : callable, optional
        Called with the rows that are done and all rows, now and then, from another thread.

    Returns
    -------
    StreamOutcome

    Raises
    ------
    DataError
        When files differ in their columns, or a file is damaged.
    OutputError
        When the folder holds something else.
    EngineError
        When Spark does not start, or fails.
    MissingExtraError
        When pyspark is not installed, or mcflow is not there for Spark's workers.

    Notes
    -----
    Each part is a task. The files are those of `mcflow.engines.impute_dataset`, byte for byte, and each engine goes on
    where the other was stopped. A worker that dies is replaced, and its part is done again, as often as
    ``spark.task.maxFailures`` says. Rows that cannot be filled do not stop the other parts; their error is raised when
    these are done. On several machines, source and output have to be on storage that all see under the same name.
    """
    need_spark()
    scorer = as_scorer(model)

    def work(job: FillJob, waiting: list[TablePart], tell: Callable[[int], None]) -> None:
        with session(master) as spark, told("do all parts"), repeated(_counting(job, waiting, tell), LOOK_EVERY):
            tasks = spark.sparkContext.parallelize(waiting, len(waiting))
            said = tasks.map(partial(_do, job, send(spark.sparkContext, scorer))).collect()
        for error in filter(None, said):
            raise error

    places = Path.cwd() / source, Path.cwd() / output
    return run_job(*places, scorer, work, draws=draws, seed=seed, part_rows=part_rows, listen=listen)


def _do(job: FillJob, model: SentModel, part: TablePart) -> McflowError | None:
    """Do a part, and return what is wrong with its rows: to raise it would have Spark try again in vain."""
    # An attempt before this one may have died after the last byte was written.
    if job.is_done(part):
        return None
    try:
        job.do(part, model.scorer())
    except OutputError:
        raise  # storage may be back at the next attempt
    except McflowError as error:
        return type(error)(f"{part.output}: {error}")
    return None


def _counting(job: FillJob, waiting: list[TablePart], tell: Callable[[int], None]) -> Callable[[], None]:
    """Return what looks for new parts and tells of them: Spark says nothing before its job ends."""
    left = list(waiting)
    total = sum(part.n_rows for part in waiting)

    def look() -> None:
        before = len(left)
        left[:] = [part for part in left if not job.is_done(part)]
        if len(left) < before:
            tell(total - sum(part.n_rows for part in left))

    return look
