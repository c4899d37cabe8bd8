"""Background threads: prefetch items, and call a function at intervals."""

from __future__ import annotations

__all__ = ["call_every", "prefetch"]

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetch(items: Iterable[T], depth: int = 2) -> Iterator[T]:
    """Produce items in a thread and yield them in order, `depth` ahead; an error is raised in place of its item."""
    iterator = iter(items)
    with ThreadPoolExecutor(max_workers=1) as pool, contextlib.suppress(StopIteration):
        ahead = deque(pool.submit(next, iterator) for _ in range(depth + 1))
        try:
            while True:
                item = ahead.popleft().result()
                ahead.append(pool.submit(next, iterator))
                yield item
        finally:
            pool.shutdown(cancel_futures=True)
            if isinstance(iterator, Generator):
                iterator.close()


@contextlib.contextmanager
def call_every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Call a function at intervals while a block runs, and once more when the block ends."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            act()
        act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
