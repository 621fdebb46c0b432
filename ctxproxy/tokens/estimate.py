"""Counting without the model's vocabulary: by character classes, or from the o200k count of the same text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import mul

from ctxproxy.tokens.coefficients import CLASSES, FAMILY_WEIGHTS
from ctxproxy.tokens.families import Counter, family
from ctxproxy.tokens.features import features

__all__ = ["ClassCounter", "FamilyEstimator", "estimate_category_tokens", "estimate_tokens"]


def estimate_tokens(text: str, *, chars_per_token: float = 4.0) -> int:
    """len(text) // chars_per_token.

    A rule of thumb: on real text it is 28 % off on average for OpenAI's vocabularies, and half of the true
    count for current Claude models. The proxy measures with `counter` instead.
    """
    return int(len(text) // chars_per_token)


def estimate_category_tokens(categories: Mapping[str, str], *, chars_per_token: float = 4.0) -> dict[str, int]:
    """`estimate_tokens` of each category's text."""
    return {name: estimate_tokens(text, chars_per_token=chars_per_token) for name, text in categories.items()}


class ClassCounter:
    """o200k tokens from counts of character classes, for when no vocabulary can be loaded."""

    __slots__ = ("exact", "margin", "name")

    def __init__(self) -> None:
        self.name, self.exact, self.margin = "classes", False, 0.15

    def count(self, text: str) -> int:
        if not text:
            return 0
        value = sum(map(mul, CLASSES, features(text, fine=True)))
        # The longest tokens of long unbroken runs hold some 16 to 128 characters; no token is under a byte.
        return round(min(max(value, len(text) / 16, 1.0), 4.0 * len(text)))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]


class FamilyEstimator:
    """Another family's tokens, from the o200k count of the text and its character classes."""

    __slots__ = ("_base", "_weights", "exact", "margin", "name")

    # No piece of the fitted corpora lay outside (0.47 to 5.06): the weights are not trusted beyond.
    _LEAST, _MOST = 0.45, 5.0

    def __init__(self, name: str, base: Counter) -> None:
        self._base = base
        self._weights = FAMILY_WEIGHTS.get(name)
        self.name, self.exact = f"{name}~{base.name}", False
        self.margin = family(name).margin + base.margin

    def count(self, text: str) -> int:
        return self._convert(text, self._base.count(text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return list(map(self._convert, texts, self._base.count_many(texts)))

    def _convert(self, text: str, base: int) -> int:
        if self._weights is None or base == 0:
            return base
        value = self._weights[0] * base
        value += sum(map(mul, self._weights[1:], features(text)))
        return max(1, round(min(max(value, base * self._LEAST), base * self._MOST)))
