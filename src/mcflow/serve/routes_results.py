"""Routes about what a model made: rows, report, files, draws, and other files that it fills."""

from __future__ import annotations

__all__ = ["router"]

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, File, Form, Header, HTTPException, Query, Response, UploadFile
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from mcflow.errors import DataError
from mcflow.serve.answers import DrawChoices, FilledCell, Rows, Run
from mcflow.serve.jobs import Job
from mcflow.serve.routes_models import ModelJob, Parts, receive_file
from mcflow.serve.rows import next_filled, read_rows
from mcflow.serve.surroundings import ERRORS, Surroundings, run_named
from mcflow.serve.watching import until_over

router = APIRouter(tags=["results"], responses=ERRORS)

RunJob = Annotated[Job, Depends(run_named)]

#: A report is shown without any right to this page, and loads nothing.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; font-src data:; "
    "sandbox allow-scripts allow-popups; frame-ancestors 'self'"
)
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "The file."}
}


def _done(job: Job) -> Job:
    if job.state != "done":
        raise HTTPException(409, f"It is {job.state}, so there is no result yet.")
    return job


@router.get("/models/{model}/rows", summary="Some rows of the filled table")
def _some_rows(
    job: ModelJob,
    start: Annotated[int, Query(ge=0, le=10**12)] = 0,
    count: Annotated[int, Query(ge=1, le=500)] = 100,
    column: Annotated[int, Query(ge=0, le=10**6)] = 0,
    columns: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Rows:
    """Return cells as text, and which of them were filled, with their intervals."""
    _check_table(job)
    return Rows(**read_rows(job.folder, start, count, range(column, column + columns)))


@router.get("/models/{model}/next-filled", summary="The next filled cell")
def _next_cell(
    job: ModelJob,
    row: Annotated[int, Query(ge=-1, le=10**12)] = -1,
    column: Annotated[int, Query(ge=-1, le=10**6)] = -1,
) -> FilledCell | None:
    """Return the filled cell after a cell, in the order of reading; null when there is none."""
    _check_table(job)
    found = next_filled(job.folder, row, column)
    return None if found is None else FilledCell(**found)


def _check_table(job: Job) -> None:
    _done(job)
    if job.table != "ready":
        raise HTTPException(409, f"The rows cannot be looked at yet ({job.table or 'not made'}).")


@router.get("/models/{model}/filled", summary="The filled file", response_class=FileResponse, responses=_BYTES)
def _filled_file(job: ModelJob) -> FileResponse:
    """Return the file that `mcflow impute` wrote."""
    return _download(_done(job))


@router.get("/models/{model}/model", summary="The fitted model", response_class=FileResponse, responses=_BYTES)
def _model_file(job: ModelJob) -> FileResponse:
    """Return the model, which `mcflow impute --model` uses."""
    name = f"{job.filename[: len(job.filename) - len(job.ending)] or 'table'}.mcflow"
    return FileResponse(_done(job).folder / "model.mcflow", media_type="application/octet-stream", filename=name)


@router.get(
    "/models/{model}/report",
    summary="The report",
    response_class=FileResponse,
    responses={200: {"content": {"text/html": {}}, "description": "One HTML file."}},
)
def _report_file(job: ModelJob, download: Annotated[bool, Query()] = False) -> FileResponse:
    """Return the report as a page that loads nothing."""
    path = _done(job).folder / "report.html"
    if not path.is_file():
        raise HTTPException(404, "There is no report of this model.")
    headers = {"Content-Security-Policy": _REPORT_POLICY}
    name = f"{job.filename[: len(job.filename) - len(job.ending)] or 'table'}_report.html"
    kind: Literal["attachment", "inline"] = "attachment" if download else "inline"
    return FileResponse(path, media_type="text/html", headers=headers, filename=name, content_disposition_type=kind)


def _download(job: Job) -> FileResponse:
    return FileResponse(job.output, media_type="application/octet-stream", filename=job.output_name)


@router.post("/models/{model}/draws", status_code=202, summary="Draw completed tables")
async def _draw(parts: Parts, job: ModelJob, choices: DrawChoices) -> Run:
    """Put draws into the queue: all completed tables in one file, with their number in a last column."""
    _done(job)
    content = job.schema() or {"rows": 0, "columns": []}
    cells = content["rows"] * len(content["columns"]) * choices.m
    if cells > parts.limits.max_cells:
        raise DataError(f"{choices.m} draws have {cells:,} cells, and this server makes {parts.limits.max_cells:,}.")
    parts.runner.check_room()
    run = Job(parts.store.new_folder(job.id), "draws", job.filename, job.ending, model=job.id)
    run.options = choices.model_dump()
    parts.store.create(run)
    parts.runner.submit(run)
    parts.store.changed(job)
    return parts.run(run)


@router.post(
    "/models/{model}/impute",
    summary="Fill another file with the same columns",
    responses={**_BYTES, 202: {"model": Run, "description": "Accepted, with 'Prefer: respond-async'."}},
    response_class=FileResponse,
)
async def _impute(
    parts: Parts,
    job: ModelJob,
    file: Annotated[UploadFile, File(description="With the columns of the file of the fit.")],
    unseen: Annotated[Literal["error", "missing"], Form(description="What to do with a level that is new.")] = "error",
    prefer: Annotated[str, Header()] = "",
) -> Response:
    """Fill a file by a model, and return it.

    The answer waits in the queue like any job. With the header 'Prefer: respond-async' it comes at once, and says
    where to ask; without it, nothing of the file is kept after the answer.
    """
    _done(job)
    parts.runner.check_room()
    run = await receive_file(parts, file, "impute", job.id)
    run.options = {"unseen": unseen}
    parts.runner.submit(run)
    if "respond-async" in prefer:
        headers = {"Location": f"/models/{job.id}/runs/{run.id}"}
        return Response(parts.run(run).model_dump_json(), 202, headers, "application/json")
    return await _waited(parts, run)


async def _waited(parts: Surroundings, run: Job) -> Response:
    await until_over(parts, run)
    if run.state != "done":
        message = run.message
        await parts.runner.delete(run)
        raise DataError(message)
    answer = _download(run)
    answer.background = BackgroundTask(parts.runner.delete, run)
    return answer


@router.get("/models/{model}/runs/{run}", summary="How it stands with draws or another file")
async def _one_run(parts: Parts, job: RunJob) -> Run:
    """Return how it stands with a job that uses a model."""
    return parts.run(job)


@router.get(
    "/models/{model}/runs/{run}/file", summary="The draws, or the other file filled", response_class=FileResponse,
    responses=_BYTES,
)  # fmt: skip
def _run_file(job: RunJob) -> FileResponse:
    """Return the file that the job made."""
    return _download(_done(job))


@router.delete("/models/{model}/runs/{run}", status_code=204, summary="Cancel and delete draws or another file")
async def _delete_run(parts: Parts, job: RunJob) -> None:
    """End a job that uses a model, and remove all its files."""
    await parts.runner.delete(job)
