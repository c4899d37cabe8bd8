"""The server: its routes, its guard, and the way it starts and stops."""

from __future__ import annotations

__all__ = ["create_app", "run_server"]

import contextlib
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles

import mcflow
from mcflow.data.locks import holding
from mcflow.errors import DataError, McflowError, OutputError, ParameterError
from mcflow.serve import routes_models, routes_results, routes_server
from mcflow.serve.answers import Failure
from mcflow.serve.guard import Guard, is_loopback
from mcflow.serve.limits import Limits
from mcflow.serve.runner import QueueFullError, Runner
from mcflow.serve.store import JobStore
from mcflow.serve.surroundings import Surroundings

#: Characters that a token has at least.
_SHORTEST_TOKEN = 16
#: Seconds after which somebody whose job finds no room may try again.
_TRY_AGAIN = "60"
#: The status of an answer for each class of errors; the first that fits decides.
_STATUSES: dict[type[McflowError], int] = {QueueFullError: 503, DataError: 422, ParameterError: 422, OutputError: 507}

_log = logging.getLogger("mcflow.serve")


def create_app(folder: Path, limits: Limits | None = None, token: str = "") -> FastAPI:
    """Make the application.

    Parameters
    ----------
    folder : Path
        Where jobs are kept.
    limits : Limits, optional
        What it allows.
    token : str, default=""
        What clients have to know; empty for none.

    Returns
    -------
    FastAPI
        Its jobs run while its lifespan does.

    Raises
    ------
    ParameterError
        When the token is short enough to be guessed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sorted(create_app(Path(folder)).openapi()["paths"])[:3]
    ['/about', '/health', '/metrics']
    """
    if token and len(token) < _SHORTEST_TOKEN:
        raise ParameterError(
            f"The token has {len(token)} characters, and needs {_SHORTEST_TOKEN}. Make one with "
            "python -c 'import secrets; print(secrets.token_urlsafe(24))'."
        )
    allowed = limits or Limits()
    app = FastAPI(
        title="mcflow",
        version=mcflow.__version__,
        summary="Fill the holes of tables.",
        description="Send a file, watch the fit, and fetch the filled file, its draws and its model.",
        docs_url=None,  # they load their scripts from other hosts
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name.strip("_"),
        lifespan=_lifespan(folder, allowed, token),
    )
    for routes in (routes_server, routes_models, routes_results):
        app.include_router(routes.router)
    app.mount("/page", StaticFiles(directory=routes_server.PAGE), name="page")
    statuses: Counter[int] = Counter()
    app.state.statuses = statuses
    app.add_middleware(Guard, token=token, max_upload=allowed.max_upload, statuses=statuses)
    _answer_errors(app)
    _describe_errors(app)
    return app


def _lifespan(folder: Path, limits: Limits, token: str) -> Callable[[FastAPI], Any]:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        store = JobStore(folder)
        runner = Runner(store, limits)
        app.state.surroundings = Surroundings(store, runner, limits, token, app.state.statuses)
        runner.start()
        try:
            yield
        finally:
            await runner.stop()

    return lifespan


def _answer_errors(app: FastAPI) -> None:
    """Let all errors have one form."""

    @app.exception_handler(McflowError)
    async def on_error(_: Request, error: McflowError) -> JSONResponse:
        status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 422)
        headers = {"Retry-After": _TRY_AGAIN} if status == 503 else None
        return JSONResponse({"detail": str(error)}, status, headers)

    @app.exception_handler(RequestValidationError)
    async def on_wrong_request(_: Request, error: RequestValidationError) -> JSONResponse:
        lines = [f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors()]
        return JSONResponse({"detail": "; ".join(lines)[:2000] or "The request cannot be read."}, 422)

    @app.exception_handler(Exception)
    async def on_surprise(_: Request, error: Exception) -> JSONResponse:
        _log.error("A request failed.", exc_info=error)
        return JSONResponse({"detail": "The server stumbled over this request; its log says more."}, 500)


def _describe_errors(app: FastAPI) -> None:
    """Say in the description of the interface that errors are JSON, also where the answer is a file."""
    plain = app.openapi()
    plain["components"]["schemas"]["Failure"] = Failure.model_json_schema()
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}}
    for methods in plain["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    answer["content"] = error


def run_server(
    folder: Path,
    *,
    host: str,
    port: int,
    limits: Limits,
    token: str,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until the process is told to stop.

    Parameters
    ----------
    folder : Path
        Where jobs are kept.
    host : str
        Address to listen on. Others than this machine's own need a token.
    port : int
        Port; 0 takes a free one.
    limits : Limits
        What it allows.
    token : str
        What clients have to know; empty for none.
    on_ready : callable, optional
        Called with the address once the server answers.

    Raises
    ------
    OutputError
        When the address is taken, or another server uses the folder.
    ParameterError
        When the address needs a token.
    """
    if not token and not is_loopback(host):
        raise ParameterError(
            f"--host {host} lets other machines in, and whoever reaches the server could read all files and fill the "
            "disk. Set a token with --token or MCFLOW_TOKEN, or stay with --host 127.0.0.1."
        )
    app = create_app(folder, limits, token)
    JobStore(folder)
    listener = _listener(host, port)
    url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=3, server_header=False, ws="none"
    )
    with holding(folder / ".lock", str(folder)), contextlib.closing(listener):
        _Announcing(config, url, on_ready).run(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    """Open the address before anything else is done."""
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


class _Announcing(uvicorn.Server):
    """A server that says when it answers."""

    def __init__(self, config: uvicorn.Config, url: str, on_ready: Callable[[str], None] | None) -> None:
        super().__init__(config)
        self._url, self._on_ready = url, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets=sockets)
        if self.started and self._on_ready is not None:
            self._on_ready(self._url)
