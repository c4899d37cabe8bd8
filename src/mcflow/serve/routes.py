"""Routes of the HTTP API: the server itself, models that are fitted on uploaded files, and their results."""

from __future__ import annotations

__all__ = ["PAGE", "ROUTERS", "ServerState", "metrics_text"]

import asyncio
import contextlib
import json
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Body, Depends, File, Form, Header, HTTPException, Query, Request, Response, UploadFile
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from pydantic import ValidationError
from pydantic_core import from_json
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool

import mcflow
from mcflow.columns.planning import USER_KINDS
from mcflow.columns.schema import ROLES
from mcflow.errors import DataError, ParameterError
from mcflow.files.tables import FORMATS
from mcflow.serve import schemas
from mcflow.serve.children import memory_of
from mcflow.serve.commands import check_names, check_schema_text, save_schema_text
from mcflow.serve.guard import COOKIE, cookie_value, is_same
from mcflow.serve.jobs import ENDED, INTERVAL_LEVEL, Job, JobStore
from mcflow.serve.limits import Limits
from mcflow.serve.preview import next_filled, read_rows, read_summary
from mcflow.serve.runner import Runner
from mcflow.serve.uploads import ending_of, plain_name, refuse_bad_content, save_upload

PAGE = Path(__file__).parent / "page"  #: Folder of the web page.
_WAIT_SECONDS = 10.0  #: Seconds that a response waits for a file to be read, so that an invalid one is rejected.
_KEEP_ALIVE = 15.0  #: Seconds of silence after which a comment is sent, so that proxies keep the connection open.
#: Policy of a report, which has no access to the page and loads nothing.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; font-src data:; "
    "sandbox allow-scripts allow-popups; frame-ancestors 'self'"
)
_Responses = dict[int | str, dict[str, Any]]
#: Error responses of all routes, for the OpenAPI description.
_ERRORS: _Responses = {
    400: {"model": schemas.Failure, "description": "The request cannot be read."},
    401: {"model": schemas.Failure, "description": "The token is missing or wrong."},
    403: {"model": schemas.Failure, "description": "The request comes from another origin."},
    404: {"model": schemas.Failure, "description": "Not found."},
    408: {"model": schemas.Failure, "description": "The request arrived too slowly."},
    409: {"model": schemas.Failure, "description": "Not possible in the current state."},
    413: {"model": schemas.Failure, "description": "Larger than the server accepts."},
    421: {"model": schemas.Failure, "description": "The server does not accept this host name."},
    422: {"model": schemas.Failure, "description": "The request or the file is invalid."},
    429: {"model": schemas.Failure, "description": "The queue is full."},
    507: {"model": schemas.Failure, "description": "No more files may be kept."},
}
_BYTES: _Responses = {200: {"content": {"application/octet-stream": {}}, "description": "The file."}}

_server_routes = APIRouter(tags=["server"], responses={code: _ERRORS[code] for code in (400, 401, 403, 413, 421, 422)})
_model_routes = APIRouter(tags=["models"], responses=_ERRORS)
_result_routes = APIRouter(tags=["results"], responses=_ERRORS)
ROUTERS = (_server_routes, _model_routes, _result_routes)  #: All routes of the API.


@dataclass(frozen=True)
class ServerState:
    """State of a running server."""

    store: JobStore  # all jobs
    runner: Runner  # runs the jobs
    limits: Limits  # limits of the server
    token: str  # token that clients must send; empty for none
    statuses: Counter[int]  # number of responses by status code

    def summary(self, job: Job) -> schemas.ModelSummary:
        """Return the state of a model."""
        return schemas.ModelSummary(**self._summary(job))

    def model(self, job: Job) -> schemas.Model:
        """Return the state of a model and the content of its file."""
        found = job.schema()
        return schemas.Model(**self._summary(job), content=None if found is None else schemas.Content(**found))

    def _summary(self, job: Job) -> dict[str, Any]:
        resting = job.state in (*ENDED, "ready")
        return vars(job) | {
            "id": job.id,
            "position": self.runner.position(job),
            "started": job.started or None,
            "ended": job.ended or None,
            "expires": max(job.ended, job.created) + self.limits.keep * 3600 if resting else None,
            "options": schemas.Choices(**job.options),
            "progress": self.store.log(job).latest,
            "table": schemas.Part.of(job.table),
            "intervals": schemas.Part.of(job.intervals),
            "runs": [self.run(run) for run in self.store.runs(job.id)],
        }

    def run(self, job: Job) -> schemas.Run:
        """Return the state of a job that uses a model."""
        own = {"id": job.id, "filename": job.output_name, "ended": job.ended or None}
        return schemas.Run(**vars(job) | own | {"position": self.runner.position(job)})


def _server(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


ServerDep = Annotated[ServerState, Depends(_server)]


def _model(server: ServerDep, model: str) -> Job:
    """Return the job of the model that a path names, or respond with 404."""
    job = server.store.jobs.get(model)
    if job is None or job.kind != "fit":
        raise HTTPException(404, f"There is no model {model[:40]!r}. It may have been deleted.")
    return job


def _run(server: ServerDep, model: str, run: str) -> Job:
    """Return the job of the run that a path names, or respond with 404."""
    job = server.store.jobs.get(run)
    if job is None or job.model != model:
        raise HTTPException(404, f"There is no run {run[:40]!r} of model {model[:40]!r}. It may have been deleted.")
    return job


ModelDep = Annotated[Job, Depends(_model)]
RunDep = Annotated[Job, Depends(_run)]


@_server_routes.get("/", include_in_schema=False)
def _page() -> FileResponse:
    """Return the page."""
    return FileResponse(PAGE / "index.html", media_type="text/html")


@_server_routes.get("/health", summary="Health of the server")
async def _health(server: ServerDep) -> schemas.Health:
    """Return the health and the load of the server."""
    running = sum(job.state == "running" for job in server.store.jobs.values())
    return schemas.Health(status="ok", version=mcflow.__version__, running=running, queued=server.runner.waiting)


@_server_routes.get("/about", summary="Limits and options of the server")
async def _about(server: ServerDep, request: Request) -> schemas.About:
    """Return the limits, and the kinds and roles of columns."""
    known = not server.token or is_same(request.cookies.get(COOKIE, ""), cookie_value(server.token))
    return schemas.About(
        version=mcflow.__version__,
        token=bool(server.token),
        known=known,
        level=INTERVAL_LEVEL,
        kinds=list(USER_KINDS),
        roles=list(ROLES),
        endings=list(FORMATS),
        limits=server.limits,
    )


@_server_routes.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,  # errors are JSON
    responses={200: {"content": {"text/plain": {}}, "description": "Text format of Prometheus."}},
)
async def _metrics(server: ServerDep) -> PlainTextResponse:
    """Return the metrics of the server."""
    text = metrics_text(server.runner, server.statuses)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def metrics_text(runner: Runner, statuses: Mapping[int, int]) -> str:
    """Return the metrics of the server in the text format of Prometheus."""
    states = Counter(job.state for job in runner.store.jobs.values())
    endings = [(f'kind="{kind}",state="{state}"', count) for (kind, state), count in sorted(runner.endings.items())]
    families: list[tuple[str, str, str, Iterable[tuple[str, float]]]] = [
        ("mcflow_info", "gauge", "Version of mcflow.", [(f'version="{mcflow.__version__}"', 1)]),
        ("mcflow_jobs", "gauge", "Jobs by state.", [(f'state="{s}"', states[s]) for s in get_args(schemas.State)]),
        ("mcflow_queue_length", "gauge", "Queued jobs.", [("", runner.waiting)]),
        ("mcflow_pending_jobs", "gauge", "Jobs that arrive, are inspected or are queued.", [("", runner.pending)]),
        ("mcflow_pending_limit", "gauge", "Most of them.", [("", runner.limits.max_queue)]),
        ("mcflow_kept_jobs", "gauge", "Jobs whose files are kept.", [("", len(runner.store.jobs))]),
        ("mcflow_kept_limit", "gauge", "Most of them.", [("", runner.limits.max_kept)]),
        ("mcflow_disk_bytes", "gauge", "Size of all kept files.", [("", runner.store.disk_bytes())]),
        ("mcflow_disk_limit_bytes", "gauge", "Size at which new files are refused.", [("", runner.limits.max_disk)]),
        ("mcflow_jobs_ended_total", "counter", "Ended jobs.", endings),
        ("mcflow_job_seconds_total", "counter", "Run time of jobs in seconds.", _labelled("kind", runner.seconds)),
        ("mcflow_http_answers_total", "counter", "HTTP responses by status.", _labelled("status", statuses)),
        ("mcflow_server_memory_bytes", "gauge", "Memory of the server.", [("", memory_of(os.getpid()))]),
    ]
    return "".join(_family(*family) for family in families)


def _labelled(label: str, counts: Mapping[str, float] | Mapping[int, int]) -> list[tuple[str, float]]:
    return [(f'{label}="{key}"', value) for key, value in sorted(counts.items(), key=str)]


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{{{labels}}} {value:.15g}" if labels else f"{name} {value:.15g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


@_server_routes.post("/session", status_code=204, summary="Exchange the token for a cookie")
async def _open_session(server: ServerDep, request: Request, session: schemas.Session) -> Response:
    """Set the cookie that replaces the token in a browser."""
    if not is_same(session.token, server.token):
        raise HTTPException(401, "The token is wrong.")
    response = Response(status_code=204)
    secure, month = request.url.scheme == "https", 30 * 86_400
    value = cookie_value(server.token)
    response.set_cookie(COOKIE, value, httponly=True, samesite="strict", secure=secure, max_age=month)
    return response


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
) -> schemas.Choices:
    """Read the options of the fit from the fields of a form."""
    given = {"preset": preset, "seed": seed, "max_time": max_time, "max_epochs": max_epochs}
    given |= {"columns_file": columns_file, "skip_rows": skip_rows}
    try:
        parsed = {"kinds": from_json(kinds), "roles": from_json(roles), "na": from_json(na)}
        return schemas.Choices.model_validate(given | parsed)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise HTTPException(422, f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}.") from error
    except ValueError as error:
        raise HTTPException(422, f"kinds, roles and na have to be JSON: {error}.") from error


async def _receive_file(server: ServerState, request: Request, file: UploadFile, kind: str, model: str = "") -> Job:
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
        request.scope["mcflow.release"]()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return job


@_model_routes.post("/models", status_code=202, summary="Upload a file and fit on it")
async def _send_file(
    *,
    server: ServerDep,
    request: Request,
    response: Response,
    choices: Annotated[schemas.Choices, Depends(_choices)],
    file: Annotated[UploadFile, File(description="CSV, TSV or Parquet; CSV also as .gz or .zst.")],
    start: Annotated[bool, Form(description="Whether to start the fit after the file was read.")] = True,
) -> schemas.Model:
    """Store a file, inspect it, and add it to the queue.

    The response is sent when the file was read, or after ten seconds with the state "checking". An invalid file is
    rejected, or its model ends in the state "failed".
    """
    _check_choices(server, choices)
    job = await _receive_file(server, request, file, "fit")
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


def _check_choices(server: ServerState, choices: schemas.Choices) -> None:
    check_schema_text(choices.columns_file)
    most = server.limits.max_time
    if choices.max_time is not None and choices.max_time > most:
        raise ParameterError(f"max_time is {choices.max_time:g} seconds, and this server allows {most:g}.")


@_model_routes.get("/models", summary="All models, newest first")
async def _all_models(server: ServerDep) -> schemas.ModelList:
    """Return the state of all models."""
    return schemas.ModelList(models=[server.summary(job) for job in server.store.models()])


@_model_routes.get("/models/{model}", summary="State of a model")
async def _one_model(server: ServerDep, job: ModelDep) -> schemas.Model:
    """Return the state of a model and the content of its file."""
    return server.model(job)


@_model_routes.post("/models/{model}/start", status_code=202, summary="Start, or start again")
async def _start_model(
    server: ServerDep,
    job: ModelDep,
    choices: Annotated[schemas.Choices | None, Body(description="By default the options of the last start.")] = None,
) -> schemas.ModelSummary:
    """Add a model to the queue.

    An interrupted or cancelled fit resumes from its last checkpoint if the options are the same.
    """
    _check_idle(server, job)
    chosen = choices or schemas.Choices(**job.options)
    _check_choices(server, chosen)
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


@_model_routes.post("/models/{model}/inspect", status_code=202, summary="Read the file again with other options")
async def _inspect_model(server: ServerDep, job: ModelDep, choices: schemas.Choices) -> schemas.Model:
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


@_model_routes.post("/models/{model}/cancel", status_code=202, summary="Cancel")
async def _cancel_model(server: ServerDep, job: ModelDep) -> schemas.ModelSummary:
    """Remove a model from the queue, or stop its fit. The uploaded file is kept."""
    await server.runner.cancel(job)
    return server.summary(job)


@_model_routes.delete("/models/{model}", status_code=204, summary="Delete a model and all its files")
async def _delete_model(server: ServerDep, job: ModelDep) -> None:
    """Stop the fit of a model, and delete the uploaded file and all results."""
    await server.runner.delete(job)


@_model_routes.get(
    "/models/{model}/events",
    summary="Progress of a model as server-sent events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Events: state, progress, end."}},
)
async def _watch_model(
    server: ServerDep, job: ModelDep, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    """Send past events, then new events, until no more can happen."""
    after = int(last_event_id) if last_event_id and last_event_id.isascii() and last_event_id.isdigit() else 0
    events = _event_stream(server, job, min(after, 2**53))
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _event_stream(server: ServerState, job: Job, after: int) -> AsyncIterator[str]:
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


def _done(job: Job) -> Job:
    if job.state != "done":
        raise HTTPException(409, f"The job is {job.state}, so there is no result yet.")
    return job


@_result_routes.get("/models/{model}/rows", summary="Some rows of the filled table")
def _some_rows(
    job: ModelDep,
    start: Annotated[int, Query(ge=0, le=10**12)] = 0,
    count: Annotated[int, Query(ge=1, le=500)] = 100,
    column: Annotated[int, Query(ge=0, le=10**6)] = 0,
    columns: Annotated[int, Query(ge=1, le=200)] = 50,
) -> schemas.Rows:
    """Return cells as text, and the filled cells with their intervals."""
    _check_table(job)
    return schemas.Rows(**read_rows(job.folder, start, count, range(column, column + columns)))


@_result_routes.get("/models/{model}/next-filled", summary="The next filled cell")
def _next_cell(
    job: ModelDep,
    row: Annotated[int, Query(ge=-1, le=10**12)] = -1,
    column: Annotated[int, Query(ge=-1, le=10**6)] = -1,
) -> schemas.FilledCell | None:
    """Return the filled cell after a cell, row by row; null if there is none."""
    _check_table(job)
    found = next_filled(job.folder, row, column)
    return None if found is None else schemas.FilledCell(**found)


@_result_routes.get("/models/{model}/summary", summary="Filled cells by column")
def _summary(job: ModelDep) -> schemas.Summary:
    """Return the number of filled cells of each column, and its typical cell before and after."""
    _check_table(job)
    return schemas.Summary.model_validate({"columns": read_summary(job.folder)})


def _check_table(job: Job) -> None:
    _done(job)
    if job.table != "ready":
        raise HTTPException(409, f"The rows cannot be shown yet ({job.table or 'not prepared'}).")


@_result_routes.get("/models/{model}/filled", summary="The filled file", response_class=FileResponse, responses=_BYTES)
def _filled_file(job: ModelDep) -> FileResponse:
    """Return the output of `mcflow impute`."""
    return _download(_done(job))


@_result_routes.get("/models/{model}/model", summary="The fitted model", response_class=FileResponse, responses=_BYTES)
def _model_file(job: ModelDep) -> FileResponse:
    """Return the model file for `mcflow impute --model`."""
    path = _done(job).folder / "model.mcflow"
    return FileResponse(path, media_type="application/octet-stream", filename=f"{job.stem}.mcflow")


@_result_routes.get(
    "/models/{model}/report",
    summary="The report",
    response_class=FileResponse,
    responses={200: {"content": {"text/html": {}}, "description": "One HTML file."}},
)
def _report_file(job: ModelDep, download: Annotated[bool, Query()] = False) -> FileResponse:
    """Return the report as a self-contained page."""
    path = _done(job).folder / "report.html"
    if not path.is_file():
        raise HTTPException(404, "This model has no report.")
    headers = {"Content-Security-Policy": _REPORT_POLICY}
    name = f"{job.stem}_report.html"
    kind: Literal["attachment", "inline"] = "attachment" if download else "inline"
    return FileResponse(path, media_type="text/html", headers=headers, filename=name, content_disposition_type=kind)


def _download(job: Job) -> FileResponse:
    return FileResponse(job.output, media_type="application/octet-stream", filename=job.output_name)


@_result_routes.post("/models/{model}/draws", status_code=202, summary="Draw completed tables")
async def _draw(server: ServerDep, job: ModelDep, choices: schemas.DrawChoices) -> schemas.Run:
    """Add draws to the queue: one file in long format, with the number of the draw in a last column."""
    _done(job)
    content = job.schema() or {"rows": 0, "columns": []}
    cells = content["rows"] * len(content["columns"]) * choices.m
    if cells > server.limits.max_cells:
        raise DataError(f"{choices.m} draws have {cells:,} cells, and this server allows {server.limits.max_cells:,}.")
    server.runner.check_room()
    run = Job(server.store.new_folder(job.id), "draws", job.filename, job.ending, model=job.id)
    run.options = choices.model_dump() | {"skip_rows": job.options.get("skip_rows", 0)}
    server.store.create(run)
    server.runner.submit(run)
    server.store.changed(job)
    return server.run(run)


@_result_routes.post(
    "/models/{model}/impute",
    summary="Fill another file with the same columns",
    responses={**_BYTES, 202: {"model": schemas.Run, "description": "Accepted, with 'Prefer: respond-async'."}},
    response_class=FileResponse,
)
async def _impute(
    *,
    server: ServerDep,
    request: Request,
    job: ModelDep,
    file: Annotated[UploadFile, File(description="File with the columns of the fit.")],
    unseen: Annotated[
        Literal["error", "missing"], Form(description="Handling of categories not seen at fit.")
    ] = "missing",
    skip_rows: Annotated[int, Form(ge=0, le=10**6, description="Number of lines above the header.")] = 0,
    prefer: Annotated[str, Header()] = "",
) -> Response:
    """Fill a file with a model, and return it.

    The job waits in the queue. With the header 'Prefer: respond-async' the response is sent at once with the location
    of the job; without it, the file is deleted after the response.
    """
    _done(job)
    run = await _receive_file(server, request, file, "impute", job.id)
    run.options = {"unseen": unseen, "skip_rows": skip_rows}
    server.runner.submit(run)
    if "respond-async" in prefer:
        headers = {"Location": f"/models/{job.id}/runs/{run.id}"}
        return Response(server.run(run).model_dump_json(), 202, headers, "application/json")
    return await _result(server, run)


async def _result(server: ServerState, run: Job) -> Response:
    """Wait for a job, and return its output or its error."""
    log = server.store.log(run)
    while not run.has_ended and run.id in server.store.jobs:
        await log.news.wait()
    if run.state != "done":
        message = run.message
        await server.runner.delete(run)
        raise DataError(message)
    response = _download(run)
    response.background = BackgroundTask(server.runner.delete, run)
    return response


@_result_routes.get("/models/{model}/runs/{run}", summary="State of draws or of another file")
async def _one_run(server: ServerDep, job: RunDep) -> schemas.Run:
    """Return the state of a job that uses a model."""
    return server.run(job)


@_result_routes.get(
    "/models/{model}/runs/{run}/file", summary="The draws, or the other filled file", response_class=FileResponse,
    responses=_BYTES,
)  # fmt: skip
def _run_file(job: RunDep) -> FileResponse:
    """Return the output of the job."""
    return _download(_done(job))


@_result_routes.delete("/models/{model}/runs/{run}", status_code=204, summary="Cancel and delete draws or another file")
async def _delete_run(server: ServerDep, job: RunDep) -> None:
    """Stop a job that uses a model, and delete all its files."""
    await server.runner.delete(job)
