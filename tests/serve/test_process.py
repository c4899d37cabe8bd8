"""The server as a process: how it starts, refuses to start, is killed and comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from mcflow.cli.app import main
from mcflow.installation import install_extra

ROWS = "a,b\n1,\n2,3\n,4\n"

#: A server whose fits take a minute and do nothing.
SLOW_SERVER = """
import sys
from pathlib import Path
from mcflow.serve import commands
from mcflow.serve.app import run_server
from mcflow.serve.limits import Limits
look = "import json; json.dump({'rows': 3, 'missing': 2, 'columns': [], 'preview': [], 'problem': ''}, open('schema.json', 'w'))"
commands.inspect_command = lambda *_: [sys.executable, "-S", "-c", look]
commands.fit_command = lambda job: [sys.executable, "-S", "-c", "open('.filled.csv.x.tmp', 'w').write('half'); import time; time.sleep(60)"]
run_server(Path(sys.argv[1]), host="127.0.0.1", port=0, limits=Limits(), token="", on_ready=lambda url: print(url, flush=True))
"""  # noqa: E501


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
def test_killed_server_leaves_nothing_half_written_and_its_jobs_can_go_on(tmp_path, client_of, wait_for, stub) -> None:
    command = [sys.executable, "-c", SLOW_SERVER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip().rstrip("/")
        with httpx.Client(base_url=url, timeout=60) as client:
            path = client.post("/models", files={"file": ("rows.csv", ROWS)}).headers["location"]
            other = client.post("/models", files={"file": ("rows.csv", ROWS)}).headers["location"]
            wait_for(client, path, "running")
            scrap = tmp_path / "models" / path.rpartition("/")[2] / ".filled.csv.x.tmp"
            while not scrap.exists():
                time.sleep(0.05)
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        server.send_signal(signal.SIGKILL)
    end = time.monotonic() + 5
    while any(alive(int(child)) for child in children) and time.monotonic() < end:
        time.sleep(0.02)
    assert children
    assert not any(alive(int(child)) for child in children), "what a killed server started ends with it"
    stub(0.0)
    again = client_of(tmp_path)
    assert wait_for(again, path, "interrupted")["message"].endswith("Start the job again to resume it.")
    for file in ("filled", "model", "report", "rows"):
        assert again.get(f"{path}/{file}").status_code == 409
    wait_for(again, other, "done")
    again.post(f"{path}/start")
    wait_for(again, path, "done")
    assert again.get(f"{path}/filled").text == "a,b\n1,7\n2,3\n7,4\n"
    assert not scrap.exists()


def test_server_starts_answers_and_stops_by_the_command(serve, tmp_path) -> None:
    server = serve(tmp_path, "--keep", "2")
    assert httpx.get(f"{server.url}/health").json()["status"] == "ok"
    assert httpx.get(f"{server.url}/about").json()["limits"]["keep"] == 2
    assert "mcflow" in httpx.get(server.url).text
    command = [sys.executable, "-m", "mcflow", "serve", "--port", "0", "--data-dir", str(tmp_path)]
    second = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert second.returncode == 4
    assert "is at work on" in second.stderr
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(30) == 0


def test_server_without_token_refuses_to_let_other_machines_in(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("MCFLOW_TOKEN", raising=False)
    assert main(["serve", "--host", "0.0.0.0", "--data-dir", str(tmp_path)]) == 2
    assert "MCFLOW_TOKEN" in capsys.readouterr().err
    assert main(["serve", "--token", "short", "--data-dir", str(tmp_path)]) == 2
    assert main(["serve", "--max-upload", "much", "--data-dir", str(tmp_path)]) == 2
    assert main(["serve", "--jobs", "0", "--data-dir", str(tmp_path)]) == 2


def test_server_says_when_the_port_or_folder_cannot_be_used(capsys, tmp_path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "--port", port, "--data-dir", str(tmp_path)]) == 4
    assert "Choose another --port" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["serve", "--port", "0", "--data-dir", str(tmp_path / "file" / "x")]) == 4


def test_missing_extra_is_answered_with_the_line_that_installs_it(capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve"]) == 3
    assert install_extra("serve") in capsys.readouterr().err


@pytest.mark.slow
def test_killed_fit_goes_on_and_gives_the_file_of_the_command(serve, tmp_path, table_text, wait_for) -> None:
    source = tmp_path / "rows.csv"
    source.write_text(table_text)
    chosen = ["--seed", "4", "--max-epochs", "30"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mcflow", "impute", str(source), "-o", str(tmp_path / "out.csv"), *chosen, "-q"]
    subprocess.run(command, check=True, env=environment, timeout=600)
    server = serve(tmp_path / "jobs")
    with httpx.Client(base_url=server.url, timeout=60) as client, source.open("rb") as file:
        sent = client.post("/models", files={"file": file}, data={"seed": "4", "max_epochs": "30"})
        path = sent.headers["location"]
        while not (client.get(path).json()["progress"] or {}).get("epoch", 0) > 2:
            time.sleep(0.05)
    server.kill()
    again = serve(tmp_path / "jobs")
    with httpx.Client(base_url=again.url, timeout=60) as client:
        wait_for(client, path, "interrupted")
        client.post(f"{path}/start")
        wait_for(client, path, "done", "failed", seconds=600)
        assert client.get(f"{path}/filled").content == (tmp_path / "out.csv").read_bytes()
