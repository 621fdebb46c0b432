"""A loopback HTTP/1.1 server that controls every byte of its answers.

A framework server (uvicorn) cannot cut a body in the middle, keep the case and order of the request's
headers, or choose where an HTTP chunk ends; the relay's tests need all three. So this is a small asyncio
server in a thread of its own: one handler, requests read whole, bodies kept up to a bound and hashed beyond it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

__all__ = ["BadHttp", "Handler", "LoopbackServer", "Reply", "Request"]

_HEAD_LIMIT = 1 << 20  # bytes of a request head; a client with a huge cookie still gets through
_READ = 1 << 16


class BadHttp(Exception):
    """The peer sent something that is no HTTP/1.1 request."""


@dataclass(slots=True)
class Request:
    """One request as it came: `target` undecoded, `headers` in order, with case and duplicates.

    `body` holds at most the server's `keep` bytes; `size` (bytes) and `sha256` (hex) are those of the whole body.
    """

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    size: int = 0
    sha256: str = hashlib.sha256().hexdigest()
    disconnected: threading.Event = field(default_factory=threading.Event)
    # what the provider made of it
    wire: str = ""
    tokens: int = 0
    violations: list[Any] = field(default_factory=list)
    fault: Any = None
    status: int = 0  # of the answer
    plain: bytes | None = None  # the body without its content-encoding

    @property
    def path(self) -> str:
        """The path, still percent-encoded."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    @property
    def params(self) -> dict[str, str]:
        return dict(parse_qsl(self.query, keep_blank_values=True))

    def header(self, name: str, default: str = "") -> str:
        """The first value of a header, by its name in any case."""
        return next((v for k, v in self.headers if k.lower() == name.lower()), default)

    def json(self) -> Any:
        """The decoded body; ValueError if it is no JSON."""
        return json.loads(self.body if self.plain is None else self.plain)


class Reply:
    """Writes one response. `start` then `write`, then `end`; or `abort` at any point."""

    def __init__(self, writer: asyncio.StreamWriter, *, head_only: bool = False) -> None:
        self._writer = writer
        self._chunked = False
        self._head_only = head_only
        self.started = False
        self.ended = False
        self.keep_alive = True

    async def start(self, status: int, headers: list[tuple[str, str]], length: int | None = None) -> None:
        """Send the head; `length` in bytes, or None for a chunked body."""
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = "Overloaded" if status == 529 else "Unknown"
        bodiless = status in (204, 304)
        self._chunked = length is None and not bodiless
        framing = (
            []
            if bodiless
            else [("transfer-encoding", "chunked") if length is None else ("content-length", str(length))]
        )
        if not self.keep_alive:
            framing.append(("connection", "close"))
        lines = [f"HTTP/1.1 {status} {phrase}", *(f"{k}: {v}" for k, v in [*headers, *framing])]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        self.started = True
        await self._writer.drain()

    async def write(self, data: bytes, split: int | None = None) -> None:
        """Send body bytes, each `split` bytes as an HTTP chunk and a write of their own."""
        if self._head_only:
            return
        for part in [data] if not split else [data[i : i + split] for i in range(0, len(data), split)]:
            if part:
                self._writer.write(b"%x\r\n%b\r\n" % (len(part), part) if self._chunked else part)
                await self._writer.drain()

    async def end(self) -> None:
        if self._chunked and not self._head_only:
            self._writer.write(b"0\r\n\r\n")
        self.ended = True
        await self._writer.drain()

    async def send(self, status: int, headers: list[tuple[str, str]], body: bytes, split: int | None = None) -> None:
        """A whole response with a Content-Length."""
        await self.start(status, headers, len(body))
        await self.write(body, split)
        await self.end()

    async def abort(self) -> None:
        """Close the connection as it is: the peer has the bytes written so far and then the end of the stream."""
        self.keep_alive = False
        self.ended = True
        self._writer.close()


Handler = Callable[[Request, Reply, "asyncio.StreamReader"], Awaitable[None]]


class LoopbackServer:
    """`handler(request, reply, reader)` for each request on 127.0.0.1, in a background thread.

    keep(target) -> bytes of the body to keep in memory. Errors of the handler are collected in `.errors`.
    """

    def __init__(self, handler: Handler, keep: Callable[[str], int]) -> None:
        self._handler = handler
        self._keep = keep
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.errors: list[BaseException] = []
        self.port = 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self.loop.run_forever, name="fake-provider", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self.loop).result(10)

    def stop(self) -> None:
        """Close the port and every connection, and end the thread."""
        if self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self._thread = None
        self.loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD_LIMIT)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self.loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except Exception as err:
            self.errors.append(err)
        finally:
            if not writer.is_closing():
                writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        request, version = _parse_head(head)
        if request.header("expect").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await _read_body(reader, request, self._keep(request.target))
        reply = Reply(writer, head_only=request.method == "HEAD")
        reply.keep_alive = version == "HTTP/1.1" and request.header("connection").lower() != "close"
        try:
            await self._handler(request, reply, reader)
        except ConnectionError:
            request.disconnected.set()
            raise
        except Exception as err:
            self.errors.append(err)
            if not reply.started:
                text = f"the fake provider's handler failed: {err!r}".encode()
                await reply.send(500, [("content-type", "text/plain")], text)
        if not reply.ended:
            await reply.abort()
        return reply.keep_alive


def _parse_head(head: bytes) -> tuple[Request, str]:
    lines = head[:-4].decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3:
        raise BadHttp(lines[0])
    pairs = [line.partition(":") for line in lines[1:]]
    return Request(parts[0], parts[1], [(k, v.strip(" \t")) for k, _, v in pairs]), parts[2]


async def _read_body(reader: asyncio.StreamReader, request: Request, keep: int) -> None:
    """Read the whole body; memory stays at `keep` bytes however long it is."""
    digest, kept = hashlib.sha256(), bytearray()

    async def take(count: int) -> None:
        while count:
            data = await reader.read(min(count, _READ))
            if not data:
                request.disconnected.set()
                raise asyncio.IncompleteReadError(b"", count)
            count -= len(data)
            request.size += len(data)
            digest.update(data)
            kept.extend(data[: max(0, keep - len(kept))])

    if "chunked" in request.header("transfer-encoding").lower():
        while count := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            await take(count)
            await reader.readuntil(b"\r\n")
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass  # trailers
    else:
        await take(int(request.header("content-length", "0")))
    request.body, request.sha256 = bytes(kept), digest.hexdigest()
