"""ctxproxy/wire/openai_responses.py: what each item is, what is opaque, where history lives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire.histories import dump, new_violations, png, prepare, runtime

from ctxproxy.conversation import Conversation, exchanges, texts_of
from ctxproxy.wire import WIRES, detect

READER = runtime().engine.reader


def read(items: Any, **fields: Any) -> Conversation:
    return READER.read(dump({"model": "gpt-4o", "input": items, **fields}), WIRES["responses"])


def parts(item: Any) -> list[tuple[str, Any]]:
    message = read([item]).messages[0]
    return [(p.kind, t) for p, t in zip(message.parts, texts_of(message), strict=True)]


def call(id: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": "run", "arguments": '{"a":1}', **more}


def output(id: str, text: Any = "out") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": text}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g" * 4000}


def test_the_path_tells_the_api() -> None:
    assert detect("/v1/responses") == detect("/openai/responses") == "responses"
    assert detect("/v1/responses/compact") is None


def test_input_may_be_one_string() -> None:
    conversation = read("Hello there")
    assert [(m.role, m.typed, texts_of(m)) for m in conversation.messages] == [("user", True, ("Hello there",))]
    body = dump({"model": "gpt-4o", "input": "word " * 3000})
    assert prepare(runtime(), "responses", body, window=3300).body == body


def test_messages_with_and_without_a_type() -> None:
    for item in (
        {"role": "user", "content": "a"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
    ):
        message = read([item]).messages[0]
        assert (message.role, message.typed, texts_of(message)) == ("user", True, ("a",))
    assert (
        len(
            {
                m.digest
                for m in read(
                    [
                        {"role": "user", "content": "a"},
                        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                    ]
                ).messages
            }
        )
        == 1
    )
    roles = [m.role for m in read([{"role": r, "content": "x"} for r in ("developer", "system", "assistant")]).messages]
    assert roles == ["developer", "system", "assistant"]
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert parts(refusal) == [("text", "no")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (call("1"), output("1")),
        (
            {"type": "custom_tool_call", "call_id": "1", "name": "patch", "input": "*** Begin"},
            {"type": "custom_tool_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "ok"}]},
        ),
        (
            {"type": "local_shell_call", "call_id": "1", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "local_shell_call_output", "id": "1", "output": "a.py"},
        ),
        (
            {"type": "local_shell_call", "call_id": "1", "action": {"type": "exec", "command": ["ls"]}},
            output("1", "a.py"),
        ),
        (
            {"type": "shell_call", "call_id": "1", "action": {"commands": ["ls"]}},
            {
                "type": "shell_call_output",
                "call_id": "1",
                "output": [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
            },
        ),
        (
            {"type": "computer_call", "call_id": "1", "action": {"type": "click", "x": 1, "y": 2}},
            {
                "type": "computer_call_output",
                "call_id": "1",
                "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{png()}"},
            },
        ),
        (
            {
                "type": "apply_patch_call",
                "call_id": "1",
                "operation": {"type": "update_file", "path": "a", "diff": "d"},
            },
            {"type": "apply_patch_call_output", "call_id": "1", "status": "completed", "output": "done"},
        ),
        (
            {"type": "mcp_approval_request", "id": "1", "name": "n", "arguments": "{}", "server_label": "s"},
            {"type": "mcp_approval_response", "approval_request_id": "1", "approve": True},
        ),
        (
            {"type": "tool_search_call", "call_id": "1", "execution": "client", "arguments": {}},
            {"type": "tool_search_output", "call_id": "1", "execution": "client", "tools": []},
        ),
    ],
)
def test_a_call_and_its_output_are_one_exchange(first: dict[str, Any], second: dict[str, Any]) -> None:
    between = {"role": "user", "content": "still there?"}
    conversation = read([{"role": "user", "content": "go"}, first, between, second, {"role": "user", "content": "on"}])
    assert [(e.start, e.stop) for e in exchanges(conversation.messages)] == [(0, 1), (1, 4), (4, 5)]
    assert conversation.messages[1].of("tool_call")
    assert len(conversation.messages[3].results) == 1


def test_reasoning_costs_what_is_sealed_in_it_and_binds_what_follows() -> None:
    conversation = read([{"role": "user", "content": "q"}, REASONING, call("1"), call("2"), output("1"), output("2")])
    reasoning = conversation.messages[1]
    # 4,000 letters of base64 are 3,000 bytes, 650 of them framing; four bytes a token.
    assert reasoning.parts[0].tokens == (4000 * 3 // 4 - 650) // 4
    assert [(e.start, e.stop) for e in exchanges(conversation.messages)] == [(0, 1), (1, 6)]
    text = read([{"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "I look."}]}])
    assert text.messages[0].parts[0].tokens > 0


@pytest.mark.parametrize(
    "kind",
    [
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "compaction",
        "item_reference",
        "additional_tools",
        "program",
        "hologram",
    ],
)
def test_items_that_nobody_may_touch(kind: str) -> None:
    item = {"type": kind, "id": "x_1", "payload": "word " * 50}
    message = read([item]).messages[0]
    assert message.opaque
    assert message.tokens > 40


def test_sealed_and_binary_values_do_not_cost_their_letters() -> None:
    sealed = read([{"type": "compaction", "id": "cmp", "encrypted_content": "g" * 40_000}]).messages[0]
    assert 7_000 < sealed.tokens < 8_000
    picture = read([{"type": "image_generation_call", "id": "ig", "result": "A" * 400_000}]).messages[0]
    assert picture.tokens < 3_000
    shown = {
        "role": "user",
        "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{png()}" + "A" * 99_999}],
    }
    assert read([shown]).messages[0].tokens < 2_000


def test_an_output_keeps_its_shape() -> None:
    shell = {"type": "shell_call_output", "call_id": "1", "output": [{"stdout": "o", "stderr": "e"}, {"stdout": "p"}]}
    assert parts(shell) == [("tool_result", "o"), ("tool_result", "e"), ("tool_result", "p")]
    assert read([shell]).messages[0].results == ("1",)
    screenshot = {
        "type": "computer_call_output",
        "call_id": "1",
        "output": {"type": "computer_screenshot", "file_id": "f"},
    }
    kinds = [p.kind for p in read([screenshot]).messages[0].parts]
    assert kinds == ["tool_result", "other"]


def test_what_stands_outside_the_input() -> None:
    conversation = read(
        [], instructions="Be terse.", max_output_tokens=99, stream=True, text={"format": {"type": "json_schema"}}
    )
    assert conversation.fixed.system > 2
    assert conversation.fixed.other > 3
    assert (conversation.max_tokens, conversation.max_tokens_key, conversation.stream) == (
        99,
        "max_output_tokens",
        True,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"conversation": {"id": "c"}},
        {"prompt": {"id": "p"}},
    ],
)
def test_history_on_the_server_is_never_cut(fields: dict[str, Any]) -> None:
    items = [
        output("0", "word " * 2000),
        {"role": "user", "content": "a"},
        call("1"),
        output("1", "word " * 2000),
        {"role": "user", "content": "b"},
    ]
    body = dump({"model": "gpt-4o", "input": items, **fields})
    conversation = READER.read(body, WIRES["responses"])
    assert conversation.stateful
    prepared = prepare(runtime(), "responses", body, target_tokens=1_500)
    after = json.loads(prepared.body)["input"]
    assert [i.get("call_id") for i in after] == [i.get("call_id") for i in items]
    assert prepared.report.tokens_after <= 1_500
    assert not new_violations(body, prepared.body, "responses")


def test_an_item_reference_means_history_on_the_server() -> None:
    assert read([{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "a"}]).stateful
    assert read([{"id": "msg_1"}]).stateful
    assert not read([{"role": "user", "content": "a"}]).stateful


@pytest.mark.parametrize(
    ("items", "fields"),
    [
        ([{"type": "compaction_trigger"}], {}),
        ([], {"context_management": [{"type": "compaction", "compact_threshold": 1000}]}),
        ([], {"include": ["message.output_text.logprobs"]}),
        ([], {"top_logprobs": 3}),
    ],
)
def test_requests_that_are_left_alone(items: list[Any], fields: dict[str, Any]) -> None:
    history = [{"role": "user", "content": "word " * 500}, {"role": "assistant", "content": "ok " * 500}] * 4
    body = dump({"model": "gpt-4o", "input": [*history, {"role": "user", "content": "x"}, *items], **fields})
    assert READER.read(body, WIRES["responses"]).hands_off
    assert prepare(runtime(), "responses", body, window=3_000).body == body


def test_a_server_that_truncates_itself_is_never_blocked() -> None:
    body = dump({"model": "gpt-4o", "truncation": "auto", "input": "word " * 5000})
    assert READER.read(body, WIRES["responses"]).elastic
    assert prepare(runtime(), "responses", body, window=2_000).body == body


def test_the_note_is_a_user_item_after_the_task() -> None:
    items: list[Any] = [{"role": "user", "content": "task"}]
    for n in range(20):
        items += [
            {**REASONING, "id": f"rs_{n}", "encrypted_content": "g"},
            {**call(str(n)), "id": f"fc_{n}"},
            output(str(n), f"row {n} " * 60),
        ]
    items.append({"role": "user", "content": "and now?"})
    body = dump({"model": "gpt-4o", "input": items, "instructions": "s"})
    after = json.loads(prepare(runtime(), "responses", body, target_tokens=900).body)["input"]
    assert after[0] == items[0]
    assert after[1]["role"] == "user"
    assert after[1]["content"][0]["type"] == "input_text"
    assert "context_notes" in after[1]["content"][0]["text"]
    assert after[-1] == items[-1]
    assert not new_violations(body, dump({**json.loads(body), "input": after}), "responses", "openai")


def test_free_text_input_is_cut_as_text() -> None:
    patch = {"type": "custom_tool_call", "call_id": "1", "name": "patch", "input": "*** Begin\n" + "+ line\n" * 3000}
    items = [
        {"role": "user", "content": "go"},
        patch,
        {"type": "custom_tool_call_output", "call_id": "1", "output": "ok"},
    ]
    prepared = prepare(runtime(), "responses", dump({"model": "gpt-4o", "input": items}), target_tokens=600)
    after = json.loads(prepared.body)["input"][1]["input"]
    assert "*** Begin" in after
    assert prepared.report.tokens_after <= 600
