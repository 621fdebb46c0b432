"""An SQLite file that several threads and processes share: connections, transactions, faults, damage.

Commits survive the end of the process at any moment: WAL mode appends each one to the log before it counts, and
what was written to a file stays in the system's cache when a process dies. `synchronous = NORMAL` keeps the file
sound when the power fails too; the commits of the last moments may be lost then, which FULL would prevent at the
price of a disk flush (milliseconds) for each.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ctxproxy.errors import LedgerError
from ctxproxy.stores.schema import migrate

if sys.platform != "win32":
    import fcntl

__all__ = ["Database"]

_log = logging.getLogger("ctxproxy")

_CHECKPOINT = 4 << 20  # bytes of log after which it is copied into the file
_LONGEST = 8_192  # pages of log after which writers have to wait, so that it can begin anew
_ASIDE = 3  # damaged files that are kept
_SECRET = "SELECT value FROM meta WHERE name = 'secret'"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_WORDS = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked by another thread",
    sqlite3.SQLITE_READONLY: "is read-only, or its folder is",
    sqlite3.SQLITE_FULL: "is full, or its disk is",
    sqlite3.SQLITE_CANTOPEN: "can't be opened; the file and its folder must be readable and writable",
    sqlite3.SQLITE_PERM: "can't be opened",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is damaged",
}


@dataclass(frozen=True, slots=True)
class _Connections:
    """One for reading, that never waits for a writer, and one for writing; the file that they belong to."""

    reader: sqlite3.Connection
    writer: sqlite3.Connection
    file: tuple[int, int]


class Database:
    """A store file. Opened when first used; opened anew where the file was removed, replaced or damaged.

    A damaged file is renamed to `NAME.corrupt-TIME` and a new one begun, with a warning.

    Args:
        path: the file; missing folders are made.
        setting: the config key that names the file, for messages.
        timeout: seconds to wait for another process that writes. While one keeps the file locked beyond
            that, later calls do not wait at all.

    Every sqlite3 error leaves this class as LedgerError.
    """

    def __init__(self, path: Path, *, setting: str, timeout: float) -> None:
        self.path = path
        self.setting = setting
        self.secret = b""
        self.generation = 0  # grows with each file that is opened: what was cached of another one is void
        self._timeout = timeout
        self._inherited: list[object] = []
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._open: _Connections | None = None
        self._opening = threading.Lock()
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._patient = True
        self._copied = 0
        self._copier: threading.Thread | None = None

    @contextmanager
    def read(self) -> Generator[sqlite3.Connection]:
        """A connection to read with."""
        self._check_fork()
        with self._reading, self._faults():
            yield self._connections().reader

    @contextmanager
    def write(self, *, wait: bool = True) -> Generator[sqlite3.Connection]:
        """A transaction: all of it counts or nothing. Without `wait` it fails at once where another one runs."""
        self._check_fork()
        if not self._writing.acquire(timeout=self._timeout if wait else 0):
            raise self.error(_WORDS[sqlite3.SQLITE_LOCKED])
        try:
            with self._faults():
                db = self._connections().writer
                self._begin(db, wait=wait)
                try:
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise
                self._copy_log()
        finally:
            self._writing.release()

    def error(self, reason: str, *, setting: str | None = None) -> LedgerError:
        """A LedgerError that names the file and the setting."""
        return LedgerError(f"{self.path}: {reason} (setting: {setting or self.setting})")

    def set_aside(self) -> tuple[Path, ...]:
        """The damaged files that were renamed, oldest first."""
        found = self.path.parent.glob(f"{self.path.name}.corrupt-*")
        return tuple(sorted(p for p in found if not p.name.endswith(("-wal", "-shm"))))

    def close(self) -> None:
        """Give the file back. The next call opens it again."""
        self._check_fork()
        if self._copier is not None:
            self._copier.join()
        with self._reading, self._writing, self._opening:
            if self._open is not None:
                self._open.reader.close()
                self._open.writer.close()
                self._open = None

    # -- connections

    def _check_fork(self) -> None:
        """A forked process must neither use nor close what it inherited (sqlite.org/howtocorrupt.html, 2.6)."""
        if self._pid != os.getpid():
            self._inherited.append(self._open)
            self._start()

    def _connections(self) -> _Connections:
        found = self._open
        if found is None or not self._same(found):
            with self._opening:
                found = self._open
                if found is None or not self._same(found):
                    found = self._open = self._reopen()
                    self.generation += 1
        return found

    def _same(self, found: _Connections) -> bool:
        """Whether the path still leads to the file that is open: another worker may have set it aside."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return (status.st_dev, status.st_ino) == found.file

    def _reopen(self) -> _Connections:
        with self._alone():
            for _ in range(2):
                try:
                    return self._connect()
                except sqlite3.DatabaseError as error:
                    if _code(error) not in _DAMAGED:
                        raise
                    self._rename()
            return self._connect()

    def _connect(self) -> _Connections:
        # Before SQLite makes it: its log files get the same mode.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)) if not self.path.exists() else None
        with suppress(OSError):  # another user's file may be readable all the same
            if self.path.stat().st_mode & 0o077:
                self.path.chmod(0o600)
        writer = self._connection()
        try:
            migrate(writer)
            self._agree_on_secret(writer)
        except LedgerError as error:
            raise self.error(str(error)) from None
        status = os.stat(self.path)
        return _Connections(self._connection(), writer, (status.st_dev, status.st_ino))

    def _connection(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=self._timeout, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA secure_delete = ON")  # what was forgotten must not be found in the file
        db.execute("PRAGMA journal_size_limit = 0")
        db.execute(f"PRAGMA wal_autocheckpoint = {4 * _LONGEST}")  # where no thread can be started
        return db

    def _agree_on_secret(self, db: sqlite3.Connection) -> None:
        """The key of scopes and archive ids: the file's, else the one in use, else a new one."""
        if db.execute(_SECRET).fetchone() is None:
            new = self.secret or secrets.token_bytes(32)
            db.execute("INSERT OR IGNORE INTO meta VALUES ('secret', ?)", (new,))
        self.secret = bytes(db.execute(_SECRET).fetchone()[0])

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Opening and renaming are for one process at a time."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = -1
        if sys.platform != "win32":
            with suppress(OSError):  # nothing is made or renamed in a folder that can't be written to
                lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if sys.platform != "win32" and lock >= 0:
                until = time.monotonic() + self._timeout
                while True:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        if time.monotonic() > until:
                            raise self.error(_WORDS[sqlite3.SQLITE_BUSY]) from None
                        time.sleep(0.01)
            yield
        finally:
            if lock >= 0:
                os.close(lock)

    # -- faults

    @contextmanager
    def _faults(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = _code(error)
            reason = _WORDS.get(code, f"failed: {error}")
            if code in _DAMAGED:
                with suppress(sqlite3.Error, OSError, LedgerError):
                    self._replace()
            raise self.error(reason) from error
        except OSError as error:
            raise self.error(f"can't be opened: {error.strerror or error}") from error
        except (UnicodeError, OverflowError) as error:
            raise self.error(f"can't hold a value: {error}") from error

    def _replace(self) -> None:
        """Set the open file aside, unless another process did already."""
        with self._opening:
            found, self._open = self._open, None
            if found is not None and self._same(found):
                with self._alone():
                    if self._same(found):
                        self._rename()

    def _rename(self) -> None:
        aside = self.path.with_name(f"{self.path.name}.corrupt-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}")
        for end in ("-shm", "-wal", ""):  # the log first: a new file must never meet an old log
            with suppress(FileNotFoundError):
                os.replace(f"{self.path}{end}", f"{aside}{end}")
        _log.warning(
            "%s is damaged: it is kept as %s and a new one is begun (setting: %s)", self.path, aside, self.setting
        )
        for old in self.set_aside()[:-_ASIDE]:
            for end in ("", "-wal", "-shm"):
                with suppress(OSError):
                    os.unlink(f"{old}{end}")

    # -- transactions

    def _begin(self, db: sqlite3.Connection, *, wait: bool) -> None:
        patient = wait and self._patient
        db.execute(f"PRAGMA busy_timeout = {int(self._timeout * 1_000) if patient else 0}")
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            self._patient = self._patient and not patient
            raise
        self._patient = True

    def _copy_log(self) -> None:
        """Start to copy the log into the file where it has grown: that flushes the disk, so not in this thread."""
        try:
            size = os.stat(f"{self.path}-wal").st_size
        except OSError:
            return
        self._copied = min(self._copied, size)
        if size - self._copied >= _CHECKPOINT and not (self._copier and self._copier.is_alive()):
            self._copied = size
            copier = threading.Thread(target=self._checkpoint, name="ctxproxy-checkpoint")
            with suppress(RuntimeError):  # the interpreter is shutting down
                copier.start()
                self._copier = copier

    def _checkpoint(self) -> None:
        try:
            db = sqlite3.connect(self.path, timeout=0.1, isolation_level=None)  # writers wait as long, for readers
            try:
                db.execute("PRAGMA synchronous = NORMAL")
                _, pages, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if pages > _LONGEST:
                    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                db.close()
        except sqlite3.Error as error:  # the next write sees it too
            _log.debug("%s: its log was not copied: %s", self.path, error)


def _code(error: sqlite3.Error) -> int:
    """The primary result code of SQLite, 0 where the error has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
