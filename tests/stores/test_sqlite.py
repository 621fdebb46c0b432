from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ctxproxy.errors import LedgerError
from ctxproxy.ledger import FORMS, Ledger, MemoryLedger
from ctxproxy.stores import SqliteStore
from stores.making import DAY, Clock, entry, noise, original


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def store(file: Path, clock: Clock) -> Iterator[SqliteStore]:
    found = SqliteStore(file, clock=clock)
    yield found
    assert found.check() == []
    found.close()


# --- the ledger


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, store: SqliteStore) -> Ledger:
    return store if request.param == "sqlite" else MemoryLedger()


def test_entries_come_back_oldest_first(ledger: Ledger) -> None:
    one, two = entry(length=4, chain=b"a"), entry(length=8, chain=b"b")
    ledger.remember(one)
    ledger.remember(two)
    assert list(ledger.recall(one.scope, one.first)) == [one, two]
    assert list(ledger.recall(one.scope, b"another")) == []


def test_forms_come_back_in_their_conversation_only(ledger: Ledger) -> None:
    made = entry()
    ledger.remember(made)
    ledger.keep_forms(made.scope, made.first, [(b"k1", b"one"), (b"k2", b"two")])
    ledger.keep_forms(made.scope, made.first, [(b"k2", b"new")])
    assert ledger.forms(made.scope, made.first, [b"k1", b"k2", b"k3"]) == {b"k1": b"one", b"k2": b"new"}
    assert ledger.forms("chat:bert", made.first, [b"k1"]) == {}
    assert ledger.forms(made.scope, b"another", [b"k1"]) == {}


def test_forms_of_a_conversation_without_an_entry_are_not_kept(ledger: Ledger) -> None:
    ledger.keep_forms("chat:anna", b"first", [(b"k", b"form")])
    assert ledger.forms("chat:anna", b"first", [b"k"]) == {}


def test_a_conversation_has_no_more_forms_than_a_window_has_messages(ledger: Ledger) -> None:
    made = entry()
    ledger.remember(made)
    forms = [(b"%d" % i, b"form %d" % i) for i in range(FORMS + 5)]
    ledger.keep_forms(made.scope, made.first, forms)
    kept = ledger.forms(made.scope, made.first, [key for key, _ in forms])
    assert set(dict(forms[5:])) <= set(kept)


def test_forms_outlive_the_process_and_go_with_their_conversation(file: Path, clock: Clock) -> None:
    made = entry()
    store = SqliteStore(file, clock=clock)
    store.remember(made)
    before = store.status().entry_bytes
    store.keep_forms(made.scope, made.first, [(b"k", b"x" * 5_000)])
    assert store.status().entry_bytes == before + 5_000
    store.close()
    later = SqliteStore(file, clock=clock)
    assert later.forms(made.scope, made.first, [b"k"]) == {b"k": b"x" * 5_000}
    clock.pass_by(8 * DAY)
    later.purge()
    assert (later.status().entry_bytes, later.status().conversations) == (0, 0)
    later.close()
    assert SqliteStore(file, clock=clock).forms(made.scope, made.first, [b"k"]) == {}


def test_an_entry_takes_the_place_of_one_with_the_same_prefix(ledger: Ledger) -> None:
    old, other, new = entry(items=(b"old",)), entry(length=9), entry(items=(b"new",))
    for made in (old, other, new):
        ledger.remember(made)
    assert list(ledger.recall(old.scope, old.first)) == [other, new]


def test_a_conversation_has_eight_entries_at_most(ledger: Ledger) -> None:
    for length in range(1, 12):
        ledger.remember(entry(length=length))
    assert [e.length for e in ledger.recall("chat:anna", b"first")] == list(range(4, 12))


def test_scopes_do_not_see_each_other(ledger: Ledger) -> None:
    ledger.remember(entry(scope="chat:anna", items=(b"hers",)))
    ledger.remember(entry(scope="chat:ben", items=(b"his",)))
    assert [e.items for e in ledger.recall("chat:anna", b"first")] == [(b"hers",)]
    assert [e.items for e in ledger.recall("chat:ben", b"first")] == [(b"his",)]
    assert list(ledger.recall("messages:anna", b"first")) == []


def test_an_entry_outlives_the_process_byte_for_byte(file: Path) -> None:
    made = entry(items=(0, noise(100_000, 1), 7, "é漢\x00".encode()))
    first = SqliteStore(file)
    first.remember(made)
    first.close()
    assert list(SqliteStore(file).recall(made.scope, made.first)) == [made]


def test_what_another_store_wrote_is_seen_at_once(file: Path, store: SqliteStore) -> None:
    other = SqliteStore(file, clock=store._clock)
    store.remember(entry(items=(b"mine",)))
    assert [e.items for e in other.recall("chat:anna", b"first")] == [(b"mine",)]
    other.remember(entry(items=(b"theirs",)))
    assert [e.items for e in store.recall("chat:anna", b"first")] == [(b"theirs",)]


def test_an_entry_that_can_not_be_read_costs_only_itself(
    file: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.remember(entry(length=3))
    store.remember(entry(length=5))
    with sqlite3.connect(file) as db:
        db.execute("UPDATE entries SET data = x'ff' WHERE length = 3")
    assert [e.length for e in store.recall("chat:anna", b"first")] == [5]
    assert "of a later version" in caplog.text


def test_entries_expire_after_their_last_use(store: SqliteStore, clock: Clock) -> None:
    store.remember(entry())
    for _ in range(5):
        clock.pass_by(5 * DAY)
        assert store.recall("chat:anna", b"first")
    clock.pass_by(7 * DAY)
    assert not store.recall("chat:anna", b"first")
    store.remember(entry(first=b"another"))
    assert store.status().entries == 1


def test_the_least_recently_used_conversation_goes_first(file: Path, clock: Clock) -> None:
    store = SqliteStore(file, clock=clock, ledger_bytes=35_000, grace=0)
    for name in (b"1", b"2", b"3"):
        store.remember(entry(first=name, items=(noise(10_000, 1),)))
        clock.pass_by(1)
    store.recall("chat:anna", b"1")
    clock.pass_by(1)
    store.remember(entry(first=b"4", items=(noise(10_000, 1),)))
    assert [bool(store.recall("chat:anna", name)) for name in (b"1", b"2", b"3", b"4")] == [True, False, True, True]


def test_an_entry_over_the_bound_is_refused_and_nothing_is_lost(file: Path, clock: Clock) -> None:
    store = SqliteStore(file, clock=clock, ledger_bytes=10_000, grace=0)
    store.remember(entry(first=b"1"))
    clock.pass_by(1)
    with pytest.raises(LedgerError, match=r"ledger\.db.* full.*ledger\.max_bytes"):
        store.remember(entry(first=b"2", items=(noise(10_000, 1),)))
    assert store.recall("chat:anna", b"1")
    assert not store.recall("chat:anna", b"2")


# --- the archive


def test_an_original_is_restored_in_its_scope_only(store: SqliteStore) -> None:
    store.keep("chat:anna", [original("a1", b"hers"), original("a2", b"")])
    store.keep("chat:ben", [original("a1", b"his")])
    assert store.restore("chat:anna", "a1") == b"hers"
    assert store.restore("chat:anna", "a2") == b""
    assert store.restore("chat:ben", "a1") == b"his"
    assert store.restore("chat:ben", "a2") is None
    assert store.scopes() == ["chat:anna", "chat:ben"]


@pytest.mark.parametrize("id", ["", "%", "a_", "a1' OR '1'='1", "../a1", "\ud800", "A1", "a1\x00"])
def test_what_is_no_id_restores_nothing(store: SqliteStore, id: str) -> None:
    store.keep("s", [original("a1")])
    assert store.restore("s", id) is None


def test_what_is_there_is_left_alone(store: SqliteStore) -> None:
    store.keep("s", [original("a1", b"first")])
    store.keep("s", [original("a1", b"second"), original("a2", b"new")])
    assert store.restore("s", "a1") == b"first"
    assert store.restore("s", "a2") == b"new"
    assert store.status().original_bytes == len(b"first") + len(b"new")


def test_an_original_outlives_the_process(file: Path) -> None:
    data = noise(300_000, 1)
    first = SqliteStore(file)
    first.keep("s", [original("a1", data)])
    first.close()
    assert SqliteStore(file).restore("s", "a1") == data


def test_originals_expire_unless_they_are_kept_again(store: SqliteStore, clock: Clock) -> None:
    store.keep("s", [original("a1"), original("a2")])
    clock.pass_by(6 * DAY)
    store.keep("s", [original("a2")])
    clock.pass_by(2 * DAY)
    assert store.restore("s", "a1") is None
    assert store.restore("s", "a2") is not None
    store.purge()
    assert store.status().originals == 1


def test_the_oldest_original_goes_first(file: Path, clock: Clock) -> None:
    store = SqliteStore(file, clock=clock, archive_bytes=3_500, grace=0)
    for name in ("a", "b", "c"):
        store.keep("s", [original(name, noise(1_000, 1))])
        clock.pass_by(1)
    store.keep("s", [original("a", noise(1_000, 1))])
    clock.pass_by(1)
    store.keep("s", [original("d", noise(1_000, 1))])
    assert [store.restore("s", name) is not None for name in "abcd"] == [True, False, True, True]


def test_an_original_that_an_entry_mentions_goes_after_the_entry(file: Path, clock: Clock) -> None:
    store = SqliteStore(file, clock=clock, archive_bytes=3_500, grace=0)
    store.keep("s", [original("mentioned", noise(1_000, 1))])
    store.remember(entry(scope="s", archived=("mentioned",)))
    for name in "bcdef":
        clock.pass_by(1)
        store.keep("s", [original(name, noise(1_000, 1))])
        assert store.restore("s", "mentioned") is not None
    clock.pass_by(1)
    store.keep("s", [original("large", noise(3_000, 1))])
    assert store.restore("s", "mentioned") is None
    assert not store.recall("s", b"first")


def test_a_mentioned_original_does_not_expire_before_the_entry(store: SqliteStore, clock: Clock) -> None:
    store.remember(entry(scope="s", archived=("a1",)))  # the order of the two calls does not matter
    store.keep("s", [original("a1")])
    clock.pass_by(6 * DAY)
    assert store.recall("s", b"first")
    clock.pass_by(6 * DAY)
    store.purge()
    assert store.restore("s", "a1") is not None
    clock.pass_by(2 * DAY)
    store.purge()
    assert store.restore("s", "a1") is None


def test_an_entry_that_took_over_texts_of_an_earlier_one_mentions_its_originals(
    store: SqliteStore, clock: Clock
) -> None:
    store.keep("s", [original("0123abcd"), original("4567abcd")])
    store.remember(entry(scope="s", length=1, items=(b"cut, see 0123abcd",), archived=("0123abcd", "4567abcd")))
    for length in range(2, 30):
        store.remember(entry(scope="s", length=length, items=(b"cut, see 0123abcd", 3)))
    clock.pass_by(6 * DAY)
    assert store.recall("s", b"first")
    clock.pass_by(2 * DAY)
    assert store.restore("s", "0123abcd") is not None
    assert store.restore("s", "4567abcd") is None


def test_what_was_just_kept_stays_and_the_archive_is_full(file: Path, clock: Clock) -> None:
    store = SqliteStore(file, clock=clock, archive_bytes=3_500)
    for name in "abc":
        store.keep("s", [original(name, noise(1_000, 1))])
    clock.pass_by(59)
    with pytest.raises(LedgerError, match=r"full.*archive\.max_bytes"):
        store.keep("s", [original("e", b""), original("d", noise(1_000, 1))])
    assert [store.restore("s", name) is not None for name in "abcde"] == [True, True, True, False, False]
    clock.pass_by(2)
    store.keep("s", [original("d", noise(1_000, 1))])
    assert [store.restore("s", name) is not None for name in "abcd"] == [False, True, True, True]


class Promise(RuleBasedStateMachine):
    """Whatever is kept, remembered and forgotten: what the ledger gives back mentions only what can be restored."""

    folder: Path

    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        type(self).count = getattr(type(self), "count", 0) + 1
        self.file = self.folder / f"{self.count}.db"
        self.open()
        self.kept = 0

    def open(self) -> None:
        self.store = SqliteStore(
            self.file, clock=self.clock, ledger_bytes=4_000, archive_bytes=3_000, ttl=100, archive_ttl=50, grace=5
        )

    @rule(scope=st.sampled_from("st"), first=st.sampled_from([b"1", b"2", b"3"]), sizes=st.lists(st.integers(0, 900)))
    def compact(self, scope: str, first: bytes, sizes: list[int]) -> None:
        names = [f"{scope}{self.kept + i}" for i in range(len(sizes))]
        self.kept += len(sizes)
        try:
            self.store.keep(scope, [original(n, noise(size, size)) for n, size in zip(names, sizes)])
            self.store.remember(entry(scope=scope, first=first, length=self.kept, archived=tuple(names)))
        except LedgerError:  # full
            return
        assert all(self.store.restore(scope, name) is not None for name in names)

    @rule(seconds=st.integers(0, 60))
    def wait(self, seconds: int) -> None:
        self.clock.pass_by(seconds)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.open()

    @rule()
    def purge(self) -> None:
        self.store.purge()

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "store"):
            return
        for scope in "st":
            for first in (b"1", b"2", b"3"):
                for found in self.store.recall(scope, first):
                    assert found.scope == scope
                    assert all(self.store.restore(scope, name) is not None for name in found.compaction.archived)
        status = self.store.status()
        assert status.entry_bytes <= 4_000
        assert status.original_bytes <= 3_000

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.check() == []
        with sqlite3.connect(self.file) as db:
            sums = "SELECT 'entries', count(*), total(size) FROM entries UNION ALL"
            sums += " SELECT 'originals', count(*), total(size) FROM originals"
            assert db.execute(sums).fetchall() == db.execute("SELECT * FROM totals ORDER BY kind").fetchall()
            refs = "SELECT count(*) FROM mentions m WHERE m.scope = o.scope AND m.name = o.name"
            assert not db.execute(f"SELECT name FROM originals o WHERE refs != ({refs})").fetchall()
        self.store.close()


def test_entries_mention_only_what_can_be_restored(tmp_path: Path) -> None:
    machine = type("Machine", (Promise,), {"folder": tmp_path})
    machine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
    machine.TestCase("runTest").runTest()


# --- references, values, the secret


def test_references_for_an_archive_elsewhere(store: SqliteStore) -> None:
    store.remember(entry(scope="s", archived=("a1", "a2")))
    store.remember(entry(scope="s", length=9, archived=("a2",)))
    assert sorted(store.mentioned()) == [("s", "a1"), ("s", "a2")]
    store.forget("t", "a1")
    store.forget("s", "a1")
    assert [e.length for e in store.recall("s", b"first")] == [9]
    assert sorted(store.mentioned()) == [("s", "a2")]


def test_values_expire(store: SqliteStore, clock: Clock) -> None:
    store.update("factor", "m", lambda old: b"1" if old is None else b"?", ttl=10)
    store.update("limit", "m", lambda _: b"2", ttl=100)
    assert store.get("factor", "m") == b"1"
    assert store.items("factor") == {"m": b"1"}
    clock.pass_by(10)
    assert store.get("factor", "m") is None
    assert store.items("factor") == {}
    assert store.update("factor", "m", lambda old: b"new" if old is None else b"?", ttl=10) == b"new"
    assert store.update("factor", "m", lambda old: (old or b"") + b"er", ttl=10) == b"newer"
    clock.pass_by(90)
    store.purge()
    assert store.status().learned == 0


def test_the_secret_is_made_once(file: Path, store: SqliteStore) -> None:
    assert len(store.secret()) == 32
    assert SqliteStore(file).secret() == store.secret()
    assert SqliteStore(file.with_name("another.db")).secret() != store.secret()


def test_status_says_what_is_stored(store: SqliteStore) -> None:
    store.keep("s", [original("a1", b"12345")])
    store.remember(entry(scope="s", archived=("a1",)))
    status = store.status()
    assert (status.conversations, status.entries, status.originals, status.original_bytes) == (1, 1, 1, 5)
    assert status.file_bytes > 0
    assert status.damaged == ()


def test_a_use_is_noted_without_waiting_for_a_writer(file: Path, store: SqliteStore, clock: Clock) -> None:
    store.remember(entry())
    clock.pass_by(6 * DAY)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert store.recall("chat:anna", b"first")
    other.execute("ROLLBACK")
    other.close()
    clock.pass_by(60)
    assert store.recall("chat:anna", b"first")
    clock.pass_by(6 * DAY)
    assert store.recall("chat:anna", b"first")
