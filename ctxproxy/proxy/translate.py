"""Upstreams with `base_url: litellm:PROVIDER`: requests go through the litellm library, which speaks to the provider
in its own API. The answer comes back in the caller's, as a response that the relay passes on like any other."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import aiohttp
from multidict import CIMultiDict

from ctxproxy import rawjson
from ctxproxy.answers import error_body
from ctxproxy.conversation import Api
from ctxproxy.errors import ConfigError, WireFormatError

__all__ = ["PREFIX", "Translated", "caller_key", "translate"]

PREFIX = "litellm:"
"""How the base URL of such an upstream begins; the provider that follows is put before each model's name."""


class Translated:
    """What the relay needs of a response, from an iterator of bytes: the few members of aiohttp's that it reads."""

    def __init__(self, status: int, chunks: AsyncIterator[bytes], *, content_type: str) -> None:
        self.status = status
        self.headers: CIMultiDict[str] = CIMultiDict({"content-type": content_type})
        self.raw_headers = ((b"content-type", content_type.encode()),)
        self.content = self
        self._chunks = chunks
        self._ended = False

    async def readany(self) -> bytes:
        """The next bytes; none at the end."""
        async for chunk in self._chunks:
            if chunk:
                return chunk
        self._ended = True
        return b""

    async def read(self, n: int = -1) -> bytes:
        return await self.readany()

    async def iter_any(self) -> AsyncIterator[bytes]:
        while chunk := await self.readany():
            yield chunk

    def at_eof(self) -> bool:
        return self._ended

    def close(self) -> None:
        """Let go of the provider's stream; a generator that still runs is ended in the background."""
        if not self._ended:
            self._ended = True
            closing = getattr(self._chunks, "aclose", None)
            if closing is not None:
                task = asyncio.ensure_future(_quietly(closing()))
                _closing.add(task)
                task.add_done_callback(_closing.discard)


_closing: set[asyncio.Future[None]] = set()


async def _quietly(closing: Any) -> None:
    try:
        await closing
    except RuntimeError:  # it is being read at this moment, by a task that is being cancelled
        return


async def translate(api: Api, body: bytes, *, base_url: str, key: str | None) -> Translated:
    """Send a request through litellm. An error of the provider comes back in the caller's format.

    Raises:
        ConfigError: litellm, or what it needs for this kind of request, is not installed.
    """
    try:
        value = rawjson.load(body)
    except WireFormatError as error:
        return _refusal(api, error)
    if not isinstance(value, dict):
        return _refusal(api, WireFormatError("a request must be a JSON object"))
    asked = cast("dict[str, Any]", value)
    litellm = await asyncio.to_thread(_library, api, streamed=bool(asked.get("stream")))
    provider = base_url.removeprefix(PREFIX)
    if provider:
        asked["model"] = f"{provider}/{asked.get('model', '')}"
    if key:
        asked["api_key"] = key
    # Another try is the caller's own business, as with any other upstream.
    asked |= {"num_retries": 0, "max_retries": 0} if api != "messages" else {}
    send = {"chat": "acompletion", "responses": "aresponses", "messages": "anthropic_messages"}[api]
    try:
        found = await getattr(litellm, send)(**asked)
        if not asked.get("stream"):
            return Translated(200, _once(_dump(found)), content_type="application/json")
        chunks = aiter(_events(api, found))
        # The first event decides: a refusal that comes only now is still an error with a status.
        first = await anext(chunks, b"")
    except Exception as error:
        return _refusal(api, error)
    return Translated(200, _with_first(first, chunks), content_type="text/event-stream; charset=utf-8")


def _library(api: Api, *, streamed: bool) -> Any:
    """litellm, which takes seconds to load.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        litellm: Any = importlib.import_module("litellm")
        litellm.suppress_debug_info = True  # it prints to standard output, which is not ours
    except ImportError:
        raise ConfigError("a litellm: upstream needs the litellm library: pip install 'ctxproxy[litellm]'") from None
    if api == "messages" and streamed:
        try:
            # Loaded by litellm (1.110) only after its first event, when no error can be told any more.
            importlib.import_module("litellm.proxy.pass_through_endpoints.success_handler")
        except ImportError as error:
            raise ConfigError(
                f"litellm streams the Messages API only with its proxy extra ({error}): pip install 'litellm[proxy]'"
            ) from None
    return litellm


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _with_first(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    try:
        async for chunk in rest:
            yield chunk
    except Exception as error:  # whatever litellm raises: the status is out, so the connection has to break
        raise aiohttp.ClientPayloadError(f"{type(error).__name__} in the middle of a stream") from error


async def _events(api: Api, found: Any) -> AsyncIterator[bytes]:
    """litellm's chunks as the server-sent events of an API."""
    async for chunk in found:
        if isinstance(chunk, bytes | str):
            yield chunk if isinstance(chunk, bytes) else chunk.encode()
            continue
        data = _dump(chunk)
        kind = json.loads(data).get("type") if api != "chat" else None
        yield (f"event: {kind}\n".encode() if kind else b"") + b"data: " + data + b"\n\n"
    if api == "chat":
        yield b"data: [DONE]\n\n"


def _dump(value: Any) -> bytes:
    if hasattr(value, "model_dump_json"):
        return cast("str", value.model_dump_json(exclude_unset=True)).encode()
    return json.dumps(value, ensure_ascii=False).encode()


def _refusal(api: Api, error: Exception) -> Translated:
    """An exception of litellm as the answer of a provider. What is none of the provider's is a bad gateway."""
    status = 400 if isinstance(error, WireFormatError) else getattr(error, "status_code", None)
    status = status if isinstance(status, int) and 400 <= status <= 599 else 502
    names = {kind.__name__ for kind in type(error).__mro__}
    code = "context_length_exceeded" if "ContextWindowExceededError" in names else None
    text = str(getattr(error, "message", "") or error)
    data = error_body(api, 400 if code else status, text, code=code)
    return Translated(400 if code else status, _once(data), content_type="application/json")


def caller_key(headers: Mapping[str, str]) -> str | None:
    """The key that a caller brings; header names in lower case."""
    return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ").strip() or None
