"""Dependencies of the routes: the state of the server, and jobs by their ids."""

from __future__ import annotations

__all__ = ["ERRORS", "ModelDep", "RunDep", "ServerDep", "ServerState"]

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request

from mcflow.serve.jobs import ENDED, Job, JobStore
from mcflow.serve.limits import Limits
from mcflow.serve.runner import Runner
from mcflow.serve.schemas import Choices, Content, Failure, Model, ModelSummary, Part, Run

#: Error responses of all routes, for the OpenAPI description.
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": Failure, "description": "The request cannot be read."},
    401: {"model": Failure, "description": "The token is missing or wrong."},
    403: {"model": Failure, "description": "The request comes from another origin."},
    404: {"model": Failure, "description": "Not found."},
    408: {"model": Failure, "description": "The request arrived too slowly."},
    409: {"model": Failure, "description": "Not possible in the current state."},
    413: {"model": Failure, "description": "Larger than the server accepts."},
    421: {"model": Failure, "description": "The server does not accept this host name."},
    422: {"model": Failure, "description": "The request or the file is invalid."},
    429: {"model": Failure, "description": "The queue is full."},
    507: {"model": Failure, "description": "No more files may be kept."},
}


@dataclass(frozen=True)
class ServerState:
    """State of a running server."""

    store: JobStore  # all jobs
    runner: Runner  # runs the jobs
    limits: Limits  # limits of the server
    token: str  # token that clients must send; empty for none
    statuses: Counter[int]  # number of responses by status code

    def summary(self, job: Job) -> ModelSummary:
        """Return the state of a model."""
        return ModelSummary(**self._summary(job))

    def model(self, job: Job) -> Model:
        """Return the state of a model and the content of its file."""
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
        """Return the state of a job that uses a model."""
        state: dict[str, Any] = {
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
        return Run(**state)


def _server(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


def _model(request: Request, model: str) -> Job:
    """Return the job of a model, or respond with 404."""
    job = _server(request).store.jobs.get(model)
    if job is None or job.kind != "fit":
        raise HTTPException(404, f"There is no model {model[:40]!r}. It may have been deleted.")
    return job


def _run(request: Request, model: str, run: str) -> Job:
    """Return a job that uses a model, or respond with 404."""
    job = _server(request).store.jobs.get(run)
    if job is None or job.model != model:
        raise HTTPException(404, f"There is no run {run[:40]!r} of model {model[:40]!r}. It may have been deleted.")
    return job


#: State of the server that a request was sent to.
ServerDep = Annotated[ServerState, Depends(_server)]
#: Job of the model that a path names.
ModelDep = Annotated[Job, Depends(_model)]
#: Job of the run that a path names.
RunDep = Annotated[Job, Depends(_run)]
