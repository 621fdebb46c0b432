"""OpenAI Chat Completions and what speaks it (vLLM, llama.cpp, Mistral, DeepSeek, OpenRouter, ...)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ctxproxy import rawjson as raw
from ctxproxy.conversation import Role
from ctxproxy.errors import WireFormatError
from ctxproxy.rawjson import Path
from ctxproxy.tokens.media import audio_tokens, data_url_tokens, document_tokens
from ctxproxy.wire.base import Entry, Piece, Request, Scale
from ctxproxy.wire.pieces import as_json, as_list, as_object, integer, listed, other, string

__all__ = ["OpenAIChat"]

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
# Members whose tokens are named by their own pieces, or that cost nothing.
_KNOWN = frozenset(
    {"role", "content", "tool_calls", "function_call", "tool_call_id", "name", "refusal", "reasoning_content", "audio"}
    | {
        "cache_control",
        "reasoning",
        "reasoning_details",
        "thinking_blocks",
        "prefix",
        "annotations",
        "id",
        "type",
        "function",
        "extra_content",
    }
)


class OpenAIChat:
    """POST .../chat/completions."""

    api = "chat"
    array = "messages"
    adjacent = True
    fixed_keys = ("tools", "functions")

    def entry(self, value: Any, scale: Scale) -> Entry:
        if not isinstance(value, dict):
            raise WireFormatError("a message is not an object")
        message = cast("dict[str, Any]", value)
        role = _ROLES.get(str(message.get("role")), "other")
        pieces = _thinking(message)
        call_id = string(message.get("tool_call_id"))
        if role == "tool" and call_id is None:
            call_id = f"function:{message.get('name')}"
        pieces.extend(_content(message.get("content"), ("content",), scale, call_id if role == "tool" else None))
        if role == "tool" and not any(p.kind == "tool_result" for p in pieces):
            pieces.append(Piece("tool_result", ("content",), "", id=call_id))
        if isinstance(message.get("refusal"), str):
            pieces.append(Piece("text", ("refusal",), message["refusal"]))
        for i, call in enumerate(cast("list[Any]", message.get("tool_calls") or [])):
            pieces.append(_call(call, i))
        legacy = message.get("function_call")
        if isinstance(legacy, dict):
            name = string(cast("dict[str, Any]", legacy).get("name"))
            text = string(cast("dict[str, Any]", legacy).get("arguments")) or ""
            pieces.append(Piece("tool_call", ("function_call", "arguments"), text, id=f"function:{name}", name=name))
        audio = message.get("audio")
        if isinstance(audio, dict):
            pieces.append(Piece("other", ("audio",), "", tokens=audio_tokens(family=scale.family)))
        extra = {k: v for k, v in message.items() if k not in _KNOWN}
        if extra:
            pieces.append(Piece("other", (), as_json(extra)))
        return Entry(role=role, pieces=tuple(pieces), opaque=role == "other" or isinstance(audio, dict))

    def request(self, fields: Mapping[str, bytes]) -> Request:
        key = next((k for k in ("max_completion_tokens", "max_tokens") if k in fields), None)
        tools = listed(fields.get("tools")) or listed(fields.get("functions"))
        samples = raw.load(fields["n"]) if "n" in fields else 1
        hands_off = None
        if isinstance(samples, int) and samples > 1:
            hands_off = "n > 1"
        elif raw.load(fields.get("logprobs", b"null")) is True:
            hands_off = "logprobs"
        return Request(
            tools=tools,
            other=tuple(
                raw.dump(raw.load(fields[k])).decode("utf-8", "replace") for k in ("response_format",) if k in fields
            ),
            max_tokens=integer(fields.get(key)) if key else None,
            max_tokens_key=key,
            samples=samples if isinstance(samples, int) else 1,
            stream=raw.load(fields.get("stream", b"false")) is True,
            hands_off=hands_off,
        )

    def message(self, text: str, role: Role = "user") -> bytes:
        return raw.dump({"role": role, "content": text})

    def block(self, text: str, role: Role = "user") -> bytes:
        return raw.dump({"type": "text", "text": text})


def _content(content: Any, path: Path, scale: Scale, call_id: str | None) -> list[Piece]:
    kind = "tool_result" if call_id is not None else "text"
    if isinstance(content, str):
        return [Piece(kind, path, content, id=call_id)]
    found: list[Piece] = []
    for i, block in enumerate(as_list(content)):
        at, part = (*path, i), as_object(block)
        again = call_id is not None and any(p.kind == "tool_result" for p in found)
        name = str(part.get("type"))
        if isinstance(block, str):
            found.append(Piece(kind, at, block, id=call_id, continues=again))
        elif name in ("text", "refusal") and isinstance(part.get(name), str):
            found.append(Piece(kind, (*at, name), part[name], id=call_id, continues=again))
        elif name == "image_url":
            image = part.get("image_url")
            url, detail = as_object(image).get("url", image), str(as_object(image).get("detail") or "auto")
            tokens = data_url_tokens(str(url), family=scale.family, model=scale.model, detail=detail)
            found.append(Piece("media", at, tokens=tokens, id=call_id))
        elif name == "input_audio":
            found.append(Piece("media", at, tokens=audio_tokens(family=scale.family), id=call_id))
        elif name == "file":
            data = string(as_object(part.get("file")).get("file_data"))
            size = len(data) * 3 // 4 if data else None
            tokens = document_tokens(family=scale.family, model=scale.model, n_bytes=size)
            found.append(Piece("media", at, tokens=tokens, id=call_id))
        else:
            found.append(other(block, at, scale, id=call_id))
    return found


def _thinking(message: dict[str, Any]) -> list[Piece]:
    """Reasoning, under each name that a provider has for it; they say the same, so that the first one is counted."""
    found: list[Piece] = []
    for key in ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"):
        value = message.get(key)
        if isinstance(value, str) or value:
            text = value if isinstance(value, str) else as_json(value)
            found.append(Piece("thinking", (key,), "" if found else text))
    return found


def _call(call: Any, i: int) -> Piece:
    value = as_object(call)
    at, id = ("tool_calls", i), string(value.get("id"))
    for key, text_key in (("function", "arguments"), ("custom", "input")):
        if isinstance(value.get(key), dict):
            inner = as_object(value[key])
            text, name = inner.get(text_key), string(inner.get("name"))
            if isinstance(text, str):
                return Piece("tool_call", (*at, key, text_key), text, id=id, name=name, free=key == "custom")
            return Piece("tool_call", (*at, key), as_json(inner), id=id, name=name)
    return Piece("tool_call", at, as_json(call), id=id)
