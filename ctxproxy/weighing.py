"""A plan's price: its edits in tokens, and what `ctxproxy.cost` says of them."""

from __future__ import annotations

from ctxproxy.budget import Usage
from ctxproxy.conversation import Conversation
from ctxproxy.cost import CacheWatch, Rewrite, Weighed, weigh
from ctxproxy.effects import Call, Prepared
from ctxproxy.planning import Plan
from ctxproxy.policy import Policy
from ctxproxy.summaries import Summary, talk_of
from ctxproxy.tokens import Counter

__all__ = ["keys_of", "pays_late", "rewrite_of", "weigh_plan"]


def weigh_plan(
    caches: CacheWatch,
    call: Call,
    base: Prepared,
    plan: Plan,
    usage: Usage,
    *,
    counter: Counter,
    summary: Summary | None = None,
) -> Weighed | None:
    """What a plan costs and saves in money against sending `base`, whose size is `usage`.

    A `summary` of the whole conversation was made for this very request, so its call counts.
    """
    conversation = base.conversation
    made = summary is not None and summary.length == len(conversation.messages) - conversation.head
    rewrite = rewrite_of(base, plan, usage, summary=counter.count(summary.text) if summary and made else 0)
    return weigh(base.info, rewrite, cache=caches.state(*keys_of(call, conversation), now=call.now))


def keys_of(call: Call, conversation: Conversation) -> tuple[tuple[str, bytes], tuple[str, str]]:
    """What a cache is watched by: the conversation, and the model at its server."""
    return talk_of(call, conversation), (call.upstream, conversation.model)


def rewrite_of(base: Prepared, plan: Plan, usage: Usage, *, summary: int = 0) -> Rewrite:
    """A plan in tokens, in the measure of `usage`. `summary`: tokens of one that a call was made for, 0 without."""
    fixed = base.conversation.fixed.tokens
    scale = usage.value / max(1, fixed + sum(m.tokens for m in base.sent))
    kept, new = fixed, 0
    for a, b in zip(base.sent, plan.messages, strict=False):
        if a.digest != b.digest:
            break
        kept += a.tokens
    for message in reversed(base.sent):
        if message.role == "assistant" or message.of("tool_call"):
            break
        new += message.tokens
    after = round(plan.tokens * scale)
    return Rewrite(
        before=usage.value,
        after=after,
        kept=min(after, round(kept * scale)),
        new=round(new * scale),
        asked=usage.value if summary else 0,
        answered=summary,
    )


def pays_late(weighed: Weighed | None, policy: Policy) -> bool:
    """Whether an optional compaction would take more requests to pay than the policy wants to wait for."""
    return weighed is not None and policy.payback_turns is not None and weighed.payback > policy.payback_turns
