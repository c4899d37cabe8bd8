"""Prefetched items come in order, with their errors, and leave no thread behind."""

from __future__ import annotations

import threading
import time

import pytest

from mcflow.engines.background import prefetch


def test_items_come_in_order_and_are_prefetched() -> None:
    made = []

    def items():
        for number in range(5):
            made.append(number)
            yield number

    taken = prefetch(items(), depth=2)
    assert next(taken) == 0
    deadline = time.monotonic() + 5
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert made == [0, 1, 2, 3], "two wait in line and one in the hand of the thread"
    assert list(taken) == [1, 2, 3, 4]


def test_error_is_raised_where_the_item_would_have_been() -> None:
    def items():
        yield 1
        raise ValueError("torn")

    taken = prefetch(items())
    assert next(taken) == 1
    with pytest.raises(ValueError, match="torn"):
        next(taken)


def test_nobody_takes_any_more_then_the_thread_ends_and_closes_what_it_read() -> None:
    closed, before = [], threading.active_count()

    def items():
        try:
            while True:
                yield 0
        finally:
            closed.append(True)

    taken = prefetch(items())
    next(taken)
    taken.close()
    assert closed == [True]
    assert threading.active_count() == before
