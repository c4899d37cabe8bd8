"""All jobs of a server, on disk and in memory."""

from __future__ import annotations

__all__ = ["JobStore"]

import shutil
import time
from pathlib import Path

from mcflow.errors import OutputError
from mcflow.serve.children import end_leftover
from mcflow.serve.events import EventLog
from mcflow.serve.jobs import ENDED, Job

_DELETED = ".deleted-"


class JobStore:
    """All jobs of a server.

    Parameters
    ----------
    folder : Path
        Where their folders are; made when it is not there.

    Raises
    ------
    OutputError
        When it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[str, Job] = {}
        self._logs: dict[str, EventLog] = {}
        try:
            self._models.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise OutputError(f"{folder} cannot be used for jobs: {error.strerror}. Choose another folder.") from error

    @property
    def _models(self) -> Path:
        return self.folder / "models"

    def load(self) -> list[Job]:
        """Read the jobs that an earlier server left, and set right what it could not end.

        Returns
        -------
        list of Job
            Those that were waiting, in their order; they have to be put into the queue again.
        """
        self._sweep()
        folders = [*self._models.iterdir(), *self._models.glob("*/runs/*")]
        for folder in folders:
            job = Job.load(folder)
            if job is None:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                self._take_over(job)
        waiting = [job for job in self.jobs.values() if job.state == "queued"]
        return sorted(waiting, key=lambda job: job.created)

    def _sweep(self) -> None:
        for left in self._models.glob(f"{_DELETED}*"):
            shutil.rmtree(left, ignore_errors=True)

    def _take_over(self, job: Job) -> None:
        """Keep a job; one that was at work when its server died has to be started again."""
        end_leftover(job.child)
        job.child = {}
        if job.state in ("running", "checking"):
            job.state, job.ended = "interrupted", time.time()
            job.message = "The server was stopped while this was at work. Start it again to go on."
        parts = ("table", "intervals") if job.kind == "fit" and job.state == "done" else ()
        for part in parts:
            if getattr(job, part) in ("", "building"):
                setattr(job, part, "The server was stopped while this was being made. Start again to have it.")
        self.jobs[job.id] = job
        job.save()

    def create(self, job: Job) -> None:
        """Keep a new job whose folder is there."""
        job.save()
        self.jobs[job.id] = job

    def new_folder(self, model: str = "") -> Path:
        """Make the folder of a new job, or of one that uses the model of another.

        Parameters
        ----------
        model : str, default=""
            The job that made the model.

        Returns
        -------
        Path
        """
        parent = self._models / model / "runs" if model else self._models
        folder = parent / Job.new_id()
        folder.mkdir(parents=True, mode=0o700)
        return folder

    def models(self) -> list[Job]:
        """Return the jobs that fit, newest first."""
        return sorted((j for j in self.jobs.values() if j.kind == "fit"), key=lambda job: -job.created)

    def runs(self, model: str) -> list[Job]:
        """Return the jobs that use a model, oldest first."""
        return sorted((j for j in self.jobs.values() if j.model == model), key=lambda job: job.created)

    def log(self, job: Job) -> EventLog:
        """Return a job's events."""
        if job.id not in self._logs:
            self._logs[job.id] = EventLog(job.folder / "progress.jsonl")
        return self._logs[job.id]

    def changed(self, job: Job) -> None:
        """Write a job's state and tell who listens; a job that was deleted meanwhile is left alone."""
        if job.id in self.jobs:
            job.save()
            self.log(job).touch()
            if job.model in self.jobs:
                self.log(self.jobs[job.model]).touch()

    def forget(self, job: Job) -> Path:
        """Take a job and what belongs to it out of sight, and return the folder that is to be removed."""
        for other in [*self.runs(job.id), job]:
            self.jobs.pop(other.id, None)
            log = self._logs.pop(other.id, None)
            if log is not None:
                log.touch()
        hidden = self._models / f"{_DELETED}{job.id}"
        job.folder.rename(hidden)
        return hidden

    def expired(self, keep: float, now: float) -> list[Job]:
        """Return the jobs that are older than `keep` seconds and not at work.

        Parameters
        ----------
        keep : float
            Seconds after the end, or after the upload of what was never started.
        now : float
            Seconds since 1970.

        Returns
        -------
        list of Job
        """
        idle = [job for job in self.models() if job.state in (*ENDED, "ready")]
        return [
            job
            for job in idle
            if now - max(job.ended, job.created) > keep
            and all(run.state in ENDED and now - run.ended > keep for run in self.runs(job.id))
        ]
