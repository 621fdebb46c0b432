"""`ctxproxy serve`: the local proxy."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ctxproxy.config import Settings

__all__ = ["log_to_stderr", "serve"]


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (server.host).")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one (server.port).")] = None,
    upstream: Annotated[
        str | None,
        typer.Option(help="Send everything there; a path replaces the client's /v1.", metavar="URL"),
    ] = None,
    window: Annotated[int | None, typer.Option(help="Context window of every model, in tokens.")] = None,
    mode: Annotated[str | None, typer.Option(help="compact, observe or off.")] = None,
    policy: Annotated[str | None, typer.Option(help="default, gentle, aggressive or grid.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that share the port (server.workers).")] = None,
    record: Annotated[
        str | None,
        typer.Option(help="Record the bodies of requests there, for `ctxproxy replay`.", metavar="FILE"),
    ] = None,
    config: Annotated[str | None, typer.Option(help="Settings in YAML [env: CTXPROXY_CONFIG].", metavar="FILE")] = None,
) -> None:
    """Run the proxy.

    It relays requests, and compacts those that outgrow the window.
    """
    from ctxproxy.config import load

    flags = {
        "server.host": host,
        "server.port": port,
        "server.workers": workers,
        "upstreams": {"upstream": {"base_url": upstream}} if upstream is not None else None,
        "window": window,
        "mode": mode,
        "policy.preset": policy,
        "recording.file": record,
    }
    settings = load(config, overrides={key: value for key, value in flags.items() if value is not None})
    log_to_stderr(settings)
    from ctxproxy import proxy

    raise typer.Exit(proxy.serve(settings, prepare=log_to_stderr))


def log_to_stderr(settings: Settings) -> None:
    """Set up logging; each worker does so for itself."""
    from ctxproxy.cli.logs import formatter

    logger = logging.getLogger("ctxproxy")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(settings.logging.format))
    logger.addHandler(handler)
    # A level, unlike `disabled`, holds for the loggers below this one too.
    level = logging.INFO if settings.logging.verbose else logging.WARNING
    logger.setLevel(level if settings.logging.enabled else logging.CRITICAL + 1)
