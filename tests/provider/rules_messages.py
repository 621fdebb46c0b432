"""Rules of Anthropic Messages: roles, pairs in neighbouring messages, text, thinking; caching is in rules_cache.py.

Sources: the API's own error texts as its users report them, and its documentation of tool use, extended thinking,
mid-conversation system messages and prefill. Signatures are checked by the server (memory.py), which made them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from .rules_cache import check_cache
from .violation import Violation

__all__ = ["check", "model_version"]

_THINKING = ("thinking", "redacted_thinking")
_TOOL_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
_SEE = "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
_NEED = "Each `tool_use` block must have a corresponding `tool_result` block in the next message."


def model_version(model: str) -> tuple[int, int] | None:
    """(major, minor) of a Claude model's name, in any of its spellings; None for other models."""
    match = re.search(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[.-](\d{1,2}))?(?!\d)", model)
    return (int(match[1]), int(match[2] or 0)) if match else None


def check(body: Mapping[str, Any], profile: str, version: str) -> Iterator[Violation]:
    yield from _parameters(body, version)
    messages = body.get("messages")
    if not isinstance(messages, list):
        yield Violation(
            "messages", f"messages: {'Field required' if messages is None else 'Input should be a valid list'}"
        )
        return
    if not messages:
        yield Violation("messages", "messages: at least one message is required")
        return
    for i, m in enumerate(messages):
        if not isinstance(m, dict) or m.get("role") not in ("user", "assistant", "system"):
            role = m.get("role") if isinstance(m, dict) else m
            text = f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant".'
            yield Violation("role", text, f"messages.{i}.role")
            return
    yield from _order(messages, str(body.get("model")), delta=bool(body.get("thread")))
    for i, m in enumerate(messages):
        yield from _message(m, i, last=i == len(messages) - 1, version=version)
    yield from _pairs(messages, delta=bool(body.get("thread")))
    yield from _server_tools(messages)
    yield from _system_text(body.get("system"))
    yield from check_cache(body)
    if profile == "anthropic-old":
        yield from _thinking_first(body, messages)
    if profile == "bedrock":
        yield from _bedrock(body, messages)


def _blocks(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _type(block: Any) -> str:
    return str(block.get("type")) if isinstance(block, dict) else ""


def _parameters(body: Mapping[str, Any], version: str) -> Iterator[Violation]:
    if not body.get("model"):
        yield Violation("model", "model: Field required")
    most = body.get("max_tokens")
    if most is None:
        yield Violation("max-tokens", "max_tokens: Field required")
    elif not isinstance(most, int) or most < 1:
        yield Violation("max-tokens", "max_tokens: Input should be greater than or equal to 1")
    thinking = body.get("thinking") or {}
    budget = thinking.get("budget_tokens")
    if thinking.get("type") == "enabled" and isinstance(budget, int):
        if budget < 1024:
            yield Violation(
                "thinking-budget", "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
            )
        if isinstance(most, int) and most <= budget:
            yield Violation("thinking-budget", "`max_tokens` must be greater than `thinking.budget_tokens`.")
    if body.get("tool_choice") is not None and not body.get("tools"):
        yield Violation("tool-choice", "tool_choice may only be specified while providing tools")
    if version >= "2026-10-21":  # the version dropped sampling parameters, at their defaults too
        for key in ("temperature", "top_p", "top_k"):
            if key in body:
                yield Violation("sampling", f"{key}: Extra inputs are not permitted", key)


# --- order of messages ---


def _order(messages: list[Any], model: str, *, delta: bool) -> Iterator[Violation]:
    first, last = messages[0], messages[-1]
    compacted = any(_type(b) == "compaction" for b in _blocks(first)[:1])
    if first["role"] != "user" and not compacted and not delta:
        yield Violation("first-role", 'messages: first message must use the "user" role')
    claude = model_version(model)
    for i, m in enumerate(messages):
        if m["role"] != "system" or i == 0:
            continue
        if claude and claude < (4, 8):
            yield Violation("system-role", f"messages.{i}: role 'system' is not supported on this model")
        before = next((x for x in reversed(messages[:i]) if x["role"] != "system"), messages[0])
        after = next((x for x in messages[i + 1 :] if x["role"] != "system"), None)
        hosted = _type(_blocks(before)[-1]).endswith("_tool_result") if _blocks(before) else False
        if before["role"] != "user" and not (before["role"] == "assistant" and hosted):
            yield Violation("system-place", f"messages.{i}: a 'system' message must follow a 'user' message")
        if after is not None and after["role"] != "assistant":
            text = f"messages.{i}: a 'system' message must be the last message or be followed by an 'assistant' message"
            yield Violation("system-place", text)
        if any(_type(b) not in ("text", "tool_addition", "tool_removal") for b in _blocks(m)):
            yield Violation("system-text", f"messages.{i}: a 'system' message may only contain text")
    if last["role"] == "assistant":
        yield from _prefill(last, len(messages) - 1, claude)


def _prefill(message: Mapping[str, Any], i: int, claude: tuple[int, int] | None) -> Iterator[Violation]:
    blocks = _blocks(message)
    if blocks and (_type(blocks[-1]).endswith("_tool_result") or _type(blocks[-1]) == "server_tool_use"):
        return  # a paused turn, sent back to be continued
    if claude and claude >= (4, 6):
        text = "This model does not support assistant message prefill. The conversation must end with a user message."
        yield Violation("prefill", text)
    content = message.get("content")
    text = (
        content
        if isinstance(content, str)
        else blocks[-1].get("text")
        if blocks and _type(blocks[-1]) == "text"
        else ""
    )
    if isinstance(text, str) and text != text.rstrip():
        yield Violation(
            "prefill-space", "messages: final assistant content cannot end with trailing whitespace", f"messages.{i}"
        )


# --- one message ---


def _message(m: Mapping[str, Any], i: int, *, last: bool, version: str) -> Iterator[Violation]:
    role, content, where = m["role"], m.get("content"), f"messages.{i}"
    if content is None or not isinstance(content, (str, list)):
        problem = "Field required" if content is None else "Input should be a valid string or list"
        yield Violation("content", f"{where}.content: {problem}")
        return
    if not content:
        if not (last and role == "assistant") and not (role == "system" and "output_config" in m):
            text = "all messages must have non-empty content except for the optional final assistant message"
            yield Violation("empty-content", f"{where}: {text}")
        return
    if isinstance(content, str):
        if not content.strip():
            yield Violation("blank-text", "messages: text content blocks must contain non-whitespace text", where)
        return
    for j, block in enumerate(content):
        yield from _block(block, role, f"{where}.content.{j}", version)
    if role == "assistant" and _type(content[-1]) in _THINKING:
        text = f"{where}: The final block in an assistant message cannot be `thinking`."
        yield Violation("thinking-last", text)


def _block(block: Any, role: str, at: str, version: str) -> Iterator[Violation]:
    kind = _type(block)
    if kind == "text":
        yield from _text(block, at)
        if block.get("citations") and role == "user" and version >= "2026-10-21":
            yield Violation("citations", f"{at}.text.citations: Extra inputs are not permitted")
    elif kind == "tool_use":
        if role != "assistant":
            yield Violation("block-role", f"{at}: `tool_use` blocks can only be in `assistant` messages")
        if not isinstance(block.get("id"), str) or not _TOOL_ID.match(block["id"]):
            yield Violation("tool-id-pattern", f"{at}.tool_use.id: String should match pattern '{_TOOL_ID.pattern}'")
        if not isinstance(block.get("input"), dict):
            yield Violation("tool-input", f"{at}.tool_use.input: Input should be a valid dictionary")
        if not block.get("name"):
            yield Violation("tool-name", f"{at}.tool_use.name: Field required")
    elif kind == "tool_result":
        if role != "user":
            yield Violation("block-role", f"{at}: `tool_result` blocks can only be in `user` messages")
        yield from _result(block, at)
    elif kind in _THINKING:
        if role != "assistant":
            yield Violation("block-role", f"{at}: `{kind}` blocks can only be in `assistant` messages")
        needs = ("thinking", "signature") if kind == "thinking" else ("data",)
        for key in needs:
            if not isinstance(block.get(key), str):
                yield Violation("thinking-field", f"{at}.{kind}.{key}: Field required")
        if block.get("signature") == "":
            yield Violation("thinking-signature", f"{at}: Invalid `signature` in `thinking` block")
    elif kind == "document" and role == "assistant" and version >= "2026-10-21":
        yield Violation("block-role", f"{at}: `document` blocks can only be in `user` messages")
    elif not kind:
        yield Violation("block", f"{at}: Input should be a valid dictionary with a `type`")


def _text(block: Mapping[str, Any], at: str) -> Iterator[Violation]:
    text = block.get("text")
    if not isinstance(text, str):
        yield Violation("text", f"{at}.text.text: Field required")
    elif not text:
        yield Violation("empty-text", "messages: text content blocks must be non-empty", at)
    elif not text.strip():
        yield Violation("blank-text", "messages: text content blocks must contain non-whitespace text", at)


def _result(block: Mapping[str, Any], at: str) -> Iterator[Violation]:
    content, failed = block.get("content"), bool(block.get("is_error"))
    if failed and not content:
        yield Violation("error-empty", f"{at}.tool_result: content cannot be empty if `is_error` is true")
    if content is not None and not isinstance(content, (str, list)):
        yield Violation("content", f"{at}.tool_result.content: Input should be a valid string or list")
    for k, part in enumerate(content if isinstance(content, list) else []):
        if _type(part) == "text":
            yield from _text(part, f"{at}.tool_result.content.{k}")
        elif failed:
            yield Violation("error-text", f'{at}.tool_result: all content must be type "text" if `is_error` is true')


def _system_text(system: Any) -> Iterator[Violation]:
    for j, block in enumerate(system if isinstance(system, list) else []):
        if _type(block) == "text" and not str(block.get("text") or "").strip():
            yield Violation("empty-text", "system: text content blocks must be non-empty", f"system.{j}")


# --- pairs ---


def _pairs(messages: list[Any], *, delta: bool) -> Iterator[Violation]:
    """tool_use ids are answered in the next message, results before anything else, each once."""
    uses: list[str] = []
    for i, m in enumerate(messages):
        results = [str(b.get("tool_use_id")) for b in _blocks(m) if _type(b) == "tool_result"]
        kinds = [_type(b) for b in _blocks(m)]
        leading = next((k for k, kind in enumerate(kinds) if kind != "tool_result"), len(kinds))
        in_front = results[:leading]
        unanswered = [u for u in uses if u not in in_front]
        if unanswered:
            yield _unanswered(i - 1, unanswered)
        for j, block in enumerate(_blocks(m)):
            ident = str(block.get("tool_use_id")) if _type(block) == "tool_result" else None
            if ident is not None and ident not in uses and not (delta and i == 0):
                text = (
                    f"messages.{i}.content.{j}: unexpected `tool_use_id` found in `tool_result` blocks: {ident}. {_SEE}"
                )
                yield Violation("result-orphan", text)
        for ident in {r for r in results if results.count(r) > 1}:
            text = "each tool_use must have a single result. Found multiple `tool_result` blocks with id"
            yield Violation("result-duplicate", f"messages.{i}: {text}: {ident}")
        uses = [str(b.get("id")) for b in _blocks(m) if _type(b) == "tool_use"] if m["role"] == "assistant" else []
        if len(set(uses)) < len(uses):
            yield Violation("tool-id-duplicate", f"messages.{i}: `tool_use` ids must be unique")
    if uses:
        yield _unanswered(len(messages) - 1, uses)


def _unanswered(i: int, ids: list[str]) -> Violation:
    text = "`tool_use` ids were found without `tool_result` blocks immediately after"
    return Violation("tool-unanswered", f"messages.{i}: {text}: {', '.join(ids)}. {_NEED}")


def _server_tools(messages: list[Any]) -> Iterator[Violation]:
    """A server tool's use and result stay together; within a turn the result may come after client tools ran."""
    open_uses: dict[str, str] = {}
    for i, m in enumerate(messages):
        if m["role"] == "user" and any(_type(b) != "tool_result" for b in _blocks(m) or [None]):
            for ident, name in open_uses.items():
                text = (
                    f"`{name}` tool use with id `{ident}` was found without a corresponding `{name}_tool_result` block"
                )
                yield Violation("server-tool-unanswered", f"messages.{i - 1}: {text}")
            open_uses = {}
        for j, block in enumerate(_blocks(m) if m["role"] == "assistant" else []):
            kind = _type(block)
            if kind in ("server_tool_use", "mcp_tool_use"):
                open_uses[str(block.get("id"))] = "mcp" if kind == "mcp_tool_use" else str(block.get("name"))
            elif kind.endswith("_tool_result") and open_uses.pop(str(block.get("tool_use_id")), None) is None:
                owner = "mcp_tool_use" if kind == "mcp_tool_result" else "server_tool_use"
                text = f"Each `{kind}` block must have a corresponding `{owner}` block before it."
                found = f"unexpected `tool_use_id` found in `{kind}` blocks: {block.get('tool_use_id')}"
                yield Violation("server-tool-orphan", f"messages.{i}.content.{j}: {found}. {text}")


# --- profiles ---


def _thinking_first(body: Mapping[str, Any], messages: list[Any]) -> Iterator[Violation]:
    """Older servers: with thinking on, the assistant message of an open tool turn starts with thinking."""
    if (body.get("thinking") or {}).get("type") not in ("enabled", "adaptive"):
        return
    i = max((n for n, m in enumerate(messages) if m["role"] == "assistant"), default=-1)
    blocks = _blocks(messages[i]) if i >= 0 else []
    if any(_type(b) == "tool_use" for b in blocks) and _type(blocks[0]) not in _THINKING:
        text = f"Expected `thinking` or `redacted_thinking`, but found `{_type(blocks[0])}`."
        yield Violation("thinking-first", f"messages.{i}.content.0.type: {text}")


def _bedrock(body: Mapping[str, Any], messages: list[Any]) -> Iterator[Violation]:
    plain = [(i, m) for i, m in enumerate(messages) if m["role"] != "system"]
    for (_, before), (i, m) in pairwise(plain):
        if before["role"] == m["role"]:
            text = (
                f'roles must alternate between "user" and "assistant", but found multiple "{m["role"]}" roles in a row'
            )
            yield Violation("alternation", f"messages: {text}", f"messages.{i}")
    if not body.get("tools") and any(_type(b) in ("tool_use", "tool_result") for m in messages for b in _blocks(m)):
        text = "The toolConfig field must be defined when using toolUse and toolResult content blocks."
        yield Violation("tools-needed", text)
