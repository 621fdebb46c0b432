"""Overflows of the provider through the proxy: cured with exactly as many calls as it takes, on every wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from provider import FakeProvider
from provider.asking import PATHS, streamed_text, text_of
from serving import Served, serving

WIRES = sorted(PATHS)
WORDING = {"chat": "openai", "responses": "openai", "messages": "anthropic"}


def conversation(wire: str, turns: int = 16, mark: str = "") -> dict[str, Any]:
    """A conversation of plain turns, of about 150 tokens each."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Plan a trip. {mark}"}]
    for i in range(turns):
        messages.append({"role": "assistant", "content": f"Option {i}: " + f"hotel H{i} costs {i * 37} euro. " * 12})
        messages.append({"role": "user", "content": f"And day {i}?"})
    if wire == "responses":
        return {"model": "gpt-4o", "input": messages}
    model = "claude-sonnet-4-5" if wire == "messages" else "gpt-4o"
    return {"model": model, "messages": messages, "max_tokens": 100}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def provider(wire: str) -> Iterator[FakeProvider]:
    with FakeProvider(window=100_000, wording=WORDING[wire]) as provider:
        yield provider


@pytest.fixture
def proxy(provider: FakeProvider) -> Iterator[Served]:
    with serving(provider.base_url, window=100_000, policy={"summaries": False}) as served:
        yield served


def ask(proxy: Served, wire: str, body: dict[str, Any], *, stream: bool) -> httpx.Response:
    return httpx.post(proxy.url + PATHS[wire], json={**body, "stream": stream} if stream else body, timeout=30)


@pytest.mark.parametrize("fault", ["overflow", "overflow-stream"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_it_is_cured_with_exactly_as_many_calls_as_refusals(
    times: int, stream: bool, fault: str, wire: str, provider: FakeProvider, proxy: Served
) -> None:
    if fault == "overflow-stream" and not stream:
        pytest.skip("only a stream fails inside a 200")
    provider.fail_plan = [fault] * times
    provider.answer = "a normal answer"
    answer = ask(proxy, wire, conversation(wire), stream=stream)
    assert answer.status_code == 200
    assert answer.headers["x-ctxproxy-reason"] == "retry"
    said = streamed_text(wire, answer.text) if stream else text_of(wire, answer.json())
    assert said == "a normal answer"
    assert provider.calls == times + 1
    sizes = [r.tokens for r in provider.model_requests]
    assert sizes == sorted(set(sizes), reverse=True)
    assert not provider.violations


@pytest.mark.parametrize("stream", [False, True])
def test_the_third_refusal_goes_to_the_client_unchanged(
    stream: bool, wire: str, provider: FakeProvider, proxy: Served
) -> None:
    provider.fail_plan = ["overflow"] * 3
    answer = ask(proxy, wire, conversation(wire), stream=stream)
    assert provider.calls == 3
    if answer.status_code == 200:
        # OpenAI's Responses streams say it inside a 200, and so it reaches the client.
        assert (wire, stream) == ("responses", True)
        assert "event: response.failed" in answer.text
        return
    assert answer.status_code == 400
    provider.reset("overflow")
    direct = httpx.post(provider.base_url + PATHS[wire], json=conversation(wire), timeout=30)
    assert set(answer.json()) == set(direct.json())
    assert answer.json()["error"].keys() == direct.json()["error"].keys()


def test_a_provider_that_always_refuses_gets_a_bounded_number_of_calls(
    wire: str, provider: FakeProvider, proxy: Served
) -> None:
    provider.fault = "overflow"
    for turn in range(16, 36):
        assert ask(proxy, wire, conversation(wire, turn), stream=False).status_code == 400
    # Three calls for each of the first two turns, then the breaker: one a turn, as without ctxproxy.
    assert provider.calls <= 3 + 3 + 18


@pytest.mark.parametrize("stream", [False, True])
def test_quoted_errors_change_nothing(stream: bool, wire: str, provider: FakeProvider, proxy: Served) -> None:
    quote = "Error code: 400 - prompt is too long: 250000 tokens > 200000 maximum (context_length_exceeded)"
    provider.answer = quote
    body = conversation(wire, 2, mark=quote)
    raw = json.dumps({**body, "stream": stream} if stream else body).encode()
    answer = httpx.post(proxy.url + PATHS[wire], content=raw, headers={"content-type": "application/json"}, timeout=30)
    assert answer.status_code == 200
    assert "x-ctxproxy-reason" not in answer.headers
    assert provider.calls == 1
    assert provider.requests[-1].body == raw
