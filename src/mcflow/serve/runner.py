"""Queue of jobs: they start in the order of arrival, and a limited number of them runs at the same time."""

from __future__ import annotations

__all__ = ["Place", "QueueFullError", "QuotaError", "Runner"]

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
    inspect_command,
    intervals_command,
    texts_command,
)
from mcflow.serve.jobs import INTERRUPTED, Job, JobStore
from mcflow.serve.limits import Limits, size_in_words

#: Maximum number of seconds between two searches for expired jobs.
_SWEEP_SECONDS = 60.0
_CANCELLED = "The job was cancelled."
_DELETED = "The job was deleted."
#: Maximum number of columns for intervals, whose cost grows with the square of the columns.
_MAX_INTERVAL_COLUMNS = 1_000
_TOO_WIDE = (
    f"They are not computed for more than {_MAX_INTERVAL_COLUMNS:,} columns. Download the model and run "
    "mcflow impute --model model.mcflow --interval 0.9."
)


class QueueFullError(McflowError, RuntimeError):
    """The queue is full."""


class QuotaError(McflowError, RuntimeError):
    """The files that are kept take all the room that they may."""


class Place:
    """Place in the queue of a file that arrives, until its job takes it."""

    def __init__(self, runner: Runner) -> None:
        self._places = runner.arriving
        self._places.add(self)

    def release(self) -> None:
        """Give the place to the job, or free it; a second call does nothing."""
        self._places.discard(self)


class Runner:
    """Runs the jobs of a store in one event loop, without locks."""

    def __init__(self, store: JobStore, limits: Limits) -> None:
        self.store, self.limits = store, limits
        #: Number of ended jobs by kind and state.
        self.endings: Counter[tuple[str, str]] = Counter()
        #: Seconds that jobs ran, by kind.
        self.seconds: dict[str, float] = {}
        self._waiting: deque[Job] = deque()
        #: Places of files that arrive.
        self.arriving: set[Place] = set()
        self._checking: set[str] = set()
        #: Jobs whose intervals are computed when the queue is empty.
        self._later: deque[Job] = deque()
        self._permits = asyncio.Semaphore(0)
        self._reading = asyncio.Semaphore(1)
        self._children: dict[str, Child] = {}
        self._preparing: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        """Start to work, first on the queued jobs of an earlier server."""
        for job in self.store.load():
            self._enqueue(job)
        for _ in range(self.limits.jobs):
            self._spawn(self._work())
        self._spawn(self._sweep())

    async def stop(self) -> None:
        """Stop all running jobs; they can be started again."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for job in self.store.jobs.values():
            if job.state in ("running", "checking"):
                self._end(job, "interrupted", INTERRUPTED)

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ------------------------------------------------------------------ queue
    @property
    def waiting(self) -> int:
        """Number of queued jobs."""
        return len(self._waiting)

    @property
    def pending(self) -> int:
        """Number of jobs that arrive, are inspected or are queued."""
        return len(self.arriving) + len(self._checking) + len(self._waiting)

    def position(self, job: Job) -> int | None:
        """Return the number of jobs ahead in the queue; None if the job is not queued."""
        return self._waiting.index(job) if job in self._waiting else None

    def check_room(self) -> None:
        """Raise `QueueFullError` if the queue is full, and `QuotaError` if no more files may be kept."""
        if self.pending >= self.limits.max_queue:
            raise QueueFullError(
                f"The queue is full: {self.pending} jobs arrive, are inspected or wait. Try again in a few minutes."
            )
        kept, used = len(self.store.jobs) + len(self.arriving), self.store.disk_bytes()
        if kept >= self.limits.max_kept or used >= self.limits.max_disk:
            raise QuotaError(
                f"This server keeps {kept:,} jobs with {size_in_words(used)}, and may keep {self.limits.max_kept:,} "
                f"with {size_in_words(self.limits.max_disk)}. Delete some, or wait until they expire."
            )

    def reserve(self) -> Place:
        """Return a place in the queue for a file that arrives, after `check_room`."""
        self.check_room()
        return Place(self)

    def submit(self, job: Job) -> None:
        """Add a job to the queue, after `check_room`."""
        job.state, job.message, job.ended = "queued", "", 0.0
        self.store.changed(job)
        self._enqueue(job)

    def _enqueue(self, job: Job) -> None:
        self._waiting.append(job)
        self._permits.release()

    def restart(self, job: Job, options: dict[str, Any]) -> None:
        """Add a job to the queue again; it resumes if it was stopped and the options are the same."""
        resumes = job.state in ("interrupted", "cancelled") and options == job.options
        if any(options.get(name) != job.options.get(name) for name in ("na", "skip_rows")):
            (job.folder / "schema.json").unlink(missing_ok=True)  # other cells are missing, or other lines are rows
        if not resumes:
            shutil.rmtree(job.folder / "checkpoint", ignore_errors=True)
            self.store.log(job).clear()
        for name in (job.output.name, "model.mcflow", "report.html", "texts.parquet", "bounds.parquet"):
            (job.folder / name).unlink(missing_ok=True)
        job.options, job.table, job.intervals = options, "", ""
        if job.schema() is not None:
            self.submit(job)
            return
        self.inspect_again(job, options, start=True)

    def inspect_again(self, job: Job, options: dict[str, Any], *, start: bool = False) -> asyncio.Task[Any]:
        """Read the file of a job again, with other options."""
        job.options, job.state, job.message, job.ended = options, "checking", "", 0.0
        self.store.changed(job)
        return self.check_file(job, start=start)

    def is_busy(self, job: Job) -> bool:
        """Return whether a process runs or waits for a job, including the previews after its end."""
        return job.id in self._children or job.id in self._preparing or job in self._later

    def skip_intervals(self, job: Job) -> None:
        """Do not compute the intervals of a job that still wait."""
        if job in self._later:
            self._later.remove(job)

    async def cancel(self, job: Job, reason: str = _CANCELLED) -> None:
        """Remove a job from the queue, or stop its process."""
        self.skip_intervals(job)
        if job in self._waiting:
            self._waiting.remove(job)
            self._end(job, "cancelled", reason)
        child = self._children.get(job.id)
        if child is not None:
            await child.stop(reason)

    async def delete(self, job: Job) -> None:
        """Stop a job and delete all its files, and those of the jobs that use its model."""
        for other in [*self.store.runs(job.id), job]:
            await self.cancel(other, _DELETED)
        if job.id in self.store.jobs:
            hidden = self.store.forget(job)
            await asyncio.to_thread(shutil.rmtree, hidden, ignore_errors=True)

    # ------------------------------------------------------------------ work
    async def _work(self) -> None:
        while True:
            await self._permits.acquire()
            if self._waiting:
                await self._run(self._waiting.popleft())
            elif self._later:  # a cancelled job leaves its permit behind, so both can be empty
                await self._compute_intervals(self._later.popleft())

    async def _run(self, job: Job) -> None:
        job.state, job.started, job.message = "running", time.time(), ""
        self.store.changed(job)
        commands = {"fit": fit_command, "impute": fill_command, "draws": draws_command}
        steps = [inspect_command(job, self.limits)] if job.kind == "impute" else []  # a fit was inspected before
        for command in (*steps, commands[job.kind](job)):
            ending = await self._child(job, command)
            if ending.message:
                break
        state = "done" if not ending.message else "cancelled" if ending.message == _CANCELLED else "failed"
        if state == "done" and job.kind == "fit":
            self._preparing.add(job.id)
        self._end(job, state, _for_client(job, ending.message))
        if job.id in self._preparing:
            await self._prepare(job)

    async def _prepare(self, job: Job) -> None:
        """Prepare the filled cells for display, and schedule their intervals; the job is done without them."""
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

    async def _compute_intervals(self, job: Job) -> None:
        self._preparing.add(job.id)
        try:
            await self._step(job, "intervals", intervals_command(job), bounds_command(job))
            (job.folder / "cells.parquet").unlink(missing_ok=True)
        finally:
            self._preparing.discard(job.id)
            self.store.changed(job)

    async def _step(self, job: Job, part: str, *commands: Sequence[str]) -> bool:
        """Run commands in sequence, and store the state of a part of the job."""
        setattr(job, part, "building")
        self.store.changed(job)
        message = ""
        for command in commands:
            if not message:
                message = _for_client(job, (await self._child(job, command)).message)
        setattr(job, part, message or "ready")
        self.store.changed(job)
        return not message

    async def _child(self, job: Job, command: Sequence[str]) -> Ending:
        """Run one process for a job."""
        if job.id not in self.store.jobs:
            return Ending(1, _DELETED)
        child = Child(command, job.folder, self.limits, self.store.log(job).add)

        def remember(process: dict[str, int]) -> None:
            job.child = process
            self.store.changed(job)

        self._children[job.id] = child
        try:
            ending = await child.run(remember)
        except OSError as error:
            return Ending(1, f"The job could not be started: {error.strerror or error}.")
        finally:
            self._children.pop(job.id, None)
            job.child = {}
            _remove_temporary_files(job)
        job.peak_memory = max(job.peak_memory, ending.peak)
        return ending

    def _end(self, job: Job, state: str, message: str) -> None:
        job.state, job.message, job.ended = state, message, time.time()
        self.endings[job.kind, state] += 1
        if job.started:
            self.seconds[job.kind] = self.seconds.get(job.kind, 0.0) + job.ended - job.started
        self.store.changed(job)

    # ------------------------------------------------------------------ uploads
    def check_file(self, job: Job, *, start: bool) -> asyncio.Task[Any]:
        """Inspect an uploaded file, one at a time, and add its job to the queue if `start` is set."""
        self._checking.add(job.id)
        return self._spawn(self._check_file(job, start=start))

    async def _check_file(self, job: Job, *, start: bool) -> None:
        try:
            async with self._reading:
                message = await self._inspect(job)
        finally:
            self._checking.discard(job.id)
        if message:
            self._end(job, "cancelled" if message == _CANCELLED else "failed", message)
        elif start:  # it had its place in the queue from the start
            self.submit(job)
        else:
            job.state = "ready"
            self.store.changed(job)

    async def _inspect(self, job: Job) -> str:
        """Inspect a file, and return why it cannot be used."""
        ending = await self._child(job, inspect_command(job, self.limits))
        if ending.message:
            return _for_client(job, ending.message)
        try:
            check_names(job.options, job.schema() or {"columns": []})
        except ParameterError as error:
            return str(error)
        return ""

    # ------------------------------------------------------------------ expiry
    async def _sweep(self) -> None:
        """Delete expired jobs."""
        keep = self.limits.keep * 3600
        while True:
            for job in self.store.expired(keep, time.time()):
                await self.delete(job)
            await asyncio.sleep(min(_SWEEP_SECONDS, max(keep / 4, 0.1)))


def _for_client(job: Job, message: str) -> str:
    """Replace the file name on the server by the file name of the client."""
    return message.replace(job.upload.name, job.filename) if job.filename else message


def _is_wide(job: Job) -> bool:
    return len((job.schema() or {"columns": []})["columns"]) > _MAX_INTERVAL_COLUMNS


def _remove_temporary_files(job: Job) -> None:
    """Remove files that a process had not finished when it ended."""
    for path in job.folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)
