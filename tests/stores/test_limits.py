from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ctxproxy.limits import Limits
from ctxproxy.stores import PersistentLimits, SqliteStore
from stores.making import DAY, Clock

KEY = ("https://upstream.example/v1", "chat:anna", "some-model")
OTHER = ("https://upstream.example/v1", "chat:ben", "some-model")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> SqliteStore:
    return SqliteStore(tmp_path / "ledger.db", timeout=0.02, clock=clock)


@pytest.fixture(params=["memory", "store"])
def limits(request: pytest.FixtureRequest, store: SqliteStore) -> Limits:
    return PersistentLimits(store) if request.param == "store" else Limits()


def test_the_smaller_of_two_bounds_is_kept(limits: Limits, clock: Clock) -> None:
    assert limits.get(KEY, now=clock()) is None
    limits.learn(KEY, 8_000, now=clock())
    limits.learn(KEY, 9_000, now=clock())
    assert limits.get(KEY, now=clock()) == 8_000
    limits.learn(KEY, 7_000, now=clock())
    assert limits.get(KEY, now=clock()) == 7_000
    assert limits.get(OTHER, now=clock()) is None


def test_a_bound_expires_and_a_repeated_one_lives_on(limits: Limits, clock: Clock) -> None:
    limits.learn(KEY, 8_000, now=clock())
    clock.pass_by(0.9 * DAY)
    limits.learn(KEY, 8_500, now=clock())
    clock.pass_by(0.9 * DAY)
    assert limits.get(KEY, now=clock()) == 8_000
    clock.pass_by(0.2 * DAY)
    assert limits.get(KEY, now=clock()) is None
    limits.learn(KEY, 9_000, now=clock())
    assert limits.get(KEY, now=clock()) == 9_000
    clock.pass_by(1.1 * DAY)
    limits.learn(KEY, 9_500, now=clock())
    assert limits.get(KEY, now=clock()) == 9_500


def test_a_bound_outlives_the_process_with_its_age(store: SqliteStore, clock: Clock) -> None:
    PersistentLimits(store).learn(KEY, 8_000, now=clock())
    clock.pass_by(0.9 * DAY)
    again = PersistentLimits(store)
    assert again.get(KEY, now=clock()) == 8_000
    clock.pass_by(0.2 * DAY)
    assert again.get(KEY, now=clock()) is None


def test_what_another_process_learned_is_seen_after_a_while(store: SqliteStore, clock: Clock) -> None:
    one, two = PersistentLimits(store, refresh=15), PersistentLimits(SqliteStore(store.path, clock=clock), refresh=15)
    assert two.get(KEY, now=clock()) is None
    one.learn(KEY, 8_000, now=clock())
    clock.pass_by(16)
    assert two.get(KEY, now=clock()) == 8_000
    two.learn(KEY, 7_000, now=clock())
    one.learn(KEY, 9_000, now=clock())
    assert one.get(KEY, now=clock()) == 7_000


def test_a_store_that_fails_costs_only_what_others_learned(store: SqliteStore, clock: Clock) -> None:
    limits = PersistentLimits(store, refresh=15)
    limits.learn(KEY, 8_000, now=clock())
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    limits.learn(KEY, 7_000, now=clock())
    limits.learn(OTHER, 6_000, now=clock())
    assert limits.faults == 2
    assert limits.get(KEY, now=clock()) == 7_000
    assert limits.get(OTHER, now=clock()) == 6_000
    other.execute("ROLLBACK")
    other.close()
    store.close()
    store.path.unlink()
    store.path.mkdir()
    clock.pass_by(16)
    assert limits.get(KEY, now=clock()) == 7_000
    assert limits.get(("never", "seen"), now=clock()) is None
    assert limits.faults == 4


@pytest.mark.parametrize("value", [b"", b"null", b"[1]", b"{}", b"\xff", b'["x", 1]', b"[null, 1]"])
def test_a_value_that_can_not_be_read_is_none(store: SqliteStore, clock: Clock, value: bytes) -> None:
    limits = PersistentLimits(store)
    limits.learn(KEY, 8_000, now=clock())
    (name,) = store.items("limit")
    store.update("limit", name, lambda _: value, ttl=DAY)
    assert PersistentLimits(store).get(KEY, now=clock()) is None
    PersistentLimits(store).learn(KEY, 9_000, now=clock())
    assert PersistentLimits(store).get(KEY, now=clock()) == 9_000


def test_a_name_that_is_no_text_does_no_harm(store: SqliteStore, clock: Clock) -> None:
    limits = PersistentLimits(store)
    limits.learn(("u", "s", "\ud800"), 8_000, now=clock())
    assert PersistentLimits(store).get(("u", "s", "\ud800"), now=clock()) == 8_000
    assert limits.faults == 0
