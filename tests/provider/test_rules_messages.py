"""The rules of Messages: what the API accepts, and each way to break a request."""

from __future__ import annotations

from typing import Any

import pytest

from .rules import validate
from .rules_messages import model_version

Body = dict[str, Any]


def user(content: Any = "hi") -> Body:
    return {"role": "user", "content": content}


def said(content: Any = "ok") -> Body:
    return {"role": "assistant", "content": content}


def rules_of(body: Body, **more: Any) -> list[str]:
    return [v.rule for v in validate(body, "messages", **more)]


SYSTEM = {"role": "system", "content": "be brief"}


def use(ident: str = "t1", **more: Any) -> Body:
    return {"type": "tool_use", "id": ident, "name": "f", "input": {}, **more}


def result(ident: str = "t1", content: Any = "x", **more: Any) -> Body:
    return {"type": "tool_result", "tool_use_id": ident, "content": content, **more}


def text(value: str = "x", **more: Any) -> Body:
    return {"type": "text", "text": value, **more}


def mark(ttl: str = "") -> Body:
    return {"cache_control": {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}}


def claude(*messages: Body, model: str = "claude-opus-5-5", **more: Any) -> Body:
    return {"model": model, "max_tokens": 100, "messages": list(messages), **more}


HOSTED = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
THOUGHT = {"type": "thinking", "thinking": "", "signature": "abc"}
MESSAGES_SOUND = {
    "tools": claude(user(), said([THOUGHT, use("a"), use("b")]), user([result("b"), result("a"), text()])),
    "ids repeat over turns": claude(*[user(), said([use()]), user([result()]), said("x")] * 2, user()),
    "consecutive users": claude(user(), user(), said("x"), said("y"), user()),
    "results without content": claude(user(), said([use()]), user([{"type": "tool_result", "tool_use_id": "t1"}])),
    "hosted tools": claude(user(), said([HOSTED, FOUND, text()]), user()),
    "a paused turn": claude(user(), said([HOSTED])),
    "hosted tool over a client tool": claude(
        user(), said([HOSTED, use()]), user([result()]), said([FOUND, text()]), user()
    ),
    "system messages": claude(user(), SYSTEM, SYSTEM, said("x"), user(), SYSTEM),
    "prefill on an old model": claude(user(), said("{"), model="claude-3-5-sonnet-20241022"),
    "four markers": claude(user([text(**mark("1h"))]), said([text(**mark("1h"))]), user([text(**mark())]), **mark()),
    "unknown blocks": claude(user([text(), {"type": "container_upload", "file_id": "f"}]), extra=1),
    "a compaction block first": claude(said([{"type": "compaction", "content": "x"}]), user()),
    "a thread": claude(user([result()]), thread={"type": "continue"}),
}
MESSAGES_BROKEN = [
    ("default", claude(), "messages"),
    ("default", claude(said(), user()), "first-role"),
    ("default", claude(SYSTEM, user()), "first-role"),
    ("default", claude(user(), {"role": "tool", "content": "x"}), "role"),
    ("default", claude(user("")), "empty-content"),
    ("default", claude(user([])), "empty-content"),
    ("default", claude(user(), said([]), user()), "empty-content"),
    ("default", claude(user(" \n")), "blank-text"),
    ("default", claude(user([text("")])), "empty-text"),
    ("default", claude(user([text("\t")])), "blank-text"),
    ("default", claude(user(), said([use()]), user([result("t1", [text("")])])), "empty-text"),
    ("default", claude(user(), system=[text("")]), "empty-text"),
    ("default", claude(user(), said([use()]), user()), "tool-unanswered"),
    ("default", claude(user(), said([use()])), "tool-unanswered"),
    ("default", claude(user(), said([use()]), user([text(), result()])), "tool-unanswered"),
    ("default", claude(user(), said([use("a"), use("b")]), user([result("a")])), "tool-unanswered"),
    ("default", claude(user(), said([use()]), user("x"), user([result()])), "result-orphan"),
    ("default", claude(user([result()])), "result-orphan"),
    ("default", claude(user(), said([use()]), user([result(), result()])), "result-duplicate"),
    ("default", claude(user(), said([use(), use()]), user([result()])), "tool-id-duplicate"),
    ("default", claude(user(), said([use(input="x")]), user([result()])), "tool-input"),
    ("default", claude(user(), said([use("a b")]), user([result("a b")])), "tool-id-pattern"),
    ("default", claude(user(), said([use()]), user([result("t1", "", is_error=True)])), "error-empty"),
    ("default", claude(user(), said([use()]), user([result("t1", [{"type": "image"}], is_error=True)])), "error-text"),
    ("default", claude(user(), said([use(name="")]), user([result()])), "tool-name"),
    ("default", claude(user(["x"])), "block"),
    ("default", claude(user(), {"role": "system", "content": [{"type": "image"}]}), "system-text"),
    ("default", claude(user([use()])), "block-role"),
    ("default", claude(user(), said([FOUND, text()]), user()), "server-tool-orphan"),
    ("default", claude(user(), said([HOSTED, text()]), user()), "server-tool-unanswered"),
    ("default", claude(user(), said("x"), SYSTEM), "system-place"),
    ("default", claude(user(), SYSTEM, user()), "system-place"),
    ("default", claude(user(), SYSTEM, model="claude-sonnet-4-6"), "system-role"),
    ("default", claude(user(), said("x")), "prefill"),
    ("default", claude(user(), said("x "), model="claude-3-haiku"), "prefill-space"),
    ("default", claude(user(), said([text(), THOUGHT]), user()), "thinking-last"),
    ("default", claude(user(), said([{**THOUGHT, "signature": ""}, text()]), user()), "thinking-signature"),
    ("default", claude(user(), said([{"type": "redacted_thinking"}, text()]), user()), "thinking-field"),
    ("default", claude(user([text(**mark())] * 5)), "cache-count"),
    ("default", claude(user([text(**mark()), text(**mark("1h"))])), "cache-ttl-order"),
    ("default", claude(user(), said([{**THOUGHT, **mark()}, text()]), user()), "cache-thinking"),
    ("default", claude(user([text("", **mark())])), "cache-empty"),
    ("default", claude(user(), thinking={"type": "enabled", "budget_tokens": 2000}), "thinking-budget"),
    ("default", claude(user(), tool_choice={"type": "auto"}), "tool-choice"),
    ("anthropic-old", claude(user(), said([use()]), user([result()]), thinking={"type": "enabled"}), "thinking-first"),
    ("bedrock", claude(user(), user()), "alternation"),
    ("bedrock", claude(user(), said([use()]), user([result()])), "tools-needed"),
]


@pytest.mark.parametrize("name", MESSAGES_SOUND)
def test_messages_sound(name: str) -> None:
    assert validate(MESSAGES_SOUND[name], "messages") == []


@pytest.mark.parametrize(("profile", "body", "rule"), MESSAGES_BROKEN)
def test_messages_broken(profile: str, body: Body, rule: str) -> None:
    assert rule in rules_of(body, profile=profile)


def test_what_the_newest_version_no_longer_takes() -> None:
    body = claude(user(), temperature=1.0)
    assert rules_of(body, version="2023-06-01") == []
    assert rules_of(body, version="2026-10-21") == ["sampling"]
    cited = claude(user([text(citations=[{"type": "char_location"}])]))
    assert rules_of(cited, version="2023-06-01") == []
    assert rules_of(cited, version="2026-10-21") == ["citations"]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("claude-opus-5-5", (5, 5)),
        ("claude-sonnet-4-20250514", (4, 0)),
        ("claude-haiku-4-5-20251001", (4, 5)),
        ("claude-3-5-sonnet-20241022", (3, 5)),
        ("us.anthropic.claude-fable-5.1-v1:0", (5, 1)),
        ("gpt-5.5", None),
    ],
)
def test_model_version(name: str, version: tuple[int, int] | None) -> None:
    assert model_version(name) == version
