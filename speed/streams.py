"""Fit and fill Parquet files of many rows batch by batch, and compare memory, speed and error with those in memory.

    MCFLOW_DATA=folder python speed/streams.py --folder work [--rows 2000000 20000000] [--max-time 300] [--dry]

The rows are those of the Letter table in random order, again and again, with noise and a fifth of the cells hidden.
Every act runs in a process of its own: the fit on all rows of the longest table, under a limit of memory; the fit in
memory on a sample of them, with the same time; the filling of each table, and of a sample in memory before and after.
Writes speed/results/streams.json; --dry only prints.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mcflow
from mcflow import MCFlowImputer
from mcflow.benchmarks.machine import mebibytes
from mcflow.engines import Scorer, fit_dataset, impute_dataset
from mcflow.metrics import rmse
from results import environment, report, table_path, write

Table = np.ndarray[Any, Any]

#: Share of the cells that is hidden, and deviation of the noise in units of a whole number of the Letter table.
MISSING, NOISE = 0.2, 0.25

#: Rows of a file and of a row group, of the table whose hidden cells are judged, and of that filled in memory.
FILE_ROWS, GROUP_ROWS, TEST_ROWS, MEMORY_ROWS = 4_194_304, 262_144, 50_000, 262_144

#: What the peaks of the fit and of the filling have to stay under, and how little the latter may grow.
FIT_GIB, FILL_GIB, GROWTH = 3.0, 2.0, 1.1

#: Rows a second of the filling in parts, at least, as a share of those in memory.
PACE = 0.9


def letters() -> Table:
    """Return the numbers of the Letter table."""
    path = table_path("letter")
    if path is None:
        sys.exit("skipped: MCFLOW_DATA does not name a folder with letter.parquet")
    table = pq.read_table(path)
    return np.column_stack([table.column(c).to_numpy().astype(np.float32) for c in table.column_names if c != "lettr"])


def noisy(rows: Table, n_rows: int, rng: np.random.Generator) -> tuple[Table, Table]:
    """Return rows drawn from a table, with noise, and which cells are hidden."""
    drawn = rows[rng.integers(len(rows), size=n_rows)]
    drawn = drawn + np.float32(NOISE) * rng.standard_normal(drawn.shape, dtype=np.float32)
    return drawn, rng.random(drawn.shape, dtype=np.float32) < MISSING


def as_table(rows: Table, hidden: Table) -> pa.Table:
    """Return rows with holes."""
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
    """Return the first rows of a folder of files; all rows are alike."""
    pieces: list[pa.Table] = []
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                if sum(map(len, pieces)) < n_rows:
                    pieces.append(file.read_row_group(group))
    return pa.concat_tables(pieces).slice(0, n_rows).combine_chunks()


def limited() -> None:
    """Let this process have no more memory of its own than a fit may take."""
    if hasattr(resource, "RLIMIT_DATA"):
        resource.setrlimit(resource.RLIMIT_DATA, (int(FIT_GIB * 2**30), int(FIT_GIB * 2**30)))


def fit(source: Path, model: Path, seconds: float, sample: int) -> dict[str, Any]:
    """Fit on all rows from files, or on a sample of them in memory; say the error at hidden cells of other rows."""
    imputer, start = MCFlowImputer(max_time=seconds, random_state=0), time.perf_counter()
    if sample:
        imputer.fit(some(source, sample))
    else:
        limited()
        fit_dataset(source, imputer, folder=model.parent)
    taken = time.perf_counter() - start
    imputer.save(model)
    truth, hidden = noisy(letters(), TEST_ROWS, np.random.default_rng(1))
    filled = np.column_stack([c.to_numpy() for c in imputer.transform(as_table(truth, hidden)).columns])
    span = np.full(truth.shape[1], 15.0)
    return {
        "fit_s": round(taken, 1),
        "n_epochs": imputer.n_epochs_,
        "n_members": imputer.settings_.latent.n_members,
        "rmse": round(rmse(truth, filled, hidden, span).value, 5),
    }


def fill(source: Path, model: Path, output: Path) -> dict[str, Any]:
    """Fill files batch by batch."""
    outcome = impute_dataset(source, output, Scorer.from_file(model))
    return {"rows": outcome.rows, "rows_per_s": round(outcome.rows / outcome.seconds)}


def fill_in_memory(source: Path, model: Path) -> dict[str, Any]:
    """Fill some rows in memory."""
    table, imputer = some(source, MEMORY_ROWS), mcflow.load(model)
    start = time.perf_counter()
    imputer.transform(table)
    return {"rows": len(table), "rows_per_s": round(len(table) / (time.perf_counter() - start))}


def run(act: str, **given: Any) -> dict[str, Any]:
    """Run an act in a process of its own."""
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    done = subprocess.run([sys.executable, __file__, "--act", act, *words], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    print(f"{act}: {found}", file=sys.stderr)
    return found


def child(given: argparse.Namespace) -> None:
    """Do one act and print what was found."""
    if given.act == "fit":
        found = fit(given.source, given.model, given.max_time, given.sample)
    elif given.act == "fill":
        found = fill(given.source, given.model, given.output)
    else:
        found = fill_in_memory(given.source, given.model)
    peak = mebibytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    print(json.dumps(found | {"peak_gib": round(peak / 1024, 3)}))


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Make the tables, and do all acts."""
    folders = {n_rows: given.folder / f"rows-{n_rows}" for n_rows in sorted(given.rows)}
    for n_rows, folder in folders.items():
        make(folder, n_rows)
    largest, model = folders[max(folders)], given.folder / "streamed.mcflow"
    limits = {"source": largest, "max-time": given.max_time}
    streamed = run("fit", model=model, sample=0, **limits)
    sampled = run("fit", model=given.folder / "sampled.mcflow", sample=min(given.sample, max(folders)), **limits)
    in_memory = [run("memory", source=largest, model=model)]
    fills = []
    for n_rows, folder in folders.items():
        output = given.folder / f"filled-{n_rows}-{time.time_ns()}"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000_000, 20_000_000])
    parser.add_argument("--sample", type=int, default=1_000_000)
    parser.add_argument("--max-time", type=float, default=300.0)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--act", choices=("fit", "fill", "memory"), help=argparse.SUPPRESS)
    for name in ("--source", "--model", "--output"):
        parser.add_argument(name, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.act is not None:
        child(given)
        return
    if given.folder is None:
        parser.error("--folder has to say where the tables go: 20 million rows take about 4 GB there.")
    under = environment()
    result = measure(given) | under
    if given.dry:
        report(result)
    else:
        write("streams", result)


if __name__ == "__main__":
    main()
