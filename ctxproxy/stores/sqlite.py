"""A ledger, an archive and what was learned, in one SQLite file that several processes share."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ctxproxy.compaction import Original
from ctxproxy.errors import LedgerError
from ctxproxy.ledger import FORMS, Entry
from ctxproxy.stores.cache import EntryCache, FormCache
from ctxproxy.stores.codec import decode, encode
from ctxproxy.stores.database import Database

__all__ = ["SqliteStore", "StoreStatus"]

_log = logging.getLogger("ctxproxy")

_MOST_ENTRIES = 8  # of one conversation
_MOST_LEARNED = 16_384
_PARAMETERS = 500  # of one statement
_PURGE_EVERY = 60.0  # seconds
_PURGE_MOST = 20  # rows of a table in one go: bounds the wait of whoever writes
_VALUE = "SELECT value FROM learned WHERE kind = ? AND key = ? AND until > ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """What a store holds, for `doctor`. Sizes in bytes; `damaged` are files that were set aside."""

    path: Path
    file_bytes: int
    conversations: int
    entries: int
    entry_bytes: int
    originals: int
    original_bytes: int
    learned: int
    damaged: tuple[Path, ...]


class SqliteStore:
    """Implements Ledger and Archive, keeps values that expire, and a secret that outlives the process.

    What may be forgotten: a conversation's entries `ttl` seconds after their last use, an original
    `archive_ttl` seconds after it was last kept; and over a bound in bytes the least recently used
    conversation, the oldest original. An original that an entry mentions is never forgotten before the entry.
    What was used in the last `grace` seconds may be part of a request on its way: it stays, and where nothing
    else is left to forget, the store is full.

    Args:
        path: the file; it and missing folders are made, for this user only.
        ledger_bytes, archive_bytes: bounds of the entries and of the originals.
        timeout: seconds to wait for another process that writes.
        clock: seconds since the epoch.

    Raises:
        LedgerError: the file can't be opened; the same in every method. No sqlite3 error leaves this class.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        ledger_bytes: int = 256 << 20,
        archive_bytes: int = 1 << 30,
        ttl: float = 7 * 86_400.0,
        archive_ttl: float = 7 * 86_400.0,
        grace: float = 60.0,
        timeout: float = 2.0,
        clock: Callable[[], float] = time.time,
        setting: str = "ledger.url",
    ) -> None:
        self._bytes = {"entries": ledger_bytes, "originals": archive_bytes}
        self._ttl = ttl
        self._archive_ttl = archive_ttl
        self._grace = grace
        self._clock = clock
        self._purged = -_PURGE_EVERY
        self._untouchable = 0.0
        self._cache = EntryCache()
        self._forms = FormCache()
        self._db = Database(Path(path).expanduser().absolute(), setting=setting, timeout=timeout)
        with self._db.read():
            pass

    @property
    def path(self) -> Path:
        return self._db.path

    def secret(self) -> bytes:
        """32 random bytes that the file was made with: the key of scopes and archive ids, the same in all workers."""
        with self._db.read():
            return self._db.secret

    # -- the ledger

    def recall(self, scope: str, first: bytes) -> Sequence[Entry]:
        """The entries of a scope whose conversation begins with the message digest `first`, oldest first."""
        now = self._clock()
        with self._db.read() as db:
            cache = self._cache.of(self._db.generation)
            rows = db.execute(
                "SELECT e.id, c.id, c.used FROM conversations c JOIN entries e ON e.conversation = c.id"
                " WHERE c.scope = ? AND c.first = ? AND c.used > ? ORDER BY e.id",
                (scope, first, now - self._ttl + min(self._grace, self._ttl / 2)),  # not while a request is on its way
            ).fetchall()
            found = [cache.get(id) or self._load(db, cache, id) for id, _, _ in rows]
        if rows and abs(now - rows[0][2]) > self._grace / 2:
            self._touch(rows[0][1], now)
        return tuple(entry for entry in found if entry is not None)

    def find(self, scope: str, id: str) -> Entry | None:
        """The entry of a compaction, None where it is not there or belongs to another scope. Reads all of the scope."""
        with self._db.read() as db:
            rows = db.execute(
                "SELECT data FROM entries JOIN conversations c ON c.id = conversation"
                " WHERE c.scope = ? AND instr(data, CAST(? AS BLOB)) > 0 ORDER BY entries.id DESC LIMIT 64",
                (scope, id),
            ).fetchall()
        for (data,) in rows:
            with suppress(LedgerError):
                entry = decode(data)
                if entry.compaction.id == id:
                    return entry
        return None

    def _load(self, db: sqlite3.Connection, cache: EntryCache, id: int) -> Entry | None:
        row = db.execute("SELECT data FROM entries WHERE id = ?", (id,)).fetchone()
        if row is None:  # another process replaced it between the two statements
            return None
        try:
            entry = decode(row[0])
        except LedgerError as error:  # the others of this conversation may be fine
            _log.warning("%s: %s", self.path, error)
            return None
        cache.put(id, entry)
        return entry

    def _touch(self, conversation: int, now: float) -> None:
        """Note the use of a conversation. That must never cost a request its replay, so it does not wait."""
        if now < self._untouchable:
            return
        try:
            with self._db.write(wait=False) as db:
                db.execute("UPDATE conversations SET used = ? WHERE id = ?", (now, conversation))
                self._purge_if_due(db, now)
        except LedgerError as error:
            self._untouchable = now + self._grace / 2
            _log.debug("a use was not noted: %s", error)

    def remember(self, entry: Entry) -> None:
        """Keep an entry; it takes the place of one with the same prefix."""
        data = encode(entry)
        now = self._clock()
        with self._db.write() as db:
            db.execute(
                "INSERT INTO conversations (scope, first, used) VALUES (?, ?, ?)"
                " ON CONFLICT (scope, first) DO UPDATE SET used = max(used, excluded.used)",
                (entry.scope, entry.first, now),
            )
            conversation: int = db.execute(
                "SELECT id FROM conversations WHERE scope = ? AND first = ?", (entry.scope, entry.first)
            ).fetchone()[0]
            names = _mentioned(db, conversation, entry)
            db.execute(
                "DELETE FROM entries WHERE conversation = ? AND length = ? AND chain = ?",
                (conversation, entry.length, entry.chain),
            )
            id = db.execute(
                "INSERT INTO entries (conversation, length, chain, size, data) VALUES (?, ?, ?, ?, ?)",
                (conversation, entry.length, entry.chain, len(data), data),
            ).lastrowid
            db.executemany("INSERT INTO mentions VALUES (?, ?, ?)", [(entry.scope, name, id) for name in names])
            db.execute(
                "DELETE FROM entries WHERE conversation = ? AND id NOT IN"
                " (SELECT id FROM entries WHERE conversation = ? ORDER BY id DESC LIMIT ?)",
                (conversation, conversation, _MOST_ENTRIES),
            )
            self._make_room(db, "entries", now)
            self._purge_if_due(db, now)

    def forms(self, scope: str, first: bytes, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Of these keys those whose form is known."""
        with self._db.read() as db:
            cache = self._forms.of(self._db.generation)
            found = cache.get(scope, first, keys)
            missing = [key for key in keys if key not in found]
            for i in range(0, len(missing), _PARAMETERS):
                some = missing[i : i + _PARAMETERS]
                rows = db.execute(
                    "SELECT key, data FROM forms JOIN conversations c ON c.id = conversation"  # noqa: S608
                    f" WHERE c.scope = ? AND c.first = ? AND key IN ({','.join('?' * len(some))})",
                    (scope, first, *some),
                ).fetchall()
                cache.put(scope, first, rows)
                found.update(rows)
        return found

    def keep_forms(self, scope: str, first: bytes, forms: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep forms of messages, where the conversation has an entry; they go with it."""
        now = self._clock()
        with self._db.write() as db:
            row = db.execute("SELECT id FROM conversations WHERE scope = ? AND first = ?", (scope, first)).fetchone()
            if row is None:
                return
            rows = [(row[0], key, form) for key, form in forms]
            db.executemany("DELETE FROM forms WHERE conversation = ? AND key = ?", [r[:2] for r in rows])
            db.executemany("INSERT INTO forms (conversation, key, data) VALUES (?, ?, ?)", rows)
            db.execute(
                "DELETE FROM forms WHERE conversation = ? AND id <="
                " (SELECT id FROM forms WHERE conversation = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (row[0], row[0], FORMS),
            )
            self._make_room(db, "entries", now)
        with self._db.read():
            self._forms.of(self._db.generation).put(scope, first, forms)

    # -- the archive

    def keep(self, scope: str, originals: Sequence[Original]) -> None:
        """Keep originals, all or none. Those already there are left alone, but count as new."""
        now = self._clock()
        with self._db.write() as db:
            for original in originals:
                key = (scope, original.id)
                if db.execute("UPDATE originals SET at = ? WHERE scope = ? AND name = ?", (now, *key)).rowcount:
                    continue
                id = db.execute(
                    "INSERT INTO originals (scope, name, kind, size, at, refs)"
                    " SELECT ?, ?, ?, ?, ?, count(*) FROM mentions WHERE scope = ? AND name = ?",
                    (*key, original.kind, len(original.data), now, *key),
                ).lastrowid
                db.execute("INSERT INTO texts VALUES (?, ?)", (id, original.data))
            self._make_room(db, "originals", now)
            self._purge_if_due(db, now)

    def restore(self, scope: str, id: str) -> bytes | None:
        """The bytes of one original, None where it is not there, has expired or belongs to another scope."""
        try:
            id.encode()
        except UnicodeEncodeError:
            return None
        oldest = self._clock() - self._archive_ttl
        with self._db.read() as db:
            row = db.execute(
                "SELECT data FROM originals JOIN texts USING (id)"
                " WHERE scope = ? AND name = ? AND (refs > 0 OR at > ?)",
                (scope, id, oldest),
            ).fetchone()
        return bytes(row[0]) if row else None

    # -- references, for an archive elsewhere

    def mentioned(self) -> Collection[tuple[str, str]]:
        """(scope, id) of all originals that entries mention."""
        with self._db.read() as db:
            return db.execute("SELECT DISTINCT scope, name FROM mentions").fetchall()

    def forget(self, scope: str, id: str) -> None:
        """Forget the entries that mention an original, because it is about to go."""
        with self._db.write() as db:
            db.execute(
                "DELETE FROM entries WHERE id IN (SELECT entry FROM mentions WHERE scope = ? AND name = ?)", (scope, id)
            )

    # -- values that expire

    def get(self, kind: str, key: str) -> bytes | None:
        """A value, None where there is none or it has expired."""
        with self._db.read() as db:
            row = db.execute(_VALUE, (kind, key, self._clock())).fetchone()
        return row[0] if row else None

    def items(self, kind: str) -> dict[str, bytes]:
        """All values of a kind by their key."""
        with self._db.read() as db:
            query = "SELECT key, value FROM learned WHERE kind = ? AND until > ?"
            return dict(db.execute(query, (kind, self._clock())).fetchall())

    def update(self, kind: str, key: str, change: Callable[[bytes | None], bytes], *, ttl: float) -> bytes:
        """Change a value in one transaction, so that no other process's change is lost. It lives `ttl` seconds on.

        `change` is given the old value, None where there is none, and returns the new one.
        """
        now = self._clock()
        with self._db.write() as db:
            row = db.execute(_VALUE, (kind, key, now)).fetchone()
            value = change(row[0] if row else None)
            db.execute("INSERT OR REPLACE INTO learned VALUES (?, ?, ?, ?)", (kind, key, value, now + ttl))
            self._purge_if_due(db, now)
        return value

    # -- upkeep

    def purge(self) -> None:
        """Forget what has expired. Every method that writes does so once a minute."""
        with self._db.write() as db:
            while not self._purge(db, self._clock()):
                pass

    def status(self) -> StoreStatus:
        """What is stored."""
        with self._db.read() as db:
            totals = {kind: (count, size) for kind, count, size in db.execute("SELECT * FROM totals").fetchall()}
            return StoreStatus(
                path=self.path,
                file_bytes=self.path.stat().st_size,
                conversations=db.execute("SELECT count(*) FROM conversations").fetchone()[0],
                entries=totals["entries"][0],
                entry_bytes=totals["entries"][1],
                originals=totals["originals"][0],
                original_bytes=totals["originals"][1],
                learned=db.execute("SELECT count(*) FROM learned").fetchone()[0],
                damaged=self._db.set_aside(),
            )

    def scopes(self) -> Sequence[str]:
        """The scopes that originals were kept for."""
        with self._db.read() as db:
            return [scope for (scope,) in db.execute("SELECT DISTINCT scope FROM originals ORDER BY scope").fetchall()]

    def check(self) -> Sequence[str]:
        """Read the whole file and say what is wrong with it; [] where it is sound. Takes seconds for a large file."""
        with self._db.read() as db:
            found = [problem for (problem,) in db.execute("PRAGMA quick_check").fetchall()]
        return [] if found == ["ok"] else found

    def close(self) -> None:
        """Give the file back. The next call opens it again."""
        self._db.close()

    def _make_room(self, db: sqlite3.Connection, kind: str, now: float) -> None:
        """Forget until the bound holds. What was just put in is never what goes."""
        before = now - self._grace
        while True:
            size: int = db.execute("SELECT bytes FROM totals WHERE kind = ?", (kind,)).fetchone()[0]
            over = size - self._bytes[kind]
            if over <= 0 or (kind == "originals" and _drop_originals(db, over, before)):
                return
            if not _drop_conversation(db, before):
                setting = "ledger.max_bytes" if kind == "entries" else "archive.max_bytes"
                raise self._db.error(f"its {kind} are full: {self._bytes[kind]:,} bytes", setting=setting)

    def _purge_if_due(self, db: sqlite3.Connection, now: float) -> None:
        if abs(now - self._purged) >= _PURGE_EVERY and self._purge(db, now):
            self._purged = now

    def _purge(self, db: sqlite3.Connection, now: float) -> bool:
        """Forget some of what has expired; whether that was all."""
        db.execute(
            "DELETE FROM learned WHERE (kind, key) IN (SELECT kind, key FROM learned ORDER BY until"
            " LIMIT max(0, (SELECT count(*) FROM learned) - ?))",
            (_MOST_LEARNED,),
        )
        db.execute("DELETE FROM learned WHERE until <= ?", (now,))
        conversations = db.execute(
            "DELETE FROM conversations WHERE id IN (SELECT id FROM conversations WHERE used <= ? LIMIT ?)",
            (now - self._ttl, _PURGE_MOST),
        )
        originals = db.execute(
            "DELETE FROM originals WHERE id IN (SELECT id FROM originals WHERE refs = 0 AND at <= ? LIMIT ?)",
            (now - self._archive_ttl, _PURGE_MOST),
        )
        return conversations.rowcount < _PURGE_MOST and originals.rowcount < _PURGE_MOST


def _mentioned(db: sqlite3.Connection, conversation: int, entry: Entry) -> set[str]:
    """The originals that an entry mentions: its own, and those of an earlier entry whose texts it took over."""
    own = set(entry.compaction.archived)
    rows = db.execute(
        "SELECT DISTINCT name FROM mentions JOIN entries ON entries.id = mentions.entry WHERE conversation = ?",
        (conversation,),
    ).fetchall()
    texts = [item for item in entry.items if isinstance(item, bytes)]
    return own | {name for (name,) in rows if name not in own and any(name.encode() in text for text in texts)}


def _drop_originals(db: sqlite3.Connection, over: int, before: float) -> bool:
    """Forget unreferenced originals, the oldest first; whether `over` bytes are free now."""
    rows = db.execute("SELECT id, size FROM originals WHERE refs = 0 AND at < ? ORDER BY at", (before,))
    gone: list[tuple[int]] = []
    for id, size in rows:
        if over <= 0:
            break
        gone.append((id,))
        over -= size
    rows.close()
    db.executemany("DELETE FROM originals WHERE id = ?", gone)
    return over <= 0


def _drop_conversation(db: sqlite3.Connection, before: float) -> bool:
    """Forget the least recently used conversation; whether there was one."""
    query = "DELETE FROM conversations WHERE id = (SELECT id FROM conversations WHERE used < ? ORDER BY used LIMIT 1)"
    return db.execute(query, (before,)).rowcount > 0
