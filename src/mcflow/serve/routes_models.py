"""Routes about models: send a file, start, watch, cancel, delete."""

from __future__ import annotations

__all__ = ["receive_file", "router"]

import asyncio
import shutil
from typing import Annotated

from fastapi import APIRouter, Body, Depends, File, Form, Header, HTTPException, Request, Response, UploadFile
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from pydantic_core import from_json
from starlette.concurrency import run_in_threadpool

from mcflow.errors import DataError, ParameterError
from mcflow.serve.answers import Choices, Model, ModelList, ModelSummary
from mcflow.serve.commands import check_names
from mcflow.serve.jobs import Job
from mcflow.serve.surroundings import ERRORS, Surroundings, model_named, surroundings
from mcflow.serve.uploads import ending_of, plain_name, refuse_bad_content, save_upload
from mcflow.serve.watching import watch

#: Seconds that an answer waits for a file to be read, so that a wrong file is refused at once.
_WAIT = 10.0

router = APIRouter(tags=["models"], responses=ERRORS)

Parts = Annotated[Surroundings, Depends(surroundings)]
ModelJob = Annotated[Job, Depends(model_named)]


def _choices(
    *,
    preset: Annotated[str, Form(description="default or paper.")] = "default",
    seed: Annotated[int, Form(description="The same seed gives the same file.")] = 0,
    max_time: Annotated[float | None, Form(description="Seconds that the fit may take.")] = None,
    max_epochs: Annotated[int | None, Form(description="Passes over the rows, at most.")] = None,
    kinds: Annotated[str, Form(description='JSON such as {"zip": "category"}.')] = "{}",
    roles: Annotated[str, Form(description='JSON such as {"notes": "ignore"}.')] = "{}",
) -> Choices:
    """Read the choices from the fields of a form."""
    given = {"preset": preset, "seed": seed, "max_time": max_time, "max_epochs": max_epochs}
    try:
        return Choices.model_validate(given | {"kinds": from_json(kinds), "roles": from_json(roles)})
    except ValidationError as error:
        wrong = error.errors()[0]
        raise HTTPException(422, f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}.") from error
    except ValueError as error:
        raise HTTPException(422, f"kinds and roles have to be JSON: {error}.") from error


async def receive_file(parts: Surroundings, file: UploadFile, kind: str, model: str = "") -> Job:
    """Keep a file that was sent, as a new job.

    Parameters
    ----------
    parts : Surroundings
        Of the server.
    file : UploadFile
        What was sent.
    kind : str
        Of the job.
    model : str, default=""
        Whose model it is to use.

    Returns
    -------
    Job

    Raises
    ------
    DataError
        When the file cannot be a table; nothing of it is kept then.
    """
    name = plain_name(file.filename)
    ending = ending_of(name)
    folder = parts.store.new_folder(model)
    job = Job(folder, kind=kind, filename=name, ending=ending, model=model)
    try:
        job.size = await run_in_threadpool(save_upload, file.file, job.upload)
        await run_in_threadpool(refuse_bad_content, job.upload, name, parts.limits.max_upload)
        if job.size > parts.limits.max_upload:
            raise HTTPException(413, f"The file is larger than {parts.limits.max_upload:,} bytes. Send a part of it.")
        parts.store.create(job)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return job


@router.post("/models", status_code=202, summary="Send a file, and fit on it")
async def _send_file(
    parts: Parts,
    response: Response,
    choices: Annotated[Choices, Depends(_choices)],
    file: Annotated[UploadFile, File(description="CSV, TSV or Parquet; CSV also as .gz or .zst.")],
    start: Annotated[bool, Form(description="Whether to start when the file was read.")] = True,
) -> Model:
    """Keep a file, read it, and put it into the queue.

    The answer comes when the file was read, or after ten seconds with the state "checking". A file that cannot be read
    is refused, or its model ends in the state "failed".
    """
    _check_time(parts, choices)
    parts.runner.check_room()
    job = await receive_file(parts, file, "fit")
    job.options = choices.model_dump()
    job.save()
    checking = parts.runner.check_file(job, start=start)
    await asyncio.wait([checking], timeout=_WAIT)
    if job.state == "failed":
        message = job.message
        await parts.runner.delete(job)
        raise DataError(message)
    response.headers["Location"] = f"/models/{job.id}"
    return parts.model(job)


def _check_time(parts: Surroundings, choices: Choices) -> None:
    most = parts.limits.max_time
    if choices.max_time is not None and choices.max_time > most:
        raise ParameterError(f"max_time is {choices.max_time:g} seconds, and this server allows {most:g}.")


@router.get("/models", summary="All models, newest first")
async def _all_models(parts: Parts) -> ModelList:
    """Return how it stands with all models."""
    return ModelList(models=[parts.summary(job) for job in parts.store.models()])


@router.get("/models/{model}", summary="How it stands with a model")
async def _one_model(parts: Parts, job: ModelJob) -> Model:
    """Return how it stands with a model, and what is in its file."""
    return parts.model(job)


@router.post("/models/{model}/start", status_code=202, summary="Start, or start again")
async def _start_model(
    parts: Parts, job: ModelJob, choices: Annotated[Choices | None, Body(description="As before when left out.")] = None
) -> ModelSummary:
    """Put a model into the queue.

    One that was interrupted or cancelled goes on where it was, unless the choices are others.
    """
    parts.runner.forgo(job)
    if job.state not in ("ready", "done", "failed", "cancelled", "interrupted") or parts.runner.is_busy(job):
        doing = "being made ready to be looked at" if job.state == "done" else job.state
        raise HTTPException(409, f"It is {doing}, so it cannot be started now.")
    chosen = choices or Choices(**job.options)
    _check_time(parts, chosen)
    content = job.schema()
    if content is not None:
        check_names(chosen.model_dump(), content)
    parts.runner.check_room()
    parts.runner.restart(job, chosen.model_dump())
    return parts.summary(job)


@router.post("/models/{model}/cancel", status_code=202, summary="Cancel")
async def _cancel_model(parts: Parts, job: ModelJob) -> ModelSummary:
    """Take a model out of the queue, or end its fit. What was sent is kept."""
    await parts.runner.cancel(job)
    return parts.summary(job)


@router.delete("/models/{model}", status_code=204, summary="Delete a model and all its files")
async def _delete_model(parts: Parts, job: ModelJob) -> None:
    """End a model's fit and remove all that was sent and made."""
    await parts.runner.delete(job)


@router.get(
    "/models/{model}/events",
    summary="Watch a model: server-sent events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Events: state, progress, end."}},
)
async def _watch_model(
    request: Request, parts: Parts, job: ModelJob, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    """Send what happened so far, then what happens, until nothing more can."""
    after = int(last_event_id) if last_event_id and last_event_id.isascii() and last_event_id.isdigit() else 0
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(watch(parts, job, min(after, 2**53)), media_type="text/event-stream", headers=headers)
