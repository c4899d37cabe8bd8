"""Facts of the machine that measurements depend on: hardware, load, memory, threads and versions."""

from __future__ import annotations

__all__ = ["load_average", "machine", "mebibytes", "peak_mib", "thread_variables", "versions"]

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import mcflow

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "lightgbm")

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
)


def versions() -> dict[str, str]:
    """Return the versions of mcflow, its numerical libraries and Python.

    Examples
    --------
    >>> sorted(versions())
    ['lightgbm', 'mcflow', 'numpy', 'python', 'scikit-learn', 'scipy', 'torch']
    """
    found = {"mcflow": mcflow.__version__, "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in _PACKAGES}


def machine() -> dict[str, Any]:
    """Return the processor, the number of cores, the memory in GiB and the operating system.

    Examples
    --------
    >>> sorted(machine())
    ['cores', 'cpu', 'ram_gib', 'system']
    """
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "ram_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


def load_average() -> float | None:
    """Return the load average of the last minute; None if the system does not report it."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def mebibytes(max_rss: int) -> float:
    """Convert `ru_maxrss`, whose unit depends on the system, to MiB.

    Examples
    --------
    >>> mebibytes(2**30) in (1024.0, 2.0**20)
    True
    """
    return max_rss / (2**20 if sys.platform == "darwin" else 2**10)


def peak_mib() -> float | None:
    """Return the peak memory of this process in MiB; None if the system does not report it."""
    try:
        import resource
    except ImportError:
        return None
    return round(mebibytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss), 1)


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables that limit numerical libraries to a number of threads.

    Examples
    --------
    >>> thread_variables(2)["OMP_NUM_THREADS"]
    '2'
    """
    return dict.fromkeys(_THREAD_VARIABLES, str(threads))
