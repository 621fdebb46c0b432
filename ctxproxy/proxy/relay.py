"""One request on its way: read, decide, send, hold back as little as needed, pass on byte for byte."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import aiohttp

from ctxproxy import rawjson
from ctxproxy.conversation import Api
from ctxproxy.engine import Answer, Effect, Outcome, Report, Send
from ctxproxy.errors import ConfigError, ContextOverflowError, WireFormatError
from ctxproxy.policy import Policy
from ctxproxy.proxy.bodies import BodyTooLarge, decode
from ctxproxy.proxy.errors import error_body
from ctxproxy.proxy.frames import Frames, verdict_of
from ctxproxy.proxy.headers import control, lower, own, request_headers, response_headers
from ctxproxy.proxy.upstreams import Upstream, Upstreams, target
from ctxproxy.runtime import Runtime, account_of
from ctxproxy.wire import detect

__all__ = ["Broken", "ClientGone", "Exchange", "Guard", "Relay", "Seen"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Sender = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = logging.getLogger("ctxproxy.proxy")
_ERROR_BYTES = 1 << 20  # of an error body that is read to be understood
_HOLD_BYTES = 16 << 10
_HOLD_SECONDS = 1.0


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


@dataclass(slots=True)
class Exchange:
    """The upstream's response, with the chunks that were read ahead of the relay."""

    response: aiohttp.ClientResponse
    early: list[bytes] = field(default_factory=list[bytes])
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one measured request came to, for whoever watches."""

    id: str
    api: Api
    account: str
    session: str
    agent: str
    upstream: str
    status: int
    report: Report | None
    outcome: Outcome | None
    overhead_seconds: float


class Watch(Protocol):
    """Called once for each measured request."""

    def __call__(self, seen: Seen) -> None: ...


class Relay:
    """Relays requests to the upstreams, the measured ones through the engine.

    Args:
        max_body: bytes of a measured request; larger ones are answered 413.
        policies: gives the policy of a request, by the value of `x-ctxproxy-policy`, the upstream and the model.
    """

    def __init__(
        self,
        *,
        runtime: Runtime,
        upstreams: Upstreams,
        session: aiohttp.ClientSession,
        max_body: int = 64 << 20,
        policies: Callable[[str | None, Upstream, str], Policy] | None = None,
        accounts: Callable[[dict[str, str]], str] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.runtime = runtime
        self.upstreams = upstreams
        self.session = session
        self.max_body = max_body
        self.policies = policies
        self.accounts = accounts
        self.watch = watch
        self.faults = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Sender) -> None:
        """Relay one ASGI request."""
        path: str = scope["path"]
        api = detect(path) if scope["method"] == "POST" else None
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        names: dict[str, str] = scope["ctxproxy.headers"]
        try:
            with Guard(receive) as guard:
                if api is None or control(names, "bypass") is not None:
                    await self._pass(scope, receive, send, headers, names, guard)
                else:
                    await self._measured(scope, receive, send, headers, names, api, guard)
        except ClientGone:
            return
        except BodyTooLarge as error:
            await _answer(send, 413, error_body(api or "chat", 413, str(error)))
        except ConfigError as error:
            await _answer(send, 400, error_body(api or "chat", 400, str(error)))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            upstream = self.upstreams.pick(path=path, api=api, model="", headers=names)
            what = f"the upstream {upstream.name} ({upstream.base_url}) can't be reached: {type(error).__name__}"
            _log.warning("%s: %s", what, error)
            await _answer(
                send, 502, error_body(api or "chat", 502, f"{what} (setting: upstreams.{upstream.name}.base_url)")
            )

    # -- everything that is not measured

    async def _pass(
        self,
        scope: Scope,
        receive: Receive,
        send: Sender,
        headers: list[tuple[bytes, bytes]],
        names: dict[str, str],
        guard: Guard,
    ) -> None:
        upstream = self.upstreams.pick(path=scope["path"], api=None, model="", headers=names)
        body, length = await _streamed_body(receive, names, guard)
        response = await self.request(scope, upstream, request_headers(headers, edited=False, length=length), body)
        try:
            await _respond(send, Exchange(response), response_headers(response.raw_headers))
        finally:
            response.close()

    # -- what is measured

    async def _measured(
        self,
        scope: Scope,
        receive: Receive,
        send: Sender,
        headers: list[tuple[bytes, bytes]],
        names: dict[str, str],
        api: Api,
        guard: Guard,
    ) -> None:
        raw = await _whole_body(receive, names, limit=self.max_body)
        guard.begin()
        began = time.perf_counter()
        body = raw
        encoding = names.get("content-encoding")
        if encoding:
            body = decode(raw, encoding, limit=self.max_body) or b""
        model = _model(body) if self.upstreams.by_model else ""
        upstream = self.upstreams.pick(path=scope["path"], api=api, model=model, headers=names)
        policy = self._policy(control(names, "policy"), upstream, model)
        account = self.accounts(names) if self.accounts else account_of(names, secret=self.runtime.secret)
        call = self.runtime.call(
            api=api,
            body=body,
            upstream=upstream.base_url,
            account=account,
            headers=names,
            policy=policy,
            window=upstream.window,
            rules=upstream.rules,
        )
        work = _Work(self, scope, headers, upstream, raw, api, stream=b'"stream"' in body)
        try:
            outcome = await work.drive(call)
        except ContextOverflowError as error:
            overhead = time.perf_counter() - began - work.waited
            await _answer(
                send,
                400,
                error_body(api, 400, str(error), code="context_length_exceeded", fields=error.fields()),
                extra=own(None, id=work.id, overhead_ms=overhead * 1e3),
            )
            self._seen(work, names, account, 400, None, None, overhead)
            return
        exchange: Exchange = outcome.answer.handle
        try:
            overhead = time.perf_counter() - began - work.waited
            extra = own(outcome.report, id=work.id, overhead_ms=overhead * 1e3)
            self._seen(work, names, account, exchange.response.status, outcome.report, outcome, overhead)
            await _respond(send, exchange, [*response_headers(exchange.response.raw_headers), *extra])
        finally:
            exchange.response.close()

    def _policy(self, name: str | None, upstream: Upstream, model: str) -> Policy:
        return self.policies(name, upstream, model) if self.policies else self.runtime.policy

    def _seen(
        self,
        work: _Work,
        names: dict[str, str],
        account: str,
        status: int,
        report: Report | None,
        outcome: Outcome | None,
        overhead: float,
    ) -> None:
        if self.watch is None:
            return
        self.watch(
            Seen(
                id=work.id,
                api=work.api,
                account=account,
                session=control(names, "session") or "",
                agent=control(names, "agent") or "",
                upstream=work.upstream.name,
                status=status,
                report=report,
                outcome=outcome,
                overhead_seconds=overhead,
            )
        )

    # -- the network

    async def request(
        self, scope: Scope, upstream: Upstream, headers: Any, body: bytes | AsyncIterator[bytes] | None
    ) -> aiohttp.ClientResponse:
        if upstream.key is not None:
            for name in ("authorization", "x-api-key", "api-key"):
                headers.popall(name, None)
            if upstream.wires == ("messages",):
                headers.add("x-api-key", upstream.key)
            else:
                headers.add("Authorization", f"Bearer {upstream.key}")
        return await self.session.request(
            scope["method"],
            target(upstream, scope.get("raw_path") or scope["path"].encode(), scope["query_string"]),
            headers=headers,
            data=body,
            allow_redirects=False,
        )


class Broken(Exception):
    """The upstream's response ended early; uvicorn closes the client's connection."""


class _Work:
    """Carries out the effects of one measured request."""

    def __init__(
        self,
        relay: Relay,
        scope: Scope,
        headers: list[tuple[bytes, bytes]],
        upstream: Upstream,
        raw: bytes,
        api: Api,
        *,
        stream: bool,
    ) -> None:
        self.relay = relay
        self.scope = scope
        self.headers = headers
        self.upstream = upstream
        self.raw = raw
        self.api = api
        self.stream = stream
        self.id = secrets.token_hex(8)
        self.waited = 0.0
        self.open: Exchange | None = None
        self.original = b""

    async def drive(self, call: Any) -> Outcome:
        """Run the engine; a fault of ours sends the original, once."""
        self.original = call.body
        steps = self.relay.runtime.engine.run(call)
        try:
            effect = next(steps)
            while True:
                effect = steps.send(await self.perform(effect))
        except StopIteration as stop:
            return stop.value
        except (ContextOverflowError, ClientGone, aiohttp.ClientError, TimeoutError, OSError):
            raise
        except Exception:
            # Fail open: a bug of ours must not cost the user the request.
            self.relay.faults += 1
            _log.exception("a fault in ctxproxy; the original request is sent")
            if self.open is not None:
                self.open.response.close()
            return Outcome(answer=await self.send(Send(self.original, 1)), report=None)

    async def perform(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            return await self.send(effect)
        return self.relay.runtime.perform(effect)

    async def send(self, effect: Send) -> Answer:
        if self.open is not None:
            self.open.response.close()
        edited = effect.body is not self.original
        began = time.perf_counter()
        response = await self.relay.request(
            self.scope,
            self.upstream,
            request_headers(self.headers, edited=edited, length=None),
            effect.body if edited else self.raw,
        )
        self.open = Exchange(response)
        try:
            return await self._look(self.open)
        finally:
            self.waited += time.perf_counter() - began

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


async def _respond(send: Sender, exchange: Exchange, headers: list[tuple[bytes, bytes]]) -> None:
    """Pass the response on as it arrives. A broken upstream breaks the client's connection the same way."""
    await send({"type": "http.response.start", "status": exchange.response.status, "headers": headers})
    content = exchange.response.content
    try:
        for chunk in exchange.early:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        while not exchange.ended:
            chunk = await content.readany()
            exchange.ended = content.at_eof()
            await send({"type": "http.response.body", "body": chunk, "more_body": not exchange.ended})
        if exchange.early and exchange.ended:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        # The status is out: only a broken connection tells the client that the answer is not whole.
        raise Broken(f"the upstream broke off: {type(error).__name__}") from error


def _model(body: bytes) -> str:
    try:
        value = rawjson.load(rawjson.members(body).get("model", b'""'))
    except WireFormatError:
        return ""
    return value if isinstance(value, str) else ""


async def _gone(receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return


async def _whole_body(receive: Receive, names: dict[str, str], *, limit: int) -> bytes:
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


async def _streamed_body(
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


async def _answer(send: Sender, status: int, body: bytes, extra: list[tuple[bytes, bytes]] | None = None) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *(extra or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
