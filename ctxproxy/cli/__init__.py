"""The command line. The modules of the commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from ctxproxy.cli import config, demo, doctor, log, offline, replay, run, serve, watch
from ctxproxy.errors import ConfigError, ContextOverflowError, CtxProxyError, WireFormatError

__all__ = ["app", "main"]

app = typer.Typer(
    name="ctxproxy",
    help="Keeps an LLM conversation inside its context window.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # rich would double the time of --help
    pretty_exceptions_enable=False,
)
app.command()(serve.serve)
app.command(context_settings={"allow_interspersed_args": False})(run.run)
app.command()(doctor.doctor)
app.command()(demo.demo)
app.command()(watch.status)
app.command()(watch.top)
app.command()(log.log)
app.command()(replay.replay)
app.command()(watch.show)
app.command()(watch.restore)
app.command()(watch.stats)
app.command()(watch.dashboard)
app.command()(offline.measure)
app.command()(offline.explain)
app.command()(offline.compact)
app.command()(offline.classify)
app.add_typer(config.app, name="config")


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and exit.

    Exit codes: 0 done, 1 a store or a stream failed, 2 bad input or a wrong setting, 3 the prompt can't fit.
    """
    try:
        app(args)
    except CtxProxyError as error:
        more = len(getattr(error, "__notes__", ()))
        hint = f" (and {more} more: `ctxproxy config check` lists all)" if more else ""
        sys.stderr.write(f"ctxproxy: {' '.join(str(error).split())}{hint}\n")
        if isinstance(error, ContextOverflowError):
            sys.exit(3)
        sys.exit(2 if isinstance(error, ConfigError | WireFormatError) else 1)
    except OSError as error:  # a full disk behind standard output, for one
        sys.stderr.write(f"ctxproxy: {error}\n")
        _drop_stdout()
        sys.exit(1)


def _drop_stdout() -> None:
    """Let what could not be written go nowhere: Python would try once more when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version(wanted: bool) -> None:
    if wanted:
        from ctxproxy import __version__

        typer.echo(f"ctxproxy {__version__}")
        raise typer.Exit


@app.callback()
def _root(  # pyright: ignore[reportUnusedFunction]
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Keeps an LLM conversation inside its context window."""
