"""Cache markers: taken out, and carried over to another form of the same message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.markers import bare, carry

MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def dump(value: Any) -> bytes:
    return json.dumps(value).encode()


MARKED = [
    {"role": "user", "content": [{"type": "text", "text": "a", **MARK}]},
    {"role": "user", "content": [{**MARK, "type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "a", **MARK}]}],
    },
    {"role": "user", "content": "a", **MARK},
    {"content": [{"type": "text", "text": "a", "prompt_cache_breakpoint": True}], "role": "user"},
]


def without(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without(v) for k, v in value.items() if k not in ("cache_control", "prompt_cache_breakpoint")}
    return [without(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("value", MARKED)
def test_markers_go_and_nothing_else(value: Any) -> None:
    assert json.loads(bare(dump(value))) == without(value)
    assert list(json.loads(bare(dump(value)))) == list(without(value))


def test_a_message_without_markers_is_the_very_same() -> None:
    for raw in (
        b'{"role":"user","content":"he said \\"cache_control\\""}',
        dump({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n", "input": MARK}]}),
    ):
        assert bare(raw) is raw or bare(raw) == raw


@pytest.mark.parametrize("value", MARKED)
def test_where_only_markers_differ_the_client_s_message_goes(value: Any) -> None:
    raw = dump(value)
    assert carry(bare(raw), raw) is raw
    plain = bare(raw)
    assert carry(plain, plain) is plain


def test_an_unmarked_message_goes_in_the_first_form() -> None:
    first = dump({"role": "user", "content": [{"type": "text", "text": "a"}]})
    assert carry(first, dump({"role": "user", "content": "a"})) is first


def test_markers_are_carried_over_to_the_first_form() -> None:
    first = dump({"content": [{"text": "a", "type": "text"}], "role": "user"})
    now = dump({"role": "user", "content": [{"type": "text", "text": "a", **MARK}]})
    sent = carry(first, now)
    assert json.loads(sent)["content"][0]["cache_control"] == MARK["cache_control"]
    assert bare(sent) == first


def test_a_marker_is_worth_more_than_a_form_that_can_t_hold_it() -> None:
    first = dump({"role": "user", "content": "a"})
    now = dump({"role": "user", "content": [{"type": "text", "text": "a", **MARK}]})
    assert carry(first, now) is now


def test_a_message_with_a_name_twice_is_left_alone() -> None:
    raw = b'{"role":"user","content":[{"type":"text","text":"a","cache_control":{},"cache_control":{}}]}'
    assert bare(raw) is raw
    assert carry(b'{"role":"user","content":"a"}', raw) is not None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["content", "output", "cache_control", "input", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values, json_values)
def test_any_two_values_come_to_valid_json_without_more_markers(form: Any, raw: Any) -> None:
    form, raw = bare(dump(form)), dump(raw)
    sent = carry(form, raw)
    assert bare(bare(raw)) == bare(raw)
    json.loads(sent)
    assert sent.count(b'"cache_control"') <= max(raw.count(b'"cache_control"') + form.count(b'"cache_control"'), 0)
