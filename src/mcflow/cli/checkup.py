"""The checks of `mcflow doctor`, one after the other, none of which may fail the others."""

from __future__ import annotations

__all__ = ["Check", "check_up"]

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

#: What mcflow cannot do without, by the name of its distribution.
REQUIRED = ("numpy", "scipy", "scikit-learn", "torch", "narwhals", "pyarrow", "safetensors", "cyclopts", "rich")

#: What may be there besides: the modules of each extra, and what it is for.
EXTRAS = {
    "report": (("jinja2", "matplotlib"), "reports and pictures"),
    "serve": (("fastapi", "uvicorn", "python_multipart", "jinja2", "matplotlib"), "the page and the HTTP interface"),
    "stats": (("pandas", "statsmodels"), "pooled analyses by formula"),
    "bench": (("matplotlib",), "figures of the benchmark"),
}

#: Memory and disk space, in GiB, below which a word is said.
LITTLE_MEMORY, LITTLE_SPACE = 1.0, 1.0


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Parameters
    ----------
    name : str
        What it is.
    found : str
        What was found, in words.
    good : bool
        Whether it is as it should be.
    essential : bool
        Whether mcflow cannot work without it.
    advice : str
        What to do when it is not good.
    """

    name: str
    found: str
    good: bool = True
    essential: bool = False
    advice: str = ""


def check_up() -> list[Check]:
    """Look at everything that mcflow depends on.

    Returns
    -------
    list of Check
        Versions, device, threads, memory, folders, extras, and whether a small fit works.
    """
    looks = (_device, _threads, _memory, _cache, _space, _data, _table, _fit)
    packages = (_package(name) for name in REQUIRED)
    return [_python(), *packages, *(_guarded(look) for look in looks), *_extras()]


def _guarded(look: Callable[[], Check]) -> Check:
    """Return what a check says, or that it failed."""
    try:
        return look()
    except Exception as error:
        name = look.__name__.strip("_")
        advice = "Install mcflow anew: pip install --force-reinstall mcflow"
        return Check(name, f"{type(error).__name__}: {error}", good=False, essential=True, advice=advice)


def _python() -> Check:
    import mcflow

    found = f"mcflow {mcflow.__version__}, Python {sys.version.split()[0]} on {sys.platform}"
    return Check("version", found, good=sys.version_info >= (3, 11), essential=True, advice="use Python 3.11 or newer")


def _package(name: str) -> Check:
    try:
        return Check(name, metadata.version(name), essential=True)
    except metadata.PackageNotFoundError:
        return Check(name, "not installed", good=False, essential=True, advice=f"pip install {name}")


def _device() -> Check:
    import torch

    from mcflow.imputers.fitting import choose_device

    device = choose_device("auto")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    return Check("device", f"{name} (--device auto takes {device.type})", essential=True)


def _threads() -> Check:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS")
    said = f"; OMP_NUM_THREADS is {limit}" if limit else ""
    advice = "more threads than cores get in each other's way: set OMP_NUM_THREADS"
    return Check("threads", f"{torch.get_num_threads()} of {cores} cores{said}", torch.get_num_threads() <= cores,
                 advice=advice)  # fmt: skip


def _memory() -> Check:
    from mcflow.benchmarks.machine import machine

    total, free = machine()["ram_gib"], _free_memory()
    words = "not known" if total is None else f"{total:g} GiB" + ("" if free is None else f", {free:.1f} GiB free")
    return Check("memory", words, free is None or free >= LITTLE_MEMORY, advice="close other programs")


def _free_memory() -> float | None:
    """Return the memory that can be had, in GiB; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None
    return kilobytes / 2**20


def _cache() -> Check:
    from mcflow.data.downloads import cache_folder

    folder = cache_folder()
    there = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    good = there.is_dir() and os.access(there, os.W_OK)
    words = f"{folder} {'can' if good else 'cannot'} be written"
    return Check("cache", words, good, advice="name another folder in MCFLOW_CACHE")


def _space() -> Check:
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    return Check("disk", f"{free:.1f} GiB free in this folder", free >= LITTLE_SPACE, advice="write to another disk")


def _data() -> Check:
    given = os.environ.get("MCFLOW_DATA")
    if not given:
        return Check("data folder", "MCFLOW_DATA is not set; the benchmark downloads its tables")
    advice = "make it, or name another in MCFLOW_DATA"
    return Check("data folder", f"{given}{'' if Path(given).is_dir() else ' is not there'}", Path(given).is_dir(),
                 advice=advice)  # fmt: skip


def _table() -> Check:
    import pyarrow.parquet as pq

    from mcflow.data.datasets import nhanes_path

    shape = pq.read_metadata(nhanes_path())
    return Check("demo table", f"{shape.num_rows:,} rows, {shape.num_columns} columns", essential=True)


def _fit() -> Check:
    """Fit and fill a few rows, which needs all of the numerical libraries."""
    import time

    import numpy as np

    from mcflow.imputers import MCFlowImputer

    rows = np.random.default_rng(0).normal(size=(50, 3))
    rows[::5, 1] = np.nan
    start = time.perf_counter()
    filled = MCFlowImputer(max_epochs=1, max_time=1, calibrate=False, random_state=0).fit_transform(rows)
    good = bool(np.isfinite(filled).all())
    found = f"50 rows fitted and filled in {time.perf_counter() - start:.1f} s"
    return Check("small fit", found, good, essential=True, advice="install mcflow anew")


def _extras() -> Iterator[Check]:
    for name, (modules, purpose) in EXTRAS.items():
        lacking = [module for module in modules if find_spec(module) is None]
        found = f"{purpose}: " + (f"{', '.join(lacking)} not installed" if lacking else "installed")
        yield Check(f"[{name}]", found, not lacking, advice=f"pip install 'mcflow[{name}]'")
