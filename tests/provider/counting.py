"""What the fake provider counts: its own plain sum, independent of the code under test.

tokens(request) = o200k(system text) + sum over messages of (4 + o200k of each text and each tool call's arguments)
                  + o200k(the tools as compact JSON) + MEDIA for each image, audio, file or document.

Texts are: message text and refusals, tool results, thinking and reasoning summaries. Arguments that are an object
(Messages `input`) count as compact JSON. A part or item of an unknown kind counts as its compact JSON. Signatures,
encrypted content, ids, names and roles count nothing. Each text is counted alone, never joined with its neighbour.
A stored response that `previous_response_id` names is added by the server, which knows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import toktok

__all__ = ["MEDIA", "PER_MESSAGE", "compact_json", "count_request", "count_texts", "o200k", "request_texts"]

PER_MESSAGE = 4  # tokens of the role and its separators, per message or input item
MEDIA = 1000  # tokens of one media part, a flat figure

_MEDIA_TYPES = frozenset(
    [
        "image",
        "image_url",
        "input_image",
        "input_audio",
        "audio",
        "input_file",
        "file",
        "document",
        "computer_screenshot",
        "container_upload",
    ]
)
_OPAQUE = ("signature", "encrypted_content", "data")


def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def count_texts(texts: list[str]) -> int:
    """o200k tokens of the texts, each alone. Lone surrogates count as the question mark that would be sent."""
    clean = [t.encode("utf-8", "replace").decode() for t in texts]
    return sum(toktok.batch_count(clean, "o200k_base", 1)) if clean else 0


def o200k(text: str) -> int:
    return count_texts([text])


def count_request(body: dict[str, Any], wire: str, *, count: Callable[[list[str]], int] = count_texts) -> int:
    """Prompt tokens of a chat, responses or messages request body."""
    texts, messages, media = request_texts(body, wire)
    return count(texts) + PER_MESSAGE * messages + MEDIA * media


def request_texts(body: dict[str, Any], wire: str) -> tuple[list[str], int, int]:
    """(texts, number of messages, number of media parts) of a request."""
    texts: list[str] = []
    media = 0
    for key in ("system", "instructions"):
        for text in _content(body.get(key)):
            texts.append(text or "")
    if body.get("tools"):
        texts.append(compact_json(body["tools"]))
    entries = body.get("input" if wire == "responses" else "messages") or []
    if isinstance(entries, str):
        entries = [{"role": "user", "content": entries}]
    for entry in entries:
        for text in _entry(entry) if isinstance(entry, dict) else [compact_json(entry)]:
            if text is None:
                media += 1
            else:
                texts.append(text)
    return texts, len(entries), media


def _entry(entry: dict[str, Any]) -> Iterator[str | None]:
    """The texts of one message or item; None stands for a media part."""
    kind = entry.get("type")
    if kind not in (None, "message"):
        yield from _item(entry)
        return
    yield from _content(entry.get("content"))
    for key in ("reasoning_content", "refusal"):
        if isinstance(entry.get(key), str):
            yield entry[key]
    for call in entry.get("tool_calls") or []:
        yield _call(call)
    if entry.get("function_call"):
        yield str(entry["function_call"].get("arguments") or "")


def _call(call: Any) -> str:
    if not isinstance(call, dict):
        return compact_json(call)
    inner = call.get("function") or call.get("custom") or {}
    value = inner.get("arguments", inner.get("input", "")) if isinstance(inner, dict) else ""
    return value if isinstance(value, str) else compact_json(value)


def _item(item: dict[str, Any]) -> Iterator[str | None]:
    """A Responses item that is no message."""
    kind = str(item.get("type"))
    if kind == "reasoning":
        for part in [*(item.get("summary") or []), *(item.get("content") or [])]:
            yield str(part.get("text") or "") if isinstance(part, dict) else ""
    elif kind.endswith("_output") and "output" in item:
        yield from _content(item["output"])
    elif kind == "function_call":
        yield str(item.get("arguments") or "")
    elif kind == "custom_tool_call":
        yield str(item.get("input") or "")
    elif kind not in ("item_reference", "compaction", "compaction_trigger"):
        yield compact_json(item)


def _content(content: Any) -> Iterator[str | None]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        yield from _part(content)
    for part in content if isinstance(content, list) else []:
        yield from _part(part)


def _part(part: Any) -> Iterator[str | None]:
    if not isinstance(part, dict):
        yield str(part)
        return
    kind = part.get("type")
    if kind in _MEDIA_TYPES:
        yield None
    elif kind == "tool_result":
        yield from _content(part.get("content"))
    elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        yield compact_json(part.get("input"))
    elif kind == "thinking":
        yield str(part.get("thinking") or "")
    elif isinstance(part.get("text"), str):
        yield part["text"]
    elif isinstance(part.get("refusal"), str):
        yield part["refusal"]
    elif kind != "redacted_thinking":
        yield compact_json({k: v for k, v in part.items() if k not in _OPAQUE})
