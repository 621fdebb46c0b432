"""The proxy, served for a test: the real app on a real socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from ctxproxy.config import load
from ctxproxy.proxy import make_app
from ctxproxy.proxy.app import App
from ctxproxy.proxy.protocol import bounded
from ctxproxy.proxy.server import bind

__all__ = ["Served", "raw_http", "serving"]


class Served:
    """A running proxy and its address."""

    def __init__(self, app: App, url: str) -> None:
        self.app = app
        self.url = url

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])


@contextmanager
def serving(upstream: str, *, window: int | None = None, **settings: Any) -> Iterator[Served]:
    """Run the proxy in front of `upstream`; `settings` are sections of the config file."""
    overrides: Mapping[str, Any] = {
        "upstreams": {"test": {"base_url": upstream}},
        **({"window": window} if window else {}),
        "ledger": {"url": "memory"},  # the default file is one for all tests
        **settings,
    }
    ready, stopped = threading.Event(), threading.Event()
    app = make_app(load(None, env={}, overrides=overrides), ready=ready.set)
    sock = bind("127.0.0.1", 0)
    config = uvicorn.Config(
        app, http=bounded(app.client_timeout), log_level="critical", access_log=False, ws="none", server_header=False, date_header=False,
        timeout_graceful_shutdown=5,
    )  # fmt: skip
    server = uvicorn.Server(config)

    def work() -> None:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(server.serve(sockets=[sock]))
        stopped.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        if not ready.wait(30):
            raise RuntimeError("the proxy did not start")
        yield Served(app, f"http://127.0.0.1:{sock.getsockname()[1]}")
    finally:
        server.should_exit = True
        stopped.wait(30)
        sock.close()


def raw_http(port: int, data: bytes, *, timeout: float = 20.0) -> bytes:
    """Send bytes as they are and return everything until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as sock:
        sock.sendall(data)
        found = bytearray()
        while chunk := sock.recv(1 << 16):
            found += chunk
        return bytes(found)
