"""What a function raised, or returned, as the answer of a provider that the engine understands.

No SDK is imported: their errors are known by what they carry (a response, a status, a body, a text).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ctxproxy.clients.errors import typed
from ctxproxy.effects import Answer
from ctxproxy.errors import ContextOverflowError
from ctxproxy.messages import plain
from ctxproxy.overflow import classify

__all__ = ["answer_of", "raised", "usage_of"]

_DEEPEST = 8  # causes of an error that are looked at
_UNKNOWN = 400  # the status of an error that states none


def answer_of(error: Exception) -> Answer:
    """An exception as a provider's answer: of it or the errors that caused it, the first one that says "too long"."""
    answers = [_answer(cause) for cause in _causes(error)]
    for answer in answers:
        verdict = classify(status=answer.status, headers=answer.headers, body=answer.body)
        if verdict.kind in ("token_overflow", "output_too_long", "payload_too_large"):
            return Answer(status=answer.status, headers=answer.headers, body=answer.body, handle=error)
    return Answer(status=answers[0].status, headers=answers[0].headers, body=answers[0].body, handle=error)


def raised(original: Exception, overflow: ContextOverflowError) -> ContextOverflowError:
    """The error for the caller: of the class of `original` and a ContextOverflowError."""
    try:
        return typed(original, overflow, sent=True)
    except Exception:  # a class that can't be derived from
        overflow.__cause__ = original
        return overflow


def _causes(error: BaseException) -> Iterator[BaseException]:
    for _ in range(_DEEPEST):
        yield error
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None:
            return
        error = cause


def _answer(error: BaseException) -> Answer:
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's
        return _botocore(cast("dict[str, Any]", response), error)
    status = _status(error, response)
    headers: dict[str, str] = {}
    try:
        headers = {str(name).lower(): str(value) for name, value in dict(response.headers).items()}
    except Exception:  # no response, or one of another kind
        headers = {}
    return Answer(status=status, headers=headers, body=_body(error, response))


def _status(error: BaseException, response: Any) -> int:
    for value in (
        getattr(response, "status_code", None),
        getattr(error, "status_code", None),
        getattr(error, "status", None),
        getattr(error, "code", None),
    ):
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return _UNKNOWN


def _body(error: BaseException, response: Any) -> bytes:
    """The body of the response where it was read, else what the error itself says."""
    try:
        content = response.content
    except Exception:  # a stream that nobody read
        content = None
    if isinstance(content, bytes) and content:
        return content
    body = getattr(error, "body", None)
    if isinstance(body, dict) and body:
        told = cast("dict[str, Any]", body)
        return _json(told if "error" in told else {"error": told})
    message = str(error) or str(getattr(error, "message", ""))
    return _json({"error": {"message": message, "code": getattr(error, "code", None)}})


def _botocore(response: dict[str, Any], error: BaseException) -> Answer:
    told: Any = response.get("Error") or {}
    about: Any = response.get("ResponseMetadata") or {}
    status: Any = about.get("HTTPStatusCode")
    body = {"error": {"message": str(told.get("Message") or error), "code": told.get("Code")}}
    return Answer(status=status if isinstance(status, int) and status >= 400 else _UNKNOWN, body=_json(body))


def _json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode()


def usage_of(result: Any) -> tuple[Mapping[str, Any] | None, str | None]:
    """The usage object of what a function returned, and why the answer stopped, as far as it says.

    Known are the answers of the SDKs and the same as dicts, and messages of LangChain.
    """
    try:
        usage = _mapping(_get(result, "usage")) or _mapping(_get(result, "usage_metadata"))
        return usage or None, _stop(result)
    except Exception:  # an object of another kind may do anything when it is looked at
        return None, None


def _stop(result: Any) -> str | None:
    choices: Any = _get(result, "choices")
    found: Any = None
    if isinstance(choices, list | tuple) and choices:
        found = _get(cast("list[Any]", choices)[0], "finish_reason")
    found = found or _get(result, "stop_reason") or _get(_get(result, "incomplete_details"), "reason")
    return found if isinstance(found, str) else None


def _get(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(name)
    return getattr(value, name, None)


def _mapping(value: Any) -> dict[str, Any]:
    if value is None or isinstance(value, str | int | float | list):
        return {}
    found = plain(value)
    if not isinstance(found, dict):
        return {}
    fields = cast("dict[str, Any]", found)
    details = fields.get("input_token_details")  # LangChain's own names
    if isinstance(details, dict):
        told = cast("dict[str, Any]", details)
        fields = {**fields, "input_tokens_details": {"cached_tokens": told.get("cache_read", 0)}}
    return fields
