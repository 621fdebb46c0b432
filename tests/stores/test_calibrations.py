from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from provider import FakeProvider
from serving import serving

from ctxproxy.stores import PersistentMeter, SqliteStore
from ctxproxy.tokens import Calibration
from stores.making import DAY, Clock

KEY = ("https://upstream.example/v1", "some-model")
LEARNED = Calibration(factor=1.3, recent=1.2, additive=300.0, samples=9, starts=2, weight=5_000.0, recent_weight=900.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> SqliteStore:
    return SqliteStore(tmp_path / "ledger.db", timeout=0.02, clock=clock)


def test_what_was_learned_outlives_the_process(store: SqliteStore) -> None:
    meter = PersistentMeter(store)
    assert meter.calibration(KEY) is None
    meter.keep(KEY, LEARNED)
    assert PersistentMeter(store).calibration(KEY) == LEARNED
    assert PersistentMeter(store).calibration(("https://other.example", "some-model")) is None


def test_it_is_forgotten_when_nobody_uses_it(store: SqliteStore, clock: Clock) -> None:
    PersistentMeter(store).keep(KEY, LEARNED)
    clock.pass_by(29 * DAY)
    assert PersistentMeter(store).calibration(KEY) == LEARNED
    clock.pass_by(2 * DAY)
    assert PersistentMeter(store).calibration(KEY) is None


def test_the_first_samples_are_written_at_once_and_later_ones_now_and_then(store: SqliteStore, clock: Clock) -> None:
    meter = PersistentMeter(store, every=30, clock=clock)

    def stored(samples: int) -> int:
        meter.keep(KEY, replace(LEARNED, samples=samples))
        found = PersistentMeter(store).calibration(KEY)
        assert found is not None
        return found.samples

    assert [stored(n) for n in (1, 2, 3, 5, 6, 7)] == [1, 2, 3, 5, 5, 5]
    clock.pass_by(31)
    assert [stored(n) for n in (8, 9)] == [8, 8]
    known = meter.calibration(KEY)
    assert known is not None
    assert known.samples == 9


def test_of_two_processes_the_one_that_saw_more_is_kept(store: SqliteStore) -> None:
    one, two = PersistentMeter(store), PersistentMeter(store)
    one.keep(KEY, LEARNED)
    two.keep(KEY, replace(LEARNED, factor=2.0, samples=3))
    assert PersistentMeter(store).calibration(KEY) == LEARNED


def good() -> dict[str, Any]:
    return {"version": 1, **asdict(LEARNED)}


BROKEN = {
    "nothing": b"",
    "null": b"null",
    "no JSON": b"\xff{",
    "deep": b"[" * 100_000,
    "a list": b"[1]",
    "no fields": b"{}",
    "of another version": json.dumps({**good(), "version": 2}).encode(),
    "one more field": json.dumps({**good(), "colour": 1}).encode(),
    "one field less": json.dumps({k: v for k, v in good().items() if k != "spread"}).encode(),
    "a text": json.dumps({**good(), "factor": "1.3"}).encode(),
    "a list in a field": json.dumps({**good(), "factor": [1.3]}).encode(),
    "NaN": json.dumps({**good(), "factor": float("nan")}).encode(),
    "infinite": json.dumps({**good(), "weight": float("inf")}).encode(),
    "absurd": json.dumps({**good(), "factor": 50.0}).encode(),
    "negative": json.dumps({**good(), "additive": -1.0}).encode(),
    "half a sample": json.dumps({**good(), "samples": 1.5}).encode(),
    "true": json.dumps({**good(), "samples": True}).encode(),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_record_that_can_not_be_right_is_none_and_is_written_over(store: SqliteStore, name: str) -> None:
    key = json.dumps(KEY)
    store.update("calibration", key, lambda _: BROKEN[name], ttl=DAY)
    meter = PersistentMeter(store)
    assert meter.calibration(KEY) is None
    meter.keep(KEY, LEARNED)
    assert PersistentMeter(store).calibration(KEY) == LEARNED


def test_a_store_that_fails_costs_only_what_others_learned(store: SqliteStore) -> None:
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    meter = PersistentMeter(store)
    meter.keep(KEY, LEARNED)
    assert (meter.faults, meter.calibration(KEY)) == (1, LEARNED)
    other.execute("ROLLBACK")
    other.close()
    store.close()
    store.path.unlink()
    store.path.mkdir()
    again = PersistentMeter(store)
    assert (again.calibration(KEY), again.calibration(KEY), again.faults) == (None, None, 1)


def test_a_restarted_proxy_measures_a_new_conversation_as_the_old_one_did(tmp_path: Path) -> None:
    """The fake provider adds no overhead for tools as OpenAI does; what it counts is learned from its answers."""
    kept = {"ledger": {"url": f"sqlite:{tmp_path / 'ledger.db'}"}, "policy": {"summaries": False}}

    def request(start: str, turns: int) -> dict[str, Any]:
        talk = [
            {"role": "assistant" if i % 2 else "user", "content": f"{start} {i}: " + "def f(x): return x + 37\n" * 120}
            for i in range(2 * turns + 1)
        ]
        return {"model": "claude-opus-4-8", "max_tokens": 9, "messages": talk}

    def measured(url: str, start: str, turns: int) -> float:
        headers = {"anthropic-version": "2023-06-01", "x-api-key": "k"}
        answer = httpx.post(url + "/v1/messages", json=request(start, turns), headers=headers, timeout=30)
        return int(answer.headers["x-ctxproxy-tokens-before"]) / provider.model_requests[-1].tokens

    with FakeProvider(window=200_000, wording="anthropic") as provider:
        with serving(provider.base_url, window=200_000, **kept) as proxy:
            cold = measured(proxy.url, "first", 1)
            for turns in range(2, 7):
                measured(proxy.url, "first", turns)
        with serving(provider.base_url, window=200_000, **kept) as proxy:
            warm = measured(proxy.url, "second", 3)
    # Its vocabulary is o200k, so that our estimate for Claude is far too high before anything was learned.
    assert cold > 1.2
    assert abs(warm - 1) < 0.1
