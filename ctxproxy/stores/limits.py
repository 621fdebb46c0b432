"""Learned limits that outlive the process and are shared by workers."""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from ctxproxy.errors import LedgerError
from ctxproxy.limits import Limits
from ctxproxy.stores.sqlite import SqliteStore

__all__ = ["PersistentLimits"]

_log = logging.getLogger("ctxproxy")

_MOST = 4_096  # keys in memory
_KIND = "limit"


@dataclass(frozen=True, slots=True)
class _Known:
    """A limit in tokens, until when it holds, and when the store was asked; times in seconds since the epoch."""

    limit: int | None
    until: float
    asked: float


class PersistentLimits(Limits):
    """`Limits` in a store: read from memory, asked for again after `refresh` seconds, written through.

    A store that fails costs what other processes have learned, never the call.

    Args:
        store: where they are kept.
        ttl: seconds that a limit holds.
        refresh: seconds after which a limit that another process learned is seen at the latest.
    """

    def __init__(self, store: SqliteStore, *, ttl: float = 86_400.0, refresh: float = 15.0) -> None:
        super().__init__(ttl=ttl)
        self.faults = 0
        self._store = store
        self._life = ttl
        self._refresh = refresh
        self._memory: OrderedDict[Hashable, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def learn(self, key: Hashable, limit: int, *, now: float) -> None:
        """Keep the smaller of two bounds; a repeated one lives on."""
        until = now + self._life
        mine = self._memory.get(key)

        def change(old: bytes | None) -> bytes:
            bounds = [k.limit for k in (mine, _read(old, now)) if k and k.limit and k.until > now]
            return json.dumps([min([limit, *bounds]), until]).encode()

        try:
            value = self._store.update(_KIND, _name(key), change, ttl=self._life)
        except LedgerError as error:
            self._failed(error)
            value = change(None)
        self._put(key, _read(value, now) or _Known(limit, until, now))

    def get(self, key: Hashable, *, now: float) -> int | None:
        known = self._memory.get(key)
        if known is None or abs(now - known.asked) > self._refresh:
            try:
                stored = _read(self._store.get(_KIND, _name(key)), now)
            except LedgerError as error:
                self._failed(error)
                stored = known and _Known(known.limit, known.until, now)
            known = stored or _Known(None, 0.0, now)
            self._put(key, known)
        return known.limit if known.until > now else None

    def _put(self, key: Hashable, known: _Known) -> None:
        with self._lock:
            self._memory[key] = known
            self._memory.move_to_end(key)
            while len(self._memory) > _MOST:
                self._memory.popitem(last=False)

    def _failed(self, error: LedgerError) -> None:
        self.faults += 1
        _log.warning("a learned limit was not shared: %s", error)


def _name(key: Hashable) -> str:
    return json.dumps(key, default=repr)


def _read(value: bytes | None, now: float) -> _Known | None:
    """A stored limit; None where there is none, or one that can't be read."""
    try:
        limit, until = json.loads(value or b"null")
        return _Known(int(limit), float(until), now)
    except (TypeError, ValueError):
        return None
