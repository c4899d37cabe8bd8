"""What tests of more than one engine need."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """A small Ray cluster of this test process; starting one takes several seconds.

    It ends with its module: the start of Spark forks the process, after which Ray's core has been seen to fall over.
    """
    # No statistics, workers that do not wait for all others on a busy machine, and no log of the core on the terminal.
    wanted = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
    with warnings.catch_warnings(), mock.patch.dict(os.environ, wanted):
        warnings.simplefilter("ignore")
        ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'mcflow-impute[ray]'")
        pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'mcflow-impute[ray]'")
        ray.init(
            address="local",
            num_cpus=2,
            object_store_memory=200 * 2**20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
    yield ray
    ray.shutdown()


@pytest.fixture
def ray_processes(ray_cluster: Any) -> Callable[[str], list[int]]:
    """Find the processes of the cluster of this test process whose name has a word in it."""

    def find(word: str) -> list[int]:
        session = ray_cluster.get_runtime_context().worker.node.get_session_dir_path()
        raylets, found = set(), []
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                command = (status.parent / "cmdline").read_bytes().decode(errors="replace")
                if "/raylet" in command.partition("\0")[0] and session in command:
                    raylets.add(status.parent.name)
                elif command.startswith("ray::") and word in command:
                    parent = next(line for line in status.read_text().splitlines() if line.startswith("PPid:"))
                    found.append((int(status.parent.name), parent.split()[1]))
        return [process for process, parent in found if parent in raylets]

    return find


SCRIPT = """
import sys, time
from mcflow.engines import Scorer, impute_dataset
scorer = Scorer.from_file(sys.argv[1])
plain = scorer.fill
def slow(*given):
    time.sleep(float(sys.argv[4]))
    return plain(*given)
scorer.fill = slow
for output in sys.argv[5:]:
    impute_dataset(sys.argv[2], output, scorer, part_rows=int(sys.argv[3]))
"""


@pytest.fixture
def killed_run(tmp_path: Path) -> Callable[..., None]:
    """Kill a run that fills ten parts in its middle, let another go on, and compare with one that was left alone."""

    def run(scorer: Any, source: Path, part_rows: int) -> None:
        model, out, ending = tmp_path / "m.mcflow", tmp_path / "out", f"*{source.suffix}"
        scorer.imputer.save(model)
        command = [sys.executable, "-c", SCRIPT, str(model), str(source), str(part_rows)]
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        running = subprocess.Popen([*command, "0.2", str(out)], env=env)
        deadline = time.monotonic() + 120
        while len(list(out.glob(ending))) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        running.kill()
        assert running.wait() == -signal.SIGKILL
        done = {file.name: file.stat().st_mtime_ns for file in out.glob(f"[!.]{ending}")}
        assert 2 <= len(done) < 10, "stopped in the middle"
        subprocess.run([*command, "0", str(out), str(tmp_path / "calm")], env=env, check=True)
        whole = {file.name: file.read_bytes() for file in (tmp_path / "calm").glob(ending)}
        assert {file.name: file.read_bytes() for file in out.glob(ending)} == whole
        assert len(whole) == 10
        assert all((out / name).stat().st_mtime_ns == when for name, when in done.items())

    return run
