from __future__ import annotations

import os
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxproxy.errors import LedgerError
from ctxproxy.stores import SqliteStore
from stores.making import entry, noise, original, start

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX processes and file modes")

NOBODY = 65_534


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def calls(store: SqliteStore) -> dict[str, Callable[[], object]]:
    return {
        "recall": lambda: store.recall("s", b"first"),
        "remember": lambda: store.remember(entry(scope="s")),
        "keep": lambda: store.keep("s", [original("new", noise(20_000, 1))]),
        "restore": lambda: store.restore("s", "a1"),
        "update": lambda: store.update("k", "x", lambda _: b"1", ttl=1),
        "get": lambda: store.get("k", "x"),
        "secret": store.secret,
        "status": store.status,
        "purge": store.purge,
        "check": store.check,
    }


def outcomes(store: SqliteStore) -> dict[str, str]:
    """What each method came to: its LedgerError in words, or "" where it worked. No other error is let through."""
    found: dict[str, str] = {}
    for name, call in calls(store).items():
        try:
            call()
        except LedgerError as error:
            found[name] = str(error)
        else:
            found[name] = ""
    return found


# --- the file


@posix
def test_only_this_user_can_read_the_files(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "state" / "ctxproxy" / "ledger.db")
        store.keep("s", [original("a1")])
    finally:
        os.umask(old)
    assert mode(store.path.parent) == 0o700
    files = list(store.path.parent.iterdir())
    assert {f.name for f in files} == {"ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db.lock"}
    assert {mode(f) for f in files} == {0o600}


@posix
def test_a_file_that_others_can_read_is_closed_to_them(file: Path) -> None:
    SqliteStore(file).close()
    file.chmod(0o644)
    SqliteStore(file)
    assert mode(file) == 0o600


def test_a_file_of_another_program_is_not_touched(file: Path) -> None:
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = file.read_bytes()
    with pytest.raises(LedgerError, match=r"ledger\.db: it is a database of another program \(setting: ledger\.url\)"):
        SqliteStore(file)
    assert file.read_bytes() == before


def test_a_file_of_a_later_release_is_not_touched(file: Path) -> None:
    store = SqliteStore(file)
    store.keep("s", [original("a1")])
    store.close()
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(LedgerError, match="later release"):
        SqliteStore(file)
    with sqlite3.connect(file) as db:
        assert db.execute("SELECT count(*) FROM originals").fetchone() == (1,)


@pytest.mark.parametrize("kind", ["a folder", "in a file"])
def test_a_path_that_can_not_be_a_file_is_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "x").mkdir() if kind == "a folder" else (tmp_path / "x").write_text("")
    path = tmp_path / "x" if kind == "a folder" else tmp_path / "x" / "ledger.db"
    with pytest.raises(LedgerError, match=r"x.*can't be opened.*setting: ledger\.url"):
        SqliteStore(path)


def test_an_empty_file_is_made_use_of(file: Path) -> None:
    file.touch()
    assert SqliteStore(file).status().damaged == ()


def test_a_closed_store_opens_again(file: Path) -> None:
    store = SqliteStore(file)
    store.remember(entry())
    store.close()
    store.close()
    assert store.recall("chat:anna", b"first") == (entry(),)


# --- faults


def test_a_locked_store_reads_on_and_writes_again_later(file: Path) -> None:
    store = SqliteStore(file, timeout=0.02)
    store.remember(entry(scope="s"))
    store.keep("s", [original("a1")])
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    found = outcomes(store)
    assert {name for name, fault in found.items() if fault} == {"remember", "keep", "update", "purge"}
    assert "ledger.db: is locked by another process (setting: ledger.url)" in found["keep"]
    other.execute("ROLLBACK")
    assert set(outcomes(store).values()) == {""}


def test_a_store_locked_for_all_is_a_ledger_error(file: Path) -> None:
    SqliteStore(file).close()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="locked"):
        SqliteStore(file, timeout=0.02)
    other.close()
    assert SqliteStore(file, timeout=0.02).check() == []


@posix
@pytest.mark.parametrize("still_open", [False, True], ids=["closed", "open elsewhere"])
def test_a_read_only_store_is_a_ledger_error(open_folder: Path, still_open: bool) -> None:
    store = SqliteStore(open_folder / "ledger.db")
    store.remember(entry(scope="s"))
    store.keep("s", [original("a1")])
    if not still_open:
        store.close()
    for path in open_folder.iterdir():
        path.chmod(0o444)
    open_folder.chmod(0o555)

    def work(write: Callable[[str], None]) -> None:
        try:
            found = outcomes(SqliteStore(open_folder / "ledger.db", timeout=0.02))
            write(f"{sorted(name for name, fault in found.items() if not fault)} {found['keep']}")
        except LedgerError as error:
            write(str(error))

    process = start(work, user=NOBODY)
    lines = process.lines()
    assert process.status() == 0
    assert len(lines) == 1
    assert "keep" not in lines[0].partition("]")[0]
    assert "ledger.db: " in lines[0]
    assert "(setting: ledger.url)" in lines[0]


@posix
def test_a_folder_that_can_not_be_written_to_is_named(open_folder: Path) -> None:
    open_folder.chmod(0o555)

    def work(write: Callable[[str], None]) -> None:
        for path in (open_folder / "ledger.db", open_folder / "sub" / "ledger.db"):
            try:
                SqliteStore(path)
            except LedgerError as error:
                write(str(error))

    process = start(work, user=NOBODY)
    lines = process.lines()
    assert process.status() == 0
    assert [line.startswith(str(open_folder)) for line in lines] == [True, True]
    assert all("Permission denied (setting: ledger.url)" in line for line in lines)


def test_a_full_disk_is_a_ledger_error_and_what_was_kept_stays(file: Path) -> None:
    store = SqliteStore(file)
    store.keep("s", [original("a1", b"kept")])
    store.remember(entry(scope="s"))
    with store._db.write() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LedgerError, match=r"ledger\.db: is full, or its disk is"):
        store.keep("s", [original("a2", noise(100_000, 1))])
    assert store.restore("s", "a1") == b"kept"
    assert store.restore("s", "a2") is None
    assert store.recall("s", b"first")
    with store._db.write() as db:
        db.execute("PRAGMA max_page_count = 1000000")
    store.keep("s", [original("a2", noise(100_000, 1))])
    assert store.restore("s", "a2") == noise(100_000, 1)
    assert store.check() == []


@posix
def test_a_file_that_may_not_grow_is_a_ledger_error(file: Path) -> None:
    store = SqliteStore(file)
    store.keep("s", [original("a1", b"kept")])
    store.close()

    def work(write: Callable[[str], None]) -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        limited = SqliteStore(file)
        try:
            limited.keep("s", [original("a2", noise(1_000_000, 1))])
        except LedgerError as error:
            write(str(error))
        write(repr(limited.restore("s", "a1")))

    process = start(work)
    lines = process.lines()
    assert process.status() == 0
    assert len(lines) == 2
    assert "ledger.db: " in lines[0]
    assert lines[1] == "b'kept'"
    assert store.restore("s", "a1") == b"kept"
    assert store.restore("s", "a2") is None
    assert store.check() == []


def test_a_text_that_can_not_be_stored_is_a_ledger_error(file: Path) -> None:
    store = SqliteStore(file)
    for call in (lambda: store.keep("\ud800", [original("a")]), lambda: store.recall("\ud800", b"first")):
        with pytest.raises(LedgerError, match="can't hold a value"):
            call()
    store.keep("s", [original("a")])
    assert store.restore("s", "a") is not None


# --- damage


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no database": lambda _: b"this is no database, whatever its name says\n" * 100,
    "overwritten header": lambda data: noise(100, 1) + data[100:],
    "overwritten pages": lambda data: data[:100] + noise(len(data) - 100, 1),
    "cut short": lambda data: data[:5_000],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(
    file: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(file)
    for i in range(20):
        store.keep("s", [original(f"a{i}", noise(3_000, i))])
    store.close()
    damaged = DAMAGES[damage](file.read_bytes())
    file.write_bytes(damaged)
    try:
        store = SqliteStore(file)
        store.restore("s", "a19")
        store.keep("s", [original("new")])
    except LedgerError:  # damage that only shows when used costs one call
        store.keep("s", [original("new")])
    assert store.restore("s", "new") == b"what was cut"
    assert store.check() == []
    (aside,) = store.status().damaged
    assert aside.name.startswith("ledger.db.corrupt-")
    assert aside.read_bytes() == damaged
    assert f"{file} is damaged: it is kept as {aside}" in caplog.text


def test_damage_while_in_use_costs_one_call_and_keeps_the_secret(file: Path) -> None:
    store, other = SqliteStore(file), SqliteStore(file)
    for i in range(20):
        store.keep("s", [original(f"a{i}", noise(3_000, i))])
    store.remember(entry())
    secret = store.secret()
    db = sqlite3.connect(file)
    assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    db.close()
    size = file.stat().st_size
    with file.open("r+b") as raw:
        raw.seek(4_096)
        raw.write(noise(size - 4_096, 1))
    with pytest.raises(LedgerError, match="is damaged"):
        other.restore("s", "a3")
    other.keep("s", [original("new")])
    assert store.restore("s", "new") == b"what was cut"
    assert store.recall("chat:anna", b"first") == ()
    store.keep("s", [original("newer")])
    assert other.restore("s", "newer") == b"what was cut"
    assert store.secret() == other.secret() == SqliteStore(file).secret() == secret
    assert len(store.status().damaged) == 1
    assert store.check() == []


def test_three_damaged_files_are_kept(file: Path) -> None:
    for i in range(5):
        file.write_bytes(b"%d" % i * 5_000)
        store = SqliteStore(file)
        store.close()
    assert len(store.status().damaged) == 3


def test_a_removed_file_is_made_anew(file: Path) -> None:
    store, other = SqliteStore(file), SqliteStore(file)
    store.keep("s", [original("a1")])
    store.remember(entry())
    assert store.recall("chat:anna", b"first")
    for path in file.parent.iterdir():
        path.unlink()
    assert store.restore("s", "a1") is None
    assert store.recall("chat:anna", b"first") == ()
    other.remember(entry(items=(b"new",)))
    assert store.recall("chat:anna", b"first") == (entry(items=(b"new",)),)
    other.keep("s", [original("a2")])
    del other  # closing the removed file must not take the log of the new one along
    assert store.restore("s", "a2") is not None
    assert SqliteStore(file).restore("s", "a2") is not None


# --- threads, processes, the log


def test_threads_share_a_store(file: Path) -> None:
    store = SqliteStore(file)
    faults: list[BaseException] = []

    def work(name: int) -> None:
        try:
            for i in range(30):
                store.keep("s", [original(f"{name}-{i}", noise(2_000, i))])
                store.remember(entry(first=b"%d" % name, length=i + 1))
                assert store.restore("s", f"{name}-{i}") == noise(2_000, i)
                assert store.recall("chat:anna", b"%d" % name)[-1].length == i + 1
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert store.status().originals == 180
    assert store.check() == []


@posix
def test_a_forked_process_opens_the_file_for_itself(file: Path) -> None:
    store = SqliteStore(file)
    store.keep("s", [original("before")])
    inherited = store._db._open

    def work(write: Callable[[str], None]) -> None:
        store.keep("s", [original("child")])
        write(repr(store.restore("s", "before")))
        write(str(store._db._open is inherited))
        store.close()

    process = start(work)
    assert process.lines() == ["b'what was cut'", "False"]
    assert process.status() == 0
    store.keep("s", [original("after")])
    assert [store.restore("s", id) is not None for id in ("before", "child", "after")] == [True] * 3
    assert store.check() == []


def test_the_log_does_not_grow_without_bound(file: Path) -> None:
    store = SqliteStore(file)
    for i in range(150):
        store.keep("s", [original(f"a{i}", noise(500_000, i))])
    if store._db._copier is not None:
        store._db._copier.join()
    store._db._checkpoint()
    assert file.with_name("ledger.db-wal").stat().st_size < 33 << 20
    store.close()
    assert not file.with_name("ledger.db-wal").exists()
    store.keep("s", [original("a", b"")])
    assert store.status().originals == 151
    assert store.check() == []


def test_a_reader_that_stays_does_not_stop_the_writers(file: Path) -> None:
    store = SqliteStore(file)
    store.keep("s", [original("a")])
    reader = sqlite3.connect(file, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM originals").fetchone() == (1,)
    for i in range(90):
        store.keep("s", [original(f"a{i}", noise(500_000, i))])
    assert reader.execute("SELECT count(*) FROM originals").fetchone() == (1,)
    reader.close()
    assert store.status().originals == 91
    assert store.check() == []


def test_what_was_forgotten_is_not_in_the_file(file: Path) -> None:
    store = SqliteStore(file, archive_ttl=10, clock=lambda: 1.0)
    store.keep("s", [original("a1", b"a secret of the user" * 100)])
    store.close()
    assert b"a secret of the user" in file.read_bytes()
    store = SqliteStore(file, archive_ttl=10, clock=lambda: 12.0)
    store.purge()
    store.close()
    assert b"a secret of the user" not in file.read_bytes()
