"""Child processes of jobs: started in their own group, limited in time and memory, and stopped as a group."""

from __future__ import annotations

__all__ = ["Child", "memory_of"]

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

_CHECK_SECONDS = 0.05  #: Seconds between two checks of time and memory.
_RESERVED = 4 * 2**30  #: Address space of a process beyond its memory, for libraries and the stacks of threads.
#: Words of processes that got no memory.
_NO_MEMORY = ("MemoryError", "bad_alloc", "can't allocate memory", "Cannot allocate memory", "malloc of size")
_LAUNCHER = Path(__file__).with_name("launcher.py")
_GRACE_SECONDS = 5.0  #: Seconds between the signal to terminate and the signal to kill.
_MAX_LINE = 100_000  #: Maximum number of characters of a line.


@dataclass
class Child:
    """Running process."""

    command: Sequence[str]
    folder: Path  # working directory
    limits: Limits  # limits of time and memory
    on_event: Callable[[dict[str, Any]], None] | None = None  # called with each JSON object on standard error
    peak: int = 0  # peak memory in bytes
    _process: asyncio.subprocess.Process | None = None
    _reason: str = ""  # why the server has stopped it
    _lines: list[str] = field(default_factory=list)

    async def run(self) -> str:
        """Run the process, and return its error message, which is empty if it succeeded."""
        self._process = await asyncio.create_subprocess_exec(
            *_launched(self.command, self.limits.max_memory),
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={key: value for key, value in os.environ.items() if key != "MCFLOW_TOKEN"},
            start_new_session=True,
        )
        assert self._process.stderr is not None
        watch = asyncio.create_task(self._enforce_limits(self._process.pid))
        try:
            await self._read_lines(self._process.stderr)
            code = await self._process.wait()
        except asyncio.CancelledError:
            await self.stop("The server is stopping.")
            raise
        finally:
            watch.cancel()
        _signal(self._process.pid, kill=True)  # processes that it may have left behind
        return self._message(code)

    async def stop(self, reason: str) -> None:
        """Stop the process and all processes that it has started."""
        process = self._process
        self._reason = self._reason or reason
        if process is None or process.returncode is not None:
            return
        _signal(process.pid)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(process.wait()), _GRACE_SECONDS)
        _signal(process.pid, kill=True)

    async def _enforce_limits(self, pid: int) -> None:
        """Stop the process if it exceeds the limits of time or memory."""
        start = time.monotonic()
        while True:
            held = memory_of(pid)
            self.peak = max(self.peak, held)
            if held > self.limits.max_memory:
                _signal(pid, kill=True)  # it may take gigabytes more before it hears a polite request
                await self.stop(self._too_much_memory())
            if time.monotonic() - start > self.limits.max_time:
                await self.stop(
                    f"The job took longer than the server allows ({self.limits.max_time:g} seconds). Start it again "
                    "with a time limit for the fit, or with fewer rows."
                )
            await asyncio.sleep(_CHECK_SECONDS)

    def _too_much_memory(self) -> str:
        most = size_in_words(self.limits.max_memory)
        return f"The job needs more memory than the server allows ({most}). Send fewer rows or columns."

    async def _read_lines(self, stderr: asyncio.StreamReader) -> None:
        rest = b""
        while chunk := await stderr.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-_MAX_LINE:]
            for line in lines:
                self._handle(line.decode("utf-8", "replace").strip())
        self._handle(rest.decode("utf-8", "replace").strip())

    def _handle(self, line: str) -> None:
        """Pass on an event, or keep a line for the error message."""
        try:
            event = json.loads(line) if line.startswith("{") else None
        except ValueError:
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            self._lines = [*self._lines[-30:], line] if line else self._lines
        elif self.on_event is not None:
            self.on_event(event)

    def _message(self, code: int) -> str:
        """Return the error message of an exit code: the reason of the server, else the last error line."""
        if self._reason or not code:
            return self._reason
        own = [line.removeprefix("mcflow: ") for line in self._lines if line.startswith("mcflow: ")]
        if own:
            return own[-1]
        if code == -signal.SIGSEGV:
            return "The file could not be read. It is probably damaged."
        if code < 0:
            return "The system stopped the job, most likely because memory ran out. Send fewer rows or columns."
        last = self._lines[-1] if self._lines else "no reason was given"
        if any(word in last for word in _NO_MEMORY):
            return self._too_much_memory()
        return f"The job ended without a result (code {code}: {last[:300]})."


def _launched(command: Sequence[str], max_memory: int) -> list[str]:
    """Return the command that starts another one so that it ends with this process and has limited memory."""
    if os.name != "posix":
        return list(command)
    on_cpu = sys.platform.startswith("linux") and not Path("/dev/nvidiactl").exists()  # CUDA maps all memory there is
    limit = max_memory + _RESERVED if on_cpu else 0
    return [sys.executable, "-S", "-E", str(_LAUNCHER), str(os.getpid()), str(limit), *command]


def memory_of(pid: int) -> int:
    """Return the memory of a process in bytes; 0 if the system does not report it."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _signal(pid: int, *, kill: bool = False) -> None:
    """Terminate or kill the group of a process; on Windows, the process."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, signal.SIGKILL if kill else signal.SIGTERM)
