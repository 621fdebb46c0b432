"""OpenAI Chat Completions and what speaks it (vLLM, llama.cpp, Mistral, DeepSeek, OpenRouter, ...)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from ctxproxy import rawjson as raw
from ctxproxy.conversation import Role
from ctxproxy.errors import WireFormatError
from ctxproxy.tokens.media import audio_tokens, data_url_tokens, document_tokens
from ctxproxy.wire.base import Entry, Piece, Request, Scale

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
        pieces: list[Piece] = []
        for key in ("reasoning_content", "reasoning"):
            if isinstance(message.get(key), str):
                pieces.append(Piece("thinking", (key,), message[key]))
                break
        if message.get("reasoning_details") and not pieces:
            pieces.append(Piece("thinking", ("reasoning_details",), _json(message["reasoning_details"])))
        call_id = _string(message.get("tool_call_id"))
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
            name = _string(cast("dict[str, Any]", legacy).get("name"))
            text = _string(cast("dict[str, Any]", legacy).get("arguments")) or ""
            pieces.append(Piece("tool_call", ("function_call", "arguments"), text, id=f"function:{name}", name=name))
        audio = message.get("audio")
        if isinstance(audio, dict):
            pieces.append(Piece("other", ("audio",), "", tokens=audio_tokens(family=scale.family)))
        extra = {k: v for k, v in message.items() if k not in _KNOWN}
        if extra:
            pieces.append(Piece("other", (), _json(extra)))
        return Entry(role=role, pieces=tuple(pieces), opaque=role == "other" or isinstance(audio, dict))

    def request(self, fields: Mapping[str, bytes]) -> Request:
        key = next((k for k in ("max_completion_tokens", "max_tokens") if k in fields), None)
        tools = _list(fields.get("tools")) or _list(fields.get("functions"))
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
            max_tokens=_integer(fields.get(key)) if key else None,
            max_tokens_key=key,
            samples=samples if isinstance(samples, int) else 1,
            stream=raw.load(fields.get("stream", b"false")) is True,
            hands_off=hands_off,
        )

    def message(self, text: str, role: Role = "user") -> bytes:
        return raw.dump({"role": role, "content": text})

    def block(self, text: str, role: Role = "user") -> bytes:
        return raw.dump({"type": "text", "text": text})


def _content(content: Any, path: tuple[str | int, ...], scale: Scale, call_id: str | None) -> list[Piece]:
    kind = "tool_result" if call_id is not None else "text"
    if isinstance(content, str):
        return [Piece(kind, path, content, id=call_id)]
    found: list[Piece] = []
    for i, block in enumerate(cast("list[Any]", content) if isinstance(content, list) else []):
        at = (*path, i)
        if isinstance(block, str):
            found.append(Piece(kind, at, block, id=call_id))
            continue
        part = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
        name = part.get("type")
        if name in ("text", "refusal") and isinstance(part.get(str(name)), str):
            found.append(Piece(kind, (*at, str(name)), part[str(name)], id=call_id))
        elif name == "image_url":
            image = part.get("image_url")
            url = cast("dict[str, Any]", image).get("url") if isinstance(image, dict) else image
            detail = cast("dict[str, Any]", image).get("detail") if isinstance(image, dict) else None
            tokens = data_url_tokens(str(url), family=scale.family, model=scale.model, detail=str(detail or "auto"))
            found.append(Piece("media", at, tokens=tokens, id=call_id))
        elif name == "input_audio":
            found.append(Piece("media", at, tokens=audio_tokens(family=scale.family), id=call_id))
        elif name == "file":
            found.append(Piece("media", at, tokens=document_tokens(family=scale.family), id=call_id))
        else:
            found.append(Piece("other", at, _json(block), id=call_id))
    return found


def _call(call: Any, i: int) -> Piece:
    value = cast("dict[str, Any]", call) if isinstance(call, dict) else {}
    for key, text_key in (("function", "arguments"), ("custom", "input")):
        body = value.get(key)
        if isinstance(body, dict):
            inner = cast("dict[str, Any]", body)
            text = inner.get(text_key)
            path = ("tool_calls", i, key, text_key) if text_key in inner else ("tool_calls", i, key)
            return Piece(
                "tool_call",
                path,
                text if isinstance(text, str) else _json(text),
                id=_string(value.get("id")),
                name=_string(inner.get("name")),
            )
    return Piece("tool_call", ("tool_calls", i), _json(call), id=_string(value.get("id")))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _integer(data: bytes | None) -> int | None:
    value = raw.load(data) if data else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _list(data: bytes | None) -> list[Any]:
    value = raw.load(data) if data else None
    return cast("list[Any]", value) if isinstance(value, list) else []
