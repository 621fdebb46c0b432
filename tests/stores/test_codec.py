from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.compaction import Compaction
from ctxproxy.errors import LedgerError
from ctxproxy.ledger import Entry
from ctxproxy.stores.codec import decode, encode
from stores.making import compaction, entry

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
integers = st.integers(-(2**63), 2**63 - 1)
values = st.recursive(
    st.none() | st.booleans() | integers | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
compactions = st.builds(
    Compaction,
    id=texts,
    reason=st.sampled_from(["proactive", "overflow", "retry"]),
    level=texts,
    model=texts,
    window=integers,
    target=integers,
    tokens_before=integers,
    tokens_after=integers,
    strategies=st.lists(texts, max_size=4).map(tuple),
    exchanges_cut=integers,
    messages_cut=integers,
    archived=st.lists(texts, max_size=4).map(tuple),
    edits=st.lists(st.dictionaries(texts, values, max_size=4), max_size=3).map(tuple),
    at=st.floats(allow_nan=False),
)
entries = st.builds(
    Entry,
    scope=texts,
    first=st.binary(max_size=40),
    length=integers,
    chain=st.binary(max_size=40),
    items=st.lists(st.integers(0, 2**40) | st.binary(max_size=200), max_size=8).map(tuple),
    compaction=compactions,
)


@given(entries)
def test_an_entry_comes_back_as_it_was(found: Entry) -> None:
    back = decode(encode(found))
    assert back == found
    assert [type(item) for item in back.items] == [type(item) for item in found.items]


@given(entries, st.data())
def test_damaged_bytes_are_a_ledger_error_or_another_entry(found: Entry, data: st.DataObject) -> None:
    whole = encode(found)
    at = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(LedgerError):
        decode(whole[:at])
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    with suppress(LedgerError):
        assert isinstance(decode(bytes(changed)), Entry)


@given(st.binary(max_size=200))
def test_other_bytes_are_a_ledger_error(data: bytes) -> None:
    with pytest.raises(LedgerError):
        decode(data)
    with pytest.raises(LedgerError):
        decode(b"\x01" + data)


def test_bytes_cost_their_own_size_and_little_more() -> None:
    data = bytes(range(256)) * 400
    assert len(encode(entry(items=(0, data, 5)))) - len(data) < 500


def test_another_version_is_not_read_as_this_one() -> None:
    with pytest.raises(LedgerError, match="later version"):
        decode(b"\x02" + encode(entry())[1:])


def test_a_field_of_another_release_does_no_harm() -> None:
    fields = msgspec.msgpack.decode(encode(entry())[1:])
    fields["later"] = 1
    del fields["compaction"]["at"]
    back = decode(b"\x01" + msgspec.msgpack.encode(fields))
    assert back.items == entry().items
    assert back.compaction.at == 0.0


@pytest.mark.parametrize("value", ["\ud800", 2**70, object()], ids=["surrogate", "integer", "object"])
def test_what_has_no_form_is_a_ledger_error(value: object) -> None:
    made = compaction(edits=({"edit": value},))
    with pytest.raises(LedgerError, match="can't be stored"):
        encode(Entry(scope="s", first=b"", length=1, chain=b"", items=(), compaction=made))
