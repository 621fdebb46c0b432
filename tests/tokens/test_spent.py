from __future__ import annotations

import math
from typing import Any

import pytest

from ctxproxy.tokens.spent import Spent, input_tokens_of, spent_of


@pytest.mark.parametrize(
    ("wire", "usage", "tokens"),
    [
        ("chat", {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}, 12),
        ("chat", {"input_tokens": 12}, 12),
        ("chat", {"prompt_tokens": 12.0}, 12),
        ("responses", {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 8}}, 12),
        ("responses", {"prompt_tokens": 12}, 12),
        ("messages", {"input_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}, 123),
        ("messages", {"input_tokens": 0, "cache_read_input_tokens": 100, "cache_creation_input_tokens": None}, 100),
        ("messages", {"input_tokens": 3, "cache_creation": {"ephemeral_5m_input_tokens": 4}}, 7),
        ("messages", {"input_tokens": 3, "cache_creation_input_tokens": 4, "cache_creation": {"x": 4}}, 7),
        ("messages", {"prompt_tokens": 9}, 9),
    ],
)
def test_input_tokens_of_usage(wire: str, usage: dict[str, Any], tokens: int):
    assert input_tokens_of(usage, wire=wire) == tokens


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        "12",
        12,
        {},
        {"prompt_tokens": None, "input_tokens": "12"},
        {"prompt_tokens": True, "input_tokens": -1},
        {"prompt_tokens": math.nan, "input_tokens": math.inf},
        {"prompt_tokens": 0, "input_tokens": 0},
        {"input_tokens": {}},
    ],
)
def test_usage_that_says_nothing(wire: str, usage: object):
    assert input_tokens_of(usage, wire=wire) is None


def test_what_was_cached_written_and_answered():
    chat = {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
    assert spent_of(chat, wire="chat") == Spent(input=12, cached=8, output=3)
    messages = {"input_tokens": 2, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 4, "output_tokens": 1}
    assert spent_of(messages, wire="messages") == Spent(input=11, cached=5, written=4, output=1)
    deepseek = {"prompt_tokens": 9, "prompt_cache_hit_tokens": 6, "completion_tokens": 1}
    assert spent_of(deepseek, wire="chat") == Spent(input=9, cached=6, output=1)


def test_more_from_the_cache_than_there_is_counts_as_all():
    usage = {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 50}}
    assert spent_of(usage, wire="chat") == Spent(input=5, cached=5)
