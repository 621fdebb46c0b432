"""The beginning of a streamed answer, held back until it says whether the call failed, then handed on as it came.

The transport's chunks are kept, not their decoded form: the response replays them byte for byte and reads the
rest from the connection itself.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import lru_cache
from importlib import import_module
from itertools import chain
from threading import Thread
from typing import TYPE_CHECKING, Any

import zstandard

from ctxproxy.conversation import Api
from ctxproxy.frames import Frame, Frames, Tail, verdict_of

if TYPE_CHECKING:
    import httpx2

__all__ = ["HOLD_BYTES", "HOLD_SECONDS", "Tap", "Watch", "ahold", "failed", "hold", "usage_of", "watch"]

Usage = Mapping[str, Any]

HOLD_BYTES = 16 << 10
HOLD_SECONDS = 1.0
_SMALL = 64 << 10  # bytes of an HTTP 200 body that may be an error


class Watch:
    """Reads a copy of a stream until it is decided; `event` and `data` are then those of a failure, if it is one.

    `begun` once an event came: comments before it (`: keep-alive`) mean nothing to a reader of events.
    """

    def __init__(self, api: Api, decode: Callable[[bytes], bytes]) -> None:
        self.begun = False
        self.decided = False
        self.event: str | None = None
        self.data = b""
        self._api: Api = api
        self._decode = decode
        self._frames = Frames()
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        """The next chunk as it came from the connection."""
        self._size += len(chunk)
        try:
            self._read(self._decode(chunk))
        except (zlib.error, zstandard.ZstdError):
            self.decided = True
        if self._size >= HOLD_BYTES:
            self.decided = True

    def end(self) -> None:
        """The stream is over: an event that lacks its empty line counts too."""
        self._read(b"\n\n")
        self.decided = True

    def _read(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            self.begun = True
            verdict = verdict_of(frame, self._api)
            if verdict is None or self.decided:
                continue
            self.decided = True
            if verdict:
                self.event, self.data = verdict, frame.data


class Tap:
    """Reads a copy of a stream to its end for what it says about its usage; `done` is called once, with that."""

    def __init__(self, api: Api, encoding: str, done: Callable[[Usage | None, str | None], None]) -> None:
        self._tail = Tail(api, stream=True)
        self._decode = _decoder(encoding)
        self._done: Callable[[Usage | None, str | None], None] | None = done

    def feed(self, chunk: bytes) -> None:
        """The next chunk as it came from the connection."""
        if self._decode is None:
            return
        try:
            self._tail.feed(self._decode(chunk))
        except (zlib.error, zstandard.ZstdError):
            self._decode = None

    def end(self) -> None:
        """The stream is over, or nobody reads on."""
        done, self._done = self._done, None
        if done is not None:
            done(*self._tail.result())


def usage_of(response: httpx2.Response, api: Api) -> tuple[Usage | None, str | None]:
    """The usage and the stop reason that an answer, read, states."""
    tail = Tail(api, stream=False)
    tail.feed(response.content)
    return tail.result()


def watch(response: httpx2.Response, api: Api) -> Watch | None:
    """A watch for an answer that is a stream of events, None where it is not or can't be read along."""
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        return None
    decode = _decoder(response.headers.get("content-encoding", ""))
    return Watch(api, decode) if decode is not None else None


def failed(response: httpx2.Response, api: Api) -> str | None:
    """The kind of error that an HTTP 200 answer, read, is in truth; None for an answer."""
    body = response.content
    if len(body) > _SMALL or b'"error"' not in body:
        return None
    return verdict_of(Frame("", body), api) or None


def _decoder(encoding: str) -> Callable[[bytes], bytes] | None:
    encoding = encoding.strip().lower()
    if encoding in ("identity", ""):
        return lambda chunk: chunk
    if encoding in ("gzip", "x-gzip"):
        return zlib.decompressobj(31).decompress
    if encoding == "deflate":
        return zlib.decompressobj().decompress
    if encoding == "zstd":
        return zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj().decompress
    return None


# -- sync


def hold(response: httpx2.Response, seen: Watch) -> None:
    """Read the stream until `seen` is decided, and put a stream in its place that begins anew.

    Only what has come already is held: while nothing is there, the caller waits for the model either way. The
    time limit counts from the first event.
    """
    inner: Any = response.stream
    source: Iterator[bytes] = iter(inner)
    early: list[bytes] = []
    rest: Iterator[bytes] = source
    until = 0.0
    while not seen.decided:
        try:
            if not seen.begun:
                chunk = next(source, None)
            else:
                reading = _read_aside(source)
                if not wait((reading,), until - time.monotonic()).done:
                    rest = _after(reading, source)
                    break
                chunk = reading.result()
        except Exception as error:
            # It breaks where it would have broken: while the caller reads.
            rest = _broken(error)
            break
        if chunk is None:
            seen.end()
            rest = iter(())
            break
        early.append(chunk)
        if not seen.begun:
            until = time.monotonic() + HOLD_SECONDS
        seen.feed(chunk)
    response.stream = _held(_library(response))[0](early, rest, inner)


def _read_aside(source: Iterator[bytes]) -> Future[bytes | None]:
    """Read one chunk in a thread: a blocking read can't be given up, only left to whoever reads on."""
    reading: Future[bytes | None] = Future()

    def read() -> None:
        try:
            reading.set_result(next(source, None))
        except BaseException as error:
            reading.set_exception(error)

    Thread(target=read, name="ctxproxy-hold", daemon=True).start()
    return reading


def _after(reading: Future[bytes | None], source: Iterator[bytes]) -> Iterator[bytes]:
    chunk = reading.result()
    if chunk is not None:
        yield chunk
        yield from source


def _broken(error: Exception) -> Iterator[bytes]:
    raise error
    yield b""


# -- async


async def ahold(response: httpx2.Response, seen: Watch) -> None:
    """`hold` for coroutines. On an event loop other than asyncio's the time limit is not kept."""
    inner: Any = response.stream
    source: AsyncIterator[bytes] = aiter(inner)
    early: list[bytes] = []
    rest: AsyncIterator[bytes] = source
    reading: asyncio.Future[bytes | None] | None = None
    until = 0.0
    while not seen.decided:
        try:
            if not seen.begun or not _on_asyncio():
                chunk = await anext(source, None)
            else:
                reading = asyncio.ensure_future(_next(source))
                if not await _within(reading, until - time.monotonic()):
                    rest = _aafter(reading, source)
                    break
                chunk = reading.result()
        except Exception as error:
            rest = _abroken(error)
            break
        if chunk is None:
            seen.end()
            rest = _nothing()
            break
        early.append(chunk)
        if not seen.begun:
            until = time.monotonic() + HOLD_SECONDS
        seen.feed(chunk)
    response.stream = _held(_library(response))[1](early, rest, inner, reading)


async def _next(source: AsyncIterator[bytes]) -> bytes | None:
    return await anext(source, None)


async def _within(reading: asyncio.Future[bytes | None], seconds: float) -> bool:
    """Whether a read ends in time; it goes on if not."""
    try:
        done, _ = await asyncio.wait((reading,), timeout=max(0.0, seconds))
    except BaseException:
        reading.cancel()
        raise
    return bool(done)


def _on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _aafter(reading: asyncio.Future[bytes | None], source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    chunk = await reading
    if chunk is not None:
        yield chunk
        async for more in source:
            yield more


async def _abroken(error: Exception) -> AsyncIterator[bytes]:
    raise error
    yield b""


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


# -- what the response reads instead


def _library(response: Any) -> str:
    kind = next(k for k in type(response).__mro__ if k.__name__ == "Response")
    return kind.__module__.partition(".")[0]


@lru_cache(maxsize=4)
def _held(library: str) -> tuple[Any, Any]:
    """The held streams as that library's own kind, which its responses ask for."""
    httpx: Any = import_module(library)

    class HeldStream(httpx.SyncByteStream):
        def __init__(self, early: Sequence[bytes], rest: Iterator[bytes], inner: Any) -> None:
            self._early, self._rest, self._inner = early, rest, inner
            self.tap: Tap | None = None

        @property
        def elapsed(self) -> Any:
            return getattr(self._inner, "elapsed", None)

        def __iter__(self) -> Iterator[bytes]:
            early, self._early = self._early, ()
            for chunk in chain(early, self._rest):
                if self.tap is not None:
                    self.tap.feed(chunk)
                yield chunk

        def close(self) -> None:
            self._inner.close()
            if self.tap is not None:
                self.tap.end()

    class AsyncHeldStream(httpx.AsyncByteStream):
        def __init__(
            self,
            early: Sequence[bytes],
            rest: AsyncIterator[bytes],
            inner: Any,
            reading: asyncio.Future[bytes | None] | None,
        ) -> None:
            self._early, self._rest, self._inner, self._reading = early, rest, inner, reading
            self.tap: Tap | None = None

        @property
        def elapsed(self) -> Any:
            return getattr(self._inner, "elapsed", None)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            early, self._early = self._early, ()
            for chunk in early:
                if self.tap is not None:
                    self.tap.feed(chunk)
                yield chunk
            async for chunk in self._rest:
                if self.tap is not None:
                    self.tap.feed(chunk)
                yield chunk

        async def aclose(self) -> None:
            reading = self._reading
            if reading is not None and not reading.done():
                reading.cancel()
                await asyncio.wait((reading,))
            await self._inner.aclose()
            if self.tap is not None:
                self.tap.end()

    return HeldStream, AsyncHeldStream
