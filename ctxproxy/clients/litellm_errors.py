"""Exceptions of litellm: as answers that the engine can read, and as errors that are litellm's and ours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from ctxproxy import rawjson
from ctxproxy.clients.errors import typed
from ctxproxy.effects import Answer
from ctxproxy.errors import ContextOverflowError
from ctxproxy.overflow import classify
from ctxproxy.wire.base import Wire

__all__ = ["both", "is_overflow", "refused", "refused_by", "unsent"]

# litellm puts the classes of its own and of its provider before the provider's words, and a router its routes behind.
_BEFORE = re.compile(r"^\s*(?:litellm\.)?\w*(?:Error|Exception)\s*(?::|-)\s*")
_BEHIND = re.compile(r"\s*(?:Received Model Group=|LiteLLM Retried:|, LiteLLM Max Retries|\. Handle with `).*", re.S)


def is_overflow(error: BaseException) -> bool:
    """Whether litellm itself takes it for a prompt that does not fit."""
    return any(kind.__name__ == "ContextWindowExceededError" for kind in type(error).__mro__)


def refused(error: Exception, wire: Wire) -> Answer:
    """The exception of a call as the answer that it stands for; `handle` is the exception."""
    told = getattr(error, "original_exception", None) or error  # a stream that failed before its first event
    status = getattr(told, "status_code", None)
    status = status if isinstance(status, int) and status >= 400 else 500
    headers = _headers(told)
    body = _body(told)
    if is_overflow(error) or is_overflow(told):
        verdict = classify(status=status, headers=headers, body=body, wire=wire.api)
        if verdict.kind not in ("token_overflow", "output_too_long", "payload_too_large"):
            # litellm knows wordings of single providers that nobody else does.
            words = {"message": _words(told), "type": "invalid_request_error", "code": "context_length_exceeded"}
            return Answer(status=400, body=rawjson.dump({"error": words}), handle=error)
    return Answer(status=status, headers=headers, body=body, handle=error)


def both(litellm: Any, error: Exception, overflow: ContextOverflowError) -> ContextOverflowError:
    """The refusal of a provider as an error of both. What litellm took for a rate limit stays one as well."""
    original = error
    if not is_overflow(error) and not isinstance(error, litellm.RateLimitError):
        original = litellm.ContextWindowExceededError(
            message=str(error),
            model=getattr(error, "model", None) or overflow.model or "",
            llm_provider=getattr(error, "llm_provider", None) or "",
            response=getattr(error, "response", None),
        )
    made = typed(original, overflow, sent=True)
    made.__cause__ = error
    return made


def unsent(litellm: Any, overflow: ContextOverflowError) -> ContextOverflowError:
    """The error of a prompt that certainly can't fit, so that nothing was sent."""
    original = litellm.ContextWindowExceededError(message=str(overflow), model=overflow.model or "", llm_provider="")
    return typed(original, overflow, sent=False)


def refused_by(litellm: Any, data: bytes, overflow: ContextOverflowError) -> Exception:
    """The error of a stream whose first event is a refusal: what litellm raises where it reads streams itself."""
    words = data.decode("utf-8", "replace")
    return litellm.ContextWindowExceededError(message=words, model=overflow.model or "", llm_provider="")


def _headers(error: Any) -> Mapping[str, str]:
    found: Any = getattr(getattr(error, "response", None), "headers", None)
    found = found or getattr(error, "litellm_response_headers", None) or {}
    try:
        return {str(name).lower(): str(value) for name, value in found.items()}
    except AttributeError:
        return {}


def _body(error: Any) -> bytes:
    """The provider's own error body: of the response where litellm kept it, else out of its message."""
    try:
        content = getattr(getattr(error, "response", None), "content", b"")
    except Exception:  # a response that was never read
        content = b""
    if isinstance(content, bytes) and content.lstrip().startswith((b"{", b"[")):
        return content
    words = _words(error)
    at = words.find("{")
    if at >= 0:
        try:
            value, _ = json.JSONDecoder().raw_decode(words[at:])
        except ValueError:
            value = None
        if isinstance(value, dict) and value.keys() & {"error", "message", "detail", "type"}:
            return rawjson.dump(cast("dict[str, Any]", value))
    return rawjson.dump({"error": {"message": words}})


def _words(error: Any) -> str:
    """The provider's words, without what litellm puts around them."""
    text = str(getattr(error, "message", None) or error)
    while (found := _BEFORE.match(text)) is not None:
        text = text[found.end() :]
    return _BEHIND.sub("", text).strip()
