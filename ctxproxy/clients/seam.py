"""One request of a client on its way through the engine, without any I/O of its own.

`Seam` holds what all requests of a wrapped client share; `Turn` is one request. The transports (sync, async,
httpx2, httpx) only carry requests out and read answers.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from ctxproxy.answers import report_headers
from ctxproxy.bodies import BodyTooLarge, decode
from ctxproxy.clients.errors import refusal
from ctxproxy.clients.streams import Tap, usage_of
from ctxproxy.conversation import Api
from ctxproxy.effects import Answer, Call, Count, Effect, Outcome, Report, Send, Summarize
from ctxproxy.errors import ContextOverflowError
from ctxproxy.monitor import Finished
from ctxproxy.policy import Mode, Policy, preset
from ctxproxy.runtime import Runtime, account_of
from ctxproxy.wire import PATHS, detect

if TYPE_CHECKING:
    import httpx2

__all__ = ["BYPASS", "Seam", "Step", "Turn"]

BYPASS = "x-ctxproxy-bypass"

_log = logging.getLogger("ctxproxy.clients")
_HEAVY_BYTES = 256 << 10  # of a body that an async client measures in a thread
_BODY_BYTES = 64 << 20  # of a compressed body that is decoded to be measured
# What an edited body is no longer.
_OF_THE_BODY = ("transfer-encoding", "content-encoding", "content-md5", "digest", "content-digest")

Step = Send | Summarize | Count | Outcome | ContextOverflowError


class Seam:
    """What the requests of one wrapped client share: the runtime with its memory, and the settings.

    Args:
        policy: the rules, or the name of a preset; those of the runtime by default.
        window: tokens of the models' windows, None to look each up.
        runtime: engine, memory and archive; a new one by default.
        mode: `off`, `observe` or `compact`, in place of the policy's.
        sdk: whose errors are raised ("openai", "anthropic"); None to know it by each request.
        session, agent: names for the event log; without a session name each conversation is one.

    Raises:
        ConfigError: there is no such preset.
    """

    __slots__ = ("_lock", "_summaries", "agent", "policy", "runtime", "sdk", "session", "warm", "window")

    def __init__(
        self,
        *,
        policy: str | Policy | None = None,
        window: int | None = None,
        runtime: Runtime | None = None,
        mode: Mode | None = None,
        sdk: str | None = None,
        session: str = "",
        agent: str = "",
    ) -> None:
        self.runtime = runtime or Runtime()
        self.session = session
        self.agent = agent
        rules = preset(policy) if isinstance(policy, str) else policy or self.runtime.policy
        self.policy = rules if mode is None else replace(rules, mode=mode)
        self.window = window
        self.sdk = sdk
        self.warm = False  # the first request loads a tokenizer and the catalogue
        self._summaries: dict[tuple[str, bytes], Future[Answer | None]] = {}
        self._lock = Lock()

    def turn(self, request: httpx2.Request) -> Turn | None:
        """The way of one request; None where it is not ours to look at."""
        if request.method != "POST":
            return None
        path = request.url.path
        api = detect(path)
        headers = {name.lower(): value for name, value in request.headers.items()}
        if api is None or BYPASS in headers:
            return None
        try:
            body = request.content
        except RuntimeError:  # a body that is made while it is sent
            return None
        encoding = headers.get("content-encoding")
        if encoding:
            decoded = _decoded(body, encoding)
            if decoded is None:
                return None
            body = decoded
        url = request.url
        end = next(end for end in PATHS if path.endswith(end))
        policy = self.policy
        if headers.get("authorization", "").startswith("AWS4-"):
            # The SDK has signed these very bytes; another body would be refused.
            policy = replace(policy, mode="off" if policy.mode == "off" else "observe")
        call = self.runtime.call(
            api=api,
            body=body,
            upstream=f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}{path.removesuffix(end)}",
            account=account_of(headers, secret=self.runtime.secret),
            headers=headers,
            policy=policy,
            window=self.window,
        )
        sdk = self.sdk or _sdk_of(headers, api)
        return Turn(self, request, call, sdk=sdk)

    def claim(self, step: Summarize) -> tuple[Future[Answer | None], bool]:
        """The summary of a conversation that is on its way, and whether the claimer is the one to make it."""
        with self._lock:
            known = self._summaries.get(step.key)
            if known is not None:
                return known, False
            made: Future[Answer | None] = Future()
            self._summaries[step.key] = made
            return made, True

    def settle(self, step: Summarize, answer: Answer | None) -> None:
        """Give a claimed summary to whoever waits for it."""
        with self._lock:
            made = self._summaries.pop(step.key)
        made.set_result(answer)


class Turn:
    """One request: the engine's steps, what was spent on them, and what the caller gets at the end."""

    __slots__ = ("_answer", "_spent", "_steps", "api", "call", "id", "request", "sdk", "seam")

    def __init__(self, seam: Seam, request: httpx2.Request, call: Call, *, sdk: str | None) -> None:
        self.seam = seam
        self.request = request
        self.call = call
        self.api: Api = call.wire.api
        self.sdk = sdk
        self.id = secrets.token_hex(8)
        self._steps: Generator[Effect, Any, Outcome] | None = seam.runtime.engine.run(call)
        self._answer: Answer | None = None
        self._spent = 0.0

    @property
    def heavy(self) -> bool:
        """Whether the next step may take long enough to hold up an event loop."""
        return len(self.call.body) > _HEAVY_BYTES or not self.seam.warm

    @property
    def streamed(self) -> bool:
        """Whether the request asks for a stream, as far as a look at its bytes tells."""
        return b'"stream"' in self.call.body

    def begin(self) -> Step:
        """Run the engine until it needs the network or is done."""
        steps = self._steps
        assert steps is not None
        try:
            return self._advance(lambda: next(steps))
        finally:
            self.seam.warm = True

    def go_on(self, answer: Answer) -> Step:
        """Give the engine an answer, and run it until it needs the network again or is done."""
        self._answer = answer
        steps = self._steps
        if steps is None:
            return Outcome(answer=answer, report=None)
        return self._advance(lambda: steps.send(answer))

    def summarized(self, answer: Answer | None) -> Step:
        """`go_on` with the answer to a request for a summary or a count, None where there is none."""
        steps = self._steps
        assert steps is not None
        return self._advance(lambda: steps.send(answer))

    def _advance(self, first: Callable[[], Effect]) -> Step:
        assert self._steps is not None
        began = time.perf_counter()
        try:
            effect = first()
            while not isinstance(effect, Send | Summarize | Count):
                effect = self._steps.send(self.seam.runtime.perform(effect))
            return effect
        except StopIteration as stop:
            return stop.value
        except ContextOverflowError as error:
            return error
        except Exception:
            # Fail open: a bug of ours must not cost the user the request. An answer that is here already counts.
            _log.exception("a fault in ctxproxy; the request goes on as if it were not there")
            self._steps = None
            if self._answer is not None:
                return Outcome(answer=self._answer, report=None)
            return Send(self.call.body, 1)
        finally:
            self._spent += time.perf_counter() - began

    def outgoing(self, step: Send | Summarize) -> httpx2.Request:
        """The request to send: the caller's own where its body is unchanged."""
        if step.body is self.call.body:
            return self.request
        request = self.request
        headers = request.headers.copy()
        for name in _OF_THE_BODY:
            headers.pop(name, None)
        headers["content-length"] = str(len(step.body))
        extensions = request.extensions
        mark = "summary"
        if isinstance(step, Send):
            mark = str(step.attempt) if step.attempt > 1 else ""
        else:
            extensions = {**extensions, "timeout": dict.fromkeys(("connect", "read", "write", "pool"), step.seconds)}
        key = headers.get("idempotency-key")
        if key and mark:
            # Another body under the same key would be answered as a conflict, or with the refusal of the first.
            headers["idempotency-key"] = f"{key}-{mark}"
        kind: Any = type(request)
        return kind(request.method, request.url, headers=headers, content=step.body, extensions=extensions)

    def asking(self, step: Count) -> httpx2.Request:
        """The request to the provider's counter, with the headers of the caller's own."""
        request = self.request
        headers = request.headers.copy()
        for name in (*_OF_THE_BODY, "idempotency-key", "host"):
            headers.pop(name, None)
        body = step.question.body
        headers["content-length"] = str(len(body))
        headers["accept"] = "application/json"
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), step.seconds)
        kind: Any = type(request)
        extensions = {**request.extensions, "timeout": timeout}
        return kind("POST", step.question.url, headers=headers, content=body, extensions=extensions)

    def result(self, step: Outcome | ContextOverflowError) -> Any:
        """The response for the caller.

        Raises:
            ContextOverflowError: the prompt does not fit; it is the SDK's own error as well, where the SDK lets
                errors pass that are raised in its HTTP client.
        """
        if isinstance(step, ContextOverflowError):
            self._finish(400, None, error=step)
            return refusal(self.request, self.api, step, sdk=self.sdk, headers=self._headers(None))
        response: Any = step.answer.handle
        self._mark(response, step.report)
        if step.error is not None:
            self._finish(response.status_code, step)
            return refusal(
                response.request,
                self.api,
                step.error,
                sdk=self.sdk,
                response=response,
                event=step.answer.body if step.answer.event is not None else None,
            )
        if step.prepared is not None and response.status_code == 200:
            self._listen(response, step)
        elif step.report is not None:
            self._finish(response.status_code, step)
        return response

    def _listen(self, response: Any, outcome: Outcome) -> None:
        """Learn from what the answer says about its usage, now or once the caller has read it."""
        status: int = response.status_code
        if response.is_closed:
            self._finish(status, outcome, *usage_of(response, self.api))
        elif hasattr(response.stream, "tap"):
            encoding = response.headers.get("content-encoding", "")
            done = partial(self._finish, status, outcome)
            response.stream.tap = Tap(self.api, encoding, done)
        else:
            self._finish(status, outcome)

    def _finish(
        self,
        status: int,
        outcome: Outcome | None,
        usage: Mapping[str, Any] | None = None,
        stop: str | None = None,
        *,
        error: ContextOverflowError | None = None,
    ) -> None:
        call = self.call
        self.seam.runtime.finished(
            Finished(
                id=self.id,
                call=call,
                outcome=outcome,
                error=error,
                status=status,
                account=call.scope.partition(":")[2],
                session=self.seam.session,
                agent=self.seam.agent,
                upstream=call.upstream,
                overhead=self._spent,
            ),
            usage,
            stop=stop,
        )

    def _headers(self, report: Report | None) -> dict[str, str]:
        return report_headers(report, id=self.id, overhead_ms=self._spent * 1e3)

    def _mark(self, response: Any, report: Report | None) -> None:
        for name, value in self._headers(report).items():
            response.headers[name] = value
        if report is not None:
            response.extensions["ctxproxy"] = report


def _decoded(body: bytes, encoding: str) -> bytes | None:
    try:
        return decode(body, encoding, limit=_BODY_BYTES)
    except BodyTooLarge:
        return None


def _sdk_of(headers: dict[str, str], api: Api) -> str | None:
    """Whose request it is. Both SDKs say that they are Python's; their wires tell them apart."""
    if headers.get("x-stainless-lang") != "python":
        return None
    return "anthropic" if api == "messages" else "openai"
