"""Routes about the server itself: its page, its token, its health and its numbers."""

from __future__ import annotations

__all__ = ["PAGE", "router"]

import hmac
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse

import mcflow
from mcflow.data.planning import SAYABLE
from mcflow.data.schema import ROLES
from mcflow.data.tables import FORMATS
from mcflow.serve.answers import About, Health, Session
from mcflow.serve.guard import COOKIE, cookie_value
from mcflow.serve.jobs import INTERVAL_LEVEL
from mcflow.serve.metrics import metrics_text
from mcflow.serve.routes_models import Parts
from mcflow.serve.surroundings import ERRORS

#: The files of the page.
PAGE = Path(__file__).parent / "page"

router = APIRouter(tags=["server"], responses={code: ERRORS[code] for code in (400, 401, 403, 413, 421, 422)})


@router.get("/", include_in_schema=False)
def _page() -> FileResponse:
    """Return the page."""
    return FileResponse(PAGE / "index.html", media_type="text/html")


@router.get("/health", summary="Whether the server answers")
async def _health(parts: Parts) -> Health:
    """Return that the server answers, and how busy it is."""
    running = sum(job.state == "running" for job in parts.store.jobs.values())
    return Health(status="ok", version=mcflow.__version__, running=running, queued=parts.runner.waiting)


@router.get("/about", summary="What the server allows")
async def _about(parts: Parts, request: Request) -> About:
    """Return the limits, and the words for kinds and roles."""
    shown = request.cookies.get(COOKIE, "")
    known = not parts.token or hmac.compare_digest(shown.encode(), cookie_value(parts.token).encode())
    return About(
        version=mcflow.__version__,
        token=bool(parts.token),
        known=known,
        level=INTERVAL_LEVEL,
        kinds=list(SAYABLE),
        roles=list(ROLES),
        endings=list(FORMATS),
        limits=parts.limits,
    )


@router.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus' text format."}},
)
async def _metrics(parts: Parts) -> PlainTextResponse:
    """Return the numbers."""
    text = metrics_text(parts.runner, parts.statuses, mcflow.__version__)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


@router.post("/session", status_code=204, summary="Exchange the token for a cookie")
async def _open_session(parts: Parts, request: Request, session: Session) -> Response:
    """Set the cookie that stands for the token in a browser."""
    if not hmac.compare_digest(session.token.encode("utf-8", "replace"), parts.token.encode("utf-8", "replace")):
        raise HTTPException(401, "This is not the server's token.")
    answer = Response(status_code=204)
    answer.set_cookie(
        COOKIE,
        cookie_value(parts.token),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        max_age=30 * 86_400,
    )
    return answer


@router.delete("/session", status_code=204, summary="Forget the cookie")
async def _close_session() -> Response:
    """Take the cookie back."""
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE)
    return answer
