"""Each provider's words for a prompt that is too long, on each wire, plain and streamed, sync and async."""

from __future__ import annotations

from typing import Any

import pytest
from provider import WORDINGS, FakeProvider

from ctxproxy.clients import wrap
from ctxproxy.compaction import Compaction
from ctxproxy.runtime import Runtime

from .calls import ANSWER, CALLS, KINDS, client, done, history, http, library, sdk_of

CLIENTS = {"openai": ("OpenAI", "AsyncOpenAI"), "anthropic": ("Anthropic", "AsyncAnthropic")}
GRID = [
    pytest.param(wording, call, CLIENTS[CALLS[call].sdk][(i + j) % 2], id=f"{wording}-{call}")
    for i, wording in enumerate(sorted(WORDINGS))
    for j, call in enumerate(("chat.create", "chat.stream", "responses.create", "responses.stream", "messages.create"))
] + [
    pytest.param(wording, "messages.stream", CLIENTS["anthropic"][i % 2], id=f"{wording}-messages.stream")
    for i, wording in enumerate(sorted(WORDINGS))
]


@pytest.mark.parametrize(("wording", "call", "name"), GRID)
async def test_one_refusal_costs_one_more_call(provider: FakeProvider, wording: str, call: str, name: str) -> None:
    kind: Any = KINDS[name]
    compactions: list[Compaction] = []
    provider.answer = ANSWER
    provider.wording = wording
    provider.reset("overflow;window=800")
    bare = client(kind, provider.base_url, http(library(sdk_of(kind)), kind))
    wrapped = wrap(bare, window=100_000, runtime=Runtime(on_compaction=compactions.append))
    assert await CALLS[call].run(wrapped, history()) == ANSWER
    assert provider.calls == 2
    assert [compaction.reason for compaction in compactions] == ["retry"]
    await done(wrapped.close())
