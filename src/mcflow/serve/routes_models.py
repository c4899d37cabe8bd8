"""Routes of models: upload a file, start, watch, cancel and delete."""

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
from mcflow.serve.commands import check_names, check_schema_text, save_schema_text
from mcflow.serve.dependencies import ERRORS, ModelDep, ServerDep, ServerState
from mcflow.serve.events import event_stream
from mcflow.serve.jobs import Job
from mcflow.serve.schemas import Choices, Model, ModelList, ModelSummary
from mcflow.serve.uploads import ending_of, plain_name, refuse_bad_content, save_upload

#: Seconds that a response waits for an uploaded file to be read, so that an invalid file is rejected at once.
_WAIT_SECONDS = 10.0

router = APIRouter(tags=["models"], responses=ERRORS)


def _choices(
    *,
    preset: Annotated[str, Form(description="default or paper.")] = "default",
    seed: Annotated[int, Form(description="Random seed; the same seed gives the same file.")] = 0,
    max_time: Annotated[float | None, Form(description="Time limit of the fit in seconds.")] = None,
    max_epochs: Annotated[int | None, Form(description="Maximum number of epochs.")] = None,
    kinds: Annotated[str, Form(description='JSON such as {"zip": "category"}.')] = "{}",
    roles: Annotated[str, Form(description='JSON such as {"notes": "ignore"}.')] = "{}",
    columns_file: Annotated[str, Form(description="Text of a schema file, as `mcflow schema` writes it.")] = "",
    na: Annotated[str, Form(description='JSON such as ["-999", "age=-9,99", "auto"].')] = "[]",
    skip_rows: Annotated[int, Form(description="Number of lines above the header.")] = 0,
) -> Choices:
    """Read the options of the fit from the fields of a form."""
    given = {"preset": preset, "seed": seed, "max_time": max_time, "max_epochs": max_epochs}
    given |= {"columns_file": columns_file, "skip_rows": skip_rows}
    try:
        parsed = {"kinds": from_json(kinds), "roles": from_json(roles), "na": from_json(na)}
        return Choices.model_validate(given | parsed)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise HTTPException(422, f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}.") from error
    except ValueError as error:
        raise HTTPException(422, f"kinds, roles and na have to be JSON: {error}.") from error


async def receive_file(server: ServerState, request: Request, file: UploadFile, kind: str, model: str = "") -> Job:
    """Store an uploaded file as a new job, which takes the place in the queue that `Guard` has reserved."""
    name = plain_name(file.filename)
    ending = ending_of(name)
    folder = server.store.new_folder(model)
    job = Job(folder, kind=kind, filename=name, ending=ending, model=model)
    try:
        job.size = await run_in_threadpool(save_upload, file.file, job.upload)
        await run_in_threadpool(refuse_bad_content, job.upload, name, server.limits.max_upload)
        if job.size > server.limits.max_upload:
            raise HTTPException(413, f"The file is larger than {server.limits.max_upload:,} bytes. Send a part of it.")
        server.store.create(job)
        request.scope["mcflow.place"].release()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return job


@router.post("/models", status_code=202, summary="Upload a file and fit on it")
async def _send_file(
    *,
    server: ServerDep,
    request: Request,
    response: Response,
    choices: Annotated[Choices, Depends(_choices)],
    file: Annotated[UploadFile, File(description="CSV, TSV or Parquet; CSV also as .gz or .zst.")],
    start: Annotated[bool, Form(description="Whether to start the fit after the file was read.")] = True,
) -> Model:
    """Store a file, inspect it, and add it to the queue.

    The response is sent when the file was read, or after ten seconds with the state "checking". An invalid file is
    rejected, or its model ends in the state "failed".
    """
    _check_time(server, choices)
    check_schema_text(choices.columns_file)
    job = await receive_file(server, request, file, "fit")
    job.options = choices.model_dump()
    save_schema_text(job)
    checking = server.runner.check_file(job, start=start)
    job.save()
    await asyncio.wait([checking], timeout=_WAIT_SECONDS)
    if job.state == "failed":
        message = job.message
        await server.runner.delete(job)
        raise DataError(message)
    response.headers["Location"] = f"/models/{job.id}"
    return server.model(job)


def _check_time(server: ServerState, choices: Choices) -> None:
    most = server.limits.max_time
    if choices.max_time is not None and choices.max_time > most:
        raise ParameterError(f"max_time is {choices.max_time:g} seconds, and this server allows {most:g}.")


@router.get("/models", summary="All models, newest first")
async def _all_models(server: ServerDep) -> ModelList:
    """Return the state of all models."""
    return ModelList(models=[server.summary(job) for job in server.store.models()])


@router.get("/models/{model}", summary="State of a model")
async def _one_model(server: ServerDep, job: ModelDep) -> Model:
    """Return the state of a model and the content of its file."""
    return server.model(job)


@router.post("/models/{model}/start", status_code=202, summary="Start, or start again")
async def _start_model(
    server: ServerDep,
    job: ModelDep,
    choices: Annotated[Choices | None, Body(description="By default the options of the last start.")] = None,
) -> ModelSummary:
    """Add a model to the queue.

    An interrupted or cancelled fit resumes from its last checkpoint if the options are the same.
    """
    _check_idle(server, job)
    chosen = choices or Choices(**job.options)
    _check_time(server, chosen)
    check_schema_text(chosen.columns_file)
    content = job.schema()
    if content is not None and chosen.skip_rows == job.options.get("skip_rows", 0):
        check_names(chosen.model_dump(), content)
    server.runner.check_room()
    server.runner.restart(job, chosen.model_dump())
    save_schema_text(job)
    return server.summary(job)


def _check_idle(server: ServerState, job: Job) -> None:
    """Respond with 409 unless a model can be started or read again."""
    server.runner.skip_intervals(job)
    if job.state not in ("ready", "done", "failed", "cancelled", "interrupted") or server.runner.is_busy(job):
        doing = "being prepared for display" if job.state == "done" else job.state
        raise HTTPException(409, f"The model is {doing}. Try again when this has ended.")


@router.post("/models/{model}/inspect", status_code=202, summary="Read the file again with other options")
async def _inspect_model(server: ServerDep, job: ModelDep, choices: Choices) -> Model:
    """Read the file with other lines above the header or other missing values, before a fit.

    The response is sent as for an upload. If the file cannot be read with these options, the former ones are kept.
    """
    _check_idle(server, job)
    server.runner.check_room()
    former = job.options, job.state, job.message
    reading = server.runner.inspect_again(job, choices.model_dump())
    await asyncio.wait([reading], timeout=_WAIT_SECONDS)
    if job.state == "failed":
        wrong = job.message
        job.options, job.state, job.message = former
        server.store.changed(job)
        raise DataError(wrong)
    return server.model(job)


@router.post("/models/{model}/cancel", status_code=202, summary="Cancel")
async def _cancel_model(server: ServerDep, job: ModelDep) -> ModelSummary:
    """Remove a model from the queue, or stop its fit. The uploaded file is kept."""
    await server.runner.cancel(job)
    return server.summary(job)


@router.delete("/models/{model}", status_code=204, summary="Delete a model and all its files")
async def _delete_model(server: ServerDep, job: ModelDep) -> None:
    """Stop the fit of a model, and delete the uploaded file and all results."""
    await server.runner.delete(job)


@router.get(
    "/models/{model}/events",
    summary="Progress of a model as server-sent events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Events: state, progress, end."}},
)
async def _watch_model(
    request: Request, server: ServerDep, job: ModelDep, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    """Send past events, then new events, until no more can happen."""
    after = int(last_event_id) if last_event_id and last_event_id.isascii() and last_event_id.isdigit() else 0
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(
        event_stream(server, job, min(after, 2**53)), media_type="text/event-stream", headers=headers
    )
