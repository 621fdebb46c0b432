"""Several processes on one file, and processes that are killed at any moment."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from ctxproxy.ledger import Archive
from ctxproxy.stores import DiskArchive, SqliteStore
from stores.making import Process, entry, noise, original, start

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX processes")

KILLS = 25


def size_of(seed: int) -> int:
    """Some bytes, or some pages, or enough for the log to be copied now and then."""
    return (10, 9_000, 60_000)[seed % 3]


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"

    def worker(name: int) -> Callable[[Callable[[str], None]], None]:
        def work(write: Callable[[str], None]) -> None:
            store = SqliteStore(file, timeout=60)
            write(store.secret().hex())
            for i in range(60):
                store.keep("shared", [original(f"{name}-{i}", noise(5_000, i)), original(f"both-{i}", noise(99, i))])
                store.remember(entry(scope="shared", first=b"%d" % i, length=name + 1, archived=(f"{name}-{i}",)))
                store.update("count", "all", lambda old: b"%d" % (int(old or 0) + 1), ttl=1_000)

        return work

    processes = [start(worker(name)) for name in range(3)]
    secrets = [process.lines() for process in processes]
    assert [process.status() for process in processes] == [0, 0, 0]
    store = SqliteStore(file)
    assert secrets == [[store.secret().hex()]] * 3
    assert store.get("count", "all") == b"180"
    for i in range(60):
        assert sorted(e.length for e in store.recall("shared", b"%d" % i)) == [1, 2, 3]
        assert [store.restore("shared", f"{name}-{i}") for name in range(3)] == [noise(5_000, i)] * 3
        assert store.restore("shared", f"both-{i}") == noise(99, i)
    assert store.check() == []


def test_processes_that_open_a_new_file_at_once_agree_on_its_secret(tmp_path: Path) -> None:
    for round in range(5):
        file = tmp_path / f"{round}.db"
        processes = [start(lambda write, f=file: write(SqliteStore(f, timeout=60).secret().hex())) for _ in range(4)]
        found = [process.lines() for process in processes]
        assert [process.status() for process in processes] == [0] * 4
        assert found == [[SqliteStore(file).secret().hex()]] * 4


def test_processes_that_meet_a_damaged_file_at_once_agree_on_the_new_one(tmp_path: Path) -> None:
    for round in range(5):
        file = tmp_path / f"{round}.db"
        file.write_bytes(b"no database" * 1_000)

        def work(write: Callable[[str], None], file: Path = file) -> None:
            store = SqliteStore(file, timeout=60)
            write(store.secret().hex())
            store.keep("s", [original(store.secret().hex())])

        processes = [start(work) for _ in range(4)]
        found = [process.lines() for process in processes]
        assert [process.status() for process in processes] == [0] * 4
        store = SqliteStore(file)
        assert found == [[store.secret().hex()]] * 4
        assert store.restore("s", store.secret().hex()) is not None
        assert len(store.status().damaged) == 1


def test_a_killed_process_loses_nothing_that_it_kept(tmp_path: Path) -> None:
    """Two processes write at a time; one of them is killed, again and again, at a random moment."""
    file = tmp_path / "ledger.db"
    moments = random.Random(6)

    def begin(name: int) -> Process:
        def work(write: Callable[[str], None]) -> None:
            store = SqliteStore(file, timeout=60)
            for i in range(2_000):
                write(f"secret {store.secret().hex()}")
                id = f"{name}-{i}"
                store.keep("s", [original(id, noise(size_of(i), i))])
                write(f"kept {id} {i}")
                store.remember(entry(scope="s", first=b"%d" % name, length=i + 1, archived=(id,)))
                write(f"remembered {name} {i}")

        return start(work)

    kept: dict[str, int] = {}
    newest: dict[str, int] = {}
    secrets: set[str] = set()

    def note(lines: list[str]) -> None:
        for line in lines:
            match line.split():
                case ["kept", id, seed]:
                    kept[id] = int(seed)
                case ["remembered", name, i]:
                    newest[name] = int(i)
                case ["secret", secret]:
                    secrets.add(secret)

    def verify(store: SqliteStore, ids: Iterable[str]) -> None:
        for id in ids:
            assert store.restore("s", id) == noise(size_of(kept[id]), kept[id])
        for name, i in newest.items():
            entries = store.recall("s", name.encode())
            assert max(e.length for e in entries) >= i + 1
            assert all(store.restore("s", id) is not None for e in entries for id in e.compaction.archived)
        assert store.check() == []
        assert store.status().damaged == ()

    previous = begin(0)
    for kill in range(1, KILLS + 1):
        process = begin(kill)
        for _ in range(moments.choice([0, 1, 2, 3, 5, 10, 30, 60])):
            note([previous.output.readline().decode().strip()])
        previous.kill()
        note(previous.lines())
        assert previous.status() == -9
        store = SqliteStore(file, timeout=60)
        verify(store, list(kept)[-50:])
        store.close()
        previous = process
    previous.kill()
    note(previous.lines())
    previous.status()
    verify(SqliteStore(file), kept)
    assert len(kept) > KILLS
    assert len(secrets) == 1


def test_a_process_killed_while_it_makes_the_file_leaves_one_that_opens(tmp_path: Path) -> None:
    moments = random.Random(6)
    for kill in range(KILLS):
        file = tmp_path / f"{kill}.db"

        def work(write: Callable[[str], None], file: Path = file) -> None:
            write("ready")
            write(SqliteStore(file).secret().hex())

        process = start(work)
        process.output.readline()
        for _ in range(moments.randrange(3_000)):  # a moment of no fixed length
            moments.random()
        process.kill()
        found = process.lines()
        process.status()
        store = SqliteStore(file)
        assert found in ([], [store.secret().hex()])
        store.keep("s", [original("a1")])
        assert store.check() == []
        assert store.status().damaged == ()


def test_a_killed_process_loses_no_file_that_it_kept(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    moments = random.Random(6)
    kept: dict[str, int] = {}
    archive: Archive = DiskArchive(folder)
    for kill in range(KILLS):

        def work(write: Callable[[str], None], begin: int = 20 * kill) -> None:
            mine = DiskArchive(folder)
            for i in range(begin, begin + 2_000):  # the first ones were begun by the process before
                mine.keep("s", [original(f"a{i}", noise(9 * size_of(i), i))])
                write(f"a{i} {i}")

        process = start(work)
        found = [process.output.readline().decode() for _ in range(moments.randrange(40))]
        process.kill()
        found += process.lines()
        process.status()
        kept |= {id: int(seed) for id, seed in (line.split() for line in found)}
        for id, seed in kept.items():
            assert archive.restore("s", id) == noise(9 * size_of(seed), seed)
    assert len(kept) > KILLS


@pytest.mark.parametrize("kind", ["sqlite", "disk"])
def test_a_process_that_ends_in_the_middle_of_a_write_leaves_nothing_half_written(tmp_path: Path, kind: str) -> None:
    def open_store() -> Archive:
        return DiskArchive(tmp_path / "archive") if kind == "disk" else SqliteStore(tmp_path / "ledger.db")

    def work(write: Callable[[str], None]) -> None:
        import resource

        store = open_store()
        store.keep("s", [original("a", noise(1_000, 1))])
        write("kept")
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the system ends a process whose file grows over the limit
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        store.keep("s", [original("b", noise(1_000_000, 2))])
        write("never reached")

    process = start(work)
    assert process.lines() == ["kept"]
    assert process.status() == -signal.SIGXFSZ
    store = open_store()
    assert store.restore("s", "a") == noise(1_000, 1)
    assert store.restore("s", "b") is None
    store.keep("s", [original("b", noise(1_000_000, 2))])
    assert store.restore("s", "b") == noise(1_000_000, 2)
