"""Fill Parquet or CSV files of any size on one machine: batch by batch, and on where an earlier run was stopped."""

from __future__ import annotations

__all__ = ["impute_dataset"]

from collections.abc import Callable
from functools import partial
from pathlib import Path

from mcflow.data.parts import PART_ROWS, TablePart
from mcflow.engines.jobs import FillJob, StreamOutcome, run_job
from mcflow.engines.scorer import Scorer


def impute_dataset(
    source: str | Path,
    output: str | Path,
    scorer: Scorer,
    *,
    draws: int | None = None,
    seed: int = 0,
    part_rows: int = PART_ROWS,
    listen: Callable[[int, int], None] = lambda done, total: None,
) -> StreamOutcome:
    """Fill Parquet or CSV files, with memory for a few batches of rows.

    Parameters
    ----------
    source : path-like
        A file, a folder or a pattern; see `mcflow.data.parts.find_files`.
    output : path-like
        The folder of the result; the folders and names below it are those of the source. Files of more than `part_rows`
        rows are cut into several, numbered in order.
    scorer : Scorer
        The fitted model.
    draws : int, optional
        Multiple imputation: write this many tables, in folders ``draw=1``, ``draw=2`` and so on.
    seed : int, default=0
        Decides the draws.
    part_rows : int
        Rows after which a part ends; by default two million.
    listen : callable, optional
        Called with the rows that are done and all rows, now and then.

    Returns
    -------
    StreamOutcome

    Raises
    ------
    DataError
        When files differ in their columns, or a file is damaged.
    OutputError
        When the folder holds something else.

    Notes
    -----
    Each file of the result is written under a passing name and renamed when it is whole. Run the same call again after
    a stop: what is there is not done again.
    """

    def work(job: FillJob, waiting: list[TablePart], tell: Callable[[int], None]) -> None:
        rows = 0
        for part in waiting:
            job.do(part, scorer, partial(_add, tell, rows))
            rows += part.n_rows

    return run_job(source, output, scorer, work, draws=draws, seed=seed, part_rows=part_rows, listen=listen)


def _add(tell: Callable[[int], None], before: int, done: int) -> None:
    tell(before + done)
