"""What the providers that speak Chat Completions demand beyond its own rules: role order, ids, signatures, reasoning.

Sources: mistral-common's request validator; Google's thought-signature guide; DeepSeek's thinking-mode guide; Bedrock's
Converse errors; the common chat templates of open models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .violation import Violation

__all__ = ["call_ids", "check_profile"]


def check_profile(body: Mapping[str, Any], profile: str) -> Iterator[Violation]:
    """The rules of one profile, on messages that all have a role."""
    messages = body["messages"]
    more = {"mistral": _mistral, "deepseek": _deepseek, "bedrock": _bedrock, "strict-template": _template}
    if profile == "gemini":
        yield from _gemini(messages, str(body.get("model")))
    elif profile in more:
        yield from more[profile](messages)
    if profile == "bedrock" and not body.get("tools") and any(m.get("tool_calls") for m in messages):
        text = "The toolConfig field must be defined when using toolUse and toolResult content blocks."
        yield Violation("tools-needed", text, "tools")


def call_ids(message: Mapping[str, Any]) -> list[str]:
    calls = message.get("tool_calls") if message.get("role") == "assistant" else None
    return [str(c.get("id")) for c in calls if isinstance(c, dict)] if isinstance(calls, list) else []


def _mistral(messages: list[Any]) -> Iterator[Violation]:
    after = {
        "system": {"user", "assistant", "system"},
        "user": {"assistant", "system", "user"},
        "assistant": {"assistant", "user", "tool"},
        "tool": {"assistant", "tool"},
    }
    previous = None
    for i, m in enumerate(messages):
        role = "system" if m["role"] == "developer" else m["role"]
        if previous and role not in after.get(previous, {role}):
            text = f"Unexpected role '{role}' after role '{previous}'"
            yield Violation("role-order", text, None, "3230")
        if role == "assistant" and not m.get("content") and not m.get("tool_calls"):
            text = "Assistant message must have either content or tool_calls, but not none."
            yield Violation("husk", text, None, "3240", kind="invalid_request_assistant_message")
        for ident in [*call_ids(m), *([m.get("tool_call_id")] if role == "tool" else [])]:
            if not re.fullmatch(r"[a-zA-Z0-9]{9}", str(ident)):
                text = f"Tool call id was {ident} but must be a-z, A-Z, 0-9, with a length of 9."
                yield Violation("tool-id-pattern", text, f"messages[{i}]", "3280", kind="invalid_function_call")
        previous = role
    last = messages[-1]
    if last["role"] not in ("user", "tool") and not (last["role"] == "assistant" and last.get("prefix")):
        text = f"Expected last role User or Tool (or Assistant with prefix True) for serving but got {last['role']}"
        yield Violation("last-role", text, None, "3230")


def _gemini(messages: list[Any], model: str) -> Iterator[Violation]:
    turns = [(i, m) for i, m in enumerate(messages) if m["role"] not in ("system", "developer")]
    if not turns:
        yield Violation("no-contents", "* GenerateContentRequest.contents: contents is not specified")
        return
    previous = None
    for i, m in turns:
        if call_ids(m) and (previous is None or previous["role"] == "assistant"):
            text = (
                "Please ensure that function call turn comes immediately after a user turn "
                "or after a function response turn."
            )
            yield Violation("call-order", text, f"messages[{i}]")
        if m["role"] == "user" and m.get("content") == "":
            text = "Unable to submit request because it must include at least one parts field."
            yield Violation("empty-content", text, f"messages[{i}]")
        previous = m
    if turns[-1][1]["role"] == "assistant":
        text = "Please ensure that multiturn requests ends with a user role or a function response."
        yield Violation("last-role", text)
    if not re.search(r"gemini-([3-9]|\d\d)", model):
        return
    newest = max((i for i, m in turns if m["role"] == "user"), default=-1)
    for i, m in turns:
        if i > newest and call_ids(m):
            google = ((m["tool_calls"][0].get("extra_content") or {}).get("google")) or {}
            if not google.get("thought_signature"):
                text = "Function call is missing a thought_signature in functionCall parts."
                yield Violation("thought-signature", text, f"messages[{i}]")


def _deepseek(messages: list[Any]) -> Iterator[Violation]:
    """Every assistant message of a turn that called tools needs its reasoning_content, an empty one too."""
    turn: list[int] = []
    for i, m in enumerate([*messages, {"role": "user"}]):
        if m["role"] == "user":
            if any(call_ids(messages[j]) for j in turn):
                for j in turn:
                    if not isinstance(messages[j].get("reasoning_content"), str):
                        text = "The reasoning_content in the thinking mode must be passed back to the API."
                        yield Violation("reasoning-content", text, f"messages[{j}]", "invalid_request_error")
            turn = []
        elif m["role"] == "assistant":
            turn.append(i)
            if not m.get("content") and not m.get("tool_calls"):
                text = "Invalid assistant message: content or tool_calls must be set"
                yield Violation("husk", text, f"messages[{i}]", "invalid_request_error")


def _bedrock(messages: list[Any]) -> Iterator[Violation]:
    """Converse: user first, roles alternate (a run of tool messages is one user turn), no blank text."""
    previous = None
    for i, m in enumerate(messages):
        if m["role"] in ("system", "developer"):
            continue
        turn = "assistant" if m["role"] == "assistant" else "user"
        if previous is None and turn != "user":
            text = (
                "A conversation must start with a user message. Try again with a "
                "conversation that starts with a user message."
            )
            yield Violation("first-role", text)
        elif previous and previous[0] == turn and not (previous[1] == m["role"] == "tool"):
            text = (
                'messages: roles must alternate between "user" and "assistant", but '
                f'found multiple "{turn}" roles in a row'
            )
            yield Violation("alternation", text, f"messages[{i}]")
        if isinstance(m.get("content"), str) and not m["content"].strip() and not call_ids(m):
            text = (
                f"The text field in the ContentBlock object at messages.{i}.content.0 is blank. "
                "Add text to the text field, and try again."
            )
            yield Violation("empty-content", text, f"messages[{i}]")
        previous = (turn, m["role"])


def _template(messages: list[Any]) -> Iterator[Violation]:
    """System first and alone; user and plain assistant messages alternate, tool calls and results do not count."""
    wanted = "user"
    for i, m in enumerate(messages):
        role = "system" if m["role"] == "developer" else m["role"]
        if role == "system":
            if i:
                yield Violation("system-first", "System message must be at the beginning.", f"messages[{i}]")
        elif role == "user" or (role == "assistant" and not call_ids(m)):
            if role != wanted:
                text = "Conversation roles must alternate user/assistant/user/assistant/..."
                yield Violation("alternation", text, f"messages[{i}]")
            wanted = "assistant" if role == "user" else "user"
