"""`mcflow doctor`: check the installation and the machine."""

from __future__ import annotations

__all__ = ["Check", "doctor", "run_checks"]

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import mcflow
from mcflow.errors import McflowError, MissingExtraError
from mcflow.installation import DISTRIBUTION, install_extra

#: Distributions that mcflow requires.
REQUIRED = (
    *("numpy", "scipy", "scikit-learn", "torch", "lightgbm", "narwhals", "pandas", "pyarrow", "safetensors"),
    *("filelock", "pillow", "cyclopts", "rich"),
)
#: Modules and purpose of each extra.
EXTRAS = {
    "report": (("jinja2", "matplotlib"), "reports and figures"),
    "serve": (("fastapi", "uvicorn", "python_multipart", "jinja2", "matplotlib"), "the web page and the HTTP API"),
    "excel": (("openpyxl",), "Excel files"),
    "stats": (("statsmodels",), "pooled analyses by formula"),
    "ray": (("ray",), "tables in parts on Ray"),
    "spark": (("pyspark",), "tables in parts on Spark"),
}
MIN_MEMORY = 1.0  #: Free memory in GiB below which a warning is shown.
MIN_SPACE = 1.0  #: Free disk space in GiB below which a warning is shown.


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str  # what was checked
    found: str  # the finding, as text
    good: bool = True  # whether the check passed
    essential: bool = False  # whether mcflow cannot work without it
    advice: str = ""  # what to do if the check failed


def doctor(*, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Show versions, device, threads, memory, cache folder and extras, and test a small fit.

    Parameters
    ----------
    json
        Print one JSON object instead of text.
    """
    checks = run_checks()
    broken = [check.name for check in checks if check.essential and not check.good]
    if json:
        from json import dumps

        print(dumps({"good": not broken, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        _print_lines(checks)
    if broken:
        raise McflowError(f"mcflow does not work here: {', '.join(broken)}. The lines marked ! say what to do.")


def _print_lines(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    for check in checks:
        mark, style = ("✓", "green") if check.good else ("!", "red") if check.essential else ("-", "yellow")
        text = check.found if check.good or not check.advice else f"{check.found}; {check.advice}"
        table.add_row(Text(mark, style=style), Text(check.name), Text(text))
    Console().print(table)


def run_checks() -> list[Check]:
    """Check versions, device, threads, memory, folders and extras, and run a small fit."""
    checks = (_trees, _device, _threads, _memory, _cache, _space, _table, _fit)
    packages = (_package(name) for name in REQUIRED)
    return [_version(), *packages, *(_guarded(check) for check in checks), *_extras()]


def _guarded(check: Callable[[], Check]) -> Check:
    """Return the result of a check, or a failed check if it raises."""
    try:
        return check()
    except Exception as error:
        name = check.__name__.strip("_")
        advice = f"reinstall mcflow: pip install --force-reinstall {DISTRIBUTION}"
        return Check(name, f"{type(error).__name__}: {error}", good=False, essential=True, advice=advice)


def _version() -> Check:
    found = f"mcflow {mcflow.__version__}, Python {sys.version.split()[0]} on {sys.platform}"
    return Check("version", found, good=sys.version_info >= (3, 11), essential=True, advice="use Python 3.11 or newer")


def _package(name: str) -> Check:
    try:
        return Check(name, metadata.version(name), essential=True)
    except metadata.PackageNotFoundError:
        return Check(name, "not installed", good=False, essential=True, advice=f"pip install {name}")


def _trees() -> Check:
    """Load LightGBM, whose wheel for Linux needs the system's OpenMP library."""
    from mcflow.fitting.boosted_trees import OPENMP, load_lightgbm

    try:
        load_lightgbm()
    except MissingExtraError as error:
        found = f"LightGBM cannot be loaded: {error.__cause__}"
        return Check("trees", found, good=False, essential=True, advice=OPENMP)
    return Check("trees", "LightGBM can be loaded", essential=True)


def _device() -> Check:
    import torch

    from mcflow.imputers.presets import choose_device

    device = choose_device("auto")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    return Check("device", f"{name} (--device auto selects {device.type})", essential=True)


def _threads() -> Check:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads, limit = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
    found = f"{threads} of {cores} cores" + (f"; OMP_NUM_THREADS is {limit}" if limit else "")
    return Check("threads", found, threads <= cores, advice="set OMP_NUM_THREADS to at most the number of cores")


def _memory() -> Check:
    from mcflow.serve.limits import machine_memory

    total = machine_memory()
    found = "unknown" if total is None else f"{round(total / 2**30, 1):g} GiB"
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 2**20
    except (OSError, StopIteration, ValueError):  # the system does not report it
        return Check("memory", found)
    return Check("memory", f"{found}, {free:.1f} GiB free", free >= MIN_MEMORY, advice="close other programs")


def _cache() -> Check:
    from mcflow.files.atomic import cache_folder

    folder = cache_folder()
    existing = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    good = existing.is_dir() and os.access(existing, os.W_OK)
    found = f"{folder} {'can' if good else 'cannot'} be written"
    return Check("cache", found, good, advice="set MCFLOW_CACHE to another folder")


def _space() -> Check:
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    return Check("disk", f"{free:.1f} GiB free in this folder", free >= MIN_SPACE, advice="write to another disk")


def _table() -> Check:
    import pyarrow.parquet as pq

    from mcflow.files.datasets import nhanes_path

    shape = pq.read_metadata(nhanes_path())
    return Check("demo table", f"{shape.num_rows:,} rows, {shape.num_columns} columns", essential=True)


def _fit() -> Check:
    """Fit and fill a few rows, which uses all numerical libraries."""
    import numpy as np

    from mcflow.imputers import MCFlowImputer

    rows = np.random.default_rng(0).normal(size=(50, 3))
    rows[::5, 1] = np.nan
    start = time.perf_counter()
    filled = MCFlowImputer(max_epochs=1, max_time=1, calibrate=False, random_state=0).fit_transform(rows)
    good = bool(np.isfinite(filled).all())
    found = f"50 rows fitted and filled in {time.perf_counter() - start:.1f} s"
    return Check("small fit", found, good, essential=True, advice="reinstall mcflow")


def _extras() -> Iterator[Check]:
    for name, (modules, purpose) in EXTRAS.items():
        missing = [module for module in modules if find_spec(module) is None]
        found = f"{purpose}: " + (f"{', '.join(missing)} not installed" if missing else "installed")
        yield Check(f"[{name}]", found, not missing, advice=install_extra(name))
