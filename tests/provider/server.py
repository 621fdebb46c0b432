"""FakeProvider: the strict provider as a real server on 127.0.0.1.

Routes by the end of the path: /chat/completions, /responses, /messages answer as a model; /messages/count_tokens and
/responses/input_tokens count; with the wording of llama.cpp or vLLM also /chat/completions/input_tokens, /tokenize
and /apply-template, as those servers have them; GET /models lists; everything else echoes what came (see echo.py).

The answer function gets the recorded request in the server's thread and returns an Answer, a text, a dict (sent as the
JSON body), a Problem (an error), None (the default answer), or an awaitable of these. It must not block.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from dataclasses import dataclass, field, replace
from typing import Any, Self

from . import echo
from .answers import Answer, Rendering, Usage, events, output_tokens, plain
from .counting import count_request, o200k, request_texts
from .faults import Fault, as_fault
from .judge import Settings, Verdict, judge
from .loopback import LoopbackServer, Reply, Request
from .memory import Memory
from .rules import Violation, validate
from .sending import Sender, shorten
from .wordings import Problem, wire_error

__all__ = ["FakeProvider"]

_ROUTES = (
    ("/messages/count_tokens", "messages", "count"),
    ("/responses/input_tokens", "responses", "count"),
    ("/chat/completions/input_tokens", "chat", "count"),
    ("/tokenize", "chat", "tokenize"),
    ("/apply-template", "chat", "template"),
    ("/chat/completions", "chat", "call"),
    ("/responses", "responses", "call"),
    ("/messages", "messages", "call"),
)
_ECHO_KEEP = 1 << 20  # bytes of a body kept on the echo routes


@dataclass(eq=False)
class FakeProvider(Settings):
    """`with FakeProvider(window=4096) as provider:` (also `async with`); then point a client at `provider.base_url`.

    `requests` holds everything that came, in order; `calls` counts model calls; `violations` lists the rules broken.
    """

    requests: list[Request] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._server = LoopbackServer(self._handle, self._keep)
        self._memory = Memory()
        self.fail_plan = [as_fault(f) for f in self.fail_plan]
        self._holds: list[asyncio.Event] = []
        self._held = threading.Event()
        self._arrived = threading.Condition()
        self._number = 0

    # --- life ---

    def start(self) -> Self:
        self._server.start()
        return self

    def stop(self) -> None:
        self._server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *exc: object) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """Without /v1: routes go by the path's end, so every SDK may have it as it is or with its own base path."""
        return f"http://127.0.0.1:{self._server.port}"

    # --- what the test reads and drives ---

    @property
    def calls(self) -> int:
        """How many model calls came, refused ones included; count and echo requests are not among them."""
        return len(self.model_requests)

    @property
    def model_requests(self) -> list[Request]:
        return [r for r in self.requests if r.wire and not r.target.partition("?")[0].endswith(_COUNTERS)]

    @property
    def violations(self) -> list[Violation]:
        """All rules that requests broke so far."""
        return [v for r in self.requests for v in r.violations]

    @property
    def errors(self) -> list[BaseException]:
        """Exceptions of the answer and fault functions, and of the server itself. A test should see none."""
        return self._server.errors

    def reset(self, *fail_plan: Fault | str | int | None) -> None:
        """Forget all requests and what was remembered of them, and start another plan."""
        self.requests.clear()
        self._memory = Memory()
        self.fail_plan = [as_fault(f) for f in fail_plan]
        self._held.clear()

    def release(self) -> None:
        """Let every request that is held now go on."""
        self._server.loop.call_soon_threadsafe(lambda: [e.set() for e in self._holds])

    def wait_held(self, timeout: float = 10) -> None:
        """Block until a request is held (seconds; TimeoutError); then forget that it was."""
        if not self._held.wait(timeout):
            raise TimeoutError("no request reached its hold")
        self._held.clear()

    def wait_requests(self, count: int, timeout: float = 10) -> None:
        """Block until `count` requests have come in whole (seconds; TimeoutError)."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.requests) >= count, timeout):
                raise TimeoutError(f"{len(self.requests)} of {count} requests came")

    # --- one request ---

    def _keep(self, target: str) -> int:
        return self.max_body + 1 if _route(target.partition("?")[0]) else _ECHO_KEEP

    async def _handle(self, request: Request, reply: Reply, reader: asyncio.StreamReader) -> None:
        route = _route(request.path) if request.method == "POST" else None
        request.wire = route[0] if route else ""
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        sender = Sender(self, request, reply, lambda: self._hold(request, reader))
        refused = echo.refused(self, request)
        if refused:
            await sender.problem(refused)
        elif route is None:
            await (echo.models if request.path.endswith("/models") else echo.mirror)(self, request, reply)
        elif route[1] != "call" and not self._counts(request.path):
            await sender.problem(wire_error(request.wire, 404, "Not Found"))
        elif route[1] != "call":
            await self._count(request, sender, route[1])
        else:
            await self._call(request, sender)

    def _counts(self, path: str) -> bool:
        """Whether the server that is played has this way to count."""
        if path.endswith(("/count_tokens", "/responses/input_tokens")):
            return True
        return self.wording.startswith("llama.cpp" if not path.endswith("/tokenize") else ("llama.cpp", "vllm"))

    async def _count(self, request: Request, sender: Sender, what: str) -> None:
        fault = as_fault(self.count_fault)
        if fault and await sender.early(fault):
            return
        body = _decode(request)
        if isinstance(body, Problem):
            await sender.problem(body)
            return
        if self.counted is not None:
            await sender.body({"input_tokens": self.counted, "count": self.counted})
            return
        if what == "template":
            await sender.body({"prompt": "\n".join(request_texts(body, request.wire)[0])})
            return
        if what == "tokenize" and "content" in body:
            await sender.body({"tokens": [0] * o200k(str(body["content"]))})
            return
        if unknown := body.keys() & {"max_tokens", "max_output_tokens", "stream", "metadata", "temperature"}:
            await sender.problem(wire_error(request.wire, 400, f"{min(unknown)}: Extra inputs are not permitted"))
            return
        request.tokens = self._tokens(body, request.wire)
        more = {"object": "response.input_tokens"} if request.wire == "responses" else {}
        if what == "tokenize":
            await sender.body({"count": request.tokens, "max_model_len": self.window, "tokens": []})
        else:
            await sender.body({**more, "input_tokens": request.tokens})

    async def _call(self, request: Request, sender: Sender) -> None:
        fault = request.fault = self._next_fault(request)
        if fault and await sender.early(fault):
            return
        body = _decode(request)
        if isinstance(body, Problem):
            await sender.problem(body)
            return
        request.violations = self._broken(body, request)
        if request.violations and self.rules:
            await sender.problem(request.violations[0].problem(request.wire, self.rule_profile))
            return
        request.tokens = self._tokens(body, request.wire)
        verdict = judge(self, request.wire, body, request.tokens, fault)
        if verdict.problem:
            await sender.refuse(verdict, body)
            return
        await self._answer(request, body, verdict, sender)

    async def _answer(self, request: Request, body: dict[str, Any], verdict: Verdict, sender: Sender) -> None:
        said = self.answer(request) if callable(self.answer) else self.answer
        said = await said if inspect.isawaitable(said) else said
        if isinstance(said, Problem):
            await sender.problem(said)
            return
        if isinstance(said, dict):
            await sender.body(said)
            return
        answer = said if isinstance(said, Answer) else Answer(said) if isinstance(said, str) else Answer()
        answer = shorten(answer, request.wire, verdict, self.wording)
        self._number += 1
        r = self._render(request, body, answer, verdict)
        self._memory.learn(body, request.wire, plain(request.wire, answer, r))
        if body.get("stream"):
            await sender.stream(events(request.wire, answer, r))
        else:
            await sender.body(plain(request.wire, answer, r))

    def _render(self, request: Request, body: dict[str, Any], answer: Answer, verdict: Verdict) -> Rendering:
        written = output_tokens(answer)
        usage = Usage(verdict.shown, written)
        if self.cache:
            cached, fresh = self._memory.cached(body, request.wire)
            usage = replace(
                usage, cached=min(cached, verdict.shown), written=min(fresh, max(0, verdict.shown - cached))
            )
        options = body.get("stream_options") or {}
        return Rendering(
            number=self._number,
            model=str(body.get("model") or self.models[0]),
            usage=usage,
            signature=self._memory.sign(body, answer, preserved=self.preserved) if request.wire == "messages" else "",
            include_usage=not body.get("stream") or bool(options.get("include_usage")),
            choices=int(body.get("n") or 1),
        )

    def _broken(self, body: dict[str, Any], request: Request) -> list[Violation]:
        found = validate(
            body,
            request.wire,
            profile=self.rule_profile,
            required=self._memory.required,
            version=request.header("anthropic-version"),
        )
        if request.wire == "messages" and not found:
            found = self._memory.verify(body, preserved=self.preserved, strict=self.strict_thinking)
        return found

    def _tokens(self, body: dict[str, Any], wire: str) -> int:
        return count_request(body, wire) + self._memory.stored_tokens(body)

    def _next_fault(self, request: Request) -> Fault | None:
        if request.header("x-fake-fault"):
            return as_fault(request.header("x-fake-fault"))
        if self.fail_plan:
            fault, *self.fail_plan = self.fail_plan
            return as_fault(fault)
        return as_fault(self.fault(request) if callable(self.fault) else self.fault)

    async def _hold(self, request: Request, reader: asyncio.StreamReader) -> None:
        """Wait for release(), or for the client's end of the connection."""
        event = asyncio.Event()
        self._holds.append(event)
        gone = asyncio.ensure_future(reader.read(1))  # clients do not pipeline: a byte here can only be the end
        released = asyncio.ensure_future(event.wait())
        self._held.set()
        try:
            await asyncio.wait({gone, released}, return_when=asyncio.FIRST_COMPLETED)
            if not event.is_set():
                raise ConnectionResetError("the client left while it was held")
        finally:
            self._holds.remove(event)
            gone.cancel()
            released.cancel()


_COUNTERS = tuple(end for end, _, what in _ROUTES if what != "call")


def _route(path: str) -> tuple[str, str] | None:
    return next(((wire, what) for end, wire, what in _ROUTES if path.endswith(end)), None)


def _decode(request: Request) -> dict[str, Any] | Problem:
    try:
        body = request.json()
    except ValueError as err:
        text = "We could not parse the JSON body of your request."
        return wire_error(request.wire, 400, f"{text} ({err})")
    if not isinstance(body, dict):
        return wire_error(request.wire, 400, "The body must be a JSON object.")
    return body
