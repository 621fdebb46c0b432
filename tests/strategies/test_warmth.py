from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.strategies.warmth import PRIORITY, compress_warmth, dump
from ctxproxy.tokens import estimate_tokens

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs"), max_codepoint=0xFFFF), max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc_", min_size=1, max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(PRIORITY), VALUES, max_size=5))
def test_the_dump_is_yaml_of_the_same_value(value: dict[str, Any]) -> None:
    assert yaml.safe_load(dump(value)) in (value, None if not value else value)


def test_warmth_that_fits_is_returned_whole_in_its_own_order() -> None:
    warmth = {"almost_did": ["x"], "gotchas": ["y"]}
    assert list(compress_warmth(warmth)) == ["almost_did", "gotchas"]


def test_categories_go_by_priority_and_the_first_that_does_not_fit_is_included_in_part() -> None:
    warmth = {name: [f"{name} item {i}: " + "word " * 10 for i in range(40)] for name in reversed(PRIORITY)}
    short = compress_warmth(warmth, 1_000)
    assert list(short) == list(PRIORITY[: len(short)])
    *whole, last = short
    assert all(short[name] == warmth[name] for name in whole)
    assert short[last] == warmth[last][: len(short[last])]
    assert 0 < len(short[last]) < 40
    assert estimate_tokens(dump(short)) <= 1_000


def test_the_given_warmth_is_left_alone() -> None:
    warmth = {"gotchas": [f"item {i} " * 20 for i in range(50)]}
    compress_warmth(warmth, 100)
    assert len(warmth["gotchas"]) == 50


@given(
    st.dictionaries(st.sampled_from((*PRIORITY, "other")), st.lists(st.text(max_size=40), max_size=8)),
    st.integers(1, 200),
)
def test_the_result_is_never_over_its_target(warmth: dict[str, Any], target: int) -> None:
    short = compress_warmth(warmth, target)
    assert not short or estimate_tokens(dump(short)) <= target
