from __future__ import annotations

import unicodedata

import pytest

from ctxproxy.tokens import byte_bound
from ctxproxy.tokens.families import FAMILIES, family


def test_byte_level_families_make_no_more_tokens_than_bytes():
    for name in ("o200k", "cl100k", "llama", "deepseek", "glm", "kimi", "mistral"):
        assert byte_bound(1000, family=name) == 1001


def test_normalizing_families_may_grow():
    assert byte_bound(1000, family="qwen") == 3001
    assert byte_bound(1000, family="qwen", non_ascii=0) == 1001
    assert byte_bound(1000, family="claude", non_ascii=0) == 1501
    assert byte_bound(1000, family="claude", non_ascii=100) == 1801


def test_no_text_grows_more_than_the_bound_says():
    worst = max(
        len(unicodedata.normalize("NFC", chr(code)).encode()) / len(chr(code).encode())
        for code in range(0x110000)
        if not 0xD800 <= code <= 0xDFFF
    )
    assert worst == 3


def test_unknown_families():
    assert byte_bound(10, family="nobody-knows") is None
    assert byte_bound(10, family="unknown") is None
    assert family("nobody-knows") == FAMILIES["unknown"]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_estimated_family_states_a_margin(name: str):
    assert 0 < FAMILIES[name].margin < 0.5
