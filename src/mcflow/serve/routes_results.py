"""Routes of results: rows, report, files, draws, and other files to fill with a model."""

from __future__ import annotations

__all__ = ["router"]

from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Header, HTTPException, Query, Request, Response, UploadFile
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from mcflow.errors import DataError
from mcflow.serve.dependencies import ERRORS, ModelDep, RunDep, ServerDep, ServerState
from mcflow.serve.events import wait_until_ended
from mcflow.serve.jobs import Job
from mcflow.serve.preview import next_filled, read_rows, read_summary
from mcflow.serve.routes_models import receive_file
from mcflow.serve.schemas import ColumnSummary, DrawChoices, FilledCell, Rows, Run, Summary

router = APIRouter(tags=["results"], responses=ERRORS)

#: Policy of a report, which has no access to the page and loads nothing.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; font-src data:; "
    "sandbox allow-scripts allow-popups; frame-ancestors 'self'"
)
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "The file."}
}


def _done(job: Job) -> Job:
    if job.state != "done":
        raise HTTPException(409, f"The job is {job.state}, so there is no result yet.")
    return job


@router.get("/models/{model}/rows", summary="Some rows of the filled table")
def _some_rows(
    job: ModelDep,
    start: Annotated[int, Query(ge=0, le=10**12)] = 0,
    count: Annotated[int, Query(ge=1, le=500)] = 100,
    column: Annotated[int, Query(ge=0, le=10**6)] = 0,
    columns: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Rows:
    """Return cells as text, and the filled cells with their intervals."""
    _check_table(job)
    return Rows(**read_rows(job.folder, start, count, range(column, column + columns)))


@router.get("/models/{model}/next-filled", summary="The next filled cell")
def _next_cell(
    job: ModelDep,
    row: Annotated[int, Query(ge=-1, le=10**12)] = -1,
    column: Annotated[int, Query(ge=-1, le=10**6)] = -1,
) -> FilledCell | None:
    """Return the filled cell after a cell, row by row; null if there is none."""
    _check_table(job)
    found = next_filled(job.folder, row, column)
    return None if found is None else FilledCell(**found)


@router.get("/models/{model}/summary", summary="Filled cells by column")
def _summary(job: ModelDep) -> Summary:
    """Return the number of filled cells of each column, and its typical cell before and after."""
    _check_table(job)
    return Summary(columns=[ColumnSummary(**column) for column in read_summary(job.folder)])


def _check_table(job: Job) -> None:
    _done(job)
    if job.table != "ready":
        raise HTTPException(409, f"The rows cannot be shown yet ({job.table or 'not prepared'}).")


@router.get("/models/{model}/filled", summary="The filled file", response_class=FileResponse, responses=_BYTES)
def _filled_file(job: ModelDep) -> FileResponse:
    """Return the output of `mcflow impute`."""
    return _download(_done(job))


@router.get("/models/{model}/model", summary="The fitted model", response_class=FileResponse, responses=_BYTES)
def _model_file(job: ModelDep) -> FileResponse:
    """Return the model file for `mcflow impute --model`."""
    path = _done(job).folder / "model.mcflow"
    return FileResponse(path, media_type="application/octet-stream", filename=f"{job.stem}.mcflow")


@router.get(
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


@router.post("/models/{model}/draws", status_code=202, summary="Draw completed tables")
async def _draw(server: ServerDep, job: ModelDep, choices: DrawChoices) -> Run:
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


@router.post(
    "/models/{model}/impute",
    summary="Fill another file with the same columns",
    responses={**_BYTES, 202: {"model": Run, "description": "Accepted, with 'Prefer: respond-async'."}},
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
    run = await receive_file(server, request, file, "impute", job.id)
    run.options = {"unseen": unseen, "skip_rows": skip_rows}
    server.runner.submit(run)
    if "respond-async" in prefer:
        headers = {"Location": f"/models/{job.id}/runs/{run.id}"}
        return Response(server.run(run).model_dump_json(), 202, headers, "application/json")
    return await _result(server, run)


async def _result(server: ServerState, run: Job) -> Response:
    """Wait for a job, and return its output or its error."""
    await wait_until_ended(server, run)
    if run.state != "done":
        message = run.message
        await server.runner.delete(run)
        raise DataError(message)
    response = _download(run)
    response.background = BackgroundTask(server.runner.delete, run)
    return response


@router.get("/models/{model}/runs/{run}", summary="State of draws or of another file")
async def _one_run(server: ServerDep, job: RunDep) -> Run:
    """Return the state of a job that uses a model."""
    return server.run(job)


@router.get(
    "/models/{model}/runs/{run}/file", summary="The draws, or the other filled file", response_class=FileResponse,
    responses=_BYTES,
)  # fmt: skip
def _run_file(job: RunDep) -> FileResponse:
    """Return the output of the job."""
    return _download(_done(job))


@router.delete("/models/{model}/runs/{run}", status_code=204, summary="Cancel and delete draws or another file")
async def _delete_run(server: ServerDep, job: RunDep) -> None:
    """Stop a job that uses a model, and delete all its files."""
    await server.runner.delete(job)
