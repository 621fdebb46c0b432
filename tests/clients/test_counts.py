"""The provider's counter through the caller's own HTTP client."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from provider import FakeProvider

from ctxproxy.clients import wrap
from ctxproxy.policy import preset

from .calls import SSL, done, library

httpx: Any = library(openai)
NEAR = preset("default", provider_count="near", summaries=False)
BODY = {
    "model": "claude-opus-4-8",
    "max_tokens": 64,
    "messages": [
        {"role": "user" if i % 2 == 0 else "assistant", "content": f"value_{i} = {i * 37}; " * 300} for i in range(9)
    ],
}
HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "k1", "idempotency-key": "abc", "accept": "text/x"}


def _client(asynchronous: bool) -> Any:
    return (httpx.AsyncClient if asynchronous else httpx.Client)(verify=SSL, timeout=30.0)


async def _send(provider: FakeProvider, asynchronous: bool, **options: Any) -> Any:
    used = wrap(_client(asynchronous), **options)
    return await done(used.post(provider.base_url + "/v1/messages", json=BODY, headers=HEADERS))


def _asked(provider: FakeProvider) -> list[Any]:
    return [r for r in provider.requests if r.path.endswith("/count_tokens")]


@pytest.fixture
def window(provider: FakeProvider) -> int:
    """A window that our own figure fills to 89 %, so that its margin reaches over the threshold of 90 %."""
    used = wrap(_client(False), window=1_000_000)
    provider.window = 100_000
    answer = used.post(provider.base_url + "/v1/messages", json=BODY, headers=HEADERS)
    provider.reset()
    return round(answer.extensions["ctxproxy"].tokens_before / 0.89)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_count_goes_through_the_callers_client(provider: FakeProvider, window: int, asynchronous: bool) -> None:
    answer = await _send(provider, asynchronous, window=window, policy=NEAR)
    (question,) = _asked(provider)
    assert (question.header("x-api-key"), question.header("idempotency-key")) == ("k1", "")
    report = answer.extensions["ctxproxy"]
    assert (report.tokens_before, report.basis) == (question.tokens, "provider")


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("odd", [{"count_fault": "500"}, {"counted": -1}, {"counted": "x" * (5 << 20)}])
async def test_a_count_that_fails_costs_nothing(
    provider: FakeProvider, window: int, asynchronous: bool, odd: dict[str, Any]
) -> None:
    for name, value in odd.items():
        setattr(provider, name, value)
    try:
        answer = await _send(provider, asynchronous, window=window, policy=NEAR)
    finally:
        provider.counted = provider.count_fault = None
    assert len(_asked(provider)) == 1
    assert answer.status_code == 200
    assert answer.extensions["ctxproxy"].basis == "estimated"


async def test_nobody_is_asked_by_default(provider: FakeProvider, window: int) -> None:
    await _send(provider, True, window=window)
    assert _asked(provider) == []
