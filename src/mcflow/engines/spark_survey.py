"""Fit on a Spark DataFrame: the workers survey the rows, and the driver trains the model."""

from __future__ import annotations

__all__ = ["fit", "survey"]

import pickle
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mcflow.engines.local import fit_survey
from mcflow.engines.spark import need_spark, worker_errors
from mcflow.errors import DataError
from mcflow.files.survey import SAMPLE_ROWS, Survey
from mcflow.imputers import MCFlowImputer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def survey(df: DataFrame, *, n_rows: int = SAMPLE_ROWS, seed: int = 0) -> Survey:
    """Sample a Spark DataFrame and collect its exact ranges and categories, in one pass over the rows.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Rows to survey.
    n_rows : int
        Maximum number of sampled rows.
    seed : int, default=0
        Seed of the sample.

    Returns
    -------
    Survey
        Equal to the survey of `Survey.add` over all rows in the order of the partitions.

    Raises
    ------
    DataError
        If the frame has no rows, or if its partitions differ each time it is computed.
    MissingExtraError
        If pyspark is not installed.

    Notes
    -----
    The rows of each partition are counted first, which only reads the footers of Parquet files. Then each partition is
    surveyed by its worker, which sends its candidates for the sample to the driver: slightly more than `n_rows` rows in
    total for a table of any size.
    """
    need_spark()
    from pyspark.sql.functions import spark_partition_id

    whole = Survey(n_rows=n_rows, seed=seed)
    with worker_errors("survey the rows"):
        counted = df.groupBy(spark_partition_id().alias("place")).count().collect()
        counts = {row["place"]: row["count"] for row in counted}
        places = sorted(counts)
        firsts = dict(zip(places, accumulate((counts[p] for p in places), initial=0), strict=False))
        survey_part = partial(_survey_partition, n_rows, seed, firsts, sum(counts.values()))
        for row in df.mapInArrow(survey_part, "place int, content binary").toLocalIterator():
            part: Survey = pickle.loads(row["content"])  # noqa: S301 - written by `_survey_partition`
            if part.total != counts.get(row["place"]):
                raise DataError(
                    "The partitions of the frame differ each time it is computed. Call persist() on it first."
                )
            whole.merge(part)
    if whole.total != sum(counts.values()) or not whole.total:
        raise DataError("The frame has no rows, or fewer rows than were counted. Check it with count().")
    return whole


def _survey_partition(
    n_rows: int, seed: int, firsts: dict[int, int], total: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    place = context.partitionId() if context else 0
    found = Survey(n_rows=n_rows, seed=seed)
    found.expect(total)
    for batch in batches:
        found.add(pa.Table.from_batches([batch]), firsts.get(place, 0) + found.total)
    if found.total:
        columns = {"place": pa.array([place], pa.int32()), "content": pa.array([pickle.dumps(found)], pa.binary())}
        yield pa.RecordBatch.from_pydict(columns)


def fit(
    df: DataFrame,
    imputer: MCFlowImputer,
    *,
    sample_rows: int = SAMPLE_ROWS,
    all_rows: bool = False,
    folder: str | Path | None = None,
) -> MCFlowImputer:
    """Fit on a Spark DataFrame.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Rows to fit on. Drop columns that are neither filled nor used.
    imputer : MCFlowImputer
        Imputer, which is fitted in place.
    sample_rows : int
        Size of the uniform sample that is collected in the driver's memory. Ranges and categories come from all rows.
    all_rows : bool, default=False
        Train on all rows, as `mcflow.engines.fit_dataset` does. They are sent to the driver, partition by partition,
        and stored on its disk with five bytes per cell. For the preset "default" only.
    folder : path-like, optional
        Folder on the driver for these rows.

    Returns
    -------
    MCFlowImputer
        The imputer.

    Notes
    -----
    Networks are not trained on Spark's workers. To train on all rows of a very large table on several machines, write
    it as Parquet and fit with torchrun or Ray.
    """
    found = survey(df, n_rows=sample_rows)
    return fit_survey(imputer, found, lambda: _collected(df), folder) if all_rows else imputer.fit(found.table())


def _collected(df: DataFrame) -> Iterator[tuple[int, pa.Table]]:
    """Collect all rows on the driver in the order of the partitions, as (index of the first row, batch)."""
    first = 0
    with worker_errors("send the rows to the driver"):
        for row in df.mapInArrow(_as_bytes, "content binary").toLocalIterator(prefetchPartitions=True):
            table = pa.ipc.open_stream(row["content"]).read_all()
            yield first, table
            first += table.num_rows


def _as_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        content = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_pydict({"content": content})
