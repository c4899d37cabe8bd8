"""Processes that do the work of jobs: started in their own group, watched, and ended with all they started."""

from __future__ import annotations

__all__ = ["Child", "Ending", "end_leftover", "memory_of"]

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcflow.serve.limits import Limits, size_in_words

#: Seconds from one look at a process to the next.
_LOOK_EVERY = 0.5
#: Seconds that a process has to end by itself.
_GRACE = 5.0
#: Characters of a line that are kept.
_LONGEST_LINE = 100_000
_SECRETS = ("MCFLOW_TOKEN",)


@dataclass(frozen=True)
class Ending:
    """How a process ended.

    Parameters
    ----------
    code : int
        Its exit code; below 0 the signal that ended it.
    message : str
        What went wrong, in words; empty when nothing did.
    peak : int
        Bytes of memory that it held at most.
    """

    code: int
    message: str
    peak: int = 0


@dataclass
class Child:
    """A process at work.

    Parameters
    ----------
    command : sequence of str
        What to run.
    folder : Path
        Where to run it.
    limits : Limits
        Its time and memory.
    on_event : callable, optional
        Called with each JSON object that it writes to standard error.
    """

    command: Sequence[str]
    folder: Path
    limits: Limits
    on_event: Callable[[dict[str, Any]], None] | None = None
    _process: asyncio.subprocess.Process | None = None
    _why: str = ""
    _peak: int = 0
    _lines: list[str] = field(default_factory=list)

    async def run(self, on_start: Callable[[dict[str, int]], None] | None = None) -> Ending:
        """Run it to its end.

        Parameters
        ----------
        on_start : callable, optional
            Called with what `end_leftover` needs, once the process is there.

        Returns
        -------
        Ending
        """
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={key: value for key, value in os.environ.items() if key not in _SECRETS},
            start_new_session=True,
        )
        if on_start is not None:
            on_start({"pid": self._process.pid, "ticks": _ticks(self._process.pid)})
        watch = asyncio.create_task(self._watch())
        try:
            await self._listen()
            code = await self._process.wait()
        except asyncio.CancelledError:
            await self.end("The server is being stopped.")
            raise
        finally:
            watch.cancel()
        _signal(self._process.pid, kill=True)  # what it may have left behind
        return Ending(code, self._message(code), self._peak)

    async def end(self, why: str) -> None:
        """End it and all that it started.

        Parameters
        ----------
        why : str
            The reason, which becomes the message of its ending.
        """
        process = self._process
        self._why = self._why or why
        if process is None or process.returncode is not None:
            return
        _signal(process.pid)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(process.wait()), _GRACE)
        _signal(process.pid, kill=True)

    async def _watch(self) -> None:
        """End it when it takes too long or too much."""
        assert self._process is not None
        start = time.monotonic()
        while True:
            held = memory_of(self._process.pid)
            self._peak = max(self._peak, held)
            if held > self.limits.max_memory:
                await self.end(
                    f"This needs more memory than the server allows ({size_in_words(self.limits.max_memory)}). "
                    "Send fewer rows or columns."
                )
            if time.monotonic() - start > self.limits.max_time:
                await self.end(
                    f"This took longer than the server allows ({self.limits.max_time:g} seconds). Start it again with "
                    "a shorter time for the fit, or with fewer rows."
                )
            await asyncio.sleep(_LOOK_EVERY)

    async def _listen(self) -> None:
        """Read standard error to its end, line by line."""
        assert self._process is not None
        assert self._process.stderr is not None
        rest = b""
        while chunk := await self._process.stderr.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-_LONGEST_LINE:]
            for line in lines:
                self._hear(line.decode("utf-8", "replace").strip())
        self._hear(rest.decode("utf-8", "replace").strip())

    def _hear(self, line: str) -> None:
        event = _as_event(line)
        if event is None:
            self._lines = [*self._lines[-30:], line] if line else self._lines
        elif self.on_event is not None:
            self.on_event(event)

    def _message(self, code: int) -> str:
        """Say what went wrong: our own reason, else the last line of the command's own words."""
        if self._why or not code:
            return self._why
        own = [line.removeprefix("mcflow: ") for line in self._lines if line.startswith("mcflow: ")]
        if own:
            return own[-1]
        if code == -signal.SIGSEGV:
            return "The file made the reader stumble. It is probably damaged."
        if code < 0:
            return "The system ended the work, most likely for want of memory. Send fewer rows or columns."
        last = self._lines[-1] if self._lines else "no reason was given"
        return f"The work ended without a result (code {code}: {last[:300]})."


def _as_event(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process holds, 0 where the system does not say.

    Parameters
    ----------
    pid : int
        Of the process.

    Returns
    -------
    int
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _ticks(pid: int) -> int:
    """Return when a process was started, in the system's ticks; it tells two processes with one number apart."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(line.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def end_leftover(child: dict[str, int]) -> None:
    """End a process that outlived the server that started it.

    Parameters
    ----------
    child : dict
        As `Child.run` gave it. Nothing happens when the number belongs to another process by now.
    """
    pid, ticks = child.get("pid", 0), child.get("ticks", 0)
    if pid and ticks and _ticks(pid) == ticks:
        _signal(pid, kill=True)


if sys.platform == "win32":

    def _signal(pid: int, *, kill: bool = False) -> None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)

else:

    def _signal(pid: int, *, kill: bool = False) -> None:
        """Tell a process and all of its group to end."""
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL if kill else signal.SIGTERM)
