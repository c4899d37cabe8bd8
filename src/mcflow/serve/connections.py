"""Connections of the server, which have to send the headers of a request in time."""

from __future__ import annotations

__all__ = ["TimedProtocol"]

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds within which a connection has to send the headers of a request.
HEADER_SECONDS = 20.0

_LATE = b'{"detail": "The headers of the request did not arrive in time."}'
_ANSWER = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_LATE), _LATE)
)


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
