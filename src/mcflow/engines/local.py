"""Fill Parquet or CSV files of any size on one machine: batch by batch, and on where an earlier run was stopped."""

from __future__ import annotations

__all__ = ["StreamOutcome", "impute_dataset"]

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mcflow.data.parts import PART_ROWS
from mcflow.engines.jobs import open_job
from mcflow.engines.scorer import Scorer


@dataclass(frozen=True)
class StreamOutcome:
    """What was done.

    Parameters
    ----------
    parts, found : int
        Files of the result, and how many of them were there from an earlier run.
    rows : int
        Rows that were filled now.
    seconds : float
        How long that took.
    """

    parts: int
    found: int
    rows: int
    seconds: float


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
    start = time.perf_counter()
    with open_job(source, output, scorer, draws=draws, seed=seed, part_rows=part_rows) as (job, parts):
        waiting = [part for part in parts if not job.is_done(part)]
        total, rows = sum(part.n_rows for part in parts), 0
        before = total - sum(part.n_rows for part in waiting)
        for part in waiting:
            job.do(part, scorer, partial(_tell, listen, before + rows, total))
            rows += part.n_rows
    return StreamOutcome(len(parts), len(parts) - len(waiting), rows, time.perf_counter() - start)


def _tell(listen: Callable[[int, int], None], before: int, total: int, done: int) -> None:
    listen(before + done, total)
