"""Summaries that outlive the process and are shared by workers, with the places for the calls that make them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar, cast

from ctxproxy.conversation import Message, prefix_digest
from ctxproxy.errors import LedgerError
from ctxproxy.stores.sqlite import SqliteStore
from ctxproxy.summaries import Flight, Summaries, Summary

__all__ = ["SharedSummaries"]

_log = logging.getLogger("ctxproxy")
_T = TypeVar("_T")
_SUMMARIES, _FLIGHTS = "summary", "flight"


class SharedSummaries(Summaries):
    """`Summaries` in a store. A store that fails costs what other processes know, never the call.

    Breaker and spend limit are those of each process.

    Args:
        store: where they are kept.
        ttl: seconds that a summary is kept.
    """

    def __init__(self, store: SqliteStore, *, ttl: float = 7 * 86_400.0) -> None:
        super().__init__()
        self.faults = 0
        self._store = store
        self._ttl = ttl

    def find(self, key: Hashable, messages: Sequence[Message]) -> Summary | None:
        found = super().find(key, messages)
        if found is not None and 2 * found.length >= len(messages):
            return found
        stored = self._try(lambda: _read(self._store.get(_SUMMARIES, _name(key))), [])
        for item in stored:
            summary = _summary(item)
            if (
                summary is not None
                and summary.length <= len(messages)
                and (found is None or summary.length > found.length)
                and prefix_digest(messages[: summary.length]) == summary.chain
            ):
                found = summary
        return found

    def keep(self, key: Hashable, summary: Summary) -> None:
        super().keep(key, summary)
        mine = {"length": summary.length, "chain": summary.chain.hex(), "text": summary.text}

        def change(old: bytes | None) -> bytes:
            # The one before stays, for a fork that does not reach as far.
            return json.dumps([*_read(old)[-1:], mine]).encode()

        self._try(lambda: self._store.update(_SUMMARIES, _name(key), change, ttl=self._ttl), b"")

    def begin(self, key: Hashable, messages: Sequence[Message], *, now: float, seconds: float) -> Flight | None:
        flight = super().begin(key, messages, now=now, seconds=seconds)
        if flight is None:
            return None
        taken = False

        def change(old: bytes | None) -> bytes:
            nonlocal taken
            flights = [f for f in map(_flight, _read(old)) if f is not None and f.until > now]
            taken = any(f.concerns(messages, now=now) for f in flights)
            return _dump(flights if taken else [*flights, flight])

        self._try(lambda: self._store.update(_FLIGHTS, _name(key), change, ttl=seconds), b"")
        if taken:
            super().end(key, flight)
            return None
        return flight

    def end(self, key: Hashable, flight: Flight) -> None:
        super().end(key, flight)

        def change(old: bytes | None) -> bytes:
            return _dump([f for f in map(_flight, _read(old)) if f is not None and f.id != flight.id])

        self._try(lambda: self._store.update(_FLIGHTS, _name(key), change, ttl=60.0), b"")

    def flying(self, key: Hashable, messages: Sequence[Message], *, now: float) -> bool:
        if super().flying(key, messages, now=now):
            return True
        flights = map(_flight, self._try(lambda: _read(self._store.get(_FLIGHTS, _name(key))), []))
        return any(f is not None and f.concerns(messages, now=now) for f in flights)

    def _try(self, work: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return work()
        except LedgerError as error:
            self.faults += 1
            _log.warning("a summary was not shared: %s", error)
            return otherwise


def _name(key: Hashable) -> str:
    return json.dumps(key, default=lambda value: value.hex() if isinstance(value, bytes) else repr(value))


def _read(value: bytes | None) -> list[dict[str, Any]]:
    """A stored list; [] where there is none, or one that can't be read."""
    try:
        found: object = json.loads(value or b"[]")
    except ValueError:
        return []
    items = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def _summary(item: dict[str, Any]) -> Summary | None:
    try:
        return Summary(length=int(item["length"]), chain=bytes.fromhex(item["chain"]), text=str(item["text"]))
    except (KeyError, TypeError, ValueError):
        return None


def _flight(item: dict[str, Any]) -> Flight | None:
    try:
        return Flight(
            id=str(item["id"]),
            length=int(item["length"]),
            chain=bytes.fromhex(item["chain"]),
            until=float(item["until"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _dump(flights: Sequence[Flight]) -> bytes:
    return json.dumps(
        [{"id": f.id, "length": f.length, "chain": f.chain.hex(), "until": f.until} for f in flights]
    ).encode()
