"""The event log: a YAML list that grows by one flow-style line for each event, `context_log.yaml`.

Each line is also JSON behind its dash, so that it is read back quickly. Several processes may write to one file. The
numbers, names and ids of an event are all that is in it: an event never holds the text of a message or a credential.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import threading
import time
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_args

import msgspec

from ctxproxy.monitor.events import Event, EventType

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows: appending alone keeps the lines of several processes apart
    fcntl = None

__all__ = ["EventLog", "line_of", "log_files", "read_log"]

_log = logging.getLogger("ctxproxy")
_TYPES = frozenset(get_args(EventType))
# Where the log's names, which are the Grid design's, differ from those of an event.
_NAMES = {
    "at": "timestamp",
    "session": "session_id",
    "before": "context_before",
    "after": "context_after",
    "level": "trigger_level",
    "strategies": "strategy",
}
_FIELDS = {_NAMES.get(f.name, f.name): f.name for f in fields(Event)}
_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {f.name: f.default_factory() if f.default_factory is not MISSING else f.default for f in fields(Event)}
)
_VALUES = attrgetter(*_DEFAULTS)
_NAMES_OF = tuple(_FIELDS)
_OTHERS = tuple(_DEFAULTS.values())
# What PyYAML's reader refuses raw, or reads as a line's end.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_LOCK_TRIES = 50  # of a millisecond each: a process that was stopped while it wrote must not hold up the others
_READ = 1 << 20  # bytes
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class EventLog:
    """A listener of a monitor that appends each event to a file, readable for this user only.

    At any moment the file is valid YAML, also after the process was killed: a line that was not finished is cut off
    before the next one is written. A file that can't be written to is warned of once and costs nothing else.

    Args:
        path: its folder is made where missing.
        max_bytes: over this size the file becomes `<name>.1`, the one that had that name `<name>.2` and so on.
        keep: how many such older files stay.
    """

    def __init__(self, path: str | Path, *, max_bytes: int = 16 << 20, keep: int = 3) -> None:
        self.path = Path(path).expanduser().absolute()
        self._max_bytes = max_bytes
        self._keep = keep
        self._lock = threading.Lock()
        self._fd = -1
        self._pid = 0
        self._failed = False

    def open(self) -> None:
        """Open the file, and cut off a line that an earlier process could not finish.

        Raises:
            OSError: that can't be done.
        """
        with self._lock:
            fd = self._opened()
            with _alone(fd) as alone:
                if alone:
                    _repair(fd)

    def __call__(self, event: Event) -> None:
        """Append an event."""
        data = line_of(event).encode()
        with self._lock:
            try:
                self._append(data)
            except OSError as error:
                self._close()
                if not self._failed:
                    self._failed = True
                    _log.warning(
                        "%s can't be written to: %s; events are not logged (setting: logging.log_file)",
                        self.path,
                        error.strerror or error,
                    )
            else:
                self._failed = False

    def close(self) -> None:
        with self._lock:
            self._close()

    def _append(self, data: bytes) -> None:
        for _ in range(3):
            fd = self._opened()
            with _alone(fd) as alone:
                if self._write(fd, data, alone=alone):
                    return
            self._close()
        raise OSError(errno.EAGAIN, "it is replaced all the time")

    def _write(self, fd: int, data: bytes, *, alone: bool) -> bool:
        """Write a line; False where a new file has to be opened first."""
        size = os.fstat(fd).st_size
        if alone:
            if not self._current(fd):  # another process has begun a new file meanwhile
                return False
            size = _repair(fd)
            if size and size + len(data) > self._max_bytes:
                self._rotate()
                return False
        if os.write(fd, data) < len(data):
            if alone:
                os.ftruncate(fd, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return True

    def _opened(self) -> int:
        if self._fd < 0 or self._pid != os.getpid():  # a forked process must not share the lock of its parent
            try:
                self._fd = os.open(self.path, _FLAGS, 0o600)
            except FileNotFoundError:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._fd = os.open(self.path, _FLAGS, 0o600)
            self._pid = os.getpid()
        return self._fd

    def _current(self, fd: int) -> bool:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return False
        own = os.fstat(fd)
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    def _rotate(self) -> None:
        """The caller holds the lock of the file at the path, so that nobody else does the same."""
        if self._keep < 1:
            os.unlink(self.path)
            return
        for n in range(self._keep, 0, -1):
            source = self.path if n == 1 else _older(self.path, n - 1)
            with suppress(FileNotFoundError):
                os.replace(source, _older(self.path, n))

    def _close(self) -> None:
        if self._fd >= 0 and self._pid == os.getpid():
            os.close(self._fd)
        self._fd = -1


def _older(path: Path, n: int) -> Path:
    return path.with_name(f"{path.name}.{n}")


@contextmanager
def _alone(fd: int) -> Generator[bool]:
    """The file locked, as far as others let go of it in time; whether it is."""
    if fcntl is None:
        yield True
        return
    for attempt in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(0.0001 if attempt < 10 else 0.001)
    else:
        yield False
        return
    try:
        yield True
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def _repair(fd: int) -> int:
    """Cut off what follows the last line end; the size."""
    size = os.fstat(fd).st_size
    if not size or os.pread(fd, 1, size - 1) == b"\n":
        return size
    end = size
    while end > 0:
        start = max(0, end - 4096)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    os.ftruncate(fd, end)
    return end


# -- lines


def line_of(event: Event) -> str:
    """An event as a line of the log, its end included. What is as by default is left out."""
    found = {name: _text(value) for name, value, default in zip(_NAMES_OF, _VALUES(event), _OTHERS) if value != default}
    found["timestamp"] = _time(event.at)
    found.setdefault("session_id", '""')
    if event.strategies:
        found["strategy"] = _text("+".join(event.strategies))
    compressed = event.type == "compaction" or (event.type in ("spawn", "gate") and bool(event.strategies))
    if compressed:
        found["compression_applied"] = "true"
    if compressed or event.before != event.after:
        found["tokens_saved"] = str(event.tokens_saved)
    first = {name: found.pop(name) for name in ("timestamp", "type", "session_id", "agent") if name in found}
    return "- {" + ", ".join(f'"{name}": {value}' for name, value in {**first, **found}.items()) + "}\n"


def _text(value: Any) -> str:
    """A value as JSON that YAML 1.1 reads the same way."""
    if isinstance(value, str):
        if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
            return f'"{value}"'
        text = json.dumps(_SURROGATES.sub("\ufffd", value), ensure_ascii=False)
        return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return "null"
        text = f"{value:.9f}".rstrip("0")  # YAML takes 1e-05 for a text
        return text + "0" if text.endswith(".") else text
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return "{" + ", ".join(f"{_text(str(key))}: {_text(item)}" for key, item in items) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_text, cast("tuple[Any, ...]", value))) + "]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)


def _time(at: float) -> str:
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return f'"{text.removesuffix("+00:00")}Z"'


# -- reading


def log_files(path: str | Path) -> list[Path]:
    """The files of a log that are there, the oldest first."""
    path = Path(path).expanduser()
    found = [path] if path.exists() else []
    n = 1
    while (older := _older(path, n)).exists():
        found.insert(0, older)
        n += 1
    return found


def read_log(
    path: str | Path, *, last: int | None = None, session: str | None = None, types: Collection[str] = ()
) -> list[Event]:
    """The events of a log and of its older files, oldest first; lines that are none are passed over.

    Args:
        last: only so many of the newest; then no more than these are read.
        session, types: only those of a session, or of some types.

    Raises:
        OSError: a file is there, and can't be read.
    """
    found: list[Event] = []
    for file in reversed(log_files(path)):
        for line in _lines_backward(file):
            if last is not None and len(found) >= last:
                return found[::-1]
            event = event_of(line)
            if event is None or (session is not None and event.session != session):
                continue
            if not types or event.type in types:
                found.append(event)
    return found[::-1]


def _lines_backward(path: Path) -> Iterator[bytes]:
    """The lines of a file, the last one first."""
    try:
        file = path.open("rb")
    except FileNotFoundError:  # became an older one just now
        return
    with file:
        at = file.seek(0, os.SEEK_END)
        rest = b""
        while at > 0:
            size = min(_READ, at)
            at -= size
            file.seek(at)
            lines = (file.read(size) + rest).split(b"\n")
            rest = lines[0]
            yield from reversed(lines[1:])
        yield rest


def event_of(line: bytes) -> Event | None:
    """The event of a line of a log, None where it is none."""
    line = line.strip()
    if not line.startswith(b"- "):
        return None
    data: Any
    try:
        data = msgspec.json.decode(line[2:])
    except (msgspec.DecodeError, UnicodeDecodeError):
        data = _yaml(line)
    if not isinstance(data, dict):
        return None
    values: dict[str, Any] = {}
    for key, value in cast("dict[Any, Any]", data).items():
        name = _FIELDS.get(key)
        if name is not None:
            read = _read(name, value)
            if read is not None:
                values[name] = read
    if values.get("type") not in _TYPES or "at" not in values:
        return None
    return Event(**values)


def _yaml(line: bytes) -> Any:
    """A line that a person wrote or changed."""
    import yaml

    try:
        data: Any = yaml.safe_load(line.decode("utf-8", "replace"))
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return cast("list[Any]", data)[0] if isinstance(data, list) and data else None


def _read(name: str, value: Any) -> Any:
    """A value as the field of an event has it; None where it is of another kind."""
    default = _DEFAULTS[name]
    if name == "at":
        return _seconds(value)
    if name == "strategies":
        return tuple(value.split("+")) if isinstance(value, str) else None
    if isinstance(default, tuple):
        if not isinstance(value, list):
            return None
        return tuple(str(item) for item in cast("list[Any]", value))
    if isinstance(default, Mapping):
        if not isinstance(value, dict):
            return None
        items = cast("dict[Any, Any]", value).items()
        return MappingProxyType({str(key): item for key, item in items if isinstance(item, int)})
    if name in ("cost", "saved_usd") or isinstance(default, float):
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    if name == "allowed" or isinstance(default, bool):
        return value if isinstance(value, bool) else None
    if isinstance(default, int):
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    return value if isinstance(value, str) else None


def _seconds(value: Any) -> float | None:
    if isinstance(value, datetime):  # YAML has a type for it, where it is not quoted
        value = value.isoformat()
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
