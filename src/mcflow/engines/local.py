"""Fit on and fill Parquet or CSV files of any size on one machine."""

from __future__ import annotations

__all__ = ["fit_dataset", "fit_survey", "impute_dataset"]

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Unpack

import pyarrow as pa

from mcflow.columns.schema import MissingValues
from mcflow.engines.background import prefetch
from mcflow.engines.jobs import FillJob, JobOptions, StreamOutcome, open_job, run_job
from mcflow.engines.scorer import Scorer
from mcflow.files.partitioned import TablePart, open_table
from mcflow.files.survey import SAMPLE_ROWS, Survey
from mcflow.imputers import MCFlowImputer


def impute_dataset(
    source: str | Path,
    output: str | Path,
    scorer: Scorer,
    *,
    listen: Callable[[int, int], None] = lambda done, total: None,
    **options: Unpack[JobOptions],
) -> StreamOutcome:
    """Fill Parquet or CSV files, with memory for a few batches of rows.

    Parameters
    ----------
    source : path-like
        File, folder or pattern; see `mcflow.files.partitioned.find_files`.
    output : path-like
        Folder of the result. Its subfolders and file names are those of the source. Files of more than `part_rows` rows
        are split into several numbered files.
    scorer : Scorer
        Fitted model.
    listen : callable, optional
        Called at intervals with the number of rows that are filled and the total number of rows.
    draws : int, optional
        Number of tables for multiple imputation, written to the folders ``draw=1``, ``draw=2`` and so on. By default
        the table is filled once.
    seed : int, default=0
        Seed of the draws.
    part_rows : int
        Maximum number of rows per part; by default two million.

    Returns
    -------
    StreamOutcome

    Raises
    ------
    DataError
        If files differ in their columns or a file is damaged.
    OutputError
        If the folder holds anything but parts of the same result.

    Notes
    -----
    Each file is written under a temporary name and renamed when it is complete. After an interruption, the same call
    resumes and skips the files that are complete.
    """

    def work(job: FillJob, waiting: list[TablePart], notify: Callable[[int], None]) -> None:
        rows = 0
        for part in waiting:
            job.do(part, scorer, lambda done, before=rows: notify(before + done))  # type: ignore[misc]
            rows += part.n_rows

    return run_job(open_job(source, output, scorer, **options), work, listen)


def fit_dataset(
    source: str | Path,
    imputer: MCFlowImputer,
    *,
    sample_rows: int = SAMPLE_ROWS,
    folder: str | Path | None = None,
    listen: Callable[[int, int], None] = lambda done, total: None,
) -> MCFlowImputer:
    """Fit on Parquet or CSV files of any size.

    Parameters
    ----------
    source : path-like
        File, folder or pattern; see `mcflow.files.partitioned.find_files`.
    imputer : MCFlowImputer
        Imputer with the preset "default". It is fitted in place.
    sample_rows : int
        Number of sampled rows that are kept in memory. Column kinds, ranges, knots, density and calibration are
        estimated on them.
    folder : path-like, optional
        Folder that holds all rows during the fit, five bytes per cell.
    listen : callable, optional
        Called during the first pass with the number of rows read and the total number of rows.

    Returns
    -------
    MCFlowImputer
        The imputer.

    Notes
    -----
    The first pass over the files surveys them (see `mcflow.files.survey.Survey`), the second writes them to disk as
    encoded float32 values. H is then trained on shuffled batches of all rows. A table of at most `sample_rows` rows is
    fitted in memory, as `MCFlowImputer.fit` does.
    """
    whole = open_table(source, missing=MissingValues.of(imputer.missing_values))
    total = whole.n_rows
    survey = Survey(n_rows=sample_rows, seed=0)
    for first, table in prefetch(whole.rows()):
        survey.add(table, first)
        listen(first + table.num_rows, total)
    return fit_survey(imputer, survey, lambda: prefetch(whole.rows()), folder)


def fit_survey(
    imputer: MCFlowImputer,
    survey: Survey,
    batches: Callable[[], Iterable[tuple[int, pa.Table]]],
    folder: str | Path | None,
) -> MCFlowImputer:
    """Fit on the sample of a survey, and on all other rows of its table, given as (index of the first row, batch)."""
    sample = survey.table()
    if sample.num_rows == survey.total:
        return imputer.fit(sample)
    return imputer.fit_stream(sample, lambda: survey.others(batches()), survey.total - sample.num_rows, folder=folder)
