from __future__ import annotations

import importlib.util
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxproxy.tokens import byte_bound, counter
from ctxproxy.tokens.counter import CharsCounter, passes
from ctxproxy.tokens.families import FAMILIES

exact = counter("o200k")
pytestmark = pytest.mark.skipif(not exact.exact, reason="toktok-rs is not installed")
needs_splintr = pytest.mark.skipif(importlib.util.find_spec("splintr") is None, reason="splintr-rs is not installed")

# Counts by tiktoken 0.14 (o200k_base, cl100k_base).
KNOWN = [
    ("", 0, 0),
    ("hello world", 2, 2),
    ("The quick brown fox jumps over the lazy dog.", 10, 10),
    ("<|endoftext|>", 7, 7),
    ("1234567", 3, 3),
    ("def main() -> None:\n    return\n", 9, 9),
]


@pytest.mark.parametrize(("text", "o200k", "cl100k"), KNOWN)
def test_openai_counts_are_those_of_the_reference(text: str, o200k: int, cl100k: int):
    assert counter("o200k").count(text) == o200k
    assert counter("cl100k").count(text) == cl100k


def test_an_exact_counter_says_so():
    assert (exact.name, exact.exact, exact.margin) == ("o200k_base", True, 0.0)


def test_the_counter_of_a_family_is_made_once():
    assert counter("claude") is counter("claude")
    assert counter("o200k") is exact


@pytest.mark.parametrize("family", [*FAMILIES, "a-family-nobody-knows"])
def test_every_family_counts(family: str):
    found = counter(family)
    assert found.count("") == 0
    assert 0 < found.count("one two three") < 20
    assert found.exact == (found.margin == 0.0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00", "ok \udc00\ud800 ok"])
def test_surrogates_count(family: str, text: str):
    found = counter(family)
    assert 0 < found.count(text) < 30
    assert found.count_many(["x", text, ""]) == [found.count("x"), found.count(text), 0]


def test_a_surrogate_pair_counts_as_its_character():
    assert exact.count("\ud83d\ude00") == exact.count("\U0001f600")
    assert exact.count("\ud800") == exact.count("\ufffd")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(codec=None), max_size=80), max_size=5))
def test_counting_many_is_counting_each_within_the_bound(texts: list[str]):
    for family in ("o200k", "cl100k", "claude", "gemini", "unknown"):
        found = counter(family)
        counts = found.count_many(texts)
        assert counts == [found.count(text) for text in texts]
        for text, tokens in zip(texts, counts, strict=True):
            assert (tokens > 0) == (text != "")
            size = len(text.encode("utf-8", "surrogatepass"))
            if found.exact:
                assert tokens <= (byte_bound(size, family=family) or 0)


def test_chars_per_token():
    found = counter("claude", chars_per_token=3.5)
    assert isinstance(found, CharsCounter)
    assert found.count("x" * 35) == 10
    assert found.count_many(["x" * 7, ""]) == [2, 0]
    assert not found.exact


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_chars_per_token_must_be_positive(value: float):
    with pytest.raises(ValueError, match="chars_per_token"):
        counter("o200k", chars_per_token=value)


def test_the_self_test_tells_a_wrong_engine():
    assert passes(exact, "o200k_base")
    assert passes(counter("cl100k"), "cl100k_base")
    assert not passes(exact, "cl100k_base")
    assert not passes(CharsCounter(4.0), "o200k_base")


FALLBACK = """
import sys, types, warnings
{setup}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from ctxproxy.tokens import counter
    found = counter("o200k")
    counter("claude").count("x")
    counter("o200k").count("x")
print(found.name, found.exact, len(caught), str(caught[0].message))
"""


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ('sys.modules["toktok"] = None', "is not installed"),
        ('sys.modules["toktok"] = types.ModuleType("toktok")', "fails (AttributeError)"),
        (
            'fake = types.ModuleType("toktok"); sys.modules["toktok"] = fake\n'
            "class Engine:\n"
            "    count = staticmethod(len)\n"
            "    count_batch = staticmethod(lambda texts, threads, special: [len(text) for text in texts])\n"
            "fake._encoding = lambda name: Engine()",
            "counts wrongly",
        ),
        (
            'fake = types.ModuleType("toktok"); sys.modules["toktok"] = fake\n'
            "class PanicException(BaseException): pass\n"
            "def _encoding(name): raise PanicException\n"
            "fake._encoding = _encoding",
            "fails (PanicException)",
        ),
    ],
)
def test_without_a_sound_engine_tokens_are_estimated_with_one_warning(setup: str, says: str):
    script = FALLBACK.format(setup=setup)
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.startswith("classes False 1 ")
    assert says in output


@needs_splintr
@pytest.mark.parametrize("family", ["gemini", "llama", "deepseek", "qwen", "mistral", "glm", "kimi"])
def test_open_families_are_exact_with_splintr(family: str):
    found = counter(family)
    assert found.exact
    assert found.count("hello world") == 2
    assert found.count_many(["a", "", "hello world"]) == [1, 0, 2]


@needs_splintr
def test_qwen_normalizes_first():
    assert counter("qwen").count("e\u0301") == counter("qwen").count(unicodedata.normalize("NFC", "e\u0301"))
