"""Memory that the workers of one machine share, in which each writes numbers for all."""

from __future__ import annotations

__all__ = ["SharedSlots"]

import contextlib
import mmap
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from mcflow.training.parallel import Workers

#: A folder in memory, where the system has one.
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - the file has a name that nobody can guess, and is gone once it is open

#: Bytes of a float32, and slots that each worker writes in turn.
FLOAT, TURNS = 4, 2


class SharedSlots:
    """A slot of float32 numbers for each worker of a machine, which all may read.

    Parameters
    ----------
    memory : mmap
        Shared by all.
    n_workers, rank : int
        How many, and which one this is.
    n_numbers : int
        Of a slot.

    Notes
    -----
    Each has two slots and writes them in turn. Between writing and reading all have to meet, and then nobody writes
    the slot of this turn before everybody is done with reading it: they meet in the next turn first.
    """

    def __init__(self, memory: mmap.mmap, n_workers: int, rank: int, n_numbers: int) -> None:
        self._slots = torch.frombuffer(memory, dtype=torch.float32).view(TURNS, n_workers, n_numbers)
        self._total = torch.empty(n_numbers)
        self._rank, self._turn = rank, 0

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
        size = TURNS * workers.number * n_numbers * FLOAT
        name = workers.from_first(_made(size) if workers.is_first else None)
        memory = _mapped(name, size)
        everywhere = all(workers.gather(memory is not None))
        if workers.is_first and name is not None:
            Path(name).unlink()  # it lives on as long as a worker has it open
        return cls(memory, workers.number, workers.rank, n_numbers) if everywhere and memory is not None else None

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


def _mapped(name: str | None, size: int) -> mmap.mmap | None:
    """Return a file as memory, None if it is not on this machine."""
    if name is None:
        return None
    with contextlib.suppress(OSError, ValueError), Path(name).open("r+b") as file:
        return mmap.mmap(file.fileno(), size)
    return None
