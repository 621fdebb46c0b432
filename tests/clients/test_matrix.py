"""The wrap matrix: every client class, way in, call and situation. What is sent is judged by the provider's rules."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from provider import FakeProvider

from ctxproxy.clients import http_client, wrap
from ctxproxy.clients.anthropic import Anthropic, AsyncAnthropic
from ctxproxy.clients.openai import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI
from ctxproxy.compaction import Compaction
from ctxproxy.errors import ContextOverflowError
from ctxproxy.runtime import Runtime

from .calls import ANSWER, CALLS, KINDS, RULES, SSL, client, done, history, http, library, sdk_of

DROP_INS: dict[str, Any] = {
    "OpenAI": OpenAI,
    "AsyncOpenAI": AsyncOpenAI,
    "AzureOpenAI": AzureOpenAI,
    "AsyncAzureOpenAI": AsyncAzureOpenAI,
    "Anthropic": Anthropic,
    "AsyncAnthropic": AsyncAnthropic,
}
LARGE = 100_000  # tokens of a window: nothing is compacted before it is sent
SMALL = 1_000  # the conversation of these tests is larger
TINY = 200  # its newest message is larger


def _ways(kind: Any) -> list[str]:
    ways = ["wrap", "drop-in", "http_client"]
    # openai 3 also takes clients of the older library.
    return [*ways, "legacy"] if sdk_of(kind) is openai and library(openai).__name__ == "httpx2" else ways


GRID = [
    pytest.param(name, way, call, id=f"{name}-{way}-{call}")
    for name, kind in KINDS.items()
    for way in _ways(kind)
    for call, made in CALLS.items()
    if made.sdk == sdk_of(kind).__name__
]
matrix = pytest.mark.parametrize(("name", "way", "call"), GRID)
# What does not depend on the way in is tried with one of them.
wrapped = pytest.mark.parametrize(("name", "way", "call"), [cell for cell in GRID if cell.values[1] == "wrap"])


class Tried:
    """A client of the matrix, and the compactions that it made."""

    def __init__(self, provider: FakeProvider, name: str, way: str, *, window: int) -> None:
        self.kind: Any = KINDS[name]
        self.sdk = sdk_of(self.kind)
        self.compactions: list[Compaction] = []
        settings: Any = {"policy": RULES, "window": window, "runtime": Runtime(on_compaction=self.compactions.append)}
        module = pytest.importorskip("httpx") if way == "legacy" else library(self.sdk)
        url = provider.base_url
        if way == "http_client":
            made = http_client(
                asynchronous="Async" in name, library=module.__name__, verify=SSL, timeout=30.0, **settings
            )
            self.client = client(self.kind, url, made)
        elif way == "drop-in":
            self.client = client(DROP_INS[name], url, http(module, self.kind), **settings)
        else:
            self.client = wrap(client(self.kind, url, http(module, self.kind)), **settings)

    @property
    def reasons(self) -> list[str]:
        return [compaction.reason for compaction in self.compactions]


@asynccontextmanager
async def trying(provider: FakeProvider, name: str, way: str, *, window: int) -> Any:
    tried = Tried(provider, name, way, window=window)
    assert type(tried.client) is tried.kind
    yield tried
    await done(tried.client.close())


def _arrays(provider: FakeProvider, call: str) -> list[list[Any]]:
    key = "input" if CALLS[call].wire == "responses" else "messages"
    return [request.json()[key] for request in provider.model_requests]


@matrix
async def test_what_fits_goes_out_byte_for_byte(provider: FakeProvider, name: str, way: str, call: str) -> None:
    provider.answer = ANSWER
    messages = history()
    kind: Any = KINDS[name]
    bare = client(kind, provider.base_url, http(library(sdk_of(kind)), kind))
    assert await CALLS[call].run(bare, messages) == ANSWER
    await done(bare.close())
    async with trying(provider, name, way, window=LARGE) as tried:
        assert await CALLS[call].run(tried.client, messages) == ANSWER
        first, second = provider.model_requests
        assert second.body == first.body
        # httpx2 admits one encoding more than httpx.
        assert [h for h in second.headers if h[0].lower() != "accept-encoding"] == [
            h for h in first.headers if h[0].lower() != "accept-encoding"
        ]
        assert (second.method, second.target) == (first.method, first.target)
        assert not tried.compactions


@matrix
async def test_a_refused_prompt_is_cured_unseen(provider: FakeProvider, name: str, way: str, call: str) -> None:
    await _cured(provider, name, way, call, refusals=1)


@wrapped
async def test_so_is_one_that_is_refused_twice(provider: FakeProvider, name: str, way: str, call: str) -> None:
    await _cured(provider, name, way, call, refusals=2)


async def _cured(provider: FakeProvider, name: str, way: str, call: str, *, refusals: int) -> None:
    provider.answer = ANSWER
    provider.reset(*["overflow;window=800"] * refusals)
    async with trying(provider, name, way, window=LARGE) as tried:
        assert await CALLS[call].run(tried.client, history()) == ANSWER
        assert provider.calls == 1 + refusals
        sizes = [request.tokens for request in provider.model_requests]
        assert sizes == sorted(set(sizes), reverse=True)
        # The provider's words on Responses have no numbers in them: then it is a share of what was refused.
        assert sizes[-1] <= (0.8 * sizes[0] if CALLS[call].wire == "responses" else 800)
        assert tried.reasons == ["retry"]


@matrix
async def test_a_prompt_that_is_always_refused_raises_both_errors(
    provider: FakeProvider, name: str, way: str, call: str
) -> None:
    provider.reset(*["overflow;window=800"] * 9)
    async with trying(provider, name, way, window=LARGE) as tried:
        with pytest.raises(tried.sdk.BadRequestError) as caught:
            await CALLS[call].run(tried.client, history())
        error = caught.value
        assert isinstance(error, ContextOverflowError)
        assert isinstance(error, tried.sdk.APIStatusError)
        assert provider.calls == 3
        assert (error.reason, error.attempts) == ("retry", 3)
        # The provider's words on Responses have no numbers in them.
        assert error.context_window == 800 or CALLS[call].wire == "responses"
        assert error.status_code == 400
        assert type(error.__cause__) is tried.sdk.BadRequestError
        assert str(error).startswith(str(error.__cause__))
        assert not tried.compactions


@wrapped
async def test_a_prompt_that_cannot_fit_is_not_sent(provider: FakeProvider, name: str, way: str, call: str) -> None:
    async with trying(provider, name, way, window=TINY) as tried:
        with pytest.raises(tried.sdk.BadRequestError) as caught:
            await CALLS[call].run(tried.client, history(newest="very long " * 400))
        error = caught.value
        assert isinstance(error, ContextOverflowError)
        assert provider.calls == 0
        assert (error.reason, error.attempts, error.context_window) == ("overflow", 0, TINY)
        assert type(error.__cause__) is ContextOverflowError
        assert error.response.headers["x-ctxproxy-id"]


@wrapped
async def test_compaction_before_sending_is_replayed(provider: FakeProvider, name: str, way: str, call: str) -> None:
    provider.answer = ANSWER
    messages = history()
    async with trying(provider, name, way, window=SMALL) as tried:
        assert await CALLS[call].run(tried.client, messages) == ANSWER
        turn = [{"role": "assistant", "content": "Sorted."}, {"role": "user", "content": "Thanks. Again?"}]
        assert await CALLS[call].run(tried.client, [*messages, *turn]) == ANSWER
        assert provider.calls == 2
        assert tried.reasons == ["overflow"]
        first, second = _arrays(provider, call)
        assert len(first) < len(messages)
        assert second[: len(first)] == first
        assert second[-2:] == turn
