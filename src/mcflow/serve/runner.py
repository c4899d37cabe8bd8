"""Queue of jobs: they start in the order of arrival, and a limited number of them runs at the same time."""

from __future__ import annotations

__all__ = ["QueueFullError", "QuotaError", "Runner"]

import asyncio
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from mcflow.errors import McflowError, ParameterError
from mcflow.serve import commands
from mcflow.serve.children import Child
from mcflow.serve.jobs import INTERRUPTED, Job, JobStore
from mcflow.serve.limits import Limits, size_in_words

_SWEEP_SECONDS = 60.0  #: Maximum number of seconds between two searches for expired jobs.
_CANCELLED = "The job was cancelled."
_DELETED = "The job was deleted."
_MAX_INTERVAL_COLUMNS = 1_000  #: Most columns for intervals, whose cost grows with the square of the columns.
_TOO_WIDE = (
    f"They are not computed for more than {_MAX_INTERVAL_COLUMNS:,} columns. Download the model and run "
    "mcflow impute --model model.mcflow --interval 0.9."
)


class QueueFullError(McflowError, RuntimeError):
    """The queue is full."""


class QuotaError(McflowError, RuntimeError):
    """The files that are kept take all the room that they may."""


class Runner:
    """Runs the jobs of a store in one event loop, without locks."""

    def __init__(self, store: JobStore, limits: Limits) -> None:
        self.store, self.limits = store, limits
        self.endings: Counter[tuple[str, str]] = Counter()  #: Number of ended jobs by kind and state.
        self.seconds: dict[str, float] = {}  #: Seconds that jobs ran, by kind.
        self._waiting: deque[Job] = deque()
        self._arriving: set[object] = set()
        self._checking: set[str] = set()
        self._later: deque[Job] = deque()  #: Jobs whose intervals are computed when the queue is empty.
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

    @property
    def waiting(self) -> int:
        """Number of queued jobs."""
        return len(self._waiting)

    @property
    def pending(self) -> int:
        """Number of jobs that arrive, are inspected or are queued."""
        return len(self._arriving) + len(self._checking) + len(self._waiting)

    def position(self, job: Job) -> int | None:
        """Return the number of jobs ahead in the queue; None if the job is not queued."""
        return self._waiting.index(job) if job in self._waiting else None

    def check_room(self) -> None:
        """Raise `QueueFullError` if the queue is full, and `QuotaError` if no more files may be kept."""
        if self.pending >= self.limits.max_queue:
            raise QueueFullError(
                f"The queue is full: {self.pending} jobs arrive, are inspected or wait. Try again in a few minutes."
            )
        kept, used = len(self.store.jobs) + len(self._arriving), self.store.disk_bytes()
        if kept >= self.limits.max_kept or used >= self.limits.max_disk:
            raise QuotaError(
                f"This server keeps {kept:,} jobs with {size_in_words(used)}, and may keep {self.limits.max_kept:,} "
                f"with {size_in_words(self.limits.max_disk)}. Delete some, or wait until they expire."
            )

    def reserve(self) -> Callable[[], None]:
        """Reserve a place in the queue for a file that arrives, and return what frees it or gives it to the job."""
        self.check_room()
        place = object()
        self._arriving.add(place)
        return lambda: self._arriving.discard(place)

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

    async def _work(self) -> None:
        while True:
            await self._permits.acquire()
            if self._waiting:
                await self._run(self._waiting.popleft())
            elif self._later:  # a cancelled job leaves its permit behind, so both can be empty
                job = self._later.popleft()
                steps = commands.intervals_command(job), commands.preview_command(job, "bounds")
                await self._build(job, "intervals", *steps)
                (job.folder / "cells.parquet").unlink(missing_ok=True)

    async def _run(self, job: Job) -> None:
        job.state, job.started, job.message = "running", time.time(), ""
        self.store.changed(job)
        builders = {"fit": commands.fit_command, "impute": commands.fill_command, "draws": commands.draws_command}
        before = [commands.inspect_command(job, self.limits)] if job.kind == "impute" else []  # a fit was inspected
        message = await self._call(job, *before, builders[job.kind](job))
        state = "done" if not message else "cancelled" if message == _CANCELLED else "failed"
        self._end(job, state, message)
        if state == "done" and job.kind == "fit":
            await self._prepare(job)

    async def _prepare(self, job: Job) -> None:
        """Prepare the filled cells for display, and schedule their intervals; the job is done without them."""
        shown = await self._build(job, "table", commands.preview_command(job, "texts"))
        shutil.rmtree(job.folder / "checkpoint", ignore_errors=True)
        columns = (job.schema() or {"columns": []})["columns"]
        if shown and len(columns) > _MAX_INTERVAL_COLUMNS:
            job.intervals = _TOO_WIDE
            self.store.changed(job)
        elif shown and job.id in self.store.jobs:
            self._later.append(job)
            self._permits.release()

    async def _build(self, job: Job, part: str, *steps: Sequence[str]) -> bool:
        """Build a part of the result of a job, and store its state."""
        self._preparing.add(job.id)
        setattr(job, part, "building")
        self.store.changed(job)
        try:
            message = await self._call(job, *steps)
            setattr(job, part, message or "ready")
        finally:
            self._preparing.discard(job.id)
            self.store.changed(job)
        return not message

    async def _call(self, job: Job, *steps: Sequence[str]) -> str:
        """Run processes for a job in sequence, until one fails; return its error with the client's name of the file."""
        for command in steps:
            message = await self._child(job, command)
            if message:
                return message.replace(job.upload.name, job.filename) if job.filename else message
        return ""

    async def _child(self, job: Job, command: Sequence[str]) -> str:
        if job.id not in self.store.jobs:
            return _DELETED
        child = self._children[job.id] = Child(command, job.folder, self.limits, self.store.log(job).add)
        try:
            return await child.run()
        except OSError as error:
            return f"The job could not be started: {error.strerror or error}."
        finally:
            self._children.pop(job.id, None)
            job.peak_memory = max(job.peak_memory, child.peak)
            for unfinished in job.folder.glob(".*.tmp"):
                unfinished.unlink(missing_ok=True)

    def _end(self, job: Job, state: str, message: str) -> None:
        job.state, job.message, job.ended = state, message, time.time()
        self.endings[job.kind, state] += 1
        if job.started:
            self.seconds[job.kind] = self.seconds.get(job.kind, 0.0) + job.ended - job.started
        self.store.changed(job)

    def check_file(self, job: Job, *, start: bool) -> asyncio.Task[Any]:
        """Inspect an uploaded file, one at a time, and add its job to the queue if `start` is set."""
        self._checking.add(job.id)
        return self._spawn(self._check_file(job, start=start))

    async def _check_file(self, job: Job, *, start: bool) -> None:
        try:
            async with self._reading:
                message = await self._call(job, commands.inspect_command(job, self.limits))
            if not message:
                commands.check_names(job.options, job.schema() or {"columns": []})
        except ParameterError as error:
            message = str(error)
        finally:
            self._checking.discard(job.id)
        if message:
            self._end(job, "cancelled" if message == _CANCELLED else "failed", message)
        elif start:  # it had its place in the queue from the start
            self.submit(job)
        else:
            job.state = "ready"
            self.store.changed(job)

    async def _sweep(self) -> None:
        keep = self.limits.keep * 3600
        while True:
            for job in self.store.expired(keep, time.time()):
                await self.delete(job)
            await asyncio.sleep(min(_SWEEP_SECONDS, max(keep / 4, 0.1)))
