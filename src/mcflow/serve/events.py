"""What happens to a job, for those who watch now and for those who come later."""

from __future__ import annotations

__all__ = ["EventLog"]

import asyncio
import json
from pathlib import Path
from typing import Any

#: Events that are kept; above it every second epoch of the older half is let go.
_MOST = 600


class EventLog:
    """The progress of a job.

    Parameters
    ----------
    path : Path
        File of the events, one JSON object a line; those of an earlier server are read from it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = EventLog(Path(folder) / "progress.jsonl")
    ...     log.add({"event": "epoch", "epoch": 1})
    ...     EventLog(Path(folder) / "progress.jsonl").since(0)
    [(1, {'event': 'epoch', 'epoch': 1})]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Counts the changes of the job's state.
        self.version = 0
        #: Is set at the next event or change, and then replaced by a new one.
        self.news = asyncio.Event()
        self._events: list[tuple[int, dict[str, Any]]] = []
        self._count = 0
        self._read()

    def _read(self) -> None:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except OSError:
            return
        for line in lines:
            try:
                self._keep(json.loads(line))
            except ValueError:  # the line that a killed server was writing
                continue

    def add(self, event: dict[str, Any]) -> None:
        """Keep an event and tell who listens."""
        self._keep(event)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")
        except OSError:  # the job was deleted meanwhile
            pass
        self._tell()

    def touch(self) -> None:
        """Tell who listens that the job's state is another one."""
        self.version += 1
        self._tell()

    def clear(self) -> None:
        """Forget all events: the job begins anew."""
        self._events = []
        self.path.unlink(missing_ok=True)

    def since(self, after: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the events after a number, each with its own."""
        return [(number, event) for number, event in self._events if number > after]

    @property
    def latest(self) -> dict[str, Any] | None:
        """The newest event that says how far the job is."""
        return next((e for _, e in reversed(self._events) if e.get("event") in ("epoch", "part", "end")), None)

    def _keep(self, event: dict[str, Any]) -> None:
        self._count += 1
        self._events.append((self._count, event))
        if len(self._events) > _MOST:
            half = _MOST // 2
            old = [
                (number, event)
                for place, (number, event) in enumerate(self._events[:half])
                if place % 2 or event.get("event") not in ("epoch", "part")
            ]
            self._events = old + self._events[half:]

    def _tell(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()
