"""The rules: what a real provider accepts is accepted, and each way to break a request is found by its own rule."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from .rules import PROFILES, item_requirements, validate

Body = dict[str, Any]


def call(ident: str, name: str = "read", arguments: str = "{}") -> Body:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def chat(*messages: Body, **more: Any) -> Body:
    return {"model": "m", "messages": list(messages), **more}


def user(text: Any = "hi") -> Body:
    return {"role": "user", "content": text}


def said(text: Any = "ok", **more: Any) -> Body:
    return {"role": "assistant", "content": text, **more}


def calls(*ids: str, content: Any = None, **more: Any) -> Body:
    return {"role": "assistant", "content": content, "tool_calls": [call(i) for i in ids], **more}


def tool(ident: str, text: Any = "out") -> Body:
    return {"role": "tool", "tool_call_id": ident, "content": text}


def rules_of(body: Body, wire: str, **more: Any) -> list[str]:
    return [v.rule for v in validate(body, wire, **more)]


SYSTEM = {"role": "system", "content": "be brief"}
LEGACY = {"name": "f", "arguments": ""}
NINE = "abcDEF123"
CHAT_SOUND = {
    "parallel calls, results in any order": chat(SYSTEM, user(), calls("a", "b"), tool("b"), tool("a"), user()),
    "ids repeat over turns": chat(user(), calls("a"), tool("a"), said(), user(), calls("a"), tool("a")),
    "consecutive users": chat(user(), user(), said(), said(), user()),
    "trailing system": chat(SYSTEM, user(), SYSTEM),
    "unknown fields": chat(user(), calls("a", reasoning_content="", x=1), tool("a"), magic=True),
    "content key absent beside calls": chat(user(), {"role": "assistant", "tool_calls": [call("a")]}, tool("a")),
    "empty strings": chat(user(""), said(""), user()),
    "broken arguments": chat(user(), said(None, tool_calls=[call("a", arguments="{")]), tool("a")),
    "legacy": chat(
        user(),
        said(None, function_call=LEGACY),
        {"role": "function", "name": "f", "content": ""},
    ),
    "parts": chat(user([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}])),
    "audio answer": chat(user(), said(None, audio={"id": "a"}), user()),
    "custom call": chat(
        user(),
        said(None, tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]),
        tool("c"),
    ),
}
CHAT_BROKEN = [
    ("default", chat(), "empty-array"),
    ("default", chat(user(None)), "wrong-type"),
    ("default", chat(user([])), "empty-array"),
    ("default", chat({"role": "bot", "content": "x"}), "role"),
    ("default", chat(user(), said(None), user()), "husk"),
    ("default", chat(user(), said(None, tool_calls=[])), "husk"),
    ("default", chat(user(), said("x", tool_calls=[]), user()), "empty-array"),
    ("default", chat(user(), calls("a"), user()), "tool-unanswered"),
    ("default", chat(user(), calls("a", "b"), tool("a")), "tool-unanswered"),
    ("default", chat(user(), calls("a")), "tool-unanswered"),
    ("default", chat(user(), tool("a")), "tool-orphan"),
    ("default", chat(user(), calls("a"), tool("b"), tool("a")), "tool-unknown-id"),
    ("default", chat(user(), calls("a"), tool("a"), tool("a")), "tool-duplicate"),
    ("default", chat(user(), calls("a"), user(), tool("a")), "tool-orphan"),
    ("default", chat(user(), calls("a"), tool("a", None)), "wrong-type"),
    ("default", chat(user(), calls("a"), tool("a", [{"type": "image_url"}])), "part-type"),
    ("default", chat(user(), calls("a"), {"role": "tool", "content": "x"}), "tool-call-id"),
    ("default", chat(user(), {"role": "function", "name": "f", "content": "x"}), "function-orphan"),
    ("default", chat(user(), said(None, function_call=LEGACY), user()), "function-unanswered"),
    ("default", chat(user(), {"role": "function", "content": "x"}), "function-name"),
    ("default", chat(user(), tools=[]), "empty-array"),
    ("default", chat(user(), tool_choice="auto"), "tool-choice"),
    ("default", chat(user(), max_tokens=0), "max-tokens"),
    ("default", chat(user(), max_tokens=1, max_completion_tokens=1), "two-maximums"),
    ("default", chat({**user(), "name": "a b"}), "name"),
    ("default", chat(user("x" * 10_485_761)), "string-length"),
    ("mistral", chat(user(), calls(NINE), tool(NINE), user()), "role-order"),
    ("mistral", chat(user(), calls("call_1"), tool("call_1")), "tool-id-pattern"),
    ("mistral", chat(user(), said()), "last-role"),
    ("mistral", chat(user(), said(""), user()), "husk"),
    ("gemini", chat(user(), said("let me"), calls("a"), tool("a")), "call-order"),
    ("gemini", chat(user(), said()), "last-role"),
    ("gemini", chat(SYSTEM), "no-contents"),
    ("gemini", {**chat(user(), calls("a"), tool("a")), "model": "gemini-3.1-pro"}, "thought-signature"),
    ("deepseek", chat(user(), calls("a"), tool("a"), user()), "reasoning-content"),
    ("deepseek", chat(user(), said(""), user()), "husk"),
    ("bedrock", chat(user(), user()), "alternation"),
    ("bedrock", chat(said(), user()), "first-role"),
    ("bedrock", chat(user(), calls("a"), tool("a")), "tools-needed"),
    ("bedrock", chat(user(" ")), "empty-content"),
    ("strict-template", chat(user(), user()), "alternation"),
    ("strict-template", chat(said(), user()), "alternation"),
    ("strict-template", chat(user(), SYSTEM), "system-first"),
    (
        "strict-args",
        chat(user(), said(None, tool_calls=[call("a", arguments="{")]), tool("a")),
        "arguments-json",
    ),
]
CHAT_PROFILE_SOUND = [
    ("mistral", chat(SYSTEM, user(), calls(NINE), tool(NINE), said(), user())),
    ("mistral", chat(user(), said("x", tool_calls=[]), user())),
    ("mistral", chat(user(), calls(NINE, content=[]), tool(NINE))),
    ("mistral", chat(user(), said("x", prefix=True))),
    ("gemini", chat(user(), calls("a", "b"), tool("a"), tool("b"), calls("a"), tool("a"))),
    (
        "deepseek",
        chat(user(), calls("a", reasoning_content=""), tool("a"), said(reasoning_content="x"), user(), said(), user()),
    ),
    ("bedrock", chat(SYSTEM, user(), calls("a", "b"), tool("a"), tool("b"), said(), user(), tools=[{}])),
    ("strict-template", chat(SYSTEM, user(), calls("a"), tool("a"), said(), user())),
]


@pytest.mark.parametrize("name", CHAT_SOUND)
def test_chat_sound(name: str) -> None:
    assert validate(CHAT_SOUND[name], "chat") == []


@pytest.mark.parametrize(("profile", "body"), CHAT_PROFILE_SOUND)
def test_chat_sound_for_its_profile(profile: str, body: Body) -> None:
    assert validate(body, "chat", profile=profile) == []


@pytest.mark.parametrize(("profile", "body", "rule"), CHAT_BROKEN)
def test_chat_broken(profile: str, body: Body, rule: str) -> None:
    assert rule in rules_of(body, "chat", profile=profile)


# --- responses ---


def responses(*items: Body, **more: Any) -> Body:
    return {"model": "m", "input": list(items), **more}


def fc(ident: str, **more: Any) -> Body:
    return {"type": "function_call", "call_id": ident, "name": "f", "arguments": "{}", **more}


def out(ident: str, text: Any = "x") -> Body:
    return {"type": "function_call_output", "call_id": ident, "output": text}


def rs(ident: str = "rs_1", **more: Any) -> Body:
    return {"type": "reasoning", "id": ident, "summary": [], "encrypted_content": "x", **more}


ANSWER = {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "x"}]}
CHAIN = (user(), rs(), fc("a", id="fc_1"), fc("b", id="fc_2"), out("a"), out("b"), rs("rs_2"), ANSWER, user())
RESPONSES_SOUND = {
    "a string": {"model": "m", "input": "hi"},
    "a chain": responses(*CHAIN),
    "outputs anywhere": responses(user(), fc("a"), fc("b"), user(), out("b"), out("a")),
    "call ids repeat": responses(user(), fc("a"), out("a"), user(), fc("a"), out("a")),
    "unknown items": responses(
        user(), {"type": "mcp_list_tools", "x": 1}, {"type": "compaction", "encrypted_content": "x"}
    ),
    "a delta": responses(out("a"), previous_response_id="resp_1"),
    "references": responses({"type": "item_reference", "id": "fc_9"}, out("a")),
    "hosted tool search": responses(
        user(), {"type": "tool_search_call", "call_id": None}, {"type": "tool_search_output", "id": "t"}
    ),
    "shell answered as a function": responses(user(), {"type": "local_shell_call", "call_id": "a"}, out("a")),
}
RESPONSES_BROKEN = [
    ("default", responses(user(), fc("a")), "call-unanswered"),
    ("default", responses(user(), out("a")), "output-orphan"),
    ("default", responses(user(), fc("a"), out("a"), out("a")), "output-orphan"),
    ("default", responses(fc("a"), previous_response_id="resp_1"), "call-unanswered"),
    ("default", responses(user(), rs(), user()), "reasoning-alone"),
    ("default", responses(user(), rs()), "reasoning-alone"),
    ("default", responses(), "no-input"),
    ("default", responses(user([])), "empty-array"),
    ("default", responses(user([{"type": "text", "text": "x"}])), "part-type"),
    ("default", responses(said([{"type": "input_text", "text": "x"}])), "part-type"),
    ("default", responses({"role": "tool", "content": "x"}), "role"),
    ("default", responses(user(), fc("a"), out("a", None)), "missing"),
    ("default", responses(user(), rs(encrypted_content=None), fc("a"), out("a"), store=False), "item-not-found"),
    ("default", responses(user(), ANSWER, ANSWER), "item-duplicate"),
    ("default", responses({"type": "compaction_trigger"}, user()), "trigger-last"),
    ("default", responses(user(), max_output_tokens=15), "max-tokens"),
    ("default", responses(user(), conversation="c", previous_response_id="r"), "two-histories"),
    ("default", responses(user(), {"type": "mcp_approval_response", "approval_request_id": "x"}), "approval-orphan"),
    ("openai", responses(user(), fc("a", id="x"), out("a")), "item-id"),
    ("deepseek", responses(user(), fc("a"), user(), out("a")), "call-not-adjacent"),
    ("deepseek", responses(user(), out("a"), fc("a")), "output-not-adjacent"),
]


@pytest.mark.parametrize("name", RESPONSES_SOUND)
def test_responses_sound(name: str) -> None:
    assert validate(RESPONSES_SOUND[name], "responses") == []


@pytest.mark.parametrize(("profile", "body", "rule"), RESPONSES_BROKEN)
def test_responses_broken(profile: str, body: Body, rule: str) -> None:
    assert rule in rules_of(body, "responses", profile=profile)


def test_items_need_the_reasoning_that_led_to_them() -> None:
    required = item_requirements(CHAIN)
    assert required == {"fc_1": "rs_1", "fc_2": "rs_1", "msg_1": "rs_2"}
    assert rules_of(responses(*CHAIN), "responses", required=required) == []
    bare = [x for x in CHAIN if x.get("id") != "rs_1"]
    assert rules_of(responses(*bare), "responses", required=required) == ["item-without-reasoning"] * 2
    anonymous = [{k: v for k, v in x.items() if k != "id"} if x.get("type") == "function_call" else x for x in bare]
    assert rules_of(responses(*anonymous), "responses", required=required) == []


@pytest.mark.parametrize("profile", sorted(PROFILES))
@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_validation_is_pure_and_survives_any_shape(profile: str, wire: str) -> None:
    key = "input" if wire == "responses" else "messages"
    for odd in (None, 5, "x", {}, [None], [5], [{}], [{"role": "user"}], [{"role": "assistant", "content": 5}]):
        body = {"model": "m", "max_tokens": 5, key: odd}
        before = copy.deepcopy(body)
        assert wire == "responses" or validate(body, wire, profile=profile)
        validate(body, wire, profile=profile)
        assert body == before
