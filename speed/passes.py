"""Passes over the rows, watched from outside: a fit that ends when enough of it was seen."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from mcflow import MCFlowImputer
from mcflow.training import Callback
from synthetic import Table

#: Passes that a watched fit plans, so many that none of its first ones looks at held-out cells.
PLANNED = 200

#: The most passes to watch.
MOST = 4


class Enough(Exception):  # noqa: N818 - nothing went wrong
    """Ends a fit of which enough was seen."""


class Stopwatch(Callback):
    """Take the seconds of each pass, and end the fit after some."""

    def __init__(self, n_passes: int) -> None:
        self.n_passes = n_passes
        self.seconds: list[float] = []

    def on_begin(self, trainer: Any) -> None:
        self._start = time.perf_counter()

    def on_epoch_end(self, trainer: Any) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self._start)
        if len(self.seconds) >= self.n_passes:
            raise Enough
        self._start = time.perf_counter()


def pass_seconds(table: Table, n_passes: int) -> float:
    """Return the shortest time of a pass of the default preset over a table, of some."""
    watch = Stopwatch(min(n_passes, MOST))
    watch_fit(table, watch)
    return min(watch.seconds)


def watch_fit(table: Table, listener: Callback) -> None:
    """Fit until the listener has had enough."""
    with contextlib.suppress(Enough):
        _Heard(max_epochs=PLANNED, random_state=0).tell(listener).fit(table)


class _Heard(MCFlowImputer):
    """An imputer whose fit has a listener."""

    def tell(self, listener: Callback) -> _Heard:
        self._listener = listener
        return self

    def _listeners(self, *_: Any) -> list[Callback]:
        return [self._listener]
