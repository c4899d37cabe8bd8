"""Send files by 50 clients, a tenth of them hostile or slow, to a server with limits, for 10 minutes.

    python bench/speed/load.py [--clients 50] [--minutes 10] [--dry]

The server is a process of its own on 127.0.0.1. Every answer has to be an accepted job or a refusal in words, every
accepted job has to end in a correct file, and the memory of the server has to stay flat: its mean in the last quarter
of the time may be 5 % above that in the second. The command fails otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import harness

LIMITS = ("--max-queue", "20", "--max-upload", "2MB", "--max-kept", "200", "--max-disk", "1GB", "--max-memory", "3GB")
#: Rows of the files that are sent.
SIZES = (20, 100, 500, 3_000)
#: Share by which the memory of the server may grow between the second and the last quarter.
GROWTH = 0.05


def table(rng: np.random.Generator) -> str:
    """Return a CSV file with missing cells, of one of several sizes."""
    rows = rng.normal(size=(int(rng.choice(SIZES)), 4)).round(3)
    cells = np.where(rng.random(rows.shape) < 0.2, "", rows.astype(str))
    return "\n".join(["a,b,c,d", *(",".join(row) for row in cells), ""])


def is_filled(before: str, after: str) -> bool:
    """Return whether all cells are filled and the observed ones unchanged."""
    old, new = ([line.split(",") for line in text.splitlines()] for text in (before, after))
    same = all(a in ("", b) for x, y in zip(old, new, strict=False) for a, b in zip(x, y, strict=True))
    return len(old) == len(new) and same and all(cell for row in new for cell in row)


def bomb() -> bytes:
    """Return a small Parquet file whose values take 2 GB."""
    stream = io.BytesIO()
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2_000, dtype=np.int32)), pa.array(["x" * 1_000_000]))
    pq.write_table(pa.table({"a": words}), stream, compression="zstd")
    return stream.getvalue()


class Load:
    """The clients, and what they have seen."""

    def __init__(self, url: str, minutes: float) -> None:
        self.url, self.end = url, time.monotonic() + 60 * minutes
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.bomb = bomb()

    def client(self, number: int) -> None:
        """Send files until the time is up."""
        rng = np.random.default_rng(number)
        with httpx.Client(base_url=self.url, timeout=120) as client:
            while time.monotonic() < self.end:
                try:
                    self.attack(client, rng) if number % 10 == 0 else self.fill(client, rng)
                except Exception as error:
                    self.wrong.append(f"{type(error).__name__}: {error}")
                    time.sleep(1)

    def fill(self, client: httpx.Client, rng: np.random.Generator) -> None:
        """Send a file, wait for its job, and compare what comes back."""
        text = table(rng)
        answer = client.post("/models", files={"file": ("rows.csv", text)}, data={"max_epochs": "1"})
        if answer.status_code in (429, 507):
            self.counts["refused"] += 1
            if not answer.headers.get("retry-after") or not answer.json()["detail"]:
                self.wrong.append("refused without words or a time to try again")
            time.sleep(float(rng.uniform(1, 5)))
            return
        answer.raise_for_status()
        self.counts["accepted"] += 1
        path = answer.headers["location"]
        found = self.wait(client, path)
        good = found["state"] == "done" and is_filled(text, client.get(f"{path}/filled").text)
        self.counts["filled" if good else "lost"] += 1
        if not good:
            self.wrong.append(f"{found['state']}: {found['message']}")
        client.delete(path)

    @staticmethod
    def wait(client: httpx.Client, path: str) -> dict[str, Any]:
        """Wait for the end of a job."""
        while True:
            found: dict[str, Any] = client.get(path).json()
            if found["state"] in ("done", "failed", "cancelled", "interrupted"):
                return found
            time.sleep(1)

    def attack(self, client: httpx.Client, rng: np.random.Generator) -> None:
        """Send something that has to be refused, or nothing for a while."""
        self.counts["hostile"] += 1
        if rng.random() < 0.3:
            host, _, port = self.url.removeprefix("http://").rstrip("/").partition(":")
            with socket.create_connection((host, int(port)), 60) as slow:
                slow.sendall(b"POST /models HTTP/1.1\r\nHost: localhost\r\nContent-Le")
                found = slow.recv(65536)
            if b" 408 " not in found:
                self.wrong.append(f"a slow connection was answered with {found[:80]!r}")
            return
        files = [("bomb.parquet", self.bomb), ("noise.parquet", rng.bytes(10_000)), ("noise.csv", rng.bytes(10_000))]
        files += [("large.csv", b"a,b\n" + b"1,2\n" * 2_000_000), ("rows.exe", b"a,b\n1,\n")]
        name, data = files[rng.integers(len(files))]
        with contextlib.suppress(httpx.WriteError, httpx.ReadError):  # a body that is too large is not read to its end
            answer = client.post("/models", files={"file": (name, data)})
            if answer.status_code == 202:  # it takes more than ten seconds until the file is inspected
                path = answer.headers["location"]
                if (state := self.wait(client, path)["state"]) != "failed":
                    self.wrong.append(f"{name} ended as {state}")
                client.delete(path)
            elif answer.status_code not in (413, 422, 429, 507):
                self.wrong.append(f"{name} was answered with {answer.status_code}")
        time.sleep(1)


def memory_mib(process: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "mcflow", "serve", "--port", "0", "--data-dir", folder, *LIMITS]
        environ = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
            assert process.stdout is not None
            try:
                load = Load(process.stdout.readline().strip().rpartition(" ")[2], options.minutes)
                samples = under_load(load, options.clients, process.pid)
            finally:
                process.terminate()
    second, last = (float(np.mean(part)) for part in (np.array_split(samples, 4)[1], np.array_split(samples, 4)[3]))
    found = {"clients": options.clients, "minutes": options.minutes, **load.counts, "wrong": len(load.wrong)}
    found |= {"second_quarter_mib": round(second, 1), "last_quarter_mib": round(last, 1), "limit": GROWTH}
    if load.wrong or last > (1 + GROWTH) * second:
        sys.exit(f"failed: {found}, {load.wrong[:10]}")
    return found


def under_load(load: Load, n_clients: int, process: int) -> list[float]:
    """Run the clients, and return the memory of the server every second while the time lasts."""
    threads = [threading.Thread(target=load.client, args=(number,)) for number in range(n_clients)]
    for thread in threads:
        thread.start()
    samples = []
    while time.monotonic() < load.end:
        samples.append(memory_mib(process))
        time.sleep(1)
    for thread in threads:
        thread.join()
    return samples


if __name__ == "__main__":
    harness.main("load", __doc__, measure, clients=50, minutes=10.0)
