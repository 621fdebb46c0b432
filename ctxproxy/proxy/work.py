"""The work of one measured request: the engine's effects over the network, and the response on its way back."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from ctxproxy.bodies import decode
from ctxproxy.conversation import Api
from ctxproxy.effects import Answer, Await, Call, Count, Effect, Keep, KeepForms, Outcome, Remember, Send, Summarize
from ctxproxy.errors import ConfigError, ContextOverflowError
from ctxproxy.frames import Frames, Tail, verdict_of
from ctxproxy.proxy.asgi import ClientGone, Sender
from ctxproxy.proxy.headers import lower
from ctxproxy.proxy.translate import Translated
from ctxproxy.runtime import Runtime
from ctxproxy.served import Question

__all__ = ["Broken", "Exchange", "Fetch", "Flights", "Response", "Work", "pass_on"]

Ask = Callable[[Question], Awaitable[bytes | None]]
Response = aiohttp.ClientResponse | Translated
Fetch = Callable[[bytes, bool], Awaitable[Response]]

_log = logging.getLogger("ctxproxy.proxy")
_ERROR_BYTES = 1 << 20  # of an error body that is read to be understood
_SUMMARY_BYTES = 4 << 20  # of the answer to a summary call
_HOLD_BYTES = 16 << 10
_HOLD_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_HEAVY_BYTES = 256 << 10  # of a body that is not read on the event loop


@dataclass(slots=True)
class Exchange:
    """The upstream's response, with the chunks that were read ahead of the relay."""

    response: Response
    early: list[bytes] = field(default_factory=list[bytes])
    ended: bool = False


class Broken(Exception):
    """The upstream's response ended early; uvicorn closes the client's connection."""


class Flights:
    """Calls under way: those with the same key at the same time are one."""

    def __init__(self) -> None:
        self._flights: dict[object, asyncio.Future[Any]] = {}

    async def share(self, key: object, work: Callable[[], Awaitable[Any]]) -> Any:
        """The result of the call with that key, started by whoever comes first."""
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.ensure_future(work())
            self._flights[key] = flight
            flight.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(flight)

    def _ended(self, key: object, flight: asyncio.Future[Any]) -> None:
        self._flights.pop(key, None)
        if not flight.cancelled():
            flight.exception()  # looked at: nobody may be waiting for it any more, and asyncio would complain


@dataclass(frozen=True, slots=True)
class _Done:
    """What a generator of the engine returned."""

    value: Any


def _step(steps: Generator[Effect, Any, Any], answer: Any) -> Effect | _Done:
    try:
        return steps.send(answer)
    except StopIteration as stop:
        return _Done(stop.value)


async def _here(steps: Generator[Effect, Any, Any], answer: Any) -> Effect | _Done:
    return _step(steps, answer)


async def _in_a_thread(steps: Generator[Effect, Any, Any], answer: Any) -> Effect | _Done:
    """A large body is measured, and perhaps compacted, beside the event loop: other requests go on meanwhile."""
    return await asyncio.to_thread(_step, steps, answer)


class Work:
    """Carries out the effects of one measured request.

    Args:
        fetch: sends a body upstream, the second argument says whether it is other than the client's.
        ask: sends a small question of our own to the upstream.
        raw: the body as it came, which may be compressed.
    """

    def __init__(
        self, *, runtime: Runtime, fetch: Fetch, ask: Ask, flights: Flights, raw: bytes, api: Api, stream: bool
    ) -> None:
        self.runtime = runtime
        self.fetch = fetch
        self.ask = ask
        self.flights = flights
        self.raw = raw
        self.api: Api = api
        self.stream = stream
        self.id = secrets.token_hex(8)
        self.waited = 0.0
        self.fault = False
        self.open: Exchange | None = None
        self.original = b""

    async def drive(self, call: Call) -> Outcome:
        """Run the engine; a fault of ours sends the original, once."""
        self.original = call.body
        steps = self.runtime.engine.run(call)
        advance = _in_a_thread if len(call.body) > _HEAVY_BYTES else _here
        try:
            step = await advance(steps, None)
            while not isinstance(step, _Done):
                step = await advance(steps, await self.perform(step))
            return step.value
        except (ConfigError, ContextOverflowError, ClientGone, aiohttp.ClientError, TimeoutError, OSError):
            raise
        except Exception:
            # Fail open: a bug of ours must not cost the user the request.
            self.fault = True
            _log.exception("a fault in ctxproxy; the original request is sent")
            if self.open is not None:
                self.open.response.close()
            return Outcome(answer=await self.send(Send(self.original, 1)), report=None)

    async def ahead(self, call: Call) -> None:
        """Prepare a summary in the background; a failure costs nothing but the summary."""
        steps = self.runtime.engine.summarize_ahead(call)
        try:
            step = await _in_a_thread(steps, None)
            while not isinstance(step, _Done):
                step = await _in_a_thread(steps, await self.perform(step))
        except Exception:
            _log.exception("a fault while a summary was prepared")

    async def perform(self, effect: Effect) -> Any:
        began = time.perf_counter()
        if isinstance(effect, Send):
            answer = await self.send(effect)
        elif isinstance(effect, Summarize):
            answer = await self.summarize(effect)
        elif isinstance(effect, Count):
            answer = await self.count(effect)
        elif isinstance(effect, Await):
            answer = await _until(effect)
        elif isinstance(effect, (Keep, KeepForms, Remember)) and self.runtime.on_disk:
            # A file that another process holds locked must not hold up every other request.
            return await asyncio.to_thread(self.runtime.perform, effect)
        else:
            return self.runtime.perform(effect)
        self.waited += time.perf_counter() - began
        return answer

    async def count(self, effect: Count) -> Answer | None:
        """What the provider's counter says; None where it fails or takes too long."""
        try:
            async with asyncio.timeout(effect.seconds):
                body = await self.flights.share(effect.key, lambda: self._counted(effect))
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
        return Answer(status=200, body=body) if body is not None else None

    async def _counted(self, effect: Count) -> bytes | None:
        async with asyncio.timeout(2 * effect.seconds):
            return await self.ask(effect.question)

    async def summarize(self, effect: Summarize) -> Answer | None:
        """One summary call with the client's own headers; None where it fails or takes too long."""
        try:
            async with asyncio.timeout(effect.seconds):
                return await self.flights.share(effect.key, lambda: self._ask(effect))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.warning("a summary call failed: %s", type(error).__name__)
            return None

    async def _ask(self, effect: Summarize) -> Answer | None:
        async with asyncio.timeout(2 * effect.seconds):
            response = await self.fetch(effect.body, True)
            try:
                body = await response.content.read(_SUMMARY_BYTES)
                while len(body) < _SUMMARY_BYTES and not response.content.at_eof():
                    body += await response.content.readany()
            finally:
                response.close()
        headers = lower(response.raw_headers)
        plain = decode(body, headers.get("content-encoding", ""), limit=_SUMMARY_BYTES) or b""
        return Answer(status=response.status, headers=headers, body=plain)

    async def send(self, effect: Send) -> Answer:
        if self.open is not None:
            self.open.response.close()
        edited = effect.body is not self.original
        response = await self.fetch(effect.body if edited else self.raw, edited)
        self.open = Exchange(response)
        return await self._look(self.open)

    async def _look(self, exchange: Exchange) -> Answer:
        """Read of the answer what the engine has to know: an error's body, or a stream's first event."""
        response = exchange.response
        headers = lower(response.raw_headers)
        if response.status >= 400:
            await self._read_error(exchange)
            body = b"".join(exchange.early)
            encoding = headers.get("content-encoding")
            if encoding:
                body = decode(body, encoding, limit=_ERROR_BYTES) or b""
            return Answer(status=response.status, headers=headers, body=body, handle=exchange)
        if (
            self.stream
            and headers.get("content-type", "").startswith("text/event-stream")
            and headers.get("content-encoding", "identity") == "identity"
        ):
            return await self._hold(exchange, headers)
        return Answer(status=response.status, headers=headers, handle=exchange)

    async def _read_error(self, exchange: Exchange) -> None:
        size = 0
        async for chunk in exchange.response.content.iter_any():
            exchange.early.append(chunk)
            size += len(chunk)
            if size > _ERROR_BYTES:
                return
        exchange.ended = True

    async def _hold(self, exchange: Exchange, headers: dict[str, str]) -> Answer:
        """Hold a stream back until its first telling event, bounded in bytes and seconds."""
        frames, size = Frames(), 0
        plain = Answer(status=exchange.response.status, headers=headers, handle=exchange)
        deadline = asyncio.get_running_loop().time() + _HOLD_SECONDS
        while size < _HOLD_BYTES:
            try:
                # Only what was read already is held: an upstream that is silent holds the client anyway.
                async with asyncio.timeout_at(deadline if exchange.early else None):
                    chunk = await exchange.response.content.readany()
            except TimeoutError:
                return plain
            if not chunk:
                exchange.ended = True
                return plain
            exchange.early.append(chunk)
            size += len(chunk)
            for frame in frames.feed(chunk):
                verdict = verdict_of(frame, self.api)
                if verdict == "":
                    return plain
                if verdict:
                    return replace(plain, body=frame.data, event=verdict)
        return plain


async def _until(effect: Await) -> None:
    """What is waited for may happen in another process, so it is looked at from time to time."""
    deadline = time.monotonic() + effect.seconds
    while effect.pending() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_SECONDS)


async def pass_on(
    send: Sender, exchange: Exchange, headers: list[tuple[bytes, bytes]], tail: Tail | None = None
) -> None:
    """Pass the response on as it arrives. A broken upstream breaks the client's connection the same way."""
    await send({"type": "http.response.start", "status": exchange.response.status, "headers": headers})
    content = exchange.response.content
    try:
        for chunk in exchange.early:
            if tail is not None:
                tail.feed(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if exchange.ended:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        while not exchange.ended:
            chunk = await content.readany()
            exchange.ended = content.at_eof()
            if tail is not None:
                tail.feed(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": not exchange.ended})
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        # The status is out: only a broken connection tells the client that the answer is not whole.
        raise Broken(f"the upstream broke off: {type(error).__name__}") from error
