"""Threads beside the work: items that are made a few ahead of whoever takes them, and looks now and then."""

from __future__ import annotations

__all__ = ["ahead", "repeated"]

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

#: How long a thread waits before it looks whether anybody still wants what it makes, in seconds.
PATIENCE = 0.1


class _End:
    """The last thing in a queue: nothing more, or what went wrong."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def ahead(items: Iterable[T], depth: int = 2) -> Iterator[T]:
    """Make items in a thread, and hand them out in order.

    Parameters
    ----------
    items : iterable
        Made one after the other in the thread.
    depth : int, default=2
        Items that wait to be taken, at most.

    Yields
    ------
    object

    Notes
    -----
    Reading, filling and writing spend their time outside the interpreter's lock, so that they overlap. An error in the
    thread is raised where the item would have been. When nobody takes items any more, the thread ends.

    Examples
    --------
    >>> list(ahead(range(3)))
    [0, 1, 2]
    """
    line: queue.Queue[T | _End] = queue.Queue(depth)
    left = threading.Event()
    thread = threading.Thread(target=_make, args=(items, line, left.is_set), daemon=True)
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


def _make(items: Iterable[T], line: queue.Queue[T | _End], left: Callable[[], bool]) -> None:
    """Put items into a line until they or those who want them are gone."""
    iterator = iter(items)
    end = _End()
    try:
        for item in iterator:
            if not _put(line, item, left):
                return
    except BaseException as error:  # raised again by whoever takes the items
        end = _End(error)
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
    _put(line, end, left)


def _put(line: queue.Queue[T | _End], item: T | _End, left: Callable[[], bool]) -> bool:
    while not left():
        try:
            line.put(item, timeout=PATIENCE)
        except queue.Full:
            continue
        return True
    return False


@contextlib.contextmanager
def repeated(act: Callable[[], None], seconds: float) -> Iterator[None]:
    """Do something now and then while a block runs, and once more when it ends.

    Parameters
    ----------
    act : callable
        Without parameters; called from a thread.
    seconds : float
        Between two times.

    Examples
    --------
    >>> heard = []
    >>> with repeated(lambda: heard.append("done"), 60.0):
    ...     pass
    >>> heard
    ['done']
    """
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
