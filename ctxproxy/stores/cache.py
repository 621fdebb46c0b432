"""Ledger entries and forms in memory, so that a turn without a new compaction reads little from the disk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ctxproxy.ledger import Entry

__all__ = ["EntryCache", "FormCache"]


class EntryCache:
    """Decoded entries by row id, bound in bytes. A row never changes: it is replaced by one with another id."""

    def __init__(self, *, max_bytes: int = 32 << 20) -> None:
        self._max_bytes = max_bytes
        self._file = 0
        self._bytes = 0
        self._entries: OrderedDict[int, Entry] = OrderedDict()

    def of(self, file: int) -> EntryCache:
        """The cache for the file that is open now: the ids of another one mean something else."""
        if file != self._file:
            self._file, self._bytes = file, 0
            self._entries.clear()
        return self

    def get(self, id: int) -> Entry | None:
        entry = self._entries.get(id)
        if entry is not None:
            self._entries.move_to_end(id)
        return entry

    def put(self, id: int, entry: Entry) -> None:
        known = self._entries.pop(id, None)  # two threads may have read the same row
        self._entries[id] = entry
        self._bytes += entry.size - (known.size if known is not None else 0)
        while self._bytes > self._max_bytes:
            _, gone = self._entries.popitem(last=False)
            self._bytes -= gone.size


class FormCache:
    """Forms of messages by conversation, bound in bytes; the least recently used conversation goes first.

    Another process may have replaced one: then this one goes on with what it sent before, which is as good.
    """

    def __init__(self, *, max_bytes: int = 32 << 20) -> None:
        self._max_bytes = max_bytes
        self._file = 0
        self._bytes = 0
        self._forms: OrderedDict[tuple[str, bytes], dict[bytes, bytes]] = OrderedDict()

    def of(self, file: int) -> FormCache:
        """The cache for the file that is open now."""
        if file != self._file:
            self._file, self._bytes = file, 0
            self._forms.clear()
        return self

    def get(self, scope: str, first: bytes, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        known = self._forms.get((scope, first))
        if known is None:
            return {}
        self._forms.move_to_end((scope, first))
        return {key: known[key] for key in keys if key in known}

    def put(self, scope: str, first: bytes, forms: Iterable[tuple[bytes, bytes]]) -> None:
        known = self._forms.setdefault((scope, first), {})
        for key, form in forms:
            self._bytes += len(form) - len(known.get(key, b""))
            known[key] = form
        while self._bytes > self._max_bytes and self._forms:
            _, gone = self._forms.popitem(last=False)
            self._bytes -= sum(map(len, gone.values()))
