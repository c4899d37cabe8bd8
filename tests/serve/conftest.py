"""A small table, a server in this process, and one as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal

from mcflow.serve import commands as commands_module
from mcflow.serve.app import create_app
from mcflow.serve.limits import Limits

#: Behaves as `mcflow impute` for the server, but fast: missing cells become 7.
STUB = """
import json, sys, time
name, output, wait = sys.argv[1:4]
text = open(name).read()
if "fail" in text:
    print("mcflow: upload.csv cannot be learned from.", file=sys.stderr); sys.exit(3)
print(json.dumps({"event": "begin", "epochs": 2, "rows": 3}), file=sys.stderr, flush=True)
for epoch in (1, 2):
    time.sleep(float(wait) / 2)
    said = {"event": "epoch", "epoch": epoch, "epochs": 2, "flow_loss": 0, "latent_loss": 1 / epoch,
            "validation_error": 1, "stage": 0, "seconds": 1, "seconds_left": 2 - epoch}
    print(json.dumps(said), file=sys.stderr, flush=True)
lines = [",".join(cell or "7" for cell in line.split(",")) for line in text.splitlines()]
open(output, "w").write("\\n".join(lines) + "\\n")
for name in ("model.mcflow", "report.html"):
    open(name, "w").write("<!doctype html><title>Report</title>")
"""


def stubbed(wait: float) -> Callable[..., list[str]]:
    """Return what makes a command of the stub for a job."""
    return lambda job, *_: [sys.executable, "-S", "-c", STUB, job.upload.name, job.output.name, str(wait)]


@pytest.fixture(scope="session")
def table_text() -> str:
    """A CSV with a number, an integer, a category, a code and missing cells."""
    return _table_text(120, 0)


def _table_text(rows: int, seed: int) -> str:
    rng = np.random.default_rng(seed)
    age, height = rng.integers(18, 90, rows), rng.normal(170, 9, rows).round(1)
    weight = (0.9 * (height - 100) + 0.1 * age + rng.normal(0, 7, rows)).round(1)
    systolic = (95 + 0.45 * age + 0.2 * weight + rng.normal(0, 8, rows)).astype(int)
    smoker, site = rng.choice(["never", "former", "daily"], rows), rng.choice([3, 7, 12], rows)
    visit = np.datetime64("2021-01-01") + rng.integers(0, 700, rows)
    rows_of_cells = zip(age, height, weight, systolic, smoker, site, visit, strict=True)
    lines = [",".join("" if rng.random() < 0.12 else str(cell) for cell in cells) for cells in rows_of_cells]
    return "\n".join(["age,height,weight,systolic,smoker,site,visit", *lines, ""])


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let jobs be done by the stub, which takes so many seconds."""

    def use(wait: float) -> None:
        quick = [sys.executable, "-S", "-c", "pass"]
        for command in ("fit_command", "fill_command", "draws_command"):
            monkeypatch.setattr(commands_module, command, stubbed(wait))
        for command in ("intervals_command", "preview_command"):
            monkeypatch.setattr(commands_module, command, lambda *_: quick)
        monkeypatch.setattr(commands_module, "inspect_command", lambda job, *_: _inspect(job.upload.name))

    return use


def _inspect(name: str) -> list[str]:
    code = """
import json, sys
lines = open(sys.argv[1]).read().splitlines()
columns = [{"name": n, "dtype": "double", "kind": "continuous", "missing": 1, "examples": [], "range": None}
           for n in lines[0].split(",")]
found = {"rows": len(lines) - 1, "missing": 1, "columns": columns, "preview": [], "problem": ""}
open("schema.json", "w").write(json.dumps(found))
"""
    return [sys.executable, "-S", "-c", code, name]


class Client:
    """A server in a thread of its own, without a socket, and what asks it."""

    def __init__(self, app: Any) -> None:
        self._running = start_blocking_portal()
        self._portal = self._running.__enter__()
        self._lifespan = app.router.lifespan_context(app)
        self._portal.call(self._lifespan.__aenter__)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=300)
        self.cookies = self._client.cookies

    def close(self) -> None:
        """Stop the server."""
        if self._running is not None:
            self._portal.call(self._client.aclose)
            self._portal.call(self._lifespan.__aexit__, None, None, None)
            self._running.__exit__(None, None, None)
            self._running = None

    def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Ask, and wait for the whole answer."""
        return self._portal.call(partial(self._client.request, method, path, **given))

    def __getattr__(self, name: str) -> Callable[..., httpx.Response]:
        return partial(self.request, name.upper())


@pytest.fixture
def client_of(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Make servers in this process, with their clients; the same folder for all unless another is given."""
    opened: list[Client] = []

    def make(folder: Path = tmp_path / "jobs", token: str = "", **limits: float) -> Client:
        opened.append(Client(create_app(folder, Limits(**limits), token)))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for client in opened:
        client.close()


@pytest.fixture(scope="session")
def send() -> Callable[..., Any]:
    """Send a file to a client's server."""
    return _send


def _send(client: Client, text: str | bytes, name: str = "rows.csv", **fields: object) -> Any:
    return client.post("/models", files={"file": (name, text)}, data={key: str(v) for key, v in fields.items()})


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., dict[str, Any]]:
    """Ask until a job is in one of the states."""
    return _wait_for


def _wait_for(client: Client, path: str, *states: str, seconds: float = 120) -> dict[str, Any]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = client.get(path).json()
        if answer.get("state") in states:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"not in {states} after {seconds} s: {answer}")


class ServerProcess:
    """`mcflow serve` as a process of its own."""

    def __init__(self, folder: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "mcflow", "serve", "--port", "0", "--data-dir", str(folder), *flags]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip().rpartition(" ")[2].rstrip("/")
        assert self.url.startswith("http"), "the server did not start"

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self._wait()

    def stop(self) -> None:
        """Ask it to end."""
        if self.process.poll() is None:
            self.process.terminate()
        self._wait()

    def _wait(self) -> None:
        assert self.process.stdout is not None
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., ServerProcess]]:
    """Start servers as processes of their own; they are stopped at the end of the module."""
    servers: list[ServerProcess] = []

    def start(folder: Path, *flags: str) -> ServerProcess:
        servers.append(ServerProcess(folder, *flags))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
