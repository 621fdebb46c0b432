"""prioritize: score exchanges, keep the best that fit, in their original order.

Scores and words are the Grid design's; both can be configured. Used when a sliding window would lose what
matters most: at OVERFLOW, and to pick what a window should spare.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ctxproxy.conversation import Exchange, Message, texts_of
from ctxproxy.strategies.draft import Draft
from ctxproxy.strategies.window import candidates, noted

__all__ = ["RULES", "Rule", "prioritize", "score", "scores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An exchange scores `points` where `pattern` is found; `role` limits the rule to what that role said."""

    name: str
    points: int
    pattern: str
    role: str | None = None
    ignore_case: bool = False


RULES: tuple[Rule, ...] = (
    Rule(name="checkpoint", points=100, pattern="CHECKPOINT"),
    Rule(name="decision", points=90, pattern="decide|choose|prefer|want", role="user", ignore_case=True),
    Rule(name="error", points=80, pattern="ERROR|FAILED|FAILURE|exception"),
    Rule(name="code change", points=70, pattern="created|modified|commit|git add"),
    Rule(name="file operation", points=60, pattern="wrote|edited|deleted"),
    Rule(name="progress", points=50, pattern="complete|done|finished|progress"),
)
_ROUTINE = 30


def score(role: str, text: str, rules: Sequence[Rule] = RULES) -> int:
    """The points of one message."""
    for rule in rules:
        if rule.role in (None, role) and re.search(rule.pattern, text, re.IGNORECASE if rule.ignore_case else 0):
            return rule.points
    return _ROUTINE


def scores(messages: Sequence[Message], group: Exchange, rules: Sequence[Rule] = RULES) -> int:
    """The points of an exchange: its best message's."""
    return max(score(messages[i].role, "\n".join(texts_of(messages[i])), rules) for i in group)


def prioritize(draft: Draft, *, rules: Sequence[Rule] = RULES, facts: bool = True) -> Draft:
    """Drop the lowest scores first, the older of two equals first, until the target is met."""
    groups = candidates(draft)
    order = sorted(groups, key=lambda g: (scores(draft.messages, g, rules), g.start))
    left, gone = draft.tokens + 64, list[Exchange]()
    for group in order:
        if left <= draft.target:
            break
        left -= sum(draft.sizes[i] for i in group)
        gone.append(group)
    if not gone:
        return draft
    gone.sort(key=lambda g: g.start)
    return noted(draft.drop_all(gone, "lowest priority"), facts=facts).done("prioritize")
