"""Decoded ledger entries in memory, so that a turn without a new compaction reads no entry from the disk."""

from __future__ import annotations

from collections import OrderedDict

from ctxproxy.ledger import Entry

__all__ = ["EntryCache"]


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
        self._entries[id] = entry
        self._bytes += entry.size
        while self._bytes > self._max_bytes:
            _, gone = self._entries.popitem(last=False)
            self._bytes -= gone.size
