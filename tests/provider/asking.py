"""Asking the fake provider: requests of each wire, and what an answer says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import httpx

from .server import FakeProvider

__all__ = ["PATHS", "WIRES", "frames", "post", "prompt_tokens", "request", "streamed_text", "text_of", "usages"]

Body = dict[str, Any]
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
WIRES = sorted(PATHS)


def request(wire: str, text: str = "hi", **more: Any) -> Body:
    """A small sound request of the wire."""
    if wire == "responses":
        return {"model": "m", "input": text, **more}
    least = {"max_tokens": 100} if wire == "messages" else {}
    return {"model": "m", "messages": [{"role": "user", "content": text}], **least, **more}


def post(provider: FakeProvider, wire: str, body: Body, **more: Any) -> httpx.Response:
    """Send it. (`verify=False` only saves the loading of certificates, which plain HTTP never uses.)"""
    return httpx.post(provider.base_url + PATHS[wire], json=body, timeout=20, verify=False, **more)


def frames(data: str) -> Iterator[Body]:
    """The JSON events of an SSE body."""
    for line in data.replace("\r\n", "\n").split("\n"):
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line[6:])


def text_of(wire: str, body: Body) -> str:
    """What the model said in a whole response."""
    if wire == "chat":
        return body["choices"][0]["message"]["content"]
    if wire == "messages":
        return "".join(b.get("text", "") for b in body["content"])
    return "".join(p["text"] for i in body["output"] if i["type"] == "message" for p in i["content"])


def streamed_text(wire: str, data: str) -> str:
    """What the model said in an SSE body."""
    events = list(frames(data))
    if wire == "chat":
        return "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e.get("choices"))
    if wire == "messages":
        return "".join(e["delta"].get("text", "") for e in events if e.get("type") == "content_block_delta")
    return "".join(e["delta"] for e in events if e.get("type") == "response.output_text.delta")


def prompt_tokens(usage: Body) -> int:
    """All input tokens of a usage object, cached ones included, of any wire."""
    keys = ("prompt_tokens", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage.get(k, 0) for k in keys)


def usages(events: Iterable[Body]) -> Iterator[Body]:
    """The usage objects in a stream, in order."""
    for e in events:
        for place in (e, e.get("message") or {}, e.get("response") or {}):
            if place.get("usage"):
                yield place["usage"]
