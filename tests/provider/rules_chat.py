"""Rules of Chat Completions: shapes, husks, tool calls paired by position; then what each compatible provider adds.

Sources: OpenAI's API reference and the error texts that its users report. The others' own rules: rules_compat.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .rules_compat import call_ids, check_profile
from .violation import Violation, empty_array, missing, wrong_type

__all__ = ["check"]

_ROLES = ("system", "assistant", "user", "function", "tool", "developer")
_PARTS: dict[str, frozenset[str]] = {
    "system": frozenset({"text"}),
    "developer": frozenset({"text"}),
    "tool": frozenset({"text"}),
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
}
_NAME = re.compile(r"^[^\s<|\\/>]+$")
_PARSING = ("mistral", "gemini", "bedrock", "strict-args")  # these parse the arguments of calls
_MAX_CHARS = 10_485_760  # OpenAI's limit of one string


def check(body: Mapping[str, Any], profile: str) -> Iterator[Violation]:
    messages = body.get("messages")
    if not body.get("model"):
        yield Violation("model", "you must provide a model parameter", None)
    if not isinstance(messages, list):
        yield missing("messages") if messages is None else wrong_type("messages", "an array of objects", messages)
        return
    if not messages:
        yield empty_array("messages")
        return
    yield from _parameters(body)
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            yield wrong_type(f"messages[{i}]", "an object", message)
            return
        yield from _message(message, i, profile)
    if any(m.get("role") not in _ROLES for m in messages):
        return  # what follows goes by roles
    yield from _pairs(messages)
    yield from _legacy_pairs(messages)
    yield from check_profile(body, profile)


def _parameters(body: Mapping[str, Any]) -> Iterator[Violation]:
    if body.get("tools") == []:
        yield empty_array("tools")
    if body.get("tool_choice") is not None and not body.get("tools"):
        text = "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."
        yield Violation("tool-choice", text, "tool_choice")
    both = [k for k in ("max_tokens", "max_completion_tokens") if body.get(k) is not None]
    if len(both) == 2:
        text = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        yield Violation("two-maximums", text, "max_tokens", "invalid_parameter_combination")
    for key in both:
        if not isinstance(body[key], int) or body[key] < 1:
            text = f"Invalid '{key}': integer below minimum value. Expected a value >= 1, but got {body[key]} instead."
            yield Violation("max-tokens", text, key, "integer_below_min_value")


# --- one message ---


def _message(m: Mapping[str, Any], i: int, profile: str) -> Iterator[Violation]:
    role, where = m.get("role"), f"messages[{i}]"
    if role not in _ROLES:
        names = ", ".join(f"'{r}'" for r in _ROLES)
        yield Violation(
            "role", f"Invalid value: '{role}'. Supported values are: {names}.", f"{where}.role", "invalid_value"
        )
        return
    name = m.get("name")
    if name is not None and not (isinstance(name, str) and _NAME.match(name)):
        text = (
            f"Invalid '{where}.name': string does not match pattern. Expected a string that "
            f"matches the pattern '{_NAME.pattern}'."
        )
        yield Violation("name", text, f"{where}.name", "invalid_value")
    yield from _content(m, role, where, profile)
    if role == "tool" and not isinstance(m.get("tool_call_id"), str):
        text = "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'."
        yield Violation("tool-call-id", text, f"messages.[{i}].tool_call_id")
    if role == "function" and not isinstance(name, str):
        text = "Missing parameter 'name': messages with role 'function' must have a 'name'."
        yield Violation("function-name", text, f"messages.[{i}].name")
    if role == "assistant" and m.get("tool_calls") is not None:
        yield from _calls(m["tool_calls"], where, profile)


def _content(m: Mapping[str, Any], role: str, where: str, profile: str) -> Iterator[Violation]:
    content = m.get("content")
    if content is None:
        carries = any(m.get(k) for k in ("tool_calls", "function_call", "audio", "refusal"))
        if role == "assistant" and not carries:
            text = "Invalid value for 'content': expected a string, got null."
            yield Violation("husk", text, f"{where}.content")
        elif role not in ("assistant", "function"):
            yield (
                missing(f"{where}.content")
                if "content" not in m
                else wrong_type(f"{where}.content", "one of a string or array of objects", None)
            )
        return
    if isinstance(content, str):
        if len(content) > _MAX_CHARS:
            yield _too_long(f"{where}.content", len(content))
        return
    if not isinstance(content, list):
        yield wrong_type(f"{where}.content", "one of a string or array of objects", content)
        return
    if not content and not (profile == "mistral" and m.get("tool_calls")):
        yield empty_array(f"{where}.content")
    for j, part in enumerate(content):
        at = f"{where}.content[{j}]"
        kind = part.get("type") if isinstance(part, dict) else None
        allowed = None if profile == "mistral" else _PARTS.get(role)  # Mistral has parts of its own (thinking)
        if allowed and kind not in allowed:
            names = ", ".join(f"'{k}'" for k in sorted(allowed))
            yield Violation(
                "part-type", f"Invalid value: '{kind}'. Supported values are: {names}.", at, "invalid_value"
            )
        elif kind == "text":
            if not isinstance(part.get("text"), str):
                yield (
                    wrong_type(f"{at}.text", "a string", part.get("text")) if "text" in part else missing(f"{at}.text")
                )
            elif len(part["text"]) > _MAX_CHARS:
                yield _too_long(f"{at}.text", len(part["text"]))


def _too_long(param: str, length: int) -> Violation:
    text = (
        f"Invalid '{param}': string too long. Expected a string with maximum length {_MAX_CHARS}, "
        f"but got a string with length {length} instead."
    )
    return Violation("string-length", text, param, "string_above_max_length")


def _calls(calls: Any, where: str, profile: str) -> Iterator[Violation]:
    if not isinstance(calls, list):
        yield wrong_type(f"{where}.tool_calls", "an array of objects", calls)
        return
    if not calls and profile != "mistral":  # Mistral's own clients send empty lists
        yield empty_array(f"{where}.tool_calls")
    for j, call in enumerate(calls):
        at = f"{where}.tool_calls[{j}]"
        if not isinstance(call, dict):
            yield wrong_type(at, "an object", call)
            continue
        kind = call.get("type") or "function"
        inner, key = call.get(kind), "input" if kind == "custom" else "arguments"
        if not isinstance(call.get("id"), str):
            yield missing(f"{at}.id")
        if not isinstance(inner, dict):
            yield missing(f"{at}.{kind}")
        elif not isinstance(inner.get("name"), str) or not inner["name"]:
            yield missing(f"{at}.{kind}.name")
        elif not isinstance(inner.get(key), str):
            yield wrong_type(f"{at}.{kind}.{key}", "a string", inner.get(key))
        elif kind == "function" and profile in _PARSING and not _is_object(inner["arguments"]):
            text = f"Invalid function call arguments: {inner['name']}: expected a JSON object"
            yield Violation("arguments-json", text, f"{at}.function.arguments")


def _is_object(text: str) -> bool:
    try:
        return text == "" or isinstance(json.loads(text), dict)
    except ValueError:
        return False


# --- calls and results ---


def _pairs(messages: list[Any]) -> Iterator[Violation]:
    """Each call is answered in the run of tool messages right after it, and nothing else is answered there."""
    open_ids: list[str] = []
    done: set[str] = set()
    asked_at = -1
    for i, m in enumerate(messages):
        if m.get("role") == "tool":
            ident = m.get("tool_call_id")
            if ident in open_ids:
                open_ids.remove(ident)
                done.add(ident)
            elif ident in done:
                text = f"Duplicate value for 'tool_call_id' of '{ident}' in message[{i}]."
                yield Violation("tool-duplicate", text, f"messages.[{i}].tool_call_id")
            elif asked_at >= 0:
                text = f"Invalid parameter: 'tool_call_id' of '{ident}' not found in 'tool_calls' of previous message."
                yield Violation("tool-unknown-id", text, f"messages.[{i}].tool_call_id")
            else:
                text = (
                    "Invalid parameter: messages with role 'tool' must be a response to a "
                    "preceeding message with 'tool_calls'."
                )
                yield Violation("tool-orphan", text, f"messages.[{i}].role")
            continue
        if open_ids:
            yield _unanswered(open_ids, i)
        open_ids, done = list(call_ids(m)), set()
        asked_at = i if open_ids else -1
    if open_ids:
        yield _unanswered(open_ids, len(messages))


def _unanswered(ids: list[str], index: int) -> Violation:
    text = (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(map(str, ids))}"
    )
    return Violation("tool-unanswered", text, f"messages.[{index}].role")


def _legacy_pairs(messages: list[Any]) -> Iterator[Violation]:
    """function_call and its function message are neighbours of one name; an open call may only be the last message."""
    for i, m in enumerate(messages):
        before = messages[i - 1].get("function_call") if i else None
        if m.get("role") == "function":
            if not isinstance(before, dict) or before.get("name") != m.get("name"):
                text = (
                    "Invalid parameter: messages with role 'function' must be a response to a "
                    "preceding 'function_call' of that name."
                )
                yield Violation("function-orphan", text, f"messages.[{i}].role")
        elif before:
            text = "An assistant message with 'function_call' must be followed by a function message responding to it."
            yield Violation("function-unanswered", text, f"messages.[{i}].role")
