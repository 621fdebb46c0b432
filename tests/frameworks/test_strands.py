"""strands: its OpenAI model takes a client.

An `http_client` in its `client_args` does not do: strands makes and closes an SDK client for each request, and the
HTTP client that it was given with it.
"""

from __future__ import annotations

from typing import Any

import pytest
from provider import FakeProvider

import ctxproxy

from .loops import DONE, TASK, WINDOW, Watched, finished, read_line, step

strands: Any = pytest.importorskip("strands", reason="strands-agents is not installed")


def _agent(client: Any) -> Any:
    from strands.agent.conversation_manager import NullConversationManager
    from strands.models.openai import OpenAIModel

    # Strands' own window of 40 messages would hide what ours does.
    return strands.Agent(
        model=OpenAIModel(client=client, model_id="m"),
        tools=[strands.tool(read_line)],
        conversation_manager=NullConversationManager(),
        callback_handler=None,
    )


@pytest.mark.parametrize("given", ["http_client", "wrapped", "drop-in"])
async def test_a_run_ends(provider: FakeProvider, given: str) -> None:
    openai: Any = pytest.importorskip("openai")
    provider.window, provider.answer = WINDOW, step
    watched = Watched()
    options: dict[str, Any] = {"base_url": provider.base_url, "api_key": "k"}
    if given == "http_client":
        http_client = ctxproxy.http_client(asynchronous=True, runtime=watched.runtime)
        client = openai.AsyncOpenAI(**options, http_client=http_client)
    elif given == "wrapped":
        client = ctxproxy.wrap(openai.AsyncOpenAI(**options), runtime=watched.runtime)
    else:
        client = ctxproxy.AsyncOpenAI(**options, runtime=watched.runtime)
    result = await _agent(client).invoke_async(TASK)
    assert str(result).strip() == DONE
    finished(provider, watched)
    await client.close()


def test_a_sync_run_ends(provider: FakeProvider) -> None:
    provider.window, provider.answer = WINDOW, step
    watched = Watched()
    client = ctxproxy.AsyncOpenAI(base_url=provider.base_url, api_key="k", runtime=watched.runtime)
    result = _agent(client)(TASK)
    assert str(result).strip() == DONE
    finished(provider, watched)
