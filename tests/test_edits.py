"""ctxproxy/edits.py: what edits write, and every rule that `check` names."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ctxproxy.conversation import Conversation, Message
from ctxproxy.edits import Drop, Edit, Note, Param, Replace, Rules, Strip, apply, check, splice
from ctxproxy.errors import WireFormatError
from ctxproxy.runtime import Runtime
from ctxproxy.wire import WIRES

LENIENT = Rules(alternate=False, user_after_tool=True, thinking="free")
READER = Runtime(secret=b"test").engine.reader


def read(entries: Any, api: str = "chat") -> Conversation:
    body = {"model": "gpt-4o", WIRES[api].array: entries}
    return READER.read(json.dumps(body).encode(), WIRES[api])


def messages(entries: Any, api: str = "chat") -> tuple[Message, ...]:
    return read(entries, api).messages


def edited(entries: Any, edits: list[Edit], api: str = "chat") -> Any:
    body = json.dumps({"model": "gpt-4o", WIRES[api].array: entries}).encode()
    items = apply(messages(entries, api), edits, WIRES[api])
    return json.loads(splice(body, WIRES[api].array, items))[WIRES[api].array]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str | None, *ids: str) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "run", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if ids else {})}


def tool(id: str, text: str = "out") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


# -- writing


def test_each_edit_changes_its_place_only() -> None:
    entries = [user("a"), says(None, "1"), tool("1", "long"), says("b"), user("c")]
    after = edited(entries, [Replace(2, ("content",), "short", "x"), Drop(3, 4, "x"), Note(3, "note", "x")])
    assert after == [*entries[:2], tool("1", "short"), user("note"), user("c")]


def test_a_note_is_attached_behind_the_last_block_or_the_string() -> None:
    assert edited([user("a"), says("b")], [Note(0, "note", "x", attach=True)])[0]["content"] == "a\n\nnote"
    blocks = [{"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]
    after = edited([{"role": "user", "content": blocks}], [Note(0, "note", "x", attach=True)], "messages")
    assert after[0]["content"] == [*blocks, {"type": "text", "text": "note"}]
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}
    after = edited([item], [Note(0, "note", "x", attach=True)], "responses")
    assert after[0]["content"][1] == {"type": "input_text", "text": "note"}


def test_an_object_is_replaced_by_json_and_a_string_by_a_string() -> None:
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "run", "input": {"a": "long"}}]}
    after = edited([use], [Replace(0, ("content", 0, "input"), '{"a": "s\ud83d"}', "x")], "messages")
    assert after[0]["content"][0]["input"] == {"a": "s\ud83d"}
    with pytest.raises(WireFormatError):
        edited([use], [Replace(0, ("content", 0, "input"), "no json", "x")], "messages")


def test_an_input_that_is_one_string_becomes_a_list_only_where_it_must() -> None:
    assert edited("hello", [Replace(0, (), "hi", "x")], "responses") == "hi"
    after = edited("hello", [Note(0, "note", "x")], "responses")
    assert [item["content"][0]["text"] for item in after] == ["note", "hello"]


def test_strips_take_blocks_and_leave_the_rest() -> None:
    blocks = [
        {"type": "thinking", "thinking": "t", "signature": "s"},
        {"type": "text", "text": "a"},
        {"type": "redacted_thinking", "data": "d"},
    ]
    after = edited(
        [user("q"), {"role": "assistant", "content": blocks}],
        [Strip(1, (("content", 0), ("content", 2)), "x")],
        "messages",
    )
    assert after[1]["content"] == [blocks[1]]


def test_the_bytes_of_untouched_messages_and_parameters_stay() -> None:
    first = b'{ "model":"gpt-4o", "n": 1.0 ,"messages" : [ {"role":"user","content":"a\\u00e9"} ,\n '
    gone, last = b'{"role":"assistant","content":"b"}, ', b'{"role":"user", "content":"c"}] , "z":null'
    conversation = READER.read(first + gone + last + b"}", WIRES["chat"])
    items = apply(conversation.messages, [Drop(1, 2, "x")], WIRES["chat"])
    after = splice(first + gone + last + b"}", "messages", items, (Param("max_tokens", 5, "x"),))
    assert after == first + last + b',"max_tokens":5}'
    with pytest.raises(WireFormatError):
        splice(b'{"messages": [], "messages": []}', "messages", (b"{}",))


# -- checking


def fault(before: Any, after: Any, rules: Rules = LENIENT, api: str = "chat") -> list[str]:
    return [f.split(":")[0] for f in check(messages(before, api), messages(after, api), rules)]


BASE = [{"role": "system", "content": "s"}, user("task"), says(None, "1"), tool("1"), says("done"), user("next")]


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (BASE, []),
        ([*BASE[:2], *BASE[4:]], []),
        ([*BASE[:3], *BASE[4:]], ["pairs"]),
        ([*BASE[:2], *BASE[3:]], ["pairs"]),
        (BASE[1:], ["system or developer message changed"]),
        ([BASE[0], user("other"), *BASE[2:]], ["first typed user message lost"]),
        (BASE[:-1], ["newest typed user message lost", "last role assistant instead of user"]),
        ([*BASE[:2], says(None, "2"), tool("2"), *BASE[4:]], ["a call id was made up"]),
        ([*BASE[:4], says(""), BASE[5]], ["empty content"]),
    ],
)
def test_rules_that_hold_everywhere(after: Any, found: list[str]) -> None:
    assert fault(BASE, after) == found


def test_what_was_unsound_before_may_stay() -> None:
    broken = [user("a"), tool("9"), says(None, "1"), user("b")]
    assert fault(broken, broken) == []
    assert fault(broken, [broken[0], *broken[2:]]) == []
    # One fault of another id does not hide behind one that went.
    sound = [user("a"), tool("9"), says(None, "1"), tool("1"), user("b")]
    assert fault(sound, [sound[0], sound[2], sound[4]]) == ["pairs"]


def test_a_blank_text_is_a_fault_where_the_provider_refuses_it() -> None:
    after = [*BASE[:4], says(" "), BASE[5]]
    assert fault(BASE, after) == ["empty content"]
    assert fault(BASE, after, replace(LENIENT, blank=True)) == []
    assert fault(BASE, [*BASE[:4], says(None), BASE[5]], replace(LENIENT, blank=True)) == ["empty content"]


def test_strict_roles() -> None:
    before = [user("a"), says("b"), user("c"), says(None, "1"), tool("1"), says("d"), user("e")]
    assert fault(before, [before[0], *before[2:]], Rules()) == ["two messages of one role in a row"]
    assert fault(before, [*before[:5], before[6]], Rules()) == ["a user message after a tool result"]
    assert fault(before, [*before[:5], before[6]]) == []
    assert "first role assistant" in fault(before, before[1:], Rules())


def test_entries_that_may_not_be_touched() -> None:
    search = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
    ]
    thought = {"type": "thinking", "thinking": "t", "signature": "s"}
    before = [user("a"), {"role": "assistant", "content": [thought, *search]}, user("b")]
    assert fault(before, [before[0], before[2]], api="messages") == ["opaque entry changed"]
    assert fault(before, [before[0], {"role": "assistant", "content": search[1:]}, before[2]], api="messages") == [
        "opaque entry changed"
    ]
    assert fault(before, [before[0], {"role": "assistant", "content": search}, before[2]], api="messages") == []


def test_reasoning_keeps_what_it_led_to() -> None:
    first, second = ({"type": "reasoning", "id": f"rs_{i}", "summary": []} for i in range(2))
    call = {"type": "function_call", "call_id": "1", "name": "run", "arguments": "{}"}
    out = {"type": "function_call_output", "call_id": "1", "output": "x"}
    before = [user("a"), first, call, out, second, says("b"), user("c")]
    rules = replace(LENIENT, adjacent=False)
    parted = ["a bound message lost its neighbour"]
    assert fault(before, [*before[:2], *before[5:]], rules, "responses") == parted
    assert fault(before, [before[0], first, user("c")], rules, "responses") == parted
    assert fault(before, [before[0], *before[4:]], rules, "responses") == []


def test_reasoning_that_goes_with_its_turn_only() -> None:
    step = {**says(None, "1"), "reasoning_content": ""}
    before = [user("a"), step, tool("1"), user("b")]
    assert fault(before, [user("a"), says(None, "1"), tool("1"), user("b")], replace(LENIENT, thinking="turn")) == [
        "reasoning removed without its message"
    ]
    assert fault(before, [user("a"), user("b")], replace(LENIENT, thinking="turn")) == []


def test_thinking_behind_an_edit() -> None:
    def step(id: str) -> list[dict[str, Any]]:
        thought = {"type": "thinking", "thinking": id, "signature": "s"}
        use = {"type": "tool_use", "id": id, "name": "run", "input": {}}
        return [
            {"role": "assistant", "content": [thought, use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "out"}]},
        ]

    rules = replace(LENIENT, thinking="bound")
    before = [user("a"), *step("1"), *step("2")]
    shorter = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2", "content": "o"}]}
    assert fault(before, [user("a"), *step("2")], rules, "messages") == ["thinking behind an edit"]
    assert fault(before, [*before[:4], shorter], rules, "messages") == []
    assert fault(before, [user("a"), *step("2")], LENIENT, "messages") == []


def test_cache_markers_never_grow_past_the_most() -> None:
    def block(n: int, marked: bool) -> dict[str, Any]:
        return {"type": "text", "text": f"t{n}", **({"cache_control": {"type": "ephemeral"}} if marked else {})}

    before = [{"role": "user", "content": [block(i, i < 4) for i in range(6)]}]
    after = [{"role": "user", "content": [block(i, i < 5) for i in range(6)]}]
    assert fault(before, after, api="messages") == ["too many cache markers"]
    assert fault(before, before, api="messages") == []


def test_a_system_message_in_the_middle_keeps_its_place() -> None:
    def reply(text: str) -> dict[str, Any]:
        return {"role": "assistant", "content": text}

    before = [
        user("a"),
        reply("b"),
        user("c"),
        {"role": "system", "content": "s"},
        reply("d"),
        user("e"),
        reply("f"),
        user("g"),
    ]
    assert fault(before, [*before[:2], *before[3:]], api="messages") == ["a bound message lost its neighbour"]
    assert fault(before, [*before[:4], *before[5:]], api="messages") == ["a bound message lost its neighbour"]
    assert fault(before, [before[0], *before[2:]], api="messages") == []
