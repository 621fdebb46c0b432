"""The routes that are no model: what a transport-level check refuses, the model list, and the mirror."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import zstandard

from .judge import Settings
from .loopback import Reply, Request
from .wordings import Problem, wire_error

__all__ = ["mirror", "models", "refused"]

_JSON = ("content-type", "application/json")
_DOWNLOAD = bytes(range(256)) * 256  # 64 KiB, repeated for ?download=N


def refused(s: Settings, request: Request) -> Problem | None:
    """401 for a wrong key, 413 for a too large body, 415 for an unknown encoding; other encodings are decoded."""
    wire = request.wire or "chat"
    if s.api_key is not None:
        bearer = request.header("authorization").removeprefix("Bearer ")
        if s.api_key not in (bearer, request.header("x-api-key"), request.header("api-key")):
            return wire_error(wire, 401, "Incorrect API key provided.", code="invalid_api_key")
    if not request.wire:
        return None
    if request.size > s.max_body:
        return wire_error(wire, 413, "Request exceeds the maximum size")
    encoding = request.header("content-encoding").lower()
    if encoding not in ("", "identity"):
        try:
            decode, failure = _decoder(encoding)
            request.plain = decode(request.body)
        except KeyError:
            return wire_error(wire, 415, f"Unsupported content encoding: {encoding}")
        except failure as err:
            return wire_error(wire, 400, f"Could not decode the {encoding} body: {err}")
    return None


def _decoder(encoding: str) -> tuple[Callable[[bytes], bytes], type[Exception]]:
    """The codec's function and the error that it raises."""
    if encoding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress, zstandard.ZstdError
    wbits = {"gzip": 31, "deflate": 15}[encoding]
    return lambda data: zlib.decompress(data, wbits), zlib.error


async def models(s: Settings, request: Request, reply: Reply) -> None:
    """GET /models, in the shape of the client's wire, with the window where servers state it."""
    if request.header("anthropic-version"):
        data: list[dict[str, Any]] = [
            {
                "type": "model",
                "id": m,
                "display_name": m,
                "created_at": "2026-01-01T00:00:00Z",
                "max_input_tokens": s.limit,
            }
            for m in s.models
        ]
        body: dict[str, Any] = {"data": data, "has_more": False, "first_id": s.models[0], "last_id": s.models[-1]}
    else:
        extra: dict[str, Any] = {}
        if s.wording.startswith("vllm"):
            extra = {"max_model_len": s.window}
        elif s.wording.startswith("llama.cpp"):
            extra = {"meta": {"n_ctx": s.window, "n_ctx_train": s.window}}
        data = [{"id": m, "object": "model", "created": 1_790_000_000, "owned_by": "fake", **extra} for m in s.models]
        body = {"object": "list", "data": data}
    await reply.send(200, [_JSON], json.dumps(body).encode())


async def mirror(s: Settings, request: Request, reply: Reply) -> None:
    """Tell what came. `?status=N` answers with that status, `?download=N` with N bytes instead."""
    params = request.params
    status = int(params.get("status", "200"))
    request.status = status
    headers = [
        ("x-request-id", "req_echo"),
        ("X-Echo-Dup", "one"),
        ("X-Echo-Dup", "two"),
        ("set-cookie", "a=1; Path=/"),
    ]
    if "download" in params:
        left = int(params["download"])
        await reply.start(
            status, [("content-type", "application/octet-stream"), *headers], None if "chunked" in params else left
        )
        while left > 0:
            await reply.write(_DOWNLOAD[:left])
            left -= min(left, len(_DOWNLOAD))
        await reply.end()
        return
    told = {
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "headers": request.headers,
        "body_sha256": request.sha256,
        "body_bytes": request.size,
    }
    await reply.send(status, [_JSON, *headers], json.dumps(told).encode(), s.chunk_bytes)
