from __future__ import annotations

import importlib.util

import pytest

from ctxproxy.tokens import counter
from ctxproxy.tokens.ctok import CtokCounter, load_ctok

needs_ctok = pytest.mark.skipif(importlib.util.find_spec("ctok") is None, reason="ctok is not installed")


def words_and_frame(text: str, version: str) -> int:
    """Stands for ctok: a token a word, in a frame of 7."""
    return 7 + len(text.split())


def test_the_frame_of_a_message_is_not_counted():
    found = CtokCounter("4.8", words_and_frame)
    assert found.count("") == 0
    assert found.count("one") == 1
    assert found.count("one two three. Four five") == 5
    assert found.count_many(["a b", "", "c"]) == [2, 0, 1]


def test_parts_that_come_again_are_counted_once():
    seen: list[str] = []

    def count(text: str, version: str) -> int:
        seen.append(text)
        return words_and_frame(text, version)

    found = CtokCounter("4.8", count)
    assert found.count("again and again and again") == 5
    assert seen.count("again") == 1


def test_a_hot_path_never_gets_it():
    assert not counter("claude").name.startswith("ctok")


@needs_ctok
@pytest.mark.parametrize("version", ["3.0", "4.7", "4.8"])
def test_cutting_at_words_changes_nothing(version: str):
    import ctok

    found = load_ctok(version)
    assert found is not None
    text = "The proxy reads a request, measures it and sends it on; see docs/usage.md for more. " * 3
    frame = ctok.token_count("a", version) - 1
    assert found.count(text) == ctok.token_count(text, version) - frame
    assert counter("claude", slow=True).name == "ctok-4.8"
