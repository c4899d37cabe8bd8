"""Learn from a Spark DataFrame: workers survey their rows, and the driver fits."""

from __future__ import annotations

__all__ = ["fit", "survey"]

import pickle
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mcflow.data.survey import SAMPLE_ROWS, Survey
from mcflow.engines.spark_session import need_spark, told
from mcflow.errors import DataError
from mcflow.imputers import MCFlowImputer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def survey(df: DataFrame, *, n_rows: int = SAMPLE_ROWS, seed: int = 0) -> Survey:
    """Take a sample of a Spark DataFrame and its exact ends and levels, in one pass over the rows.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        The rows.
    n_rows : int
        Rows of the sample, at most.
    seed : int, default=0
        Decides which.

    Returns
    -------
    Survey
        The one that `Survey.add` makes of all rows in the order of the partitions.

    Raises
    ------
    DataError
        When the frame has no rows, or other partitions each time it is computed.
    MissingExtraError
        When pyspark is not installed.

    Notes
    -----
    The rows of each partition are counted first, which of files in Parquet takes no more than their footers. Then each
    partition surveys its own, and sends to the driver what may get into the sample of all: together a little more than
    `n_rows` rows, whatever the size of the table.
    """
    need_spark()
    from pyspark.sql.functions import spark_partition_id

    whole = Survey(n_rows=n_rows, seed=seed)
    with told("survey the rows"):
        counted = df.groupBy(spark_partition_id().alias("place")).count().collect()
        counts = {row["place"]: row["count"] for row in counted}
        places = sorted(counts)
        firsts = dict(zip(places, accumulate((counts[p] for p in places), initial=0), strict=False))
        look = partial(_look, n_rows, seed, firsts, sum(counts.values()))
        for row in df.mapInArrow(look, "place int, content binary").toLocalIterator():
            part: Survey = pickle.loads(row["content"])  # noqa: S301 - made by `_look`, by our own workers
            if part.total != counts.get(row["place"]):
                raise DataError(
                    "The frame has other rows in its partitions each time it is computed. Call persist() on it first."
                )
            whole.merge(part)
    if whole.total != sum(counts.values()) or not whole.total:
        raise DataError("The frame has no rows, or fewer than were counted. Check it with count().")
    return whole


def _look(
    n_rows: int, seed: int, firsts: dict[int, int], total: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Survey a partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    place = context.partitionId() if context else 0
    found = Survey(n_rows=n_rows, seed=seed)
    found.expect(total)
    for batch in batches:
        found.add(pa.Table.from_batches([batch]), firsts.get(place, 0) + found.total)
    if found.total:
        said = {"place": pa.array([place], pa.int32()), "content": pa.array([pickle.dumps(found)], pa.binary())}
        yield pa.RecordBatch.from_pydict(said)


def fit(
    df: DataFrame,
    imputer: MCFlowImputer,
    *,
    sample_rows: int = SAMPLE_ROWS,
    all_rows: bool = False,
    folder: str | Path | None = None,
) -> MCFlowImputer:
    """Fit on a Spark DataFrame: the workers survey, the driver learns.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        The rows; columns that are not to be filled or used are better left out.
    imputer : MCFlowImputer
        It is fitted in place.
    sample_rows : int
        Rows that are brought to the driver's memory: a uniform sample, with the ends and levels of all columns.
    all_rows : bool, default=False
        Learn from all rows, as `mcflow.engines.fit_dataset` does: they are sent to the driver, partition by partition,
        and kept on its disk with five bytes a cell. For the preset "default" only.
    folder : path-like, optional
        Where they are kept.

    Returns
    -------
    MCFlowImputer
        The imputer.

    Notes
    -----
    Networks are not trained on Spark's workers. To learn from all rows of a very large table on many machines, write it
    as Parquet and fit with torchrun or Ray.
    """
    found = survey(df, n_rows=sample_rows)
    sample = found.table()
    if not all_rows or sample.num_rows == found.total:
        return imputer.fit(sample)

    def rest() -> Iterator[pa.Table]:
        return found.others(_brought(df))

    return imputer.fit_stream(sample, rest, found.total - sample.num_rows, folder=folder)


def _brought(df: DataFrame) -> Iterator[tuple[int, pa.Table]]:
    """Bring all rows to the driver, a batch at a time, in the order of the partitions, with their places."""
    first = 0
    with told("bring the rows to the driver"):
        for row in df.mapInArrow(_written, "content binary").toLocalIterator(prefetchPartitions=True):
            table = pa.ipc.open_stream(row["content"]).read_all()
            yield first, table
            first += table.num_rows


def _written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        content = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_pydict({"content": content})
