"""How answers, errors and faults become bytes on the connection."""

from __future__ import annotations

import json
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import toktok

from .answers import Answer, Event, Rendering, Usage, events, output_tokens, sse
from .faults import Fault
from .judge import Settings, Verdict
from .loopback import Reply, Request
from .wordings import Problem, wire_error

__all__ = ["Sender", "shorten"]

_JSON = ("content-type", "application/json")
_SSE = [
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
]
_MESSAGES = {
    429: "Rate limit reached. Please try again later.",
    529: "Overloaded",
    413: "Request exceeds the maximum size",
}


class Sender:
    """Sends one response for one request; `hold()` waits for the test."""

    def __init__(self, settings: Settings, request: Request, reply: Reply, hold: Callable[[], Awaitable[None]]) -> None:
        self._s = settings
        self._request = request
        self._reply = reply
        self._hold = hold
        self._zip: Any = None

    # --- whole bodies ---

    async def problem(self, problem: Problem) -> None:
        body, kind = problem.encoded()
        await self._whole(problem.status, [("content-type", kind), *problem.headers], body)

    async def body(self, value: dict[str, Any]) -> None:
        name = "request-id" if self._request.wire == "messages" else "x-request-id"
        body = json.dumps(value, ensure_ascii=False).encode()
        fault = self._request.fault
        if fault and fault.kind in ("drop-body", "error-stream", "hold-first", "hold-content"):
            await self._head(200, [_JSON, (name, "req_fake")], len(body))
            half = 0 if fault.kind == "hold-first" else len(body) // 2
            await self._reply.write(body[:half])
            if not fault.kind.startswith("hold"):
                await self._reply.abort()
                return
            await self._hold()
            await self._reply.write(body[half:])
            await self._reply.end()
            return
        await self._whole(200, [_JSON, (name, "req_fake")], body)

    async def _whole(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        if self._zipped():
            headers, body = [*headers, ("content-encoding", "gzip")], self._zip.compress(body) + self._zip.flush()
        await self._head(status, headers, len(body))
        await self._reply.write(body, self._s.chunk_bytes)
        await self._reply.end()

    async def _head(self, status: int, headers: list[tuple[str, str]], length: int | None = None) -> None:
        self._request.status = status
        await self._reply.start(status, headers, length)

    def _zipped(self) -> bool:
        if self._s.compress and "gzip" in self._request.header("accept-encoding"):
            self._zip = zlib.compressobj(wbits=31)
        return self._zip is not None

    # --- faults that need no look at the request ---

    async def early(self, fault: Fault) -> bool:
        """Carry out a fault that comes before the request is read; False if the request is to be judged."""
        if fault.kind == "hold":
            await self._hold()
        elif fault.kind == "drop":
            await self._reply.abort()
        elif fault.kind == "garbage":
            await self._whole(200, [_JSON], b'{"id": "x", "cho')
        elif fault.kind == "html":
            await self.problem(Problem(502, b"<html><body><h1>502 Bad Gateway</h1></body></html>"))
        elif fault.kind == "empty":
            await self._whole(400, [], b"")
        elif fault.status:
            text = fault.message or _MESSAGES.get(
                fault.status, "The server had an error while processing your request."
            )
            problem = wire_error(self._request.wire, fault.status, text)
            if fault.retry_after is not None:
                problem = replace(problem, headers=(*problem.headers, ("retry-after", str(fault.retry_after))))
            await self.problem(problem)
        else:
            return False
        return self._reply.ended

    # --- streams ---

    async def stream(self, steps: list[Event]) -> None:
        """Send the events, with the settings' pings and comments; the request's fault strikes where it says."""
        fault: Fault | None = self._request.fault
        kind, due = (fault.kind, fault.after) if fault else ("", -1)
        await self._begin()
        said = 0
        for n, event in enumerate(steps):
            if kind == "hold-first" and event.content and not said:
                await self._hold()
            if said == due:
                due = -1
                if kind == "hold-content":
                    await self._hold()
                elif kind == "drop-body":
                    await self._reply.abort()
                    return
                elif kind == "error-stream":
                    text = fault.message if fault and fault.message else "Overloaded"
                    await self._error(wire_error(self._request.wire, 529, text), n, None)
                    return
            said += event.content
            await self._event(event)
            if n == 0 and self._s.pings and self._request.wire == "messages":
                await self._event(Event("ping", {"type": "ping"}))
            if self._s.comments:
                await self._write(b": keep-alive\r\n\r\n" if self._s.crlf else b": keep-alive\n\n")
        await self._finish()

    async def refuse(self, verdict: Verdict, body: dict[str, Any]) -> None:
        """Send the verdict's problem: as a plain error, or as an error event of a 200 stream."""
        problem = verdict.problem
        assert problem is not None
        if not verdict.in_stream:
            await self.problem(problem)
            return
        await self._begin()
        if self._request.wire == "responses":
            r = Rendering(0, str(body.get("model")), Usage(0, 0))
            opening = events("responses", Answer(""), r)[:2]
            for event in opening:
                await self._event(event)
            await self._error(problem, len(opening), opening[0] if verdict.form == "failed" else None)
        else:
            await self._error(problem, 0, None)

    async def _error(self, problem: Problem, number: int, opened: Event | None) -> None:
        """The error event of the wire, then the end. `opened`: the response.created that `response.failed` closes."""
        body = problem.body
        inner = (
            body.get("error", body)
            if isinstance(body, dict)
            else {"message": body if isinstance(body, str) else str(body)}
        )
        inner = inner if isinstance(inner, dict) else {"message": inner}
        wire = self._request.wire
        if wire == "chat":
            event = Event(None, body)
        elif wire == "messages":
            own = isinstance(body, dict) and body.get("type") == "error"
            event = Event("error", body if own else {"type": "error", "error": inner})
        elif opened is not None and isinstance(opened.data, dict):
            error = {"code": inner.get("code") or inner.get("type"), "message": inner.get("message")}
            failed = {**opened.data["response"], "status": "failed", "error": error}
            event = Event("response.failed", {"type": "response.failed", "sequence_number": number, "response": failed})
        else:
            event = Event("error", {"type": "error", "sequence_number": number, "param": None, **_flat(inner)})
        await self._event(event)
        await self._finish()

    async def _begin(self) -> None:
        name = "request-id" if self._request.wire == "messages" else "x-request-id"
        zipped = [("content-encoding", "gzip")] if self._zipped() else []
        await self._head(200, [*_SSE, (name, "req_fake"), *zipped])
        if self._s.comments:
            await self._write(b": keep-alive\r\n\r\n" if self._s.crlf else b": keep-alive\n\n")

    async def _event(self, event: Event) -> None:
        await self._write(sse(event, crlf=self._s.crlf))

    async def _write(self, data: bytes) -> None:
        if self._zip:
            data = self._zip.compress(data) + self._zip.flush(zlib.Z_SYNC_FLUSH)
        await self._reply.write(data, self._s.chunk_bytes)

    async def _finish(self) -> None:
        if self._zip:
            await self._reply.write(self._zip.flush())
        await self._reply.end()


def _flat(error: dict[str, Any]) -> dict[str, Any]:
    return {"code": error.get("code") or error.get("type"), "message": error.get("message")}


def shorten(answer: Answer, wire: str, verdict: Verdict, wording: str) -> Answer:
    """Cut the answer to the room it has, with the stop reason that the wire (or its provider) uses for it."""
    full = "model_context_window_exceeded" if verdict.window_stop and (wire == "messages" or wording == "zai") else ""
    stop = full or {"chat": "length", "responses": "max_output_tokens"}.get(wire, "max_tokens")
    room = verdict.room
    if room is None:
        half = replace(answer, text=answer.text[: max(1, len(answer.text) // 2)], tool_calls=(), stop=stop)
        return half if verdict.window_stop else answer
    if output_tokens(answer) <= room:
        return answer
    text, _ = toktok.truncate(answer.text, max(0, room - output_tokens(replace(answer, text=""))), "o200k_base")
    return replace(answer, text=text, tool_calls=(), stop=stop)
