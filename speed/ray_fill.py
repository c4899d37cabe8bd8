"""Fill two million rows of 16 columns on a Ray cluster of this machine, with one worker and with two.

    python speed/ray_fill.py [--rows 2000000] [--parts 20] [--dry]

Each worker computes with one thread. The clock runs from when all workers are at work to the last part; the start of
the cluster and of the workers is told apart. Writes speed/results/ray.json; --dry only prints.
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

from mcflow import MCFlowImputer
from mcflow.engines import Scorer, open_job
from mcflow.engines.ray import PartDone, fill_parts
from mcflow.engines.ray_cluster import connected
from results import environment, report, write
from synthetic import letter_like

#: Rows that the model is fitted on, and passes over them; how long it learns does not change how fast it fills.
FIT_ROWS, FIT_EPOCHS = 20_000, 2


def make(folder: Path, n_rows: int, n_parts: int) -> Path:
    """Write a table with as many row groups as there are to be parts."""
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
    """Return the rows a second from when the last worker began its first part to the last part's end."""
    first: dict[str, float] = {}
    for one in done:
        first[one.worker] = min(one.began, first.get(one.worker, one.began))
    start, end = max(first.values()), max(one.ended for one in done)
    # Of parts that were begun before, the share counts that was done since.
    shares = [max(0.0, one.ended - max(one.began, start)) / (one.ended - one.began) for one in done]
    return sum(one.part.n_rows * share for one, share in zip(done, shares, strict=True)) / (end - start)


def measure(source: Path, scorer: Scorer, workers: int, part_rows: int) -> dict[str, Any]:
    """Fill the table into a folder that is gone afterwards."""
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


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--rows", type=int, default=2_000_000)
    flags.add_argument("--parts", type=int, default=20)
    flags.add_argument("--dry", action="store_true")
    said = flags.parse_args()
    imputer = MCFlowImputer(max_epochs=FIT_EPOCHS, random_state=0)
    names = [f"c{k}" for k in range(letter_like(1).shape[1])]
    imputer.fit(pa.table([pa.array(column, from_pandas=True) for column in letter_like(FIT_ROWS).T], names))
    with tempfile.TemporaryDirectory() as folder:
        source = make(Path(folder), said.rows, said.parts)
        start = time.perf_counter()
        with connected("local", cpus=2):
            cluster_s = round(time.perf_counter() - start, 1)
            cases = [measure(source, Scorer(imputer), n, -(-said.rows // said.parts)) for n in (1, 2)]
    found: dict[str, Any] = {"rows": said.rows, "columns": len(names), "cluster_start_s": cluster_s, "cases": cases}
    found |= {"workers": 2, "speedup": round(cases[1]["rows_per_s"] / cases[0]["rows_per_s"], 2)}
    found |= environment()
    report(found) if said.dry else write("ray", found)


if __name__ == "__main__":
    main()
