"""The queue: jobs wait in the order they came, a few at a time run, and all of them outlive their clients."""

from __future__ import annotations

__all__ = ["QueueFullError", "Runner"]

import asyncio
import shutil
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from mcflow.errors import McflowError, ParameterError
from mcflow.serve.children import Child, Ending
from mcflow.serve.commands import (
    bounds_command,
    check_names,
    draws_command,
    fill_command,
    fit_command,
    intervals_command,
    look_command,
    texts_command,
)
from mcflow.serve.jobs import Job
from mcflow.serve.limits import Limits
from mcflow.serve.store import JobStore

#: Seconds from one search for data that is to be deleted to the next.
_SWEEP_EVERY = 60.0
_CANCELLED = "It was cancelled."
#: Columns up to which intervals are computed: their cost grows with the square of the columns.
_MOST_COLUMNS = 1_000
_TOO_WIDE = (
    f"They are not computed here for more than {_MOST_COLUMNS:,} columns. Take the model along; "
    "mcflow impute --model model.mcflow --interval 0.9 adds them."
)


class QueueFullError(McflowError, RuntimeError):
    """More jobs wait than the server allows."""


class Runner:
    """Runs the jobs of a store. All of it happens in one event loop, so nothing needs a lock.

    Parameters
    ----------
    store : JobStore
        Where the jobs are.
    limits : Limits
        How many at once, how long, how much.
    """

    def __init__(self, store: JobStore, limits: Limits) -> None:
        self.store, self.limits = store, limits
        #: How jobs ended, and the seconds that they took, by kind.
        self.endings: Counter[tuple[str, str]] = Counter()
        self.seconds: dict[str, float] = {}
        self._waiting: deque[Job] = deque()
        #: Jobs whose intervals are computed when nobody waits for a fit.
        self._later: deque[Job] = deque()
        self._permits = asyncio.Semaphore(0)
        self._looks = asyncio.Semaphore(1)
        self._children: dict[str, Child] = {}
        self._preparing: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        """Begin to work, with the jobs first that an earlier server left waiting."""
        for job in self.store.load():
            self._enqueue(job)
        for _ in range(self.limits.jobs):
            self._spawn(self._work())
        self._spawn(self._sweep())

    async def stop(self) -> None:
        """End what is at work; it can be started again."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for job in self.store.jobs.values():
            if job.state in ("running", "checking"):
                self._end(job, "interrupted", "The server was stopped while this was at work. Start it again to go on.")

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ------------------------------------------------------------------ the queue
    @property
    def waiting(self) -> int:
        """Jobs in the queue."""
        return len(self._waiting)

    def position(self, job: Job) -> int | None:
        """Return how many jobs are before one in the queue; None when it does not wait."""
        return self._waiting.index(job) if job in self._waiting else None

    def check_room(self) -> None:
        """Raise `QueueFullError` when no further job may wait."""
        if len(self._waiting) >= self.limits.max_queue:
            raise QueueFullError(
                f"{len(self._waiting)} jobs are waiting already, which is as many as this server allows. "
                "Try again in a few minutes."
            )

    def submit(self, job: Job) -> None:
        """Put a job at the end of the queue; `check_room` comes before."""
        job.state, job.message, job.ended = "queued", "", 0.0
        self.store.changed(job)
        self._enqueue(job)

    def _enqueue(self, job: Job) -> None:
        self._waiting.append(job)
        self._permits.release()

    def restart(self, job: Job, options: dict[str, Any]) -> None:
        """Put a job into the queue again.

        Parameters
        ----------
        job : Job
            That rests.
        options : dict
            Other ones let it begin anew; with the same it goes on where it was, or is done again.
        """
        goes_on = job.state in ("interrupted", "cancelled") and options == job.options
        if not goes_on:
            shutil.rmtree(job.folder / "checkpoint", ignore_errors=True)
            self.store.log(job).clear()
        for name in (job.output.name, "model.mcflow", "report.html", "texts.parquet", "bounds.parquet"):
            (job.folder / name).unlink(missing_ok=True)
        job.options, job.table, job.intervals = options, "", ""
        if job.schema() is not None:
            self.submit(job)
            return
        job.state, job.message, job.ended = "checking", "", 0.0
        self.store.changed(job)
        self.check_file(job, start=True)

    def is_busy(self, job: Job) -> bool:
        """Tell whether a process is at work for a job, be it after its end."""
        return job.id in self._children or job.id in self._preparing or job in self._later

    def forgo(self, job: Job) -> None:
        """Leave out the intervals of a job that wait for their turn."""
        if job in self._later:
            self._later.remove(job)

    async def cancel(self, job: Job, why: str = _CANCELLED) -> None:
        """Take a job out of the queue, or end its process."""
        self.forgo(job)
        if job in self._waiting:
            self._waiting.remove(job)
            self._end(job, "cancelled", why)
        child = self._children.get(job.id)
        if child is not None:
            await child.end(why)

    async def delete(self, job: Job) -> None:
        """End a job and remove all its files, and those of the jobs that use its model."""
        for other in [*self.store.runs(job.id), job]:
            await self.cancel(other, "It was deleted.")
        if job.id in self.store.jobs:
            hidden = self.store.forget(job)
            await asyncio.to_thread(shutil.rmtree, hidden, ignore_errors=True)

    # ------------------------------------------------------------------ the work
    async def _work(self) -> None:
        while True:
            await self._permits.acquire()
            if self._waiting:
                await self._run(self._waiting.popleft())
            elif self._later:  # neither is there when a job was cancelled, which leaves its permit behind
                await self._find_intervals(self._later.popleft())

    async def _run(self, job: Job) -> None:
        job.state, job.started, job.message = "running", time.time(), ""
        self.store.changed(job)
        commands = {"fit": fit_command, "impute": fill_command, "draws": draws_command}
        ending = await self._child(job, commands[job.kind](job))
        state = "done" if not ending.message else "cancelled" if ending.message == _CANCELLED else "failed"
        if state == "done" and job.kind == "fit":
            self._preparing.add(job.id)
        self._end(job, state, _in_words(job, ending.message))
        if job.id in self._preparing:
            await self._prepare(job)

    async def _prepare(self, job: Job) -> None:
        """Make the filled cells ready to be looked at, and their intervals later; a fill without them is still one."""
        try:
            shown = await self._step(job, "table", texts_command(job))
            shutil.rmtree(job.folder / "checkpoint", ignore_errors=True)
            if shown and _is_wide(job):
                job.intervals = _TOO_WIDE
            elif shown and job.id in self.store.jobs:
                self._later.append(job)
                self._permits.release()
        finally:
            self._preparing.discard(job.id)
            self.store.changed(job)

    async def _find_intervals(self, job: Job) -> None:
        self._preparing.add(job.id)
        try:
            await self._step(job, "intervals", intervals_command(job), bounds_command(job))
            (job.folder / "cells.parquet").unlink(missing_ok=True)
        finally:
            self._preparing.discard(job.id)
            self.store.changed(job)

    async def _step(self, job: Job, part: str, *commands: Sequence[str]) -> bool:
        """Run commands one after the other, and note in the job how it stands with a part of it."""
        setattr(job, part, "building")
        self.store.changed(job)
        message = ""
        for command in commands:
            if not message:
                message = _in_words(job, (await self._child(job, command)).message)
        setattr(job, part, message or "ready")
        self.store.changed(job)
        return not message

    async def _child(self, job: Job, command: Sequence[str]) -> Ending:
        """Run one process for a job."""
        if job.id not in self.store.jobs:
            return Ending(1, "It was deleted.")
        child = Child(command, job.folder, self.limits, self.store.log(job).add)

        def remember(process: dict[str, int]) -> None:
            job.child = process
            self.store.changed(job)

        self._children[job.id] = child
        try:
            ending = await child.run(remember)
        except OSError as error:
            return Ending(1, f"The work could not be started: {error.strerror or error}.")
        finally:
            self._children.pop(job.id, None)
            job.child = {}
            _remove_scraps(job)
        job.peak_memory = max(job.peak_memory, ending.peak)
        return ending

    def _end(self, job: Job, state: str, message: str) -> None:
        job.state, job.message, job.ended = state, message, time.time()
        self.endings[job.kind, state] += 1
        if job.started:
            self.seconds[job.kind] = self.seconds.get(job.kind, 0.0) + job.ended - job.started
        self.store.changed(job)

    # ------------------------------------------------------------------ reading what was sent
    def check_file(self, job: Job, *, start: bool) -> asyncio.Task[Any]:
        """Read a file that was sent, one at a time, and put its job into the queue when asked to.

        Parameters
        ----------
        job : Job
            New.
        start : bool
            Whether to queue it when the file can be read.

        Returns
        -------
        asyncio.Task
            To be waited for, or not.
        """
        return self._spawn(self._look(job, start=start))

    async def _look(self, job: Job, *, start: bool) -> None:
        async with self._looks:
            message = await self._read(job)
        if message:
            self._end(job, "cancelled" if message == _CANCELLED else "failed", message)
        elif start and len(self._waiting) < self.limits.max_queue:
            self.submit(job)
        else:
            job.state = "ready"
            self.store.changed(job)

    async def _read(self, job: Job) -> str:
        """Read a file, and return why it cannot be used."""
        ending = await self._child(job, look_command(job, self.limits))
        if ending.message:
            return _in_words(job, ending.message)
        try:
            check_names(job.options, job.schema() or {"columns": []})
        except ParameterError as error:
            return str(error)
        return ""

    # ------------------------------------------------------------------ forgetting
    async def _sweep(self) -> None:
        """Delete what is older than the server keeps it."""
        keep = self.limits.keep * 3600
        while True:
            for job in self.store.expired(keep, time.time()):
                await self.delete(job)
            await asyncio.sleep(min(_SWEEP_EVERY, max(keep / 4, 0.1)))


def _in_words(job: Job, message: str) -> str:
    """Return a message with the client's name of the file instead of ours."""
    return message.replace(job.upload.name, job.filename) if job.filename else message


def _is_wide(job: Job) -> bool:
    return len((job.schema() or {"columns": []})["columns"]) > _MOST_COLUMNS


def _remove_scraps(job: Job) -> None:
    """Remove what a process was writing when it was ended."""
    for scrap in job.folder.glob(".*.tmp"):
        scrap.unlink(missing_ok=True)
