"""The events that real requests leave behind, in a wrapped client and in the proxy."""

from __future__ import annotations

import openai
import pytest
from provider import FakeProvider
from serving import serving

from ctxproxy import wrap
from ctxproxy.monitor import Monitor
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime

TOOLS = [{"role": "user", "content": "count to ten " * 8}] + [
    {"role": role, "content": f"{role} says {n} " * 40} for n in range(12) for role in ("assistant", "user")
]
RULES = Policy(summaries=False)


def types(monitor: Monitor) -> list[str]:
    return [event.type for event in monitor.events()]


@pytest.fixture
def provider():
    with FakeProvider() as running:
        yield running


def test_a_client_records_requests_and_compactions(provider: FakeProvider):
    monitor = Monitor()
    runtime = Runtime(window=1_500, policy=RULES, monitor=monitor)
    with openai.OpenAI(base_url=f"{provider.base_url}/v1", api_key="sk-secret") as client:
        used = wrap(client, runtime=runtime)
        used.chat.completions.create(model="m", messages=TOOLS[:3])
        used.chat.completions.create(model="m", messages=TOOLS)
    assert types(monitor) == ["request", "compaction", "request"]
    first, compaction, request = monitor.events()
    assert first.reason is None
    assert first.input > 0
    assert compaction.reason == request.reason == "overflow"
    assert compaction.tokens_saved > 0
    assert request.after < 1_500 < request.before
    assert first.session == request.session != ""
    assert "sk-secret" not in repr(monitor.events())


def test_a_stream_is_recorded_once_it_ended(provider: FakeProvider):
    monitor = Monitor()
    with openai.OpenAI(base_url=f"{provider.base_url}/v1", api_key="k") as client:
        used = wrap(client, runtime=Runtime(window=9_000, policy=RULES, monitor=monitor))
        for _ in used.chat.completions.create(model="m", messages=TOOLS[:3], stream=True):
            assert types(monitor) == []
    assert types(monitor) == ["request"]


def test_a_prompt_that_cannot_fit_is_an_overflow(provider: FakeProvider):
    monitor = Monitor()
    with openai.OpenAI(base_url=f"{provider.base_url}/v1", api_key="k") as client:
        used = wrap(client, runtime=Runtime(window=100, policy=RULES, monitor=monitor))
        with pytest.raises(openai.BadRequestError):
            used.chat.completions.create(model="m", messages=[{"role": "system", "content": "so it is " * 900}, *TOOLS])
    overflow, request = monitor.events()
    assert (overflow.type, overflow.reason, overflow.window) == ("overflow", "overflow", 100)
    assert request.status == 400


def test_the_proxy_records_what_its_client_names(provider: FakeProvider):
    with serving(provider.base_url, window=1_500, policy={"summaries": False}) as proxy:
        names = {"x-ctxproxy-session": "s1", "x-ctxproxy-agent": "planner"}
        with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="sk-secret", default_headers=names) as client:
            client.chat.completions.create(model="m", messages=TOOLS)
        assert proxy.app.relay is not None
        monitor = proxy.app.relay.runtime.monitor
    assert types(monitor) == ["compaction", "request"]
    for event in monitor.events():
        assert (event.session, event.agent, event.upstream) == ("s1", "planner", "test")
    assert "sk-secret" not in repr(monitor.events())
