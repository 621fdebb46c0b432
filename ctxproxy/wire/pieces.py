"""What the wires share to name the pieces of an entry: plain JSON values, and what sealed or binary content costs."""

from __future__ import annotations

import json
from typing import Any, cast

from ctxproxy import rawjson as raw
from ctxproxy.rawjson import Path
from ctxproxy.tokens.media import base64_size, data_url_tokens, document_tokens, image_tokens
from ctxproxy.wire.base import Piece, Scale

__all__ = ["as_json", "as_list", "as_object", "integer", "listed", "other", "sealed_tokens", "source_tokens", "string"]

# Members whose value only the provider can read; they come as base64 and cost what is inside, not their letters.
_SEALED = frozenset({"encrypted_content", "encrypted_index", "encrypted_stdout", "signature", "fingerprint"})
_SEALED_FRAME = 650  # bytes of encryption and framing around it, as Codex assumes for reasoning items
_BYTES_PER_TOKEN = 4
_UNKNOWN_IMAGE = (1280, 1024)


def as_json(value: Any) -> str:
    """Compact JSON, the way the SDKs write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def as_object(value: Any) -> dict[str, Any]:
    """The value, or {} where it is no object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value, or [] where it is no array."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def integer(data: bytes | None) -> int | None:
    """The integer in a raw JSON value; None for anything else, booleans included."""
    value = raw.load(data) if data else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def listed(data: bytes | None) -> list[Any]:
    """The array in a raw JSON value; [] for anything else."""
    return as_list(raw.load(data)) if data else []


def sealed_tokens(chars: int) -> int:
    """Tokens of encrypted content of `chars` base64 characters."""
    return max(0, (chars * 3 // 4 - _SEALED_FRAME) // _BYTES_PER_TOKEN)


def source_tokens(source: dict[str, Any], scale: Scale) -> int:
    """Tokens of base64 data with a media type: a picture by its size, anything else as a document."""
    data = string(source.get("data")) or ""
    if str(source.get("media_type", "")).startswith("image/"):
        size = base64_size(data) or _UNKNOWN_IMAGE
        return image_tokens(*size, family=scale.family, model=scale.model)
    return document_tokens(family=scale.family, model=scale.model, n_bytes=len(data) * 3 // 4)


def other(value: Any, path: Path, scale: Scale, *, id: str | None = None) -> Piece:
    """A piece that nobody edits. It costs its JSON, except for what is sealed or binary in it."""
    tokens = 0

    def readable(item: Any, key: str) -> Any:
        nonlocal tokens
        if isinstance(item, dict):
            fields = cast("dict[str, Any]", item)
            if fields.get("type") == "base64" and isinstance(fields.get("data"), str):
                tokens += source_tokens(fields, scale)
                fields = {k: v for k, v in fields.items() if k != "data"}
            return {k: readable(v, k) for k, v in fields.items()}
        if isinstance(item, list):
            return [readable(v, key) for v in cast("list[Any]", item)]
        if isinstance(item, str) and key in _SEALED:
            tokens += sealed_tokens(len(item))
            return ""
        if isinstance(item, str) and item.startswith("data:image/"):
            tokens += data_url_tokens(item, family=scale.family, model=scale.model)
            return ""
        return item

    text = as_json(readable(value, ""))
    return Piece("other", path, text, id=id, tokens=tokens)
