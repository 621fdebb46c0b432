"""LangChain: langchain-openai takes a sync and an async HTTP client."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from provider import FakeProvider

import ctxproxy

from .loops import DONE, STEPS, TASK, WINDOW, Watched, finished, read_line, step

langchain_agents: Any = pytest.importorskip("langchain.agents", reason="langchain is not installed")
langchain_openai: Any = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")

CONFIG = {"recursion_limit": 4 * STEPS}
INPUT = {"messages": [{"role": "user", "content": TASK}]}


def _agent(provider: FakeProvider, watched: Watched, *, wire: str = "chat", **options: Any) -> Any:
    model = langchain_openai.ChatOpenAI(
        model="m",
        base_url=provider.base_url,
        api_key="k",
        use_responses_api=wire == "responses",
        http_client=ctxproxy.http_client(runtime=watched.runtime),
        http_async_client=ctxproxy.http_client(asynchronous=True, runtime=watched.runtime),
        **options,
    )
    return langchain_agents.create_agent(model, [read_line])


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_a_run_ends(provider: FakeProvider, wire: str) -> None:
    provider.window, provider.answer = WINDOW, step
    watched = Watched()
    result = _agent(provider, watched, wire=wire).invoke(INPUT, CONFIG)
    assert result["messages"][-1].text == DONE
    assert len(result["messages"]) == 2 * STEPS + 2  # LangChain's own history is whole
    finished(provider, watched)


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_an_async_streamed_run_ends(provider: FakeProvider, wire: str) -> None:
    provider.window, provider.answer = WINDOW, step
    watched = Watched()
    text = ""
    async for message, _ in _agent(provider, watched, wire=wire).astream(INPUT, CONFIG, stream_mode="messages"):
        if message.type.startswith("AI"):
            text += message.text
    assert text == DONE
    finished(provider, watched)


async def test_sync_and_async_share_one_memory(provider: FakeProvider) -> None:
    """A conversation that began in a sync run goes on in an async one, in the same compacted form."""
    provider.window, provider.answer = WINDOW, lambda request: step(request, steps=12)
    watched = Watched()
    agent = _agent(provider, watched)
    first = agent.invoke(INPUT, CONFIG)
    before = [c.id for c in watched.compactions]
    assert before
    provider.answer = "Understood."
    more = {"messages": [*first["messages"], {"role": "user", "content": "Thank you."}]}
    await agent.ainvoke(more, CONFIG)
    assert [c.id for c in watched.compactions] == before  # replayed, not made anew
    assert len(provider.model_requests[-1].body) < len(provider.model_requests[-2].body) * 1.2


def test_threads_share_a_client(provider: FakeProvider) -> None:
    provider.window, provider.answer = WINDOW, lambda request: step(request, steps=14)
    watched = Watched()
    agent = _agent(provider, watched)

    def run(n: int) -> Any:
        return agent.invoke({"messages": [{"role": "user", "content": f"{TASK} You are reader {n}."}]}, CONFIG)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, range(4)))
    for n, result in enumerate(results):
        assert result["messages"][-1].text == DONE
        assert result["messages"][0].text.endswith(f"reader {n}.")
    assert provider.calls == 4 * 15
    assert len(watched.compactions) >= 4


def test_retries_of_the_framework_go_through(provider: FakeProvider) -> None:
    provider.window, provider.answer = WINDOW, step
    provider.reset(None, 429, None, 500)
    watched = Watched()
    result = _agent(provider, watched).invoke(INPUT, CONFIG)
    assert result["messages"][-1].text == DONE
    finished(provider, watched, refused=2)


def test_a_prompt_that_can_not_fit_is_langchains_error_and_ours(provider: FakeProvider) -> None:
    from langchain_core.exceptions import ContextOverflowError

    provider.window = WINDOW
    watched = Watched()
    huge = {"messages": [{"role": "system", "content": "The rules of the house. " * 3_000}, *INPUT["messages"]]}
    with pytest.raises(ContextOverflowError) as caught:
        _agent(provider, watched, max_retries=0).invoke(huge, CONFIG)
    ours: Any = caught.value if isinstance(caught.value, ctxproxy.ContextOverflowError) else caught.value.__cause__
    assert isinstance(ours, ctxproxy.ContextOverflowError)
    assert ours.context_window == WINDOW
