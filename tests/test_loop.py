"""compact() and measure() for a loop of one's own."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import ctxproxy
from ctxproxy import ConfigError, ContextOverflowError, Policy, WireFormatError, compact, measure


class Function(BaseModel):
    name: str
    arguments: str


class ToolCall(BaseModel):
    id: str
    type: str = "function"
    function: Function


class Message(BaseModel):
    """Shaped like an SDK's answer: optional fields that nobody set are not sent back."""

    role: str
    content: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: str | None = None


def dicts(steps: int) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": "Find out why service-47 does not start."}]
    for i in range(steps):
        call = {"id": f"c{i}", "type": "function", "function": {"name": "read", "arguments": f'{{"n":{i}}}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"step {i} says value {i * 37}\n" * 60})
    return [*messages, {"role": "user", "content": "And now?"}]


def objects(steps: int) -> list[Any]:
    found: list[Any] = []
    for message in dicts(steps):
        if message["role"] == "assistant":
            calls = [
                ToolCall(id=c["id"], type=c["type"], function=Function(**c["function"])) for c in message["tool_calls"]
            ]
            found.append(Message(role="assistant", content=None, tool_calls=calls))
        else:
            found.append(message)
    return found


def untouched(before: list[Any], after: list[Any]) -> list[int]:
    """Indexes, in the result, of messages that are the caller's own objects."""
    own = {id(message) for message in before}
    return [i for i, message in enumerate(after) if id(message) in own]


def test_what_stays_is_the_same_object_and_nothing_is_changed_in_place() -> None:
    messages = dicts(20)
    before = copy.deepcopy(messages)
    result = compact(messages, model="gpt-4o", target_tokens=1500)
    assert messages == before
    assert result is not messages
    assert measure(result, model="gpt-4o").tokens_before <= 1500 < measure(messages, model="gpt-4o").tokens_before
    assert result[0] is messages[0]
    assert result[-1] is messages[-1]
    own = untouched(messages, result)
    assert 2 < len(own) < len(messages)
    assert all(type(message) is dict for message in result)


def test_with_nothing_to_do_all_is_the_same() -> None:
    messages = dicts(3)
    result = compact(messages, model="gpt-4o", window=100_000)
    assert result is not messages
    assert len(result) == len(messages)
    assert untouched(messages, result) == list(range(len(messages)))
    assert compact([], model="gpt-4o", window=1000) == []


def test_sdk_objects_measure_like_their_dicts_and_stay_objects() -> None:
    assert measure(objects(20), model="gpt-4o") == measure(dicts(20), model="gpt-4o")
    messages = objects(20)
    result = compact(messages, model="gpt-4o", target_tokens=1500)
    assert any(isinstance(message, Message) for message in result)
    plain = [m.model_dump(exclude_unset=True, mode="json") if isinstance(m, Message) else m for m in result]
    assert plain == compact(dicts(20), model="gpt-4o", target_tokens=1500)


def test_other_shapes_of_messages() -> None:
    @dataclass
    class Plain:
        role: str
        content: str

    class Dictable:
        def to_dict(self) -> dict[str, str]:
            return {"role": "user", "content": "hi"}

    expected = measure([{"role": "user", "content": "hi"}], model="gpt-4o")
    given: list[Any] = [Plain("user", "hi"), Dictable(), MappingProxyType({"role": "user", "content": "hi"})]
    for message in given:
        assert measure([message], model="gpt-4o") == expected
        assert compact([message], model="gpt-4o", window=1000) == [message]
    assert measure(iter([{"role": "user", "content": "hi"}]), model="gpt-4o") == expected
    nested = [
        {
            "role": "assistant",
            "tool_calls": [ToolCall(id="1", type="function", function=Function(name="f", arguments="{}"))],
        }
    ]
    flat = [
        {
            "role": "assistant",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        }
    ]
    assert measure(nested, model="gpt-4o") == measure(flat, model="gpt-4o")


def test_without_a_target_the_level_decides() -> None:
    messages = dicts(20)
    size = measure(messages, model="gpt-4o").tokens_before
    for share, level, reason in ((0.5, "NORMAL", None), (0.92, "COMPRESS", "proactive"), (1.2, "OVERFLOW", "overflow")):
        window = int(size / share)
        report = measure(messages, model="gpt-4o", window=window)
        assert (report.level, report.reason, report.window) == (level, reason, window)
        after = measure(compact(messages, model="gpt-4o", window=window), model="gpt-4o").tokens_before
        assert (after < size) == (reason is not None)
        assert after <= window


def test_target_is_a_share_of_the_window() -> None:
    result = compact(dicts(20), model="gpt-4o", window=6000, target=0.5)
    assert measure(result, model="gpt-4o").tokens_before <= 3000


def test_the_policy_may_be_named_or_given() -> None:
    def after(policy: Policy | str | None) -> int:
        return measure(compact(dicts(20), model="gpt-4o", window=6400, policy=policy), model="gpt-4o").tokens_before

    assert after("aggressive") < after(None) == after(Policy()) < after("gentle")
    # Off is for the proxy: whoever calls compact() wants it to act.
    assert after(Policy(mode="off")) == after(None)


def test_system_and_tools_count_and_stay_outside() -> None:
    tools = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
    bare = measure(dicts(3), model="gpt-4o")
    full = measure(dicts(3), model="gpt-4o", system="Answer briefly. " * 50, tools=tools)
    assert full.by_category["system_instructions"] > bare.by_category["system_instructions"] + 100
    assert full.by_category["tools"] > 0
    messages = dicts(20)
    result = compact(messages, model="gpt-4o", system="Answer briefly.", tools=tools, target_tokens=1500)
    assert all(m["role"] != "system" for m in result)
    assert result[0] is messages[0]
    assert measure(result, model="gpt-4o", system="Answer briefly.", tools=tools).tokens_before <= 1500


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_the_other_apis(api: str) -> None:
    messages = [{"role": ("user", "assistant")[i % 2], "content": f"item {i} of the list. " * 40} for i in range(41)]
    bare = measure(messages, model="gpt-4o", api=api)
    report = measure(messages, model="gpt-4o", api=api, system="Answer briefly. " * 50)
    assert report.tokens_before > bare.tokens_before + 100
    result = compact(messages, model="gpt-4o", api=api, system="Answer briefly.", target_tokens=3000)
    assert measure(result, model="gpt-4o", api=api, system="Answer briefly.").tokens_before <= 3000
    assert result[-1] is messages[-1]


def test_what_cannot_fit_is_the_typed_error() -> None:
    with pytest.raises(ContextOverflowError) as raised:
        compact(dicts(3), model="gpt-4o", system="rule " * 600, target_tokens=300)
    assert raised.value.fixed["system"] > 500
    assert raised.value.requested_tokens is not None
    assert raised.value.requested_tokens > 300


def test_mistakes_are_told() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"api": "chat2"}, "there is no 'chat2'"),
        ({"window": 0}, "window: 0 is not allowed"),
        ({"policy": "gentel"}, "there is no policy 'gentel'"),
    ]
    for options, told in wrong:
        with pytest.raises(ConfigError, match=told):
            measure(dicts(1), **options)
        with pytest.raises(ConfigError, match=told):
            compact(dicts(1), **options)
    odd_targets: list[dict[str, Any]] = [{"target": 70}, {"target": 0}, {"target_tokens": 0}]
    odd_targets.append({"target": 0.5, "target_tokens": 5})
    for targets in odd_targets:
        with pytest.raises(ConfigError, match="target"):
            compact(dicts(1), **targets)
    loop: list[Any] = []
    loop.append({"role": "user", "content": loop})
    for odd in (["text"], [5], [object()], [{"role": "user", "content": {1, 2}}], loop):
        with pytest.raises(WireFormatError):
            measure(odd, model="gpt-4o")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
texts = st.text(st.characters(), min_size=1, max_size=400)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(texts, json_values), min_size=1, max_size=12), st.sampled_from([0.4, 0.7, 1.0]))
def test_no_content_breaks_it_and_the_input_is_never_changed(contents: list[tuple[str, Any]], share: float) -> None:
    """Lone surrogates, NaN, large integers and equal messages included."""
    messages: list[Any] = [
        {"role": ("user", "assistant")[i % 2], "content": text, "x-extra": extra}
        for i, (text, extra) in enumerate(contents)
    ]
    before = repr(messages)
    size = measure(messages, model="gpt-4o", window=100_000).tokens_before
    try:
        result = compact(messages, model="gpt-4o", window=100_000, target_tokens=max(1, int(share * size)))
    except ContextOverflowError:
        result = messages
    assert repr(messages) == before
    assert result[-1] is messages[-1]
    places = [next(i for i, m in enumerate(messages) if m is r) for r in result if any(m is r for m in messages)]
    assert places == sorted(places)


def test_equal_messages_keep_their_order() -> None:
    messages: list[Mapping[str, str]] = [
        {"role": ("user", "assistant")[i % 2], "content": "again. " * 30} for i in range(40)
    ]
    result = compact(messages, model="gpt-4o", target_tokens=600)
    assert result[-1]["content"] == messages[-1]["content"]
    assert json.dumps(result)


def test_it_is_the_public_function() -> None:
    assert ctxproxy.compact is compact
