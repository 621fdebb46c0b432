"""ctxproxy/wire/profiles.py: whose rules hold for a request, and that what is sent satisfies them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire.histories import dump, new_violations, prepare, runtime

from ctxproxy.wire.profiles import PROFILES, STRICTEST, profile, rules_for


@pytest.mark.parametrize(
    ("upstream", "model", "name"),
    [
        ("https://api.openai.com", "whatever", "openai"),
        ("https://x.openai.azure.com/openai", "my-deployment", "openai"),
        ("https://api.mistral.ai/v1", "mistral-large", "mistral"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-3-pro", "gemini"),
        ("https://api.deepseek.com", "deepseek-chat", "deepseek"),
        ("https://bedrock-runtime.us-east-1.amazonaws.com", "us.anthropic.claude-opus-5-v1:0", "bedrock"),
        ("https://api.x.ai/v1", "grok-5", "xai"),
        ("https://openrouter.ai/api/v1", "mistralai/mistral-large", "mistral"),
        ("https://openrouter.ai/api/v1", "openai/gpt-5.5", "openai"),
        ("http://127.0.0.1:8000/v1", "ft:gpt-4o:acme::1", "openai"),
        ("", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock"),
        ("http://127.0.0.1:8000/v1", "some-model", "strict"),
        ("https://api.openai.com.example.net", "some-model", "strict"),
        ("", "", "strict"),
    ],
)
def test_the_host_decides_then_the_model_then_the_strictest_reading(upstream: str, model: str, name: str) -> None:
    assert rules_for(api="chat", upstream=upstream, model=model) == profile(name)


def test_the_configuration_overrides_the_choice_but_not_the_api() -> None:
    strict = profile("strict")
    assert strict == STRICTEST
    assert rules_for(api="chat", upstream="https://api.openai.com", given=strict) == STRICTEST
    assert not rules_for(api="responses", given=strict).adjacent
    assert rules_for(api="messages", model="claude-opus-5-5", given=profile("lenient")).thinking == "bound"
    assert profile("nobody") is None


def test_names_are_unique() -> None:
    assert len({p.name for p in PROFILES}) == len(PROFILES)


@pytest.mark.parametrize(
    ("model", "thinking"),
    [("claude-opus-5-5", "bound"), ("claude-sonnet-4-5", "free"), ("glm-5", "turn"), ("deepseek-v4", "turn")],
)
def test_what_becomes_of_thinking(model: str, thinking: str) -> None:
    assert rules_for(api="messages", model=model).thinking == thinking


def test_deepseek_reasoning_is_not_stripped() -> None:
    """DeepSeek wants reasoning_content back in every later request of a turn that called tools."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "task"}]
    for n in range(10):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages.append(
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "" if n % 2 else "why"}
        )
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"row {n} " * 100})
    body = dump({"model": "deepseek-v4", "messages": messages})
    prepared = prepare(runtime(), "chat", body, target_tokens=700, upstream="https://api.deepseek.com")
    after = json.loads(prepared.body)["messages"]
    assert all("reasoning_content" in m for m in after if m["role"] == "assistant")
    assert not new_violations(body, prepared.body, "chat", "deepseek")


@pytest.mark.parametrize("name", ["mistral", "gemini", "bedrock"])
def test_strict_providers_accept_a_deep_cut(name: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "task"}]
    for n in range(9):
        call = {"id": f"abcdefgh{n}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"abcdefgh{n}", "content": f"row {n} " * 100},
            {"role": "assistant", "content": f"Row {n} is done. " * 30},
            {"role": "user", "content": f"Next, please: {n}"},
        ]
    tools = [{"type": "function", "function": {"name": "run", "parameters": {}}}]
    body = dump({"model": "some-model", "messages": messages, "tools": tools})
    for target in (3_000, 1_500, 700, 400):
        prepared = prepare(runtime(rules=profile(name)), "chat", body, target_tokens=target)
        assert prepared.report.tokens_after <= target
        assert not new_violations(body, prepared.body, "chat", name)
