"""Shared by the scripts that measure speed: tables to measure on, timing, processes, and stored results.

`python bench/speed/NAME.py` measures one thing, writes `results/NAME.json` and updates the pages that show it; with
`--dry` it only prints. `python bench/speed/harness.py` renders the pages again from the stored results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from mcflow import MCFlowImputer
from mcflow.files.atomic import replacing
from mcflow.fitting.callbacks import Callback
from mcflow.imputers import presets
from mcflow_bench.data.catalog import read_numbers
from mcflow_bench.machine import thread_variables
from mcflow_bench.report.blocks import with_block
from rendering import RENDER

Table = np.ndarray[Any, Any]
Result = dict[str, Any]

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGES = ("docs/performance.md", "docs/images.md", "docs/evaluate.md", "docs/scale.md", "docs/server.md")

#: Fraction of missing cells of made tables.
MISSING = 0.2
#: Rows that are made at a time, so that making a table takes little more memory than the table itself.
ROWS_AT_ONCE = 50_000
#: Gaussian factors behind all columns of a made table.
N_FACTORS = 6

#: Epochs that a watched fit plans, so many that none of the first ones validates.
PLANNED_EPOCHS = 200
#: Maximum number of epochs to watch.
MAX_WATCHED = 4


def main(
    name: str,
    doc: str | None,
    measure: Callable[[argparse.Namespace], Result],
    acts: Mapping[str, Callable[..., Result]] | None = None,
    **defaults: Any,
) -> None:
    """Run a script: read its flags, measure, and store the result with its environment.

    Every default is a flag of its type, a list takes several values. The acts are what `apart` runs in a process.
    """
    if acts and sys.argv[1:2] == ["--act"]:
        found = acts[sys.argv[2]](**json.loads(sys.argv[3]))
        if os.environ.get("RANK", "0") == "0":  # the first of several processes of torchrun
            print(json.dumps(found))
        return
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, value in defaults.items():
        many = isinstance(value, list)
        kind = type(value[0] if many else value)
        parser.add_argument(f"--{flag.replace('_', '-')}", type=kind, default=value, nargs="+" if many else None)
    parser.add_argument("--dry", action="store_true", help="print the result only")
    options = parser.parse_args()
    under = environment()
    result = under | measure(options)
    if options.dry:
        print(json.dumps(result, indent=2))
    else:
        write(name, result)


def apart(
    file: str, act: str, arguments: Mapping[str, Any], launcher: Sequence[str] = (), threads: int | None = None
) -> Result:
    """Run an act of a script in a process of its own, so that its peak memory is not hidden by another's."""
    words = [sys.executable, *launcher, file, "--act", act, json.dumps(arguments, default=str)]
    env = os.environ | (thread_variables(threads) if threads else {})
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True, env=env)
    found: Result = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def environment() -> Result:
    """Return what a measurement depends on besides the code."""
    return {
        "threads": torch.get_num_threads(),
        "load": [round(x, 2) for x in os.getloadavg()],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def write(name: str, result: Result) -> None:
    """Store a result as JSON, print it and render the pages again."""
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    RESULTS.mkdir(exist_ok=True)
    with replacing(RESULTS / f"{name}.json") as temporary:
        temporary.write_text(text)
    render_pages()


def stored(name: str) -> Result | None:
    """Return a stored result, or None if there is none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def render_pages() -> None:
    """Write the blocks of all pages from the stored results."""
    for page in PAGES:
        with replacing(ROOT / page) as temporary:
            temporary.write_text(rendered((ROOT / page).read_text()))


def rendered(page: str) -> str:
    """Return the text of a page with the blocks of all stored results replaced."""
    for name, render in RENDER.items():
        result = stored(name)
        if result is not None and f"<!-- result {name} -->" in page:
            page = with_block(page, name, render(result))
    return page


def table_path(name: str) -> Path | None:
    """Return the file of a real table, or None if MCFLOW_DATA does not name a folder that has it."""
    path = Path(os.environ.get("MCFLOW_DATA") or ".") / f"{name}.parquet"
    return path if path.is_file() else None


def need_table(name: str) -> Path:
    """Return the file of a real table, or end the script if it is not there."""
    path = table_path(name)
    if path is None:
        sys.exit(f"skipped: MCFLOW_DATA does not name a folder with {name}.parquet")
    return path


def letter_table() -> Table:
    """Return the numeric columns of the Letter table."""
    return read_numbers(need_table("letter"), "letter").values


def correlated(n_rows: int, n_columns: int, seed: int = 0) -> Table:
    """Return float32 rows of correlated columns, a third of them Gaussian, with missing cells."""
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(N_FACTORS, n_columns)).astype(np.float32)
    table = np.empty((n_rows, n_columns), dtype=np.float32)
    for start in range(0, n_rows, ROWS_AT_ONCE):
        rows = _gaussian(rng, loadings, min(ROWS_AT_ONCE, n_rows - start))
        rows[:, 1::3] = np.exp(0.3 * rows[:, 1::3])
        rows[:, 2::3] = np.sin(rows[:, 2::3]) + 0.1 * rows[:, 2::3] ** 2
        table[start : start + len(rows)] = _incomplete(rng, rows)
    return table


def letter_like(n_rows: int, n_columns: int = 16, seed: int = 0) -> Table:
    """Return rows of related integers from 0 to 15, as the Letter table has, with missing cells."""
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(N_FACTORS, n_columns)).astype(np.float32)
    rows = np.clip(np.round(7.5 + 1.2 * _gaussian(rng, loadings, n_rows)), 0, 15)
    return _incomplete(rng, rows.astype(np.float64))


def _gaussian(rng: np.random.Generator, loadings: Table, n_rows: int) -> Table:
    factors = rng.standard_normal((n_rows, len(loadings)), dtype=np.float32)
    noise = rng.standard_normal((n_rows, loadings.shape[1]), dtype=np.float32)
    rows: Table = factors @ loadings + noise
    return rows


def _incomplete(rng: np.random.Generator, rows: Table) -> Table:
    rows[rng.random(rows.shape, dtype=np.float32) < MISSING] = np.nan
    return rows


def best_of(act: Callable[[], Any], seconds: float = 1.0, least: int = 1) -> float:
    """Return the shortest time of an act that is repeated for some seconds and at least some times."""
    first, times = time.perf_counter(), list[float]()
    while len(times) < least or time.perf_counter() - first < seconds:
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return min(times)


class Enough(Exception):  # noqa: N818 - nothing went wrong
    """Ends a watched fit."""


class Stopwatch(Callback):
    """Take the seconds of each epoch, and end the fit after some."""

    def __init__(self, n_epochs: int) -> None:
        self.n_epochs = n_epochs
        self.seconds: list[float] = []

    def on_begin(self, trainer: Any) -> None:
        self._start = time.perf_counter()

    def on_epoch_end(self, trainer: Any) -> None:
        self.seconds.append(time.perf_counter() - self._start)
        if len(self.seconds) >= self.n_epochs:
            raise Enough
        self._start = time.perf_counter()


def epoch_seconds(table: Table, n_epochs: int) -> float:
    """Return the shortest time of an epoch of the default preset."""
    watch = Stopwatch(min(n_epochs, MAX_WATCHED))
    watch_fit(table, watch)
    return min(watch.seconds)


def watch_fit(table: Table, callback: Callback) -> None:
    """Fit the default preset until a callback ends it."""
    watched = mock.patch.object(presets, "fit_callbacks", return_value=[callback])
    with watched, contextlib.suppress(Enough):
        MCFlowImputer(max_epochs=PLANNED_EPOCHS, random_state=0).fit(table)


if __name__ == "__main__":
    render_pages()
