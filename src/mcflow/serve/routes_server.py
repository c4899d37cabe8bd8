"""Routes of the server itself: page, session, health, limits and metrics."""

from __future__ import annotations

__all__ = ["PAGE", "metrics_text", "router"]

import hmac
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import get_args

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse

import mcflow
from mcflow.columns.planning import USER_KINDS
from mcflow.columns.schema import ROLES
from mcflow.files.tables import FORMATS
from mcflow.serve.children import memory_of
from mcflow.serve.dependencies import ERRORS, ServerDep
from mcflow.serve.guard import COOKIE, cookie_value
from mcflow.serve.jobs import INTERVAL_LEVEL
from mcflow.serve.runner import Runner
from mcflow.serve.schemas import About, Health, Session, State

#: Folder of the web page.
PAGE = Path(__file__).parent / "page"

router = APIRouter(tags=["server"], responses={code: ERRORS[code] for code in (400, 401, 403, 413, 421, 422)})


@router.get("/", include_in_schema=False)
def _page() -> FileResponse:
    """Return the page."""
    return FileResponse(PAGE / "index.html", media_type="text/html")


@router.get("/health", summary="Health of the server")
async def _health(server: ServerDep) -> Health:
    """Return the health and the load of the server."""
    running = sum(job.state == "running" for job in server.store.jobs.values())
    return Health(status="ok", version=mcflow.__version__, running=running, queued=server.runner.waiting)


@router.get("/about", summary="Limits and options of the server")
async def _about(server: ServerDep, request: Request) -> About:
    """Return the limits, and the kinds and roles of columns."""
    shown = request.cookies.get(COOKIE, "")
    known = not server.token or hmac.compare_digest(shown.encode(), cookie_value(server.token).encode())
    return About(
        version=mcflow.__version__,
        token=bool(server.token),
        known=known,
        level=INTERVAL_LEVEL,
        kinds=list(USER_KINDS),
        roles=list(ROLES),
        endings=list(FORMATS),
        limits=server.limits,
    )


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
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
        ("mcflow_jobs", "gauge", "Jobs by state.", [(f'state="{s}"', states[s]) for s in get_args(State)]),
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


@router.post("/session", status_code=204, summary="Exchange the token for a cookie")
async def _open_session(server: ServerDep, request: Request, session: Session) -> Response:
    """Set the cookie that replaces the token in a browser."""
    if not hmac.compare_digest(session.token.encode("utf-8", "replace"), server.token.encode("utf-8", "replace")):
        raise HTTPException(401, "The token is wrong.")
    response = Response(status_code=204)
    response.set_cookie(
        COOKIE,
        cookie_value(server.token),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        max_age=30 * 86_400,
    )
    return response


@router.delete("/session", status_code=204, summary="Delete the cookie")
async def _close_session() -> Response:
    """Delete the session cookie."""
    response = Response(status_code=204)
    response.delete_cookie(COOKIE)
    return response
