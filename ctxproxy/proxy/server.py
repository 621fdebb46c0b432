"""The server process: binds the port, says where it listens, runs until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import uvicorn

from ctxproxy.errors import ConfigError
from ctxproxy.proxy.app import App
from ctxproxy.proxy.protocol import bounded

__all__ = ["address", "background", "bind", "run", "say_where"]

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
    app = make(lambda: say_where(sock))
    server = _server(app, grace=10, workers=1 if watch is None else 2)
    if watch is not None:

        def stop() -> None:
            server.should_exit = True

        watch(stop)
    _run(server, sock)
    if app.failure is not None:
        raise app.failure
    return 0


@contextmanager
def background(make: Callable[[Callable[[], None]], App], sock: socket.socket) -> Generator[App]:
    """Serve in a thread of its own while the block runs; nothing is printed.

    Raises:
        Exception: what kept the application from starting.
    """
    started = threading.Event()
    app = make(started.set)
    server = _server(app, grace=1)

    def work() -> None:
        try:
            _run(server, sock)
        except Exception as error:
            app.failure = app.failure or error
        finally:
            started.set()

    thread = threading.Thread(target=work, name="ctxproxy", daemon=True)
    thread.start()
    started.wait()
    if app.failure is not None:
        raise app.failure
    try:
        yield app
    finally:
        server.should_exit = True
        thread.join(5)


def _run(server: uvicorn.Server, sock: socket.socket) -> None:
    with (
        suppress(SystemExit),  # how uvicorn says that the application did not start
        asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner,
    ):
        runner.run(server.serve(sockets=[sock]))


def _server(app: App, *, grace: int, workers: int = 1) -> uvicorn.Server:
    return _Server(
        uvicorn.Config(
            app,
            http=bounded(app.client_timeout),
            # On Windows several processes share a socket only with the selector loop, which uvicorn takes then.
            workers=workers,
            log_level="critical",
            access_log=False,
            lifespan="on",
            ws="none",
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=grace,
        )
    )


class _Server(uvicorn.Server):
    """uvicorn, without its line on the address: ours is printed once, in one form."""

    def _log_started_message(self, listeners: object) -> None:
        _log.debug("started")
