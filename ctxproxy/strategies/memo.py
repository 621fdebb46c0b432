"""A memory of extracted facts: a growing history is read once, not at every compaction."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace

import xxhash

from ctxproxy.strategies.facts import Fact, Passage, extract

__all__ = ["Extracts"]


class Extracts:
    """`extract`, remembered by a passage's content; the least recently used goes beyond `max_bytes` of facts."""

    def __init__(self, *, max_bytes: int = 64 << 20) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[tuple[object, ...], tuple[int, tuple[Fact, ...]]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, passage: Passage) -> tuple[Fact, ...]:
        digest = xxhash.xxh3_128_digest(passage.text.encode("utf-8", "surrogatepass"))
        key = (digest, passage.role, passage.kind, passage.name, passage.error)
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found[1]
        # Equal texts at different places are one: what is remembered must not depend on the place.
        facts = extract(replace(passage, index=0))
        with self._lock:
            if key not in self._known:
                size = 512 + sum(map(_size, facts))
                self._known[key] = (size, facts)
                self._bytes += size
            while self._bytes > self._max_bytes and len(self._known) > 1:
                _, (size, _) = self._known.popitem(last=False)
                self._bytes -= size
        return facts


def _size(fact: Fact) -> int:
    """About the bytes that a fact takes: many times those of its text, since each token is an object of its own."""
    words = (*fact.tokens, *fact.near)
    return 320 + len(fact.text) + len(fact.full) + sum(map(len, words)) + 56 * len(words) + 32 * len(fact.weights)
