from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ctxproxy.stores import SqliteStore
from ctxproxy.stores.schema import MIGRATIONS, migrate
from stores.making import entry

LATER = ("CREATE TABLE later (x)", "INSERT INTO later SELECT size FROM entries")


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def test_an_older_file_is_brought_up_to_date(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "x.db")
    store.remember(entry())
    store.close()
    db = connect(store.path)
    migrate(db, (*MIGRATIONS, LATER))
    migrate(db, (*MIGRATIONS, LATER))
    assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    assert db.execute("SELECT count(*) FROM later").fetchone() == (1,)
    db.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "x.db")
    store.remember(entry())
    store.close()
    db = connect(store.path)
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, (*MIGRATIONS, (*LATER, "no statement")))
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'later'").fetchone() == (0,)
    db.close()
    assert store.recall("chat:anna", b"first") == (entry(),)


def test_a_new_file_is_of_the_newest_version(tmp_path: Path) -> None:
    db = connect(tmp_path / "x.db")
    migrate(db)
    assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()
