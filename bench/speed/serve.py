"""Measure time and memory of `mcflow serve` with a CSV file of 100 MB and with ten small ones at once.

    python bench/speed/serve.py [--megabytes 100] [--max-time 60] [--dry]

The server is a process of its own. Its jobs are other processes, one at a time, which hold the table; their memory is
measured separately. All requests go through the HTTP interface that the page uses.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
from pyarrow import csv

import harness
from harness import letter_like

N_COLUMNS = 16
#: Clients that send a small file at once.
CLIENTS = 10
#: Rows of a small file.
SMALL_ROWS = 200

#: GiB that the server may take.
LIMIT_GIB = 2.0

#: Rows of the large file that are made at a time.
PIECE = 50_000


def piece(n_rows: int, rng: np.random.Generator) -> pa.Table:
    """Return related numbers with three decimals, a fifth of them missing."""
    cells = np.round(letter_like(n_rows, N_COLUMNS) + rng.normal(0, 0.25, (n_rows, N_COLUMNS)), 3)
    return pa.table([pa.array(column, from_pandas=True) for column in cells.T], [f"x{k}" for k in range(N_COLUMNS)])


def make(path: Path, megabytes: float) -> int:
    """Write a CSV file of at least a number of megabytes, and return its number of rows."""
    rows, rng = 0, np.random.default_rng(0)
    with path.open("wb") as file:
        while file.tell() < megabytes * 1e6:
            csv.write_csv(piece(PIECE, rng), file, csv.WriteOptions(include_header=rows == 0))
            rows += PIECE
    return rows


class Memory(threading.Thread):
    """Samples the memory of a process and of its descendants until it is stopped."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self._process, self._ended = process, threading.Event()
        self.server_mib = self.tree_mib = 0.0

    def run(self) -> None:
        """Sample five times a second."""
        while not self._ended.wait(0.2):
            sizes = resident(self._process)
            self.server_mib = _status(self._process).get("VmHWM", self.server_mib)
            self.tree_mib = max(self.tree_mib, sum(sizes))

    def stop(self) -> None:
        """End, and wait for the end."""
        self._ended.set()
        self.join()


def resident(process: int) -> list[float]:
    """Return the resident memory in MiB of a process and of each of its descendants."""
    found = [_status(process).get("VmRSS", 0.0)]
    for other in Path("/proc").glob("[0-9]*"):
        status = _status(int(other.name))
        if status.get("PPid") == process:
            found += resident(int(other.name))
    return found


def _status(process: int) -> dict[str, float]:
    """Return the status of a process, memory in MiB; empty if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = [line.split() for line in lines if line.startswith(("PPid", "VmRSS", "VmHWM"))]
    return {name.rstrip(":"): int(number) / 1024 if unit else int(number) for name, number, *unit in fields}


@contextmanager
def served(folder: Path) -> Iterator[tuple[httpx.Client, int]]:
    """Start a server, and stop it at the end."""
    command = [sys.executable, "-m", "mcflow", "serve", "--port", "0", "--data-dir", str(folder)]
    environ = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip().rpartition(" ")[2]
        try:
            with httpx.Client(base_url=url, timeout=3600) as client:
                yield client, process.pid
        finally:
            process.terminate()


def send(client: httpx.Client, name: str, content: Any, **fields: Any) -> str:
    """Send a file to fit on, and return the address of its model."""
    answer = client.post("/models", files={"file": (name, content)}, data={key: str(v) for key, v in fields.items()})
    answer.raise_for_status()
    return f"/models/{answer.json()['id']}"


def wait(client: httpx.Client, path: str) -> str:
    """Wait for all outputs of a model, with its intervals; return the error message, empty if all is there."""
    while True:
        found: dict[str, Any] = client.get(path).json()
        if found["state"] in ("failed", "cancelled", "interrupted"):
            return f"{found['state']}: {found['message']}"
        later = [found[part] for part in ("table", "intervals")]
        if found["state"] == "done" and all(part["state"] in ("ready", "failed") for part in later):
            return " ".join(part["message"] for part in later if part["state"] == "failed")
        time.sleep(0.5)


def large(folder: Path, megabytes: float, max_time: float) -> dict[str, Any]:
    """Send one large file, wait for all outputs, and download the filled file."""
    source = folder / "large.csv"
    rows = make(source, megabytes)
    with served(folder / "jobs") as (client, process):
        memory = Memory(process)
        memory.start()
        start = time.perf_counter()
        with source.open("rb") as file:
            path = send(client, source.name, file, max_time=max_time, seed=0)
        sent = time.perf_counter()
        wrong = wait(client, path)
        done = time.perf_counter()
        assert not wrong, wrong
        page = client.get(f"{path}/rows", params={"start": rows - 50}).json()
        assert page["cells"], "the last rows cannot be viewed"
        size = download(client, f"{path}/filled")
        memory.stop()
    return {
        "rows": rows,
        "columns": N_COLUMNS,
        "megabytes": round(source.stat().st_size / 1e6, 1),
        "filled_megabytes": round(size / 1e6, 1),
        "sent_s": round(sent - start, 1),
        "done_s": round(done - start, 1),
        "server_gib": round(memory.server_mib / 1024, 3),
        "with_jobs_gib": round(memory.tree_mib / 1024, 3),
    }


def download(client: httpx.Client, path: str) -> int:
    """Download a file and return its number of bytes."""
    with client.stream("GET", path) as answer:
        answer.raise_for_status()
        return sum(len(piece) for piece in answer.iter_bytes())


def many(folder: Path) -> dict[str, Any]:
    """Send small files by several clients at once, and wait for all."""
    small = pa.BufferOutputStream()
    csv.write_csv(piece(SMALL_ROWS, np.random.default_rng(0)), small)
    text = small.getvalue().to_pybytes()
    with served(folder / "more") as (client, _), ThreadPoolExecutor(CLIENTS) as clients:
        start = time.perf_counter()
        paths = list(clients.map(lambda k: send(client, f"{k}.csv", text, max_epochs=2, seed=k), range(CLIENTS)))
        waiting = sum(client.get(path).json()["state"] in ("queued", "checking") for path in paths)
        wrong = [wait(client, path) for path in paths]
        seconds = time.perf_counter() - start
    return {"clients": CLIENTS, "waiting": waiting, "done": wrong.count(""), "seconds": round(seconds, 1)}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        found = large(Path(folder), options.megabytes, options.max_time)
        return found | {"max_time_s": options.max_time, "limit_gib": LIMIT_GIB, "many": many(Path(folder))}


if __name__ == "__main__":
    harness.main("serve", __doc__, measure, megabytes=100.0, max_time=60.0)
