"""The typed error: the SDK's own class for each status, and ours, in one."""

from __future__ import annotations

import pickle
from typing import Any

import anthropic
import openai
import pytest
from provider import FakeProvider

from ctxproxy.clients import wrap
from ctxproxy.clients.errors import typed, typed_class
from ctxproxy.clients.openai import status_error
from ctxproxy.errors import ContextOverflowError, CtxProxyError

from .calls import CALLS, KINDS, RULES, client, done, history, http, library, sdk_of

OVERFLOW = ContextOverflowError(
    model="m", context_window=100, requested_tokens=120, reason="retry", attempts=3, setting="policy.max_retries"
)
ENVELOPE = {"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}


def _response(sdk: Any, status: int) -> Any:
    module = library(sdk)
    request = module.Request("POST", "http://127.0.0.1/v1/chat/completions", json={"model": "m"})
    return module.Response(status, json=ENVELOPE, request=request, headers={"x-request-id": "req_1"})


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422, 429, 500, 503, 529])
@pytest.mark.parametrize("sdk", [openai, anthropic], ids=["openai", "anthropic"])
def test_it_is_of_the_class_that_the_sdk_would_have_raised(sdk: Any, status: int) -> None:
    from ctxproxy.clients import anthropic as for_anthropic
    from ctxproxy.clients import openai as for_openai

    make = (for_openai if sdk is openai else for_anthropic).status_error
    original = make(_response(sdk, status))
    error: Any = typed(original, OVERFLOW, sent=True)
    assert isinstance(error, type(original))
    assert isinstance(error, ContextOverflowError | CtxProxyError)
    assert type(error) is typed_class(type(original))
    assert error.__cause__ is original
    assert (error.status_code, error.response, error.request, error.body) == (
        status,
        original.response,
        original.request,
        original.body,
    )
    assert error.fields() == OVERFLOW.fields()
    assert str(error) == error.message
    assert str(error).startswith(str(original))
    assert "120 tokens do not fit the window of 100 tokens" in str(error)


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("sdk", [openai, anthropic], ids=["openai", "anthropic"])
def test_it_pickles(sdk: Any, status: int) -> None:
    from ctxproxy.clients import anthropic as for_anthropic
    from ctxproxy.clients import openai as for_openai

    make = (for_openai if sdk is openai else for_anthropic).status_error
    error: Any = typed(make(_response(sdk, status)), OVERFLOW, sent=True)
    again: Any = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.fields() == error.fields()
    assert again.status_code == status
    assert again.response.json() == ENVELOPE
    assert again.body == error.body


def test_the_code_of_openai_is_kept() -> None:
    error: Any = typed(status_error(_response(openai, 400)), OVERFLOW, sent=True)
    assert (error.code, error.type, error.request_id) == ("context_length_exceeded", "invalid_request_error", "req_1")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 429, 500, 529])
async def test_other_errors_come_as_without_us(provider: FakeProvider, name: str, status: int) -> None:
    kind: Any = KINDS[name]
    seen: list[tuple[type[Exception], str, Any]] = []
    for wrapped in (False, True):
        provider.reset(status)
        used = client(kind, provider.base_url, http(library(sdk_of(kind)), kind))
        used = wrap(used, window=100_000) if wrapped else used
        with pytest.raises(sdk_of(kind).APIStatusError) as caught:
            await CALLS["messages.create" if sdk_of(kind) is anthropic else "chat.create"].run(used, history())
        seen.append((type(caught.value), str(caught.value), caught.value.body))
        assert not isinstance(caught.value, ContextOverflowError)
        assert provider.calls == 1
        await done(used.close())
    assert seen[0] == seen[1]


@pytest.mark.parametrize("wording", ["llama.cpp-500", "anthropic-413", "sambanova", "together"])
@pytest.mark.parametrize("name", ["OpenAI", "AsyncOpenAI", "Anthropic", "AsyncAnthropic"])
async def test_the_sdk_does_not_send_again_what_is_refused_for_good(
    provider: FakeProvider, name: str, wording: str
) -> None:
    """A refusal with a status that the SDK retries (500) is not retried beyond our own attempts."""
    kind: Any = KINDS[name]
    provider.wording = wording
    provider.reset(*["overflow;window=800"] * 12)
    used = client(kind, provider.base_url, http(library(sdk_of(kind)), kind), max_retries=2)
    used = wrap(used, window=100_000)
    with pytest.raises(sdk_of(kind).APIStatusError) as caught:
        await CALLS["messages.create" if sdk_of(kind) is anthropic else "chat.create"].run(used, history())
    assert isinstance(caught.value, ContextOverflowError)
    assert provider.calls == 3
    assert caught.value.status_code == provider.model_requests[0].status
    await done(used.close())


@pytest.mark.parametrize(("policy", "most"), [(RULES, 2 * 3 + 18), (None, 2 * 3 + 18 + 2)])
async def test_twenty_turns_that_are_always_refused_end_soon(provider: FakeProvider, policy: Any, most: int) -> None:
    """Two turns with all attempts, then one request a turn; two calls for summaries, which fail as well."""
    provider.reset(*["overflow;window=800"] * 99)
    bare = client(openai.OpenAI, provider.base_url, http(library(openai), openai.OpenAI))
    used = wrap(bare, policy=policy, window=100_000)
    messages = history()
    for _ in range(20):
        with pytest.raises(ContextOverflowError):
            used.chat.completions.create(model="m", messages=messages)
        messages = [*messages, {"role": "user", "content": "please"}]
    assert provider.calls <= most
    used.close()


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
async def test_a_plain_http_client_gets_the_response_and_an_error_that_is_its_own(
    provider: FakeProvider, wire: str
) -> None:
    module = library(openai)
    path = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}[wire]
    key = "input" if wire == "responses" else "messages"
    for sent in (True, False):
        body: dict[str, Any] = {"model": "m", key: history() if sent else history(newest="very long " * 400)}
        if wire == "messages":
            body["max_tokens"] = 99
        provider.reset(*["overflow;window=800"] * 9)
        used = wrap(http(module, openai.OpenAI), policy=RULES, window=100_000 if sent else 200)
        response = used.post(provider.base_url + path, json=body)
        assert response.status_code == 400
        assert response.json()["error"]["message"]
        with pytest.raises(module.HTTPStatusError) as caught:
            response.raise_for_status()
        assert isinstance(caught.value, ContextOverflowError)
        assert caught.value.response.status_code == 400
        assert provider.calls == (3 if sent else 0)
        used.close()
