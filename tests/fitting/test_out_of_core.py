"""Memory-mapped arrays: pages are released regularly, and data stays."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from mcflow.fitting import out_of_core
from mcflow.fitting.out_of_core import MappedArrays


def resident() -> int:
    """Bytes of files that this process has in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssFile", "RssShmem")))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_are_released_while_the_block_runs_and_numbers_stay(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(out_of_core, "SMALL_BYTES", 1 << 20)
    monkeypatch.setattr(out_of_core, "RELEASE_SECONDS", 0.02)
    most, threads = resident() + (1 << 24), threading.active_count()
    with MappedArrays() as arrays:
        numbers = arrays.open(tmp_path / "numbers", np.float32, (1 << 22, 4), "w+")
        numbers[:] = 3
        deadline = time.monotonic() + 20
        while resident() > most and time.monotonic() < deadline:
            time.sleep(0.01)
        assert resident() <= most, "64 MB were written"
        assert numbers.sum(dtype=np.float64) == 3 * numbers.size
    assert threading.active_count() == threads


def test_small_files_stay_and_a_second_process_would_see_what_was_written(tmp_path) -> None:
    with MappedArrays() as arrays:
        first = arrays.open(tmp_path / "flags", np.bool_, (5,), "w+")
        first[3] = True
        second = arrays.open(tmp_path / "flags", np.bool_, (5,), "r+")
        arrays.release()
        assert second.tolist() == [False, False, False, True, False]
