"""The ASGI application: its own paths, and everything else to the relay."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp

from ctxproxy.answers import error_body
from ctxproxy.proxy.access import Access
from ctxproxy.proxy.asgi import Receive, Scope, Sender
from ctxproxy.proxy.headers import lower
from ctxproxy.proxy.relay import Relay
from ctxproxy.proxy.work import Broken
from ctxproxy.wire import detect

__all__ = ["App", "new_session"]

_log = logging.getLogger("ctxproxy.proxy")
Route = Callable[[Scope, Receive, Sender], Awaitable[None]]


def new_session(*, connect_seconds: float = 10.0) -> aiohttp.ClientSession:
    """A client session that relays: no total timeout (models think for minutes), no cookies kept, nothing decoded."""
    return aiohttp.ClientSession(
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds),
        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        read_bufsize=1 << 18,
    )


class App:
    """Routes requests. `routes` are the paths under `/ctxproxy/` and the health checks; one that ends with
    a slash takes what lies directly under it.

    Args:
        make: makes the relay when the server starts, since its client session belongs to the running loop.
        close: called when the server stops.
        ready: called once the server is ready.
        client_timeout: seconds in which a request has to come in, for whoever runs the server.
    """

    def __init__(
        self,
        *,
        make: Callable[[], Awaitable[Relay]],
        close: Callable[[], Awaitable[None]] | None = None,
        routes: Mapping[str, Route] | None = None,
        ready: Callable[[], None] | None = None,
        access: Access | None = None,
        client_timeout: float = 60.0,
    ) -> None:
        self._make = make
        self._close = close
        self._ready = ready
        self._routes = dict(routes or {})
        self._access = access or Access()
        self.client_timeout = client_timeout
        self.relay: Relay | None = None
        self.failure: Exception | None = None  # why it could not start

    async def __call__(self, scope: Scope, receive: Receive, send: Sender) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            return
        path: str = scope["path"]
        names = scope["ctxproxy.headers"] = lower(scope["headers"])
        refusal = self._access.refusal(names)
        if refusal is not None:
            status, reason = refusal
            await respond(send, status, error_body(detect(path) or "chat", status, reason))
            return
        if path in ("/livez", "/readyz"):
            ok = path == "/livez" or self.relay is not None
            await respond(send, 200 if ok else 503, {"status": "ok" if ok else "starting"})
            return
        if path.startswith("/ctxproxy/") or path == "/ctxproxy":
            route = self._routes.get(path) or self._routes.get(path[: path.rfind("/") + 1])
            if route is None:
                await respond(send, 404, {"error": {"message": f"ctxproxy has no {path}", "type": "not_found"}})
            else:
                await route(scope, receive, send)
            return
        if any(key == b"upgrade" and b"websocket" in value.lower() for key, value in scope["headers"]):
            # Codex and others fall back to HTTP at once on 426; on 403 or 404 they retry for seconds.
            await respond(send, 426, {"error": {"message": "ctxproxy relays HTTP only", "type": "upgrade_required"}})
            return
        if self.relay is None:
            await respond(send, 503, {"error": {"message": "ctxproxy is starting", "type": "server_error"}})
            return
        try:
            await self.relay(scope, receive, send)
        except Broken as error:
            # Raised on: the server closes the connection without a last chunk, and the client sees it broken off.
            _log.warning("%s", error)
            raise
        except Exception:
            _log.exception("a fault in ctxproxy")
            raise

    async def _lifespan(self, receive: Receive, send: Sender) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    self.relay = await self._make()
                except Exception as error:
                    # Kept for whoever started the server: an exception here would mean "no lifespan" to uvicorn.
                    self.failure = error
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
                if self._ready is not None:
                    self._ready()
            elif message["type"] == "lifespan.shutdown":
                if self.relay is not None:
                    await self.relay.close()
                if self._close is not None:
                    await self._close()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def respond(send: Sender, status: int, value: Any, content_type: bytes = b"application/json") -> None:
    """A small answer of our own."""
    body = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
    headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
