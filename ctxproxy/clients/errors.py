"""The error for a prompt that does not fit: the SDK's own class for that status, and ContextOverflowError."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

import msgspec

from ctxproxy.answers import error_body
from ctxproxy.conversation import Api
from ctxproxy.errors import ContextOverflowError

__all__ = ["refusal", "typed", "typed_class"]

# How an SDK is to be told. openai takes any exception of its HTTP client (before 2.21 also its own) for a broken
# connection and sends again, but lets pass what `raise_for_status` raises. anthropic lets its own errors pass and
# does not call `raise_for_status`.
_RAISED_IN_SEND = frozenset({"anthropic"})
_OF_THE_BODY = frozenset({"content-encoding", "content-length", "transfer-encoding", "content-type"})


def refusal(
    request: Any,
    api: Api,
    overflow: ContextOverflowError,
    *,
    sdk: str | None,
    response: Any = None,
    event: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """What the caller's HTTP client returns for a prompt that does not fit.

    Args:
        request: the caller's request, or the one that was refused last.
        overflow: the engine's finding.
        sdk: whose error it is to be, None for a plain HTTP client.
        response: the provider's refusal, read; None where nothing was sent.
        event: the data of the failed stream event, where the provider refused in an HTTP 200.
        headers: headers of the response where nothing was sent.

    Returns:
        A response whose `raise_for_status` raises the error.

    Raises:
        ContextOverflowError: the error itself, for an SDK that lets it pass.
    """
    httpx = import_module(type(request).__module__.partition(".")[0])
    if response is None:
        body = error_body(api, 400, str(overflow), code="context_length_exceeded", fields=overflow.fields())
        shown = httpx.Response(
            400, headers={**(headers or {}), "content-type": "application/json"}, content=body, request=request
        )
    elif event is not None:
        kept = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _OF_THE_BODY]
        kept.append(("content-type", "application/json"))
        shown = httpx.Response(400, headers=kept, content=_unwrapped(event), request=request)
        shown.extensions.update(response.extensions)
    else:
        shown = response
    # anthropic looks here before it sends again, whatever the status.
    shown.headers["x-should-retry"] = "false"
    original = _original(shown, sdk)
    error = typed(original, overflow, sent=response is not None)
    if sdk in _RAISED_IN_SEND:
        raise error
    kept = [(name, value) for name, value in shown.headers.multi_items() if name.lower() != "content-encoding"]
    refused = _refused(httpx)(shown.status_code, headers=kept, content=shown.content, request=request)
    refused.extensions.update(shown.extensions)
    refused.error = error
    return refused


def typed(original: Exception, overflow: ContextOverflowError, *, sent: bool) -> ContextOverflowError:
    """The provider's error with the numbers of ctxproxy: an instance of both classes.

    Args:
        original: the SDK's own error. It becomes the cause where a request was `sent`; else the cause is `overflow`.
    """
    # The provider's words first: programs look for them at the beginning of the text.
    message = f"{original} [ctxproxy: {overflow}]" if sent else str(original)
    error = _rebuild(type(original), message, {**vars(original), **vars(overflow)})
    error.__cause__ = original if sent else overflow
    return error


@lru_cache(maxsize=64)
def typed_class(kind: type[Exception]) -> type[ContextOverflowError]:
    """The class that is both ContextOverflowError and `kind`."""
    return type(
        f"ContextOverflow{kind.__name__}",
        (ContextOverflowError, kind),
        {"__module__": __name__, "__doc__": ContextOverflowError.__doc__, "__reduce__": _reduce},
    )


def _rebuild(kind: type[Exception], message: str, state: dict[str, Any]) -> ContextOverflowError:
    # Neither constructor is called: each wants arguments of its own, and both only set attributes.
    made = typed_class(kind)
    error = made.__new__(made, message)
    error.args = (message,)
    error.__dict__.update(state)
    if "message" in state:
        error.__dict__["message"] = message
    return error


def _reduce(error: ContextOverflowError) -> tuple[object, ...]:
    return _rebuild, (type(error).__bases__[1], str(error), dict(vars(error)))


def _original(response: Any, sdk: str | None) -> Exception:
    """The error that the caller would have got without ctxproxy."""
    if sdk is not None and sdk in sys.modules:
        make: Callable[[Any], Exception] = import_module(f"ctxproxy.clients.{sdk}").status_error
        return make(response)
    httpx = import_module(type(response).__module__.partition(".")[0])
    text = f"Client error '{response.status_code}' for url '{response.request.url}'"
    return httpx.HTTPStatusError(text, request=response.request, response=response)


@lru_cache(maxsize=4)
def _refused(httpx: Any) -> Any:
    class RefusedResponse(httpx.Response):
        """A provider's refusal, or ours before sending."""

        error: ContextOverflowError

        def raise_for_status(self) -> Any:
            raise self.error

    return RefusedResponse


def _unwrapped(event: bytes) -> bytes:
    """A failed event as the body of an error: Responses puts the error into the response that failed."""
    try:
        error = msgspec.json.decode(event, type=_Failed).response.error
    except msgspec.DecodeError:
        return event
    return b'{"error":%b}' % bytes(error)


class _Response(msgspec.Struct):
    error: msgspec.Raw


class _Failed(msgspec.Struct):
    response: _Response
