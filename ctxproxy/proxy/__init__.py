"""The local proxy: `serve` runs it with the settings of a config file."""

from __future__ import annotations

from collections.abc import Callable

from ctxproxy.config import Settings
from ctxproxy.policy import Policy
from ctxproxy.proxy.access import Access
from ctxproxy.proxy.app import App, new_session
from ctxproxy.proxy.relay import Relay
from ctxproxy.proxy.server import bind, run
from ctxproxy.proxy.upstreams import Upstream, Upstreams
from ctxproxy.stores import state_folder
from ctxproxy.tokens import counter

__all__ = ["make_app", "serve"]


def serve(settings: Settings) -> int:
    """Run the proxy until SIGINT or SIGTERM; the exit code.

    Raises:
        ConfigError: a setting is wrong, or the port is in use.
    """
    settings = settings.logged_to(state_folder() / "context_log.yaml")
    access = _access(settings)
    sock = bind(settings.server.host, settings.server.port)
    with sock:
        return run(lambda ready: make_app(settings, access=access, ready=ready), sock, warm=_warm)


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
                base_url=upstream.base_url,
                wires=tuple(upstream.wires),
                models=tuple(upstream.models),
                key=upstream.key,
                window=upstream.window,
                rules=upstream.rules,
            )
            for name, upstream in settings.upstreams.items()
        ),
        policies_by_model=bool(settings.models),
    )

    def policy(name: str | None, upstream: Upstream, model: str) -> Policy:
        return settings.policy_for(model, name, upstream=upstream.name)

    async def make() -> Relay:
        runtime = settings.runtime()
        return Relay(
            runtime=runtime,
            upstreams=upstreams,
            session=new_session(connect_seconds=settings.server.connect_timeout),
            max_body=settings.server.max_body_bytes,
            policies=policy,
            accounts=lambda headers: settings.account(headers, secret=runtime.secret),
        )

    return App(make=make, access=access or _access(settings), ready=ready)


def _access(settings: Settings) -> Access:
    return Access(
        host=settings.server.host,
        allowed_hosts=tuple(settings.server.allowed_hosts),
        token=settings.server.token,
        token_as_key=any(upstream.key for upstream in settings.upstreams.values()),
    )


def _warm() -> None:
    """Load what the first request would wait for: the tokenizer takes a few hundred milliseconds."""
    counter("o200k").count("warm")
