"""The callback for LiteLLM's own proxy, called as the proxy calls it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from provider import FakeProvider

from ctxproxy.clients import runtime_of
from ctxproxy.clients.gateway import GatewayCallback
from ctxproxy.errors import ContextOverflowError

from .calls import RULES, history

litellm = pytest.importorskip("litellm")

MODEL = "openai/a-model"
KEY = SimpleNamespace(token="hashed")


def data(messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": messages, "litellm_call_id": "1", **more}


async def before(handler: GatewayCallback, given: dict[str, Any], kind: str = "acompletion") -> dict[str, Any]:
    return await handler.async_pre_call_hook(KEY, None, given, kind)


@pytest.mark.parametrize("kind", ["completion", "acompletion", "anthropic_messages", "responses", "aresponses"])
async def test_a_request_over_the_window_is_compacted(kind: str) -> None:
    array = "input" if "responses" in kind else "messages"
    given = {"model": MODEL, array: history(30), "max_tokens": 9, "metadata": {"a": 1}, "litellm_call_id": "1"}
    found = await before(GatewayCallback(window=1_000, policy=RULES), given, kind)
    assert len(found[array]) < len(history(30)) == len(given[array])
    assert {k: v for k, v in found.items() if k != array} == {k: v for k, v in given.items() if k != array}


async def test_a_request_that_fits_and_other_calls_stay_as_they_are() -> None:
    handler = GatewayCallback(window=1_000, policy=RULES)
    assert await before(handler, data(history(2))) == data(history(2))
    assert await before(handler, data(history(60)), "aembedding") == data(history(60))
    assert await before(handler, data(None)) == data(None)
    off = GatewayCallback(window=1_000, policy=RULES, mode="off")
    assert await before(off, data(history(60))) == data(history(60))


async def test_a_later_turn_begins_with_what_was_sent_before() -> None:
    handler = GatewayCallback(window=1_000, policy=RULES)
    first = await before(handler, data(history(30)))
    longer = [*history(30), {"role": "assistant", "content": "done"}, {"role": "user", "content": "more"}]
    later = await before(handler, data(longer))
    assert later["messages"][: len(first["messages"])] == first["messages"]
    assert len(later["messages"]) == len(first["messages"]) + 2


async def test_what_can_not_fit_is_refused_with_both_errors() -> None:
    with pytest.raises(litellm.ContextWindowExceededError) as caught:
        await before(GatewayCallback(window=1_100, policy=RULES), data([{"role": "user", "content": "word " * 4_000}]))
    assert isinstance(caught.value, ContextOverflowError)
    assert caught.value.status_code == 400


async def test_a_refusal_teaches_the_window_for_the_next_turn(provider: FakeProvider) -> None:
    provider.window = 1_500
    handler = GatewayCallback(policy=RULES)
    first = await before(handler, data(history(40)))
    assert len(first["messages"]) == len(history(40))
    sending = {"api_base": f"{provider.base_url}/v1", "api_key": "k", "max_retries": 0}
    with pytest.raises(litellm.ContextWindowExceededError) as caught:
        await litellm.acompletion(model=MODEL, messages=first["messages"], **sending)
    await handler.async_post_call_failure_hook(first, caught.value, KEY)
    second = await before(handler, data(history(40)))
    assert len(second["messages"]) < len(history(40))
    answer = await litellm.acompletion(model=MODEL, messages=second["messages"], **sending)
    await handler.async_log_success_event({"litellm_call_id": "1"}, answer, None, None)
    await handler.async_log_success_event({"litellm_call_id": "1"}, answer, None, None)
    runtime = runtime_of(handler)
    assert runtime is not None
    assert [e.status for e in runtime.monitor.events() if e.type == "request"] == [400, 200]
    assert [e.input > 100 for e in runtime.monitor.events() if e.type == "request"] == [False, True]


async def test_litellm_takes_it_for_a_callback() -> None:
    from litellm.integrations.custom_logger import CustomLogger

    assert isinstance(GatewayCallback(), CustomLogger)
