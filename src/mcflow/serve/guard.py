"""Checks of every request: host name, origin, token and size."""

from __future__ import annotations

__all__ = ["COOKIE", "RETRY_SECONDS", "Guard", "cookie_value", "is_loopback"]

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import json
import time
from collections import Counter
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcflow.errors import McflowError
from mcflow.serve.limits import size_in_words
from mcflow.serve.runner import QueueFullError

#: Name of the cookie that replaces the token in a browser.
COOKIE = "mcflow_session"

#: Paths without user data, which need no token.
_OPEN = ("/", "/health", "/session", "/about", "/openapi.json")
_OPEN_FOLDER = "/page/"
_SAFE = ("GET", "HEAD", "OPTIONS")
#: Maximum size in bytes of a request, not counting an uploaded file.
_MAX_BODY = 2_000_000
#: Seconds after which a client may try again when the server has no room.
RETRY_SECONDS = "60"
#: Seconds within which the next part of a body has to arrive.
BODY_SECONDS = 30.0
#: Seconds for which a body may arrive more slowly than `MIN_SPEED`.
SLOW_SECONDS = 60.0
#: Least mean speed of a body after that, in bytes per second.
MIN_SPEED = 1_000

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
    """Return whether a host name or address is a loopback address, which no other machine can reach.

    Examples
    --------
    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
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
        response = _Response(send, self.statuses)
        rejection = self._rejection(scope["method"], scope["path"], Headers(scope=scope))
        if rejection is not None:
            await response.reject(*rejection)
            return
        takes_file = scope["method"] == "POST" and _takes_file(scope["path"])
        most = _MAX_BODY + (self.max_upload if takes_file else 0)
        body = _LimitedBody(receive, most, response, self.max_upload)
        if not takes_file:
            await self.app(scope, body, response)
            return
        try:
            place = scope["app"].state.server.runner.reserve()
        except McflowError as error:
            await body.discard()  # a client that is still sending would not read the answer
            status = 429 if isinstance(error, QueueFullError) else 507
            if response.rejection is None:
                await response.reject(status, str(error), {"retry-after": RETRY_SECONDS})
            else:
                await response.reject(*response.rejection)
            return
        scope["mcflow.place"] = place
        try:
            await self.app(scope, body, response)
        finally:
            place.release()

    def _rejection(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self.token and not is_loopback(_hostname(host)):
            return 421, (
                f"This server accepts requests to localhost only, not to {host[:100]!r}. To use another host name, "
                "start it with --token."
            )
        if method not in _SAFE and not _same_origin(headers, host):
            return 403, "This request comes from another origin, which may not change anything here."
        if self.token and not self._knows_token(headers) and not (path in _OPEN or path.startswith(_OPEN_FOLDER)):
            return 401, "A token is required. Send it as 'Authorization: Bearer …'."
        return self._too_long(path, headers.get("content-length", "0"))

    def _too_long(self, path: str, length: str) -> tuple[int, str] | None:
        most = _MAX_BODY + (self.max_upload if _takes_file(path) else 0)
        return (413, _too_large(self.max_upload)) if length.isdigit() and int(length) > most else None

    def _knows_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given.strip(), self.token):
            return True
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return COOKIE in cookies and _same(cookies[COOKIE].value, cookie_value(self.token))


def _same(given: str, wanted: str) -> bool:
    """Compare in constant time."""
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


def _takes_file(path: str) -> bool:
    return path == "/models" or path.endswith("/impute")


def _too_large(most: int) -> str:
    return f"The file is larger than {size_in_words(most)}, the limit of this server. Send a part of it."


class _Response:
    """Adds the common headers to a response, or replaces it by a rejection."""

    def __init__(self, send: Send, statuses: Counter[int]) -> None:
        self._send, self._statuses = send, statuses
        self.started = False
        self.rejection: tuple[int, str] | None = None

    async def __call__(self, message: Message) -> None:
        if self.rejection is not None and not self.started:
            await self.reject(*self.rejection)
        if self.rejection is not None:
            return
        if message["type"] == "http.response.start":
            self.started = True
            self._statuses[message["status"]] += 1
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)

    async def reject(self, status: int, detail: str, more: Mapping[str, str] = {}) -> None:
        """Respond with an error in the format of all errors."""
        self.started, self.rejection = True, (status, detail)
        self._statuses[status] += 1
        body = json.dumps({"detail": detail}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **_HEADERS}
        headers |= {"www-authenticate": "Bearer"} if status == 401 else {}
        headers |= {"connection": "close"} if status in (408, 413) else {}
        headers |= more
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})
        await self._send({"type": "http.response.body", "body": body})


class _LimitedBody:
    """Passes on the body of a request, and rejects it when it is too large or too slow."""

    def __init__(self, receive: Receive, most: int, response: _Response, max_upload: int) -> None:
        self._receive, self._left, self._response, self._max_upload = receive, most, response, max_upload
        self._start, self._whole, self._received = time.monotonic(), False, 0

    async def discard(self) -> None:
        """Read the body to its end, and forget it."""
        with contextlib.suppress(ValueError):
            while not self._whole:
                await self()

    async def __call__(self) -> Any:
        message = await (self._receive() if self._whole else self._next())
        self._whole = self._whole or not message.get("more_body", False)
        self._left -= len(message.get("body", b""))
        self._received += len(message.get("body", b""))
        if self._left < 0:
            self._response.rejection = 413, _too_large(self._max_upload)
            raise ValueError("the request is too large")
        return message

    async def _next(self) -> Any:
        """Wait for the next part of the body; after its end, a request may take any time."""
        spent = time.monotonic() - self._start
        allowed = SLOW_SECONDS + self._received / MIN_SPEED - spent
        try:
            return await asyncio.wait_for(self._receive(), max(min(BODY_SECONDS, allowed), 0))
        except TimeoutError as error:
            self._response.rejection = 408, "The request arrived too slowly. Send it again over a faster connection."
            raise ValueError("the request is too slow") from error
