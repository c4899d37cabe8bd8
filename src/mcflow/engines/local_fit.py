"""Fit on Parquet or CSV files of any size: a survey, all rows on disk in units, and batches from there."""

from __future__ import annotations

__all__ = ["fit_dataset"]

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from mcflow.data.big_tables import open_table
from mcflow.data.survey import SAMPLE_ROWS, Survey
from mcflow.engines.pipeline import ahead
from mcflow.imputers import MCFlowImputer


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
        A file, a folder or a pattern; see `mcflow.data.parts.find_files`.
    imputer : MCFlowImputer
        With the preset "default"; it is fitted in place.
    sample_rows : int
        Rows that are kept in memory: kinds, ranges, knots, density and calibration come from them.
    folder : path-like, optional
        Where all rows are kept during the fit, with five bytes a cell.
    listen : callable, optional
        Called in the first pass with the rows that are done and all rows.

    Returns
    -------
    MCFlowImputer
        The imputer.

    Notes
    -----
    The first pass over the files surveys them (see `mcflow.data.survey.Survey`), the second writes them to disk in the
    units that H learns from, in float32. H then learns from shuffled batches of all rows. A table of no more than
    `sample_rows` rows is fitted in memory, as `MCFlowImputer.fit` does.
    """
    whole = open_table(source)
    total = whole.n_rows
    survey = Survey(n_rows=sample_rows, seed=0)
    for first, table in ahead(whole.rows()):
        survey.add(table, first)
        listen(first + table.num_rows, total)
    sample = survey.table()
    if sample.num_rows == total:
        return imputer.fit(sample)

    def rest() -> Iterator[pa.Table]:
        return survey.others(ahead(whole.rows()))

    return imputer.fit_stream(sample, rest, total - sample.num_rows, folder=folder)
