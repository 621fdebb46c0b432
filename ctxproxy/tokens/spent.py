"""The provider's own figures for one request, from the `usage` object of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

__all__ = ["Spent", "input_tokens_of", "spent_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Tokens: the whole input, the parts of it that were read from and written to a prompt cache, and the output.

    0 where the provider says nothing.
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0


def spent_of(usage: object, *, wire: str) -> Spent:
    """What a usage object states. `wire` is chat, responses or messages; what is no positive number counts as 0."""
    if not isinstance(usage, Mapping):
        return Spent()
    fields = cast("Mapping[str, object]", usage)
    output = _number(fields.get("output_tokens")) or _number(fields.get("completion_tokens"))
    if wire != "messages":
        # Both names include cached tokens; some servers use the other API's name.
        first, second = ("input_tokens", "prompt_tokens") if wire == "responses" else ("prompt_tokens", "input_tokens")
        total = _number(fields.get(first)) or _number(fields.get(second))
        details = _mapping(fields.get("prompt_tokens_details")) or _mapping(fields.get("input_tokens_details"))
        # DeepSeek states its cache beside the total.
        cached = _number(details.get("cached_tokens")) or _number(fields.get("prompt_cache_hit_tokens"))
        written = _number(details.get("cache_write_tokens"))
        return Spent(input=total, cached=min(cached, total), written=written, output=output)
    written = _number(fields.get("cache_creation_input_tokens"))
    if not written:
        written = sum(map(_number, _mapping(fields.get("cache_creation")).values()))
    cached = _number(fields.get("cache_read_input_tokens"))
    total = _number(fields.get("input_tokens")) + cached + written or _number(fields.get("prompt_tokens"))
    return Spent(input=total, cached=cached, written=written, output=output)


def input_tokens_of(usage: object, *, wire: str) -> int | None:
    """The whole input that a usage object states: fresh, read from cache and written to cache; None if it does not."""
    return spent_of(usage, wire=wire).input or None


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 < value < 1e12 else 0
