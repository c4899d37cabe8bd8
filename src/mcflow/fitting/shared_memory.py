"""Shared memory in which the workers of one machine exchange numbers."""

from __future__ import annotations

__all__ = ["SharedSlots"]

import contextlib
import mmap
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from mcflow.fitting.distributed import Workers

#: A folder in memory, on systems that have one.
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - the file name is random, and the file is deleted once it is open
FLOAT_BYTES = 4  # bytes of a float32
WIDE_BYTES = 8  # bytes of a float64 or int64
N_SLOTS = 2  # slots per worker, written alternately
MAX_NUMBERS = 6  # maximum number of further numbers that a worker adds with each slot
BUSY_POLLS = 300  # polls after which a waiting worker yields to other processes
YIELDING_POLLS = 3_000  # polls after which a waiting worker sleeps between polls
POLL_SECONDS = 1e-4  # seconds of such a sleep
ALIVE_SECONDS = 0.2  # seconds between two checks whether the other workers are alive

#: Machines on which writes of one process become visible to another in the order in which they were made.
ORDERED_MACHINES = ("x86_64", "AMD64")


class SharedSlots:
    """Slots of float32 numbers, two per worker of a machine, that all workers read.

    Workers wait for each other between writing and reading; a slot is not overwritten before all have read it. To wait,
    each worker increments a counter and polls until all counters are equal, which is several times faster than a
    connection. Each worker also locks one byte of the file; a byte that another worker can lock belongs to one that
    has left.
    """

    def __init__(self, file: int, workers: Workers, n_numbers: int) -> None:
        n_workers, n_slots = workers.number, N_SLOTS * workers.number
        memory = mmap.mmap(file, _size(n_workers, n_numbers))
        kept, n_small = n_slots * n_numbers * FLOAT_BYTES, n_slots * MAX_NUMBERS
        start = -(-kept // WIDE_BYTES) * WIDE_BYTES
        flat = torch.frombuffer(memory, dtype=torch.float32, count=n_slots * n_numbers)
        self._slots = flat.view(N_SLOTS, n_workers, n_numbers)
        self._numbers = np.frombuffer(memory, np.float64, n_small, start).reshape(N_SLOTS, n_workers, MAX_NUMBERS)
        self._counters = np.frombuffer(memory, np.int64, n_workers, start + n_small * WIDE_BYTES)
        self._total = torch.empty(n_numbers)
        self._workers, self._file, self._rank, self._current, self._count = workers, file, workers.rank, 0, 0
        _lock(file, self._rank)
        workers.on_leaving(self.close)

    def close(self) -> None:
        """Leave, so that no other worker waits for this one."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @classmethod
    def open(cls, workers: Workers, n_numbers: int) -> Self | None:
        """Open memory shared by all workers; return None if they are not on one machine or there is no room."""
        name = workers.from_first(_made(_size(workers.number, n_numbers)) if workers.is_first else None)
        file = _opened(name)
        everywhere = all(workers.gather(file is not None))
        if workers.is_first and name is not None:
            Path(name).unlink()  # it exists as long as a worker has it open
        if not everywhere or file is None:
            return None
        slots = cls(file, workers, n_numbers)
        workers.gather(None)  # all have their locks before one checks whether the others are alive
        return slots

    def meet(self, numbers: Sequence[float]) -> list[float]:
        """Wait until all workers have written their current slots; return the sums of their numbers."""
        if platform.machine() not in ORDERED_MACHINES:
            small = torch.tensor(numbers, dtype=torch.float64)
            self._workers.add_up(small)
            return list(small.tolist())
        self._numbers[self._current, self._rank, : len(numbers)] = numbers
        self._count += 1
        self._counters[self._rank] = self._count
        self._await()
        return list(self._numbers[self._current, :, : len(numbers)].sum(0).tolist())

    def _await(self) -> None:
        """Wait until all counters have reached this worker's; raise RuntimeError if a worker has left."""
        polls, checked = 0, time.monotonic()
        while int(self._counters.min()) < self._count:
            polls += 1
            if polls > YIELDING_POLLS:
                time.sleep(POLL_SECONDS)
                if time.monotonic() - checked > ALIVE_SECONDS:
                    self._check_alive()
                    checked = time.monotonic()
            elif polls > BUSY_POLLS:
                os.sched_yield()

    def _check_alive(self) -> None:
        """Raise RuntimeError if a worker whose counter lags behind has left."""
        for rank, count in enumerate(self._counters.tolist()):
            if count < self._count and rank != self._rank and _lock(self._file, rank):
                if int(self._counters[rank]) < self._count:  # it may just have arrived and left
                    raise RuntimeError(f"worker {rank + 1} has left")
                _unlock(self._file, rank)

    def mine(self) -> Tensor:
        """Return the slot (n_numbers,) to write now."""
        return self._slots[self._current, self._rank]

    def total(self) -> Tensor:
        """Return the sum (n_numbers,) of the current slots, and switch to the next ones."""
        first, second, *others = self._slots[self._current]
        torch.add(first, second, out=self._total)
        for slot in others:
            self._total.add_(slot)
        self._current = (self._current + 1) % N_SLOTS
        return self._total


def _made(size: int) -> str | None:
    """Create a file with allocated space; return its name, None if there is no room."""
    if not hasattr(os, "posix_fallocate"):
        return None
    file, name = tempfile.mkstemp(prefix="mcflow-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
    try:
        os.posix_fallocate(file, 0, size)
    except OSError:
        Path(name).unlink()
        return None
    finally:
        os.close(file)
    return name


def _opened(name: str | None) -> int | None:
    """Open a shared file; return None if it is not on this machine."""
    if name is None:
        return None
    with contextlib.suppress(OSError):
        return os.open(name, os.O_RDWR)
    return None


def _size(n_workers: int, n_numbers: int) -> int:
    """Return the bytes of slots, numbers and counters, with room to align the numbers."""
    return N_SLOTS * n_workers * (n_numbers * FLOAT_BYTES + MAX_NUMBERS * WIDE_BYTES) + (n_workers + 1) * WIDE_BYTES


def _lock(file: int, place: int) -> bool:
    """Try to lock a byte of a file; return whether it worked. The lock ends with the process, however it ends."""
    import fcntl

    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except OSError:
        return False
    return True


def _unlock(file: int, place: int) -> None:
    import fcntl

    fcntl.lockf(file, fcntl.LOCK_UN, 1, place)
