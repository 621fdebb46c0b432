"""Counters: one small protocol over exact tokenizers and estimators, chosen by tokenizer family."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from ctxproxy.tokens.families import family as family_facts

__all__ = ["Counter", "counter"]


class Counter(Protocol):
    """Counts the tokens of text.

    `exact` counters have a `margin` of 0; else the true count lies within value * (1 ± margin) for prompts
    of usual content.
    """

    @property
    def name(self) -> str: ...
    @property
    def exact(self) -> bool: ...
    @property
    def margin(self) -> float: ...
    def count(self, text: str) -> int: ...
    def count_many(self, texts: Sequence[str]) -> list[int]: ...


@cache
def counter(family: str = "o200k", *, chars_per_token: float | None = None) -> Counter:
    """The best counter at hand for a tokenizer family; with `chars_per_token`, that many characters a token."""
    if chars_per_token is not None:
        return CharsCounter(chars_per_token)
    facts = family_facts(family)
    engine = _toktok(facts.encoding or "o200k_base")
    assert engine is not None
    return engine


class CharsCounter:
    """len(text) / chars_per_token: for whoever wants that rule."""

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
            return self._one(without_surrogates(text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        try:
            return self._batch(list(texts), 1, False)
        except UnicodeEncodeError:
            return [self.count(text) for text in texts]


def without_surrogates(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates as U+FFFD, which is what tiktoken counts."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@cache
def _toktok(encoding: str) -> ToktokCounter | None:
    try:
        module: Any = import_module("toktok")
        engine: Any = module._encoding(encoding)
    except (ImportError, AttributeError, KeyError):
        warnings.warn("toktok-rs is not installed: token counts are estimates", RuntimeWarning, stacklevel=2)
        return None
    return ToktokCounter(encoding, engine)
