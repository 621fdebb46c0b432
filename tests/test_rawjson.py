"""ctxproxy/rawjson.py: edits by path touch the bytes they name and no others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy import rawjson
from ctxproxy.errors import WireFormatError

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(st.text(), VALUES, min_size=1, max_size=5)
ARRAYS = st.lists(VALUES, min_size=1, max_size=5)
FORMS = st.sampled_from(({}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}))


@given(st.one_of(OBJECTS, ARRAYS), FORMS, st.data())
def test_replacing_a_value_leaves_every_other_byte(value: Any, form: dict[str, Any], data: st.DataObject) -> None:
    body = json.dumps(value, **form).encode("utf-8", "surrogatepass")
    key = data.draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
    span = next(s for s in rawjson.entries(body) if s.key == key)
    edited = rawjson.replace(body, (key,), b'"NEW"')
    assert edited == body[: span.value] + b'"NEW"' + body[span.stop :]
    expected = dict(value) if isinstance(value, dict) else list(value)
    expected[key] = "NEW"
    assert json.loads(edited) == expected


@given(ARRAYS, FORMS, st.data())
def test_deleting_and_inserting_items(value: list[Any], form: dict[str, Any], data: st.DataObject) -> None:
    body = json.dumps({"a": value, "b": 1}, **form).encode("utf-8", "surrogatepass")
    gone = data.draw(st.sets(st.integers(0, len(value) - 1)))
    less = rawjson.delete(body, [("a", i) for i in gone])
    assert json.loads(less)["a"] == [v for i, v in enumerate(value) if i not in gone]
    at = data.draw(st.integers(0, len(value) + 1))
    more = rawjson.insert(body, ("a",), at, b"[0]")
    assert json.loads(more)["a"] == [*value[:at], [0], *value[at:]]
    assert json.loads(more)["b"] == 1


@given(OBJECTS, FORMS, st.data())
def test_deleting_and_putting_members(value: dict[str, Any], form: dict[str, Any], data: st.DataObject) -> None:
    body = json.dumps(value, **form).encode("utf-8", "surrogatepass")
    key = data.draw(st.sampled_from(list(value)))
    assert json.loads(rawjson.delete(body, [(key,)])) == {k: v for k, v in value.items() if k != key}
    new = data.draw(st.text())
    put = json.loads(rawjson.put(body, new, b"7"))
    assert put == {**value, new: 7}
    assert list(put) == list({**value, new: 7})


@given(st.one_of(OBJECTS, ARRAYS), FORMS)
def test_slices_are_the_bytes_that_came(value: Any, form: dict[str, Any]) -> None:
    body = json.dumps(value, **form).encode("utf-8", "surrogatepass")
    for span in rawjson.entries(body):
        assert json.loads(body[span.value : span.stop]) == value[span.key]
    pieces = rawjson.members(body).values() if isinstance(value, dict) else rawjson.array(body)
    assert [bytes(p) for p in pieces] == [body[s.value : s.stop] for s in rawjson.entries(body)]


@pytest.mark.parametrize(
    "body",
    [
        b'{"n": 1e400, "m": [1.0, 1.50, -0]}',
        b'{"n": NaN, "m": [{"x": 1}]}',
        b'{"n": "\\ud83d", "m": ["\\udc00", 2]}',
        '{"n": "a\\ud800é", "m": ["日本", "x"]}'.encode(),
        b'\xef\xbb\xbf{"n": 0, "m": [1, 2]}',
        b' {"n" : 0 , "m" :[ 1 , 2 ] } ',
    ],
)
def test_what_a_strict_parser_refuses_is_sliced_too(body: bytes) -> None:
    assert set(rawjson.members(body)) == {"n", "m"}
    items = rawjson.array(rawjson.members(body)["m"])
    edited = rawjson.replace(body, ("m", 0), b'"NEW"')
    assert edited == body.replace(items[0], b'"NEW"', 1) or b'"NEW"' in edited
    assert rawjson.members(edited)["n"] == rawjson.members(body)["n"]
    assert rawjson.array(rawjson.members(edited)["m"])[1:] == items[1:]


@pytest.mark.parametrize("body", [b"", b"{", b"[1,]", b'{"a" 1}', b"nothing", b"{]", b'{"a":1}}'])
def test_what_is_no_json_says_so(body: bytes) -> None:
    with pytest.raises(WireFormatError):
        rawjson.load(body)


def test_what_is_nested_too_deeply_says_so() -> None:
    for read in (rawjson.load, rawjson.array):
        with pytest.raises(WireFormatError):
            read(b"[" * 100_000 + b"]" * 100_000)


def test_a_name_twice_is_never_edited() -> None:
    with pytest.raises(WireFormatError):
        rawjson.entries(b'{"messages": [], "messages": [1]}')


def test_a_missing_place_says_so() -> None:
    with pytest.raises(WireFormatError):
        rawjson.replace(b'{"a": [1]}', ("a", 3), b"2")


def test_a_lone_surrogate_stays_an_escape() -> None:
    assert rawjson.dump({"t": "a\ud83d"}) == b'{"t":"a\\ud83d"}'
    assert rawjson.dump({"t": "é"}) == '{"t":"é"}'.encode()
    assert rawjson.dump_ascii({"t": "é"}) == b'{"t":"\\u00e9"}'
