"""Huge shapes: each fits after compaction or is the typed error; nothing hangs or is sent too long."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from provider import FakeProvider
from serving import Served, serving

WINDOW = 16_000
Json = dict[str, Any]
TASK: Json = {"role": "user", "content": "Find the leak in the cache."}


def _call(i: int, arguments: str) -> Json:
    call = {"id": f"c{i}", "type": "function", "function": {"name": "read", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _result(i: int, text: str) -> Json:
    return {"role": "tool", "tool_call_id": f"c{i}", "content": text}


def newest_result() -> list[Json]:
    lines = "\n".join(f"{i:05d} GET /item/{i * 37} 200 {i % 90} ms" for i in range(9_000))
    return [TASK, _call(0, '{"path": "access.log"}'), _result(0, lines[:300_000])]


def huge_arguments() -> list[Json]:
    content = "\n".join(f"value_{i} = {i * 37}" for i in range(12_000))
    return [
        TASK,
        _call(0, json.dumps({"path": "table.py", "content": content})),
        _result(0, "written"),
        {"role": "assistant", "content": "The table is written."},
        {"role": "user", "content": "Now test it."},
    ]


def many_steps() -> list[Json]:
    found = [TASK]
    for i in range(200):
        found += [_call(i, json.dumps({"path": f"src/m{i}.py"})), _result(i, f"module {i}: " + f"x_{i} = {i} " * 90)]
    return found


def many_messages() -> list[Json]:
    return [TASK, *({"role": ("assistant", "user")[i % 2], "content": f"item {i} is fine"} for i in range(10_000))]


def huge_system() -> list[Json]:
    rules = " ".join(f"Rule {i}: never touch table_{i}." for i in range(4_000))
    return [{"role": "system", "content": rules}, TASK]


SHAPES: dict[str, tuple[Callable[[], list[Json]], int]] = {
    "a tool result of 300 kB as the newest message": (newest_result, 200),
    "huge arguments of a tool call": (huge_arguments, 200),
    "one prompt and 200 tool steps": (many_steps, 200),
    "10,000 short messages": (many_messages, 200),
    "a system prompt over the window": (huge_system, 400),
}


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(window=WINDOW) as provider:
        yield provider


@pytest.fixture(scope="module")
def proxy(provider: FakeProvider) -> Iterator[Served]:
    with serving(provider.base_url, window=WINDOW, policy={"summaries": False}) as proxy:
        yield proxy


@pytest.mark.parametrize("name", SHAPES)
def test_a_huge_shape_fits_or_is_the_typed_error(name: str, proxy: Served, provider: FakeProvider) -> None:
    provider.reset()
    make, status = SHAPES[name]
    body = json.dumps({"model": "gpt-4o", "messages": make()}).encode()
    began = time.perf_counter()
    first = httpx.post(proxy.url + "/v1/chat/completions", content=body, timeout=120)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    again = httpx.post(proxy.url + "/v1/chat/completions", content=body, timeout=120)
    print(f"{name}: {len(body):,} bytes, {seconds:.2f} s at first, {time.perf_counter() - began:.2f} s again")
    assert first.status_code == again.status_code == status, first.text
    assert not provider.violations
    if status == 200:
        assert provider.calls == 2
        assert int(first.headers["x-ctxproxy-tokens-after"]) <= WINDOW
        assert again.headers.get("x-ctxproxy-replayed") == "1"
        assert provider.requests[0].body == provider.requests[1].body
    else:
        assert provider.calls == 0
        error = first.json()
        assert error["error"]["code"] == "context_length_exceeded"
        assert error["ctxproxy"]["requested_tokens"] > WINDOW
