"""pydantic-ai: its providers take an HTTP client, or a client of the SDK."""

from __future__ import annotations

from typing import Any

import pytest
from provider import FakeProvider

import ctxproxy

from .loops import DONE, STEPS, TASK, WINDOW, Watched, finished, read_line, step

pydantic_ai: Any = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")


def _model(wire: str, given: str, url: str, watched: Watched) -> Any:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    source: Any = AnthropicProvider if wire == "messages" else OpenAIProvider
    if given == "http_client":
        http_client = ctxproxy.http_client(asynchronous=True, runtime=watched.runtime)
        made = source(base_url=url, api_key="k", http_client=http_client)
    elif wire == "messages":
        made = source(anthropic_client=ctxproxy.AsyncAnthropic(base_url=url, api_key="k", runtime=watched.runtime))
    else:
        made = source(openai_client=ctxproxy.AsyncOpenAI(base_url=url, api_key="k", runtime=watched.runtime))
    kind: Any = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel, "messages": AnthropicModel}[wire]
    return kind("m", provider=made)


def _limits() -> Any:
    from pydantic_ai.usage import UsageLimits

    return UsageLimits(request_limit=STEPS + 1)


@pytest.mark.parametrize(
    ("wire", "given"),
    [
        ("chat", "http_client"),
        ("responses", "http_client"),
        ("messages", "http_client"),
        ("chat", "drop-in"),
        ("messages", "drop-in"),
    ],
)
async def test_a_run_ends(provider: FakeProvider, wire: str, given: str) -> None:
    provider.window, provider.answer = WINDOW, step
    watched = Watched()
    agent = pydantic_ai.Agent(
        _model(wire, given, provider.base_url, watched), tools=[read_line], model_settings={"max_tokens": 100}
    )
    result = await agent.run(TASK, usage_limits=_limits())
    assert result.output == DONE
    finished(provider, watched)


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
async def test_a_streamed_run_ends(provider: FakeProvider, wire: str) -> None:
    provider.window, provider.answer = WINDOW, step
    watched = Watched()
    agent = pydantic_ai.Agent(
        _model(wire, "http_client", provider.base_url, watched), tools=[read_line], model_settings={"max_tokens": 100}
    )
    async with agent.run_stream(TASK, usage_limits=_limits()) as result:
        text = [piece async for piece in result.stream_text()][-1]
    assert text == DONE
    finished(provider, watched)


async def test_a_prompt_that_can_not_fit_is_pydantic_ais_error(provider: FakeProvider) -> None:
    from pydantic_ai.exceptions import ModelContextWindowExceededError

    provider.window = WINDOW
    model = _model("chat", "http_client", provider.base_url, Watched())
    agent = pydantic_ai.Agent(model, instructions="The rules of the house. " * 3_000)
    with pytest.raises(ModelContextWindowExceededError) as caught:
        await agent.run(TASK)
    assert isinstance(caught.value.__cause__, ctxproxy.ContextOverflowError)
    assert provider.calls == 0


async def test_retries_of_the_sdk_go_through(provider: FakeProvider) -> None:
    provider.window, provider.answer = WINDOW, step
    provider.reset(None, 429, None, 500)
    watched = Watched()
    agent = pydantic_ai.Agent(_model("chat", "http_client", provider.base_url, watched), tools=[read_line])
    result = await agent.run(TASK, usage_limits=_limits())
    assert result.output == DONE
    finished(provider, watched, refused=2)
