"""Bounds on what a client sends: how slowly a request may come in, and how large its head may be.

uvicorn has neither. Its parser keeps each header until the head is whole, so a head without end would fill the memory,
and a connection that never sends a request would stay open for ever.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HEAD_BYTES", "LEAST_RATE", "bounded"]

HEAD_BYTES = 256 << 10
"""Bytes of a request's first line and headers; over it the answer is 431. Clients send some kilobytes."""

LEAST_RATE = 500
"""Bytes per second that a request has to come in with on average, after the first `client_timeout` seconds."""


class _Bounded(HttpToolsProtocol):
    """One connection. A request that takes longer than it may is answered 408 and the connection closed."""

    def __init__(self, *args: Any, client_timeout: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seconds = client_timeout
        self._deadline = 0.0
        self._head = self._size = 0
        self._waiting = True  # for a request, or for the rest of one
        self._begun = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.time() + self._seconds
        self._timer = self.loop.call_later(self._seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        before = self._head
        super().data_received(data)
        # -1 once the head is whole; until then all that came is part of it.
        if self._waiting and self._head >= 0 and before >= 0:
            self._head += len(data)
            if self._head > HEAD_BYTES:
                self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._waiting, self._begun, self._head, self._size = True, True, 0, 0
        self._deadline = self.loop.time() + self._seconds
        if self._timer is None:
            self._timer = self.loop.call_later(self._seconds, self._look)

    def on_headers_complete(self) -> None:
        self._head = -1
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._waiting = False
        super().on_message_complete()

    def _look(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        if self.flow.read_paused:
            # The upstream, not the client, is slow to take the body.
            self._deadline = self.loop.time() + self._seconds
        left = self._deadline + self._size / LEAST_RATE - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
        elif self._begun:
            self._refuse(b"408 Request Timeout")
        else:
            self.transport.close()  # it never asked for anything

    def _refuse(self, status: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._head >= 0 or not self.cycle.response_started:
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()


def bounded(client_timeout: float) -> type[asyncio.Protocol]:
    """What uvicorn makes for each connection.

    `client_timeout`: seconds in which a request, its body included, has to come in; each 500 bytes give one more.
    """
    return cast("type[asyncio.Protocol]", partial(_Bounded, client_timeout=client_timeout))
