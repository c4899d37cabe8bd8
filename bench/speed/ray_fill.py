"""Fill two million rows of 16 columns on a Ray cluster of this machine, with one worker and with two.

    python bench/speed/ray_fill.py [--rows 2000000] [--parts 20] [--dry]

Each worker computes with one thread. The time is taken from when all workers are running to the last part; the start
of the cluster and of the workers is measured separately. Writes bench/speed/results/ray.json.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa
import pyarrow.parquet as pq

import harness
from harness import letter_like
from mcflow import MCFlowImputer
from mcflow.engines import Scorer, open_job
from mcflow.engines.ray import PartDone, connected, fill_parts

#: Rows that the model is fitted on.
FIT_ROWS = 20_000
#: Epochs of the fit; the speed of filling does not depend on them.
FIT_EPOCHS = 2


def make(folder: Path, n_rows: int, n_parts: int) -> Path:
    """Write a table with a number of row groups."""
    size, path = -(-n_rows // n_parts), folder / "rows.parquet"
    names = [f"c{k}" for k in range(letter_like(1).shape[1])]
    schema = pa.schema([(name, pa.float64()) for name in names])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, size):
            rows = letter_like(min(size, n_rows - start), seed=start + 1)
            columns = [pa.array(column, from_pandas=True) for column in rows.T]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=size)
    return path


def rows_per_second(done: Sequence[PartDone]) -> float:
    """Return the rows per second from when the last worker began its first part to the end of the last part."""
    first: dict[str, float] = {}
    for one in done:
        first[one.worker] = min(one.began, first.get(one.worker, one.began))
    start, end = max(first.values()), max(one.ended for one in done)
    # Parts that began earlier count by the fraction that was done since.
    shares = [max(0.0, one.ended - max(one.began, start)) / (one.ended - one.began) for one in done]
    return sum(one.part.n_rows * share for one, share in zip(done, shares, strict=True)) / (end - start)


def measure_workers(source: Path, scorer: Scorer, workers: int, part_rows: int) -> dict[str, Any]:
    """Fill the table with a number of workers."""
    with tempfile.TemporaryDirectory() as folder, open_job(source, folder, scorer, part_rows=part_rows) as (job, parts):
        began = time.time()
        done = list(fill_parts(job, parts, scorer, workers=workers))
    return {
        "workers": workers,
        "parts": len(done),
        "start_s": round(min(one.began for one in done) - began, 1),
        "seconds": round(max(one.ended for one in done) - min(one.began for one in done), 2),
        "rows_per_s": round(rows_per_second(done)),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    imputer = MCFlowImputer(max_epochs=FIT_EPOCHS, random_state=0)
    names = [f"c{k}" for k in range(letter_like(1).shape[1])]
    imputer.fit(pa.table([pa.array(column, from_pandas=True) for column in letter_like(FIT_ROWS).T], names))
    with tempfile.TemporaryDirectory() as folder:
        source = make(Path(folder), options.rows, options.parts)
        start = time.perf_counter()
        with connected("local", cpus=2):
            cluster_s = round(time.perf_counter() - start, 1)
            part_rows = -(-options.rows // options.parts)
            cases = [measure_workers(source, Scorer(imputer), n, part_rows) for n in (1, 2)]
    return {
        "rows": options.rows,
        "columns": len(names),
        "cluster_start_s": cluster_s,
        "cases": cases,
        "workers": 2,
        "speedup": round(cases[1]["rows_per_s"] / cases[0]["rows_per_s"], 2),
    }


if __name__ == "__main__":
    harness.main("ray", __doc__, measure, rows=2_000_000, parts=20)
