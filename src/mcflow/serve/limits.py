"""What a server allows: sizes, rows, time, jobs at once, and how long data is kept."""

from __future__ import annotations

__all__ = ["Limits", "parse_size", "size_in_words"]

import os
import re
from dataclasses import dataclass, fields

from mcflow.errors import ParameterError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_size(text: str) -> int:
    """Read a number of bytes.

    Parameters
    ----------
    text : str
        Such as "500 MB", "2GiB" or "1000".

    Returns
    -------
    int

    Raises
    ------
    ParameterError
        When it is no size.

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
    """Return a number of bytes as people write it.

    Parameters
    ----------
    size : float
        Bytes.

    Returns
    -------
    str

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
    """Return three quarters of the machine's memory, or 8 GiB where it does not say."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30
    return whole * 3 // 4


@dataclass(frozen=True)
class Limits:
    """What a server allows.

    Parameters
    ----------
    max_upload : int
        Bytes of a file, also of what a compressed one unpacks to.
    max_rows, max_columns, max_cells : int
        Of a table.
    max_time : float
        Seconds that a job may take. A job that takes longer is ended, and says so; its answer is never changed by it.
    max_memory : int
        Bytes that the process of a job may hold. By default three quarters of the machine's.
    jobs : int
        Jobs that run at once.
    max_queue : int
        Jobs that may wait.
    keep : float
        Hours after which a job and all its files are deleted, counted from its end.

    Raises
    ------
    ParameterError
        When a limit is not above 0.

    Examples
    --------
    >>> Limits(max_rows=1000).max_rows
    1000
    """

    max_upload: int = 500_000_000
    max_rows: int = 2_000_000
    max_columns: int = 5_000
    max_cells: int = 50_000_000
    max_time: float = 4 * 3600.0
    max_memory: int = 0
    jobs: int = 1
    max_queue: int = 100
    keep: float = 24.0

    def __post_init__(self) -> None:
        if not self.max_memory:
            object.__setattr__(self, "max_memory", _most_memory())
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value > 0:
                flag = "--" + limit.name.replace("_", "-")
                raise ParameterError(f"{flag} is {value:g}, but has to be above 0.")
