"""Summaries in a store: found by other processes, one call at a time, and no fault that costs a request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxproxy.conversation import Message, prefix_digest
from ctxproxy.runtime import Runtime
from ctxproxy.stores import SharedSummaries, SqliteStore
from ctxproxy.summaries import Summaries, Summary

KEY = ("chat:anna", b"first")


def messages(count: int, start: str = "a") -> tuple[Message, ...]:
    runtime = Runtime()
    found = [{"role": ("user", "assistant")[i % 2], "content": f"{start} {i}"} for i in range(count)]
    body = json.dumps({"model": "gpt-4o", "messages": found}).encode()
    return runtime.engine.reader.read(body, runtime.call(api="chat", body=body).wire).messages


def summary(of: tuple[Message, ...], text: str = "notes") -> Summary:
    return Summary(length=len(of), chain=prefix_digest(of), text=text)


@pytest.fixture(params=["one process", "two processes"])
def pair(request: Any, tmp_path: Path) -> tuple[Summaries, Summaries]:
    if request.param == "one process":
        one = Summaries()
        return one, one
    return tuple(SharedSummaries(SqliteStore(tmp_path / "x.db")) for _ in range(2))  # type: ignore[return-value]


def test_a_summary_is_found_by_whoever_begins_with_the_same_messages(pair: tuple[Summaries, Summaries]) -> None:
    one, other = pair
    one.keep(KEY, summary(messages(4)))
    assert other.find(KEY, messages(9)) == summary(messages(4))
    assert other.find(KEY, messages(3)) is None
    assert other.find(KEY, messages(9, "b")) is None
    assert other.find(("chat:bert", b"first"), messages(9)) is None


def test_the_longest_one_counts(pair: tuple[Summaries, Summaries]) -> None:
    one, other = pair
    one.keep(KEY, summary(messages(2)))
    assert other.find(KEY, messages(9)) == summary(messages(2))
    one.keep(KEY, summary(messages(8)))
    assert other.find(KEY, messages(9)) == summary(messages(8))
    assert other.find(KEY, messages(5)) == summary(messages(2))


def test_one_call_of_a_conversation_at_a_time(pair: tuple[Summaries, Summaries]) -> None:
    one, other = pair
    flight = one.begin(KEY, messages(4), now=100.0, seconds=10)
    assert flight is not None
    assert other.begin(KEY, messages(6), now=101.0, seconds=10) is None
    assert other.flying(KEY, messages(6), now=101.0)
    # Another conversation that only begins with the same message, and one that does not reach as far.
    assert not other.flying(KEY, messages(6, "b"), now=101.0)
    fork = other.begin(KEY, messages(2), now=101.0, seconds=10)
    assert fork is not None
    other.end(KEY, fork)
    one.end(KEY, flight)
    assert not other.flying(KEY, messages(6), now=101.0)
    assert other.begin(KEY, messages(6), now=101.0, seconds=10) is not None


def test_a_call_whose_process_died_blocks_nobody_for_long(pair: tuple[Summaries, Summaries]) -> None:
    one, other = pair
    assert one.begin(KEY, messages(4), now=100.0, seconds=10) is not None
    assert other.begin(KEY, messages(4), now=109.0, seconds=10) is None
    assert other.begin(KEY, messages(4), now=111.0, seconds=10) is not None


def test_a_store_that_is_down_costs_only_what_others_know(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "x.db", timeout=0.01)
    found = SharedSummaries(store)
    store.close()
    (tmp_path / "x.db").unlink()
    (tmp_path / "x.db").mkdir()
    found.keep(KEY, summary(messages(4)))
    assert found.find(KEY, messages(5)) == summary(messages(4))
    flight = found.begin(KEY, messages(4), now=1.0, seconds=1)
    assert flight is not None
    found.end(KEY, flight)
    assert found.faults >= 3


def test_what_can_not_be_read_is_no_summary(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "x.db")
    for value in (b"[", b"{}", b"[1]", b'[{"length": "x", "chain": "zz"}]', b"\xff"):
        store.update("summary", json.dumps(["chat:anna", b"first".hex()]), lambda _, v=value: v, ttl=100)
        store.update("flight", json.dumps(["chat:anna", b"first".hex()]), lambda _, v=value: v, ttl=100)
        found = SharedSummaries(store)
        assert found.find(KEY, messages(5)) is None
        assert not found.flying(KEY, messages(5), now=1.0)
