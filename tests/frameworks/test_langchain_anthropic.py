"""The LangChain middleware, for chat models that take no HTTP client."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from provider import FakeProvider

import ctxproxy
from ctxproxy.runtime import Runtime

from .loops import DONE, STEPS, TASK, WINDOW, Watched, finished, read_line, step

langchain_agents: Any = pytest.importorskip("langchain.agents", reason="langchain is not installed")
langchain_anthropic: Any = pytest.importorskip("langchain_anthropic", reason="langchain-anthropic is not installed")

from ctxproxy.clients.langchain import ContextMiddleware, wrap_chat_model  # noqa: E402  (needs langchain)

CONFIG = {"recursion_limit": 4 * STEPS}
INPUT = {"messages": [{"role": "user", "content": TASK}]}


def _model(provider: FakeProvider, **options: Any) -> Any:
    return langchain_anthropic.ChatAnthropic(
        model="m", base_url=provider.base_url, api_key="k", max_tokens=100, **options
    )


def _agent(model: Any, watched: Watched) -> Any:
    return langchain_agents.create_agent(model, [read_line], middleware=[ContextMiddleware(runtime=watched.runtime)])


def test_a_run_ends(provider: FakeProvider) -> None:
    provider.window, provider.answer = WINDOW, step
    watched = Watched()
    model = _model(provider)
    result = _agent(model, watched).invoke(INPUT, CONFIG)
    assert result["messages"][-1].text == DONE
    assert len(result["messages"]) == 2 * STEPS + 2  # the agent's own history is whole
    assert ctxproxy.runtime_of(model._client) is None  # the given model is as it was
    finished(provider, watched)


async def test_an_async_streamed_run_ends(provider: FakeProvider) -> None:
    provider.window, provider.answer = WINDOW, step
    watched = Watched()
    text = ""
    async for message, _ in _agent(_model(provider), watched).astream(INPUT, CONFIG, stream_mode="messages"):
        if message.type.startswith("AI"):
            text += message.text
    assert text == DONE
    finished(provider, watched)


def test_a_refusal_is_compacted_and_sent_again(provider: FakeProvider) -> None:
    """The window is not known here: the provider's refusals are what tells it."""
    provider.window, provider.answer = WINDOW, step
    compactions: list[Any] = []
    runtime = Runtime(policy=Watched().policy, on_compaction=compactions.append)
    agent = langchain_agents.create_agent(
        _model(provider), [read_line], middleware=[ContextMiddleware(runtime=runtime)]
    )
    result = agent.invoke(INPUT, CONFIG)
    assert result["messages"][-1].text == DONE
    assert compactions
    refused = [request for request in provider.model_requests if request.status == 400]
    assert refused  # and the agent saw none of them
    assert provider.calls == STEPS + 1 + len(refused)


async def test_sync_async_and_threads_share_one_middleware(provider: FakeProvider) -> None:
    provider.window, provider.answer = WINDOW, lambda request: step(request, steps=12)
    watched = Watched()
    agent = _agent(_model(provider), watched)

    def run(n: int) -> Any:
        return agent.invoke({"messages": [{"role": "user", "content": f"{TASK} You are reader {n}."}]}, CONFIG)

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(run, range(3)))
    assert [r["messages"][-1].text for r in results] == [DONE] * 3
    before = len(watched.compactions)
    assert before >= 3
    provider.answer = "Understood."
    for result in results:
        await agent.ainvoke({"messages": [*result["messages"], {"role": "user", "content": "Thank you."}]}, CONFIG)
    assert len(watched.compactions) == before  # replayed


def test_retries_of_the_framework_go_through(provider: FakeProvider) -> None:
    provider.window, provider.answer = WINDOW, step
    provider.reset(None, 429, None, 500)
    watched = Watched()
    result = _agent(_model(provider), watched).invoke(INPUT, CONFIG)
    assert result["messages"][-1].text == DONE
    finished(provider, watched, refused=2)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_prompt_that_can_not_fit_is_langchains_error_and_ours(
    provider: FakeProvider, asynchronous: bool
) -> None:
    from langchain_core.exceptions import ContextOverflowError

    provider.window = WINDOW
    huge = {"messages": [{"role": "system", "content": "The rules of the house. " * 3_000}, *INPUT["messages"]]}
    agent = _agent(_model(provider), Watched())
    with pytest.raises(ContextOverflowError) as caught:
        await (agent.ainvoke(huge, CONFIG) if asynchronous else asyncio.to_thread(agent.invoke, huge, CONFIG))
    ours: Any = caught.value
    assert isinstance(ours, ctxproxy.ContextOverflowError)
    assert ours.context_window == WINDOW
    assert ours.requested_tokens > WINDOW
    assert provider.calls == 0


def test_an_error_of_another_kind_is_langchains_own(provider: FakeProvider) -> None:
    provider.reset(401)
    with pytest.raises(Exception, match="401") as caught:
        _agent(_model(provider), Watched()).invoke(INPUT, CONFIG)
    assert not isinstance(caught.value, ctxproxy.ContextOverflowError)


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_a_model_of_langchain_openai_is_wrapped_too(provider: FakeProvider, wire: str) -> None:
    langchain_openai: Any = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    provider.window, provider.answer = WINDOW, step
    watched = Watched()
    model = langchain_openai.ChatOpenAI(
        model="m", base_url=provider.base_url, api_key="k", use_responses_api=wire == "responses"
    )
    result = _agent(model, watched).invoke(INPUT, CONFIG)
    assert result["messages"][-1].text == DONE
    finished(provider, watched)


def test_another_model_is_refused() -> None:
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    with pytest.raises(TypeError, match="no client of openai or anthropic"):
        wrap_chat_model(FakeListChatModel(responses=["a"]))
