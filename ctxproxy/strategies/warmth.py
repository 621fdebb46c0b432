"""warmth: compress what an agent learned, for the budget or for the hand-over to the next agent.

By priority: gotchas prevent bugs, codebase_patterns are needed for the work, user_preferences make it good,
fragile_areas prevent breakage, almost_did is nice to have. The first category that does not fit whole is
included in part, its first items first; those after it go.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ctxproxy.tokens import estimate_tokens

__all__ = ["PRIORITY", "compress_warmth", "dump"]

PRIORITY: tuple[str, ...] = ("gotchas", "codebase_patterns", "user_preferences", "fragile_areas", "almost_did")


_PLAIN = re.compile(r"[A-Za-z](?:[\w ,.()/'-]*[\w.)'])?")
_RESERVED = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def dump(value: Any, *, indent: int = 0) -> str:
    """Plain values in YAML's block style, as far as sizes need it (strings are quoted as JSON)."""
    pad = "  " * indent
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return "".join(
            f"{pad}{key}:\n{dump(item, indent=indent + 1)}" if _nested(item) else f"{pad}{key}: {_scalar(item)}\n"
            for key, item in items
        )
    if _nested(value):
        return "".join(
            f"{pad}-\n{dump(item, indent=indent + 1)}" if _nested(item) else f"{pad}- {_scalar(item)}\n"
            for item in cast("Sequence[Any]", value)
        )
    return f"{pad}{_scalar(value)}\n"


def _nested(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple)) and bool(cast("Sequence[Any]", value))


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def compress_warmth(
    warmth: Mapping[str, Any], target_tokens: int = 10_000, *, count: Callable[[str], int] = estimate_tokens
) -> dict[str, Any]:
    """The warmth in at most `target_tokens` of its YAML; a new mapping, in the order of priority.

    Warmth that fits is returned whole, with its own order. Categories without a priority go last.
    """
    if count(dump(warmth)) <= target_tokens:
        return dict(warmth)
    names = [name for name in PRIORITY if name in warmth] + [name for name in warmth if name not in PRIORITY]
    kept: dict[str, Any] = {}
    for name in names:
        if count(dump({**kept, name: warmth[name]})) <= target_tokens:
            kept[name] = warmth[name]
            continue
        part = _part(kept, name, warmth[name], target_tokens, count)
        if part:
            kept[name] = part
        break
    return kept


def _part(kept: Mapping[str, Any], name: str, items: Any, target: int, count: Callable[[str], int]) -> Any:
    """The first items of a category that still fit; items are never cut in the middle."""
    if isinstance(items, Mapping):
        pairs = list(cast("Mapping[str, Any]", items).items())
    elif isinstance(items, (list, tuple)):
        pairs = list(enumerate(cast("Sequence[Any]", items)))
    else:
        return None

    def first(n: int) -> Any:
        return dict(pairs[:n]) if isinstance(items, Mapping) else [item for _, item in pairs[:n]]

    # By bisection: each look at a size counts a whole text, and there may be thousands of items.
    most = bisect_left(range(1, len(pairs) + 1), True, key=lambda n: count(dump({**kept, name: first(n)})) > target)
    return first(most)
