"""Progress events of jobs: a log for clients that connect later, and a stream of server-sent events."""

from __future__ import annotations

__all__ = ["EventLog", "event_stream", "wait_until_ended"]

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcflow.serve.dependencies import ServerState
    from mcflow.serve.jobs import Job

#: Maximum number of events in memory; above it, every second epoch of the older half is dropped.
_MAX_EVENTS = 600
#: Seconds of silence after which a comment is sent, so that proxies keep the connection open.
_KEEP_ALIVE = 15.0


class EventLog:
    """Progress events of a job."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Number of changes of the state of the job.
        self.version = 0
        #: Set at the next event or change, and then replaced by a new one.
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
            except ValueError:  # an incomplete line of a server that was killed
                continue

    def add(self, event: dict[str, Any]) -> None:
        """Store an event and notify listeners."""
        self._keep(event)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")
        except OSError:  # the job has been deleted
            pass
        self._notify()

    def touch(self) -> None:
        """Notify listeners that the state of the job has changed."""
        self.version += 1
        self._notify()

    def clear(self) -> None:
        """Delete all events, because the job starts again."""
        self._events = []
        self.path.unlink(missing_ok=True)

    def since(self, after: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the events after a number, with their numbers."""
        return [(number, event) for number, event in self._events if number > after]

    @property
    def latest(self) -> dict[str, Any] | None:
        """The latest event with progress."""
        kinds = ("epoch", "part", "end", "cut_short")
        return next((event for _, event in reversed(self._events) if event.get("event") in kinds), None)

    def _keep(self, event: dict[str, Any]) -> None:
        self._count += 1
        self._events.append((self._count, event))
        if len(self._events) > _MAX_EVENTS:
            half = _MAX_EVENTS // 2
            old = [
                (number, event)
                for place, (number, event) in enumerate(self._events[:half])
                if place % 2 or event.get("event") not in ("epoch", "part")
            ]
            self._events = old + self._events[half:]

    def _notify(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()


async def event_stream(server: ServerState, job: Job, after: int) -> AsyncIterator[str]:
    """Yield the events of a model as server-sent events, until no more can happen."""
    log, version = server.store.log(job), -1
    while True:
        news = log.news
        if log.version != version:
            version = log.version
            yield _message("state", server.summary(job).model_dump_json())
        for number, event in log.since(after):
            after = number
            yield _message("progress", json.dumps(event), number)
        if _is_over(server, job):
            yield _message("end", "{}")
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), _KEEP_ALIVE)
            continue
        yield ": keep-alive\n\n"


def _is_over(server: ServerState, job: Job) -> bool:
    """Return whether neither the model nor a job that uses it waits or runs."""
    if job.id not in server.store.jobs:
        return True
    jobs = [job, *server.store.runs(job.id)]
    return not any(server.runner.is_busy(one) or one.state in ("checking", "queued", "running") for one in jobs)


def _message(name: str, data: str, number: Any = None) -> str:
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {name}\ndata: {data}\n\n"


async def wait_until_ended(server: ServerState, job: Job) -> None:
    """Wait until a job has ended or was deleted."""
    log = server.store.log(job)
    while not job.has_ended and job.id in server.store.jobs:
        await log.news.wait()
