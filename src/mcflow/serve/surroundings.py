"""What routes share: the server's parts, jobs by their names, and jobs in words."""

from __future__ import annotations

__all__ = ["ERRORS", "Surroundings", "model_named", "run_named", "surroundings"]

from collections import Counter
from dataclasses import dataclass
from typing import Any

from fastapi import HTTPException, Request

from mcflow.serve.answers import Choices, Content, Failure, Model, ModelSummary, Part, Run
from mcflow.serve.jobs import ENDED, Job
from mcflow.serve.limits import Limits
from mcflow.serve.runner import Runner
from mcflow.serve.store import JobStore

#: Errors that any route may answer with, for the description of the interface.
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": Failure, "description": "The request cannot be read."},
    401: {"model": Failure, "description": "The token is missing or not right."},
    403: {"model": Failure, "description": "The request comes from a page of another site."},
    404: {"model": Failure, "description": "There is no such thing."},
    409: {"model": Failure, "description": "Not in this state."},
    413: {"model": Failure, "description": "More than the server takes."},
    421: {"model": Failure, "description": "The server does not answer to this name."},
    422: {"model": Failure, "description": "Something that was sent cannot be used."},
    503: {"model": Failure, "description": "As many jobs wait as the server allows."},
}


@dataclass(frozen=True)
class Surroundings:
    """The parts of a server.

    Parameters
    ----------
    store : JobStore
        Its jobs.
    runner : Runner
        What runs them.
    limits : Limits
        What it allows.
    token : str
        What clients have to know; empty for none.
    statuses : Counter
        Number of answers by their status.
    """

    store: JobStore
    runner: Runner
    limits: Limits
    token: str
    statuses: Counter[int]

    def summary(self, job: Job) -> ModelSummary:
        """Return how it stands with a model."""
        return ModelSummary(**self._summary(job))

    def model(self, job: Job) -> Model:
        """Return how it stands with a model, and what is in its file."""
        found = job.schema()
        content = None if found is None else Content(**found)
        return Model(**self._summary(job), content=content)

    def _summary(self, job: Job) -> dict[str, Any]:
        resting = job.state in (*ENDED, "ready")
        return {
            "id": job.id,
            "filename": job.filename,
            "size": job.size,
            "state": job.state,
            "message": job.message,
            "position": self.runner.position(job),
            "created": job.created,
            "started": job.started or None,
            "ended": job.ended or None,
            "expires": max(job.ended, job.created) + self.limits.keep * 3600 if resting else None,
            "options": Choices(**job.options),
            "progress": self.store.log(job).latest,
            "table": Part.of(job.table),
            "intervals": Part.of(job.intervals),
            "peak_memory": job.peak_memory,
            "runs": [self.run(run) for run in self.store.runs(job.id)],
        }

    def run(self, job: Job) -> Run:
        """Return how it stands with a job that uses a model."""
        said: dict[str, Any] = {
            "id": job.id,
            "kind": job.kind,
            "filename": job.output_name,
            "state": job.state,
            "message": job.message,
            "position": self.runner.position(job),
            "created": job.created,
            "ended": job.ended or None,
            "options": job.options,
        }
        return Run(**said)


def surroundings(request: Request) -> Surroundings:
    """Return the parts of the server that a request was sent to."""
    found: Surroundings = request.app.state.surroundings
    return found


def model_named(request: Request, model: str) -> Job:
    """Return the job of a model, or answer that there is none."""
    job = surroundings(request).store.jobs.get(model)
    if job is None or job.kind != "fit":
        raise HTTPException(404, f"There is no model {model[:40]!r}. It may have been deleted.")
    return job


def run_named(request: Request, model: str, run: str) -> Job:
    """Return a job that uses a model, or answer that there is none."""
    job = surroundings(request).store.jobs.get(run)
    if job is None or job.model != model:
        raise HTTPException(404, f"There is no run {run[:40]!r} of model {model[:40]!r}. It may have been deleted.")
    return job
