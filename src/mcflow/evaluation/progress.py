"""Show the progress of an evaluation, method by method, in the forms that a fit has: live, plain lines or JSON."""

from __future__ import annotations

__all__ = ["EvaluationProgress"]

import contextlib
import sys
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from mcflow.evaluation.methods import ComparedMethod
from mcflow.evaluation.wording import clock_text
from mcflow.fitting.progress import can_be_live, write_event


class EvaluationProgress:
    """Show the running method, the time of each method and an estimate of the remaining time."""

    def __init__(
        self, methods: list[ComparedMethod], repeats: int, max_time: float | None, verbose: bool | str
    ) -> None:
        self._queue = methods * repeats
        self._total, self._done = len(self._queue), 0
        self._limit = max_time
        self._times: dict[str, float] = {}
        self._failure: str | None = None
        self._mode = "none" if not verbose else verbose if isinstance(verbose, str) else "auto"

    @contextlib.contextmanager
    def method(self, method: ComparedMethod) -> Iterator[None]:
        """Show that a method is running while the block is executed."""
        number, self._failure = self._done + 1, None
        left = self.seconds_left()
        self._event("method", name=method.name, number=number, of=self._total, seconds_left=left)
        start = time.perf_counter()
        # mcflow shows its own epochs, and two live displays would overwrite each other.
        with self._spinner(f"[{number}/{self._total}] {method.name}{self._left_text()}", hide=method.ours):
            yield
        self._queue.pop(0)
        self._done = number
        seconds = self._times[method.name] = time.perf_counter() - start
        words = f"failed after {seconds:.1f} s" if self._failure else f"{seconds:.1f} s"
        self._print(f"[{number}/{self._total}] {method.name}: {words}{self._left_text()}")
        self._event("method_end", name=method.name, seconds=seconds, error_message=self._failure)

    def fail(self, message: str | None) -> None:
        """Record the error message of the running method, or None if it succeeded."""
        self._failure = message

    def skip(self, method: ComparedMethod) -> None:
        """Remove a method that failed in an earlier repeat."""
        self._queue.remove(method)
        self._total -= 1

    def seconds_left(self) -> float | None:
        """Estimate the remaining seconds from earlier repeats and the time limit; None if a method is unknown."""
        guesses = [self._guess(one) for one in self._queue]
        return None if None in guesses else sum(guess for guess in guesses if guess is not None)

    def _guess(self, method: ComparedMethod) -> float | None:
        return self._times.get(method.name, self._limit if method.ours else None)

    def _left_text(self) -> str:
        known = self.seconds_left()
        if not self._queue:
            return ""
        if known is not None:
            return f", about {clock_text(known)} left"
        unknown = list(dict.fromkeys(one.name for one in self._queue if self._guess(one) is None))
        rest = sum(self._guess(one) or 0.0 for one in self._queue)
        return f", left: {', '.join(unknown)}" + (f" and {clock_text(rest)} for the rest" if rest else "")

    def _spinner(self, words: str, *, hide: bool) -> contextlib.AbstractContextManager[Any]:
        if self._mode != "auto" or hide or not can_be_live(self._console):
            return contextlib.nullcontext()
        from rich.text import Text

        status: contextlib.AbstractContextManager[Any] = self._console.status(Text(words))
        return status

    @cached_property
    def _console(self) -> Any:
        from rich.console import Console

        return Console(file=sys.stderr)

    def _print(self, line: str) -> None:
        if self._mode in ("auto", "plain"):
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _event(self, event: str, **facts: Any) -> None:
        if self._mode == "json":
            write_event(event, **facts)
