"""The tables of a store file, and how an older file is brought up to date."""

from __future__ import annotations

import sqlite3

from ctxproxy.errors import LedgerError

__all__ = ["MIGRATIONS", "migrate"]

_APPLICATION = 0x63747870  # "ctxp": tells our file from another program's
_TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    # The unit of forgetting: all compactions of conversations with one first message, by last use.
    """CREATE TABLE conversations (
        id INTEGER PRIMARY KEY, scope TEXT NOT NULL, first BLOB NOT NULL, used REAL NOT NULL, UNIQUE (scope, first))""",
    "CREATE INDEX conversations_used ON conversations (used)",
    # AUTOINCREMENT: an id is never used again, so that decoded entries can be cached under it.
    """CREATE TABLE entries (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        conversation INTEGER NOT NULL REFERENCES conversations ON DELETE CASCADE,
        length INTEGER NOT NULL, chain BLOB NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL,
        UNIQUE (conversation, length, chain))""",
    # `refs` counts the entries that mention an original. The bytes are apart, so that a new date costs no copy.
    """CREATE TABLE originals (
        id INTEGER PRIMARY KEY, scope TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, size INTEGER NOT NULL,
        at REAL NOT NULL, refs INTEGER NOT NULL, UNIQUE (scope, name))""",
    "CREATE INDEX originals_unreferenced ON originals (at) WHERE refs = 0",
    "CREATE TABLE texts (id INTEGER PRIMARY KEY REFERENCES originals ON DELETE CASCADE, data BLOB NOT NULL)",
    """CREATE TABLE mentions (
        scope TEXT NOT NULL, name TEXT NOT NULL, entry INTEGER NOT NULL REFERENCES entries ON DELETE CASCADE,
        PRIMARY KEY (scope, name, entry)) WITHOUT ROWID""",
    "CREATE INDEX mentions_entry ON mentions (entry)",
    """CREATE TABLE learned (
        kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, until REAL NOT NULL,
        PRIMARY KEY (kind, key)) WITHOUT ROWID""",
    "CREATE INDEX learned_until ON learned (until)",
    "CREATE TABLE totals (kind TEXT PRIMARY KEY, count INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO totals VALUES ('entries', 0, 0), ('originals', 0, 0)",
    """CREATE TRIGGER entry_in AFTER INSERT ON entries BEGIN
        UPDATE totals SET count = count + 1, bytes = bytes + NEW.size WHERE kind = 'entries'; END""",
    """CREATE TRIGGER entry_out AFTER DELETE ON entries BEGIN
        UPDATE totals SET count = count - 1, bytes = bytes - OLD.size WHERE kind = 'entries'; END""",
    """CREATE TRIGGER original_in AFTER INSERT ON originals BEGIN
        UPDATE totals SET count = count + 1, bytes = bytes + NEW.size WHERE kind = 'originals'; END""",
    """CREATE TRIGGER original_out AFTER DELETE ON originals BEGIN
        UPDATE totals SET count = count - 1, bytes = bytes - OLD.size WHERE kind = 'originals'; END""",
    """CREATE TRIGGER mention_in AFTER INSERT ON mentions BEGIN
        UPDATE originals SET refs = refs + 1 WHERE scope = NEW.scope AND name = NEW.name; END""",
    """CREATE TRIGGER mention_out AFTER DELETE ON mentions BEGIN
        UPDATE originals SET refs = refs - 1 WHERE scope = OLD.scope AND name = OLD.name; END""",
)

# The bytes in which messages were first sent, by the digest of the conversation up to each.
_FORMS = (
    """CREATE TABLE forms (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        conversation INTEGER NOT NULL REFERENCES conversations ON DELETE CASCADE,
        key BLOB NOT NULL, data BLOB NOT NULL, UNIQUE (conversation, key))""",
    """CREATE TRIGGER form_in AFTER INSERT ON forms BEGIN
        UPDATE totals SET bytes = bytes + length(NEW.data) WHERE kind = 'entries'; END""",
    """CREATE TRIGGER form_out AFTER DELETE ON forms BEGIN
        UPDATE totals SET bytes = bytes - length(OLD.data) WHERE kind = 'entries'; END""",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_TABLES, _FORMS)
"""Statements by version: the n-th tuple makes version n out of version n - 1. Only ever append to it."""


def migrate(db: sqlite3.Connection, migrations: tuple[tuple[str, ...], ...] = MIGRATIONS) -> None:
    """Bring a file up to date, in one transaction: it is of one version or of the other, whenever the process ends.

    Raises:
        LedgerError: the file belongs to another program or to a later release.
    """
    version = _version(db, migrations)
    mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise LedgerError("its file system can't share memory between processes, as WAL mode needs")
    if version == len(migrations):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for statements in migrations[_version(db, migrations) :]:
            for statement in statements:
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {_APPLICATION}")
        db.execute(f"PRAGMA user_version = {len(migrations)}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection, migrations: tuple[tuple[str, ...], ...]) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    ours = db.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION
    if not ours and (version or db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]):
        raise LedgerError("it is a database of another program")
    if version > len(migrations):
        raise LedgerError(f"it was written by a later release: its schema is {version}, {len(migrations)} is known")
    return version
