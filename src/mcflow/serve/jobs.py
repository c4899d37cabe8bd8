"""Jobs of the server: the state, the files and the progress of each in a folder, and the store of all jobs."""

from __future__ import annotations

__all__ = ["ENDED", "INTERRUPTED", "INTERVAL_LEVEL", "EventLog", "Job", "JobStore"]

import asyncio
import contextlib
import json
import math
import os
import secrets
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mcflow.errors import OutputError
from mcflow.files.atomic import write_text

#: States in which a job neither waits nor runs. The others: checking, ready, queued, running.
ENDED = ("done", "failed", "cancelled", "interrupted")
INTERVAL_LEVEL = 0.9  #: Level of the intervals on the page.
#: Message of a job that ran when the server stopped.
INTERRUPTED = "The server was stopped while this job was running. Start the job again to resume it."
_DELETED = ".deleted-"  #: Prefix of the folders of deleted jobs.
_MAX_EVENTS = 600  #: Maximum number of events in memory; above it, every second epoch of the older half is dropped.
_MEASURE_SECONDS = 5.0  #: Seconds for which the measured size of all files is used.


@dataclass
class Job:
    """Uploaded file and what is done with it."""

    folder: Path  # folder of all its files
    # "fit": fit on the file and fill it; "impute": fill it with a model; "draws": draw the file of a model
    kind: str = "fit"
    filename: str = ""  # file name on the client
    ending: str = ".csv"  # extension of the file, one of `mcflow.files.tables.FORMATS`
    size: int = 0  # size of the file in bytes
    model: str = ""  # for "impute" and "draws", the id of the job of the model
    options: dict[str, Any] = field(default_factory=dict)  # options that the client has set
    # "checking": the file is being read; "ready": it was read and can be started; "queued", "running" or one of `ENDED`
    state: str = "checking"
    message: str = ""  # why it failed or was stopped
    table: str = ""  # preview of the filled cells: "", "building", "ready" or an error message
    intervals: str = ""  # preview of their intervals, likewise
    created: float = field(default_factory=time.time)  # seconds since 1970
    started: float = 0.0  # likewise; 0 before the start
    ended: float = 0.0  # likewise; 0 before the end
    peak_memory: int = 0  # peak memory of its processes in bytes

    @property
    def id(self) -> str:
        """Name of its folder."""
        return self.folder.name

    @property
    def has_ended(self) -> bool:
        """Whether it neither waits nor runs."""
        return self.state in ENDED

    @property
    def upload(self) -> Path:
        """Uploaded file."""
        return self.folder / f"upload{self.ending}"

    @property
    def output(self) -> Path:
        """Output file."""
        return self.folder / f"{'draws' if self.kind == 'draws' else 'filled'}{self.ending}"

    @property
    def stem(self) -> str:
        """File name on the client without its extension."""
        return self.filename[: len(self.filename) - len(self.ending)] or "table"

    @property
    def output_name(self) -> str:
        """File name of the output on the client."""
        return f"{self.stem}_{'draws' if self.kind == 'draws' else 'filled'}{self.ending}"

    def schema(self) -> dict[str, Any] | None:
        """Return the content of the file; None before it was read."""
        try:
            return dict(json.loads((self.folder / "schema.json").read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None

    def save(self) -> None:
        """Write the state atomically."""
        state = asdict(self)
        del state["folder"]
        write_text(self.folder / "state.json", json.dumps(state))

    @classmethod
    def load(cls, folder: Path) -> Job | None:
        """Read a job from its folder; return None if it is incomplete."""
        try:
            state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            state.pop("child", None)  # written by earlier versions
            return cls(folder=folder, **state)
        except (OSError, ValueError, TypeError, AttributeError):
            return None


class EventLog:
    """Progress events of a job."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0  #: Number of changes of the state of the job.
        self.news = asyncio.Event()  #: Set at the next event or change, and then replaced by a new one.
        self._events: list[tuple[int, dict[str, Any]]] = []
        self._count = 0
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            with contextlib.suppress(ValueError):  # an incomplete line of a server that was killed
                self._keep(json.loads(line))

    def add(self, event: dict[str, Any]) -> None:
        """Store an event and notify listeners."""
        self._keep(event)
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as file:  # it may have been deleted
            file.write(json.dumps(event) + "\n")
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
            older = enumerate(self._events[:half])
            old = [one for k, one in older if k % 2 or one[1].get("event") not in ("epoch", "part")]
            self._events = old + self._events[half:]

    def _notify(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()


class JobStore:
    """All jobs of a server, on disk and in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._models = folder, folder / "models"
        self.jobs: dict[str, Job] = {}
        self._logs: dict[str, EventLog] = {}
        self._measured = (-math.inf, 0)
        try:
            self._models.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise OutputError(f"{folder} cannot be used for jobs: {error.strerror}. Choose another folder.") from error

    def load(self) -> list[Job]:
        """Read the jobs of an earlier server, mark interrupted ones, and return those that are queued."""
        for left in self._models.glob(f"{_DELETED}*"):
            shutil.rmtree(left, ignore_errors=True)
        folders = [*self._models.iterdir(), *self._models.glob("*/runs/*")]
        for folder in folders:
            job = Job.load(folder)
            if job is None:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                self._take_over(job)
        waiting = [job for job in self.jobs.values() if job.state == "queued"]
        return sorted(waiting, key=lambda job: job.created)

    def _take_over(self, job: Job) -> None:
        """Add a job of an earlier server, and mark what that server could not finish."""
        if job.state in ("running", "checking"):
            job.state, job.ended, job.message = "interrupted", time.time(), INTERRUPTED
        parts = ("table", "intervals") if job.kind == "fit" and job.state == "done" else ()
        for part in parts:
            if getattr(job, part) in ("", "building"):
                setattr(job, part, "The server was stopped before this was computed. Start the job again.")
        self.jobs[job.id] = job
        job.save()

    def create(self, job: Job) -> None:
        """Add a new job whose folder exists."""
        job.save()
        self.jobs[job.id] = job

    def new_folder(self, model: str = "") -> Path:
        """Create the folder of a new job, or of a job that uses a model."""
        parent = self._models / model / "runs" if model else self._models
        folder = parent / secrets.token_hex(8)  # cannot be guessed
        folder.mkdir(parents=True, mode=0o700)
        return folder

    def models(self) -> list[Job]:
        """Return the jobs that fit, newest first."""
        return sorted((j for j in self.jobs.values() if j.kind == "fit"), key=lambda job: -job.created)

    def runs(self, model: str) -> list[Job]:
        """Return the jobs that use a model, oldest first."""
        return sorted((j for j in self.jobs.values() if j.model == model), key=lambda job: job.created)

    def log(self, job: Job) -> EventLog:
        """Return the events of a job."""
        if job.id not in self._logs:
            self._logs[job.id] = EventLog(job.folder / "progress.jsonl")
        return self._logs[job.id]

    def changed(self, job: Job) -> None:
        """Write the state of a job and notify listeners, unless it has been deleted."""
        if job.id in self.jobs:
            job.save()
            self.log(job).touch()
            if job.model in self.jobs:
                self.log(self.jobs[job.model]).touch()

    def forget(self, job: Job) -> Path:
        """Remove a job and the jobs that use its model, and return the renamed folder to delete."""
        for other in [*self.runs(job.id), job]:
            self.jobs.pop(other.id, None)
            log = self._logs.pop(other.id, None)
            if log is not None:
                log.touch()
        hidden = self._models / f"{_DELETED}{job.id}"
        job.folder.rename(hidden)
        return hidden

    def disk_bytes(self) -> int:
        """Return the size of all files, which is measured at most every few seconds."""
        when, size = self._measured
        if time.monotonic() - when > _MEASURE_SECONDS:
            size = 0
            for folder, _, names in os.walk(self.folder):
                for name in names:
                    with contextlib.suppress(OSError):  # deleted in the meantime
                        size += (Path(folder) / name).stat().st_size
            self._measured = time.monotonic(), size
        return size

    def expired(self, keep: float, now: float) -> list[Job]:
        """Return the jobs that are older than `keep` seconds and neither wait nor run."""
        idle = [job for job in self.models() if job.has_ended or job.state == "ready"]
        old = [job for job in idle if now - max(job.ended, job.created) > keep]
        return [job for job in old if all(run.has_ended and now - run.ended > keep for run in self.runs(job.id))]
