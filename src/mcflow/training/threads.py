"""How many threads a fit uses."""

from __future__ import annotations

__all__ = ["map_on_threads", "one_thread_when_small", "share_out"]

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from mcflow.typing import Array

Part = TypeVar("Part")
Found = TypeVar("Found")

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


def map_on_threads(function: Callable[[Part], Found], parts: Sequence[Part]) -> list[Found]:
    """Call a function for every part, several at a time, each on one thread.

    Parameters
    ----------
    function : callable
        Takes a part; spends its time in torch and numpy.
    parts : sequence
        Of work, much alike in size.

    Returns
    -------
    list
        The answers, in the order of the parts.

    Notes
    -----
    Parts side by side use the cores better than kernels that are split among them: there is no waiting at the end of
    each kernel, and what numpy does on one thread is shared out too.

    Examples
    --------
    >>> map_on_threads(abs, [-1, 2])
    [1, 2]
    """
    before = torch.get_num_threads()
    if min(before, len(parts)) < 2:
        return [function(part) for part in parts]
    try:
        with ThreadPoolExecutor(before, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(function, parts))
    finally:
        torch.set_num_threads(before)


def share_out(rows: Array, at_most: int) -> list[Array]:
    """Share rows out among threads.

    Parameters
    ----------
    rows : ndarray of shape (n_rows,)
        Their numbers.
    at_most : int
        Rows of a part.

    Returns
    -------
    list of ndarray
        Parts in order, as many as there are threads or more.

    Examples
    --------
    >>> import numpy as np
    >>> [part.tolist() for part in share_out(np.array([3, 5, 8]), 1)]
    [[3], [5], [8]]
    """
    size = max(1, min(at_most, math.ceil(len(rows) / torch.get_num_threads())))
    return [rows[first : first + size] for first in range(0, len(rows), size)]
