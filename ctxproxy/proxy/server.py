"""The server process: binds the port, says where it listens, runs until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable

import uvicorn

from ctxproxy.errors import ConfigError
from ctxproxy.proxy.app import App

__all__ = ["address", "bind", "run", "say_where"]

_log = logging.getLogger("ctxproxy.proxy")


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        ConfigError: the address can't be taken.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(512)
    except OSError as error:
        raise ConfigError(
            f"can't listen on {host}:{port}: {error.strerror or error} (setting: server.port, or --port)",
            key="server.port",
        ) from None
    sock.setblocking(False)
    return sock


def address(sock: socket.socket) -> str:
    """The base URL of a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def say_where(sock: socket.socket) -> None:
    """Print one line, `ctxproxy listening on URL`."""
    sys.stdout.write(f"ctxproxy listening on {address(sock)}\n")
    sys.stdout.flush()


def run(
    make: Callable[[Callable[[], None]], App],
    sock: socket.socket,
    *,
    warm: Callable[[], None],
    watch: Callable[[Callable[[], None]], None] | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM, or until what `watch` is given is called: then this is one of several workers.

    `make` gets what to call once requests are answered, `warm` loads what is slow to load.
    """
    warm()
    config = uvicorn.Config(
        make(lambda: say_where(sock)),
        # On Windows several processes can only wait for one socket with the selector loop, which uvicorn takes then.
        workers=1 if watch is None else 2,
        log_level="critical",
        access_log=False,
        ws="none",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
    )
    server = _Server(config)
    if watch is not None:

        def stop() -> None:
            server.should_exit = True

        watch(stop)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=[sock]))
    return 0


class _Server(uvicorn.Server):
    """uvicorn, without its line on the address: ours is printed once, in one form."""

    def _log_started_message(self, listeners: object) -> None:
        _log.debug("started")
