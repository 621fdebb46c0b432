"""The relay: picks the upstream, sends measured requests through the engine, and passes everything else on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from ctxproxy import rawjson
from ctxproxy.answers import error_body
from ctxproxy.bodies import BodyTooLarge, decode
from ctxproxy.conversation import Api
from ctxproxy.effects import Call, Outcome
from ctxproxy.errors import ConfigError, ContextOverflowError, WireFormatError
from ctxproxy.frames import Tail
from ctxproxy.monitor import Finished
from ctxproxy.policy import Policy
from ctxproxy.proxy.asgi import ClientGone, Guard, Receive, Scope, Sender, send_answer, streamed_body, whole_body
from ctxproxy.proxy.headers import control, own, request_headers, response_headers
from ctxproxy.proxy.network import Way, way
from ctxproxy.proxy.side import Asker, ask, credentials
from ctxproxy.proxy.translate import caller_key, translate
from ctxproxy.proxy.upstreams import Upstream, Upstreams, target
from ctxproxy.proxy.work import Exchange, Flights, Response, Work, pass_on
from ctxproxy.runtime import Runtime, account_of
from ctxproxy.wire import detect

__all__ = ["Relay"]

_log = logging.getLogger("ctxproxy.proxy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One measured request, for those who watch. `began` is on the clock of `time.perf_counter`."""

    work: Work
    call: Call
    names: dict[str, str]
    upstream: str
    account: str
    began: float

    @property
    def overhead(self) -> float:
        """Seconds so far that were not spent on waiting for the upstream."""
        return time.perf_counter() - self.began - self.work.waited

    def finished(self, status: int, outcome: Outcome | None, *, error: ContextOverflowError | None = None) -> Finished:
        return Finished(
            id=self.work.id,
            call=self.call,
            outcome=outcome,
            error=error,
            status=status,
            account=self.account,
            session=control(self.names, "session") or "",
            agent=control(self.names, "agent") or "",
            upstream=self.upstream,
            overhead=self.overhead,
        )


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
    ) -> None:
        self.runtime = runtime
        self.upstreams = upstreams
        self.session = session
        self.max_body = max_body
        self.policies = policies
        self.accounts = accounts
        self.faults = 0
        self.flights = Flights()
        # Made now, so that a wrong file is told at the start.
        self._ways = {
            u.name: way(u.base_url, name=u.name, ca_file=u.ca_file) for u in upstreams.configured if not u.translated
        }
        self.asker = Asker(session, runtime.engine.served, clock=runtime.clock)
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Close the connections and the stores."""
        await self.asker.close()
        await self.session.close()
        self.runtime.close()

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
            await send_answer(send, 413, error_body(api or "chat", 413, str(error)))
        except ConfigError as error:
            await send_answer(send, 400, error_body(api or "chat", 400, str(error)))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            upstream = self.upstreams.pick(path=path, api=api, model="", headers=names)
            what = f"the upstream {upstream.name} ({upstream.base_url}) can't be reached: {type(error).__name__}"
            setting = f"upstreams.{upstream.name}.base_url"
            if isinstance(error, aiohttp.ClientConnectorCertificateError):
                what += ": its certificate is not trusted"
                setting = f"upstreams.{upstream.name}.ca_file"
            _log.warning("%s: %s", what, error)
            await send_answer(send, 502, error_body(api or "chat", 502, f"{what} (setting: {setting})"))

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
        if upstream.translated:
            what = f"litellm translates requests to models only, not {scope['method']} {scope['path']}"
            await send_answer(send, 404, error_body("chat", 404, what))
            return
        body, length = await streamed_body(receive, names, guard)
        response = await self.request(scope, upstream, request_headers(headers, edited=False, length=length), body)
        try:
            await pass_on(send, Exchange(response), response_headers(response.raw_headers))
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
        raw = await whole_body(receive, names, limit=self.max_body)
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

        async def fetch(data: bytes, edited: bool) -> Response:
            if upstream.translated:
                key = upstream.key or caller_key(names)
                return await translate(api, data if edited else body, base_url=upstream.base_url, key=key)
            if policy.mode != "off":
                self.asker.look(upstream, names)
            return await self.request(scope, upstream, request_headers(headers, edited=edited, length=None), data)

        work = Work(
            runtime=self.runtime,
            fetch=fetch,
            ask=lambda question: ask(self.session, question, credentials(names, upstream)),
            flights=self.flights,
            raw=raw,
            api=api,
            stream=b'"stream"' in body,
        )
        told = Told(work=work, call=call, names=names, upstream=upstream.name, account=account, began=began)
        try:
            outcome = await work.drive(call)
        except ContextOverflowError as error:
            answer = error_body(api, 400, str(error), code="context_length_exceeded", fields=error.fields())
            await send_answer(send, 400, answer, extra=own(None, id=work.id, overhead_ms=told.overhead * 1e3))
            self.runtime.finished(told.finished(400, None, error=error))
            return
        finally:
            self.faults += work.fault
        if outcome.report is not None and outcome.report.faults:
            rule = outcome.report.faults[0]
            _log.error("an edit broke a rule (%s) and was not sent; the original was: please report this", rule)
        exchange: Exchange = outcome.answer.handle
        response = exchange.response
        stream = response.headers.get("content-type", "").startswith("text/event-stream")
        encoding = response.headers.get("content-encoding", "")
        tail = Tail(api, stream=stream, encoding=encoding) if outcome.prepared and response.status == 200 else None
        finished = told.finished(response.status, outcome)
        extra = own(outcome.report, id=work.id, overhead_ms=finished.overhead * 1e3)
        whole = False
        try:
            await pass_on(send, exchange, [*response_headers(response.raw_headers), *extra], tail)
            whole = True
        finally:
            response.close()
            usage, stop = tail.result() if tail is not None and whole else (None, None)
            if outcome.report is not None:
                self.runtime.finished(finished, usage, stop=stop)
        self._ahead(work, call, outcome)

    def _ahead(self, work: Work, call: Call, outcome: Outcome) -> None:
        """After the answer: a summary for the turn that will need it."""
        report = outcome.report
        if report is None or report.level == "NORMAL" or not call.policy.summaries or outcome.answer.status != 200:
            return
        task = asyncio.create_task(work.ahead(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _policy(self, name: str | None, upstream: Upstream, model: str) -> Policy:
        return self.policies(name, upstream, model) if self.policies else self.runtime.policy

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
        if upstream.basic is not None:
            headers.popall("authorization", None)
            headers.add("Authorization", upstream.basic)
        return await self.session.request(
            scope["method"],
            target(upstream, scope.get("raw_path") or scope["path"].encode(), scope["query_string"]),
            headers=headers,
            data=body,
            allow_redirects=False,
            **self._way(upstream).options,
        )

    def _way(self, upstream: Upstream) -> Way:
        known = self._ways.get(upstream.name)
        if known is None:
            known = self._ways[upstream.name] = way(upstream.base_url, name=upstream.name, ca_file=upstream.ca_file)
        return known


def _model(body: bytes) -> str:
    try:
        value = rawjson.load(rawjson.members(body).get("model", b'""'))
    except WireFormatError:
        return ""
    return value if isinstance(value, str) else ""
