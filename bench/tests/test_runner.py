"""Cells in processes of their own: failures are rows, interruptions lose nothing, and a second run continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mcflow.cli.app import main
from mcflow.errors import OutputError, ParameterError
from mcflow_bench import runner
from mcflow_bench.cells import with_threads
from mcflow_bench.protocol import split_table
from mcflow_bench.runner import Progress, run_suite
from mcflow_bench.store import Store
from mcflow_bench.suites import Cell, TableSuite, TableTask

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(not hasattr(os, "wait4"), reason="process groups and wait4 are those of POSIX")


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}


def command(small: Path, output: Path, *methods: str, **flags: object) -> list[str]:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    start = [sys.executable, "-m", "mcflow", "benchmark", "tables", f"--data={small}", f"--output={output}"]
    return [*start, "--tables=small", "--folds=0", f"--methods={','.join(methods)}", *words]


def by_method(output: Path) -> dict[str, dict]:
    return {row["label"]: row for row in Store(output).rows()}


def until(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def pids(log: Path) -> list[int]:
    """Return the processes that have begun a fit."""
    return [int(word) for word in log.read_text().split()] if log.exists() else []


MANY = {
    "python:fakes:Means": "done",
    "python:fakes:Means(mib=300)": "done",
    "python:fakes:Seeded": "done",
    "python:fakes:Drawn": "done",
    "python:fakes:Drawn(fails=True)": "done",
    "python:fakes:Broken": "error",
    "python:fakes:Exhausted": "memory",
    "python:fakes:Crashing": "crash",
    "python:fakes:Killed": "memory",
    "python:fakes:Leaky": "error",
}


@pytest.fixture(scope="module")
def many(small, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("many")
    done = subprocess.run(
        command(small, output, *MANY, jobs=2, seed=3), env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "10 cells measured now, 0 before, 5 failed; --retry measures failed ones again." in done.stderr
    assert "[10/10]" in done.stderr, "plain lines where there is no terminal"
    assert f"Tables written to {output / 'table.md'}" in done.stdout
    return output


def test_every_way_to_fail_is_a_row_with_a_status_and_a_message(many) -> None:
    rows = by_method(many)
    assert {method: row["status"] for method, row in rows.items()} == MANY
    assert rows["python:fakes:Broken"]["message"] == "ValueError: no good"
    assert rows["python:fakes:Crashing"]["message"] == "ended with code 7 about to fall"
    assert "for lack of memory" in rows["python:fakes:Killed"]["message"]
    assert "cells of the filled rows are not finite" in rows["python:fakes:Leaky"]["message"]
    assert rows["python:fakes:Drawn(fails=True)"]["message"] == "draws: RuntimeError: no third draw"


def test_scores_are_those_of_the_protocol(many, small) -> None:
    values = np.loadtxt(small / "small.csv", delimiter=",", skiprows=1)
    split = split_table(values, 0, 0.2)
    means = np.nanmean(np.where(split.hidden_train, np.nan, split.train), axis=0)
    gaps = ((means - split.test) / np.ptp(values, axis=0))[split.hidden_test]
    rows = by_method(many)
    assert rows["python:fakes:Means"]["scores"]["rmse"]["value"] == pytest.approx(np.sqrt(np.mean(gaps**2)), rel=1e-12)
    gaps = ((3.0 - split.test) / np.ptp(values, axis=0))[split.hidden_test]
    assert rows["python:fakes:Seeded"]["scores"]["rmse"]["value"] == pytest.approx(np.sqrt(np.mean(gaps**2)))
    assert {"crps", "coverage_90"} <= rows["python:fakes:Drawn"]["scores"].keys()
    assert "crps" not in rows["python:fakes:Drawn(fails=True)"]["scores"]


def test_row_tells_what_it_depends_on(many) -> None:
    row = by_method(many)["python:fakes:Means"]
    assert row["task"] | {"sha256": ""} == {
        "table": "small",
        "sha256": "",
        "rows": None,
        "mechanism": "mcar",
        "rate": 0.2,
        "fold": 0,
        "method": "python:fakes:Means",
        "seed": 3,
    }
    assert row["key"] == TableTask(**row["task"]).key
    assert row["data"] == {"rows": 80, "columns": 3, "hidden_test_cells": row["data"]["hidden_test_cells"]}
    assert {"numpy", "torch", "mcflow", "python", "scipy", "scikit-learn", "lightgbm"} == row["versions"].keys()
    assert {"cpu", "cores", "ram_gib", "system"} == row["machine"].keys()
    assert (row["threads"], row["jobs"], len(row["load"]), row["date"][:2]) == (1, 2, 2, "20")
    assert 0 <= row["fit_s"] < row["seconds"]


def test_peak_memory_tells_a_hungry_cell(many) -> None:
    rows = by_method(many)
    gap = rows["python:fakes:Means(mib=300)"]["peak_mib"] - rows["python:fakes:Means"]["peak_mib"]
    assert 280 < gap < 330
    assert rows["python:fakes:Crashing"]["peak_mib"] > 20, "also of a process that fell"


def test_second_run_does_nothing_and_retry_does_the_failed(many, small, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    before = {path.name: path.stat().st_mtime_ns for path in (many / "cells").iterdir()}
    suite = TableSuite(data=("small",), methods=("python:fakes:Means", "python:fakes:Broken"), folds=(0,), seed=3)
    outcome = run_suite(suite, many, data=small, quiet=True)
    assert (outcome.found, outcome.done, outcome.failed) == (2, 0, 1)
    assert {path.name: path.stat().st_mtime_ns for path in (many / "cells").iterdir()} == before
    outcome = run_suite(suite, many, data=small, quiet=True, retry=True)
    assert (outcome.found, outcome.done, outcome.failed) == (1, 1, 1)
    changed = [path.name for path in (many / "cells").iterdir() if path.stat().st_mtime_ns != before[path.name]]
    assert len(changed) == 1
    assert "Broken" in changed[0]


def test_time_limit_ends_a_cell_and_all_it_started(small, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    suite = TableSuite(data=("small",), methods=("python:fakes:Means(seconds=600)",), folds=(0,), time_limit=1.5)
    start = time.monotonic()
    assert run_suite(suite, tmp_path, data=small, quiet=True).failed == 1
    assert time.monotonic() - start < 30
    (row,) = Store(tmp_path).rows()
    assert (row["status"], row["message"]) == ("timeout", "not done after 1.5 s")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cells"], "no lock and no passing files stay"


def test_score_that_was_reported_before_the_time_was_over_counts(tmp_path) -> None:
    cell = Cell(TableTask("small", "", None, "mcar", 0.2, 0, "mean", 0), tmp_path, "mean")
    (tmp_path / "result.json").write_text('{"status": "done", "message": "", "peak_mib": 5.0}')
    one = runner.Running(cell, None, tmp_path, 1.0, 0.0, None)
    row = runner._row(one, runner._Ended(-9, 70.0, late=True))
    assert (row["status"], row["message"]) == ("done", "draws were not scored within the time limit")
    assert (row["peak_mib"], row["process_mib"]) == (5.0, 70.0)
    row = runner._row(one, runner._Ended(-15, 70.0, late=False))
    assert (row["status"], row["message"]) == ("done", "ended with code -15 after the fill was scored")
    assert runner._row(one, runner._Ended(0, 70.0, late=False))["message"] == ""


def test_kill_in_the_middle_loses_and_repeats_no_finished_cell(small, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    output, log, slow = tmp_path / "out", tmp_path / "log", tmp_path / "slow"
    methods = [f"python:fakes:Means(log={str(log)!r})", f"python:fakes:Means(log={str(slow)!r},seconds=600)"]
    bench = subprocess.Popen(command(small, output, *methods, jobs=1), env=environment(), stderr=subprocess.DEVNULL)
    until(lambda: pids(slow))
    cells = pids(slow)
    bench.kill()
    bench.wait()
    (finished,) = (output / "cells").glob("*.json")
    before = finished.read_bytes()
    until(lambda: not any(map(alive, cells)), 20)  # the running cell ends with its parent
    again = command(small, output, *methods, time_limit=1.5)
    assert main(again[3:]) == 0
    assert "1 cells measured now, 1 before, 1 failed" in capsys.readouterr().err
    assert len(pids(log)) == 1, "the finished cell was not done again"
    assert finished.read_bytes() == before
    assert sorted(row["status"] for row in Store(output).rows()) == ["done", "timeout"]


def test_interrupt_ends_the_cells_and_says_how_to_continue(small, tmp_path) -> None:
    output, slow = tmp_path / "out", tmp_path / "slow"
    run = command(small, output, f"python:fakes:Means(log={str(slow)!r},seconds=600)")
    # A shell that runs the tests in the background ignores SIGINT, and child processes inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    bench = subprocess.Popen(run, env=environment(), stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    until(lambda: pids(slow))
    cells = pids(slow)
    with pytest.raises(OutputError, match=f"Process {bench.pid} is at work on"), Store(output).locked():
        pass
    bench.send_signal(signal.SIGINT)
    said = bench.communicate(timeout=60)[1]
    assert bench.returncode == 130
    assert "the same command continues" in said
    assert "Traceback" not in said
    assert not any(map(alive, cells))
    assert list((output / "cells").iterdir()) == []
    with Store(output).locked():
        pass


def test_method_that_does_not_exist_ends_before_anything_is_run(small, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    suite = TableSuite(data=("small",), methods=("python:fakes:Means", "python:fakes:Meens"), folds=(0,))
    with pytest.raises(ParameterError, match="Meens"):
        run_suite(suite, tmp_path, data=small, quiet=True)
    assert Store(tmp_path).rows() == []


def test_half_written_result_is_taken_for_none(tmp_path) -> None:
    store = Store(tmp_path)
    task = TableTask("small", "", None, "mcar", 0.2, 0, "mean", 0)
    store.add(task, {"status": "done"})
    path = store.cells / f"{task.name}.json"
    assert store.finished().keys() == {task.key}
    whole = path.read_text()
    for cut in ("", whole[: len(whole) // 2], "[]", '{"key": 1}'):
        path.write_text(cut)
        assert store.rows() == []
    (store.cells / f".{task.name}.json.abcd.tmp").write_text(whole)
    assert store.rows() == []


def test_stale_lock_of_a_dead_process_is_no_hindrance(tmp_path) -> None:
    store = Store(tmp_path)
    (tmp_path / ".lock").write_text("999999")
    (tmp_path / ".work").mkdir()
    (tmp_path / ".work" / "rest").touch()
    with store.locked() as work:
        assert list(work.iterdir()) == []
        assert (tmp_path / ".lock").read_text() == str(os.getpid())
    assert not (tmp_path / ".lock").exists()


def test_folder_that_cannot_be_is_refused(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be made"):
        Store(tmp_path / "file")


def row_of(cell: Cell, seconds: float, status: str = "done") -> dict:
    from dataclasses import asdict

    scores = {"rmse": {"value": 0.125}}
    return {"task": asdict(cell.task), "label": cell.label, "status": status, "message": "why",
            "seconds": seconds, "scores": scores, "peak_mib": 100.0}  # fmt: skip


def test_time_left_is_estimated_from_the_same_method_and_table() -> None:
    from rich.console import Console

    def cell(table: str, method: str, fold: int) -> Cell:
        return Cell(TableTask(table, "", None, "mcar", 0.2, fold, method, 0), Path(), method)

    left = [cell("a", "fast", 1), cell("b", "fast", 1), cell("a", "slow", 1), cell("a", "new", 1)]
    known = [row_of(cell("a", "fast", 0), 2.0), row_of(cell("b", "fast", 0), 4.0), row_of(cell("b", "slow", 0), 60.0)]
    console = Console(record=True, width=100, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    with Progress(left, known, 2, console) as progress:
        assert progress.seconds_left([]) == (2 + 4 + 60 + 22) / 2
        progress.on_end(left[0], row_of(left[0], 2.0))
        progress.on_end(left[2], row_of(left[2], 10.0, "error"))
        one = runner.Running(left[1], None, Path(), 0.0, time.monotonic(), None)
        progress.on_pause([one])
        text = "\n".join(map(str, progress._table([one]).columns[0].cells))
    assert "b, mcar 0.2, fold 1, fast" in text
    assert "1 done, 1 failed, 2 left" in str(progress._table([]).title)
    said = console.export_text()
    assert "[1/4] a, mcar 0.2, fold 1, fast: RMSE 0.1250, 2.0 s, 100 MiB" in said
    assert "[2/4] a, mcar 0.2, fold 1, slow: error: why" in said
    console.file.close()


def test_cell_reads_its_task_from_standard_input(small, tmp_path) -> None:
    task = TableTask("small", "", None, "mcar", 0.2, 0, "python:fakes:Broken", 0)
    from dataclasses import asdict

    given = {"task": asdict(task), "path": str(small / "small.csv"), "result": str(tmp_path / "result.json")}
    process = subprocess.Popen(
        [sys.executable, "-m", "mcflow_bench.cells"],
        env=environment(),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdin.write(json.dumps(given).encode() + b"\n")
    process.stdin.flush()
    assert process.wait(60) == 0
    process.stdin.close()
    assert b"Traceback" in process.stderr.read()
    process.stderr.close()
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "error"


def test_threads_of_a_cell_become_jobs_unless_these_were_given(monkeypatch) -> None:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.impute import SimpleImputer

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert with_threads(RandomForestRegressor()).n_jobs == 3
    assert with_threads(RandomForestRegressor(n_jobs=1)).n_jobs == 1
    assert isinstance(with_threads(SimpleImputer()), SimpleImputer)
