"""guard: any function that takes messages."""

from __future__ import annotations

import asyncio
import copy
import functools
import json
import pickle
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from provider import FakeProvider, o200k

import ctxproxy
from ctxproxy import ConfigError, ContextOverflowError, Session, guard
from ctxproxy.policy import Policy

WINDOW = 2_000


def history(steps: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find out why service-47 does not start."}]
    for i in range(steps):
        call = {"id": f"c{i}", "type": "function", "function": {"name": "read", "arguments": f'{{"n":{i}}}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"step {i} says value {i * 37}\n" * 20})
    return messages


def size(messages: Any) -> int:
    return sum(o200k(json.dumps(m)) for m in messages)


class Model:
    """A model of a fixed window that says in plain words when it is too small."""

    def __init__(self, window: int = WINDOW) -> None:
        self.window = window
        self.seen: list[Any] = []

    def __call__(self, messages: Any) -> dict[str, Any]:
        self.seen.append(copy.deepcopy(list(messages)))
        tokens = size(messages)
        if tokens > self.window:
            raise ValueError(
                f"This model's maximum context length is {self.window} tokens. "
                f"However, your messages resulted in {tokens} tokens."
            )
        return {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}],
                "usage": {"prompt_tokens": tokens, "completion_tokens": 1}}  # fmt: skip


def test_what_fits_goes_through_untouched():
    model, given = Model(), history(3)
    before = copy.deepcopy(given)
    seen: list[Any] = []

    @guard(window=WINDOW, model="gpt-4o")
    def ask(messages: list[Any]) -> Any:
        seen.append(messages)
        return model(messages)

    assert ask(given)["choices"]
    assert seen[0] is given
    assert given == before
    assert ask.__name__ == "ask"


def test_it_compacts_before_the_call_and_replays_the_same_messages():
    model, given = Model(), history(30)
    ask = guard(window=WINDOW, model="gpt-4o")(lambda messages: model(messages))
    for steps in range(30, 36):
        assert ask(history(steps))["choices"]
    assert len(model.seen) == 6
    assert all(size(messages) <= WINDOW for messages in model.seen)
    compactions = [e for e in ask.session.events if e.type == "compaction"]
    assert compactions[0].reason == "overflow"
    # Between two compactions each turn begins with what the turn before sent.
    grown = sum(later[: len(earlier)] == earlier for earlier, later in zip(model.seen, model.seen[1:], strict=False))
    assert grown == 6 - len(compactions) >= 3
    assert given == history(30)


def test_it_is_called_again_with_less_when_it_raises_an_overflow():
    model = Model()
    ask = guard(model="a-model-that-nobody-knows")(lambda messages: model(messages))
    assert ask(history(40))["choices"]
    sizes = [size(messages) for messages in model.seen]
    assert sizes[0] > WINDOW >= sizes[-1]
    assert len(sizes) == 2
    assert [e.type for e in ask.session.events] == ["overflow", "compaction", "request"]
    assert {e.reason for e in ask.session.events} == {"retry"}
    # What the provider refused is learned: the next call fits at once, with the same beginning.
    ask(history(41))
    assert len(model.seen) == 3
    assert model.seen[2][: len(model.seen[1])] == model.seen[1]


def test_the_last_error_is_of_both_classes():
    class ProviderError(Exception):
        def __init__(self, message: str, *, hint: str) -> None:
            super().__init__(message)
            self.hint = hint

    calls: list[int] = []

    @guard(window=100_000, model="gpt-4o")
    def ask(messages: list[Any]) -> Any:
        calls.append(size(messages))
        raise ProviderError(f"prompt is too long: {calls[-1]} tokens > 10 maximum", hint="h")

    with pytest.raises(ProviderError) as raised:
        ask(history(30))
    error: Any = raised.value
    assert isinstance(error, ContextOverflowError)
    assert error.hint == "h"
    assert (error.context_window, error.reason) == (10, "retry")
    assert isinstance(error.__cause__, ProviderError)
    assert str(error).startswith("prompt is too long")
    assert len(calls) <= 3
    assert calls == sorted(calls, reverse=True)
    assert len(set(calls)) == len(calls)


def test_retries_are_bounded_and_each_is_smaller():
    sizes: list[int] = []

    def ask(messages: list[Any]) -> Any:
        sizes.append(size(messages))
        raise RuntimeError("the prompt exceeds the context window of the model")

    for retries, calls in ((0, 1), (1, 2), (3, 4)):
        sizes.clear()
        with pytest.raises(RuntimeError) as raised:
            guard(window=50_000, model="gpt-4o", max_retries=retries)(ask)(history(60))
        assert isinstance(raised.value, ContextOverflowError)
        assert raised.value.attempts == calls == len(sizes)
        assert sizes == sorted(set(sizes), reverse=True)


@pytest.mark.parametrize("error", [KeyError("x"), OSError(5, "broken"), ZeroDivisionError(), StopIteration(3)])
def test_other_errors_pass_as_they_are_after_one_call(error: Exception):
    calls: list[int] = []

    @guard
    def ask(messages: list[Any]) -> Any:
        calls.append(1)
        raise error

    with pytest.raises(type(error)) as raised:
        ask(history(1))
    assert raised.value is error
    assert len(calls) == 1


def test_what_ends_a_program_is_left_alone():
    @guard
    def ask(messages: list[Any]) -> Any:
        raise KeyboardInterrupt("prompt is too long: 3 tokens > 2 maximum")

    with pytest.raises(KeyboardInterrupt):
        ask(history(1))


def test_an_error_that_is_caused_by_an_overflow_counts():
    model = Model()

    @guard(model="unknown")
    def ask(messages: list[Any]) -> Any:
        try:
            return model(messages)
        except ValueError as error:
            raise RuntimeError("the model call failed") from error

    assert ask(history(40))["choices"]
    assert len(model.seen) == 2


def test_a_class_that_cannot_be_derived_from_is_the_cause():
    class Final(Exception):
        def __init_subclass__(cls) -> None:
            raise TypeError("final")

    @guard(max_retries=0)
    def ask(messages: list[Any]) -> Any:
        raise Final("prompt is too long: 30 tokens > 2 maximum")

    with pytest.raises(ContextOverflowError) as raised:
        ask(history(1))
    assert isinstance(raised.value.__cause__, Final)


def test_os_errors_and_odd_layouts_keep_their_class():
    @guard(max_retries=0)
    def ask(messages: list[Any]) -> Any:
        raise TimeoutError(110, "prompt is too long: 30 tokens > 2 maximum")

    with pytest.raises(TimeoutError) as raised:
        ask(history(1))
    assert isinstance(raised.value, ContextOverflowError)


def test_a_prompt_that_certainly_does_not_fit_is_never_sent():
    called: list[int] = []
    ask = guard(window=50, model="gpt-4o")(lambda messages: called.append(1))
    with pytest.raises(ContextOverflowError) as raised:
        ask([{"role": "user", "content": "word " * 500}, {"role": "user", "content": "word " * 500}])
    assert not called
    assert raised.value.reason == "overflow"
    assert [e.type for e in ask.session.events] == ["overflow", "request"]


# --- what functions look like


def test_parameters_by_position_keyword_default_and_rest():
    seen: list[Any] = []

    @guard(window=WINDOW, model="gpt-4o")
    def positional(client: object, messages: Any, *more: int, deep: bool = False) -> None:
        seen.append((messages, more, deep))

    positional("c", history(30), 1, 2, deep=True)
    messages, more, deep = seen.pop()
    assert (more, deep) == ((1, 2), True)
    assert size(messages) < WINDOW

    @guard(window=WINDOW, model="gpt-4o")
    def rest(**options: Any) -> None:
        seen.append(options)

    rest(messages=history(30), temperature=0)
    options = seen.pop()
    assert options["temperature"] == 0
    assert size(options["messages"]) < WINDOW

    @guard(messages="chat", window=WINDOW, model="gpt-4o")
    def named(chat: Any, /) -> None:
        seen.append(chat)

    named(history(30))
    assert size(seen.pop()) < WINDOW
    partial = guard(window=WINDOW, model="gpt-4o")(functools.partial(positional.__wrapped__, "c"))
    partial(history(30))
    assert size(seen.pop()[0]) < WINDOW


def test_without_messages_the_function_is_called_as_it_is():
    @guard(window=10, model="gpt-4o")
    def ask(messages: Any = None, *, x: int = 0) -> Any:
        return messages, x

    for odd in (None, "a prompt " * 50, b"bytes", 7, {"role": "user"}, object()):
        assert ask(odd, x=1) == (odd, 1)
    assert ask() == (None, 0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        ask(nothing=1)


def test_iterators_and_tuples_of_messages():
    ask = guard(window=WINDOW, model="gpt-4o")(lambda messages: messages)
    small = ask(m for m in history(2))
    assert small == history(2)
    assert size(ask(iter(history(30)))) < WINDOW
    given = tuple(history(2))
    assert ask(given) is given
    large = ask(tuple(history(30)))
    assert isinstance(large, tuple)
    assert size(large) < WINDOW
    assert ask([]) == []


def test_messages_that_are_none_go_through(caplog: pytest.LogCaptureFixture):
    ask = guard(window=20, model="gpt-4o")(lambda messages: messages)
    for odd in ([object()], [1, 2], [{"role": "user", "content": {1, 2}}], [None]):
        assert ask(odd) is odd


def test_methods_class_methods_and_objects():
    class Agent:
        def __init__(self) -> None:
            self.name = "a"

        @guard(window=WINDOW, model="gpt-4o")
        def method(self, messages: Any) -> Any:
            return self.name, messages

        @guard(window=WINDOW, model="gpt-4o")
        @classmethod
        def above(cls, messages: Any) -> Any:
            return cls.__name__, messages

        @classmethod
        @guard(window=WINDOW, model="gpt-4o")
        def below(cls, messages: Any) -> Any:
            return cls.__name__, messages

        @guard(window=WINDOW, model="gpt-4o")
        @staticmethod
        def static(messages: Any) -> Any:
            return "static", messages

        def __call__(self, messages: Any) -> Any:
            return "called", messages

    for way, name in (
        (Agent().method, "a"), (Agent.above, "Agent"), (Agent().below, "Agent"), (Agent.static, "static"),
        (guard(window=WINDOW, model="gpt-4o")(Agent()), "called"),
    ):  # fmt: skip
        found, messages = way(history(30))
        assert found == name
        assert size(messages) < WINDOW


def test_mistakes_are_told_when_decorating():
    with pytest.raises(ConfigError, match="nothing has no parameter 'messages'"):

        @guard
        def nothing(prompt: str) -> None: ...

    with pytest.raises(ConfigError, match="no parameter 'chat'"):
        guard(messages="chat")(lambda messages: None)
    with pytest.raises(ConfigError, match="takes a function"):
        guard("text")  # type: ignore[call-overload]
    for options in ({"policy": "gentel"}, {"api": "chat2"}, {"window": 0}, {"max_retries": -1}):
        with pytest.raises(ConfigError):
            guard(**options)(lambda messages: None)  # type: ignore[arg-type]


def test_model_system_tools_and_output_come_from_the_call():
    asked: list[Any] = []

    @guard(window=WINDOW)
    def ask(messages: Any, model: str, system: str = "", tools: Any = None, max_tokens: int = 0) -> Any:
        asked.append((messages, max_tokens))
        if len(asked) == 1:
            raise ValueError(
                "This model's maximum context length is 2000 tokens. However, you requested 2900 tokens "
                "(900 in the messages, 2000 in the completion)."
            )
        return "done"

    messages = history(4)
    assert ask(messages, "gpt-4o", system="be brief", tools=[{"type": "function", "function": {"name": "f"}}],
               max_tokens=2_000) == "done"  # fmt: skip
    assert ask.session.events[-1].model == "gpt-4o"
    assert ask.session.usage.by_category["tools"] > 0
    assert asked[1][0] == messages  # only the output had no room
    assert asked[1][1] <= 1_100


# --- async and generators


async def test_coroutines_are_awaited_and_called_again():
    model = Model()

    @guard(model="unknown")
    async def ask(messages: Any) -> Any:
        await asyncio.sleep(0)
        return model(messages)

    assert (await ask(history(40)))["choices"]
    assert len(model.seen) == 2
    bound = guard(model="unknown2")(lambda messages: ask.__wrapped__(messages))  # a plain function of a coroutine
    assert (await bound(history(40)))["choices"]
    assert len(model.seen) == 4

    class Called:
        async def __call__(self, messages: Any) -> Any:
            return model(messages)

    assert (await guard(model="unknown3")(Called())(history(40)))["choices"]
    assert len(model.seen) == 6


async def test_cancelling_passes():
    @guard
    async def ask(messages: Any) -> Any:
        await asyncio.sleep(60)

    task = asyncio.create_task(ask(history(1)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_generators_pass_with_all_that_generators_do():
    model, log = Model(), []

    @guard(model="unknown")
    def stream(messages: Any) -> Iterator[Any]:
        model(messages)
        try:
            log.append((yield "one"))
            log.append((yield "two"))
        except KeyError:
            yield "caught"
        finally:
            log.append("closed")
        return "value"

    assert list(stream(history(40))) == ["one", "two"]
    assert len(model.seen) == 2
    running: Any = stream(history(1))
    assert next(running) == "one"
    assert running.send("hello") == "two"
    assert "hello" in log
    assert running.throw(KeyError()) == "caught"
    with pytest.raises(StopIteration) as stopped:
        next(running)
    assert stopped.value.value == "value"
    log.clear()
    running = stream(history(1))
    next(running)
    running.close()
    assert log == ["closed"]

    @guard
    def empty(messages: Any) -> Iterator[Any]:
        return 5
        yield

    with pytest.raises(StopIteration) as stopped:
        next(empty(history(1)))
    assert stopped.value.value == 5


def test_an_error_after_the_first_item_is_not_repeated():
    calls: list[int] = []

    @guard(window=WINDOW, model="gpt-4o")
    def stream(messages: Any) -> Iterator[str]:
        calls.append(1)
        yield "one"
        raise ValueError("prompt is too long: 30 tokens > 2 maximum")

    running = stream(history(2))
    assert next(running) == "one"
    with pytest.raises(ValueError):
        next(running)
    assert calls == [1]


async def test_async_generators_pass():
    model, closed = Model(), []

    @guard(model="unknown")
    async def stream(messages: Any) -> AsyncIterator[str]:
        model(messages)
        try:
            yield "one"
            yield "two"
        finally:
            closed.append(True)

    assert [item async for item in stream(history(40))] == ["one", "two"]
    assert len(model.seen) == 2
    running: Any = stream(history(1))
    assert await anext(running) == "one"
    await running.aclose()
    assert closed == [True, True]

    @guard
    async def empty(messages: Any) -> AsyncIterator[str]:
        return
        yield

    assert [item async for item in empty(history(1))] == []
    assert [item async for item in empty(None)] == []


def test_many_threads_at_once():
    model = Model(100_000)
    ask = guard(window=WINDOW, model="gpt-4o")(lambda messages: model(messages))
    errors: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for steps in range(20, 26):
                ask([{"role": "user", "content": f"conversation {n}"}, *history(steps)[1:]])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(model.seen) == 36
    assert all(size(messages) < 1.3 * WINDOW for messages in model.seen)
    for messages in model.seen:  # no conversation has anything of another
        assert sum(m["content"].startswith("conversation ") for m in messages if m["role"] == "user") == 1


# --- sessions, policies


def test_several_functions_share_a_session():
    session = Session(model="gpt-4o", window=WINDOW, session_id="s1", agent="planner")
    model = Model(100_000)

    @session.guard
    def ask(messages: Any) -> Any:
        return model(messages)

    @guard(session=session)
    def other(messages: Any) -> Any:
        return model(messages)

    ask(history(30))
    other(history(30))
    assert model.seen[0] == model.seen[1]
    assert {(e.session, e.agent) for e in session.events} == {("s1", "planner")}
    assert ask.session is other.session is session
    assert session.usage.value == session.events[-1].after


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_switched_off_it_only_passes(mode: Any):
    model = Model(100_000)
    ask = guard(window=WINDOW, model="gpt-4o", policy=Policy(mode=mode))(lambda messages: model(messages))
    ask(history(40))
    assert model.seen[0] == history(40)

    def refuse(messages: Any) -> Any:
        raise ValueError("prompt is too long: 30 tokens > 2 maximum")

    with pytest.raises(ValueError) as raised:
        guard(policy=Policy(mode=mode))(refuse)(history(3))
    assert not isinstance(raised.value, ContextOverflowError)


def test_usage_is_learned_from_what_is_returned():
    ask = guard(window=100_000, model="some-model-7b")(lambda messages: {"usage": {"prompt_tokens": 9_000}})
    first = history(4)
    ask(first)
    assert ask.session.events[-1].input == 9_000
    assert ask.session.measure([*first, {"role": "user", "content": "go on"}]).tokens_after > 9_000


# --- SDKs


def test_openai_and_anthropic_clients_without_wrapping():
    with FakeProvider(window=1_500) as provider:
        client = openai.OpenAI(base_url=f"{provider.base_url}/v1", api_key="k", max_retries=0)

        @guard(model="unknown-model")
        def ask(messages: Any, system: str = "") -> Any:
            return client.chat.completions.create(model="unknown-model", messages=messages)

        assert ask(history(40)).choices
        assert provider.calls == 2
        assert not provider.violations
        assert ask.session.events[-1].input > 0
        claude = anthropic.Anthropic(base_url=provider.base_url, api_key="k", max_retries=0)
        talk = [{"role": ("user", "assistant")[i % 2], "content": f"item {i} of the list. " * 40} for i in range(41)]

        @guard(model="unknown-claude", api="messages")
        def say(messages: Any) -> Any:
            return claude.messages.create(model="unknown-claude", max_tokens=16, messages=messages)

        assert say(talk).content
        provider.reset(*["overflow"] * 9)
        with pytest.raises(openai.BadRequestError) as raised:
            ask(history(41))
        assert isinstance(raised.value, ContextOverflowError)
        assert raised.value.response.status_code == 400
        assert isinstance(pickle.loads(pickle.dumps(raised.value)), ContextOverflowError)
        client.close()
        claude.close()


def test_an_http_client_of_ones_own():
    with FakeProvider(window=1_500) as provider, httpx.Client(base_url=provider.base_url) as client:

        @guard(model="unknown-model")
        def ask(messages: Any) -> Any:
            answer = client.post("/v1/chat/completions", json={"model": "unknown-model", "messages": messages})
            answer.raise_for_status()
            return answer.json()

        assert ask(history(40))["choices"]
        assert provider.calls == 2
        provider.reset(*["overflow"] * 9)
        with pytest.raises(httpx.HTTPStatusError) as raised:
            ask(history(41))
        assert isinstance(raised.value, ContextOverflowError)


def test_a_wrapped_client_inside_is_not_retried_twice():
    with FakeProvider(window=1_500) as provider:
        client = ctxproxy.wrap(openai.OpenAI(base_url=f"{provider.base_url}/v1", api_key="k", max_retries=0))
        provider.reset(*["overflow"] * 9)

        @guard(model="unknown-model")
        def ask(messages: Any) -> Any:
            return client.chat.completions.create(model="unknown-model", messages=messages)

        with pytest.raises(openai.BadRequestError) as raised:
            ask(history(40))
        assert isinstance(raised.value, ContextOverflowError)
        assert provider.calls <= 3
        client.close()


def test_input_of_the_responses_api():
    seen: list[Any] = []

    @guard(api="responses", window=WINDOW, model="gpt-4o")
    def ask(input: Any, instructions: str = "") -> None:
        seen.append(input)

    items = [{"role": ("user", "assistant")[i % 2], "content": f"item {i} of the list. " * 40} for i in range(41)]
    ask(items, instructions="be brief")
    assert size(seen.pop()) < WINDOW
    ask("a text")
    assert seen.pop() == "a text"
