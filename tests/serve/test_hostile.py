"""Clients that mean no good: bombs, floods, slow connections and greedy jobs."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcflow.files.parquet import decoded_size
from mcflow.serve import children, guard
from mcflow.serve.limits import Limits

ROWS = "a,b\n1,\n2,3\n,4\n"


def bombs() -> dict[str, pa.Table]:
    big = "x" * 1_000_000
    return {
        "texts": pa.table({"a": pa.array([big] * 200)}),
        "lists": pa.table({"a": pa.array([[big] * 100, [big] * 100])}),
        "structs": pa.table({"a": pa.array([{"b": {"c": big}}] * 200)}),
        "maps": pa.table({"a": pa.array([[("k", big)]] * 200, pa.map_(pa.string(), pa.string()))}),
        "bytes of fixed length": pa.table({"a": pa.array([big.encode()] * 200, pa.binary(1_000_000))}),
        "lists of numbers": pa.table({"a": pa.array([[7] * 10_000_000, [7] * 15_000_000], pa.list_(pa.int64()))}),
    }


@pytest.fixture(scope="module")
def bomb_files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bombs")
    paths = {name: folder / f"{name}.parquet" for name in bombs()}
    for name, table in bombs().items():
        pq.write_table(table, paths[name], compression="zstd")
    return paths


def test_decoded_size_counts_repeated_values_and_costs_little_memory(bomb_files) -> None:
    pool = pa.default_memory_pool()
    for name, path in bomb_files.items():
        assert path.stat().st_size < 1_500_000, name
        before = pool.bytes_allocated()
        peak_free = pa.system_memory_pool().bytes_allocated()
        assert decoded_size(path, 150_000_000) > 150_000_000, name
        assert pool.bytes_allocated() - before < 10_000_000
        assert pa.system_memory_pool().bytes_allocated() == peak_free


def test_decoded_size_of_an_ordinary_file_is_the_size_of_its_values(tmp_path) -> None:
    table = pa.table({"a": pa.array(range(1000)), "b": pa.array([f"text {k % 7}" for k in range(1000)])})
    pq.write_table(table, tmp_path / "t.parquet")
    assert 12_000 < decoded_size(tmp_path / "t.parquet", 10**9) < 20_000


@pytest.mark.parametrize("name", ["texts", "lists of numbers"])
def test_bomb_is_refused_with_words_and_little_memory(client_of, bomb_files, send, name) -> None:
    client = client_of(max_upload=5_000_000)
    answer = send(client, bomb_files[name].read_bytes(), "bomb.parquet")
    assert answer.status_code == 422
    assert "decompresses to more than 5,000,000 bytes" in answer.json()["detail"]


def test_bomb_for_a_fitted_model_is_refused_too(client_of, stub, send, wait_for, bomb_files, monkeypatch) -> None:
    from mcflow.serve import commands

    inspect_command = commands.inspect_command
    stub(0.0)
    client = client_of(max_upload=5_000_000)
    path = send(client, ROWS).headers["location"]
    wait_for(client, path, "done")
    monkeypatch.setattr(commands, "inspect_command", inspect_command)
    with bomb_files["texts"].open("rb") as file:
        answer = client.post(f"{path}/impute", files={"file": ("bomb.parquet", file)})
    assert answer.status_code == 422
    assert "decompresses to more than" in answer.json()["detail"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux")
def test_job_that_takes_memory_at_once_cannot(tmp_path, monkeypatch) -> None:
    import asyncio

    monkeypatch.setattr(children, "_RESERVED", 0)
    greedy = [sys.executable, "-S", "-c", "x = bytearray(3 << 30)"]
    child = children.Child(greedy, tmp_path, Limits(max_memory=1 << 30))
    assert "more memory than the server allows" in asyncio.run(child.run())
    assert child.peak < 1 << 30


def test_uploads_beyond_the_queue_are_refused_with_429_and_none_is_lost(client_of, stub, send, wait_for) -> None:
    stub(0.2)
    client = client_of(max_queue=5)
    with ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(lambda _: send(client, ROWS), range(30)))
    statuses = {answer.status_code for answer in answers}
    assert statuses == {202, 429}
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) >= 15
    assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)
    assert all("queue is full" in answer.json()["detail"] for answer in refused)
    for answer in answers:
        if answer.status_code == 202:
            assert wait_for(client, answer.headers["location"], "done", "failed", "ready")["state"] == "done"
    assert "mcflow_pending_jobs 0" in client.get("/metrics").text


@pytest.mark.parametrize("quota", [{"max_kept": 2}, {"max_disk": 900}])
def test_quota_of_jobs_and_bytes_is_kept_and_shown(client_of, stub, send, wait_for, quota, monkeypatch) -> None:
    monkeypatch.setattr("mcflow.serve.jobs._MEASURE_SECONDS", -1.0)
    stub(0.0)
    client = client_of(**quota)
    statuses = []
    for _ in range(5):
        answer = send(client, ROWS)
        statuses.append(answer.status_code)
        if answer.status_code == 202:
            wait_for(client, answer.headers["location"], "done")
    assert statuses[0] == 202
    assert statuses[-1] == 507
    assert int(answer.headers["retry-after"]) > 0
    assert "Delete some" in answer.json()["detail"]
    metrics = client.get("/metrics").text
    assert f"mcflow_{'kept' if 'max_kept' in quota else 'disk'}_limit" in metrics
    assert "mcflow_disk_bytes " in metrics
    for model in client.get("/models").json()["models"]:
        client.delete(f"/models/{model['id']}")
    assert send(client, ROWS).status_code == 202


@pytest.fixture
def address(tmp_path, monkeypatch, stub):
    """A server with a socket and short time-outs, in a thread."""
    import uvicorn

    from mcflow.serve.app import create_app

    stub(0.0)
    monkeypatch.setattr(guard, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3)
    config = uvicorn.Config(create_app(tmp_path), log_level="error", http=guard.TimedProtocol, ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()
        server.should_exit = True
        thread.join(30)


def answer_to(address: tuple[str, int], *parts: bytes, pause: float = 0.0) -> bytes:
    with socket.create_connection(address, 10) as client:
        for part in parts:
            client.sendall(part)
            time.sleep(pause)
        found = b""
        while piece := client.recv(65536):
            found += piece
    return found


HEAD = b"POST /models HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"


def test_connection_that_sends_no_headers_is_closed_with_408(address) -> None:
    for parts in ((), (b"GET / HT",), (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET")):
        found = answer_to(address, *parts, pause=0.05)
        assert b"408 Request Timeout" in found
        assert b"did not arrive in time" in found


def test_body_that_stops_is_answered_with_408_and_frees_its_place(address) -> None:
    found = answer_to(address, HEAD + b"Content-Length: 5000\r\n\r\n--x\r\n")
    assert b" 408 " in found.split(b"\r\n")[0]
    assert b"arrived too slowly" in found
    metrics = answer_to(address, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b"mcflow_pending_jobs 0" in metrics


def test_quick_request_on_a_server_with_time_outs_is_answered(address) -> None:
    found = answer_to(address, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200")


def test_rejected_body_is_read_before_the_answer() -> None:
    """A connection that is closed while the client is sending loses the answer."""
    parts = [{"type": "http.request", "body": b"x" * 1000, "more_body": k < 9} for k in range(10)]
    left = iter(parts)
    limited = guard._LimitedBody(lambda: asyncio.sleep(0, next(left)), most=10**6, max_upload=10**6)
    asyncio.run(limited.linger())
    assert next(left, None) is None
    asyncio.run(limited.linger())


def test_rejected_body_that_never_ends_is_left_after_a_while(monkeypatch) -> None:
    monkeypatch.setattr(guard, "LINGER_SECONDS", 0.05)
    part = {"type": "http.request", "body": b"x", "more_body": True}
    limited = guard._LimitedBody(lambda: asyncio.sleep(0.001, part), most=10**6, max_upload=10**6)
    asyncio.run(limited.linger())
    assert not limited._whole
