"""Which proxies run: one small file for each in the state folder, so that the command line finds them.

A file holds the address, the process id and the start-up token, and is readable for this user only.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ctxproxy.stores import state_folder

__all__ = ["Running", "announced", "running"]

_log = logging.getLogger("ctxproxy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A proxy that says that it runs. `started` is in seconds since the epoch."""

    url: str
    pid: int
    started: float
    token: str = field(repr=False)


@contextmanager
def announced(url: str, token: str | None, *, env: Mapping[str, str] | None = None) -> Generator[Path | None]:
    """Say that a proxy runs at `url` while the block runs. Where that can't be written the proxy runs all the same."""
    path: Path | None = None
    try:
        folder = _folder(env)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        value = {"url": url, "pid": os.getpid(), "started": time.time(), "token": token or ""}
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(value, file)
    except OSError as error:
        _log.warning("`ctxproxy status` will need --url and --token: %s: %s", error.filename, error.strerror)
    before = _on_end(path)
    try:
        yield path
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
        if path is not None:
            with suppress(OSError):
                path.unlink()


def _on_end(path: Path | None) -> Any:
    """Remove the file on SIGTERM too: the server ends its process by that signal, past every `finally`."""
    if path is None or threading.current_thread() is not threading.main_thread():
        return None

    def leave(number: int, _: object) -> None:
        with suppress(OSError):
            path.unlink()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return None  # whoever has a handler ends the process in an orderly way
    return signal.signal(signal.SIGTERM, leave)


def running(*, env: Mapping[str, str] | None = None) -> list[Running]:
    """The proxies of this user that run, the newest first. What a killed one left behind is removed."""
    found: list[Running] = []
    for path in sorted(_folder(env).glob("*.json")) if _folder(env).is_dir() else []:
        with suppress(OSError, ValueError, KeyError, TypeError):
            value = cast("dict[str, object]", json.loads(path.read_text("utf-8")))
            proxy = Running(
                url=str(value["url"]),
                pid=int(str(value["pid"])),
                started=float(str(value["started"])),
                token=str(value["token"]),
            )
            if _alive(proxy.pid):
                found.append(proxy)
            else:
                path.unlink()
    return sorted(found, key=lambda proxy: -proxy.started)


def _folder(env: Mapping[str, str] | None) -> Path:
    return state_folder(env) / "running"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
