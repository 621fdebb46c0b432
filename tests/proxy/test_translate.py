"""Upstreams of litellm: the caller's API in front, the provider's own behind, both strict."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from provider import Answer, FakeProvider, ToolCall
from serving import serving

from ctxproxy.proxy.translate import translate

pytestmark = pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is not installed")


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    with FakeProvider(window=8192, wording="anthropic", answer=Answer("Hello there.")) as found:
        monkeypatch.setenv("ANTHROPIC_API_BASE", found.base_url)
        monkeypatch.setenv("OPENAI_API_BASE", f"{found.base_url}/v1")
        monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        yield found


def ask(url: str, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(url + path, json=body, headers={"authorization": "Bearer sk-callers"}, timeout=60)


def through(provider: str, *, window: int = 8192) -> Any:
    return serving(f"litellm:{provider}", window=window)


CHAT = {"model": "model-x", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def test_chat_to_a_provider_of_messages(provider: FakeProvider) -> None:
    provider.answer = Answer("Looking.", (ToolCall("look", {"at": 1}),))
    with through("anthropic") as proxy:
        whole = ask(proxy.url, "/v1/chat/completions", {**CHAT, "tools": [TOOL]})
        events = ask(proxy.url, "/v1/chat/completions", {**CHAT, "tools": [TOOL], "stream": True})
    choice = whole.json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "Looking.")
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"at": 1}
    assert whole.headers["x-ctxproxy-window"] == "8192"
    lines = [line.removeprefix("data: ") for line in events.text.splitlines() if line.startswith("data: ")]
    assert events.headers["content-type"].startswith("text/event-stream")
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]) == "Looking."
    assert [r.path for r in provider.requests] == ["/v1/messages"] * 2
    assert {r.header("x-api-key") for r in provider.requests} == {"sk-callers"}
    assert not provider.violations


def test_messages_to_a_provider_of_openais_apis(provider: FakeProvider) -> None:
    with through("openai") as proxy:
        answer = ask(proxy.url, "/v1/messages", CHAT)
    assert answer.json()["content"] == [{"type": "text", "text": "Hello there."}]
    assert answer.json()["usage"]["input_tokens"] == provider.requests[0].tokens
    assert not provider.violations


@pytest.mark.parametrize("stream", [False, True])
def test_responses_to_a_provider_of_messages(stream: bool, provider: FakeProvider) -> None:
    body = {"model": "model-x", "input": "Hi", "max_output_tokens": 100, "stream": stream}
    with through("anthropic") as proxy:
        answer = ask(proxy.url, "/v1/responses", body)
    assert answer.status_code == 200
    assert "Hello there." in answer.text
    if stream:
        assert "event: response.completed\ndata: " in answer.text
    assert provider.requests[0].path == "/v1/messages"


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_behind_it_is_cured_as_any_other(stream: bool, provider: FakeProvider) -> None:
    words = "The quick brown fox jumps over the lazy dog. " * 60
    turns = [{"role": "user", "content": words}, {"role": "assistant", "content": words}] * 8
    body = {**CHAT, "messages": [*turns, {"role": "user", "content": "Go on."}], "stream": stream}
    with through("anthropic", window=100_000) as proxy:  # more than the provider has
        answer = ask(proxy.url, "/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-ctxproxy-reason"] == "retry"
    assert [r.status for r in provider.requests] == [400, 200]
    assert not provider.violations


def test_errors_are_the_callers(provider: FakeProvider) -> None:
    provider.fail_plan = ["429;message=slow down", 500, None]
    with through("anthropic") as proxy:
        first = ask(proxy.url, "/v1/chat/completions", CHAT)
        second = ask(proxy.url, "/v1/chat/completions", CHAT)
        models = httpx.get(f"{proxy.url}/v1/models")
        third = ask(proxy.url, "/v1/chat/completions", CHAT)
    assert (first.status_code, second.status_code, third.status_code) == (429, 500, 200)
    assert "slow down" in first.json()["error"]["message"]
    assert models.status_code == 404
    assert "sk-callers" not in first.text + second.text


async def test_what_is_no_request_is_told_so() -> None:
    for body in (b"no json", b"[1]"):
        answer = await translate("chat", body, base_url="litellm:anthropic", key=None)
        assert answer.status == 400
        assert json.loads(await answer.readany())["error"]["type"] == "invalid_request_error"
