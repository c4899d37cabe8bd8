"""Fit and fill Parquet files of many rows batch by batch, and compare memory, speed and error with those in memory.

    MCFLOW_DATA=folder python bench/speed/streams.py [--folder build/streams] [--rows 2000000 20000000] [--dry]

The rows are drawn from the Letter table, with noise and a fifth of the cells hidden; 20 million rows take about 4 GB in
the folder. Every act runs in a process of its own: the fit on all rows of the largest table, under a memory limit; the
fit in memory on a sample of them, with the same time; the filling of each table, and of a sample in memory before and
after.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import harness
import mcflow
from harness import Table
from mcflow import MCFlowImputer
from mcflow.engines import Scorer, fit_dataset, impute_dataset
from mcflow.metrics import rmse
from mcflow_bench.machine import peak_mib

#: Fraction of hidden cells.
MISSING = 0.2
#: Standard deviation of the noise; the Letter table has integers from 0 to 15.
NOISE = 0.25
#: Rows of a file.
FILE_ROWS = 4_194_304
#: Rows of a row group.
GROUP_ROWS = 262_144
#: Rows of the table whose hidden cells are scored.
TEST_ROWS = 50_000
#: Rows that are filled in memory.
MEMORY_ROWS = 262_144
#: Limit of the peak memory of the fit in GiB.
FIT_GIB = 3.0
#: Limit of the peak memory of filling in GiB.
FILL_GIB = 2.0
#: Limit of the growth of that peak with the rows.
GROWTH = 1.1
#: Required speed of filling files as a fraction of that in memory.
PACE = 0.9


def letters() -> Table:
    """Return the numbers of the Letter table as float32."""
    return harness.letter_table().astype(np.float32)


def noisy(rows: Table, n_rows: int, rng: np.random.Generator) -> tuple[Table, Table]:
    """Return float32 rows drawn from a table, with noise, and which cells are hidden."""
    drawn = rows[rng.integers(len(rows), size=n_rows)]
    drawn = drawn + np.float32(NOISE) * rng.standard_normal(drawn.shape, dtype=np.float32)
    return drawn, rng.random(drawn.shape, dtype=np.float32) < MISSING


def as_table(rows: Table, hidden: Table) -> pa.Table:
    """Return rows as a table with missing cells."""
    return pa.table({f"c{k}": pa.array(rows[:, k], mask=hidden[:, k]) for k in range(rows.shape[1])})


def make(folder: Path, n_rows: int) -> None:
    """Write a folder of Parquet files, if it is not there."""
    if folder.is_dir():
        return
    rows, rng = letters(), np.random.default_rng(n_rows)
    unready = folder.with_name(folder.name + ".unready")
    unready.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, n_rows, FILE_ROWS)):
        last = min(first + FILE_ROWS, n_rows)
        schema = as_table(*noisy(rows, 1, np.random.default_rng(0))).schema
        with pq.ParquetWriter(unready / f"{number:03d}.parquet", schema) as writer:
            for start in range(first, last, GROUP_ROWS):
                writer.write_table(as_table(*noisy(rows, min(GROUP_ROWS, last - start), rng)))
    unready.rename(folder)


def some(folder: Path, n_rows: int) -> pa.Table:
    """Return the first rows of a folder of files."""
    pieces: list[pa.Table] = []
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                if sum(map(len, pieces)) < n_rows:
                    pieces.append(file.read_row_group(group))
    return pa.concat_tables(pieces).slice(0, n_rows).combine_chunks()


def limited() -> None:
    """Limit the memory of this process to that of a fit."""
    if hasattr(resource, "RLIMIT_DATA"):
        resource.setrlimit(resource.RLIMIT_DATA, (int(FIT_GIB * 2**30), int(FIT_GIB * 2**30)))


def fit(source: str, model: str, max_time: float, sample: int) -> dict[str, Any]:
    """Fit on all rows from files, or on a sample of them in memory, and score hidden cells of other rows."""
    imputer, start = MCFlowImputer(max_time=max_time, random_state=0), time.perf_counter()
    if sample:
        imputer.fit(some(Path(source), sample))
    else:
        limited()
        fit_dataset(source, imputer, folder=Path(model).parent)
    taken = time.perf_counter() - start
    imputer.save(model)
    truth, hidden = noisy(letters(), TEST_ROWS, np.random.default_rng(1))
    filled = np.column_stack([c.to_numpy() for c in imputer.transform(as_table(truth, hidden)).columns])
    span = np.full(truth.shape[1], 15.0)
    return {
        "fit_s": round(taken, 1),
        "n_epochs": imputer.n_epochs_,
        "n_members": imputer.config_.n_members,
        "rmse": round(rmse(truth, filled, hidden, span).value, 5),
        "peak_gib": peak_gib(),
    }


def fill(source: str, model: str, output: str) -> dict[str, Any]:
    """Fill files batch by batch."""
    outcome = impute_dataset(source, output, Scorer.from_file(model))
    return {"rows": outcome.rows, "rows_per_s": round(outcome.rows / outcome.seconds), "peak_gib": peak_gib()}


def fill_in_memory(source: str, model: str) -> dict[str, Any]:
    """Fill some rows in memory."""
    table, imputer = some(Path(source), MEMORY_ROWS), mcflow.load(model)
    start = time.perf_counter()
    imputer.transform(table)
    return {"rows": len(table), "rows_per_s": round(len(table) / (time.perf_counter() - start))}


def peak_gib() -> float:
    """Return the peak memory of this process."""
    return round((peak_mib() or 0.0) / 1024, 3)


def run(act: str, **given: Any) -> dict[str, Any]:
    """Run an act in a process of its own."""
    found = harness.apart(__file__, act, given)
    print(f"{act}: {found}", file=sys.stderr)
    return found


def measure(given: argparse.Namespace) -> dict[str, Any]:
    work = Path(given.folder)
    folders = {n_rows: work / f"rows-{n_rows}" for n_rows in sorted(given.rows)}
    for n_rows, folder in folders.items():
        make(folder, n_rows)
    largest, model = folders[max(folders)], work / "streamed.mcflow"
    limits = {"source": largest, "max_time": given.max_time}
    streamed = run("fit", model=model, sample=0, **limits)
    sampled = run("fit", model=work / "sampled.mcflow", sample=min(given.sample, max(folders)), **limits)
    in_memory = [run("memory", source=largest, model=model)]
    fills = []
    for n_rows, folder in folders.items():
        output = work / f"filled-{n_rows}-{time.time_ns()}"
        fills.append(run("fill", source=folder, model=model, output=output))
        in_memory.append(run("memory", source=largest, model=model))
    pace = sum(found["rows_per_s"] for found in in_memory) / len(in_memory)
    peaks = [found["peak_gib"] for found in fills]
    return {
        "columns": letters().shape[1],
        "max_time_s": given.max_time,
        "fit": streamed | {"rows": max(folders)},
        "fit_of_sample": sampled | {"rows": min(given.sample, max(folders))},
        "fills": fills,
        "in_memory": {"rows": MEMORY_ROWS, "rows_per_s": round(pace)},
        "pace": round(fills[-1]["rows_per_s"] / pace, 3),
        "limits": {
            "fit_gib": FIT_GIB,
            "fill_gib": FILL_GIB,
            "growth": GROWTH,
            "pace": PACE,
            "fit_kept": streamed["peak_gib"] < FIT_GIB,
            "fill_kept": max(peaks) < FILL_GIB and max(peaks) <= GROWTH * min(peaks),
            "pace_kept": fills[-1]["rows_per_s"] >= PACE * pace,
        },
    }


if __name__ == "__main__":
    harness.main(
        "streams",
        __doc__,
        measure,
        {"fit": fit, "fill": fill, "memory": fill_in_memory},
        folder=str(harness.ROOT / "build" / "streams"),
        rows=[2_000_000, 20_000_000],
        sample=1_000_000,
        max_time=300.0,
    )
