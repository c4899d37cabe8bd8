"""How many threads a fit uses."""

from __future__ import annotations

__all__ = ["one_thread_when_small"]

import contextlib
from collections.abc import Iterator

import torch

#: Cells of a batch below which a second thread brings nothing.
SMALL = 10_000


@contextlib.contextmanager
def one_thread_when_small(n_cells: int) -> Iterator[None]:
    """Run the block on one thread when its batches are small, and restore the number of threads after it.

    Parameters
    ----------
    n_cells : int
        Rows times columns of a batch.

    Notes
    -----
    Below some 10,000 cells two threads are no faster than one, and where another program keeps a core busy they
    are five times slower: every kernel then waits for the thread that is not running.
    """
    before = torch.get_num_threads()
    if n_cells < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
