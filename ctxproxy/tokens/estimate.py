"""Counting without a vocabulary: the four-characters rule by name."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["estimate_category_tokens", "estimate_tokens"]


def estimate_tokens(text: str, *, chars_per_token: float = 4.0) -> int:
    """len(text) // chars_per_token.

    A rule of thumb: on real text it is 28 % off on average for OpenAI's vocabularies, and half of the true
    count for current Claude models. The proxy measures with `counter` instead.
    """
    return int(len(text) // chars_per_token)


def estimate_category_tokens(categories: Mapping[str, str], *, chars_per_token: float = 4.0) -> dict[str, int]:
    """`estimate_tokens` of each category's text."""
    return {name: estimate_tokens(text, chars_per_token=chars_per_token) for name, text in categories.items()}
