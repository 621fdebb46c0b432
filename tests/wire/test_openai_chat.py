"""ctxproxy/wire/openai_chat.py: what each message is, and what providers add to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire.histories import dump, new_violations, png, prepare, runtime

from ctxproxy.conversation import Conversation, exchanges, texts_of
from ctxproxy.wire import WIRES, detect

READER = runtime().engine.reader


def read(messages: Any, **fields: Any) -> Conversation:
    return READER.read(dump({"model": "gpt-4o", "messages": messages, **fields}), WIRES["chat"])


def parts(message: Any) -> list[tuple[str, Any]]:
    found = read([message]).messages[0]
    return [(p.kind, t) for p, t in zip(found.parts, texts_of(found), strict=True)]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def call(id: str, arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "run", "arguments": arguments}, **more}


def tool(id: str, content: Any = "out") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/api/paas/v4/chat/completions", "/openai/deployments/x/chat/completions"]
)
def test_the_path_tells_the_api(path: str) -> None:
    assert detect(path) == "chat"


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (user("a"), [("text", "a")]),
        (user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), [("text", "a"), ("text", "b")]),
        ({"role": "assistant", "content": None, "tool_calls": [call("1", '{"a":1}')]}, [("tool_call", '{"a":1}')]),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "p", "input": "raw"}}],
            },
            [("tool_call", "raw")],
        ),
        (
            {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}},
            [("text", ""), ("tool_call", "{}")],
        ),
        ({"role": "assistant", "refusal": "no", "content": None}, [("text", "no")]),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, [("text", "no")]),
        ({"role": "assistant", "content": "a", "reasoning_content": "r"}, [("thinking", "r"), ("text", "a")]),
        (
            tool("1", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
            [("tool_result", "a"), ("tool_result", "b")],
        ),
        ({"role": "tool", "tool_call_id": "1"}, [("tool_result", "")]),
    ],
)
def test_the_parts_of_a_message(message: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert parts(message) == found


def test_a_legacy_function_pairs_by_its_name() -> None:
    first = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    conversation = read([user("a"), first, {"role": "function", "name": "f", "content": "out"}, user("b")])
    assert [(e.start, e.stop) for e in exchanges(conversation.messages)] == [(0, 1), (1, 3), (3, 4)]


def test_media_cost_by_what_they_are() -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png()}" + "A" * 300_000}}
    audio = {"type": "input_audio", "input_audio": {"data": "A" * 300_000, "format": "wav"}}
    file = {"type": "file", "file": {"file_data": "data:application/pdf;base64," + "A" * 90_000}}
    for block in (image, audio, file):
        message = read([user([block])]).messages[0]
        assert message.typed
        assert 50 < message.tokens < 8_000
    assert read([user([{"type": "hologram", "data": "word " * 90}])]).messages[0].tokens > 90


def test_what_a_server_holds_is_not_touched() -> None:
    assert read([{"role": "assistant", "audio": {"id": "audio_1"}}]).messages[0].opaque
    assert read([{"role": "narrator", "content": "x"}]).messages[0].opaque


def test_extras_of_providers_survive_an_edit() -> None:
    signed = call("1", extra_content={"google": {"thought_signature": "s"}}, index=0)
    step = {
        "role": "assistant",
        "content": None,
        "tool_calls": [signed],
        "reasoning_details": [{"type": "x", "data": "d"}],
    }
    messages = [user("task"), step, tool("1", "word " * 3000), user("next")]
    body = dump({"model": "gpt-4o", "messages": messages})
    after = json.loads(prepare(runtime(), "chat", body, window=2_000).body)["messages"]
    assert step in after or not any(m.get("tool_calls") for m in after)
    shorter = json.loads(
        prepare(runtime(), "chat", dump({"model": "gpt-4o", "messages": messages[:3]}), window=2_000).body
    )["messages"]
    assert shorter[1] == step
    assert len(shorter[2]["content"]) < 9_000


def test_what_stands_outside_the_messages() -> None:
    conversation = read(
        [user("a")],
        max_completion_tokens=7,
        stream=True,
        tools=[{"type": "function", "function": {"name": "f"}}],
        response_format={"type": "json_object"},
    )
    assert (conversation.max_tokens, conversation.max_tokens_key, conversation.stream) == (
        7,
        "max_completion_tokens",
        True,
    )
    assert conversation.fixed.tools > 0
    assert conversation.fixed.other > 3
    assert read([user("a")], functions=[{"name": "f", "parameters": {}}]).fixed.tools > 0


@pytest.mark.parametrize("fields", [{"n": 2}, {"logprobs": True}])
def test_requests_that_are_left_alone(fields: dict[str, Any]) -> None:
    body = dump(
        {"model": "gpt-4o", "messages": [user("word " * 900), {"role": "assistant", "content": "ok"}] * 4, **fields}
    )
    assert READER.read(body, WIRES["chat"]).hands_off
    assert prepare(runtime(), "chat", body, window=2_000).body == body


def test_a_developer_or_late_system_message_stays_where_it_is() -> None:
    messages = [{"role": "developer", "content": "rules"}, user("task")]
    for n in range(8):
        messages += [{"role": "assistant", "content": f"row {n} " * 90}, user(f"more {n}")]
    messages.insert(9, {"role": "system", "content": "late rule"})
    messages.append({"role": "system", "content": "last rule"})
    body = dump({"model": "gpt-4o", "messages": messages})
    after = json.loads(prepare(runtime(), "chat", body, target_tokens=500).body)["messages"]
    assert [m for m in after if m["role"] in ("developer", "system")] == [
        m for m in messages if m["role"] in ("developer", "system")
    ]
    assert after[0]["role"] == "developer"
    assert after[-1]["content"] == "last rule"
    assert not new_violations(body, dump({"model": "gpt-4o", "messages": after}), "chat")


def test_a_stream_number_of_a_call_does_not_make_it_another() -> None:
    one, two = (
        {"role": "assistant", "content": None, "tool_calls": [call("1", **more)]} for more in ({}, {"index": 3})
    )
    digests = {m.digest for m in read([one, two]).messages}
    assert len(digests) == 1
