"""The ASGI side of one request: its body, its answer, and a client that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from ctxproxy.bodies import BodyTooLarge

__all__ = ["ClientGone", "Guard", "Receive", "Scope", "Sender", "send_answer", "streamed_body", "whole_body"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Sender = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ClientGone(Exception):
    """The client closed its connection."""


class Guard:
    """Cancels the request's task as soon as the client goes away: nobody would read the answer.

    As a context manager it turns that cancellation into ClientGone. `begin` starts to watch, once the
    request's body is read.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._gone = False

    def begin(self) -> None:
        self._watcher = asyncio.create_task(_gone(self._receive))
        self._watcher.add_done_callback(self._stop)

    def _stop(self, watcher: asyncio.Task[None]) -> None:
        if not watcher.cancelled() and self._task is not None:
            self._gone = True
            self._task.cancel()

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._watcher is not None:
            self._watcher.remove_done_callback(self._stop)
            self._watcher.cancel()
        if self._gone and self._task is not None:
            self._task.uncancel()
            raise ClientGone


async def _gone(receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return


async def whole_body(receive: Receive, names: dict[str, str], *, limit: int) -> bytes:
    stated = names.get("content-length")
    if stated and stated.isdigit() and int(stated) > limit:
        raise BodyTooLarge(limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(limit)
        chunks.append(chunk)
        if not message.get("more_body"):
            return b"".join(chunks) if len(chunks) > 1 else chunks[0]


async def streamed_body(
    receive: Receive, names: dict[str, str], guard: Guard
) -> tuple[AsyncIterator[bytes] | None, bytes | None]:
    """The body as it arrives, with its stated length; None where there is none."""
    length = names.get("content-length")
    if (length is None or length == "0") and "transfer-encoding" not in names:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if not message.get("body") and not message.get("more_body"):
            guard.begin()
            return None, b"0" if length == "0" else None

    async def chunks() -> AsyncIterator[bytes]:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                guard.begin()
                return

    return chunks(), length.encode() if length else None


async def send_answer(send: Sender, status: int, body: bytes, extra: list[tuple[bytes, bytes]] | None = None) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *(extra or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
