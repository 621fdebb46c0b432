"""openai-agents: its models take an AsyncOpenAI client."""

from __future__ import annotations

from typing import Any

import pytest
from provider import FakeProvider

import ctxproxy

from .loops import DONE, STEPS, TASK, WINDOW, Watched, finished, read_line, step

agents: Any = pytest.importorskip("agents", reason="openai-agents is not installed")
openai: Any = pytest.importorskip("openai")

agents.set_tracing_disabled(True)


def _agent(client: Any, wire: str) -> Any:
    kind = agents.OpenAIResponsesModel if wire == "responses" else agents.OpenAIChatCompletionsModel
    return agents.Agent(
        name="reader", model=kind(model="m", openai_client=client), tools=[agents.function_tool(read_line)]
    )


@pytest.mark.parametrize(
    ("wire", "given"),
    [("chat", "http_client"), ("responses", "http_client"), ("chat", "wrapped"), ("responses", "drop-in")],
)
async def test_a_run_ends(provider: FakeProvider, wire: str, given: str) -> None:
    provider.window, provider.answer = WINDOW, step
    watched = Watched()
    options = {"base_url": provider.base_url, "api_key": "k"}
    if given == "http_client":
        http_client = ctxproxy.http_client(asynchronous=True, runtime=watched.runtime)
        client = openai.AsyncOpenAI(**options, http_client=http_client)
    elif given == "wrapped":
        client = ctxproxy.wrap(openai.AsyncOpenAI(**options), runtime=watched.runtime)
    else:
        client = ctxproxy.AsyncOpenAI(**options, runtime=watched.runtime)
    result = await agents.Runner.run(_agent(client, wire), TASK, max_turns=STEPS + 1)
    assert result.final_output == DONE
    finished(provider, watched)
    await client.close()


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_a_streamed_run_ends(provider: FakeProvider, wire: str) -> None:
    provider.window, provider.answer = WINDOW, step
    watched = Watched()
    client = ctxproxy.AsyncOpenAI(base_url=provider.base_url, api_key="k", runtime=watched.runtime)
    run = agents.Runner.run_streamed(_agent(client, wire), TASK, max_turns=STEPS + 1)
    kinds = {event.type async for event in run.stream_events()}
    assert {"raw_response_event", "run_item_stream_event"} <= kinds
    assert run.final_output == DONE
    finished(provider, watched)
    await client.close()


async def test_retries_of_the_sdk_go_through(provider: FakeProvider) -> None:
    provider.window, provider.answer = WINDOW, step
    provider.reset(None, 429, None, 500, 503)
    watched = Watched()
    client = ctxproxy.AsyncOpenAI(base_url=provider.base_url, api_key="k", runtime=watched.runtime)
    result = await agents.Runner.run(_agent(client, "chat"), TASK, max_turns=STEPS + 1)
    assert result.final_output == DONE
    finished(provider, watched, refused=3)
    await client.close()
