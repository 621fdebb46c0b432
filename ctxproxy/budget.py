"""The token budget by category, the usage of a request, and the level that it reaches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Literal

from ctxproxy.conversation import Conversation, last_typed, texts_of

__all__ = [
    "CATEGORIES",
    "SHARES",
    "Basis",
    "Category",
    "Level",
    "Thresholds",
    "TokenBudget",
    "Usage",
    "level_of",
    "usage_of",
]

Category = Literal["system_instructions", "tools", "warmth", "plan", "current_input", "history", "reserve"]
CATEGORIES: tuple[Category, ...] = (
    "system_instructions",
    "tools",
    "warmth",
    "plan",
    "current_input",
    "history",
    "reserve",
)
Basis = Literal["counted", "anchored", "estimated", "provider"]

# Shares of the Grid design's 200K budget, so that they fit any window. Tools count with the system's share.
SHARES: Mapping[str, float] = MappingProxyType(
    {
        "system_instructions": 0.125,
        "warmth": 0.05,
        "plan": 0.10,
        "current_input": 0.25,
        "history": 0.375,
        "reserve": 0.10,
    }
)


class Level(IntEnum):
    """How full the budget is: NORMAL < 80 % <= WARNING < 90 % <= COMPRESS < 95 % <= EMERGENCY < 100 % <= OVERFLOW."""

    NORMAL = 0
    WARNING = 1
    COMPRESS = 2
    EMERGENCY = 3
    OVERFLOW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Shares of the budget at which a level begins."""

    warning: float = 0.80
    compress: float = 0.90
    emergency: float = 0.95
    overflow: float = 1.00


def level_of(fraction: float, thresholds: Thresholds = Thresholds()) -> Level:
    """The level of a fill share; every threshold is inclusive."""
    marks = (thresholds.warning, thresholds.compress, thresholds.emergency, thresholds.overflow)
    return Level(sum(fraction >= mark for mark in marks))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBudget:
    """`total` tokens that a conversation may use, split into categories by `shares`."""

    total: int = 200_000
    shares: Mapping[str, float] = field(default_factory=lambda: SHARES)

    def allocation(self, category: Category) -> int:
        """Tokens of one category; tools have none of their own."""
        return round(self.total * self.shares.get(category, 0.0))

    @property
    def allocations(self) -> dict[str, int]:
        return {name: round(self.total * share) for name, share in self.shares.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Measured tokens of one request.

    `value` is the figure that decides, `margin` how far the true one may lie above or below, in tokens,
    `basis` how it was found.
    """

    value: int
    margin: int
    basis: Basis
    by_category: Mapping[str, int]
    total: int

    @property
    def fraction(self) -> float:
        return self.value / self.total if self.total else 0.0


def usage_of(
    conversation: Conversation,
    *,
    total: int,
    value: int | None = None,
    margin: int = 0,
    basis: Basis = "counted",
    tags: Mapping[str, Sequence[str]] = MappingProxyType({}),
    reserve: int = 0,
) -> Usage:
    """Split the tokens of a request by category.

    `tags` gives, for `plan` and `warmth`, tag names (`<plan>...</plan>`) whose messages count there.
    `value` (tokens) replaces the counted sum where a better figure is known.
    """
    system = conversation.fixed.system + conversation.fixed.other
    split: dict[str, int] = dict.fromkeys(CATEGORIES, 0)
    split["tools"] = conversation.fixed.tools
    newest = last_typed(conversation.messages)
    patterns = [
        (name, re.compile("|".join(rf"<{re.escape(t)}[\s>]" for t in names))) for name, names in tags.items() if names
    ]
    for i, message in enumerate(conversation.messages):
        if message.role in ("system", "developer"):
            system += message.tokens
            continue
        category = "current_input" if newest is not None and i >= newest else "history"
        for name, pattern in patterns:
            if any(pattern.search(text) for text in texts_of(message)):
                category = name
        split[category] += message.tokens
    split["system_instructions"] = system
    split["reserve"] = reserve
    return Usage(
        value=conversation.tokens if value is None else value,
        margin=margin,
        basis=basis,
        by_category=MappingProxyType(split),
        total=total,
    )
