"""Application of the server: routes, error responses, start and stop."""

from __future__ import annotations

__all__ = ["create_app", "run_server"]

import contextlib
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles

import mcflow
from mcflow.errors import McflowError, OutputError, ParameterError
from mcflow.files.atomic import holding
from mcflow.serve.guard import Guard, TimedProtocol, is_loopback, rejection
from mcflow.serve.jobs import JobStore
from mcflow.serve.limits import Limits
from mcflow.serve.routes import PAGE, ROUTERS, ServerState
from mcflow.serve.runner import QueueFullError, QuotaError, Runner

_MIN_TOKEN = 16  #: Minimum number of characters of a token.
#: Status codes of classes of errors; others are answered with 422.
_STATUSES: dict[type[McflowError], int] = {QueueFullError: 429, QuotaError: 507, OutputError: 507}

_log = logging.getLogger("mcflow.serve")


def create_app(folder: Path, limits: Limits | None = None, token: str = "") -> FastAPI:
    """Create the application, whose jobs are stored in a folder and run during its lifespan."""
    if token and len(token) < _MIN_TOKEN:
        raise ParameterError(
            f"The token has {len(token)} characters, but needs {_MIN_TOKEN}. Create one with "
            "python -c 'import secrets; print(secrets.token_urlsafe(24))'."
        )
    allowed = limits or Limits()
    statuses: Counter[int] = Counter()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        store = JobStore(folder)
        runner = Runner(store, allowed)
        app.state.server = ServerState(store, runner, allowed, token, statuses)
        runner.start()
        try:
            yield
        finally:
            await runner.stop()

    app = FastAPI(
        title="mcflow",
        version=mcflow.__version__,
        summary="Fill missing values in tables.",
        description="Upload a file, follow the fit, and download the filled file, draws and the model.",
        docs_url=None,  # its scripts come from other hosts
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name.strip("_"),
        lifespan=lifespan,
    )
    for router in ROUTERS:
        app.include_router(router)
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    app.add_middleware(Guard, token=token, max_upload=allowed.max_upload, statuses=statuses)
    _handle_errors(app)
    return app


def _handle_errors(app: FastAPI) -> None:
    """Give all error responses one format."""

    @app.exception_handler(McflowError)
    async def on_error(_: Request, error: McflowError) -> JSONResponse:
        status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 422)
        return JSONResponse({"detail": str(error)}, status, rejection(status, "").headers)

    @app.exception_handler(RequestValidationError)
    async def on_invalid_request(_: Request, error: RequestValidationError) -> JSONResponse:
        lines = [f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors()]
        return JSONResponse({"detail": "; ".join(lines)[:2000] or "The request cannot be read."}, 422)

    @app.exception_handler(Exception)
    async def on_unexpected_error(_: Request, error: Exception) -> JSONResponse:
        _log.error("A request failed.", exc_info=error)
        return JSONResponse({"detail": "Internal server error. See the log of the server."}, 500)


def run_server(
    folder: Path, *, host: str, port: int, limits: Limits, token: str, on_ready: Callable[[str], None]
) -> None:
    """Run the server until the process is stopped; `on_ready` is called with its address."""
    if not token and not is_loopback(host):
        raise ParameterError(
            f"--host {host} is reachable from other machines, which could read all files and fill the disk. Set a "
            "token with --token or MCFLOW_TOKEN, or use --host 127.0.0.1."
        )
    app = create_app(folder, limits, token)
    JobStore(folder)
    listener = _listener(host, port)
    url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=3,
        server_header=False,
        ws="none",
        http=TimedProtocol,
    )
    with holding(folder / ".lock", str(folder)), contextlib.closing(listener):
        listener.listen()  # requests that arrive before the server has started wait
        on_ready(url)
        uvicorn.Server(config).run(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    """Bind the address before any other work."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or error
        raise OutputError(f"Cannot listen on {host} port {port}: {why}. Choose another --port or --host.") from error
    return listener
