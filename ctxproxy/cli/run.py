"""`ctxproxy run -- CMD`: one command behind a proxy of its own, which ends with it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ctxproxy.config import Settings
    from ctxproxy.proxy.app import App

__all__ = ["run"]

_HELD = 20  # warnings that are kept while the command has the terminal


def run(
    command: Annotated[list[str], typer.Argument(help="The command and its arguments.", metavar="-- CMD…")],
    upstream: Annotated[
        str | None,
        typer.Option(help="Send everything there; a path replaces the client's /v1.", metavar="URL"),
    ] = None,
    window: Annotated[int | None, typer.Option(help="Context window of every model, in tokens.")] = None,
    mode: Annotated[str | None, typer.Option(help="compact, observe or off.")] = None,
    policy: Annotated[str | None, typer.Option(help="default, gentle, aggressive or grid.")] = None,
    config: Annotated[str | None, typer.Option(help="Settings in YAML [env: CTXPROXY_CONFIG].", metavar="FILE")] = None,
) -> None:
    """Run one command through a proxy of its own.

    The proxy listens on a free loopback port and ends with the command. The base URLs of OpenAI's and Anthropic's
    clients are set for that command only. Exit code: the command's; 127 if there is no such command.
    """
    from ctxproxy import proxy
    from ctxproxy.cli.variables import command_for, variables

    settings, kept = _settings(
        config,
        {
            "upstreams": {"upstream": {"base_url": upstream}} if upstream is not None else None,
            "window": window,
            "mode": mode,
            "policy.preset": policy,
        },
    )
    began = time.time()
    with _warnings(settings), proxy.private(settings) as (app, base):
        env = variables(os.environ, base, keep_paths=kept)
        code = _execute(command_for(command, env), {**os.environ, **env})
        said = _summary(app, since=began)
    if said and settings.logging.enabled:
        sys.stderr.write(f"ctxproxy: {said}\n")
    if code == -signal.SIGINT:
        # A shell ends its loop on Ctrl-C only if the command died of it.
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    raise typer.Exit(128 - code if code < 0 else code)


def _settings(config: str | None, flags: dict[str, object]) -> tuple[Settings, set[str]]:
    """The settings, and the wires whose requests go to a server that the environment names.

    `--upstream` and the upstreams of a config file go before the environment.
    """
    from ctxproxy.cli.variables import PUBLIC, servers
    from ctxproxy.config import load

    overrides = {key: value for key, value in flags.items() if value is not None}
    settings = load(config, overrides=overrides)
    covered = {wire for u in settings.upstreams.values() for wire in u.wires or ("chat", "responses", "messages")}
    named = {server.wires: server for server in servers(os.environ) if not covered.issuperset(server.wires)}
    if not named:
        return settings, set()
    for wires, public in PUBLIC.items():
        if covered.issuperset(wires):
            continue
        server = named.get(wires)
        name = server.name if server else wires[-1]
        overrides[f"upstreams.{name}"] = {"base_url": server.origin if server else public, "wires": list(wires)}
        for other in server.others if server else ():
            sys.stderr.write(f"ctxproxy: {other} names another server than {name}, which is the one that is used\n")
    return load(config, overrides=overrides), {wire for wires in named for wire in wires}


# --- the command


def _execute(command: Sequence[str], env: dict[str, str]) -> int:
    """Run a command on our own terminal and streams; its exit code, or minus the signal that it died of."""
    import subprocess

    with _signals() as arrived:
        try:
            child = subprocess.Popen(command, env=env)  # noqa: S603 - that is what the user asked for
        except FileNotFoundError:
            sys.stderr.write(f"ctxproxy: there is no command {command[0]!r}\n")
            return 127
        except OSError as error:
            sys.stderr.write(f"ctxproxy: {command[0]!r} can't be run: {error.strerror}\n")
            return 126
        for number in arrived:
            # The terminal has sent its keys to the whole foreground group: the command got them already.
            key = number in (signal.SIGINT, signal.SIGQUIT) and _in_foreground()
            if number != signal.SIGCHLD and not key:
                child.send_signal(number)
            elif child.poll() is not None:
                break
        return child.wait()


@contextmanager
def _signals() -> Generator[Iterator[int]]:
    """The signals that arrive while the block runs, one by one; none of them does anything here.

    Read from a pipe: a handler would wait for the end of a system call that began just before its signal.
    """
    if not hasattr(signal, "SIGCHLD"):  # Windows, where keys reach the command by themselves
        yield iter(())
        return
    names = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD")
    # A signal that is ignored (nohup) stays so, here and in the command.
    numbers = [n for n in (getattr(signal, name) for name in names) if signal.getsignal(n) != signal.SIG_IGN]
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = {number: signal.signal(number, _ignore) for number in numbers}
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield (number for chunk in iter(lambda: os.read(reading, 64), b"") for number in chunk)
    finally:
        signal.set_wakeup_fd(woken)
        for number, known in before.items():
            signal.signal(number, known if known is not None else signal.SIG_DFL)
        os.close(reading)
        os.close(writing)


def _ignore(number: int, frame: FrameType | None) -> None:
    """A handler, unlike SIG_IGN, is not handed down to the command."""


def _in_foreground() -> bool:
    """Whether this process is in the foreground group of its terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


# --- what is said


@contextmanager
def _warnings(settings: Settings) -> Generator[None]:
    """Our warnings go to standard error; while a command has that as its screen they wait for its end."""
    held: deque[str] | None = deque(maxlen=_HELD) if sys.stderr.isatty() else None
    logger = logging.getLogger("ctxproxy")
    handler = _Handler(held)
    handler.setFormatter(logging.Formatter("ctxproxy: %(message)s"))
    logger.addHandler(handler)
    level, before = logging.INFO if settings.logging.verbose else logging.WARNING, logger.level
    logger.setLevel(level if settings.logging.enabled else logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
        for line in held or ():
            sys.stderr.write(line + "\n")


class _Handler(logging.Handler):
    def __init__(self, held: deque[str] | None) -> None:
        super().__init__()
        self._held = held

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if self._held is None:
            sys.stderr.write(line + "\n")
        else:
            self._held.append(line)


def _summary(app: App, *, since: float) -> str:
    """What was done since then (seconds of the epoch), if anything was; the monitor knows earlier runs too."""
    events = [event for event in app.relay.runtime.monitor.events() if event.at >= since] if app.relay else []
    cut = [event for event in events if event.type == "compaction"]
    if not cut:
        return ""
    requests = [event for event in events if event.type == "request"]
    reasons = ", ".join(f"{sum(e.reason == r for e in cut)} {r}" for r in dict.fromkeys(e.reason for e in cut))
    times = "once" if len(cut) == 1 else f"{len(cut)} times"
    said = f"{len(requests)} request{'s' * (len(requests) != 1)}, compacted {times} ({reasons})"
    largest = max(requests, key=lambda event: event.before)
    if largest.after < largest.before:
        said += f"; the largest prompt, {largest.before:,} tokens, was sent as {largest.after:,}"
    return said
