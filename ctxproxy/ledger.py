"""The ledger: the memory of compactions, keyed by the content of the prefix that each replaced.

Clients send their whole history on every call. Without a memory each turn would be compacted anew, with
other bytes each time. With it the same prefix is replaced by the same bytes until the next compaction.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ctxproxy.compaction import Compaction, Original
from ctxproxy.conversation import Message, prefix_digest
from ctxproxy.edits import Item

__all__ = ["FORMS", "Archive", "Entry", "Ledger", "MemoryArchive", "MemoryLedger", "match"]


FORMS = 16_384
"""Messages of one conversation whose forms are kept: more than a window holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One compaction, replayable.

    It replaces the first `length` messages after the head (the leading system and developer messages, which
    clients change every turn) of every conversation in `scope` whose prefix digest there is `chain`.
    `items` are indexes into that prefix, for messages that stay as the client sends them, and bytes.
    """

    scope: str
    first: bytes
    length: int
    chain: bytes
    items: tuple[Item, ...] = field(repr=False)
    compaction: Compaction

    @property
    def size(self) -> int:
        """Bytes that the entry holds, roughly."""
        texts = sum(len(edit.get("text") or "") for edit in self.compaction.edits)
        return 256 + texts + sum(len(item) if isinstance(item, bytes) else 8 for item in self.items)


class Ledger(Protocol):
    """Where compactions are remembered. A store that fails raises LedgerError; no request fails of it."""

    def recall(self, scope: str, first: bytes) -> Sequence[Entry]:
        """The entries of a scope whose conversation begins with the message digest `first`."""
        ...

    def remember(self, entry: Entry) -> None:
        """Keep an entry."""
        ...

    def find(self, scope: str, id: str) -> Entry | None:
        """The entry of a compaction, None where it is not there (or belongs to another scope)."""
        ...

    def forms(self, scope: str, first: bytes, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Of these keys those whose form is known: the bytes in which a message was first sent."""
        ...

    def keep_forms(self, scope: str, first: bytes, forms: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep forms of messages; they are forgotten with their conversation's entries."""
        ...


class Archive(Protocol):
    """Where the originals of what was cut are kept."""

    def keep(self, scope: str, originals: Sequence[Original]) -> None:
        """Keep originals; those already there are left alone."""
        ...

    def restore(self, scope: str, id: str) -> bytes | None:
        """The bytes of one original, None where it is not there (or belongs to another scope)."""
        ...


def match(entries: Sequence[Entry], messages: Sequence[Message]) -> Entry | None:
    """The entry with the longest prefix that `messages` (without the head) still begins with."""
    lengths = {e.length for e in entries if e.length <= len(messages)}
    if not lengths:
        return None
    digests = {n: prefix_digest(messages[:n]) for n in lengths}
    fitting = [e for e in entries if digests.get(e.length) == e.chain]
    return max(fitting, key=lambda e: (e.length, e.compaction.at), default=None)


class MemoryLedger:
    """A ledger of this process, bound in bytes; the least recently used conversation goes first."""

    def __init__(self, *, max_bytes: int = 64 << 20) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[tuple[str, bytes], tuple[Entry, ...]] = OrderedDict()
        self._forms: dict[tuple[str, bytes], dict[bytes, bytes]] = {}
        self._lock = threading.Lock()

    def recall(self, scope: str, first: bytes) -> Sequence[Entry]:
        with self._lock:
            found = self._entries.get((scope, first), ())
            if found:
                self._entries.move_to_end((scope, first))
            return found

    def remember(self, entry: Entry) -> None:
        with self._lock:
            key = (entry.scope, entry.first)
            old = self._entries.get(key, ())
            same = [e for e in old if (e.length, e.chain) == (entry.length, entry.chain)]
            kept = tuple(e for e in old if e not in same)[-7:]
            self._bytes += entry.size - sum(e.size for e in old if e not in kept)
            self._entries[key] = (*kept, entry)
            self._entries.move_to_end(key)
            self._make_room()

    def find(self, scope: str, id: str) -> Entry | None:
        with self._lock:
            entries = [entry for key, found in self._entries.items() if key[0] == scope for entry in found]
        return next((entry for entry in reversed(entries) if entry.compaction.id == id), None)

    def forms(self, scope: str, first: bytes, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        with self._lock:
            known = self._forms.get((scope, first), {})
            return {key: known[key] for key in keys if key in known}

    def keep_forms(self, scope: str, first: bytes, forms: Sequence[tuple[bytes, bytes]]) -> None:
        with self._lock:
            key = (scope, first)
            if key not in self._entries:
                return
            known = self._forms.setdefault(key, {})
            for name, form in forms:
                self._bytes += len(form) - len(known.pop(name, b""))
                known[name] = form
            while len(known) > FORMS:
                self._bytes -= len(known.pop(next(iter(known))))
            self._make_room()

    def _make_room(self) -> None:
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            key, gone = self._entries.popitem(last=False)
            self._bytes -= sum(e.size for e in gone) + sum(map(len, self._forms.pop(key, {}).values()))


class MemoryArchive:
    """An archive of this process, bound in bytes; the oldest originals go first."""

    def __init__(self, *, max_bytes: int = 64 << 20) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._data: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, scope: str, originals: Sequence[Original]) -> None:
        with self._lock:
            for original in originals:
                key = (scope, original.id)
                if key not in self._data:
                    self._data[key] = original.data
                    self._bytes += len(original.data)
            while self._bytes > self._max_bytes and len(self._data) > 1:
                _, gone = self._data.popitem(last=False)
                self._bytes -= len(gone)

    def restore(self, scope: str, id: str) -> bytes | None:
        with self._lock:
            return self._data.get((scope, id))
