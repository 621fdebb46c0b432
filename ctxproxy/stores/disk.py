"""An archive of plain files, for people and agents that share the disk."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ctxproxy.compaction import Original
from ctxproxy.errors import LedgerError

__all__ = ["DiskArchive", "References"]

_log = logging.getLogger("ctxproxy")

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = re.compile(r"[0-9a-f]{32}")
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")
_SCAN_EVERY = 600.0  # seconds
_SCAN_SHARE = 16  # also after this part of the bound was added
_ABANDONED = 3_600.0  # seconds after which a file that was never finished goes


class References(Protocol):
    """A ledger that knows which originals its entries mention."""

    def mentioned(self) -> Collection[tuple[str, str]]:
        """(scope, id) of all originals that entries mention."""
        ...

    def forget(self, scope: str, id: str) -> None:
        """Forget the entries that mention an original."""
        ...


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    size: int
    at: int  # nanoseconds

    @property
    def key(self) -> tuple[str, str]:
        return self.path.parent.name, self.path.name


class DiskArchive:
    """Originals as files `FOLDER/<hash of the scope>/<id>`, readable for this user only.

    A file is there whole or not at all, and survives the end of the process as soon as `keep` has returned (not
    a power failure: nothing is flushed to the disk).

    Originals go `ttl` seconds after they were last kept, and over `max_bytes` the oldest first. One that
    `references` knows stays until everything else is gone, and its entries go first. What was kept in the last `grace`
    seconds may be part of a request on its way and stays; where nothing else is left, the archive is full.
    Several processes may share a folder; each looks at the others' files from time to time only, so that the
    bound may be passed by a sixteenth for each.

    Args:
        folder: made where missing.
        clock: seconds since the epoch.

    Raises:
        LedgerError: the folder can't be written to, or it is full. The same in every method.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        ttl: float = 7 * 86_400.0,
        max_bytes: int = 1 << 30,
        grace: float = 60.0,
        references: References | None = None,
        clock: Callable[[], float] = time.time,
        setting: str = "archive.dir",
    ) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self._ttl = ttl
        self._max_bytes = max_bytes
        self._grace = grace
        self._references = references
        self._clock = clock
        self._setting = setting
        self._bytes = 0
        self._added = 0
        self._scanned = -_SCAN_EVERY
        self._lock = threading.Lock()
        with self._faults():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, scope: str, id: str) -> Path | None:
        """Where an original lies, or would; None for what is no id."""
        return self.folder / _folder_of(scope) / id if _ID.fullmatch(id) else None

    def keep(self, scope: str, originals: Sequence[Original]) -> None:
        """Keep originals. Those already there are left alone, but count as new."""
        now = self._clock()
        with self._lock, self._faults():
            new = [original for original in originals if not self._renew(scope, original.id, now)]
            size = sum(len(original.data) for original in new)
            self._tidy_if_due(now, size)
            if self._bytes + size > self._max_bytes:
                raise self._error(f"full: {self._max_bytes:,} bytes", setting="archive.max_bytes")
            for original in new:
                self._write(scope, original, now)
                self._bytes += len(original.data)
                self._added += len(original.data)

    def restore(self, scope: str, id: str) -> bytes | None:
        """The bytes of one original, None where it is not there, has expired or belongs to another scope."""
        path = self.path(scope, id)
        if path is None:
            return None
        with self._lock, self._faults():
            self._tidy_if_due(self._clock())
            try:
                handle = os.open(path, os.O_RDONLY | _FLAGS)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                if error.errno == errno.ELOOP:  # a link is none of our files
                    return None
                raise
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    return None
                with open(handle, "rb", closefd=False) as file:
                    return file.read()
            finally:
                os.close(handle)

    def purge(self) -> None:
        """Forget what has expired. `keep` and `restore` do so every ten minutes."""
        with self._lock, self._faults():
            self._tidy(self._clock(), 0)

    def size(self) -> tuple[int, int]:
        """How many originals are there, and their bytes."""
        with self._faults():
            sizes = [file.size for file in self._files()]
        return len(sizes), sum(sizes)

    # -- files

    def _renew(self, scope: str, id: str, now: float) -> bool:
        """Date an original anew; whether it is there."""
        path = self.path(scope, id)
        if path is None:
            raise self._error(f"{id!r} can't be the name of a file")
        try:
            os.utime(path, ns=(_ns(now), _ns(now)))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _write(self, scope: str, original: Original, now: float) -> None:
        folder = self.folder / _folder_of(scope)
        draft = folder / f".new-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(draft, flags, 0o600)
        except FileNotFoundError:  # another process has just tidied the empty folder away
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(draft, flags, 0o600)
        try:
            with open(handle, "wb") as file:
                file.write(original.data)
            os.utime(draft, ns=(_ns(now), _ns(now)))
            os.replace(draft, folder / original.id)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise

    def _files(self) -> Generator[_File]:
        """All originals; what a process that ended left unfinished is removed on the way."""
        abandoned = time.time() - _ABANDONED
        with suppress(FileNotFoundError):
            for folder in list(os.scandir(self.folder)):
                if not folder.is_dir(follow_symlinks=False) or not _FOLDER.fullmatch(folder.name):
                    continue
                for found in list(os.scandir(folder)):
                    with suppress(FileNotFoundError):  # another process tidies too
                        status = found.stat(follow_symlinks=False)
                        if _ID.fullmatch(found.name):
                            yield _File(Path(found.path), status.st_size, status.st_mtime_ns)
                        elif status.st_mtime < abandoned:
                            os.unlink(found.path)

    # -- retention

    def _tidy_if_due(self, now: float, more: int = 0) -> None:
        due = abs(now - self._scanned) >= _SCAN_EVERY or self._added > self._max_bytes // _SCAN_SHARE
        if due or self._bytes + more > self._max_bytes:
            self._tidy(now, more)

    def _tidy(self, now: float, more: int) -> None:
        """Forget what has expired, and make room for `more` bytes."""
        files = sorted(self._files(), key=lambda file: file.at)
        self._bytes = sum(file.size for file in files)
        self._added = 0
        self._scanned = now
        try:
            live = {(_folder_of(scope), id): (scope, id) for scope, id in self._mentioned()}
            for file in files:
                if file.at <= _ns(now - self._ttl) and file.key not in live:
                    self._remove(file)
            if self._bytes + more <= self._max_bytes:
                return
            room = self._max_bytes - max(more, self._max_bytes // _SCAN_SHARE)
            for file in sorted(files, key=lambda file: (file.key in live, file.at)):
                if self._bytes <= room:
                    return
                if file.at < _ns(now - self._grace) and file.path.exists():
                    if self._references is not None and file.key in live:
                        self._references.forget(*live[file.key])
                    self._remove(file)
        except LedgerError as error:  # while it is not known what is mentioned, nothing goes
            _log.warning("%s: nothing was removed: %s", self.folder, error)

    def _mentioned(self) -> Collection[tuple[str, str]]:
        return self._references.mentioned() if self._references is not None else ()

    def _remove(self, file: _File) -> None:
        """Remove a file, unless another process keeps it again at this very moment: it is moved out of sight first."""
        gone = file.path.with_name(f".old-{secrets.token_hex(8)}")
        with suppress(FileNotFoundError):
            os.rename(file.path, gone)
            if os.stat(gone).st_mtime_ns != file.at:
                os.replace(gone, file.path)
                return
            os.unlink(gone)
            self._bytes -= file.size
            with suppress(OSError):  # not empty
                file.path.parent.rmdir()

    # -- faults

    @contextmanager
    def _faults(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(error.strerror or str(error)) from error

    def _error(self, reason: str, *, setting: str | None = None) -> LedgerError:
        return LedgerError(f"{self.folder}: {reason} (setting: {setting or self._setting})")


def _folder_of(scope: str) -> str:
    return hashlib.sha256(scope.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
