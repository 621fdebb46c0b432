"""Watching a running proxy: `status`, `top`, `show`, `restore`, `stats`, `dashboard`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxproxy.errors import ConfigError, CtxProxyError

if TYPE_CHECKING:
    from ctxproxy.cli.remote import Remote

__all__ = ["dashboard", "restore", "show", "stats", "status", "top"]

_Url = Annotated[str | None, typer.Option(help="The proxy, where several run.", metavar="URL")]
_Token = Annotated[str | None, typer.Option(help="Its start-up token [env: CTXPROXY_TOKEN].", metavar="TOKEN")]
_Key = Annotated[str | None, typer.Option(help="The API key whose texts are wanted (ledger.scope: token).")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def status(
    session: Annotated[str | None, typer.Option(help="Only this session.", metavar="ID")] = None,
    all: Annotated[bool, typer.Option("--all", help="All conversations, not only the newest three.")] = False,
    url: _Url = None,
    token: _Token = None,
    json: _Json = False,
) -> None:
    """Show how full each conversation is, by category."""
    from ctxproxy.cli.remote import find

    found = find(url, token).json("status")
    if session is not None:
        found["conversations"] = [talk for talk in found["conversations"] if talk["session"] == session]
    if json:
        _json(found)
        return
    from ctxproxy.monitor.screen import block, clean

    talks = found["conversations"] if all else found["conversations"][:3]
    if not talks:
        typer.echo("no request has come through yet" if session is None else f"there is no session {session!r}")
    plain = _plain()
    typer.echo("\n\n".join(block(talk, found["thresholds"], plain=plain) for talk in talks))
    more = len(found["conversations"]) - len(talks)
    if more:
        typer.echo(f"\n{more} more: --all")
    for advice in found["advice"]:
        typer.echo(f"- {clean(advice['text'])}")


def top(
    url: _Url = None,
    token: _Token = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="Print the status as one JSON line at each look.")] = False,
) -> None:
    """Watch the conversations fill up and be compacted, live; q or Ctrl-C quits.

    Where the output is no terminal, one picture is printed.
    """
    from ctxproxy.cli.remote import find

    remote = find(url, token)
    try:
        if json:
            while True:
                _json(remote.json("status"))
                time.sleep(interval)
        _live(remote, interval, again=lambda: find(remote.url, token))
    except KeyboardInterrupt:
        return


def _live(remote: Remote, interval: float, *, again: Callable[[], Remote]) -> None:
    from rich.console import Console
    from rich.live import Live

    from ctxproxy.monitor import screen

    console = Console()
    plain = _plain()

    def look() -> Any:
        try:
            # A proxy that was started anew has another token.
            return screen.top(again().json("status"), url=remote.url, height=console.height, plain=plain)
        except CtxProxyError as error:
            return screen.top(
                None, url=remote.url, height=console.height, plain=plain, message=f"{error}; still trying (q quits)"
            )

    if not console.is_terminal:
        console.print(screen.top(remote.json("status"), url=remote.url, height=40, plain=plain))
        return
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(look(), refresh=True)
            if pressed(interval):
                return


@contextmanager
def _keys() -> Generator[Callable[[float], bool]]:
    """Gives a function that waits so many seconds and says whether q was pressed."""
    try:
        import select
        import termios
        import tty

        before = termios.tcgetattr(sys.stdin)
    except (ImportError, OSError, ValueError, AttributeError):  # Windows, or no terminal to read from
        yield _sleep
        return
    except Exception as error:
        if type(error).__name__ != "error":
            raise
        yield _sleep
        return

    def pressed(seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([sys.stdin], [], [], left)[0] and sys.stdin.read(1) in ("q", "Q", "\x04", ""):
                return True
        return False

    try:
        tty.setcbreak(sys.stdin)
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def show(id: str, url: _Url = None, token: _Token = None, key: _Key = None, json: _Json = False) -> None:
    """Show what a compaction cut: its edits, before and after, and why."""
    from ctxproxy.cli.remote import find

    found = find(url, token, key).json("compactions", id)
    if json:
        _json(found)
        return
    from rich.console import Console
    from rich.text import Text

    from ctxproxy.monitor.screen import compaction

    console = Console(soft_wrap=True, highlight=False)
    for line, style in compaction(found):
        console.print(Text(line, style=style))


def restore(id: str, url: _Url = None, token: _Token = None, key: _Key = None, json: _Json = False) -> None:
    """Print the original of a text that was cut."""
    from ctxproxy.cli.remote import find

    data = find(url, token, key).get("archive", id)
    if json:
        _json({"id": id, "text": data.decode("utf-8", "replace")})
        return
    sys.stdout.buffer.write(data if data.endswith(b"\n") or not sys.stdout.isatty() else data + b"\n")


def stats(url: _Url = None, token: _Token = None, json: _Json = False) -> None:
    """Show the totals since the proxy started: compactions by reason, tokens removed, money, cache share."""
    from ctxproxy.cli.remote import find

    found = find(url, token).json("stats")
    if json:
        _json(found)
        return
    from ctxproxy.monitor import screen

    for line in screen.stats(found):
        typer.echo(line)


def dashboard(url: _Url = None, token: _Token = None, json: _Json = False) -> None:
    """Print the address of the dashboard. It holds the token: give it to nobody."""
    from ctxproxy.cli.remote import find

    remote = find(url, token)
    if not remote.token:
        raise ConfigError("the proxy's token is not known (--token, or CTXPROXY_TOKEN)")
    address = f"{remote.url}/ctxproxy/dashboard?token={remote.token}"
    if json:
        _json({"url": address})
    else:
        typer.echo(address)


def _json(value: Any) -> None:
    import json

    typer.echo(json.dumps(value, ensure_ascii=False))


def _plain() -> bool:
    """Whether the output can only show ASCII."""
    return "utf" not in (sys.stdout.encoding or "").lower()
