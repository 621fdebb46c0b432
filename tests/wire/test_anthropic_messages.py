"""ctxproxy/wire/anthropic_messages.py: what each block is, what is opaque, what the server does itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire.histories import dump, new_violations, png, prepare, runtime

from ctxproxy.conversation import Conversation, exchanges, texts_of
from ctxproxy.wire import WIRES, detect

READER = runtime().engine.reader
THINKING = {"type": "thinking", "thinking": "I think.", "signature": "c2ln"}
SEARCH = [
    {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
]


def body(messages: Any, **fields: Any) -> bytes:
    return dump({"model": "gpt-4o", "max_tokens": 100, "messages": messages, **fields})


def read(messages: Any, **fields: Any) -> Conversation:
    return READER.read(body(messages, **fields), WIRES["messages"])


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": blocks[0] if len(blocks) == 1 and isinstance(blocks[0], str) else list(blocks)}


def says(*blocks: Any) -> dict[str, Any]:
    return {**user(*blocks), "role": "assistant"}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "run", "input": given}


def result(id: str, content: Any = "out", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def parts(message: Any) -> list[tuple[str, Any]]:
    found = read([message]).messages[0]
    return [(p.kind, t) for p, t in zip(found.parts, texts_of(found), strict=True)]


def test_the_path_tells_the_api() -> None:
    assert detect("/v1/messages") == "messages"
    assert detect("/v1/messages/count_tokens") is None


def test_strings_and_blocks_are_the_same() -> None:
    one, two = read([user("hi"), user(text("hi", cache_control={"type": "ephemeral"}))]).messages
    assert one.digest == two.digest
    assert one.parts[0].tokens == two.parts[0].tokens
    assert (one.markers, two.markers) == (0, 1)


def test_calls_and_results() -> None:
    assert parts(says(text("a"), use("1", path="x"))) == [("text", "a"), ("tool_call", '{"path":"x"}')]
    assert parts(user(result("1"), result("2", [text("a"), text("b")]))) == [
        ("tool_result", "out"),
        ("tool_result", "a"),
        ("tool_result", "b"),
    ]
    message = read([user(result("1", is_error=True), result("2", [text("a"), text("b")]))]).messages[0]
    assert message.results == ("1", "2")
    assert [p.error for p in message.parts] == [True, False, False]
    assert read([user({"type": "tool_result", "tool_use_id": "1"})]).messages[0].results == ("1",)


def test_results_with_words_beside_them_are_typed() -> None:
    messages = read(
        [
            user("a"),
            user(result("1")),
            user(result("1", [{"type": "image", "source": {"type": "url", "url": "u"}}])),
            user(result("1"), text("b")),
        ]
    ).messages
    assert [m.typed for m in messages] == [True, False, False, True]


def test_pictures_and_documents_cost_by_what_they_are() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png() + "A" * 99_999}}
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "J" * 80_000}}
    plain = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "word " * 500},
        "title": "T",
    }
    inner = {"type": "document", "source": {"type": "content", "content": [text("word " * 300)]}}
    remote = {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}
    tokens = [read([user(block)]).messages[0].tokens for block in (image, pdf, plain, inner, remote)]
    assert tokens[0] < 2_000
    assert 1_000 < tokens[1] < 6_000
    assert 500 <= tokens[2] < 550
    assert 300 <= tokens[3] < 350
    assert tokens[4] > 1_000
    assert all(read([user(block)]).messages[0].typed for block in (image, pdf, plain))


def test_search_results_are_text() -> None:
    block = {"type": "search_result", "source": "https://example.com", "title": "T", "content": [text("found " * 50)]}
    message = read([user(block)]).messages[0]
    assert message.typed
    assert not message.opaque
    inside = read([user(result("1", [block]))]).messages[0]
    assert inside.results == ("1",)
    assert not inside.typed
    assert [p.kind for p in inside.parts] == ["tool_result", "other", "tool_result"]


@pytest.mark.parametrize(
    "block",
    [
        *SEARCH,
        {"type": "mcp_tool_use", "id": "m", "name": "n", "server_name": "s", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m", "content": []},
        {"type": "advisor_tool_result", "tool_use_id": "s", "content": {}},
        {"type": "bash_code_execution_tool_result", "tool_use_id": "s", "content": {"stdout": "x"}},
        {"type": "container_upload", "file_id": "f"},
        {"type": "compaction", "content": "summary"},
        {"type": "fallback"},
        {"type": "hologram", "words": "w " * 40},
        result("1", [{"type": "tool_reference", "tool_name": "t"}]),
    ],
)
def test_blocks_that_nobody_may_touch(block: dict[str, Any]) -> None:
    message = read([says(text("a"), block)]).messages[0]
    assert message.opaque
    assert message.tokens > 8


def test_sealed_values_do_not_cost_their_letters() -> None:
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "s",
        "content": [{"type": "web_search_result", "url": "u", "encrypted_content": "E" * 40_000}],
    }
    assert 7_000 < read([says(SEARCH[0], found)]).messages[0].tokens < 8_000
    assert (
        1_400 < read([says({"type": "redacted_thinking", "data": "E" * 8_500}, text("a"))]).messages[0].tokens < 1_500
    )
    # Thinking may be shown empty; what it cost is in its signature.
    hidden = read([says({"type": "thinking", "thinking": "", "signature": "E" * 8_500}, text("a"))]).messages[0]
    assert 1_400 < hidden.tokens < 1_500
    assert read([says(THINKING, text("a"))]).messages[0].tokens < 20


def test_what_stands_outside_the_messages() -> None:
    conversation = read(
        [user("a")],
        system=[text("Be terse."), text("And kind.")],
        thinking={"type": "enabled", "budget_tokens": 2048},
        stream=True,
    )
    assert conversation.fixed.system > 6
    assert (conversation.max_tokens, conversation.max_tokens_key) == (100, "max_tokens")
    assert conversation.thinking_budget == 2048
    assert conversation.stream
    assert read([user("a")], system="Be terse.").fixed.system > 2


def long_history(**first: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [user(text("task", **first))]
    for n in range(12):
        messages += [says(THINKING, use(f"t{n}", n=n)), user(result(f"t{n}", f"row {n} " * 120))]
    return [*messages, says(text("done")), user("and now?")]


@pytest.mark.parametrize(
    "fields",
    [
        {"fallback_credit_token": "t"},
        {"compaction": {"type": "summarize"}},
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        {"context_management": {"edits": [{"type": "clear_thinking_20251015"}, {"type": "compact_20260112"}]}},
    ],
)
def test_requests_that_are_left_alone(fields: dict[str, Any]) -> None:
    request = body(long_history(), **fields)
    assert READER.read(request, WIRES["messages"]).hands_off
    assert prepare(runtime(), "messages", request, window=2_000).body == request


def test_clearing_thinking_alone_is_no_reason_to_stand_back() -> None:
    fields = {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}
    request = body(long_history(), **fields)
    prepared = prepare(runtime(), "messages", request, window=2_000)
    assert prepared.report.tokens_after <= 2_000
    assert json.loads(prepared.body)["context_management"] == fields["context_management"]


def test_a_thread_holds_its_history_on_the_server() -> None:
    messages = [user(result("t0", "word " * 3000)), says(use("t1")), user(result("t1", "word " * 3000))]
    request = body(messages, thread={"continue": {"id": "th"}})
    assert READER.read(request, WIRES["messages"]).stateful
    prepared = prepare(runtime(), "messages", request, target_tokens=1_500)
    assert [m["role"] for m in json.loads(prepared.body)["messages"]] == ["user", "assistant", "user"]
    assert prepared.report.tokens_after <= 1_500


def test_the_note_is_a_user_message_of_its_own() -> None:
    request = body(long_history())
    after = json.loads(prepare(runtime(), "messages", request, target_tokens=900).body)["messages"]
    assert after[0] == user(text("task"))
    assert after[1]["role"] == "user"
    assert after[1]["content"].startswith("<context_notes")
    assert not new_violations(request, dump({**json.loads(request), "messages": after}), "messages", "anthropic")


def test_markers_stay_on_what_stays() -> None:
    messages = long_history(cache_control={"type": "ephemeral", "ttl": "1h"})
    messages[-2]["content"][0]["cache_control"] = {"type": "ephemeral"}
    messages[5]["content"][1]["cache_control"] = {"type": "ephemeral"}
    request = body(messages, system=[text("s", cache_control={"type": "ephemeral", "ttl": "1h"})])
    after = prepare(runtime(), "messages", request, target_tokens=1_200).body
    assert not new_violations(request, after, "messages", "anthropic")
    kept = json.loads(after)["messages"]
    assert kept[0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert kept[-2]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert after.count(b"cache_control") == 3


def test_a_system_message_in_the_middle_stays_with_its_neighbours() -> None:
    messages = long_history()
    messages[1:1] = [says(text("Shall I?")), user("yes"), {"role": "system", "content": "New rule."}]
    request = body(messages, model="claude-opus-5")
    conversation = READER.read(request, WIRES["messages"])
    assert [(e.start, e.stop) for e in exchanges(conversation.messages)][:3] == [(0, 1), (1, 2), (2, 6)]
    after = prepare(runtime(), "messages", request, target_tokens=1_200).body
    assert not new_violations(request, after, "messages", "anthropic")
    assert {"role": "system", "content": "New rule."} in json.loads(after)["messages"]


def test_server_tools_and_compaction_blocks_survive_every_cut() -> None:
    messages = long_history()
    messages.insert(0, says({"type": "compaction", "content": "earlier summary", "signature": "s"}))
    messages[4:4] = [says(text("I search."), *SEARCH), user("go on")]
    request = body(messages)
    after = prepare(runtime(), "messages", request, target_tokens=1_000).body
    kept = json.loads(after)["messages"]
    assert kept[0] == messages[0]
    assert says(text("I search."), *SEARCH) in kept
    assert not new_violations(request, after, "messages", "anthropic")


def test_a_prefill_stays_last() -> None:
    request = body([*long_history(), says("The sum is")])
    after = json.loads(prepare(runtime(), "messages", request, target_tokens=900).body)["messages"]
    assert after[-1] == says("The sum is")
