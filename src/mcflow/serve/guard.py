"""What every request has to pass: whose name it was sent to, where it came from, the token, and its size."""

from __future__ import annotations

__all__ = ["COOKIE", "Guard", "cookie_value", "is_loopback"]

import hashlib
import hmac
import ipaddress
import json
from collections import Counter
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcflow.serve.limits import size_in_words

#: Name of the cookie that stands for the token in a browser.
COOKIE = "mcflow_session"

#: Paths that need no token: they hold nothing of anybody.
_OPEN = ("/", "/health", "/session", "/about", "/openapi.json")
_OPEN_FOLDER = "/page/"
_SAFE = ("GET", "HEAD", "OPTIONS")
#: Bytes that a request without a file may have, and those that surround a file.
_SMALL = 2_000_000

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
    """Tell whether a host name or address is this machine's own, which no other machine can reach.

    Parameters
    ----------
    host : str
        Without a port.

    Returns
    -------
    bool

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
    """Return what a browser keeps instead of the token."""
    return hmac.new(token.encode(), b"mcflow session", hashlib.sha256).hexdigest()


class Guard:
    """Stands before an application and lets through what may pass.

    Parameters
    ----------
    app : ASGI application
        What it stands before.
    token : str
        What clients have to know; empty for none.
    max_upload : int
        Bytes of a file.
    statuses : Counter
        Counts the answers by their status.

    Notes
    -----
    Without a token anybody on this machine may ask, but no page of another site: a request has to name this machine
    as its host, since a page that changes the address of its own name to ours would send its own name. With a token
    such a page lacks it. Requests that change something may not come from another origin in either case.
    """

    def __init__(self, app: ASGIApp, *, token: str, max_upload: int, statuses: Counter[int]) -> None:
        self.app, self.token, self.max_upload, self.statuses = app, token, max_upload, statuses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _Answer(send, self.statuses)
        refusal = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        if refusal is not None:
            await answer.refuse(*refusal)
            return
        most = _SMALL + (self.max_upload if _takes_file(scope["path"]) else 0)
        await self.app(scope, _Weighed(receive, most, answer, self.max_upload), answer)

    def _refusal(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self.token and not is_loopback(_hostname(host)):
            return 421, (
                f"This server answers to localhost only, and was asked as {host[:100]!r}. To serve it under "
                "another name, start it with --token."
            )
        if method not in _SAFE and not _same_origin(headers, host):
            return 403, "This request comes from a page of another site, which may not change anything here."
        if self.token and not self._knows_token(headers) and not (path in _OPEN or path.startswith(_OPEN_FOLDER)):
            return 401, "This needs the server's token. Send it as 'Authorization: Bearer …'."
        return self._too_long(path, headers.get("content-length", "0"))

    def _too_long(self, path: str, length: str) -> tuple[int, str] | None:
        most = _SMALL + (self.max_upload if _takes_file(path) else 0)
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
    """Compare without telling by the time it takes how much was right."""
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
    return f"The file is larger than {size_in_words(most)}, which is the most this server takes. Send a part of it."


class _Answer:
    """Sends an answer with the headers that all have, or a refusal instead of it."""

    def __init__(self, send: Send, statuses: Counter[int]) -> None:
        self._send, self._statuses = send, statuses
        self.started = False
        self.refusal: tuple[int, str] | None = None

    async def __call__(self, message: Message) -> None:
        if self.refusal is not None and not self.started:
            await self.refuse(*self.refusal)
        if self.refusal is not None:
            return
        if message["type"] == "http.response.start":
            self.started = True
            self._statuses[message["status"]] += 1
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)

    async def refuse(self, status: int, detail: str) -> None:
        """Answer with an error in the form that all errors have."""
        self.started, self.refusal = True, (status, detail)
        self._statuses[status] += 1
        body = json.dumps({"detail": detail}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **_HEADERS}
        headers |= {"www-authenticate": "Bearer"} if status == 401 else {}
        headers |= {"connection": "close"} if status == 413 else {}
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})
        await self._send({"type": "http.response.body", "body": body})


class _Weighed:
    """Passes on what is received, until it is too much."""

    def __init__(self, receive: Receive, most: int, answer: _Answer, max_upload: int) -> None:
        self._receive, self._left, self._answer, self._max_upload = receive, most, answer, max_upload

    async def __call__(self) -> Any:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            self._answer.refusal = 413, _too_large(self._max_upload)
            raise ValueError("the request is too large")
        return message
