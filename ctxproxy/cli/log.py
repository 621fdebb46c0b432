"""`ctxproxy log`: what happened, from the event log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, get_args

import typer

from ctxproxy.errors import ConfigError

if TYPE_CHECKING:
    from ctxproxy.monitor import Event

__all__ = ["log", "log_path"]

_PAUSE = 0.3  # seconds between two looks at a file that is followed


def log(
    grid: Annotated[bool, typer.Option("--grid", help="Print nested YAML: sessions, each with its events.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, with the log's names.")] = False,
    session: Annotated[str | None, typer.Option(help="Only this session.", metavar="ID")] = None,
    type: Annotated[
        str | None, typer.Option(help="Only spawn, request, compaction, overflow, gate or checkpoint.")
    ] = None,
    tail: Annotated[int | None, typer.Option(help="Only so many of the newest.", min=0)] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with new events until interrupted.")] = False,
    file: Annotated[Path | None, typer.Option(help="The log; by default the proxy's.")] = None,
    config: Annotated[str | None, typer.Option(help="Settings in YAML [env: CTXPROXY_CONFIG].", metavar="FILE")] = None,
) -> None:
    """Print the event log.

    Requests, compactions, overflows, spawns, gates and checkpoints, oldest first.
    """
    from ctxproxy.monitor.events import EventType
    from ctxproxy.monitor.log import read_log

    known = get_args(EventType)
    if type is not None and type not in known:
        raise ConfigError(f"--type: there is no {type!r}; there are {', '.join(known)}")
    if grid and (json or follow):
        raise ConfigError("--grid prints one document: it goes with neither --json nor --follow")
    path = log_path(file, config)
    if not path.exists() and not follow:
        raise ConfigError(f"{path}: there is no such log (option: --file; `ctxproxy serve` writes one)")
    types = (type,) if type else ()
    if grid:
        import yaml

        from ctxproxy.monitor.lines import nested

        events = read_log(path, last=tail, session=session, types=types)
        yaml.safe_dump(nested(events), sys.stdout, sort_keys=False, allow_unicode=True, width=120)
        return
    # Before the events are read, so that none between is missed.
    new = _new_lines(path) if follow else iter(())
    for event in read_log(path, last=tail, session=session, types=types):
        _print(event, json=json)
    try:
        for event in new:
            if (session is None or event.session == session) and (type is None or event.type == type):
                _print(event, json=json)
    except KeyboardInterrupt:
        return


def log_path(file: Path | None, config: str | None) -> Path:
    """The log that is meant: the one given, the one of the settings, or the proxy's by default."""
    if file is not None:
        return file
    from ctxproxy.config import load
    from ctxproxy.stores import state_folder

    named = load(config).logging.log_file
    return Path(named).expanduser() if named else state_folder() / "context_log.yaml"


def _print(event: Event, *, json: bool) -> None:
    from ctxproxy.monitor.lines import human
    from ctxproxy.monitor.log import line_of

    text = line_of(event).removeprefix("- ").rstrip("\n") if json else human(event)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _new_lines(path: Path) -> Iterator[Event]:
    """The events that are written from the call on, across rotations; never ends."""
    file = path.open("rb") if path.exists() else None
    if file is not None:
        file.seek(0, os.SEEK_END)
    return _follow(path, file)


def _follow(path: Path, file: BinaryIO | None) -> Iterator[Event]:
    from ctxproxy.monitor.log import event_of

    rest, replaced = b"", False
    while True:
        chunk = file.read() if file is not None else b""
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (event for event in map(event_of, lines) if event is not None)
        if chunk:
            continue
        with suppress(FileNotFoundError):
            if replaced:  # and what was written to the old file before is read
                new = path.open("rb")
                if file is not None:
                    file.close()
                file, rest, replaced = new, b"", False
                continue
            found = path.stat()
            replaced = file is None or found.st_ino != os.fstat(file.fileno()).st_ino
        if not replaced:
            time.sleep(_PAUSE)
