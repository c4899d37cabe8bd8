"""Background threads: prefetch items, and call a function at intervals."""

from __future__ import annotations

__all__ = ["call_every", "prefetch"]

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

#: Seconds that a producer waits for room in its queue before it checks whether the consumer has left.
_POLL_SECONDS = 0.1


class _End:
    """Last item of a queue, with the error that ended the producer."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def prefetch(items: Iterable[T], depth: int = 2) -> Iterator[T]:
    """Produce items in a thread, at most `depth` ahead of the consumer, and yield them in order.

    Reading, filling and writing release the interpreter lock most of the time, so they overlap. An error in the thread
    is raised where its item would have been. The thread ends when the consumer stops.

    Examples
    --------
    >>> list(prefetch(range(3)))
    [0, 1, 2]
    """
    line: queue.Queue[T | _End] = queue.Queue(depth)
    left = threading.Event()
    thread = threading.Thread(target=_produce, args=(items, line, left.is_set), daemon=True)
    thread.start()
    try:
        while True:
            item = line.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        left.set()
        thread.join()


def _produce(items: Iterable[T], line: queue.Queue[T | _End], left: Callable[[], bool]) -> None:
    """Put items into a queue until there are no more or the consumer has left."""
    iterator = iter(items)
    end = _End()
    try:
        for item in iterator:
            if not _put(line, item, left):
                return
    except BaseException as error:  # raised again in the thread of the consumer
        end = _End(error)
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
    _put(line, end, left)


def _put(line: queue.Queue[T | _End], item: T | _End, left: Callable[[], bool]) -> bool:
    while not left():
        try:
            line.put(item, timeout=_POLL_SECONDS)
        except queue.Full:
            continue
        return True
    return False


@contextlib.contextmanager
def call_every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Call a function at intervals while a block runs, and once more when the block ends."""
    ended = threading.Event()

    def run() -> None:
        last = False
        while not last:
            last = ended.wait(seconds)
            act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
