"""Checks of every connection and request: time, host name, origin, token and size."""

from __future__ import annotations

__all__ = ["COOKIE", "Guard", "TimedProtocol", "cookie_value", "is_loopback", "is_same", "rejection"]

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import h11
from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from mcflow.errors import McflowError
from mcflow.serve.limits import size_in_words
from mcflow.serve.runner import QueueFullError, Runner

COOKIE = "mcflow_session"  #: Name of the cookie that replaces the token in a browser.
_OPEN = ("/", "/health", "/session", "/about", "/openapi.json")  #: Paths without user data, which need no token.
_OPEN_FOLDER = "/page/"
_SAFE = ("GET", "HEAD", "OPTIONS")
_MAX_BODY = 2_000_000  #: Maximum size in bytes of a request, not counting an uploaded file.
#: Headers of error responses by status; a client may try again after a minute when the server has no room.
_STATUS_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    408: {"Connection": "close"},
    413: {"Connection": "close"},
    429: {"Retry-After": "60"},
    507: {"Retry-After": "60"},
}
HEADER_SECONDS = 20.0  #: Seconds within which a connection has to send the headers of a request.
BODY_SECONDS = 30.0  #: Seconds within which the next part of a body has to arrive.
LINGER_SECONDS = 2.0  #: Seconds for which the rest of a rejected body is read.
SLOW_SECONDS = 60.0  #: Seconds for which a body may arrive more slowly than `MIN_SPEED`.
MIN_SPEED = 1_000  #: Least mean speed of a body after that, in bytes per second.

_LATE = b'{"detail": "The headers of the request did not arrive in time."}'
_ANSWER = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_LATE), _LATE)
)
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is a loopback address, which no other machine can reach."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def cookie_value(token: str) -> str:
    """Return the value of the cookie, an HMAC of the token."""
    return hmac.new(token.encode(), b"mcflow session", hashlib.sha256).hexdigest()


class Guard:
    """ASGI middleware that rejects requests that may not pass.

    Without a token, all programs of this machine have access, but pages of other sites do not: the host of a request
    must be a loopback name, which defeats DNS rebinding. With a token, other sites lack the token. In both cases,
    requests that change something must come from the same origin.
    """

    def __init__(self, app: ASGIApp, *, token: str, max_upload: int, statuses: Counter[int]) -> None:
        self.app, self.token, self.max_upload, self.statuses = app, token, max_upload, statuses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject a request, or pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        takes_file = scope["method"] == "POST" and (scope["path"] == "/models" or scope["path"].endswith("/impute"))
        most = _MAX_BODY + (self.max_upload if takes_file else 0)
        body = _LimitedBody(receive, most, self.max_upload)

        async def respond(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.statuses[message["status"]] += 1
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        release: Callable[[], None] | None = None
        try:
            self._check(scope["method"], scope["path"], Headers(scope=scope), most)
            if takes_file:
                release = scope["mcflow.release"] = await _reserve(scope["app"].state.server.runner, body)
            await self.app(scope, body, respond)
        except HTTPException as error:
            await body.linger()
            await JSONResponse({"detail": error.detail}, error.status_code, error.headers)(scope, receive, respond)
        finally:
            if release is not None:
                release()

    def _check(self, method: str, path: str, headers: Headers, most: int) -> None:
        """Raise the rejection of a request by its headers."""
        host = headers.get("host", "")
        if not self.token and not is_loopback(_hostname(host)):
            raise rejection(
                421,
                f"This server accepts requests to localhost only, not to {host[:100]!r}. To use another host name, "
                "start it with --token.",
            )
        if method not in _SAFE and not _same_origin(headers, host):
            raise rejection(403, "This request comes from another origin, which may not change anything here.")
        if self.token and not self._knows_token(headers) and not (path in _OPEN or path.startswith(_OPEN_FOLDER)):
            raise rejection(401, "A token is required. Send it as 'Authorization: Bearer …'.")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > most:
            raise _too_large(self.max_upload)

    def _knows_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and is_same(given.strip(), self.token):
            return True
        cookies = cookie_parser(headers.get("cookie", ""))
        return is_same(cookies.get(COOKIE, ""), cookie_value(self.token))


def is_same(given: str, wanted: str) -> bool:
    """Compare secrets in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("utf-8", "replace"))


def _hostname(netloc: str) -> str:
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def _same_origin(headers: Headers, netloc: str) -> bool:
    origin = headers.get("origin")
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    return origin is None or origin.partition("://")[2].lower() == netloc.lower()


def rejection(status: int, detail: str) -> HTTPException:
    """Return an error response, with the headers that its status needs."""
    return HTTPException(status, detail, _STATUS_HEADERS.get(status))


def _too_large(most: int) -> HTTPException:
    words = f"The file is larger than {size_in_words(most)}, the limit of this server. Send a part of it."
    return rejection(413, words)


async def _reserve(runner: Runner, body: _LimitedBody) -> Callable[[], None]:
    """Reserve a place in the queue for a file that arrives, and return what frees it."""
    try:
        return runner.reserve()
    except McflowError as error:
        await body.discard()  # a client that is still sending would not read the answer
        raise rejection(429 if isinstance(error, QueueFullError) else 507, str(error)) from error


class _LimitedBody:
    """Passes on the body of a request, and rejects it when it is too large or too slow."""

    def __init__(self, receive: Receive, most: int, max_upload: int) -> None:
        self._receive, self._left, self._max_upload = receive, most, max_upload
        self._start, self._whole, self._received = time.monotonic(), False, 0

    async def discard(self) -> None:
        """Read the body to its end, and forget it."""
        while not self._whole:
            await self()

    async def linger(self) -> None:
        """Read on for a while without keeping anything: a client that is still sending would not read the answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while not self._whole:
                    self._whole = not (await self._receive()).get("more_body", False)

    async def __call__(self) -> Any:
        message = await (self._receive() if self._whole else self._next())
        self._whole = self._whole or not message.get("more_body", False)
        self._left -= len(message.get("body", b""))
        self._received += len(message.get("body", b""))
        if self._left < 0:
            raise _too_large(self._max_upload)
        return message

    async def _next(self) -> Any:
        """Wait for the next part of the body; after its end, a request may take any time."""
        spent = time.monotonic() - self._start
        allowed = SLOW_SECONDS + self._received / MIN_SPEED - spent
        try:
            return await asyncio.wait_for(self._receive(), max(min(BODY_SECONDS, allowed), 0))
        except TimeoutError as error:
            raise rejection(408, "The request arrived too slowly. Send it again over a faster connection.") from error


class TimedProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose headers take too long."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for the first request."""
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        """Read, and wait on if these were not all headers of a request."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._timer is None:
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._timer = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_ANSWER)
            self.transport.close()
