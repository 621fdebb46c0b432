"""litellm's functions and its router with ctxproxy inside, against the strict provider."""

from __future__ import annotations

import importlib.util
import inspect
import json
import pickle
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import httpx
import litellm
import pytest
from provider import Answer, FakeProvider, ToolCall

from ctxproxy.clients import last_report, runtime_of, wrap
from ctxproxy.clients.litellm import LiteLLM
from ctxproxy.clients.litellm_streams import Held
from ctxproxy.clients.routes import route_of
from ctxproxy.errors import ContextOverflowError
from ctxproxy.policy import preset
from ctxproxy.runtime import Runtime
from ctxproxy.strategies.summarize import SECTIONS

from .calls import RULES, Number, done, history

MODEL = "openai/a-model"


def llm(window: int | None = 2_000, **options: Any) -> LiteLLM:
    return LiteLLM(window=window, policy=options.pop("policy", RULES), **options)


def options(provider: FakeProvider, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "api_base": f"{provider.base_url}/v1", "api_key": "k", "max_retries": 0, **more}


def claude(provider: FakeProvider, **more: Any) -> dict[str, Any]:
    return options(provider, model="anthropic/claude-test", api_base=provider.base_url, max_tokens=50, **more)


def router(provider: FakeProvider, **more: Any) -> litellm.Router:
    def deployment(name: str, model: str) -> dict[str, Any]:
        return {"model_name": name, "litellm_params": options(provider, model=f"openai/{model}")}

    return litellm.Router(
        model_list=[deployment("main", "a-model"), deployment("large", "b-model")], num_retries=0, **more
    )


def sent(provider: FakeProvider, at: int = -1) -> list[dict[str, Any]]:
    body: Any = provider.model_requests[at].json()
    return body.get("messages") or body["input"]


def requests_of(used: Any) -> list[Any]:
    runtime = runtime_of(used)
    assert runtime is not None
    return [event for event in runtime.monitor.events() if event.type == "request"]


# --- each way in ---


CALLS: dict[str, Callable[[Any, FakeProvider, list[dict[str, Any]]], Any]] = {
    "completion": lambda c, p, m: c.completion(messages=m, **options(p)),
    "acompletion": lambda c, p, m: c.acompletion(messages=m, **options(p)),
    "completion of anthropic": lambda c, p, m: c.completion(messages=m, **claude(p)),
    "acompletion of anthropic": lambda c, p, m: c.acompletion(messages=m, **claude(p)),
    "responses": lambda c, p, m: c.responses(input=m, **options(p)),
    "aresponses": lambda c, p, m: c.aresponses(input=m, **options(p)),
    "anthropic_messages": lambda c, p, m: c.anthropic_messages(messages=m, **claude(p)),
    "completion, streamed": lambda c, p, m: c.completion(messages=m, stream=True, **options(p)),
    "acompletion, streamed": lambda c, p, m: c.acompletion(messages=m, stream=True, **options(p)),
    "completion of anthropic, streamed": lambda c, p, m: c.completion(messages=m, stream=True, **claude(p)),
    "responses, streamed": lambda c, p, m: c.responses(input=m, stream=True, **options(p)),
    "aresponses, streamed": lambda c, p, m: c.aresponses(input=m, stream=True, **options(p)),
    "anthropic_messages, streamed": lambda c, p, m: c.anthropic_messages(messages=m, stream=True, **claude(p)),
}


# litellm hands such a stream to code of its own proxy, which imports all that the proxy needs.
if importlib.util.find_spec("backoff") is None or importlib.util.find_spec("fastapi") is None:
    del CALLS["anthropic_messages, streamed"]


async def result(call: Any) -> Any:
    """The answer, or all events of a stream: litellm's can be read both ways, but only one is right."""
    value = await done(call)
    if inspect.isawaitable(call) and hasattr(value, "__anext__"):
        return [event async for event in value]
    return list(value) if hasattr(value, "__next__") else value


@pytest.mark.parametrize("name", CALLS)
async def test_a_conversation_over_the_window_is_compacted_before_it_is_sent(name: str, provider: FakeProvider) -> None:
    used = llm(1_000)
    found = await result(CALLS[name](used, provider, history(30)))
    assert "Understood" in str(found)
    assert provider.calls == 1
    assert len(sent(provider)) < len(history(30))
    assert sent(provider)[-1]["role"] == "user"


@pytest.mark.parametrize("name", CALLS)
async def test_a_refusal_is_cured_by_sending_less(name: str, provider: FakeProvider) -> None:
    provider.window = 2_200 if "responses" in name else 1_500  # that wording does not state it
    found = await result(CALLS[name](llm(100_000), provider, history(40)))
    assert "Understood" in str(found)
    assert 2 <= provider.calls <= 4
    assert len(sent(provider)) < len(sent(provider, 0)) == len(history(40))


@pytest.mark.parametrize("name", CALLS)
async def test_a_refusal_that_nothing_cures_is_both_errors(name: str, provider: FakeProvider) -> None:
    provider.window = 60
    huge = [{"role": "user", "content": "many words " * 200}]
    with pytest.raises(ContextOverflowError) as caught:
        await result(CALLS[name](llm(100_000), provider, huge))
    assert isinstance(caught.value, litellm.ContextWindowExceededError)
    assert caught.value.context_window == (None if "responses" in name else 60)  # that wording states none
    assert caught.value.attempts == provider.calls >= 1
    assert type(pickle.loads(pickle.dumps(caught.value))) is type(caught.value)


@pytest.mark.parametrize("name", CALLS)
async def test_what_can_not_fit_is_refused_before_it_is_sent(name: str, provider: FakeProvider) -> None:
    with pytest.raises(litellm.ContextWindowExceededError, match="do not fit") as caught:
        await result(CALLS[name](llm(1_100), provider, [{"role": "user", "content": "many words " * 2_000}]))
    assert isinstance(caught.value, ContextOverflowError)
    assert caught.value.status_code == 400
    assert provider.calls == 0


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("status", [500, 429, 401])
async def test_other_errors_are_those_of_litellm(name: str, status: int, provider: FakeProvider) -> None:
    provider.reset(*[status] * 4)
    with pytest.raises(Exception) as bare:
        await result(CALLS[name](litellm, provider, history(2)))
    provider.reset(*[status] * 4)
    with pytest.raises(Exception) as caught:
        await result(CALLS[name](llm(), provider, history(2)))
    assert type(caught.value) is type(bare.value)
    assert str(caught.value) == str(bare.value)
    assert not isinstance(caught.value, ContextOverflowError)


@pytest.mark.parametrize("name", CALLS)
async def test_a_request_that_fits_arrives_as_litellm_would_send_it(name: str, provider: FakeProvider) -> None:
    await result(CALLS[name](litellm, provider, history(3)))
    bare = provider.model_requests[-1].body
    await result(CALLS[name](llm(100_000), provider, history(3)))
    assert provider.model_requests[-1].body == bare


# --- a router ---


@pytest.mark.parametrize("name", [name for name in CALLS if "anthropic" not in name])
async def test_a_wrapped_router_compacts(name: str, provider: FakeProvider) -> None:
    provider.window = 2_200
    given = router(provider)
    used = wrap(given, window=1_000, policy=RULES)
    assert isinstance(used, litellm.Router)
    assert wrap(used) is not used
    assert "Understood" in str(await result(on_router(name, used, history(40))))
    assert provider.calls == 1
    provider.reset()
    reactive = wrap(given, window=100_000, policy=RULES)
    assert "Understood" in str(await result(on_router(name, reactive, history(40))))
    assert provider.calls >= 2
    assert runtime_of(used) is not runtime_of(reactive)


def on_router(name: str, used: Any, messages: list[dict[str, Any]], **more: Any) -> Any:
    method, _, streamed = name.partition(", ")
    array = "input" if "responses" in method else "messages"
    return getattr(used, method)(**{"model": "main", array: messages, **({"stream": True} if streamed else {}), **more})


@pytest.mark.parametrize("name", ["completion", "acompletion", "acompletion, streamed"])
async def test_a_router_s_own_context_fallback_comes_first(name: str, provider: FakeProvider) -> None:
    provider.reset("overflow")
    used = wrap(router(provider, context_window_fallbacks=[{"main": ["large"]}]), policy=RULES)
    assert "Understood" in str(await result(on_router(name, used, history(40))))
    assert [r.json()["model"] for r in provider.model_requests] == ["a-model", "b-model"]  # type: ignore[index]
    assert len(sent(provider)) == len(history(40))


@pytest.mark.parametrize("name", ["completion", "acompletion"])
async def test_a_router_falls_back_from_a_window_that_certainly_is_too_small(name: str, provider: FakeProvider) -> None:
    provider.reset("overflow")
    used = wrap(router(provider, context_window_fallbacks=[{"main": ["large"]}]), window=1_100, policy=RULES)
    assert "Understood" in str(await result(on_router(name, used, [{"role": "user", "content": "word " * 3_000}])))
    assert provider.calls == 2


async def test_a_router_whose_fallback_is_refused_too_raises_both_errors(provider: FakeProvider) -> None:
    provider.window = 60
    used = wrap(router(provider, context_window_fallbacks=[{"main": ["large"]}]), policy=RULES)
    with pytest.raises(litellm.ContextWindowExceededError) as caught:
        used.completion(model="main", messages=[{"role": "user", "content": "word " * 400}])
    assert isinstance(caught.value, ContextOverflowError)


async def test_the_smallest_window_behind_a_name_counts_and_the_largest_of_its_fallbacks() -> None:
    def deployment(name: str, window: int | None) -> dict[str, Any]:
        params = {"model": f"openai/model-{window}", "api_key": "k"}
        return {"model_name": name, "litellm_params": params, "model_info": {"max_input_tokens": window}}

    listed = [
        deployment("main", 9_000),
        deployment("main", 4_000),
        deployment("large", 50_000),
        deployment("far", None),
    ]
    made = litellm.Router(model_list=listed)
    chained = litellm.Router(model_list=listed, context_window_fallbacks=[{"main": ["large"]}])
    runtime = Runtime()
    assert (
        route_of(runtime, {"model": "main"}, made).window,
        route_of(runtime, {"model": "main"}, made).falls_back,
    ) == (4_000, False)
    assert (
        route_of(runtime, {"model": "main"}, chained).window,
        route_of(runtime, {"model": "main"}, chained).falls_back,
    ) == (50_000, True)
    assert route_of(runtime, {"model": "far"}, made).window is None
    assert route_of(runtime, {"model": "nothing"}, made).model == "nothing"


async def test_the_rest_of_a_router_is_its_own(provider: FakeProvider) -> None:
    given = router(provider)
    used = wrap(given)
    assert used.get_model_list() == given.get_model_list()
    with pytest.raises(AttributeError):
        _ = used.nothing  # type: ignore[attr-defined]
    assert inspect.iscoroutinefunction(used.acompletion)
    assert not inspect.iscoroutinefunction(used.completion)


# --- litellm's own ways around a small window ---


async def test_context_window_fallback_dict_still_works(provider: FakeProvider) -> None:
    provider.reset("overflow")
    more = {"context_window_fallback_dict": {MODEL: "openai/b-model"}}
    found = llm(None).completion(messages=history(3), **options(provider, **more))
    assert "Understood" in str(found)
    assert [r.json()["model"] for r in provider.model_requests] == ["a-model", "b-model"]  # type: ignore[index]


# --- arguments ---


async def test_unknown_arguments_and_positional_ones_arrive(provider: FakeProvider) -> None:
    given = options(provider, extra_body={"of_mine": 1}, temperature=0.25, extra_headers={"x-mine": "yes"})
    messages = history(30)
    llm(1_000).completion(given.pop("model"), messages, **given)
    request = provider.model_requests[-1]
    body: Any = request.json()
    assert (body["of_mine"], body["temperature"], dict(request.headers)["x-mine"]) == (1, 0.25, "yes")
    assert len(body["messages"]) < len(messages) == len(history(30))


@pytest.mark.parametrize("messages", [None, "no list", 7, [object()], [None]])
async def test_messages_that_are_none_are_litellm_s_to_judge(messages: Any, provider: FakeProvider) -> None:
    with pytest.raises(Exception) as bare:
        litellm.completion(messages=messages, **options(provider))
    with pytest.raises(Exception) as caught:
        llm().completion(messages=messages, **options(provider))
    assert type(caught.value) is type(bare.value)


async def test_wrong_arguments_are_litellm_s_errors() -> None:
    for args, kwargs in (((), {}), (("m", []), {"model": "m"})):
        with pytest.raises(Exception) as bare:
            litellm.completion(*args, **kwargs)
        with pytest.raises(Exception) as caught:
            llm().completion(*args, **kwargs)
        assert type(caught.value) is type(bare.value)


async def test_a_class_as_response_format_arrives(provider: FakeProvider) -> None:
    llm(1_000).completion(messages=history(30), response_format=Number, **options(provider))
    body: Any = provider.model_requests[-1].json()
    assert body["response_format"]["json_schema"]["name"] == "Number"


async def test_a_lowered_output_limit_arrives(provider: FakeProvider) -> None:
    provider.window, provider.check_output = 2_000, True
    llm(100_000).completion(messages=history(10), **options(provider, max_tokens=1_900))
    limits = [r.json()["max_tokens"] for r in provider.model_requests]  # type: ignore[index]
    assert limits[0] == 1_900 > limits[-1]
    assert len(sent(provider)) == len(history(10))


async def test_a_text_is_measured_and_sent_as_it_is(provider: FakeProvider) -> None:
    found = llm().text_completion("hello", MODEL, mock_response="Understood.")
    assert found.choices[0].text == "Understood."
    with pytest.raises(litellm.ContextWindowExceededError) as caught:
        llm(1_100).text_completion("many words " * 2_000, MODEL, mock_response="x")
    assert isinstance(caught.value, ContextOverflowError)
    with pytest.raises(ContextOverflowError):
        llm(1_100).text_completion(["a", "b"], MODEL, mock_response=overflow())


def overflow() -> Exception:
    return litellm.ContextWindowExceededError(message="too long", model=MODEL, llm_provider="openai")


# --- many turns ---


@pytest.mark.parametrize("objects", [False, True])
async def test_thirty_turns_with_tools_replay_the_same_prefix(objects: bool, provider: FakeProvider) -> None:
    def answer(request: Any) -> Answer:
        return Answer(text="", tool_calls=[ToolCall("read", {"n": provider.calls})])

    provider.answer = answer
    provider.window = 2_000
    tools = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]
    used = llm(2_000)
    messages: list[Any] = [{"role": "user", "content": "The task: read all files."}]
    grown, cuts = 0, 0
    for turn in range(30):
        found = used.completion(messages=messages, tools=tools, **options(provider))
        message = found.choices[0].message
        messages.append(message if objects else message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"file {turn}: " + "some text " * 60})
        report = last_report(found)
        assert report is not None
        cuts += bool(report.strategies)
    assert provider.calls == 30
    bodies = [sent(provider, i) for i in range(30)]
    for before, after in pairwise(bodies):
        grown += after[: len(before)] == before
    assert cuts >= 2
    assert grown == 29 - cuts
    assert len(requests_of(used)) == 30


async def test_the_caller_s_list_and_messages_stay_as_they_are(provider: FakeProvider) -> None:
    given = history(30)
    llm(1_000).completion(messages=given, **options(provider))
    assert given == history(30)


async def test_broken_tool_pairs_are_sent_as_they_are(provider: FakeProvider) -> None:
    provider.rules = False
    broken = [*history(2), {"role": "tool", "tool_call_id": "gone", "content": "x"}, {"role": "user", "content": "go"}]
    llm(100_000).completion(messages=broken, **options(provider))
    assert [m["role"] for m in sent(provider)] == [m["role"] for m in broken]
    provider.reset()


# --- streams ---


@pytest.mark.parametrize("name", [name for name in CALLS if "streamed" in name])
async def test_a_stream_closed_early_is_recorded_once(name: str, provider: FakeProvider) -> None:
    used = llm(100_000)
    stream = await done(CALLS[name](used, provider, history(3)))
    if hasattr(stream, "__anext__") and name.startswith("a"):
        await anext(stream)
        await stream.aclose()
        await stream.aclose()
    else:
        next(stream)
        stream.close()
        stream.close()
    assert len(requests_of(used)) == 1


@pytest.mark.parametrize("name", CALLS)
async def test_every_call_is_one_event_with_the_provider_s_figures(name: str, provider: FakeProvider) -> None:
    used = llm(100_000)
    await result(CALLS[name](used, provider, history(3)))
    (event,) = requests_of(used)
    assert event.before > 100
    # A chat stream states its usage only where the caller asks for it.
    assert (event.input > 100) is not ("completion" in name and "streamed" in name)
    assert event.status == 200


async def test_the_usage_of_a_stream_is_read_where_the_caller_asks_for_it(provider: FakeProvider) -> None:
    used = llm(100_000)
    await result(
        used.completion(messages=history(3), stream=True, stream_options={"include_usage": True}, **options(provider))
    )
    assert requests_of(used)[0].input > 100


async def test_a_stream_is_litellm_s_own_in_all_else(provider: FakeProvider) -> None:
    stream = llm(100_000).completion(messages=history(3), stream=True, **options(provider))
    assert isinstance(stream, litellm.CustomStreamWrapper)
    assert stream.model == "a-model"
    assert last_report(stream) is not None
    assert "".join(c.choices[0].delta.content or "" for c in stream) == "Understood."
    with pytest.raises(StopIteration):
        next(stream)


async def events(*values: Any) -> AsyncIterator[Any]:
    for value in values:
        yield value


async def test_a_stream_of_bytes_is_read_along_and_handed_on() -> None:
    told: list[Any] = []
    start = b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":7}}}\n\n'
    delta = b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}\n\n'
    parts = [b"event: ping\n", b'data: {"type":"ping"}\n\n', start, delta]
    stream = await Held(events(*parts), "messages").apeek()
    assert stream.failure is None
    stream.listen(lambda *told_: told.append(told_))
    assert [part async for part in stream] == parts
    assert told == [({"input_tokens": 7, "output_tokens": 3}, "end_turn")]


async def test_a_stream_of_bytes_that_begins_with_a_refusal_says_so() -> None:
    error = b'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}\n\n'
    stream = await Held(events(error), "messages").apeek()
    assert stream.failure is not None
    assert stream.failure[0] == "error"
    assert [part async for part in stream] == [error]


# --- summaries ---


async def summarized(used: Any, provider: FakeProvider, *, asynchronous: bool) -> None:
    def answer(request: Any) -> Any:
        return SUMMARY if b"Summarize the conversation so far" in request.body else None

    provider.answer = answer
    provider.rules = False
    more = {"tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": True}
    method = used.acompletion if asynchronous else used.completion
    found = await done(method(messages=history(40, words=80), **options(provider, **more)))
    assert "Understood" in str(found)


SUMMARY = "\n".join(f"### {name}\n- about {name.lower()} of notes.txt and ticket 4711" for name in SECTIONS)
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_summary_is_a_call_with_the_caller_s_credentials(asynchronous: bool, provider: FakeProvider) -> None:
    used = llm(2_000, policy=preset("default", summaries=True))
    await summarized(used, provider, asynchronous=asynchronous)
    assert provider.calls == 2
    first, second = provider.model_requests
    assert dict(first.headers)["authorization"] == dict(second.headers)["authorization"] == "Bearer k"
    body: Any = first.json()
    assert body["model"] == "a-model"
    assert not body.get("stream")
    assert "ticket 4711" in str(second.json())


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_summary_that_fails_costs_nothing_else(asynchronous: bool, provider: FakeProvider) -> None:
    provider.reset(500)
    used = llm(2_000, policy=preset("default", summaries=True))
    await summarized(used, provider, asynchronous=asynchronous)
    assert provider.calls == 2


# --- over httpx itself ---


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_refusal_of_the_real_address_is_cured(asynchronous: bool, respx_mock: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("DISABLE_AIOHTTP_TRANSPORT", "True")  # else litellm's coroutines do not run on httpx
    litellm.in_memory_llm_clients_cache.flush_cache()
    text = [{"type": "text", "text": "Understood."}]
    usage = {"input_tokens": 9, "output_tokens": 3}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": text}
    error = {"type": "invalid_request_error", "message": "prompt is too long: 4000 tokens > 2000 maximum"}
    route = respx_mock.post("https://api.anthropic.com/v1/messages").mock(
        side_effect=[
            httpx.Response(400, json={"type": "error", "error": error}),
            httpx.Response(200, json={**message, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}),
        ]
    )
    used = llm(100_000)
    method = used.acompletion if asynchronous else used.completion
    found = await done(
        method(model="anthropic/claude-test", messages=history(40), max_tokens=50, api_key="k", max_retries=0)
    )
    assert found.choices[0].message.content == "Understood."
    first, second = (json.loads(call.request.content)["messages"] for call in route.calls)
    assert len(second) < len(first)


async def test_an_unmeasured_refusal_keeps_the_original_as_its_cause() -> None:
    original = overflow()
    with pytest.raises(ContextOverflowError) as caught:
        await llm().atext_completion(prompt=["a", "b"], model=MODEL, mock_response=original)
    assert isinstance(caught.value, litellm.ContextWindowExceededError)
    assert isinstance(caught.value.__cause__, litellm.ContextWindowExceededError)
