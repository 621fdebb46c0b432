"""POST /ctxproxy/gate."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import httpx
import openai
import pytest
from provider import FakeProvider
from serving import Served, serving

from ctxproxy import measure
from ctxproxy.gate import GateResult

TALK = [{"role": "user", "content": "Sort the list."}] + [
    {"role": role, "content": f"item {n} of the list. " * 30} for n in range(24) for role in ("assistant", "user")
]


@pytest.fixture
def provider():
    with FakeProvider() as running:
        yield running


TOKEN = {"x-ctxproxy-token": "t0ken"}


def served(provider: FakeProvider, **settings: Any) -> AbstractContextManager[Served]:
    return serving(provider.base_url, server={"token": "t0ken"}, **settings)


def gate(url: str, **fields: Any) -> httpx.Response:
    return httpx.post(f"{url}/ctxproxy/gate", json=fields, headers=TOKEN)


@pytest.mark.parametrize(
    ("tokens", "allowed", "level"),
    [(70_000, True, "NORMAL"), (85_000, True, "WARNING"), (92_000, True, "COMPRESS"), (96_000, True, "EMERGENCY"),
     (100_000, False, "OVERFLOW")],
)  # fmt: skip
def test_by_estimated_tokens(provider: FakeProvider, tokens: int, allowed: bool, level: str):
    with served(provider, window=100_000) as proxy:
        answer = gate(proxy.url, session="s", agent="executor", model="gpt-4o", estimated_tokens=tokens)
        assert answer.status_code == 200
        found = answer.json()
        assert found.keys() == set(GateResult.__slots__)
        assert (found["allowed"], found["trigger_level"], found["context_usage"]) == (allowed, level, tokens)
        assert (found["required_action"] == "compress_before_spawn") is not allowed
        assert proxy.app.relay is not None
        events = proxy.app.relay.runtime.monitor.events(session="s")
    assert [event.type for event in events] == (["gate", "spawn"] if allowed else ["gate"])
    assert {(event.agent, event.level, event.allowed) for event in events} == {("executor", level, allowed)}


def test_what_is_compacted_here_is_what_the_next_request_sends(provider: FakeProvider):
    window = int(measure(TALK, model="gpt-4o").tokens_before / 0.93)
    with served(provider, window=window, policy={"summaries": False}) as proxy:
        found = gate(proxy.url, session="s", agent="a", model="gpt-4o", messages=TALK).json()
        assert (found["allowed"], found["compression_applied"]) == (True, True)
        assert found["trigger_level"] == "COMPRESS"
        assert found["tokens_saved"] > 0.15 * (found["context_usage"] + found["tokens_saved"])
        with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="k") as client:
            answer = client.chat.completions.with_raw_response.create(model="gpt-4o", messages=TALK)
        assert int(answer.headers["x-ctxproxy-tokens-after"]) == found["context_usage"]


def test_warmth_and_plan_come_back_within_their_allocations(provider: FakeProvider):
    warmth = {"gotchas": [f"item {i} has value {i}" for i in range(900)]}
    for policy, fits in (("grid", True), ("default", False)):
        with served(provider, window=20_000) as proxy:
            found = gate(proxy.url, model="gpt-4o", estimated_tokens=10, warmth=warmth, policy=policy).json()
        assert (found["warmth"] != warmth) is fits
        assert found["warmth"]["gotchas"][0] == warmth["gotchas"][0]
        assert found["compression_applied"] is fits


def test_cost(provider: FakeProvider):
    with served(provider, gate={"cost_limit": 0.01}) as proxy:
        found = gate(proxy.url, session="s", model="gpt-4o", estimated_tokens=50_000).json()
        assert (found["allowed"], found["required_action"]) == (False, "raise_cost_budget")
        assert found["cost_estimate"] > 0.1
        assert gate(proxy.url, session="s", model="gpt-4o", estimated_tokens=50_000, cost_limit=5).json()["allowed"]


def test_mistakes_are_told(provider: FakeProvider):
    with served(provider, window=1_000) as proxy:
        for fields, told in (
            ({}, "messages or estimated_tokens is missing"),
            ({"estimated_tokens": -1}, "can't be negative"),
            ({"estimated_tokens": "many"}, "estimated_tokens: must be a int"),
            ({"messages": [5]}, "not"),
            ({"messages": [], "api": "chat2"}, "there is no 'chat2'"),
            ({"estimated_tokens": 1, "policy": "gentel"}, "there is no policy 'gentel'"),
            ({"estimated_tokens": 1, "tokens": 1}, "tokens: there is no such field"),
        ):
            answer = gate(proxy.url, **fields)
            assert answer.status_code == 400, fields
            assert told in answer.json()["error"]["message"]
        assert httpx.post(f"{proxy.url}/ctxproxy/gate", content=b"[1", headers=TOKEN).status_code == 400
        assert httpx.get(f"{proxy.url}/ctxproxy/gate", headers=TOKEN).status_code == 405
        page = {"origin": "https://evil.example"}
        assert httpx.post(f"{proxy.url}/ctxproxy/gate", headers=page, json={}).status_code == 403


@pytest.mark.parametrize("settings", [{}, {"server": {"token": "t0ken"}}])
def test_the_token_is_wanted_also_where_none_is_set(provider: FakeProvider, settings: dict[str, Any]):
    with serving(provider.base_url, window=1_000, **settings) as proxy:
        for headers in ({}, {"x-ctxproxy-token": "wrong"}):
            answer = httpx.post(f"{proxy.url}/ctxproxy/gate", headers=headers, json={"estimated_tokens": 1})
            assert answer.status_code == 401
