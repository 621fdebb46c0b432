"""Our own errors in the caller's format, so that every SDK reads them as its provider's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ctxproxy.conversation import Api

__all__ = ["error_body"]

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    504: "timeout_error",
}


def error_body(
    api: Api, status: int, message: str, *, code: str | None = None, fields: Mapping[str, Any] | None = None
) -> bytes:
    """An error body as the API's own server writes it; `fields` are added under `ctxproxy`."""
    text = f"ctxproxy: {message}"
    if api == "messages":
        if code == "context_length_exceeded":
            # Anthropic's clients know an overflow by these words.
            text = f"prompt is too long: {text}"
        value: dict[str, Any] = {
            "type": "error",
            "error": {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": text},
            "request_id": None,
        }
    else:
        kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
        value = {"error": {"message": text, "type": kind, "param": None, "code": code}}
    if fields:
        value["ctxproxy"] = dict(fields)
    return json.dumps(value, ensure_ascii=False).encode()
