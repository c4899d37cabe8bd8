"""Progress of an evaluation, method by method: a live line on a terminal, plain lines elsewhere, or JSON."""

from __future__ import annotations

__all__ = ["EvaluationProgress"]

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from mcflow.evaluation.contenders import Contender
from mcflow.training.progress import can_be_live, write_event


class EvaluationProgress:
    """Say which method is at work, how long each took and how long the rest may take.

    Parameters
    ----------
    contenders : list of Contender
        In the order of their turns.
    repeats : int
        How often all of them have a turn.
    max_time : float or None
        Seconds that a fit of mcflow may take.
    verbose : bool or str
        As for `MCFlowImputer`.
    console : rich.console.Console, optional
        Where to write, by default standard error.
    """

    def __init__(
        self,
        contenders: list[Contender],
        repeats: int,
        max_time: float | None,
        verbose: bool | str,
        console: Any = None,
    ) -> None:
        self._queue = [one for _ in range(repeats) for one in contenders]
        self._total, self._done, self._start = len(self._queue), 0, time.perf_counter()
        self._limit = max_time
        self._times: dict[str, float] = {}
        self._failure: str | None = None
        self._mode = "none" if not verbose else verbose if isinstance(verbose, str) else "auto"
        self._console = console

    @contextlib.contextmanager
    def turn(self, contender: Contender) -> Iterator[None]:
        """Show that a method is at work; the block is its turn."""
        number, self._failure = self._done + 1, None
        left = self.seconds_left()
        self._event("method", name=contender.name, number=number, of=self._total, seconds_left=left)
        start = time.perf_counter()
        # mcflow shows its own epochs, and two live displays would be in each other's way.
        with self._spinner(f"[{number}/{self._total}] {contender.name}{self._words_left()}", hide=contender.ours):
            yield
        self._queue.pop(0)
        self._done = number
        seconds = self._times[contender.name] = time.perf_counter() - start
        words = f"failed after {seconds:.1f} s" if self._failure else f"{seconds:.1f} s"
        self._line(f"[{number}/{self._total}] {contender.name}: {words}{self._words_left()}")
        self._event("method_end", name=contender.name, seconds=seconds, error_message=self._failure)

    def fail(self, message: str | None) -> None:
        """Say that the method at work has failed, if there is a message."""
        self._failure = message

    def skip(self, contender: Contender) -> None:
        """Leave out the turn of a method that has failed before."""
        self._queue.remove(contender)
        self._total -= 1

    def seconds_left(self) -> float | None:
        """Return what the turns that are left take at most, by earlier turns and the limit; None if not known yet."""
        guesses = [self._guess(one) for one in self._queue]
        return None if None in guesses else sum(guess for guess in guesses if guess is not None)

    def _guess(self, contender: Contender) -> float | None:
        if contender.name in self._times:
            return self._times[contender.name]
        return self._limit if contender.ours else None

    def _words_left(self) -> str:
        known = self.seconds_left()
        if not self._queue:
            return ""
        if known is not None:
            return f", about {int(known // 60)}:{int(known % 60):02d} left"
        unknown = list(dict.fromkeys(one.name for one in self._queue if self._guess(one) is None))
        sure = sum(self._guess(one) or 0.0 for one in self._queue)
        more = f" and {int(sure // 60)}:{int(sure % 60):02d} for the rest" if sure else ""
        return f", left: {', '.join(unknown)}{more}"

    def _spinner(self, words: str, *, hide: bool) -> contextlib.AbstractContextManager[Any]:
        if self._mode != "auto" or hide or not can_be_live(self._open()):
            return contextlib.nullcontext()
        from rich.text import Text

        status: contextlib.AbstractContextManager[Any] = self._open().status(Text(words))
        return status

    def _open(self) -> Any:
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=sys.stderr)
        return self._console

    def _line(self, words: str) -> None:
        if self._mode in ("auto", "plain"):
            self._open().print(words, highlight=False, soft_wrap=True, markup=False)

    def _event(self, event: str, **facts: Any) -> None:
        if self._mode == "json":
            write_event(event, **facts)
