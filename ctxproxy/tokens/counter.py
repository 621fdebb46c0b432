"""Counters: one small protocol over exact tokenizers and estimators, chosen by tokenizer family."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

from ctxproxy.tokens.ctok import load_ctok
from ctxproxy.tokens.estimate import ClassCounter, FamilyEstimator
from ctxproxy.tokens.families import Counter
from ctxproxy.tokens.families import family as facts_of

__all__ = ["CharsCounter", "SplintrCounter", "ToktokCounter", "counter", "passes"]


@cache
def counter(family: str = "o200k", *, chars_per_token: float | None = None, slow: bool = False) -> Counter:
    """The best counter at hand for a tokenizer family; with `chars_per_token`, that many characters a token.

    The first call loads a vocabulary (0.2-0.4 s), later ones return the same counter. `slow` admits engines
    that do under 5 MB/s and hold the GIL (ctok, for Claude): not for a request's own path.
    """
    if chars_per_token is not None:
        return CharsCounter(chars_per_token)
    facts = facts_of(family)
    if facts.encoding and (exact := _toktok(facts.encoding)):
        return exact
    if facts.splintr and (exact := _splintr(facts.splintr, facts.nfc)):
        return exact
    if slow and facts.ctok and (near := load_ctok(facts.ctok)):
        return near
    base = _toktok("o200k_base") or ClassCounter()
    return base if family == "o200k" else FamilyEstimator(family, base)


class CharsCounter:
    """len(text) // chars_per_token, for whoever wants that rule. Its margin is wide: see `estimate_tokens`."""

    __slots__ = ("_chars_per_token", "exact", "margin", "name")

    def __init__(self, chars_per_token: float) -> None:
        if not chars_per_token > 0:
            raise ValueError(f"chars_per_token must be positive, not {chars_per_token!r}")
        self._chars_per_token = chars_per_token
        self.name, self.exact, self.margin = f"chars/{chars_per_token:g}", False, 0.6

    def count(self, text: str) -> int:
        return int(len(text) // self._chars_per_token)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]


class ToktokCounter:
    """Exact counts for OpenAI's vocabularies by toktok-rs. It releases the GIL while it counts."""

    __slots__ = ("_batch", "_one", "exact", "margin", "name")

    def __init__(self, encoding: str, engine: Any) -> None:
        self._one: Callable[[str], int] = engine.count
        self._batch: Callable[[list[str], int, bool], list[int]] = engine.count_batch
        self.name, self.exact, self.margin = encoding, True, 0.0

    def count(self, text: str) -> int:
        try:
            return self._one(text)
        except UnicodeEncodeError:
            return self._one(_without_surrogates(text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        try:
            # One thread: a pool costs more than it saves on texts of the size of messages.
            return self._batch(list(texts), 1, False)
        except UnicodeEncodeError:
            return [self.count(text) for text in texts]


class SplintrCounter:
    """Exact counts for open vocabularies by splintr-rs."""

    __slots__ = ("_encode", "_nfc", "exact", "margin", "name")

    def __init__(self, vocabulary: str, engine: Any, *, nfc: bool = False) -> None:
        # Of its methods only this one releases the GIL. It returns the ids and the offsets as packed integers.
        self._encode: Callable[[list[str]], tuple[bytes, bytes]] = engine.encode_batch_flat
        self._nfc = nfc
        self.name, self.exact, self.margin = vocabulary, True, 0.0

    def count(self, text: str) -> int:
        return self.count_many((text,))[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        ready = [unicodedata.normalize("NFC", text) for text in texts] if self._nfc else list(texts)
        try:
            _, offsets = self._encode(ready)
        except UnicodeEncodeError:
            _, offsets = self._encode([_without_surrogates(text) for text in ready])
        ends = memoryview(offsets).cast("Q").tolist()
        return [end - start for start, end in pairwise(ends)]


_LONE = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")


def _without_surrogates(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates as U+FFFD, which is what tiktoken counts."""
    return _LONE.sub("\ufffd", text).encode("utf-16-le", "surrogatepass").decode("utf-16-le")


# --- engines ---

# Texts with their o200k and cl100k counts by tiktoken: each tells apart some way in which a young engine
# could go wrong (contractions, digit groups, spaces, case, combining marks, special tokens as plain text).
_GOLDEN: tuple[tuple[str, int, int], ...] = (
    ("", 0, 0),
    ("a" * 100, 13, 13),
    ("=" * 47, 2, 2),
    (" " * 81 + "x", 3, 2),
    ("\n\n\n", 1, 1),
    ("I'll say we've DON'T y'all'd", 7, 10),
    ("HTTPServer parseJSONResponse snake_case_name kebab-case", 11, 11),
    ("1234567890 3.14159 2026-11-30T12:34:56.789Z", 25, 25),
    ("    def f(self, *args):\n\t\treturn {'key': [1, 2, 3]}\r\n", 23, 23),
    ("<|endoftext|><|im_start|>user", 13, 13),
    ("https://example.com/a?b=c&d=%20#e", 14, 14),
    ('$ git commit -m "fix: don\'t" && echo $?', 13, 14),
    ("Grüße aus Zürich, naïve café, Ærøskøbing", 16, 19),
    ("e\u0301 \u212b \ufb01", 5, 6),
    ("漢字かなカナ。안녕하세요", 8, 13),
    ("Привет, мир! مرحبا שלום नमस्ते สวัสดี", 15, 30),
    ("👩\u200d👩\u200d👧 🇩🇪 ❤\ufe0f 𝕏 \U0001d160", 21, 27),
    ("\x00\x1b[31m\u200b\u202e\ufeff", 8, 8),
    ("aGVsbG8gd29ybGQ/+8J+YWJjMTIzNDU2Nzg5MA==", 27, 29),
)


def passes(engine: Counter, encoding: str) -> bool:
    """Whether an engine counts our test texts as the reference does."""
    column = 1 if encoding == "o200k_base" else 2
    return engine.count_many([row[0] for row in _GOLDEN]) == [row[column] for row in _GOLDEN]


@cache
def _toktok(encoding: str) -> ToktokCounter | None:
    problem = "is not installed"
    try:
        # `_encoding` is the only way to a counter of single texts; `batch_count` looks the vocabulary up anew.
        engine = ToktokCounter(encoding, import_module("toktok")._encoding(encoding))
        if passes(engine, encoding):
            return engine
        problem = "counts wrongly"
    except (KeyboardInterrupt, SystemExit):
        raise
    except ImportError:
        pass
    except BaseException as error:  # a panic in Rust code is no Exception
        problem = f"fails ({type(error).__name__})"
    _warn(f"toktok-rs {problem}: tokens are estimated (see ctxproxy.tokens.estimate)")
    return None


@cache
def _splintr(vocabulary: str, nfc: bool) -> SplintrCounter | None:
    try:
        engine = import_module("splintr").Tokenizer.from_pretrained(vocabulary)
        found = SplintrCounter(vocabulary, engine, nfc=nfc)
        if found.count_many(["", "a", "hello hello hello"])[:2] == [0, 1]:
            return found
    except (KeyboardInterrupt, SystemExit):
        raise
    except ImportError:
        return None
    except BaseException as error:
        _warn(f"splintr-rs fails for {vocabulary} ({type(error).__name__}): its tokens are estimated")
    return None


@cache
def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)
