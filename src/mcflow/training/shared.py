"""Memory that the workers of one machine share, in which each writes numbers for all."""

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
    from mcflow.training.parallel import Workers

#: A folder in memory, where the system has one.
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - the file has a name that nobody can guess, and is gone once it is open

#: Bytes of a float32, and slots that each worker writes in turn.
FLOAT, TURNS = 4, 2

#: Numbers besides those of a slot that each worker may add, and bytes of a number or a mark.
MOST_NUMBERS, WIDE = 6, 8

#: Looks for the others before a worker lets other processes run, and then before it rests between looks.
QUICK_LOOKS, YIELDING_LOOKS = 300, 3_000

#: Seconds of a rest, and between two looks whether the others are still alive.
REST, PATIENCE = 1e-4, 0.2

#: Machines on which what one process writes first is seen first by another.
IN_ORDER = ("x86_64", "AMD64")


class SharedSlots:
    """A slot of float32 numbers for each worker of a machine, which all may read.

    Parameters
    ----------
    file : int
        Open for writing, the same for all; its memory is shared.
    workers : Workers
        Who they are.
    n_numbers : int
        Of a slot.

    Notes
    -----
    Each has two slots and writes them in turn. Between writing and reading all have to meet, and then nobody writes
    the slot of this turn before everybody is done with reading it: they meet in the next turn first.

    To meet, each writes how often it came, and looks until all came as often. A connection would take several times as
    long. Each worker holds a lock on a byte of the file of its own; who can lock another one's byte knows that it left.
    """

    def __init__(self, file: int, workers: Workers, n_numbers: int) -> None:
        n_workers, n_slots = workers.number, TURNS * workers.number
        memory = mmap.mmap(file, _size(n_workers, n_numbers))
        kept, n_small = n_slots * n_numbers * FLOAT, n_slots * MOST_NUMBERS
        start = -(-kept // WIDE) * WIDE
        self._slots = torch.frombuffer(memory, dtype=torch.float32, count=n_slots * n_numbers).view(
            TURNS, n_workers, n_numbers
        )
        self._numbers = np.frombuffer(memory, np.float64, n_small, start).reshape(TURNS, n_workers, MOST_NUMBERS)
        self._marks = np.frombuffer(memory, np.int64, n_workers, start + n_small * WIDE)
        self._total = torch.empty(n_numbers)
        self._workers, self._file, self._rank, self._turn, self._times = workers, file, workers.rank, 0, 0
        _lock(file, self._rank)
        workers.on_leaving(self.close)

    def close(self) -> None:
        """Leave, so that nobody waits for this worker."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @classmethod
    def open(cls, workers: Workers, n_numbers: int) -> Self | None:
        """Make memory that all workers share.

        Parameters
        ----------
        workers : Workers
            All of them call this.
        n_numbers : int
            That each writes.

        Returns
        -------
        SharedSlots or None
            None for all when some are on another machine, or there is too little memory.
        """
        name = workers.from_first(_made(_size(workers.number, n_numbers)) if workers.is_first else None)
        file = _opened(name)
        everywhere = all(workers.gather(file is not None))
        if workers.is_first and name is not None:
            Path(name).unlink()  # it lives on as long as a worker has it open
        if not everywhere or file is None:
            return None
        slots = cls(file, workers, n_numbers)
        workers.gather(None)  # all have their locks before one looks whether the others are there
        return slots

    def meet(self, numbers: Sequence[float]) -> list[float]:
        """Wait until all workers have written their slots of this turn.

        Parameters
        ----------
        numbers : sequence of float
            As many for all, at most `MOST_NUMBERS`.

        Returns
        -------
        list of float
            Their sums over all workers.
        """
        if platform.machine() not in IN_ORDER:
            small = torch.tensor(numbers, dtype=torch.float64)
            self._workers.add_up(small)
            return list(small.tolist())
        self._numbers[self._turn, self._rank, : len(numbers)] = numbers
        self._times += 1
        self._marks[self._rank] = self._times
        self._await()
        return list(self._numbers[self._turn, :, : len(numbers)].sum(0).tolist())

    def _await(self) -> None:
        """Wait until all came as often as this worker; raise RuntimeError when one of them has gone."""
        looks, asked = 0, time.monotonic()
        while int(self._marks.min()) < self._times:
            looks += 1
            if looks > YIELDING_LOOKS:
                time.sleep(REST)
                if time.monotonic() - asked > PATIENCE:
                    self._see_whether_all_are_there()
                    asked = time.monotonic()
            elif looks > QUICK_LOOKS:
                os.sched_yield()

    def _see_whether_all_are_there(self) -> None:
        for rank, times in enumerate(self._marks.tolist()):
            if times < self._times and rank != self._rank and _lock(self._file, rank):
                if int(self._marks[rank]) < self._times:  # it may have come, and gone its way, just now
                    raise RuntimeError(f"worker {rank + 1} has gone")
                _unlock(self._file, rank)

    def mine(self) -> Tensor:
        """Return the slot to write in this turn, of shape (n_numbers,)."""
        return self._slots[self._turn, self._rank]

    def total(self) -> Tensor:
        """Return the sum of all slots of this turn, of shape (n_numbers,); the next turn is then on."""
        first, second, *others = self._slots[self._turn]
        torch.add(first, second, out=self._total)
        for slot in others:
            self._total.add_(slot)
        self._turn = (self._turn + 1) % TURNS
        return self._total


def _made(size: int) -> str | None:
    """Make a file of a size that is really there, None if there is no room."""
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
    """Open a file to be shared, None if it is not on this machine."""
    if name is None:
        return None
    with contextlib.suppress(OSError):
        return os.open(name, os.O_RDWR)
    return None


def _size(n_workers: int, n_numbers: int) -> int:
    """Return the bytes of slots, numbers and marks, with room to begin the numbers at a multiple of their width."""
    return TURNS * n_workers * (n_numbers * FLOAT + MOST_NUMBERS * WIDE) + (n_workers + 1) * WIDE


def _lock(file: int, place: int) -> bool:
    """Try to lock a byte of a file; tell whether that worked. The lock ends with the process, however it ends."""
    import fcntl

    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except OSError:
        return False
    return True


def _unlock(file: int, place: int) -> None:
    import fcntl

    fcntl.lockf(file, fcntl.LOCK_UN, 1, place)
