"""Commands that are killed at every point at which they write: nothing half-written, and a restart gives the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

DRIVER = Path(__file__).with_name("kill_driver.py")
QUICK = "--preset paper --max-epochs 2 --no-calibrate --quiet"
COMMANDS = {
    "impute": f"impute in.csv -o out.csv --save m.mcflow --checkpoint-dir state {QUICK}",
    "fit": f"fit in.csv -o m.mcflow {QUICK}",
    "draws": "impute in.csv -o out.parquet --model fitted.mcflow --draws 1 --long --quiet",
    "parts": "impute in.csv -o parts --model fitted.mcflow --quiet",
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs fork and /proc")
@pytest.mark.parametrize("name", COMMANDS)
def test_command_killed_at_any_write_point_leaves_nothing_half_written_and_restarts(name, tmp_path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3)).round(3)
    text = "a,b,c\n" + "".join(f"{a},{b},{c if k % 5 else ''}\n" for k, (a, b, c) in enumerate(rows))
    (tmp_path / "in.csv").write_text(text)
    if "fitted" in COMMANDS[name]:
        from mcflow.cli.app import main

        model = str(tmp_path / "fitted.mcflow")
        assert main(["fit", str(tmp_path / "in.csv"), "-o", model, *QUICK.split()]) == 0
    command = [sys.executable, str(DRIVER), str(tmp_path), *COMMANDS[name].split()]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found = json.loads(done.stdout)
    kinds = {point.split()[0] for point in found["points"]}
    assert {"open", "fsync", "rename"} <= kinds, found["points"]
    assert ("byte" in kinds) == (name in ("impute", "fit"))
    assert found["wrong"] == {}
