from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.errors import LedgerError
from ctxproxy.stores import DiskArchive, SqliteStore
from stores.making import DAY, Clock, entry, noise, original, start

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX file modes and links")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "archive"


def there(archive: DiskArchive, ids: str, scope: str = "s") -> str:
    return "".join(id for id in ids if archive.restore(scope, id) is not None)


def test_an_original_is_restored_in_its_scope_only(folder: Path) -> None:
    archive = DiskArchive(folder)
    archive.keep("chat:anna", [original("a1", b"hers"), original("a2", b"")])
    archive.keep("chat:ben", [original("a1", b"his")])
    assert archive.restore("chat:anna", "a1") == b"hers"
    assert archive.restore("chat:anna", "a2") == b""
    assert archive.restore("chat:ben", "a1") == b"his"
    assert archive.restore("chat:ben", "a2") is None
    assert archive.restore("chat:eve", "a1") is None
    assert DiskArchive(folder).restore("chat:anna", "a1") == b"hers"


def test_an_original_lies_where_its_path_says(folder: Path) -> None:
    archive = DiskArchive(folder)
    archive.keep("chat:anna", [original("a1", b"hers")])
    path = archive.path("chat:anna", "a1")
    assert path is not None
    assert path.read_bytes() == b"hers"
    assert path.parent.parent == folder
    assert "anna" not in str(path.relative_to(folder))


@posix
def test_only_this_user_can_read_the_files(folder: Path) -> None:
    old = os.umask(0)
    try:
        archive = DiskArchive(folder)
        archive.keep("s", [original("a1")])
    finally:
        os.umask(old)
    path = archive.path("s", "a1")
    assert path is not None
    assert [stat.S_IMODE(p.stat().st_mode) for p in (folder, path.parent, path)] == [0o700, 0o700, 0o600]


TRICKS = [
    "",
    ".",
    "..",
    "../a1",
    "a/b",
    "a\\b",
    "/etc/passwd",
    "a1\x00",
    "a1\n",
    "\ud800",
    "ä",
    ".new-1",
    "x" * 129,
    "~",
]


@pytest.mark.parametrize("id", TRICKS)
def test_what_is_no_id_restores_nothing_and_is_not_kept(folder: Path, id: str) -> None:
    archive = DiskArchive(folder)
    archive.keep("s", [original("a1")])
    (folder / "secret").write_text("secret")
    assert archive.restore("s", id) is None
    assert archive.path("s", id) is None
    with pytest.raises(LedgerError, match="can't be the name of a file"):
        archive.keep("s", [original(id)])


@given(scope=st.text(max_size=20), id=st.text(max_size=20))
def test_no_id_leads_out_of_the_folder_of_its_scope(scope: str, id: str) -> None:
    archive = DiskArchive(os.curdir)
    path = archive.path(scope, id)
    if path is not None:
        assert path.parent.parent.resolve() == Path.cwd()
        assert len(path.parent.name) == 32
        assert path.name == id


@posix
def test_a_link_or_folder_in_place_of_an_original_restores_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    archive = DiskArchive(folder)
    archive.keep("s", [original("a1")])
    path = archive.path("s", "a1")
    assert path is not None
    path.with_name("link").symlink_to(tmp_path / "secret")
    path.with_name("folder").mkdir()
    assert archive.restore("s", "link") is None
    assert archive.restore("s", "folder") is None


def test_what_is_there_is_left_alone(folder: Path) -> None:
    archive = DiskArchive(folder)
    archive.keep("s", [original("a1", b"first")])
    archive.keep("s", [original("a1", b"second")])
    assert archive.restore("s", "a1") == b"first"
    assert archive.size() == (1, len(b"first"))


def test_originals_expire_unless_they_are_kept_again(folder: Path, clock: Clock) -> None:
    archive = DiskArchive(folder, clock=clock)
    archive.keep("s", [original("a"), original("b")])
    archive.keep("t", [original("c")])
    clock.pass_by(6 * DAY)
    archive.keep("s", [original("b")])
    clock.pass_by(2 * DAY)
    assert there(archive, "ab") == "b"
    assert archive.size()[0] == 1
    assert len([p for p in folder.iterdir() if p.is_dir()]) == 1
    archive.keep("t", [original("c")])
    assert there(archive, "c", "t") == "c"


def test_the_oldest_original_goes_first(folder: Path, clock: Clock) -> None:
    archive = DiskArchive(folder, clock=clock, max_bytes=3_500, grace=0)
    for name in "abc":
        archive.keep("s", [original(name, noise(1_000, 1))])
        clock.pass_by(1)
    archive.keep("s", [original("a")])
    clock.pass_by(1)
    archive.keep("s", [original("d", noise(1_000, 1))])
    assert there(archive, "abcd") == "acd"


def test_a_bound_holds_for_what_others_wrote_too(folder: Path, clock: Clock) -> None:
    one, two = (DiskArchive(folder, clock=clock, max_bytes=100_000, grace=0) for _ in range(2))
    for i in range(200):
        (one, two)[i % 2].keep("s", [original(f"a{i}", noise(2_000, i))])
        clock.pass_by(1)
        assert one.size()[1] <= 100_000 * 1.2
    assert one.restore("s", "a199") is not None


def test_what_was_just_kept_stays_and_the_archive_is_full(folder: Path, clock: Clock) -> None:
    archive = DiskArchive(folder, clock=clock, max_bytes=3_500)
    for name in "abc":
        archive.keep("s", [original(name, noise(1_000, 1))])
        clock.pass_by(1)
    clock.pass_by(56)
    with pytest.raises(LedgerError, match=r"full.*archive\.max_bytes"):
        archive.keep("s", [original("d", noise(1_000, 1))])
    assert there(archive, "abcd") == "abc"
    clock.pass_by(2)  # 61 seconds after "a", 60 after "b"
    archive.keep("s", [original("d", noise(1_000, 1))])
    assert there(archive, "abcd") == "bcd"


def test_an_original_that_a_ledger_mentions_goes_after_the_entry(folder: Path, tmp_path: Path, clock: Clock) -> None:
    ledger = SqliteStore(tmp_path / "ledger.db", clock=clock)
    archive = DiskArchive(folder, clock=clock, max_bytes=3_500, grace=0, references=ledger)
    archive.keep("s", [original("m", noise(1_000, 1))])
    ledger.remember(entry(scope="s", archived=("m",)))
    clock.pass_by(6 * DAY)
    assert ledger.recall("s", b"first")
    clock.pass_by(2 * DAY)
    archive.purge()
    assert there(archive, "m") == "m"
    for name in "bcdef":
        clock.pass_by(1)
        archive.keep("s", [original(name, noise(1_000, 1))])
    assert there(archive, "mbcdef") == "mef"
    clock.pass_by(1)
    archive.keep("s", [original("g", noise(3_000, 1))])
    assert there(archive, "mefg") == "g"
    assert not ledger.recall("s", b"first")


def test_nothing_goes_while_it_is_not_known_what_is_mentioned(folder: Path, clock: Clock) -> None:
    class Down:
        def mentioned(self) -> list[tuple[str, str]]:
            raise LedgerError("it is down")

        def forget(self, scope: str, id: str) -> None:
            raise LedgerError("it is down")

    archive = DiskArchive(folder, clock=clock, references=Down())
    archive.keep("s", [original("a")])
    clock.pass_by(30 * DAY)
    assert archive.restore("s", "a") is not None
    archive.purge()
    archive.keep("s", [original("b")])
    assert there(archive, "ab") == "ab"


def test_other_files_are_left_alone(folder: Path, clock: Clock) -> None:
    archive = DiskArchive(folder, clock=clock, max_bytes=10)
    (folder / "notes.txt").write_text("the user's own notes")
    (folder / "sub").mkdir()
    (folder / "sub" / "more").write_text("more of them")
    archive.keep("s", [original("a", b"1")])
    clock.pass_by(30 * DAY)
    archive.purge()
    assert archive.size() == (0, 0)
    assert (folder / "notes.txt").exists()
    assert (folder / "sub" / "more").exists()


def test_what_an_ended_process_left_unfinished_is_removed_later(folder: Path) -> None:
    archive = DiskArchive(folder)
    archive.keep("s", [original("a")])
    path = archive.path("s", "a")
    assert path is not None
    fresh, old = path.with_name(".new-fresh"), path.with_name(".new-old")
    fresh.touch()
    old.touch()
    os.utime(old, (1, 1))
    archive.purge()
    assert fresh.exists()
    assert not old.exists()


def test_an_original_kept_again_while_it_is_removed_stays(folder: Path, clock: Clock) -> None:
    archive = DiskArchive(folder, clock=clock)
    archive.keep("s", [original("a")])
    (seen,) = archive._files()
    clock.pass_by(1)
    DiskArchive(folder, clock=clock).keep("s", [original("a")])
    archive._remove(seen)
    assert there(archive, "a") == "a"


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(LedgerError, match=r"x.*setting: archive\.dir"):
        DiskArchive(tmp_path / "x" / "archive")


@posix
def test_a_folder_that_can_not_be_written_to_is_a_ledger_error(open_folder: Path) -> None:
    open_folder.chmod(0o555)

    def work(write: Callable[[str], None]) -> None:
        archive = DiskArchive(open_folder)
        write(repr(archive.restore("s", "a1")))
        try:
            archive.keep("s", [original("a1")])
        except LedgerError as error:
            write(str(error))

    process = start(work, user=65_534)
    assert process.lines() == ["None", f"{open_folder}: Permission denied (setting: archive.dir)"]
    assert process.status() == 0


@posix
def test_a_disk_without_room_leaves_nothing_half_written(folder: Path) -> None:
    archive = DiskArchive(folder)

    def work(write: Callable[[str], None]) -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            archive.keep("s", [original("a", noise(9_000, 1)), original("b", noise(90_000, 1))])
        except LedgerError as error:
            write(str(error))

    process = start(work)
    assert process.lines() == [f"{folder}: File too large (setting: archive.dir)"]
    assert process.status() == 0
    assert there(archive, "ab") == "a"
    path = archive.path("s", "a")
    assert path is not None
    assert list(path.parent.iterdir()) == [path]
