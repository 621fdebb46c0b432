"""What was learned from refusals: the true limits of models, and which conversations keep failing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

__all__ = ["Breaker", "Limits"]

_MOST = 4_096  # entries: bounds the memory of a proxy that sees many accounts


@dataclass(frozen=True, slots=True)
class _Learned:
    limit: int
    until: float


class Limits:
    """Upper bounds in tokens, per (upstream, account, model), that expire after `ttl` seconds."""

    def __init__(self, *, ttl: float = 86_400.0) -> None:
        self._ttl = ttl
        self._known: OrderedDict[Hashable, _Learned] = OrderedDict()
        self._lock = threading.Lock()

    def learn(self, key: Hashable, limit: int, *, now: float) -> None:
        """Keep the smaller of two bounds; a repeated one lives on."""
        with self._lock:
            known = self.get(key, now=now)
            self._known[key] = _Learned(min(limit, known) if known else limit, now + self._ttl)
            self._known.move_to_end(key)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)

    def get(self, key: Hashable, *, now: float) -> int | None:
        found = self._known.get(key)
        return found.limit if found and found.until > now else None


class Breaker:
    """Stops resending for a conversation whose last `most` requests all failed in spite of it."""

    def __init__(self, *, most: int = 2) -> None:
        self._most = most
        self._failures: OrderedDict[Hashable, int] = OrderedDict()
        self._lock = threading.Lock()

    def is_open(self, key: Hashable) -> bool:
        return self._failures.get(key, 0) >= self._most

    def failure(self, key: Hashable) -> None:
        with self._lock:
            self._failures[key] = self._failures.get(key, 0) + 1
            self._failures.move_to_end(key)
            while len(self._failures) > _MOST:
                self._failures.popitem(last=False)

    def success(self, key: Hashable) -> None:
        with self._lock:
            self._failures.pop(key, None)
