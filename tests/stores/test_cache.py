from __future__ import annotations

from ctxproxy.stores.cache import EntryCache, FormCache
from stores.making import entry


def test_entries_stay_within_the_bound_and_the_least_recently_used_goes() -> None:
    made = entry(items=(b"x" * 1_000,))
    cache = EntryCache(max_bytes=3 * made.size)
    for id in (1, 2, 3):
        cache.put(id, made)
    assert cache.get(1) == made
    cache.put(4, made)
    assert [cache.get(id) is not None for id in (1, 2, 3, 4)] == [True, False, True, True]


def test_an_entry_over_the_bound_is_not_held() -> None:
    cache = EntryCache(max_bytes=100)
    cache.put(1, entry())
    assert cache.get(1) is None


def test_another_file_has_other_entries() -> None:
    cache = EntryCache()
    cache.of(1).put(1, entry())
    assert cache.of(1).get(1) == entry()
    assert cache.of(2).get(1) is None
    cache.put(1, entry())
    assert cache.of(2).get(1) == entry()


def test_forms_stay_within_the_bound_and_the_least_recently_used_conversation_goes() -> None:
    cache = FormCache(max_bytes=3_000)
    for first in (b"a", b"b", b"c"):
        cache.put("s", first, [(b"k", b"x" * 1_000)])
    assert cache.get("s", b"a", [b"k"])
    cache.put("s", b"d", [(b"k", b"x" * 1_000)])
    assert [bool(cache.get("s", first, [b"k"])) for first in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    cache.put("s", b"a", [(b"k", b"y")])
    assert cache.get("s", b"a", [b"k", b"other"]) == {b"k": b"y"}
    assert cache.of(2).get("s", b"a", [b"k"]) == {}


def test_an_entry_put_twice_counts_once() -> None:
    made = entry(items=(b"x" * 1_000,))
    cache = EntryCache(max_bytes=2 * made.size)
    for _ in range(5):
        cache.put(1, made)
    cache.put(2, made)
    assert cache.get(1) == cache.get(2) == made
