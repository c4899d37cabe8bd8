"""Limits of the server: sizes, time, memory, parallel jobs and retention."""

from __future__ import annotations

__all__ = ["Limits", "parse_size", "size_in_words"]

import os
import re
from dataclasses import dataclass, fields

from mcflow.errors import ParameterError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_size(text: str) -> int:
    """Parse a number of bytes.

    Examples
    --------
    >>> parse_size("500 MB"), parse_size("2GiB")
    (500000000, 2147483648)
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].upper() not in _UNITS:
        raise ParameterError(f"{text!r} is not a size. Give bytes such as 1000000, or 500MB, 2GB or 1GiB.")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def size_in_words(size: float) -> str:
    """Format a number of bytes.

    Examples
    --------
    >>> size_in_words(500_000_000), size_in_words(1_500)
    ('500 MB', '1.5 kB')
    """
    for unit, bytes_each in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= bytes_each:
            return f"{size / bytes_each:.3g} {unit}"
    return f"{size:.0f} bytes"


def _most_memory() -> int:
    """Return three quarters of the memory of the machine, or 8 GiB if it is unknown."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30
    return whole * 3 // 4


@dataclass(frozen=True)
class Limits:
    """Limits of a server.

    Examples
    --------
    >>> Limits(max_rows=1000).max_rows
    1000
    """

    max_upload: int = 500_000_000  # bytes of a file, also after decompression
    max_rows: int = 2_000_000  # rows of a table
    max_columns: int = 5_000  # columns of a table
    max_cells: int = 50_000_000  # cells of a table
    max_time: float = 4 * 3600.0  # seconds after which a job is stopped; the result of a job does not depend on it
    max_memory: int = 0  # bytes of the process of a job; 0 stands for three quarters of the memory of the machine
    jobs: int = 1  # jobs that run at the same time
    max_queue: int = 100  # jobs that arrive, are inspected or wait in the queue
    max_kept: int = 1_000  # jobs whose files are kept
    max_disk: int = 50_000_000_000  # bytes of all files that are kept, from which on nothing new is accepted
    keep: float = 24.0  # hours after its end until a job and all its files are deleted

    def __post_init__(self) -> None:
        if not self.max_memory:
            object.__setattr__(self, "max_memory", _most_memory())
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value > 0:
                flag = "--" + limit.name.replace("_", "-")
                raise ParameterError(f"{flag} is {value:g}, but has to be above 0.")
