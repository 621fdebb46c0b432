"""The local proxy: `serve` runs it with the settings of a config file."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from ctxproxy.config import Settings
from ctxproxy.monitor.running import announced
from ctxproxy.policy import Policy
from ctxproxy.proxy.access import Access
from ctxproxy.proxy.admin import Admin
from ctxproxy.proxy.app import App, new_session
from ctxproxy.proxy.gate import gate_route
from ctxproxy.proxy.relay import Relay
from ctxproxy.proxy.server import address, background, bind, run
from ctxproxy.proxy.upstreams import Upstream, Upstreams
from ctxproxy.proxy.workers import supervise
from ctxproxy.recording import announce, recorder_of
from ctxproxy.served import Served
from ctxproxy.stores import state_folder
from ctxproxy.tokens import counter

__all__ = ["make_app", "private", "serve", "work"]

_log = logging.getLogger("ctxproxy.proxy")


def serve(settings: Settings, *, prepare: Callable[[Settings], None] | None = None) -> int:
    """Run the proxy until SIGINT or SIGTERM; the exit code.

    `prepare` is called first in each worker; it is a function of a module, since workers are new processes.

    Raises:
        ConfigError: a setting is wrong, or the port is in use.
    """
    access = _access(settings)
    announce(settings)
    sock = bind(settings.server.host, settings.server.port)
    with sock:
        if settings.server.workers > 1:
            if settings.ledger.url == "memory":
                _log.warning("each worker has a ledger of its own: conversations do not stick (setting: ledger.url)")
            given = settings.given()
            given["server"] = {**given.get("server", {}), "token": access.token}
            with announced(address(sock), access.token):
                return supervise(work, given, sock, prepare, count=settings.server.workers)
        with announced(address(sock), access.token):
            return run(lambda ready: make_app(_logged(settings), access=access, ready=ready), sock, warm=_warm)


def _logged(settings: Settings) -> Settings:
    return settings.logged_to(state_folder() / "context_log.yaml")


@contextmanager
def private(settings: Settings) -> Generator[tuple[App, str]]:
    """A proxy on a free loopback port, in a thread of this process, while the block runs; with its base URL.

    Raises:
        ConfigError: a setting is wrong.
    """
    access = Access(token=secrets.token_urlsafe(24), token_as_key=False)
    announce(settings)
    with (
        bind("127.0.0.1", 0) as sock,
        background(lambda ready: make_app(_logged(settings), access=access, ready=ready), sock) as app,
    ):
        threading.Thread(target=_warm, daemon=True).start()
        yield app, address(sock)


def work(
    given: dict[str, Any],
    sock: socket.socket,
    prepare: Callable[[Settings], None] | None,
    ready: Callable[[], None],
    watch: Callable[[Callable[[], None]], None],
) -> int:
    """One worker: serves on the socket that all share. `watch` is given what ends it."""
    settings = Settings.model_validate(given)
    if prepare is not None:
        prepare(settings)
    sock.setblocking(False)

    def make(_: Callable[[], None]) -> App:
        return make_app(_logged(settings), ready=ready)

    return run(make, sock, warm=_warm, watch=watch)


def make_app(
    settings: Settings,
    *,
    access: Access | None = None,
    ready: Callable[[], None] | None = None,
) -> App:
    """The ASGI application of some settings."""
    upstreams = Upstreams(
        tuple(
            Upstream(
                name=name,
                base_url=upstream.address,
                basic=upstream.basic,
                wires=tuple(upstream.wires),
                models=tuple(upstream.models),
                key=upstream.key,
                window=upstream.window,
                rules=upstream.rules,
                ca_file=upstream.ca_file,
            )
            for name, upstream in settings.upstreams.items()
        ),
        policies_by_model=bool(settings.models),
    )

    def policy(name: str | None, upstream: Upstream, model: str) -> Policy:
        return settings.policy_for(model, name, upstream=upstream.name)

    async def make() -> Relay:
        served = Served() if settings.measuring.served else None
        runtime = settings.runtime(durable=True, served=served, recorder=recorder_of(settings))
        return Relay(
            runtime=runtime,
            upstreams=upstreams,
            session=new_session(connect_seconds=settings.server.connect_timeout),
            max_body=settings.server.max_body_bytes,
            policies=policy,
            accounts=lambda headers: settings.account(headers, secret=runtime.secret),
        )

    async def make_watched() -> Relay:
        relay = await make()
        admin.watch(relay.runtime.monitor)
        return relay

    access = access or _access(settings)
    gate = gate_route(lambda: app.relay.runtime if app.relay is not None else None, settings, access)
    admin = Admin(settings=settings, access=access, relay=lambda: app.relay)
    app = App(
        make=make_watched,
        access=access,
        ready=ready,
        routes={**admin.routes(), "/ctxproxy/gate": gate},
        client_timeout=settings.server.client_timeout,
    )
    return app


def _access(settings: Settings) -> Access:
    return Access(
        host=settings.server.host,
        allowed_hosts=tuple(settings.server.allowed_hosts),
        # Without one in the settings a new one for each start, which the CLI finds in the state folder.
        token=settings.server.token or (secrets.token_urlsafe(24) if settings.server.loopback else None),
        token_as_key=any(upstream.key for upstream in settings.upstreams.values()),
    )


def _warm() -> None:
    """Load what the first request would wait for: the tokenizer takes a few hundred milliseconds."""
    counter("o200k").count("warm")
