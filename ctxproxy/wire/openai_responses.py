"""OpenAI Responses and what speaks it (Azure, OpenRouter, DeepSeek, vLLM, ...)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxproxy import rawjson as raw
from ctxproxy.conversation import Role
from ctxproxy.errors import WireFormatError
from ctxproxy.rawjson import Path
from ctxproxy.tokens.media import audio_tokens, data_url_tokens, document_tokens, image_tokens
from ctxproxy.wire.base import Entry, Piece, Request, Scale
from ctxproxy.wire.pieces import as_json, as_list, as_object, integer, listed, other, sealed_tokens, string

__all__ = ["OpenAIResponses"]

_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user", "assistant": "assistant"}
# Calls that the client carries out: where their input stands, and whether that is free text.
_CALLS: dict[str, tuple[str, bool]] = {
    "function_call": ("arguments", False),
    "custom_tool_call": ("input", True),
    "local_shell_call": ("action", False),
    "shell_call": ("action", False),
    "computer_call": ("action", False),
    "apply_patch_call": ("operation", False),
}
_OUTPUTS = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "shell_call_output",
        "computer_call_output",
        "apply_patch_call_output",
    }
)
# Opaque items that pair with another one, so that both are seen as one exchange: the member that holds the id.
_PAIRED: dict[str, tuple[str, str]] = {
    "tool_search_call": ("tool_call", "call_id"),
    "tool_search_output": ("tool_result", "call_id"),
    "mcp_approval_request": ("tool_call", "id"),
    "mcp_approval_response": ("tool_result", "approval_request_id"),
}
# Opaque items that the model wrote: a reasoning item may lead to them.
_WRITTEN = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "tool_search_call",
        "program",
    }
)
# Members whose tokens are named by their own pieces, or that cost nothing.
_KNOWN = frozenset(
    {"type", "role", "content", "id", "status", "phase", "call_id", "name", "namespace", "arguments", "input", "output"}
    | {"action", "operation", "environment", "caller", "created_by", "prompt_cache_breakpoint", "cache_control"}
    | {"acknowledged_safety_checks", "pending_safety_checks", "max_output_length", "execution"}
)


class OpenAIResponses:
    """POST .../responses. Calls pair with outputs by `call_id`, anywhere in the input."""

    api = "responses"
    array = "input"
    adjacent = False
    fixed_keys = ("instructions", "tools")

    def entry(self, value: Any, scale: Scale) -> Entry:
        if isinstance(value, str):  # `input` may be one string
            return Entry(role="user", pieces=(Piece("text", (), value),))
        if not isinstance(value, dict):
            raise WireFormatError("an input item is not an object")
        item = as_object(value)
        kind = item.get("type") or ("message" if "role" in item else "item_reference")
        if kind == "message":
            return _message(item, scale)
        if kind == "reasoning":
            return Entry(role="assistant", pieces=(_reasoning(item),), binds_next=True)
        if kind in _CALLS:
            return Entry(role="assistant", pieces=(_call(item, *_CALLS[kind]), *_extra(item, scale)))
        if kind in _OUTPUTS:
            return Entry(role="tool", pieces=(*_output(item, scale), *_extra(item, scale)))
        return _opaque(str(kind), item, scale)

    def request(self, fields: Mapping[str, bytes]) -> Request:
        instructions = raw.load(fields["instructions"]) if "instructions" in fields else None
        system = (instructions,) if isinstance(instructions, str) else ()
        if instructions and not system:  # items, as a stored response shows them
            system = tuple(as_json(item) for item in as_list(instructions)) or (as_json(instructions),)
        text = as_object(raw.load(fields["text"])) if "text" in fields else {}
        return Request(
            system=system,
            tools=listed(fields.get("tools")),
            other=(as_json(text["format"]),) if text.get("format") else (),
            max_tokens=integer(fields.get("max_output_tokens")),
            max_tokens_key="max_output_tokens" if "max_output_tokens" in fields else None,
            stream=raw.load(fields.get("stream", b"false")) is True,
            stateful=any(raw.load(fields.get(k, b"null")) for k in ("previous_response_id", "conversation", "prompt")),
            elastic=raw.load(fields.get("truncation", b"null")) == "auto",
            hands_off=_hands_off(fields),
        )

    def message(self, text: str, role: Role = "user") -> bytes:
        kind = "output_text" if role == "assistant" else "input_text"
        return raw.dump({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})

    def block(self, text: str, role: Role = "user") -> bytes:
        return raw.dump({"type": "output_text" if role == "assistant" else "input_text", "text": text})


def _hands_off(fields: Mapping[str, bytes]) -> str | None:
    """Why a request is left alone: the server compacts it itself, or the caller studies the exact prompt."""
    for edit in listed(fields.get("context_management")):
        if as_object(edit).get("type") == "compaction":
            return "context_management: the server compacts"
    if "message.output_text.logprobs" in listed(fields.get("include")) or integer(fields.get("top_logprobs")):
        return "logprobs"
    return None


def _message(item: dict[str, Any], scale: Scale) -> Entry:
    role = _ROLES.get(str(item.get("role")), "other")
    pieces = [*_content(item.get("content"), ("content",), scale, None), *_extra(item, scale)]
    return Entry(role=role, pieces=tuple(pieces), opaque=role == "other")


def _content(content: Any, path: Path, scale: Scale, call_id: str | None) -> list[Piece]:
    """The pieces of a message's content or of a call's output, a string or parts."""
    kind = "text" if call_id is None else "tool_result"
    if isinstance(content, str):
        return [Piece(kind, path, content, id=call_id)]
    found: list[Piece] = []
    for i, value in enumerate(as_list(content)):
        at, part = (*path, i), as_object(value)
        name = str(part.get("type"))
        again = call_id is not None and any(p.kind == "tool_result" for p in found)
        if isinstance(value, str):
            found.append(Piece(kind, at, value, id=call_id, continues=again))
        elif isinstance(part.get("text"), str):
            found.append(Piece(kind, (*at, "text"), part["text"], id=call_id, continues=again))
        elif name == "refusal" and isinstance(part.get("refusal"), str):
            found.append(Piece(kind, (*at, "refusal"), part["refusal"], id=call_id, continues=again))
        elif name == "input_image":
            found.append(Piece("media", at, tokens=_image(part, scale), id=call_id))
        elif name == "input_file":
            tokens = document_tokens(family=scale.family, model=scale.model, n_bytes=_file_bytes(part))
            found.append(Piece("media", at, tokens=tokens, id=call_id))
        elif name == "input_audio":
            found.append(Piece("media", at, tokens=audio_tokens(family=scale.family), id=call_id))
        else:
            found.append(other(value, at, scale, id=call_id))
    return found


def _image(part: dict[str, Any], scale: Scale) -> int:
    detail = str(part.get("detail") or "auto")
    url = str(part.get("image_url") or "")
    return data_url_tokens(url, family=scale.family, model=scale.model, detail=detail)


def _file_bytes(part: dict[str, Any]) -> int | None:
    data = string(part.get("file_data"))
    return len(data) * 3 // 4 if data else None


def _reasoning(item: dict[str, Any]) -> Piece:
    """Reasoning costs what is sealed in it, or its text where that is longer or nothing is sealed."""
    blocks = [*as_list(item.get("content")), *as_list(item.get("summary"))]
    text = "\n".join(str(as_object(b).get("text") or "") for b in blocks)
    sealed = sealed_tokens(len(string(item.get("encrypted_content")) or ""))
    return Piece("thinking", (), text, tokens=max(0, sealed - len(text) // 4))


def _call(item: dict[str, Any], key: str, free: bool) -> Piece:
    value = item.get(key)
    text = value if isinstance(value, str) else as_json(value)
    path = (key,) if isinstance(value, (str, dict)) else ()
    call_id = string(item.get("call_id")) or string(item.get("id"))
    return Piece("tool_call", path, text, id=call_id, name=string(item.get("name")), free=free)


def _output(item: dict[str, Any], scale: Scale) -> list[Piece]:
    # Older shell outputs name their call by `id`.
    call_id = string(item.get("call_id")) or string(item.get("id")) or ""
    output = item.get("output")
    found: list[Piece] = []
    if isinstance(output, list) and item.get("type") == "shell_call_output":
        for i, value in enumerate(as_list(item.get("output"))):
            for key in ("stdout", "stderr"):
                text = string(as_object(value).get(key))
                if text is not None:
                    found.append(Piece("tool_result", ("output", i, key), text, id=call_id, continues=bool(found)))
    elif isinstance(output, dict):  # a screenshot: its shape is fixed, so a text can't stand in for it
        shot = as_object(item.get("output"))
        tokens = _image(shot, scale) if shot.get("image_url") else image_tokens(1280, 1024, family=scale.family)
        found.append(Piece("other", ("output",), "", id=call_id, tokens=tokens))
    else:
        found = _content(output, ("output",), scale, call_id)
    if not any(p.kind == "tool_result" for p in found):
        found.insert(0, Piece("tool_result", (), "", id=call_id))
    return found


def _extra(item: dict[str, Any], scale: Scale) -> list[Piece]:
    extra = {k: v for k, v in item.items() if k not in _KNOWN and v is not None}
    return [other(extra, (), scale)] if extra else []


def _opaque(kind: str, item: dict[str, Any], scale: Scale) -> Entry:
    """Items that change what follows, that only the server can read, or that nobody here knows."""
    value = dict(item)
    tokens = 0
    if kind == "image_generation_call" and value.get("result"):
        value["result"] = ""
        tokens = image_tokens(1024, 1024, family=scale.family, model=scale.model)
    piece = other(value, (), scale)
    pieces = [Piece("other", (), piece.text, tokens=piece.tokens + tokens)]
    pair, key = _PAIRED.get(kind, ("", ""))
    if pair == "tool_call" and string(item.get(key)):
        pieces.append(Piece("tool_call", (), "", id=f"{kind}:{item[key]}"))
    elif pair == "tool_result" and string(item.get(key)):
        call = "tool_search_call" if kind == "tool_search_output" else "mcp_approval_request"
        pieces.append(Piece("tool_result", (), "", id=f"{call}:{item[key]}"))
    return Entry(
        role="assistant" if kind in _WRITTEN else "other",
        pieces=tuple(pieces),
        opaque=True,
        remote=kind == "item_reference",
        hands_off="compaction_trigger: the client compacts" if kind == "compaction_trigger" else None,
    )
