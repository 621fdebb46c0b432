"""Recording requests to a file, for `ctxproxy replay`. Only where the settings say so: a recording holds texts.

One JSON object a line: `at` (seconds since the epoch), `api`, `session`, `agent`, `upstream`, `model`, `window` and
where that is from, `status`, `sent` (tokens of what was sent by our own count), `compaction` (its reason), `usage` (the
provider's figures, where it stated them) and `body` as the client sent it. Headers and keys are never in it.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ctxproxy import rawjson
from ctxproxy.errors import ConfigError
from ctxproxy.monitor import Finished

if TYPE_CHECKING:
    from ctxproxy.settings import Settings

__all__ = ["Recorder", "announce", "line_of", "recorder_of"]

_log = logging.getLogger("ctxproxy")
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Recorder:
    """Appends each finished request to a file that only this user can read. A failure is warned of once.

    Args:
        path: its folder is made where missing; the file may be there, and several processes may share it.
        max_bytes: nothing is written over this size of the file.
    """

    def __init__(self, path: str | Path, *, max_bytes: int = 256 << 20) -> None:
        self.path = Path(path).expanduser().absolute()
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._fd = -1
        self._torn = False  # the last line has no end
        self._stopped = False
        self._failed = False

    def open(self) -> None:
        """Open the file.

        Raises:
            OSError: that can't be done, or it is no regular file.
        """
        with self._lock:
            self._opened()

    def __call__(self, finished: Finished, session: str) -> None:
        """Append a request."""
        if self._stopped:
            return
        data = line_of(finished, session=session)
        with self._lock:
            try:
                self._append(data)
            except OSError as error:
                if not self._failed:
                    self._failed = True
                    _log.warning(
                        "%s can't be written to: %s; requests are not recorded (setting: recording.file)",
                        self.path,
                        error.strerror or error,
                    )

    def close(self) -> None:
        with self._lock:
            self._stopped = True
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _append(self, data: bytes) -> None:
        if self._stopped:
            return
        fd = self._opened()
        if os.fstat(fd).st_size + len(data) > self._max_bytes:
            self._stopped = True
            _log.warning(
                "%s has reached its size: nothing more is recorded (setting: recording.max_bytes, %s)",
                self.path,
                f"{self._max_bytes:,}",
            )
            return
        # One write, so that the lines of several processes do not mix.
        line = b"\n" + data if self._torn else data
        written = os.write(fd, line)
        self._torn = 0 < written < len(line) or (self._torn and not written)
        if written < len(line):
            raise OSError(None, "no room is left")

    def _opened(self) -> int:
        if self._fd < 0:
            if self.path.exists() and not self.path.is_file():  # a pipe would hold up every request
                raise OSError(None, "it is no regular file")
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.path, _FLAGS, 0o600)
            try:
                found = os.fstat(fd)
                if os.name == "posix" and stat.S_IMODE(found.st_mode) != 0o600:
                    os.chmod(self.path, 0o600)
                if found.st_size:
                    os.lseek(fd, -1, os.SEEK_END)
                    self._torn = os.read(fd, 1) != b"\n"
            except OSError:
                os.close(fd)
                raise
            self._fd = fd
        return self._fd


def line_of(finished: Finished, *, session: str) -> bytes:
    """A request as a line of a recording, its end included."""
    call, outcome, error = finished.call, finished.outcome, finished.error
    report = outcome.report if outcome else None
    prepared = outcome.prepared if outcome else None
    compaction = outcome.compaction if outcome else None
    fields: dict[str, rawjson.Json] = {
        "at": round(call.now, 3),
        "api": call.wire.api,
        "session": session,
        "agent": finished.agent,
        "upstream": _address(call.upstream),
        "model": report.model if report else error.model if error else "",
        "window": report.window if report else error.context_window if error else None,
        "window_source": report.window_source if report else "",
        "status": finished.status,
        "sent": prepared.conversation.fixed.tokens + sum(m.tokens for m in prepared.sent) if prepared else 0,
        "compaction": compaction.reason if compaction else None,
        "usage": asdict(finished.spent) if finished.spent.input or finished.spent.output else None,
    }
    # A line end can only stand between the tokens of JSON, never inside of a string.
    body = call.body.removeprefix(b"\xef\xbb\xbf").replace(b"\n", b" ").replace(b"\r", b" ").strip()
    return rawjson.dump(fields)[:-1] + b',"body":' + body + b"}\n"


def recorder_of(settings: Settings) -> Recorder | None:
    """The recorder that the settings ask for, opened; None where they ask for none.

    Raises:
        ConfigError: the file can't be opened.
    """
    name = settings.recording.file
    if name is None:
        return None
    recorder = Recorder(name, max_bytes=settings.recording.max_bytes)
    try:
        recorder.open()
    except OSError as error:
        raise ConfigError(f"recording.file: {recorder.path}: {error.strerror or error}", key="recording.file") from None
    return recorder


def announce(settings: Settings) -> None:
    """Say that bodies are recorded, where they are."""
    if settings.recording.file is not None:
        path = Path(settings.recording.file).expanduser().absolute()
        _log.warning("the bodies of requests are recorded in %s (setting: recording.file)", path)


def _address(upstream: str) -> str:
    """An upstream's address without a name and password in it."""
    parts = urlsplit(upstream)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else upstream
