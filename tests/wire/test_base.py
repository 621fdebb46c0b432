"""ctxproxy/wire/base.py: reading, its memory, and the canonical form of messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire.histories import APIS, bodies, dump, runtime

from ctxproxy.errors import WireFormatError
from ctxproxy.tokens import counter
from ctxproxy.wire import WIRES
from ctxproxy.wire.base import Reader, canonical


def reader(**settings: Any) -> Reader:
    return Reader(counter_for=lambda model: ("o200k", counter("o200k")), **settings)


def test_a_turn_pays_for_its_new_messages_only() -> None:
    made = reader()
    messages = [{"role": "user", "content": f"question {n} " * 50} for n in range(40)]
    made.read(dump({"model": "gpt-4o", "messages": messages}), WIRES["chat"])
    before = made.counted_bytes
    messages.append({"role": "user", "content": "new"})
    made.read(dump({"model": "gpt-4o", "messages": messages}), WIRES["chat"])
    assert made.counted_bytes - before == len(dump(messages[-1]))


def test_the_memory_is_bound_and_forgetting_changes_nothing() -> None:
    small, large = reader(max_bytes=4_000), reader()
    body = dump({"model": "gpt-4o", "messages": [{"role": "user", "content": f"{n} " * 100} for n in range(50)]})
    for _ in range(2):
        one, two = small.read(body, WIRES["chat"]), large.read(body, WIRES["chat"])
        assert [m.digest for m in one.messages] == [m.digest for m in two.messages]
        assert one.tokens == two.tokens


def test_one_entry_in_two_apis_is_read_as_each_demands() -> None:
    made = reader()
    entry = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "x"}]}
    chat = made.read(dump({"model": "gpt-4o", "messages": [entry]}), WIRES["chat"]).messages[0]
    messages = made.read(dump({"model": "gpt-4o", "messages": [entry]}), WIRES["messages"]).messages[0]
    assert (chat.results, messages.results) == ((), ("1",))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"model": 1, "messages": []}',
        b'{"model": "m", "messages": {}}',
        b'{"model": "m", "messages": ["x"]}',
        b'{"model": "m", "messages": [' + b"[" * 5_000 + b"]" * 5_000 + b"]}",
        b'{"model": "m", "messages": [{"role": "user", "content": ' + b"[" * 900 + b"]" * 900 + b"}]}",
    ],
)
def test_what_is_no_request_says_so(body: bytes) -> None:
    try:
        conversation = reader().read(body, WIRES["chat"])
    except WireFormatError:
        return
    assert conversation.messages


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(APIS).flatmap(lambda api: st.tuples(st.just(api), bodies(api, thinking=True))))
def test_facts_of_parts_add_up(case: tuple[str, dict[str, Any]]) -> None:
    api, body = case
    conversation = reader().read(dump(body), WIRES[api])
    assert len(conversation.messages) == len(body[WIRES[api].array])
    assert conversation.tokens == conversation.fixed.tokens + sum(m.tokens for m in conversation.messages)
    for message in conversation.messages:
        assert message.tokens >= sum(p.tokens for p in message.parts)
        assert all(p.tokens >= p.frame >= 0 for p in message.parts)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"role": "user", "content": "a"}, {"content": [{"text": "a", "type": "text"}], "role": "user"}),
        (
            {"role": "user", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        ),
        ({"role": "user", "content": "a"}, {"role": "user", "content": "a", "name": None}),
        ({"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "input_text", "text": "a"}]}),
        (
            {"content": [{"type": "tool_result", "tool_use_id": "1", "content": "x"}]},
            {"content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "x"}]}]},
        ),
    ],
)
def test_equal_content_has_one_form(one: Any, two: Any) -> None:
    assert canonical(one) == canonical(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"role": "user", "content": "a"}, {"role": "user", "content": "b"}),
        ({"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}),
        ({"role": "tool", "tool_call_id": "1", "content": "a"}, {"role": "tool", "tool_call_id": "2", "content": "a"}),
        (
            {"role": "user", "content": "ab"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ),
    ],
)
def test_other_content_has_another_form(one: Any, two: Any) -> None:
    assert canonical(one) != canonical(two)


def test_a_note_of_ours_is_known_again() -> None:
    for api, wire in WIRES.items():
        note = wire.message('<context_notes kind="notes">x</context_notes>')
        body = dump({"model": "gpt-4o", wire.array: []}).replace(b"[]", b"[" + note + b"]")
        message = runtime().engine.reader.read(body, wire).messages[0]
        assert (api, message.note, message.typed) == (api, True, False)
