"""Limits of the server: sizes, time, memory, parallel jobs and retention."""

from __future__ import annotations

__all__ = ["Limits", "machine_memory", "parse_size", "size_in_words"]

import os
import re
from dataclasses import dataclass, fields
from typing import Annotated

from cyclopts import Parameter

from mcflow.errors import ParameterError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_size(text: str) -> int:
    """Parse a number of bytes, such as "500 MB" or "2GiB"."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].upper() not in _UNITS:
        raise ParameterError(f"{text!r} is not a size. Give bytes such as 1000000, or 500MB, 2GB or 1GiB.")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def size_in_words(size: float) -> str:
    """Format a number of bytes, such as "500 MB" or "1.5 kB"."""
    for unit, bytes_each in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= bytes_each:
            return f"{size / bytes_each:.3g} {unit}"
    return f"{size:.0f} bytes"


def machine_memory() -> int | None:
    """Return the memory of the machine in bytes; None if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


#: A number of bytes, given on the command line with a unit.
Size = Annotated[int, Parameter(converter=lambda _, tokens: parse_size(tokens[0].value), show_default=size_in_words)]


@Parameter(name="*")
@dataclass(frozen=True)
class Limits:
    """Limits of a server.

    Parameters
    ----------
    max_upload
        Maximum size of an uploaded file, also after decompression: 500MB, 2GB.
    max_rows
        Maximum number of rows of a table.
    max_columns
        Maximum number of columns of a table.
    max_cells
        Maximum number of cells of a table.
    max_time
        Time limit of a job in seconds.
    max_memory
        Memory limit of a job: 8GB. By default three quarters of the memory of the machine.
    jobs
        Number of jobs that run at the same time; the others wait in a queue.
    max_queue
        Maximum number of jobs that arrive, are inspected or wait in the queue.
    max_kept
        Maximum number of jobs whose files are kept; more are refused.
    max_disk
        Size of all kept files from which on nothing new is accepted: 50GB.
    keep
        Hours after which uploaded files and their results are deleted.
    """

    max_upload: Size = 500_000_000
    max_rows: int = 2_000_000
    max_columns: int = 5_000
    max_cells: int = 50_000_000
    max_time: float = 14_400.0
    max_memory: Annotated[Size, Parameter(show_default=False)] = 0
    jobs: int = 1
    max_queue: int = 100
    max_kept: int = 1_000
    max_disk: Size = 50_000_000_000
    keep: float = 24.0

    def __post_init__(self) -> None:
        if not self.max_memory:
            whole = machine_memory()
            object.__setattr__(self, "max_memory", 8 * 2**30 if whole is None else whole * 3 // 4)
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value > 0:
                flag = "--" + limit.name.replace("_", "-")
                raise ParameterError(f"{flag} is {value:g}, but has to be above 0.")
