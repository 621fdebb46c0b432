"""Anthropic Messages and what speaks it (Bedrock, Vertex, and gateways of other providers)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxproxy import rawjson as raw
from ctxproxy.conversation import Role
from ctxproxy.errors import WireFormatError
from ctxproxy.rawjson import Path
from ctxproxy.tokens.media import data_url_tokens, document_tokens
from ctxproxy.wire.base import Entry, Piece, Request, Scale
from ctxproxy.wire.pieces import (
    as_json,
    as_list,
    as_object,
    integer,
    listed,
    other,
    sealed_tokens,
    source_tokens,
    string,
)

__all__ = ["AnthropicMessages"]

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_KNOWN = frozenset({"role", "content", "cache_control"})
# Any other block makes its message opaque: server tools, MCP, containers, compaction, fallback, what nobody knows.
_IN_RESULT = frozenset({"text", "image", "document", "search_result"})
_BLOCKS = _IN_RESULT | {"tool_use", "tool_result", "thinking", "redacted_thinking"}
# Edits by which the server itself makes room. Thinking is cleared without regard to the prompt's size.
_CLEARS = ("clear_tool_uses", "compact")


class AnthropicMessages:
    """POST .../messages.

    Blocks of server tools, MCP, containers, compaction and fallback, and kinds that nobody here knows, make
    their message opaque. Cache markers stay on the blocks that stay; no marker is added or moved, so that their
    number never grows and the order of their lifetimes is kept. A marker goes only with its message or picture.
    """

    api = "messages"
    array = "messages"
    adjacent = True
    fixed_keys = ("system", "tools")

    def entry(self, value: Any, scale: Scale) -> Entry:
        if not isinstance(value, dict):
            raise WireFormatError("a message is not an object")
        message = as_object(value)
        role = _ROLES.get(str(message.get("role")), "other")
        content = message.get("content")
        pieces: list[Piece] = []
        if isinstance(content, str):
            pieces.append(Piece("text", ("content",), content))
        for i, block in enumerate(as_list(content)):
            pieces.extend(_block(block, ("content", i), scale))
        extra = {k: v for k, v in message.items() if k not in _KNOWN and v is not None}
        if extra:
            pieces.append(other(extra, (), scale))
        # A system message in the middle follows a user message and precedes an assistant one.
        binds = role == "system"
        return Entry(
            role=role,
            pieces=tuple(pieces),
            opaque=role == "other" or (role != "system" and _sealed(content)),
            binds_next=binds,
            binds_previous=binds,
        )

    def request(self, fields: Mapping[str, bytes]) -> Request:
        system = raw.load(fields["system"]) if "system" in fields else None
        texts = (system,) if isinstance(system, str) else tuple(_system_text(b) for b in as_list(system))
        thinking = as_object(raw.load(fields["thinking"])) if "thinking" in fields else {}
        budget = thinking.get("budget_tokens")
        return Request(
            system=texts,
            tools=listed(fields.get("tools")),
            other=tuple(as_json(raw.load(fields[k])) for k in ("output_format", "output_config") if k in fields),
            max_tokens=integer(fields.get("max_tokens")),
            max_tokens_key="max_tokens" if "max_tokens" in fields else None,
            thinking_budget=budget if isinstance(budget, int) and thinking.get("type") == "enabled" else 0,
            stream=raw.load(fields.get("stream", b"false")) is True,
            stateful=bool(raw.load(fields.get("thread", b"null"))),
            hands_off=_hands_off(fields),
        )

    def message(self, text: str, role: Role = "user") -> bytes:
        return raw.dump({"role": role, "content": text})

    def block(self, text: str, role: Role = "user") -> bytes:
        return raw.dump({"type": "text", "text": text})


def _hands_off(fields: Mapping[str, bytes]) -> str | None:
    """Why a request is left alone: it must equal an earlier one, or the server makes room itself."""
    if raw.load(fields.get("fallback_credit_token", b"null")):
        return "fallback_credit_token: the body must equal the refused one"
    if raw.load(fields.get("compaction", b"null")):
        return "compaction: the server summarizes"
    management = as_object(raw.load(fields["context_management"])) if "context_management" in fields else {}
    for edit in as_list(management.get("edits")):
        kind = str(as_object(edit).get("type"))
        if kind.startswith(_CLEARS):
            return f"context_management: {kind}"
    return None


def _sealed(content: Any) -> bool:
    """Whether a content list holds a block that may not be touched, in itself or in a tool result."""
    for value in as_list(content):
        block = as_object(value)
        if block.get("type") not in _BLOCKS:
            return True
        inner = as_list(block.get("content")) if block.get("type") == "tool_result" else []
        if any(as_object(part).get("type") not in _IN_RESULT for part in inner):
            return True
    return False


def _system_text(block: Any) -> str:
    text = as_object(block).get("text")
    return text if isinstance(text, str) else as_json(block)


def _block(value: Any, at: Path, scale: Scale) -> list[Piece]:
    block = as_object(value)
    kind = str(block.get("type"))
    if kind == "text" and isinstance(block.get("text"), str):
        return [Piece("text", (*at, "text"), block["text"])]
    if kind == "tool_use":
        given = block.get("input")
        path = (*at, "input") if isinstance(given, (dict, str)) else at
        return [Piece("tool_call", path, as_json(given), id=string(block.get("id")), name=string(block.get("name")))]
    if kind == "tool_result":
        return _result(block, at, scale)
    if kind == "thinking":
        text = string(block.get("thinking")) or ""
        sealed = sealed_tokens(len(string(block.get("signature")) or ""))
        return [Piece("thinking", at, text, tokens=max(0, sealed - len(text) // 4))]
    if kind == "redacted_thinking":
        return [Piece("thinking", at, "", tokens=sealed_tokens(len(string(block.get("data")) or "")))]
    return _shared(block, at, scale, None) or [other(value, at, scale)]


def _shared(block: dict[str, Any], at: Path, scale: Scale, id: str | None) -> list[Piece]:
    """Blocks that stand in messages and in results alike; [] for other kinds."""
    kind = block.get("type")
    source = as_object(block.get("source"))
    if kind == "image":
        url = string(source.get("url")) or ""
        tokens = source_tokens({"media_type": "image/", **source}, scale) if source.get("data") else None
        if tokens is None:
            tokens = data_url_tokens(url, family=scale.family, model=scale.model)
        return [Piece("media", at, tokens=tokens, id=id)]
    if kind == "document":
        return [_document(block, source, at, scale, id)]
    if kind == "search_result":
        found: list[Piece] = []
        for j, part in enumerate(as_list(block.get("content"))):
            text = string(as_object(part).get("text"))
            if text is not None:
                path = (*at, "content", j, "text")
                found.append(Piece("text" if id is None else "tool_result", path, text, id=id, continues=True))
        head = f"{block.get('source')}\n{block.get('title')}"
        return [Piece("other", at, head, id=id), *found]
    return []


def _document(block: dict[str, Any], source: dict[str, Any], at: Path, scale: Scale, id: str | None) -> Piece:
    """A document may be replaced by a text as a whole; its own text, where it has one, is counted."""
    texts = [string(block.get(k)) or "" for k in ("title", "context")]
    tokens = 0
    if source.get("type") == "text":
        texts.append(string(source.get("data")) or "")
    elif source.get("type") == "content":
        piece = other(source.get("content"), at, scale)
        texts.append(piece.text)
        tokens = piece.tokens
    elif source.get("type") == "base64":
        tokens = source_tokens(source, scale)
    else:
        tokens = document_tokens(family=scale.family, model=scale.model)
    return Piece("media", at, "\n".join(t for t in texts if t), tokens=tokens, id=id)


def _result(block: dict[str, Any], at: Path, scale: Scale) -> list[Piece]:
    id, error = string(block.get("tool_use_id")), block.get("is_error") is True
    content = block.get("content")
    if isinstance(content, str):
        return [Piece("tool_result", (*at, "content"), content, id=id, error=error)]
    found: list[Piece] = []
    for j, value in enumerate(as_list(content)):
        part, path = as_object(value), (*at, "content", j)
        again = any(p.kind == "tool_result" for p in found)
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            found.append(Piece("tool_result", (*path, "text"), part["text"], id=id, error=error, continues=again))
        else:
            found.extend(_shared(part, path, scale, id or "") or [other(value, path, scale, id=id or "")])
    if not any(p.kind == "tool_result" and not p.continues for p in found):
        found.insert(0, Piece("tool_result", at, "", id=id, error=error))
    return found
